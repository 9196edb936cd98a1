"""What the tutorials say, typed line by line by somebody who has the wheel, files of five shapes, and nothing else."""

import csv
import io
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from tests.support.definitions.chats import TOOLS
from tests.support.helpers import REPOSITORY
from tests.support.servers.hub_writes import WritableHub
from tests.support.tokenizers import families
from tests.wheel.conftest import Machine

TUTORIAL = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
N = 200
"""Records of each file."""


def lines(heading: str) -> list[str]:
    """Return the commands below a heading of the page."""
    (part,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", TUTORIAL, re.MULTILINE | re.DOTALL)
    return re.findall(r"^ {4}(.*)$", part, re.MULTILINE)


def questions() -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";")
    writer.writerows([("Question", "Answer"), *((f"How much is {n} + é?", f"{n} and é, I think.") for n in range(N))])
    return text.getvalue().encode("latin-1")


def chats() -> bytes:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    call = {"type": "function", "function": {"name": "add", "arguments": "{}"}}
    records = [
        {
            "tools": [tool],
            "messages": [
                {"role": "user", "content": f"Add up {n}."},
                {"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{n}", **call}]},
                {"role": "tool", "tool_call_id": f"call_{n}", "content": str(n)},
                {"role": "assistant", "content": f"It comes to {n}."},
            ],
        }
        for n in range(N)
    ]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def nested() -> bytes:
    records = [
        {"id": n, "input": {"question": f"Name {n}."}, "output": {"answer": f"It is {n * 7}."}} for n in range(N)
    ]
    return json.dumps({"version": 1, "data": records}).encode()


def preferences() -> bytes:
    columns = {"prompt": "Say {}.", "chosen": "{}, and why.", "rejected": "No {}."}
    table = pa.table({name: [text.format(n) for n in range(N)] for name, text in columns.items()})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def notes(folder: Path) -> bytes:
    path = folder / "notes.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, question TEXT, answer TEXT)")
        rows = [(n, f"What is note {n}?", f"It is about {n}.") for n in range(N)]
        connection.executemany("INSERT INTO notes VALUES (?, ?, ?)", rows)
    connection.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def user(whole: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The machine with the files, and a Hub."""
    with WritableHub() as hub:
        tokenizer = json.loads(families.made("qwen"))
        # Qwen's own file has them too; here they are the tags of rows that no template writes.
        for name in ("object_ref_start", "object_ref_end", "quad_start", "quad_end"):
            tokenizer["added_tokens"].append(families.added(f"<|{name}|>", special=True))
        template = {"chat_template": TOOLS, "eos_token": "<|im_end|>"}
        files = {
            "tokenizer.json": Tokenizer.from_str(json.dumps(tokenizer)).to_str().encode(),
            "tokenizer_config.json": json.dumps(template).encode(),
        }
        hub.add("Qwen/Qwen3-0.6B", files, kind="model")
        whole.variables |= hub.environment(Path("/home/hub"), hub.token("t", "me/questions"))
        whole.put(
            {
                "questions.csv": questions(),
                "chats.jsonl": chats(),
                "nested.json": nested(),
                "pairs.parquet": preferences(),
                "notes.sqlite": notes(tmp_path_factory.mktemp("notes")),
            }
        )
        yield whole


def test_from_a_csv_file(user: Machine, bare: Machine) -> None:
    commands = lines("From a CSV file")
    start = time.monotonic()
    first, second = (user.type(line) for line in commands[:2])
    print(f"from a CSV file to epochs: 2 commands, {time.monotonic() - start:.0f} s")
    assert "It is" not in first
    assert f"{N} and é" not in first
    assert "0 and é, I think." in first
    assert "arrays: /home/project/epochs" in second
    status, stats, show = (user.type(line) for line in commands[2:5])
    assert [
        name for name in ("fetch/", "clean/", "curate/", "tokenizer/", "tokenize/", "sample/") if name not in status
    ] == []
    assert re.search(rf"questions +{4 * N}\b", stats)
    assert "and é, I think." in show
    again = user.type(commands[5])
    assert again.count("reused") == 5
    # A node has numpy alone.
    program = (
        "from pairmill.loader import Loader, RowPlan; "
        "loader = Loader(RowPlan('project/longer'), batch_tokens=4096, rank=0, ranks=1); "
        "print(sum(1 for batch in loader))"
    )
    assert int(bare.type(f'python -c "{program}"')) > 1


def test_from_chats(user: Machine) -> None:
    *commands, show = lines("From chats")
    for line in commands:
        user.type(line)
    shown = user.type(show)
    assert "<|im_start|>" in shown
    assert "<tool_call>" in shown


def test_five_shapes_at_once(user: Machine) -> None:
    for name in ("nested.json", "pairs.parquet", "notes.sqlite"):
        assert f"pairmill run sources={Path(name).stem}.yaml" in user.type(f"pairmill init {name}")
    sources = "questions.yaml,chats.yaml,nested.yaml,pairs.yaml,notes.yaml"
    user.type("sed -i 's|^template:|# template:|' chats.yaml")
    user.type(f"pairmill run sources={sources} root=five output_path=five/epochs epochs=1")
    stats = user.type("pairmill stats five/epochs")
    counted = dict(re.findall(r"^(\w+) +(\d+) ", stats, re.MULTILINE))
    assert {name: counted[name] for name in ("questions", "chats", "nested", "pairs", "notes")} == dict.fromkeys(
        ("questions", "chats", "nested", "pairs", "notes"), str(N)
    )


def test_handed_on(user: Machine) -> None:
    *commands, publish = lines("Hand it on")
    for line in commands:
        user.type(line)
    assert re.fullmatch(r"hf://datasets/me/questions@[0-9a-f]{40}", user.type(publish).splitlines()[-1])
    for place in ("exported", "me/questions"):
        program = (
            f"import datasets; loaded = datasets.load_dataset('{place}'); "
            "print(sorted((name, part.num_rows) for name, part in loaded.items()))"
        )
        assert user.type(f'python -c "{program}"') == f"{[(f'epoch_{n}', N) for n in range(4)]}\n", place
