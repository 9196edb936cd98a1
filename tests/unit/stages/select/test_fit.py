"""Counts of rows and targets: which rows count, and how blocks add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.engine import manifest
from pairmill.engine.manifest import content_key
from pairmill.engine.shards import run_shard
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.errors import InputError
from pairmill.formats import row_files
from pairmill.formats.limits import EXPANSION, RECORD_BYTES
from pairmill.formats.slices import Slicing
from pairmill.rowstage import Block, Rows
from pairmill.stages.select import arrays, divergence, score
from pairmill.stages.select.attributes import AttributeQuery
from pairmill.stages.select.features import Features, Fitted, log_weights, shares
from pairmill.stages.select.fit import FitRows, FitTarget
from pairmill.stages.select.model import AddUp, Model
from pairmill.stages.select.settings import Settings
from tests.support.stages.selecting import select

ROWS = [{"condition": "direct", "instruction": f"a w{at % 3}", "response": f"b c x{at}"} for at in range(40)]


def settings_of(more: str = "") -> Settings:
    return Settings.parse(f"method: dsir\nrows: 5\ndsir: {{{more}buckets: 50, targets: [{{name: t, rows: t}}]}}")


def run(shard: Shard[Any], root: Path) -> ShardRecord:
    return run_shard("select", replace(shard, key=content_key(shard.name)), None, root.as_uri())()


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fitted(folder: Path, root: Path, settings: Settings, seed: int = 0) -> list[ShardRecord]:
    blocks = Rows.discover([str(folder)], verify=False, longest=RECORD_BYTES, expansion=EXPANSION).blocks
    return [
        run(FitRows.from_settings(block, settings, AttributeQuery.from_settings(settings), seed), root)
        for block in blocks
    ]


def target_block(path: Path, fields: list[str]) -> Block:
    rows = Rows.discover(
        [str(path)], verify=False, longest=RECORD_BYTES, expansion=EXPANSION, option="dsir.targets t", fields=fields
    )
    return rows.blocks[0]


def target_of(block: Block, settings: Settings) -> FitTarget:
    return FitTarget(block, Features.from_settings(settings.dsir), name="target")


def counts_of(rows: list[dict[str, str]], fields: tuple[str, ...] = ("instruction", "response")) -> list[int]:
    counts = np.zeros(50, np.int64)
    columns = {name: pa.array([row[name] for row in rows]) for name in fields}
    Features(fields, 2, 50, "xxh3", "").count(columns, counts)
    result: list[int] = counts.tolist()
    return result


def test_blocks_and_slices_add_up_to_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "SLICING", Slicing(200, open_from=1))
    monkeypatch.setattr("pairmill.rowstage.rows._BLOCK_BYTES", 600)
    rows = tmp_path / "rows"
    rows.mkdir()
    written(rows / "b.parquet", ROWS[10:])
    written(rows / "a.jsonl", ROWS[:10])
    records = fitted(rows, tmp_path, settings_of())
    assert len(records) > 2
    total = run(AddUp(tuple(records), (tuple(records[:1]),), 1.0, (), name="add up"), tmp_path)
    model = total.read(Model)
    assert (model.rows, model.candidates, model.fitted) == (40, 40, 40)
    assert arrays.load(total, arrays.COUNTS)[0].tolist() == counts_of(ROWS)
    assert model.features == sum(counts_of(ROWS))


def test_some_rows_are_fitted_by_their_draws(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    written(rows / "a.jsonl", ROWS)
    (record,) = fitted(rows, tmp_path, settings_of("fit_share: 0.4, "), seed=3)
    draws = _native.select_draws("a.jsonl", np.arange(len(ROWS)), 3, "fit")
    mine = [row for row, draw in zip(ROWS, draws, strict=True) if draw < 0.4]
    assert 5 < len(mine) < 30
    assert arrays.load(record, arrays.COUNTS)[0].tolist() == counts_of(mine)
    assert (record.read(Fitted).fitted, record.read(Fitted).rows) == (len(mine), len(ROWS))


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_target_needs_only_the_fields_that_count(name: str, tmp_path: Path) -> None:
    rows = [{"response": f"b c x{at}", "other": "d"} for at in range(9)]
    settings = settings_of("fields: [response], ")
    block = target_block(written(tmp_path / name, rows), ["response"])
    record = run(target_of(block, settings), tmp_path)
    assert arrays.load(record, arrays.COUNTS)[0].tolist() == counts_of(rows, ("response",))
    assert record.read(Fitted).rows == 9
    with pytest.raises(InputError, match="instruction"):
        run(target_of(block, settings_of()), tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"instruction": "a", "response": null}', "row 2: response is not text; got NoneType"),
        ('{"instruction": "a"}', "row 2: response is not text; got nothing"),
        ("[1]", "row 2: not a JSON object"),
    ],
)
def test_a_wrong_row_of_a_target_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"instruction": "a", "response": "b"}\n' + line + "\n")
    block = target_block(path, ["instruction", "response"])
    with pytest.raises(InputError, match=message):
        run(target_of(block, settings_of()), tmp_path)


def test_log_weights_are_of_smoothed_shares() -> None:
    counts = np.array([[6, 2, 0], [1, 0, 1]], np.int64)
    expected = np.log(np.array([2, 1, 2]) / 5 + 1e-8) - np.log(np.array([6, 2, 0]) / 8 + 1e-8)
    np.testing.assert_allclose(log_weights(counts, 1.0), expected[None], rtol=1e-14)
    assert shares(np.zeros(3, np.int64)).tolist() == [0, 0, 0]


def test_divergence_is_zero_of_itself_and_counts_only_what_the_target_has() -> None:
    target, other = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    assert divergence.divergence(target, target) == 0
    assert divergence.divergence(target, other) == pytest.approx(np.log(2), rel=1e-7)


def test_the_larger_choice_has_the_larger_sample() -> None:
    assert divergence.order_samples([3, 9, 3, 10]) == [3, 1, 0, 2]


def test_keys_made_in_parts_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = written(tmp_path / "a.jsonl", ROWS)
    target = written(tmp_path / "t.jsonl", ROWS[:3])
    settings = {
        "method": "filter_then_dsir",
        "rows": 5,
        "dsir": {"targets": [{"name": "t", "rows": str(target)}]},
        "attributes": {"where": [{"attribute": "row.condition", "in": ["direct"]}]},
    }
    made = []
    for size in (1 << 20, 7):
        monkeypatch.setattr(score, "_ROWS", size)
        made.append(select(tmp_path / str(size), rows, settings, seed=2))
    files = [{path.name: path.read_bytes() for path in item.rglob("*") if path.is_file()} for item in made]
    assert files[0].keys() == files[1].keys()
    assert [name for name in files[0] if files[0][name] != files[1][name] and name != "_MANIFEST.json"] == []
    data = [manifest.read(str(item)) for item in made]
    assert data[0] is not None
    assert data[1] is not None
    assert data[0].data == data[1].data
    assert len(data[0].data["samples"]["t"]["best"]) == 20
