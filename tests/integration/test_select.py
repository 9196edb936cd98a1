"""What select chooses is what a plain definition chooses, whatever the method, the slices and the workers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.engine import runner
from pairmill.engine.results import HeldOutRows
from pairmill.formats import row_files
from pairmill.formats.rows import Row
from pairmill.formats.slices import Slicing
from pairmill.rowstage import join
from pairmill.stages.select.core import Select
from tests.support import tools
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.stages import curating, selecting
from tests.support.stages.selecting import THEME, themed

COUNTS = {"data/a.jsonl": 40, "b.parquet": 61, "c.parquet": 1, "d.jsonl": 23}
TEXTS = {"sea": themed(1), "tide": themed(2)}
SCORE = [{"attribute": "quality.score", "weight": 1.0}, {"attribute": "source.date", "weight": -0.5}]
WHERE = [{"attribute": "quality.toxicity", "max": 0.8}]
BY_TOPIC = {"group_by": "topic.name"}

METHODS: dict[str, dict[str, Any]] = {
    "dsir": {"method": "dsir", "rows": 30},
    "two targets": {"method": "dsir", "rows": 31, "dsir": {"targets": ["sea", "tide"]}},
    "plain": {
        "method": "dsir",
        "rows": 30,
        "dsir": {"noise": False, "length": "mean", "ngrams": 1, "fields": ["response"]},
    },
    "fitted on some": {"method": "dsir", "rows": 30, "dsir": {"fit_share": 0.5, "hash": "sha256", "length": "none"}},
    "tokens": {"method": "dsir", "tokens": 300, "dsir": {"targets": ["sea", "tide"]}},
    "share": {"method": "dsir", "share": 0.3},
    "attributes": {"method": "attributes", "rows": 30, "attributes": {"score": SCORE, "where": WHERE}},
    "proportional": {"method": "attributes", "rows": 40, "attributes": {"score": SCORE, **BY_TOPIC}},
    "unimax": {
        "method": "attributes",
        "rows": 70,
        "attributes": {"score": SCORE, "where": WHERE, **BY_TOPIC, "quota": {"method": "unimax"}},
    },
    "exponent": {
        "method": "attributes",
        "tokens": 500,
        "attributes": {"score": SCORE, **BY_TOPIC, "quota": {"method": "exponent", "exponent": 1.7}},
    },
    "weights": {
        "method": "attributes",
        "rows": 50,
        "attributes": {
            "score": SCORE,
            **BY_TOPIC,
            "quota": {"method": "weights", "weights": {"law": 9, "art": 1, "": 1}},
        },
    },
    "edges": {
        "method": "attributes",
        "rows": 30,
        "attributes": {"score": SCORE, "group_by": "quality.words", "edges": [3, 5.5], "quota": {"method": "unimax"}},
    },
    "groups of numbers": {
        "method": "attributes",
        "rows": 30,
        "attributes": {"score": SCORE, "group_by": "quality.words"},
    },
    "groups of booleans": {
        "method": "attributes",
        "rows": 9,
        "attributes": {"score": SCORE, "group_by": "quality.good"},
    },
    "condition": {
        "method": "attributes",
        "rows": 20,
        "attributes": {
            "score": SCORE,
            "group_by": "row.condition",
            "where": [
                {"attribute": "row.condition", "in": ["cot"]},
                {"attribute": "quality.words", "in": [1, 2, 3, 4]},
            ],
        },
    },
    "sample": {
        "method": "attributes",
        "rows": 40,
        "attributes": {"score": SCORE, **BY_TOPIC, "choose": "sample", "tau": 0.7},
    },
    "hybrid": {"method": "hybrid", "rows": 40, "attributes": {"score": SCORE, "where": WHERE, **BY_TOPIC}},
    "hybrid sample": {
        "method": "hybrid",
        "tokens": 400,
        "hybrid": {"lambda": 0.3},
        "attributes": {"score": SCORE, "choose": "sample", "where": [{"attribute": "source.date", "max": 8}]},
    },
    "filter_then_dsir": {"method": "filter_then_dsir", "rows": 30, "attributes": {"where": WHERE}},
    "dsir_then_filter": {"method": "dsir_then_filter", "rows": 40, "attributes": {"where": WHERE}},
    "target_by_attribute": {
        "method": "target_by_attribute",
        "rows": 30,
        "attributes": {
            "where": [{"attribute": "quality.good", "in": [True]}, {"attribute": "quality.score", "min": 0.5}]
        },
    },
}


def settings_of(base: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a method, and the texts of its targets."""
    made = {**METHODS[name], "reference_date": "2026-01-01"}
    if made["method"] in ("attributes", "target_by_attribute"):
        return made, {}
    dsir = {**made.get("dsir", {})}
    texts = {item: TEXTS[item] for item in dsir.get("targets", ["sea"])}
    dsir["targets"] = selecting.targets(base, texts)
    if len(texts) > 1:
        dsir["targets"][0]["share"] = 2.5
    return {**made, "dsir": dsir}, texts


