"""The light form of the recorded texts of specification curation, 0.4."""

import json
from pathlib import Path

from pairmill.text import light


def test_the_light_form_is_the_recorded_one(shared: Path) -> None:
    lines = (shared / "conformance" / "curate" / "dedup" / "normalise.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) > 50
    assert [light(case["text"]) for case in cases] == [case["light"] for case in cases]
