"""Files of records: what is written of each row, and how single ones are found."""

import random
from pathlib import Path

import numpy as np
import pytest

from pairmill.errors import UsageError
from pairmill.formats import records
from pairmill.formats.records import Places, RecordId, RecordsFile, RecordsWriter


def written(path: Path, parts: list[list[RecordId]], packed: bool) -> str:
    """Write records as a shard does: a part is what is written at once."""
    with path.open("wb") as file, RecordsWriter(file) as writer:
        for part in parts:
            places = Places()
            for record in part:
                places.add(record.file, record.member or record.line - 1)
            table = places.table()
            writer.write(records.unpack([records.pack(table)]) if packed else table)
    return path.as_uri()


def drawn(seed: int, count: int) -> list[list[RecordId]]:
    rng = random.Random(seed)
    result, line = [], 1
    for number in range(count):
        part = []
        for _ in range(rng.randrange(1, 40)):
            line += rng.choice([0, 1, 1, 3])
            file = f"source/{number // 3}.jsonl"
            member = f"{line}" if number % 4 == 3 else ""
            part.append(RecordId(file, 0 if member else line, member))
        result.append(part)
        line = 1 if number % 3 == 2 else line
    return result


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("group", [7, 1 << 15])
def test_rows_have_the_records_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, group: int
) -> None:
    monkeypatch.setattr(records, "_GROUP", group)
    parts = drawn(1, 20)
    every = [record for part in parts for record in part]
    uri = written(tmp_path / "a.pq", parts, packed)
    rng = np.random.default_rng(0)
    with RecordsFile(uri) as file:
        assert len(file) == len(every)
        ordinals = rng.integers(0, len(every), 100)
        assert file.read(ordinals) == [every[at] for at in ordinals]
        assert file.read(np.empty(0, np.int64)) == []
        wanted = [*rng.choice(np.array([*{*every}], object), 20), RecordId("source/0.jsonl", 10**9), RecordId("z", 1)]
        assert list(file.search(wanted)) == [(at, record) for at, record in enumerate(every) if record in wanted]
        last: dict[str, int] = {}
        for record in every:
            last[record.file] = max(last.get(record.file, 0), record.line)
        assert file.last_lines() == last
    again = written(tmp_path / "b.pq", [every], packed)
    assert Path(again[7:]).read_bytes() == Path(uri[7:]).read_bytes()


def test_a_task_without_rows_has_a_file(tmp_path: Path) -> None:
    with RecordsFile(written(tmp_path / "a.pq", [], False)) as file:
        assert not len(file)
        assert not file.last_lines()
        assert not list(file.search([RecordId("a/b", 1)]))


def test_names_of_records() -> None:
    for text, record in {
        "gsm8k/a.jsonl:17": RecordId("gsm8k/a.jsonl", 17),
        "amps/x.tar.gz:AMPS/b c.json": RecordId("amps/x.tar.gz", 0, "AMPS/b c.json"),
        "s/a:b.jsonl:1": RecordId("s/a:b.jsonl", 1),
    }.items():
        assert RecordId.parse(text) == record
        assert str(record) == text
    assert (record.source, record.path) == ("s", "a:b.jsonl")
    for text in ("", "a.jsonl:1", "s/a.jsonl", "s/a.jsonl:"):
        with pytest.raises(UsageError, match="records: not a record"):
            RecordId.parse(text, "records")


def test_where_the_file_of_a_task_is() -> None:
    assert records.path_of("a.jsonl") == "records/a.jsonl.pq"
    assert records.path_of("holdout/a.jsonl") == "holdout/records/a.jsonl.pq"