def tokens(row: Any) -> int:
    """Response tokens of spec 0.4; conformance has them."""
    (count,) = _native.select_tokens(pa.array([row["response"]])).tolist()
    return int(count)


# In CI each method with one seed, by turns the first and the second.
CHOICES = [
    pytest.param(name, seed, marks=[pytest.mark.full] * (seed == 2 - number % 2))
    for number, name in enumerate(METHODS)
    for seed in (1, 2)
]


@pytest.mark.parametrize(("name", "seed"), CHOICES)
def test_the_choice_is_that_of_the_definition(name: str, seed: int, tmp_path: Path) -> None:
    rows = selecting.generated(seed, COUNTS, skip=0.3)
    given = selecting.write(tmp_path / "rows", rows)
    settings, texts = settings_of(tmp_path, name)
    wanted = selecting.defined(rows, settings, texts, seed=seed, tokens=tokens)
    folder = selecting.select(tmp_path / "root", given, settings, seed=seed)
    tasks = [path.replace("/", "__") for path in rows]
    got = selecting.chosen(folder, tasks)
    assert {item for some in got.values() for item in some} == wanted.chosen
    assert got == {item: set(some) for item, some in wanted.taken.items() if some}
    assert 0 < len(wanted.chosen) < len(wanted.candidates)
    manifest = curating.manifest(folder)
    assert manifest.ledger.rows_in == sum(map(len, rows.values()))
    assert manifest.ledger.rows_kept == manifest.data["chosen"] == len(wanted.chosen)
    assert manifest.data["outside"] == len(wanted.outside)
    assert manifest.data["candidates"] == len(wanted.candidates)
    for path, some in rows.items():
        stay = [item for item in some if ids(item) in wanted.chosen]
        texts_of = [(item["condition"], item["instruction"], item["response"]) for item in stay]
        assert curating.kept(folder, path) == texts_of
        task = path.replace("/", "__")
        for target, weights in wanted.weights.items():
            values = selecting.column(folder, task, f"log_weight_{target}")
            expected = [weights[ids(item)] for item in stay]
            assert values == pytest.approx(expected, rel=1e-9, abs=1e-12)
        decided = curating.decisions(folder, "select", task)
        # By number in the given file: there the row is found.
        gone = [at for at, item in enumerate(some) if ids(item) not in wanted.chosen]
        assert [item["ordinal"] for item in decided] == gone
        assert {item["action"] for item in decided} <= {"drop"}
    for target, kl in wanted.kl.items():
        result = manifest.data["divergences"][target]
        assert {key: result[key] for key in kl} == pytest.approx(kl, abs=1e-9)
    if settings.get("attributes", {}).get("group_by"):
        result = {item["group"]: item for item in manifest.data["groups"]["groups"]}
        assert {name: [item["asked"], item["quota"], item["taken"]] for name, item in result.items()} == {
            name: pytest.approx(value) for name, value in wanted.groups.items()
        }


