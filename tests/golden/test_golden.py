"""The checksum rule: the example data gives the recorded bytes, whatever was made faster."""

import json
from pathlib import Path

import pytest

from pairmill.sources.datasets import SOURCES
from tests.golden.record import RECORD, clean_digests, digests


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_the_example_data_gives_the_recorded_bytes(profile: str, tmp_path: Path) -> None:
    recorded = {path: one for path, one in json.loads(RECORD.read_text())[profile].items() if not of_every(path)}
    assert len(recorded) > 80
    assert digests(profile, tmp_path) == recorded


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_clean_gives_the_recorded_bytes_of_every_source(profile: str, tmp_path: Path) -> None:
    recorded = {path: one for path, one in json.loads(RECORD.read_text())[profile].items() if of_every(path)}
    assert len(recorded) > 250
    assert sum(path.startswith("every/raw/") for path in recorded) == len(SOURCES)
    assert clean_digests(profile, tmp_path) == recorded


def of_every(path: str) -> bool:
    return path.startswith("every/")
