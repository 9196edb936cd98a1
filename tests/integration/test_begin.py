"""``pairmill init``: what it sees in data of others, and that clean makes of its file the rows that it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.interface.command import run
from tests.support import tools

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


SHAPES = [write_csv, write_chats, write_nested, write_preferences]


def cleaned(root: Path, *options: str) -> list[tuple[str, str]]:
    """Clean what a description says; return the rows sorted."""
    assert run(["clean", *options, f"root={root}", "workers=1"]) == 0
    (folder,) = (path.parent for path in (root / "clean").glob("*/_MANIFEST.json"))
    rows = [json.loads(line) for path in (folder / "data").glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted((row["instruction"], row["response"]) for row in rows)


@pytest.mark.parametrize("write", SHAPES, ids=lambda write: write.__name__.removeprefix("write_"))
def test_five_shapes_become_the_rows_that_are_shown(
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