def ids(row: Any) -> str:
    return f"{row['task']}:{row['ordinal']}"


def test_workers_and_slices_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = selecting.generated(5, {"a.parquet": 70, "b.jsonl": 30, "c.parquet": 25})
    given = selecting.write(tmp_path / "rows", rows)
    for name in ("two targets", "unimax", "hybrid", "fitted on some"):
        settings, _ = settings_of(tmp_path, name)
        # More workers than files once: each of them is a process that starts.
        folders = [
            selecting.select(tmp_path / f"{name} {workers}", given, settings, workers=workers)
            for workers in ((1, 2, 5) if name == "hybrid" else (1, 2))
        ]
        with monkeypatch.context() as patch:
            patch.setattr(row_files, "SLICING", Slicing(1, 1))
            patch.setattr("pairmill.rowstage.rows._BLOCK_SLICES", 2)
            patch.setattr("pairmill.stages.select.choose._ROWS", 5)
            patch.setattr("pairmill.stages.select.cuts._FEW", 3)
            patch.setattr("pairmill.stages.select.table._HELD", 0)
            folders.append(selecting.select(tmp_path / f"{name} cut", given, settings))
        results = [tools.digests(folder) for folder in folders]
        assert all(result == results[0] for result in results[1:-1]), name
        # The fingerprint, which the report shows, has the names of shards. Means are merged block by block, so blocks
        # of another size, which only this test makes, give scores another last bit.
        scored = ("attributes/select/",) if name in ("unimax", "hybrid") else ()
        named = ("_MANIFEST.json", "_STARTED.json", "report.html", "report.md", *scored)
        assert {path: digest for path, digest in results[-1].items() if not path.startswith(named)} == {
            path: digest for path, digest in results[0].items() if not path.startswith(named)
        }
        data, other = (curating.manifest(folder).data for folder in (folders[0], folders[-1]))
        if scored:
            for ends, others in zip(data.pop("samples").values(), other.pop("samples").values(), strict=True):
                for end, shown in ends.items():
                    assert [row["value"] for row in others[end]] == pytest.approx([row["value"] for row in shown])
            for task in rows:
                table, cut = (selecting.table(folder, task) for folder in (folders[0], folders[-1]))
                for column in table.column_names:
                    values = table[column].to_pylist()
                    if pa.types.is_floating(table[column].type):
                        values = pytest.approx(values, rel=1e-12, abs=1e-12)
                    assert cut[column].to_pylist() == values
        assert other == data
        assert len(curating.shards(tmp_path / f"{name} cut", "select")) > len(
            curating.shards(tmp_path / f"{name} 1", "select")
        )


def test_a_large_file_is_written_in_parts_that_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = selecting.generated(6, {"a.parquet": 70, "b.jsonl": 30, "c.parquet": 5})
    given = selecting.write(tmp_path / "rows", rows)
    for name in ("hybrid", "two targets", "dsir_then_filter"):
        settings, _ = settings_of(tmp_path, name)
        with monkeypatch.context() as patch:
            patch.setattr(row_files, "SLICING", Slicing(1, 1))
            whole = selecting.select(tmp_path / name, given, settings)
            patch.setattr(join, "PARTS_FROM", 1)
            parts = [selecting.select(tmp_path / f"{name} {count}", given, settings, workers=count) for count in (1, 2)]
        assert tools.digests(parts[0]) == tools.digests(parts[1])
        item, other = curating.manifest(whole), curating.manifest(parts[0])
        assert item.data == other.data
        assert item.ledger == other.ledger
        assert item.shards == other.shards
        assert {file.path for file in item.files} == {file.path for file in other.files}
        for path in rows:
            assert curating.kept(parts[0], path) == curating.kept(whole, path)
            assert curating.decisions(parts[0], "select", path) == curating.decisions(whole, "select", path)
            for operation in ("select", "origin", "quality"):
                result, wanted = (selecting.table(folder, path, operation) for folder in (parts[0], whole))
                assert result.to_pylist() == wanted.to_pylist()
        groups = pq.ParquetFile(parts[0] / "a.parquet").metadata.num_row_groups
        assert groups > pq.ParquetFile(whole / "a.parquet").metadata.num_row_groups
        assert pq.ParquetFile(parts[0] / "attributes/select/a.parquet.parquet").metadata.num_row_groups == groups


