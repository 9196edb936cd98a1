"""The checksum rule: the example data gives the recorded bytes, whatever was made faster."""

import json
from pathlib import Path

import pytest

from tests.golden.record import RECORD, digests


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_the_example_data_gives_the_recorded_bytes(profile: str, tmp_path: Path) -> None:
    recorded = json.loads(RECORD.read_text())[profile]
    assert len(recorded) > 80
    assert digests(profile, tmp_path) == recorded
