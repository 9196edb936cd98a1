"""A large Parquet file that curate writes in parts: the rows and attributes of a file that is written whole."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.formats import row_files
from pairmill.formats.slices import Slicing
from pairmill.rowstage import join
from tests.support import tools
from tests.support.stages import curating
from tests.support.stages.curating import attributes, decisions, kept, manifest, text

GROUPS = 5
ROWS = 40
FIELDS = ("condition", "instruction", "response")
FEW = (
    "exact: {response: off, instruction: off}\nnear: off\n"
    "heuristics: {mode: drop, profile: none, rules: [{metric: words, min: 3, name: short}]}\n"
)


def given(base: Path, short: int = 2) -> Path:
    """A Parquet file of five row groups, with copies in each and a second file; its second group is short of words."""
    path = base / "rows" / "big.parquet"
    path.parent.mkdir(parents=True)
    rows = [("cot", f"{text(at)} {at}", f"{at} {text(at + 3)}") for at in range(GROUPS * ROWS)]
    for at in range(0, len(rows), 7):
        rows[at] = ("direct", "A copy, which stands in each of the groups.", "Mail me: someone@example.org")
    for at in range(short * ROWS, (short + 1) * ROWS):
        rows[at] = ("direct", f"few {at}", f"words {at}")
    table = pa.table(dict(zip(FIELDS, zip(*rows, strict=True), strict=True)))
    pq.write_table(table, path, row_group_size=ROWS)
    return curating.write(base / "rows", {"small.parquet": [("", text(1), text(1001)), ("", text(5000), text(5001))]})


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each row group is a slice, and a file of more than one is written in parts."""
    monkeypatch.setattr(row_files, "SLICING", Slicing(1, open_from=1, cut_from=1))
    monkeypatch.setattr(join, "PARTS_FROM", 1)
    return


def both(base: Path, said: str, monkeypatch: pytest.MonkeyPatch, rows: Path | None = None) -> tuple[Path, Path]:
    """The finished folders of one run in parts, and of one as usual."""
    rows = rows or given(base)
    whole = curating.curate(base / "whole", rows, said)
    with monkeypatch.context() as patched:
        patched.setattr(row_files, "SLICING", Slicing(1, open_from=1, cut_from=1))
        patched.setattr(join, "PARTS_FROM", 1)
        parts = curating.curate(base / "parts", rows, said)
    return parts, whole


def group_sizes(path: Path) -> list[int]:
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]


@pytest.mark.parametrize("more", ["", "pii: {mode: redact}\n"], ids=["dropped", "redacted"])
def test_what_is_written_in_parts_is_what_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    parts, whole = both(tmp_path, FEW + more, monkeypatch)
    assert kept(parts, "big.parquet") == kept(whole, "big.parquet")
    for operation in ("origin", "heuristics"):
        mine, other = (attributes(one, operation, "big.parquet") for one in (parts, whole))
        assert mine.equals(other)
        assert mine.num_rows == len(kept(parts, "big.parquet"))
    for operation in ("exact", "heuristics"):
        assert decisions(parts, operation, "big.parquet") == decisions(whole, operation, "big.parquet") != []
    mine, other = manifest(parts), manifest(whole)
    assert mine.ledger == other.ledger
    assert mine.shards == other.shards
    said = {key: value for key, value in mine.data.items() if key != "costs"}
    assert said == {key: value for key, value in other.data.items() if key != "costs"}
    assert [(file.path, file.task) for file in mine.files] == [(file.path, file.task) for file in other.files]
    # A slice without a kept row has no row group, and attributes have the row groups of the rows.
    sizes = group_sizes(parts / "big.parquet")
    assert len(sizes) == GROUPS - 1
    for operation in ("origin", "heuristics"):
        assert group_sizes(parts / "attributes" / operation / "big.parquet.parquet") == sizes
    groups = pq.ParquetFile(parts / "big.parquet").metadata
    schema = pq.ParquetFile(whole / "big.parquet").schema_arrow
    assert groups.num_rows == mine.ledger.rows_kept - len(kept(parts, "small.parquet"))
    assert pq.ParquetFile(parts / "big.parquet").schema_arrow.equals(schema)


def test_attributes_that_come_with_the_rows_are_cut_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = both(tmp_path, FEW, monkeypatch)
    middle = statistics.median(attributes(first, "heuristics", "big.parquet")["r_chars"].to_pylist())
    again = "exact: off\nnear: off\nheuristics: off\nfilter: {mode: drop, rules: [{name: some, "
    again += f"attribute: heuristics.r_chars, max: {middle}}}]}}\n"
    parts, whole = both(tmp_path / "again", again, monkeypatch, first)
    before = len(kept(first, "big.parquet"))
    assert 0 < len(kept(parts, "big.parquet")) < before
    assert len(group_sizes(parts / "big.parquet")) > 1
    for operation in ("origin", "heuristics"):
        assert attributes(parts, operation, "big.parquet").equals(attributes(whole, operation, "big.parquet"))


def test_a_file_that_loses_no_row_is_copied_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = given(tmp_path)
    parts, _ = both(tmp_path, "exact: {mode: report}\nnear: off\n", monkeypatch, rows)
    assert (parts / "big.parquet").read_bytes() == (rows / "big.parquet").read_bytes()
    sizes = group_sizes(parts / "attributes" / "heuristics" / "big.parquet.parquet")
    assert sizes == [ROWS] * GROUPS


@pytest.mark.usefixtures("small_slices")
def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    rows = given(tmp_path)
    made = [tools.digests(curating.curate(tmp_path / str(count), rows, FEW, workers=count)) for count in (1, 3)]
    assert made[0] == made[1]


@pytest.mark.usefixtures("small_slices")
def test_a_dropped_row_of_one_slice_redoes_this_slice_and_the_joins(tmp_path: Path) -> None:
    rows = given(tmp_path)
    root = tmp_path / "root"
    curating.curate(root, rows, FEW)
    before = curating.shards(root)
    longer = FEW.replace("min: 3", "min: 2")  # those of the third slice stay now
    folder = curating.curate(root, rows, longer)
    new = curating.shards(root).keys() - before.keys()
    records = [tools.read_json(root / "curate" / "shards" / key / tools.RECORD) for key in new]
    made = Counter(path for record in records for path in (file["path"] for file in record["files"]))
    heuristics = "attributes/heuristics/big.parquet.parquet"
    # Of the rows and of the attributes one part and the whole; decisions of both files.
    assert {path: made[path] for path in ("big.parquet", heuristics, "removed", "small.parquet")} == {
        "big.parquet": 2,
        heuristics: 2,
        "removed": 2,
        "small.parquet": 0,
    }
    assert tools.digests(folder) == tools.digests(curating.curate(tmp_path / "other", rows, longer))
