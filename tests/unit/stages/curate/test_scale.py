"""What docs/scale.md says of the rounds; tests/long/test_scale.py plans them for a billion rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[4]
ROWS = 62_500
"""Of 1 kB, in a slice of 64 MiB."""


def plan(slices: int, rows: int, groups: int) -> dict[str, Any]:
    """What ``tests.support.stages.curate_rounds`` prints, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.stages.curate_rounds", *map(str, (slices, rows, groups))]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


planned = cache(plan)


def test_every_round_has_the_shards_that_the_document_says() -> None:
    few, many = (
        {name for kinds in planned(*size)["rounds"] for name in kinds} for size in ((64, ROWS, 4), (1_000, ROWS, 64))
    )
    usual = {
        *("ReadKeys", "Score", "FindEqual", "SplitShard", "Sign", "Buckets", "Gather", "Resolve", "Split"),
        *("Decide", "WriteRows", "AddUp", "Summarise"),
    }
    assert few == {*usual, "Join"}
    assert many == {
        *(*usual, "DealKeys", "Merge", "Scatter", "Unite", "Agree", "Contract", "Finish", "Allot", "Enrol"),
    }
    kinds = few | many
    document = (REPOSITORY / "docs" / "scale.md").read_text(encoding="utf-8")
    assert [name for name in sorted(kinds) if f"`{name}`" not in document] == []


def test_a_plan_of_four_times_the_slices_takes_at_most_six_times_as_long() -> None:
    # Of processor time, which others beside it hardly stretch; where they do, it is taken again, up to three times.
    assert any(
        many["planning"] < 6 * few["planning"]
        for few, many in ((take(1_000, ROWS, 64), take(4_000, ROWS, 256)) for take in (planned, plan, plan))
    )
