"""What select cannot work with: an exit code, a message that says what to do, and nothing that a reader takes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.formats.rows import Row, writer_for
from tests.support import tools
from tests.support.stages import selecting
from tests.support.stages.selecting import themed

USAGE, INPUT = 2, 3
SCORE = {"score": [{"attribute": "quality.score"}]}
COUNTS = {"a.jsonl": 12, "b.parquet": 9}


def run(base: Path, settings: Mapping[str, Any] | str, **options: object) -> tools.Done:
    """Run the stage over rows of its own, as a process."""
    if not (base / "rows").exists():
        selecting.write(base / "rows", selecting.generated(3, COUNTS))
    path = base / "settings.yaml"
    if isinstance(settings, str):
        path.write_text(settings)
    else:
        selecting.write_settings(base, settings, path.name)
    given = {"rows": base / "rows", "root": base / "root", "select_config": path, "workers": 1}
    return tools.stage("select", **{**given, **options})


def refused(base: Path, done: tools.Done, code: int, *texts: object) -> None:
    """It ended with this code, said all of this in its last line, and left no result."""
    assert done.code == code, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    for text in texts:
        assert str(text) in done.message, done.message
    assert not list((base / "root").rglob(tools.MANIFEST))


def by(**more: Any) -> dict[str, Any]:
    """Settings that choose by a score."""
    return {"method": "attributes", "rows": 5, "attributes": {**SCORE, **more}}


@pytest.mark.parametrize(
    ("settings", "code", "messages"),
    [
        ("method: dsir\nrows: 3\nroows: 4\n", USAGE, ["line 3: unknown key 'roows'"]),
        ("method: dsirr\nrows: 3\n", USAGE, ["dsirr"]),
        (by() | {"tokens": 9}, USAGE, ["give one of rows, tokens and share", "rows, tokens"]),
        ({"method": "attributes", "attributes": SCORE}, USAGE, ["give one of rows, tokens and share", "none"]),
        (by() | {"rows": 0}, USAGE, ["rows", "1 or more"]),
        ({"method": "dsir", "rows": 3}, USAGE, ["no target is given", "dsir.targets"]),
        ({"method": "attributes", "rows": 3}, USAGE, ["nothing is scored", "attributes.score"]),
        ({"method": "filter_then_dsir", "rows": 3}, USAGE, ["dsir.targets"]),
        (
            by(score=[{"attribute": "quality.scor"}]),
            USAGE,
            ["no such attribute beside the rows", "quality.scor", "write quality.score"],
        ),
        (
            by(where=[{"attribute": "qualty.toxicity", "max": 1}]),
            USAGE,
            ["attributes.where", "qualty.toxicity", "write quality.toxicity"],
        ),
        (by(score=[{"attribute": "quality"}]), USAGE, ["got 'quality'; expected <operation>.<column>"]),
        (by(score=[{"attribute": "topic.name"}]), USAGE, ["not a number or a date", "topic.name: string"]),
        (by(score=[{"attribute": "source.date"}]), USAGE, ["reference_date", "YYYY-MM-DD"]),
        (by(group_by="quality.score"), USAGE, ["each value would be a group of its own", "edges"]),
        (by(group_by="topic.name", edges=[1]), USAGE, ["not a number or a date", "attributes.group_by"]),
        (by(group_by="quality.words", edges=[2, 1]), USAGE, ["not ascending", "[2.0, 1.0]"]),
        (by(where=[{"attribute": "topic.name", "min": 1}]), USAGE, ["not a number or a date", "in: [value"]),
        (by(where=[{"attribute": "quality.words", "in": ["1"]}]), USAGE, ["values of another type", "numbers"]),
        (by(where=[{"attribute": "quality.good", "in": [1]}]), USAGE, ["values of another type", "true or false"]),
        (by(where=[{"attribute": "row.response", "in": ["a"]}]), USAGE, ["row.response", "row.condition"]),
        (
            by(group_by="topic.name", quota={"method": "weights", "weights": {"lawe": 1, "art": 1}}),
            USAGE,
            ["no row is in the group 'lawe'", "attributes.quota.weights", "write 'law'"],
        ),
        (
            by(quota={"method": "weights", "weights": {"law": 1}}),
            USAGE,
            ["'law'", "group_by"],
        ),
        (by(group_by="topic.name", quota={"method": "weights"}), USAGE, ["method and weights do not fit together"]),
        (
            by() | {"rows": 22},
            USAGE,
            ["more is asked for than there is", "22 rows", "at most 21", "allow_unfilled: true, which takes all 21"],
        ),
        (
            {"method": "attributes", "tokens": 10**9, "attributes": SCORE},
            USAGE,
            ["more is asked for than there is", "1,000,000,000 response tokens", "allow_unfilled"],
        ),
        (
            by(where=[{"attribute": "quality.toxicity", "min": 2}]),
            INPUT,
            ["no row is a candidate", "21 rows", "loosen the bounds"],
        ),
        (
            by(group_by="topic.name", quota={"method": "weights", "weights": {"law": 1, "art": 0}}) | {"rows": 20},
            USAGE,
            ["more is asked for than there is", "20 rows"],
        ),
        (
            {
                "method": "target_by_attribute",
                "rows": 3,
                "attributes": {"where": [{"attribute": "quality.toxicity", "min": 2}]},
            },
            INPUT,
            ["the target is empty", "attributes.where", "loosen the bounds"],
        ),
        (by() | {"sidecar": "/nowhere/side"}, INPUT, ["/nowhere/side"]),
    ],
)
def test_a_mistake_ends_the_stage_with_a_message(
    tmp_path: Path, settings: Mapping[str, Any] | str, code: int, messages: list[str]
) -> None:
    refused(tmp_path, run(tmp_path, settings), code, *messages)


def target(base: Path, texts: list[tuple[str, str]]) -> dict[str, Any]:
    return {"method": "dsir", "rows": 3, "dsir": {"targets": selecting.targets(base, {"mine": texts})}}


def test_a_target_without_rows_or_without_a_word_is_named(tmp_path: Path) -> None:
    for number, texts in enumerate(([], [("", ""), (" ", "\n")])):
        base = tmp_path / str(number)
        base.mkdir()
        done = run(base, target(base, texts))
        refused(base, done, INPUT, "the target is empty", "dsir.targets mine", "no word in any of its rows")
    done = run(tmp_path, {"method": "dsir", "rows": 3, "dsir": {"targets": [{"name": "mine", "rows": "/nowhere/x"}]}})
    refused(tmp_path, done, INPUT, "dsir.targets mine", "/nowhere/x")


def test_a_budget_above_what_there_is_takes_all_if_that_is_allowed(tmp_path: Path) -> None:
    done = run(tmp_path, by() | {"rows": 22, "allow_unfilled": True})
    assert done.code == 0, done.err
    manifest = tools.read_manifest(tools.folder(done))
    assert manifest["ledger"]["rows_kept"] == 21
    assert manifest["data"]["budget"] == {"unit": "rows", "asked": 22, "taken": 21}
    assert "Less is taken than was asked for: 21 of 22 rows." in (tools.folder(done) / "report.md").read_text()


def test_a_task_without_the_attribute_is_named(tmp_path: Path) -> None:
    selecting.write(tmp_path / "rows", selecting.generated(3, COUNTS))
    plain = tmp_path / "plain"
    plain.mkdir()
    with (plain / "c.jsonl").open("wb") as file, writer_for("c.jsonl", file) as writer:
        writer.write([Row("", "a", "b")])
    done = run(tmp_path, by(), rows=f"{tmp_path / 'rows'},{plain}")
    refused(tmp_path, done, INPUT, "the rows have no attributes of quality", "c.jsonl")


def test_a_task_whose_attributes_lack_the_column_is_named(tmp_path: Path) -> None:
    item = selecting.write(tmp_path / "one", selecting.generated(3, {"a.jsonl": 12}))
    two = selecting.write(tmp_path / "two", selecting.generated(4, {"b.jsonl": 12}))
    path = two / "attributes" / "quality" / "b.jsonl.parquet"
    table = pq.read_table(path).rename_columns(["points", "toxicity", "words", "good"])
    pq.write_table(table, path)
    selecting.sealed(two)
    done = run(tmp_path, by(), rows=f"{item},{two}")
    refused(tmp_path, done, INPUT, "no attribute 'score'", "quality/b.jsonl.parquet", "points")


def sidecar(folder: Path, tables: Mapping[str, Mapping[str, list[Any]]]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, columns in tables.items():
        pq.write_table(pa.table({column: pa.array(values) for column, values in columns.items()}), folder / name)
    return folder


MINE = [{"attribute": "sidecar.mine"}]


def test_a_sidecar_of_other_rows_is_named(tmp_path: Path) -> None:
    settings = by(score=MINE) | {"sidecar": str(tmp_path / "side")}
    right = {"mine": [1.0] * 9}
    sidecar(tmp_path / "side", {"a.jsonl.parquet": {"mine": [1.0] * 11}, "b.parquet.parquet": right})
    refused(tmp_path, run(tmp_path, settings), INPUT, "other rows than its task", "a.jsonl.parquet", "11 rows", "12")
    sidecar(tmp_path / "side", {"a.jsonl.parquet": {"mine": [1.0] * 13}, "b.parquet.parquet": right})
    refused(tmp_path, run(tmp_path, settings), INPUT, "other rows than its task", "13 rows", "12")
    others = {"mine": [1.0] * 12, "ordinal": list(range(100, 112))}
    sidecar(tmp_path / "side", {"a.jsonl.parquet": others, "b.parquet.parquet": others})
    refused(tmp_path, run(tmp_path, settings), INPUT, "no candidate has a value", "sidecar.mine", "21 rows")
    sidecar(tmp_path / "side", {"a.jsonl.parquet": {"mine": [1.0, 2.0], "ordinal": [1, 1]}, "b.parquet.parquet": right})
    refused(tmp_path, run(tmp_path, settings), INPUT, "a row is named twice", "a.jsonl:1")
    sidecar(tmp_path / "side", {"b.parquet.parquet": right})
    refused(tmp_path, run(tmp_path, settings), INPUT, "no file of the sidecar for a task", "a.jsonl.parquet")
    sidecar(tmp_path / "side", {"a.jsonl.parquet": {"mime": [1.0] * 12}, "b.parquet.parquet": {"mime": [1.0] * 9}})
    refused(tmp_path, run(tmp_path, settings), USAGE, "no such attribute", "write sidecar.mime")
    sidecar(tmp_path / "side", {"a.jsonl.parquet": {"mine": [1.0] * 12}, "b.parquet.parquet": {"mime": [1.0] * 9}})
    refused(tmp_path, run(tmp_path, settings), INPUT, "no attribute 'mine'", "did you mean 'mime'?")


@pytest.mark.parametrize("kind", ["in order", "by ordinal", "one file"])
def test_a_sidecar_chooses(kind: str, tmp_path: Path) -> None:
    rows = selecting.generated(3, COUNTS, skip=0.3)
    selecting.write(tmp_path / "rows", rows)
    # The larger the number of a row in its file, the better; some rows are not named by ordinal.
    columns = {
        name: {"mine": [float(at) for at in range(len(some))], "ordinal": [item["ordinal"] for item in some]}
        for name, some in rows.items()
    }
    if kind == "in order":
        tables = {f"{name}.parquet": {"mine": item["mine"]} for name, item in columns.items()}
    elif kind == "by ordinal":
        tables = {f"{name}.parquet": {key: [*item[key][::-1], 1000] for key in item} for name, item in columns.items()}
    else:
        tables = {
            "all.parquet": {
                "task": [name for name, item in columns.items() for _ in item["mine"][2:]],
                **{key: [value for item in columns.values() for value in item[key][2:]] for key in ("ordinal", "mine")},
            }
        }
    sidecar(tmp_path / "side", tables)
    done = run(tmp_path, by(score=MINE, group_by="row.condition") | {"sidecar": str(tmp_path / "side"), "rows": 4})
    assert done.code == 0, done.err
    folder = tools.folder(done)
    chosen = selecting.chosen(folder, rows)["attributes"]
    wanted = set()
    every = [(float(at), item) for some in rows.values() for at, item in enumerate(some)]
    quotas = {item["group"]: item["quota"] for item in tools.read_manifest(folder)["data"]["groups"]["groups"]}
    for group, quota in quotas.items():
        mine = sorted((item for item in every if item[1]["condition"] == group), key=lambda item: -item[0])
        wanted |= {f"{item['task']}:{item['ordinal']}" for _, item in mine[:quota]}
    assert chosen == wanted
    assert not (folder / "attributes" / "sidecar").exists()


def test_a_sidecar_that_names_rows_of_one_task_alone_gives_the_others_no_value(tmp_path: Path) -> None:
    selecting.write(tmp_path / "rows", selecting.generated(3, COUNTS))
    sidecar(tmp_path / "side", {"all.parquet": {"task": ["a.jsonl"] * 2, "ordinal": [3, 7], "mine": [5.0, 9.0]}})
    settings = by(score=MINE, where=[{"attribute": "sidecar.mine", "min": 1}]) | {
        "sidecar": str(tmp_path / "side"),
        "rows": 2,
    }
    done = run(tmp_path, settings)
    assert done.code == 0, done.err
    assert selecting.chosen(tools.folder(done), COUNTS) == {"attributes": {"a.jsonl:3", "a.jsonl:7"}}


def test_a_sidecar_of_categories_and_one_without_a_value(tmp_path: Path) -> None:
    selecting.write(tmp_path / "rows", selecting.generated(3, COUNTS))
    side = tmp_path / "side"
    side.mkdir()
    topics = pa.array(["x", "y"] * 6).dictionary_encode()
    pq.write_table(pa.table({"topic": topics, "mine": pa.array(range(12))}), side / "a.jsonl.parquet")
    pq.write_table(pa.table({"topic": pa.nulls(9), "mine": pa.nulls(9)}), side / "b.parquet.parquet")
    where = [{"attribute": "sidecar.topic", "in": ["x"]}]
    settings = by(score=MINE, group_by="sidecar.topic", where=where) | {"sidecar": str(side), "rows": 4}
    done = run(tmp_path, settings)
    assert done.code == 0, done.err
    assert selecting.chosen(tools.folder(done), COUNTS) == {"attributes": {f"a.jsonl:{at}" for at in (4, 6, 8, 10)}}


def test_settings_that_the_method_does_not_read_are_named(tmp_path: Path) -> None:
    settings = target(tmp_path, themed(1)) | {"attributes": {"group_by": "topic.name"}, "hybrid": {"lambda": 0.25}}
    done = run(tmp_path, settings)
    assert done.code == 0, done.err
    assert "attributes.group_by, hybrid: not read with method: dsir" in done.err


def test_too_large_a_budget_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    done = run(tmp_path, by() | {"rows": 22})
    refused(tmp_path, done, USAGE, "more is asked for than there is")
    kept = [path.parent for path in (tmp_path / "root").rglob("shards/*/_RECORD.json")]
    assert kept, "the rows were read"
    assert not any(list(folder.glob("*/*.npy")) for folder in kept), "rows were scored"
    assert run(tmp_path, by() | {"rows": 21}).code == 0
    assert list((tmp_path / "root").rglob("shards/*/*/*.npy"))
