"""Headers of pages and ordinals of row groups: what a Parquet file has and pyarrow does not show."""

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.formats import parquet

FORMS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "compression": "none"},
    {"compression": "zstd", "data_page_version": "2.0", "write_statistics": False, "data_page_size": 512},
    {"data_page_version": "2.0", "use_dictionary": ["tag"], "write_page_checksum": True, "write_page_index": True},
    {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}},
]


def table(rng: random.Random, rows: int) -> pa.Table:
    texts = ["".join(rng.choices("abé日😀 \n", k=rng.choice([0, 1, 8, 200, 2000]))) for _ in range(rows)]
    return pa.table(
        {
            "text": pa.array([None if rng.random() < 0.2 else text for text in texts], pa.large_string()),
            "tag": pa.array(rng.choices(["direct", "cot", "synth"], k=rows), pa.string()),
            "number": pa.array([rng.getrandbits(40) for _ in range(rows)], pa.int64()),
        }
    )


def write(path: Path, *groups: pa.Table, **form: Any) -> bytes:
    with pq.ParquetWriter(path, groups[0].schema, **form) as writer:
        for group in groups:
            writer.write_table(group)
    return path.read_bytes()


def found(data: bytes, chunk: Any) -> list[parquet.Page]:
    start = min(filter(None, (chunk.data_page_offset, chunk.dictionary_page_offset)))
    return list(parquet.pages(io.BytesIO(data), start, chunk.total_compressed_size, chunk.num_values))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_pages_add_up_to_their_chunk(tmp_path: Path, form: dict[str, Any]) -> None:
    data = write(tmp_path / "a", table(random.Random(1), 3000), **form)
    meta = pq.ParquetFile(tmp_path / "a").metadata.row_group(0)
    looked = 0
    for number in range(meta.num_columns):
        chunk = meta.column(number)
        pages = found(data, chunk)
        assert sum(page.values for page in pages if not page.dictionary) == chunk.num_values
        assert any(page.dictionary for page in pages) == chunk.has_dictionary_page
        headers = chunk.total_compressed_size - sum(page.stored for page in pages)
        assert sum(page.size for page in pages) + headers == chunk.total_uncompressed_size
        looked += len(pages)
    assert looked > meta.num_columns or form.get("use_dictionary") is False


@pytest.mark.parametrize("seed", range(4))
def test_damaged_headers_end_the_pages(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(write(tmp_path / "a", table(rng, 300), **FORMS[seed]))
    chunk = pq.ParquetFile(tmp_path / "a").metadata.row_group(0).column(0)
    good = found(bytes(data), chunk)
    fewer = 0
    for _ in range(300):
        damaged = data.copy()
        for _ in range(rng.choice([1, 2, 20])):
            damaged[rng.randrange(4, good[0].start + 4)] = rng.choice([0x19, 0x1C, 0xFF, rng.randrange(256)])
        fewer += found(bytes(damaged), chunk) != good
    nested = b"\x1c" * 5000
    assert not list(parquet.pages(io.BytesIO(nested), 0, len(nested), 1))
    assert fewer > 10


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_row_groups_are_numbered_and_read_as_before(
    tmp_path: Path, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(2)
    groups = [table(rng, rows) for rows in (5, 0, 100, *[1] * 80)]
    before = write(tmp_path / "a", *groups, **form)
    monkeypatch.setattr(parquet, "_MAX_ORDINALS", 75)  # the field is an i16: later row groups have none
    parquet.number_row_groups(tmp_path / "a")
    after = (tmp_path / "a").read_bytes()
    footer = parquet.Compact(after[-8 - int.from_bytes(after[-8:-4], "little") : -8]).struct()
    assert [group.get(7) for group in footer[4]] == [*range(75), *[None] * 8]
    # Ordinals from 64 on take two bytes.
    assert len(after) - len(before) == 2 * 75 + 11
    assert pq.read_table(tmp_path / "a", use_threads=False).equals(pa.concat_tables(groups))
