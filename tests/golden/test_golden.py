"""The checksum rule: the example data gives the recorded bytes, whatever was made faster."""

import importlib.util
import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_the_example_data_gives_the_recorded_bytes(profile: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("record", Path(__file__).parent / "record.py")
    assert spec is not None
    assert spec.loader is not None
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    recorded = json.loads(record.RECORD.read_text())[profile]
    assert len(recorded) > 80
    assert record.digests(profile, tmp_path) == recorded
