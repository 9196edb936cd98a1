"""DSIR of the recorded rows: log weights, the rows that are taken, in the order in which they are, and divergences.

Any folder that is made like ``conformance/curate/dsir`` is tried: raw rows in files whose names begin with ``raw``, a
file for each target, and ``expected.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill import _native
from pairmill.engine import manifest
from pairmill.engine.inputs import task_name
from tests.support.stages.selecting import column, select


@pytest.fixture(scope="session")
def folders(shared: Path) -> list[Path]:
    result = sorted(path.parent for path in (shared / "conformance/curate").glob("*/expected.json"))
    result = [path for path in result if list(path.glob("raw*"))]
    assert result
    return result


def cases(folder: Path) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads((folder / "expected.json").read_text("utf-8"))["cases"]
    assert result
    return result


def settings_of(folder: Path, case: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the case as settings."""
    shares = case.get("proportions") or [1.0] * len(case["targets"])
    dsir = {name: case[name] for name in ("fields", "ngrams", "buckets", "hash", "laplace", "length")}
    dsir["targets"] = [
        {"name": name, "rows": str(next(folder.glob(f"{name}.*"))), "share": share}
        for name, share in zip(case["targets"], shares, strict=True)
    ]
    dsir["noise"] = more.pop("noise", True)
    return {"method": "dsir", "rows": case["k"], "dsir": dsir, **more}


def raw(folder: Path) -> list[Path]:
    return sorted(folder.glob("raw*"))


def rows_of(made: Path, folder: Path, name: str) -> dict[str, Any]:
    """Read a column of the rows that stay, by row id, in rank order."""
    result = {}
    for path in raw(folder):
        task = task_name(path.name)
        ordinals = column(made, task, "ordinal", "origin")
        result |= {f"{task}:{item}": value for item, value in zip(ordinals, column(made, task, name), strict=True)}
    return result


def taken(made: Path, folder: Path, targets: list[str]) -> list[str]:
    """List the chosen rows, target by target, by key."""
    by = rows_of(made, folder, "chosen_by")
    result: list[str] = []
    for name in targets:
        keys = rows_of(made, folder, f"key_{name}")
        mine = [row for row, chosen in by.items() if chosen == name]
        result += sorted(mine, key=lambda row: -keys[row])
    return result


def test_the_recorded_rows_are_chosen(folders: list[Path], tmp_path: Path) -> None:
    for folder in folders:
        for case in cases(folder):
            label, targets = f"{folder.name}: {case['case']}", case["targets"]
            root = tmp_path / folder.name / case["case"]
            # In mode report all rows stay, so that the weights of those that are not chosen can be seen too.
            made = select(root, raw(folder), settings_of(folder, case, mode="report"), seed=case["seed"])
            for name in targets:
                weights = list(rows_of(made, folder, f"log_weight_{name}").values())
                np.testing.assert_allclose(
                    weights, case["log_weights"][name], rtol=1e-9, atol=1e-12, err_msg=f"{label} {name}"
                )
            assert taken(made, folder, targets) == case["selected"], label
            dropped = select(root, raw(folder), settings_of(folder, case), seed=case["seed"])
            assert taken(dropped, folder, targets) == case["selected"], label
            assert len(rows_of(dropped, folder, "chosen_by")) == len(case["selected"]), label
            data = manifest.read(str(dropped))
            assert data is not None
            assert data.ledger.rows_out == len(case["selected"])
            for name in targets:
                for key, value in case["kl"][name].items():
                    if key != "on_theme":
                        got = data.data["divergences"][name][key]
                        assert got == pytest.approx(value, rel=1e-9, abs=1e-9), f"{label} {name} {key}"


def test_without_noise_the_largest_weights_are_taken(folders: list[Path], tmp_path: Path) -> None:
    for folder in folders:
        for case in cases(folder):
            if len(case["targets"]) > 1 or not case.get("greedy_top_10"):
                continue
            settings = settings_of(folder, {**case, "k": 10}, noise=False)
            made = select(tmp_path / folder.name / case["case"], raw(folder), settings, seed=case["seed"])
            assert taken(made, folder, case["targets"]) == case["greedy_top_10"], case["case"]


def test_draws_of_rows(folders: list[Path]) -> None:
    for folder in folders:
        noise = json.loads((folder / "expected.json").read_text("utf-8"))["noise"]
        assert noise
        for item in noise:
            task, _, ordinal = item["row_id"].rpartition(":")
            row = np.array([int(ordinal)])
            (uniform,) = _native.select_draws(task, row, item["seed"], item["salt"])
            (gumbel,) = _native.select_draws(task, row, item["seed"], item["salt"], noise=True)
            assert uniform == item["uniform"]
            assert gumbel == pytest.approx(item["gumbel"], rel=1e-14)


def test_two_workers_and_a_token_budget_take_a_prefix_of_the_order(folders: list[Path], tmp_path: Path) -> None:
    """Rows are taken in key order until the budget is reached; the row that reaches it is taken."""
    for folder in folders:
        case = cases(folder)[0]
        settings = {**settings_of(folder, case), "rows": None, "tokens": 2_000}
        made = select(tmp_path / folder.name, raw(folder), settings, seed=case["seed"], workers=2)
        rows = taken(made, folder, case["targets"])
        tokens = rows_of(made, folder, "tokens")
        assert rows == case["selected"][: len(rows)]
        assert sum(tokens[row] for row in rows) >= 2_000 > sum(tokens[row] for row in rows[:-1])
