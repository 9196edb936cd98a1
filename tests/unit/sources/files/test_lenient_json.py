"""``json: lenient``: faults of JSON files that are mended and counted, and what is said where it was not asked for."""

import gzip
import json
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats import jsonstream
from pairmill.formats.jsonstream import CONTROLS, PADDING, SPLIT
from pairmill.formats.slices import Slicing
from pairmill.stages.clean import core
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean


def clean(
    folder: Path, data: bytes, name: str = "a.jsonl", lenient: bool = True, more: str = "", **options: Any
) -> Manifest:
    """The stage over a file with this content, and what it wrote in ``rows``."""
    (folder / name).write_bytes(data)
    source = folder / "mine.yaml"
    lines = f"name: mine\nfiles: {name}\ncondition: direct\ninstruction: q\nresponse: a\nstrip: false\n{more}"
    source.write_text(lines + "json: lenient\n" * lenient)
    config = CleanConfig(sources=[str(source)], root=str(folder / "root"), workers=1, **options)
    return runner.run(Clean(), config).manifest


def rows(folder: Path) -> list[tuple[str, str]]:
    """The rows of the last run."""
    (path,) = (folder / "root").glob("clean/*/data/mine.jsonl")
    return [(row["instruction"], row["response"]) for row in map(json.loads, path.read_bytes().splitlines())]


def faulty(draw: random.Random, count: int) -> tuple[bytes, list[tuple[str, str]], Counter[str]]:
    """A file with planted faults, its rows, and how many faults of each kind there are."""
    parts, wanted, planted = list[str](), list[tuple[str, str]](), Counter[str]()
    for number in range(count):
        question, answer = f"question {number} æ\u2028", f'answer "{number}" {{[\\'
        kind = draw.choice(["plain", "plain", "indented", "control", "break", "padding", "bytes", "same line"])
        record: dict[str, Any] = {"id": number, "q": question, "a": answer, "more": [{"x": {}}, [1.5]]}
        text = json.dumps(record, ensure_ascii=draw.random() < 0.5)
        if kind == "indented":
            text = json.dumps(record, indent=draw.choice([0, 1, 4]))
            planted[SPLIT] += 1
        elif kind in ("control", "break"):
            mark = draw.choice("\t\x01\x1f") if kind == "control" else draw.choice(["\n", "\r\n"])
            text = text.replace("question", f"que{mark}stion", 1)
            question = question.replace("question", f"que{mark}stion")
            planted[CONTROLS] += 1
            planted[SPLIT] += kind == "break"
        elif kind in ("padding", "bytes"):
            text = "\0" * draw.randint(1, 5000) + "\n" * (kind == "padding") + text
            planted[PADDING] += 1
        parts.append(text + ("" if kind == "same line" else draw.choice(["\n", "\r\n", "\n\n"])))
        wanted.append((question, answer))
    return "".join(parts).encode(), wanted, planted


@pytest.mark.parametrize("chunk", [1 << 20, 64, 7])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_planted_faults_are_mended_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(jsonstream, "_CHUNK", chunk)
    data, wanted, planted = faulty(random.Random(f"{name}{chunk}"), 400)
    ledger = clean(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name).ledger
    assert rows(tmp_path) == wanted
    assert ledger.rows_kept == 400
    assert not ledger.dropped
    assert min(planted.values()) > 30
    assert set(planted) == {SPLIT, CONTROLS, PADDING}
    assert ledger.notes == planted


def test_large_files_are_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SLICING", Slicing(size=1000, open_from=1000))
    data, wanted, planted = faulty(random.Random(1), 300)
    assert clean(tmp_path, data).ledger.notes == planted
    assert rows(tmp_path) == wanted


def test_padding_at_the_end_is_counted_with_the_last_object(tmp_path: Path) -> None:
    assert clean(tmp_path, b'{"q": "1", "a": "x"}\n\0\0\0\n').ledger.notes == {PADDING: 1}
    (tmp_path / "all").mkdir()
    with pytest.raises(InputError, match="contain no record"):
        clean(tmp_path / "all", b"\0" * 5000)


def test_a_broken_object_spoils_its_own_lines_alone(tmp_path: Path) -> None:
    good = '{"q": "%d", "a": "x"}\n'
    inner = '[\n{"q": "inside", "a": "of a broken one"},\n'
    broken = ['{"q": "cut off\n', '{"q": "1", "a": }\n', "words\n", '  {"q": "indented\n', "[1, 2]\n", '{"q": 1,\n']
    data = "".join(good % at + item for at, item in enumerate(broken)) + good % 6 + good % 7 + '{"q": "no end'
    manifest = clean(tmp_path, data.encode(), max_reject_fraction=0.9)
    assert [question for question, _ in rows(tmp_path)] == [str(at) for at in range(8)]
    assert manifest.ledger.dropped == {"invalid_json": 7}
    (tmp_path / "inner").mkdir()
    clean(tmp_path / "inner", f'{{"q": "x", "b": {inner} {{"q": "y"\n{good % 1}'.encode(), max_reject_fraction=0.9)
    assert [question for question, _ in rows(tmp_path / "inner")] == ["inside", "1"]


