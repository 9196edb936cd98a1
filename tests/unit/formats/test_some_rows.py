"""Rows by ordinal: the same as a reader of the whole file gives, of the row groups that hold them."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.engine.content import Content
from pairmill.errors import Changed, InputError
from pairmill.formats import some_rows
from pairmill.formats.rows import JsonlWriter, ParquetWriter, Row
from pairmill.formats.slices import FileSlice
from tests.support.helpers import draws

GROUPS = (3, 1, 0, 5, 2)
ROWS = [Row("direct", f"question {number}", "é" * number) for number in range(sum(GROUPS))]


@pytest.fixture(scope="module", params=["parquet", "jsonl"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / f"rows.{request.param}"
    with path.open("wb") as file, (ParquetWriter if request.param == "parquet" else JsonlWriter)(file) as writer:
        start = 0
        for count in GROUPS:
            writer.write(ROWS[start : start + count])
            start += count
    return path


@settings(max_examples=draws(60), deadline=None)
@given(ordinals=st.lists(st.integers(0, len(ROWS) - 1)))
def test_rows_have_their_ordinals_in_the_order_of_the_file(path: Path, ordinals: list[int]) -> None:
    found = some_rows.read(str(path), ordinals)
    assert found == {ordinal: ROWS[ordinal] for ordinal in ordinals}
    assert list(found) == sorted(set(ordinals))


def test_only_the_row_groups_that_hold_a_row_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with path.open("wb") as file, ParquetWriter(file) as writer:
        for start in range(0, 400, 100):
            writer.write([Row("c", f"{number} " * 50, "a") for number in range(start, start + 100)])
    group = pq.ParquetFile(path).metadata.row_group(1)
    data = bytearray(path.read_bytes())
    first = min(group.column(column).data_page_offset for column in range(3))
    data[first : first + 200] = bytes(200)  # the second row group cannot be decoded any more
    path.write_bytes(data)
    assert list(some_rows.read(str(path), [399, 0, 250])) == [0, 250, 399]
    with pytest.raises(InputError):
        some_rows.read(str(path), [150])


def test_a_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each footer that is read stays in memory for a while: of 2,560 row groups 6 MiB.
    opened: list[str] = []
    path = tmp_path / "rows.parquet"
    with path.open("wb") as file, ParquetWriter(file) as writer:
        for start in range(0, 60, 3):
            writer.write([Row("c", str(number), "a") for number in range(start, start + 3)])
    build = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *given, **named: opened.append("") or build(*given, **named))
    assert [row.instruction for row in some_rows.read(str(path), range(0, 60, 6)).values()] == [
        str(number) for number in range(0, 60, 6)
    ]
    assert len(opened) == 1


def test_rows_of_a_slice_have_the_ordinals_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    with path.open("wb") as file, ParquetWriter(file) as writer:
        for start in range(0, 12, 3):
            writer.write([Row("c", str(number), "a") for number in range(start, start + 3)])
    part = FileSlice("rows", str(path), start=1, stop=3, first=3)
    assert [row.instruction for row in some_rows.read(part, [8, 3]).values()] == ["3", "8"]
    for outside in (2, 9):
        with pytest.raises(InputError, match=f"row {outside + 1}: the file does not have this row"):
            some_rows.read(part, [outside])


def test_a_row_that_the_file_does_not_have_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=f"row {len(ROWS) + 3}: the file does not have this row") as raised:
        some_rows.read(str(path), [1, len(ROWS) + 2])
    assert raised.value.exit_code == 3


def test_a_file_of_lines_with_another_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file, JsonlWriter(file) as writer:
        writer.write(ROWS)
    right = Content(hashlib.sha256(path.read_bytes()).hexdigest(), promised=True)
    assert some_rows.read(str(path), [0], right) == {0: ROWS[0]}
    with pytest.raises(Changed):
        some_rows.read(str(path), [0], Content("0" * 64, promised=True))


def test_no_ordinal_opens_no_file(tmp_path: Path) -> None:
    assert some_rows.read(str(tmp_path / "absent.jsonl"), []) == {}