def test_lambda_one_is_dsir_with_quotas_and_lambda_zero_is_the_choice_by_attributes(tmp_path: Path) -> None:
    rows = selecting.generated(7, COUNTS)
    given = selecting.write(tmp_path / "rows", rows)
    tasks = [path.replace("/", "__") for path in rows]
    settings, texts = settings_of(tmp_path, "hybrid")

    def taken(**more: Any) -> set[str]:
        made = {**settings, **more}
        folder = selecting.select(tmp_path / "root", given, made)
        return {item for some in selecting.chosen(folder, tasks).values() for item in some}

    only = {key: value for key, value in settings.items() if key != "dsir"}
    zero = taken(hybrid={"lambda": 0})
    folder = selecting.select(tmp_path / "root", given, {**only, "method": "attributes"})
    assert selecting.chosen(folder, tasks) == {"attributes": zero}
    # Within each group the largest log weights: as the definition of dsir orders them, without noise.
    groups = {ids(item): item["attributes"]["topic.name"] or "" for some in rows.values() for item in some}
    defined = selecting.defined(rows, settings, texts)
    candidates, weights = defined.candidates, defined.weights["sea"]
    quotas = {name: quota for name, (_, quota, _) in defined.groups.items()}
    want: set[str] = set()
    for name, quota in quotas.items():
        mine = sorted((item for item in candidates if groups[item] == name), key=lambda item: -weights[item])
        want |= set(mine[: int(quota)])
    item = taken(hybrid={"lambda": 1})
    assert item == want
    assert item != zero
    assert taken(hybrid={"lambda": 0.5}) not in (item, zero)


def test_an_unrelated_row_changes_no_other_rows_draw(tmp_path: Path) -> None:
    rows = selecting.generated(8, {"a.jsonl": 60, "b.parquet": 40})
    fewer = {path: [item for at, item in enumerate(some) if at % 5] for path, some in rows.items()}
    drawn: list[dict[str, float]] = []
    for name, some in (("all", rows), ("fewer", fewer)):
        folder = selecting.select(
            tmp_path / name,
            selecting.write(tmp_path / f"{name} rows", some),
            {"method": "attributes", "share": 1.0, "attributes": {"choose": "sample"}},
        )
        drawn.append(
            {
                f"{task}:{ordinal}": key
                for task in rows
                for ordinal, key in zip(
                    selecting.column(folder, task, "ordinal", "origin"),
                    selecting.column(folder, task, "key_attributes"),
                    strict=True,
                )
            }
        )
    assert len(drawn[0]) == 100
    assert len(drawn[1]) == 80
    assert drawn[1].items() <= drawn[0].items()
    assert len(set(drawn[0].values())) == 100


@pytest.mark.parametrize("name", ["two targets", "unimax", "hybrid", "dsir_then_filter"])
def test_report_mode_counts_what_drop_mode_removes(name: str, tmp_path: Path) -> None:
    rows = selecting.generated(9, COUNTS)
    given = selecting.write(tmp_path / "rows", rows)
    settings, _ = settings_of(tmp_path, name)
    drop = selecting.select(tmp_path / "drop", given, settings)
    report = selecting.select(tmp_path / "report", given, {**settings, "mode": "report"})
    gone = curating.manifest(drop)
    stay = curating.manifest(report)
    assert sum(gone.ledger.dropped.values()) == gone.ledger.rows_in - gone.data["chosen"] > 0
    assert not stay.ledger.dropped
    assert stay.ledger.rows_kept == stay.ledger.rows_in
    same = ("chosen", "candidates", "outside", "sources", "lengths", "groups", "divergences", "rankings", "samples")
    assert all(stay.data[key] == gone.data[key] for key in same)
    for path, some in rows.items():
        task = path.replace("/", "__")
        assert len(curating.kept(report, path)) == len(some)
        assert (report / path).read_bytes() == (given / path).read_bytes()
        removed, reported = (curating.decisions(item, "select", task) for item in (drop, report))
        assert [{**item, "action": "drop"} for item in reported] == removed
        assert {item["action"] for item in reported} <= {"report"}
    tasks = [path.replace("/", "__") for path in rows]
    assert selecting.chosen(drop, tasks) == selecting.chosen(report, tasks)


