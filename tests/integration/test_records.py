"""Rows are held against the records that they are made of, through all stages, by marks in their texts."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.records import RecordId
from pairmill.formats.slices import FileSlice
from pairmill.lineage.records import Origins, Row
from pairmill.sources.datasets import SOURCES
from pairmill.sources.raw_records import read_record
from pairmill.sources.source import Context, checked, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support import tools
from tests.support.data import traced
from tests.support.data.traced import Line
from tests.support.helpers import REPOSITORY

BUILT_IN = ("amps_khan", "bookcorpus", "dmmath", "flan", "gsm8k_train", "scienceqa", "sudoku")
"""Sources with archives, joined records, labels, Parquet, JSON and tables."""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return traced.make(tmp_path_factory.mktemp("line"), epochs=2)


@pytest.mark.parametrize("stage", ["clean", "curate", "select", "tokenize", "sample"])
def test_every_row_names_its_record_and_every_record_its_rows(line: Line, stage: str) -> None:
    origins = Origins.open(str(getattr(line, stage)))
    rows = traced.texts(line.select if stage in ("tokenize", "sample") else getattr(line, stage))
    assert sorted(rows) == origins.tasks
    expected: dict[str, set[tuple[str, int]]] = {}
    lines = {}
    for task, texts in rows.items():
        numbers = np.arange(len(texts))
        result = origins.records(task, numbers)
        for ordinal, (record, text) in enumerate(zip(result, texts, strict=True)):
            lines[record] = text
            expected.setdefault(str(record), set()).add((task, ordinal))
            raw = (line.raw / record.file).read_text("utf-8").splitlines()[record.line - 1]
            assert set(traced.marks(text)) == set(traced.marks(raw)) != set()
        assert origins.records(task, numbers[::-2]) == result[::-2]
        assert origins.numbers(task, origins.ordinals(task, numbers[::3])).tolist() == numbers[::3].tolist()
    assert any(task.startswith("holdout/") for task in rows)
    made = origins.rows(lines)
    assert {str(record): {*mine} for record, mine in made.items()} == expected


def test_a_record_whose_rows_were_left_out_has_none(line: Line) -> None:
    cleaned, selected = (Origins.open(str(folder)) for folder in (line.clean, line.select))
    every = [record for task in cleaned.tasks for record in cleaned.records(task, np.arange(_rows(cleaned, task)))]
    gone = [record for record, rows in selected.rows(every).items() if not rows]
    assert 0 < len(gone) < len({*every})
    raw = (line.raw / "pairs/0.jsonl").read_text("utf-8").splitlines()
    malformed = next(number for number, text in enumerate(raw, 1) if "unlike" in text)
    assert cleaned.rows([RecordId("pairs/0.jsonl", malformed)]) == {RecordId("pairs/0.jsonl", malformed): []}


def _rows(origins: Origins, task: str) -> int:
    return len(traced.texts(Path(origins.uri))[task])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pears/0.jsonl:1", "no source has this record.*chats, pages, pairs, table.*did you mean 'pairs'"),
        ("pairs/9.jsonl:1", r"no source has this record.*as pairs/\d.jsonl, pairs/\d.jsonl did; write pairs/"),
        (
            "pairs/0.jsonl:61",
            r"no source has this record, or the file ends.*lines 1 to \d+; the last one that gave a row",
        ),
    ],
)
def test_an_unknown_record_is_refused_with_near_ones_that_exist(line: Line, name: str, expected: str) -> None:
    origins = Origins.open(str(line.sample))
    with pytest.raises(InputError, match=expected) as caught:
        origins.rows([RecordId.parse(name)])
    if "write " in (near := str(caught.value)):
        (file,) = re.findall(r"write ([^:]*):", near)
        assert (line.raw / file).exists()


def test_an_unknown_task_or_row_is_refused(line: Line) -> None:
    origins = Origins.open(str(line.select))
    with pytest.raises(UsageError, match=r"no such task.*did you mean 'pairs\.jsonl'"):
        origins.records("pair.jsonl", np.arange(1))
    with pytest.raises(UsageError, match=r"no such row.*pairs\.jsonl:100000"):
        origins.records("pairs.jsonl", np.array([100_000]))


def test_folders_made_before_records_were_kept_say_from_where_to_make_them_again(line: Line, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(line.root, root, ignore=shutil.ignore_patterns("shards", "blocks"))
    sample = root / "sample" / line.sample.name
    old = root / "clean" / line.clean.name
    shutil.rmtree(old / "records")
    manifest = manifests.read(str(old))
    assert manifest is not None
    manifest.version = 7
    for item in manifest.data["sources"].values():
        del item["tasks"]
    (old / manifests.MANIFEST).write_bytes(manifest.dump())
    with pytest.raises(InputError, match=r"before clean kept.*version 7 of clean.*make it again from clean on"):
        Origins.open(str(sample)).records("pairs.jsonl", np.arange(1))
    with pytest.raises(InputError, match="before clean kept"):
        Origins.open(str(sample)).rows([RecordId("pairs/0.jsonl", 1)])
    tools.remove(old)
    with pytest.raises(InputError, match="its rows were given, and no clean made them of records"):
        Origins.open(str(sample)).records("pairs.jsonl", np.arange(1))
    tools.remove(root / "select" / line.select.name)
    with pytest.raises(InputError, match="the rows that it was tokenized from are not known"):
        Origins.open(str(sample)).records("pairs.jsonl", np.arange(1))


def test_tasks_of_a_union_lead_to_the_records_of_their_folders(line: Line, tmp_path: Path) -> None:
    (tokenizer,) = (path for path in (line.root / "tokenizer").iterdir() if path.name != "shards")
    config = TokenizeConfig(rows=[str(line.clean)], tokenizer=str(tokenizer), root=str(tmp_path / "other"))
    other = traced.run(Tokenize(), config)
    file = tmp_path / "tasks.yaml"
    taken = "exclude: [{match: pairs.jsonl, from: first, why: other}]\nrename: {pairs.jsonl: all.jsonl}\n"
    file.write_text(f"{taken}duplicates: first\n", "utf-8")
    places = f"tokenized_path=first={line.tokenize},second={other}"
    words = [sys.executable, "-m", "pairmill", "tokenize", "union", places, f"tasks={file}", f"to={tmp_path / 'union'}"]
    tools.ended(tools.run(words))
    origins = Origins.open(str(tmp_path / "union"), str(line.root))
    for task, text in {
        "all.jsonl": traced.texts(line.clean)["pairs.jsonl"][3],
        "pages.jsonl": traced.texts(line.select)["pages.jsonl"][3],
    }.items():
        (record,) = origins.records(task, np.array([3]))
        raw = (line.raw / record.file).read_text("utf-8").splitlines()[record.line - 1]
        assert {*traced.marks(text)} == {*traced.marks(raw)} != {*()}
        assert Row(task, 3) in origins.rows([record])[record]


def test_records_of_built_in_sources_give_the_rows_that_name_them(tmp_path: Path) -> None:
    raw, root = tmp_path / "raw", tmp_path / "root"
    arguments = ["examples/make_raw.py", str(raw), f"sources={','.join(BUILT_IN)}"]
    subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, check=True)
    cleaned = traced.run(Clean(), CleanConfig(raw=str(raw), root=str(root), sources=["all"], max_reject_fraction=0.5))
    origins = Origins.open(str(cleaned))
    places: dict[str, dict[str, Any]] = {}
    seen = set()
    for task, texts in traced.texts(cleaned).items():
        numbers = np.arange(len(texts))[:: max(1, len(texts) // 2)]
        for number, record in zip(numbers.tolist(), origins.records(task, numbers), strict=True):
            source = SOURCES[record.source]
            if record.file not in places:
                piece = FileSlice(record.path, str(raw / record.file))
                places[record.file] = {str(place): value for place, value in source.read(piece, "pairmill")}
            value = places[record.file][record.member or str(record.line - 1)]
            shown = read_record(record, {}, str(root), str(raw), source)
            assert shown.uri == str(raw / record.file)
            assert shown.text == (
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            )
            seen.add(record.source)
            if record.source == "bookcorpus":  # of joined sentences the first
                assert value["text"].strip() in texts[number]
                continue
            tags = {
                unit.tag for unit in source.units(sorted(_paths(raw / record.source)), "", "pairmill", source.options())
            }
            rows = [
                " ".join(map(str, row))
                for tag in tags
                for _, row in checked(parse_record(source, value, Context("pairmill", tag)), "pairmill")[0]
            ]
            assert texts[number] in rows
    assert seen == {*BUILT_IN}


def _paths(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
