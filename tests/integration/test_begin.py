"""``pairmill init``: what it sees in data of others, and that clean makes of its file the rows that it shows."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import datasets
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pairmill.interface.command import run
from tests.fuzz.hostile import RECORDS
from tests.support import tools
from tests.support.servers.downloads import Hub
from tests.support.stages.fetching import ask_here

COUNT = 30
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pairs() -> list[dict[str, str]]:
    return [
        {"question": f"How much is {n} and {n}; and why?", "answer": f"It is {2 * n}, größer."} for n in range(COUNT)
    ]


def write_csv(folder: Path) -> str:
    pandas.DataFrame(pairs()).to_csv(folder / "pairs.csv", sep=";", index=False, encoding="cp1252")
    return "pairs.csv"


def write_chats(folder: Path) -> str:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    chats = [
        {
            "messages": [
                {"role": "user", "content": pair["question"]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": "42"},
                {"role": "assistant", "content": pair["answer"]},
            ],
            "tools": TOOLS,
        }
        for pair in pairs()
    ]
    for part in range(3):
        tools.write_lines(folder / "chats" / f"part-{part}.jsonl", chats[part::3])
    return "chats"


def write_nested(folder: Path) -> str:
    items = [{"qa": {"question": pair["question"], "answer": {"text": pair["answer"]}}} for pair in pairs()]
    tools.write_text(folder / "nested.json", json.dumps({"version": 2, "result": {"items": items}}, indent=1))
    return "nested.json"


def write_preferences(folder: Path) -> str:
    table = {
        "prompt": [pair["question"] for pair in pairs()],
        "chosen": [pair["answer"] for pair in pairs()],
        "rejected": ["no"] * COUNT,
    }
    pq.write_table(pa.table(table), folder / "preferences.parquet")
    return "preferences.parquet"


def write_sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("CREATE TABLE log (at TEXT)")
        database.execute('CREATE TABLE "the pairs" (question TEXT, answer TEXT)')
        rows = [(pair["question"], pair["answer"]) for pair in pairs()]
        database.executemany('INSERT INTO "the pairs" VALUES (?, ?)', rows)
        database.commit()
    return "shop.db"


def write_saved(folder: Path) -> str:
    half = datasets.Dataset.from_list([{"question": "held out?", "answer": "yes"}])
    datasets.DatasetDict({"train": datasets.Dataset.from_list(pairs()), "test": half}).save_to_disk(folder / "saved")
    return "saved"


def write_excel(folder: Path) -> str:
    with pandas.ExcelWriter(folder / "book.xlsx") as writer:
        pandas.DataFrame(pairs()).to_excel(writer, sheet_name="Pairs", index=False)
        pandas.DataFrame([["a"]]).to_excel(writer, sheet_name="Other", index=False)
    return "book.xlsx"


SHAPES = [write_csv, write_chats, write_nested, write_preferences, write_sqlite, write_saved, write_excel]


def cleaned(root: Path, *options: str) -> list[tuple[str, str]]:
    """Clean what a description says; return the rows sorted."""
    assert run(["clean", *options, f"root={root}", "workers=1"]) == 0
    (folder,) = (path.parent for path in (root / "clean").glob("*/_MANIFEST.json"))
    rows = [json.loads(line) for path in (folder / "data").glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted((row["instruction"], row["response"]) for row in rows)


@pytest.mark.parametrize("write", SHAPES, ids=lambda write: write.__name__.removeprefix("write_"))
def test_shapes_of_data_become_the_rows_that_are_shown(
    write: Callable[[Path], str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(here)
    assert run(["init", name]) == 0
    shown = capsys.readouterr().out
    source = f"{name.partition('.')[0]}.yaml"
    assert f"pairmill run sources={source} root=build output_path=build/epochs" in shown
    assert f"{COUNT} of {COUNT} records make rows" in shown
    rows = cleaned(here / "build", f"sources={source}")
    if name != "chats":
        assert rows == sorted((pair["question"], pair["answer"]) for pair in pairs())
    assert [response for _, response in rows if response in shown][:3], "the rows that are shown are those of clean"
    assert sorted(response for _, response in rows) == sorted(pair["answer"] for pair in pairs())
    assert run(["init", name]) == 2, "an own file is never replaced unasked"
    assert run(["init", name, "confirm=true"]) == 0


def described(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[dict[str, object], str]:
    """What ``init`` writes, and all that it says."""
    assert run(["init", *arguments, *([] if code else ["output=made.yaml", "confirm=true"])]) == code
    shown = "".join(capsys.readouterr())
    return ({} if code else yaml.safe_load(Path("made.yaml").read_text())), shown


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        ({"instruction": "Do it.", "input": "", "output": "Done."}, {"instruction": "{instruction}[[\n\n{input}]]"}),
        ({"system": "Be brief.", "prompt": "Why?", "completion": "So."}, {"instruction": "[[{system}\n\n]]{prompt}"}),
        ({"q": 1, "Question": "Why?", "Final Answer": 42}, {"response": "{['Final Answer']}"}),
        (
            {"question": "Which?", "choices": ["a", "b"], "answer": 1},
            {"instruction": "{question}\n{choices|letters}", "response": "{answer|letter}"},
        ),
        (
            {"context": "It is so.", "question": "Is it?", "answers": {"text": ["yes"], "answer_start": [0]}},
            {"instruction": "[[{context}\n\n]]{question}", "response": "answers.text[0]"},
        ),
        ({"text": "A document. " * 40, "url": "http://x"}, {"text": "text"}),
        (
            {"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2"}},
            {"turns": "prompt", "answer": {"path": "reward_model.ground_truth"}},
        ),
        (
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "<think>x</think>Hello"}]},
            {"turns": "conversations", "reasoning": "keep"},
        ),
        (
            {"dialog": [{"role": "narrator", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
            {"turns": "dialog", "roles": {"narrator": "user"}},
        ),
        ({"condition": "cot", "instruction": "a", "response": "b"}, {"condition": "{condition}"}),
    ],
)
def test_records_of_public_forms_are_recognized(
    record: dict[str, object], lines: dict[str, object], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.write_lines(here / "some.jsonl", [record] * 5)
    made, shown = described("some.jsonl", capsys=capsys)
    assert {key: made.get(key) for key in lines} == lines, made
    assert "5 of 5 records make rows" in shown


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_tables_of_any_encoding_and_delimiter_are_read(
    encoding: str, delimiter: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = "\x8d" if encoding == "latin-1" else "ß"  # a byte that cp1252 does not have
    rows = [{"question": f"größer, {n}; {mark}?", "answer": "a|b\tc"} for n in range(9)]
    pandas.DataFrame(rows).to_csv("t.csv", index=False, sep=delimiter, encoding=encoding)
    made, _ = described("t.csv", capsys=capsys)
    assert made.get("encoding") == (None if encoding.startswith("utf-8") else encoding)
    assert [response for _, response in cleaned(here / "root", "sources=made.yaml")] == ["a|b\tc"] * 9


def test_a_choice_between_columns_is_a_warning_and_a_comment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"question": "Why?", "answer": "So.", "solution": "Since it is so.", "date": "2024-01-01", "stars": 3}
    tools.write_lines(here / "some.jsonl", [record] * 5)
    made, shown = described("some.jsonl", capsys=capsys)
    assert made["response"] == "solution"
    assert "response: solution was taken; it may also be answer" in shown
    text = Path("made.yaml").read_text()
    assert "# or response: answer" in text
    assert "# attributes: {date: date}" in text
    Path("made.yaml").write_text(
        text.replace("# attributes", "attributes").replace("response: solution", "response: answer")
    )
    assert cleaned(here / "root", "sources=made.yaml") == [("Why?", "So.")] * 5


def test_a_table_without_a_header_and_texts_without_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools.write_text(here / "t.tsv", "".join(f"{n}\tWhat is number {n}?\tIt is {n}.\n" for n in range(9)))
    made, shown = described("t.tsv", capsys=capsys)
    assert made["header"] == ["column_1", "column_2", "column_3"]
    assert (made["instruction"], made["response"]) == ("column_2", "column_3")
    assert "column_2 was taken for the question" in shown
    assert len(cleaned(here / "root", "sources=made.yaml")) == 9


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ({"a.jsonl": '{"x": 1, "y": [2]}\n'}, "nothing tells which columns are a question and its answer"),
        ({"a.jsonl": '{"a": "some words", "b": "some words", "c": "some words"}\n'}, "(text, 10 characters)"),
        ({"a.jsonl": '{"question": "", "answer": ""}\n'}, "nothing tells"),
        ({"a.jsonl": '{"input_ids": [1, 2], "labels": [1, 2]}\n'}, "tokens=<folder>"),
        ({"a.jsonl": "no json\n"}, "1 invalid_json"),
        ({"a.html": "<p>"}, "trafilatura --input-dir"),
        ({"c.warc.gz": ""}, "WarcReader"),
        ({"x.lance/data/a.lance": ""}, "import lance"),
        ({"m.bin": "x"}, "expected .parquet, .jsonl"),
        ({"a.parquet": "PAR"}, "not a readable Parquet file"),
        ({}, "missing or empty"),
    ],
)
def test_what_cannot_become_rows_is_refused_with_what_was_seen(
    files: dict[str, str], shown: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        tools.write_text(here / "data" / name, text)
    assert shown in described("data", capsys=capsys, code=3)[1]
    assert not list(here.glob("*.yaml"))


def test_several_kinds_splits_and_documents_of_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train-0.jsonl", "train-1.jsonl", "test-0.jsonl"):
        tools.write_lines(here / "data" / name, pairs())
    tools.write_text(here / "data" / "notes" / "a.txt", "Some words that are a document.")
    tools.write_text(here / "data" / "b.csv", "question,answer\n1?,2\n")
    made, shown = described("data", capsys=capsys)
    assert made["files"] == "data/train-*.jsonl"
    assert ".csv files are left out: format=jsonl was taken" in shown
    assert "files of other splits are left out: test-0.jsonl" in shown
    assert described("data", "format=csv", capsys=capsys)[0]["files"] == "data/b.csv"
    assert "expected csv, jsonl" in described("data", "format=parquet", capsys=capsys, code=2)[1]
    made, _ = described("data/notes", capsys=capsys)
    assert (made["each"], made["text"], made["files"]) == ("file", "text", "data/notes/a.txt")
    assert cleaned(here / "root", "sources=made.yaml") == [("", "Some words that are a document.")]


def test_data_elsewhere_is_named_with_raw(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(here)
    work = here / "work"
    work.mkdir()
    os.chdir(work)
    _, shown = described(str(here / "pairs.csv"), capsys=capsys)
    assert f"pairmill run sources=made.yaml raw={here} root=build" in shown
    assert len(cleaned(work / "root", "sources=made.yaml", f"raw={here}")) == COUNT


def test_ten_thousand_files_are_looked_at_in_seconds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "many").mkdir()
    line = json.dumps(pairs()[0]) + "\n"
    for number in range(10_000):
        (here / "many" / f"{number:05}.jsonl").write_text(line)
    start = time.process_time()
    made, shown = described("many", capsys=capsys)
    assert time.process_time() - start < 50
    assert made["files"] == "many/*.jsonl"
    assert "12 of 12 records make rows" in shown
    assert "about 10,000 records" in Path("made.yaml").read_text()


def test_a_data_set_of_the_hub(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = here / "a.parquet"
    pq.write_table(pa.Table.from_pylist(pairs()), out)
    card = (
        "---\nlicense: mit\nlanguage: [da]\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n"
        "  - split: train\n    path: main/t-*\n- config_name: more\n  data_files: more/*\n---\n"
    )
    files = {"README.md": card.encode(), "main/t-0.parquet": out.read_bytes(), "more/x.parquet": b"no"}
    with Hub() as server:
        ask_here(monkeypatch, server, here / "home")
        server.add("someone/pairs", files)
        made, shown = described("hf://datasets/someone/pairs", capsys=capsys)
        assert "other configurations: config: more" in shown
        assert made["hub"] == "someone/pairs"
        assert (made["config"], made["licence"], made["language"]) == ("main", "mit", "da")
        assert "3 rows" not in shown
        assert f"{COUNT} of {COUNT} records make rows" in shown
        assert run(["fetch", "sources=made.yaml", f"root={here}/root", "workers=1"]) == 0
        raw = capsys.readouterr().out.strip()
        assert len(cleaned(here / "root", "sources=made.yaml", f"raw={raw}")) == COUNT
        assert run(["init", "hf://someone/pairs", "output=b.yaml"]) == 2
        assert run(["init", "hf://datasets/someone/nothing", "output=b.yaml"]) == 3


def test_names_in_data_write_no_entries(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "x\nurl: http://evil\n#"
    chat = [
        {"role": f"human{evil}", "content": "Hi"},
        {"role": "null", "content": "x"},
        {"role": "gpt", "content": "y"},
    ]
    tools.write_lines(here / "a.jsonl", [{"messages": chat, evil: 1, f"url{evil}": evil, "answer\nhub: a": "b"}] * 3)
    with pytest.raises(AssertionError):
        described("a.jsonl", capsys=capsys)  # two questions in a row make no row
    tools.write_lines(here / "a.jsonl", [{f"question {evil}": evil, f"answer {evil}": "b", f"url{evil}": evil}] * 3)
    made, _ = described("a.jsonl", capsys=capsys)
    assert set(made) == {"name", "files", "condition", "instruction", "response"}
    assert cleaned(here / "root", "sources=made.yaml") == [(evil.strip(), "b")] * 3
    folder = here / "a: b"
    tools.write_lines(folder / "null.jsonl", pairs())
    assert described("a: b", capsys=capsys)[0]["files"] == "a: b/null.jsonl"


@pytest.mark.parametrize("seed", range(8))
def test_hostile_files_are_taken_or_refused(seed: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    kinds = ("jsonl", "json", "csv", "tsv", "db", "arrow", "xlsx", "parquet", "txt")
    codes = set()
    for number, record in enumerate(RECORDS[seed::8]):
        noise = bytes(draw.choice(b'{}[]",:;|\t\n\r\\\0abc\xff\xc3') for _ in range(draw.randrange(300)))
        for kind in kinds:
            Path(f"a.{kind}").write_bytes(
                record + b"\n" + (noise if number % 2 else b'{"question": "a", "answer": "b"}\n')
            )
            codes.add(run(["init", f"a.{kind}", "output=x.yaml", "confirm=true"]))
    capsys.readouterr()
    assert codes <= {0, 2, 3}
    assert 3 in codes


def test_a_result_of_pairmill_is_not_raw_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described(write_csv(here), capsys=capsys)
    cleaned(here / "root", "sources=made.yaml")
    (folder,) = (path.parent for path in (here / "root" / "clean").glob("*/_MANIFEST.json"))
    shown = described(str(folder), capsys=capsys, code=3)[1]
    assert f"pairmill show {folder}" in shown