def test_attributes_of_kept_rows_come_along(tmp_path: Path) -> None:
    rows = selecting.generated(10, COUNTS, skip=0.2)
    given = selecting.write(tmp_path / "rows", rows)
    settings, texts = settings_of(tmp_path, "dsir")
    folder = selecting.select(tmp_path / "root", given, settings)
    wanted = selecting.defined(rows, settings, texts).chosen
    for path, some in rows.items():
        task = path.replace("/", "__")
        stay = [item for item in some if ids(item) in wanted]
        assert selecting.column(folder, task, "ordinal", "origin") == [item["ordinal"] for item in stay]
        for name in selecting.TYPES:
            operation, _, column = name.partition(".")
            assert selecting.column(folder, task, column, operation) == [item["attributes"][name] for item in stay]
    # A second choice of these rows draws by the numbers that they had at first, and replaces what the first one said.
    again = selecting.select(tmp_path / "again", folder, {**settings, "rows": 10})
    tasks = [path.replace("/", "__") for path in rows]
    (second,) = selecting.chosen(again, tasks).values()
    assert len(second) == 10
    assert second < wanted


def test_held_out_rows_are_handed_on_and_never_read(tmp_path: Path) -> None:
    rows = selecting.generated(11, COUNTS)
    held = [Row("direct", " ".join(THEME), " ".join(THEME * 4))] * 9
    given = selecting.write(tmp_path / "rows", rows, {"holdout/data/a.jsonl": held, "holdout/e.parquet": held})
    other = selecting.write(tmp_path / "other", rows)
    for name in ("dsir", "attributes", "target_by_attribute"):
        settings, _ = settings_of(tmp_path, name)
        folder = selecting.select(tmp_path / "root", given, settings)
        without = selecting.select(tmp_path / "root", other, settings)
        manifest = curating.manifest(folder)
        assert HeldOutRows.count(manifest) == 18
        assert manifest.data["held_out"] == {"holdout/data/a.jsonl": 9, "holdout/e.parquet": 9}
        for path in manifest.data["held_out"]:
            assert (folder / path).read_bytes() == (given / path).read_bytes()
        training = {path: item for path, item in tools.digests(folder).items() if not path.startswith("holdout/")}
        plain = tools.digests(without)
        mine = [path for path in plain if "/" in path or path.endswith((".jsonl", ".parquet"))]
        assert len(mine) > 10
        assert all(training[path] == plain[path] for path in mine)
        assert not list(folder.glob("decisions/select/holdout*"))


def test_a_kill_at_every_call_of_the_store(tmp_path: Path, shm: Path) -> None:
    rows = selecting.generated(12, {"a.jsonl": 20, "b.parquet": 15})
    given = selecting.write(tmp_path / "rows", rows)
    settings, _ = settings_of(tmp_path, "hybrid")
    settings["rows"] = 9
    wanted = tools.digests(selecting.select(shm / "whole", given, settings))
    root = shm / "root"
    config = selecting.config_of(root, given, settings)
    instant = 0
    for instant in crashes(lambda: runner.run(Select(), config), root, stride=STRIDE):
        again = Path(runner.run(Select(), config).uri)
        assert tools.digests(again) == wanted, f"killed at instant {instant}"
        shutil.rmtree(root / "select")
    assert instant > 90
