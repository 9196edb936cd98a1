"""Plain records are cleaned in runs, out of Arrow batches and lines: every byte is that of one record after another."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.errors import InputError, StageFailure
from pairmill.sources.files import readers
from pairmill.sources.language.mapped import Mapped
from pairmill.stages.clean import cleaning, sink
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean

TEXTS = [
    "one",
    " two\n",
    "ünï\u2028",
    "\x1c x \x1f",
    "User:",
    "a\n\\\\Assistant:\nb",
    "Tool call:\n\nTool:",
    "😀" * 9,
    "x" * 700,
]
ODD = ["", " ", "\x1e\u3000", None, "a\x00b", '"\\\t\x7f\r']
ROLES = ["system", "developer", "tool", "tool_call", "Human", "who", None]
LINES = [
    b"",
    b" \t\r",
    b"\x0b",
    b"null",
    b"[]",
    b"{}",
    b"{",
    b'{"messages": 5, "question": 5}',
    b'{"messages": [null]}',
    b'{"messages": [{"role": "user", "role": null, "content": "a"}, {"role": "assistant", "content": "b"}]}',
    b'{"messages": [{"role": "user", "content": ["a"]}, {"role": "assistant", "content": "b"}]}',
    b'{"question": "a", "answer": "b", "answer": "c"}',
    b'{"question": "a", "answer": "b"} x',
    b'{"question": "a", "answer": "b", "more": NaN}',
    b'{"question": "a", "answer": "b", "more": ' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"question": "a", "answer": "b", "more": ' + b"9" * 5000 + b"}",
    b'{"question": "a\\ud800", "answer": "b"}',
    b'{"question": "a\xff", "answer": "b"}',
    b'{"question": "a\nb", "answer": "b"}',
    b'\xef\xbb\xbf{"question": "a", "answer": "b"}',
    b'{"question": "\\u0041", "answer": "\\ud83d\\ude00"}',
]


def messages(draw: random.Random) -> Any:
    """Messages of a chat, most of them plain."""
    turns = [{"role": "system", "content": "Be brief."}] if draw.random() < 0.2 else []
    for number in range(draw.randrange(7)):
        content = draw.choice(TEXTS if draw.random() < 0.99 else ODD)
        turn: dict[str, Any] = {"role": ("user", "assistant")[number % 2], "content": content}
        if draw.random() < 0.03:
            turn["role"] = draw.choice(ROLES)
        if draw.random() < 0.03:
            turn |= draw.choice([{"weight": 0}, {"weight": None}, {"name": "n"}, {"thinking": "t"}, {"from": "user"}])
        if draw.random() < 0.02:
            turn["tool_calls"] = ["f"]
        turns.append(turn)
    if draw.random() < 0.02:
        turns.insert(draw.randrange(len(turns) + 1), draw.choice([None, {}]))
    return turns if draw.random() < 0.98 else draw.choice([None, []])


def pair(draw: random.Random) -> dict[str, Any]:
    """A pair, most of them plain."""
    return {name: draw.choice(TEXTS if draw.random() < 0.95 else ODD) for name in ("question", "answer")}


def record(draw: random.Random) -> dict[str, Any]:
    """Both in one record."""
    more = {"tools": draw.choice([None, "[]", "[{}]"])} if draw.random() < 0.04 else {}
    return {"id": draw.randrange(9), "messages": messages(draw), **pair(draw), **more}


CHATS, PAIRS, DOCUMENTS = "turns: messages", "instruction: question\nresponse: answer", "text: answer"
FORMS = [CHATS, PAIRS, PAIRS + "\nstrip: false", DOCUMENTS, CHATS + "\nformat: parquet", PAIRS + "\nformat: parquet"]


def write(raw: Path, kind: str, draw: random.Random, count: int, seams: float) -> None:
    records = [record(draw) for _ in range(count)]
    if kind == "jsonl":
        lines = [
            json.dumps(item, ensure_ascii=draw.random() < 0.5).encode() if draw.random() > seams else draw.choice(LINES)
            for item in records
        ]
        (raw / "data.jsonl").write_bytes(b"\n".join(lines) + draw.choice([b"", b"\n", b"\n\n"]))
        return
    table = pa.Table.from_pylist(records)
    if draw.random() < seams:  # a byte that is not UTF-8, in a column that nothing needs
        position = draw.randrange(count)
        names = [b"n\xff" if row == position else b"n" for row in range(count)]
        odd = pa.array(names, pa.binary()).view(pa.string())
        table = table.set_column(table.schema.get_field_index("question"), "question", odd)
    if kind == "parquet":
        pq.write_table(table, raw / "data.parquet", row_group_size=draw.randrange(1, count + 1))
    else:
        with pa.ipc.new_file(raw / "data.arrow", table.schema) as file:
            file.write_table(table, draw.randrange(1, count + 1))


def cleaned(raw: Path, root: Path, **options: Any) -> dict[str, Any]:
    """What clean makes: files, and what its manifest counts; or its error."""
    config = CleanConfig(raw="", root=str(root), sources=[str(raw / "mine.yaml")], workers=1, **options)
    try:
        result = runner.run(Clean(), config)
    except (InputError, StageFailure) as error:
        return {"error": str(error)}
    folder = Path(result.uri)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "_MANIFEST.json"
    } | {"ledger": vars(result.manifest.ledger), "digests": {file.path: file.digest for file in result.manifest.files}}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("form", FORMS)
def test_runs_of_plain_records_give_the_bytes_of_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, kind: str
) -> None:
    # So small that runs are cut: where groups of rows end, and where what is read at once ends.
    monkeypatch.setattr(sink, "BATCH_ROWS", 50)
    monkeypatch.setattr(sink, "BATCH_BYTES", 4000)
    monkeypatch.setattr(readers, "_BUFFER", 1500)
    taken: list[int] = []
    take_made = cleaning._Cleaner._take_made

    def counted(self: Any, made: Any, *others: Any) -> None:
        taken.append(made.records)
        take_made(self, made, *others)

    monkeypatch.setattr(cleaning._Cleaner, "_take_made", counted)
    errors = rows = 0
    for seed in range(6):
        draw = random.Random(f"{form} {kind} {seed}")
        raw = tmp_path / f"raw{seed}"
        raw.mkdir()
        (raw / "mine.yaml").write_text(f"name: mine\nfiles: data.{kind}\ncondition: direct\n{form}\n")
        write(raw, kind, draw, draw.choice([1, 40, 300]), draw.choice([0, 0.03, 0.5]))
        options = {"max_reject_fraction": 1.0, "on_long_record": draw.choice(["reject", "refuse"])}
        options["max_record_bytes"] = draw.choice([64 << 20, 64 << 20, 3000])
        with monkeypatch.context() as one_by_one:
            one_by_one.setattr(Mapped, "row_form", lambda self: None)
            expected = cleaned(raw, tmp_path / f"one{seed}", **options)
            assert not taken or seed
        before = sum(taken)
        assert cleaned(raw, tmp_path / f"runs{seed}", **options) == expected
        if "error" in expected:
            errors += 1
        else:
            rows += expected["ledger"]["rows_kept"]
            assert sum(taken) - before <= expected["ledger"]["rows_kept"]
    assert errors < 5
    assert sum(taken) > rows // 15 > 0
    assert max(taken) > 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("form", [PAIRS, CHATS])
def test_datasets_reads_the_texts_of_plain_records_as_they_are_here(tmp_path: Path, form: str, kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    draw = random.Random(kind)
    # A question that begins like the mark of a turn is escaped in a chat.
    pairs = [pair(draw) for _ in range(300)]
    plain = [item for item in pairs if all((text or "").strip() for text in item.values())]
    plain = [item for item in plain if not item["question"].split("\n")[0].endswith(":")]
    records = [
        {
            **item,
            "messages": [
                {"role": "user", "content": item["question"]},
                {"role": "assistant", "content": item["answer"]},
            ],
        }
        for item in plain
    ]
    path = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f"{json.dumps(item)}\n" for item in records))
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    (tmp_path / "mine.yaml").write_text(f"name: mine\nfiles: data.{kind}\ncondition: direct\n{form}\n")
    read = datasets.load_dataset(
        "json" if kind == "jsonl" else kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    texts = (
        [row["question"], row["answer"]] if form == PAIRS else [turn["content"] for turn in row["messages"]]
        for row in read
    )
    wanted = [
        {"condition": "direct", "instruction": asked.strip(), "response": answer.strip()} for asked, answer in texts
    ]
    made = cleaned(tmp_path, tmp_path / "root")
    assert [json.loads(line) for line in made["data/mine.jsonl"].splitlines()] == wanted
    assert len(wanted) > 100