def test_bytes_that_are_not_utf8_spoil_their_object_alone(tmp_path: Path) -> None:
    data = b'{"q": "1", "a": "x"}\n{"q": "\xff\n", "a": "x"}\n{"q": "\xed\xa0\x80", "a": "x"}\n{"q": "2", "a": "x"}'
    manifest = clean(tmp_path, data, max_reject_fraction=0.9)
    assert manifest.ledger.dropped == {"invalid_utf8": 2}
    assert [question for question, _ in rows(tmp_path)] == ["1", "2"]


def test_an_array_is_mended_too(tmp_path: Path) -> None:
    data = b'\0\0[{"q": "a\nb", "a": "x"}, \0{"q": "c", "a": "y"}\n\0]\0'
    assert clean(tmp_path, data, "a.json").ledger.notes == {CONTROLS: 1, PADDING: 4}
    assert rows(tmp_path) == [("a\nb", "x"), ("c", "y")]
    (tmp_path / "within").mkdir()
    within = clean(
        tmp_path / "within", b'{"n": "\t", "data": [{"q": "\t", "a": "x"}]}', "a.json", more="records: data\n"
    )
    assert within.ledger.notes == {CONTROLS: 2}


def test_an_object_is_as_long_as_it_may_be(tmp_path: Path) -> None:
    good = b'{"q": "1",\n"a": "x"}\n'
    data = good + b'{"q": "%s",\n"a": "x"}\n' % (b"y\n" * 40_000) + good
    with pytest.raises(PairmillError, match=r"row 3 \(line 3\): a record is longer than max_record_bytes"):
        clean(tmp_path, data, max_record_bytes=65_536)
    manifest = clean(tmp_path, data, max_record_bytes=65_536, on_long_record="reject")
    assert manifest.ledger.dropped == {"record_too_long": 1}
    assert len(rows(tmp_path)) == 2


def test_memory_follows_the_longest_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonstream, "_CHUNK", 1 << 16)
    path = tmp_path / "a.jsonl"
    path.write_bytes((b'{"q": "%s",\n "a": "x\ty"}\n' % (b"z" * 1000) + b"\0" * 100) * 20_000)
    mended = Counter[str]()
    with path.open("rb") as file:
        tracemalloc.start()
        count = sum(1 for _ in jsonstream.mended_objects(str(path), 1 << 20, file, mended))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 20_000
    assert mended == {SPLIT: 20_000, CONTROLS: 20_000, PADDING: 20_000}
    assert peak < 2 << 20


@pytest.mark.parametrize(
    "fault", ['{"q": "a\tb", "a": "x"}\n', "\0\0\0\0\n", '{"q": "a",\n"a": "x"}\n', '{"q": "a\nb", "a": "x"}\n']
)
def test_without_it_such_a_file_is_refused_with_the_line_to_write(tmp_path: Path, fault: str) -> None:
    good = '{"q": "1", "a": "x"}\n' * 20
    with pytest.raises(InputError) as caught:
        clean(tmp_path, (good + "not JSON\n" + fault + good).encode(), lenient=False)
    assert f"write in {tmp_path / 'mine.yaml'}: json: lenient\n" in str(caught.value)
    assert clean(tmp_path, (good + fault + good).encode()).ledger.rows_kept >= 40


def test_a_file_of_other_faults_does_not_name_it(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        clean(tmp_path, b'{"q": "1", "a": "x"}\n{"q": "1", "a": x}\n', lenient=False)
    assert "invalid_json" in str(caught.value)
    assert "lenient" not in str(caught.value)


@pytest.mark.parametrize("value", ["json: strict", "json: [lenient]", "files: a.csv\njson: lenient"])
def test_another_value_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    lines = ["name: mine", "condition: direct", "instruction: q", "response: a", "files: a.jsonl"]
    (tmp_path / "mine.yaml").write_text("\n".join([*lines[: 4 + ("files" not in value)], value]))
    with pytest.raises(UsageError, match=r"mine\.yaml line \d, json"):
        runner.run(Clean(), CleanConfig(sources=[str(tmp_path / "mine.yaml")], root=str(tmp_path / "root"), workers=1))
