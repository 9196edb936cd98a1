"""A billion rows are planned on one machine: docs/scale.md."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_many_shards import kinds, measure, resumed
from tests.unit.stages.curate.test_scale import ROWS, planned

SLICES, GROUPS = 16_000, 1_100
"""A billion rows of 1 kB in slices of 64 MiB, and groups of 256 MiB of the sketches that are compared."""
MOST_SECONDS, MOST_BYTES = 60, 1 << 30


def test_a_hundred_thousand_shards_are_planned_within_a_minute_and_a_gigabyte() -> None:
    found = planned(SLICES, ROWS, GROUPS)
    assert sum(sum(kinds.values()) for kinds in found["rounds"]) > 100_000
    assert found["planning"] < MOST_SECONDS
    assert found["peak"] < MOST_BYTES


def test_a_round_of_a_million_shards_is_planned_within_a_gigabyte() -> None:
    found = measure("plan", 1_000_000)
    assert found["done"] == 1_000_000
    assert found["peak"] < MOST_BYTES


def test_a_hundred_thousand_finished_shards_are_resumed_within_a_minute(tmp_path: Path) -> None:
    found, requests = resumed(tmp_path, 100_000)
    assert found["done"] == 100_000
    assert found["seconds"] < MOST_SECONDS
    assert sum(kinds(requests).values()) < 500
