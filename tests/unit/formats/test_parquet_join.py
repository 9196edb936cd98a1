"""Parquet files joined without decoding them: the bytes that one writer would have written."""

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.errors import InternalError
from pairmill.formats import parquet_join
from tests.unit.formats.test_parquet import FORMS, table, write

PLAIN = [form for form in FORMS if not form.get("write_page_index")]


def joined(folder: Path, parts: list[bytes]) -> bytes:
    uris = [str(folder / f"part-{number}") for number in range(len(parts))]
    for uri, part in zip(uris, parts, strict=True):
        Path(uri).write_bytes(part)
    target = str(folder / "joined")
    made = storage.store_for(target).join(target, parquet_join.join(uris))
    data = Path(target).read_bytes()
    assert (made.digest, made.size) == (digest_bytes(data), len(data))
    return data


@pytest.mark.parametrize("form", PLAIN, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_bytes_are_those_of_one_writer(tmp_path: Path, form: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    schema = table(rng, 1).schema
    parts = [[table(rng, rng.choice([1, 2, 50])) for _ in range(rng.choice([0, 1, 3, 20]))] for _ in range(5)]

    def written(groups: list[pa.Table]) -> bytes:
        return write(tmp_path / "a", *(groups or [schema.empty_table()]), **form) if groups else empty(schema, form)

    made = joined(tmp_path, [written(groups) for groups in parts])
    every = [group for groups in parts for group in groups]
    assert made == written(every)
    assert pq.read_table(io.BytesIO(made)).equals(pa.concat_tables([schema.empty_table(), *every]))


def empty(schema: pa.Schema, form: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pq.ParquetWriter(buffer, schema, **form).close()
    return buffer.getvalue()


def test_columns_in_lists_and_of_dictionaries_are_moved_too(tmp_path: Path) -> None:
    texts = pa.array([["a", "b"], None, [], ["c"]], pa.list_(pa.string()))
    codes = pa.array(["x", "y", "x", None]).dictionary_encode()
    groups = [pa.table({"texts": texts, "codes": codes}) for _ in range(3)]
    parts = [write(tmp_path / "part", group) for group in groups]
    assert joined(tmp_path, parts) == write(tmp_path / "whole", *groups)


def test_parts_of_other_columns_or_with_an_index_are_refused(tmp_path: Path) -> None:
    rng = random.Random(1)
    one = write(tmp_path / "a", table(rng, 3))
    other = write(tmp_path / "b", table(rng, 3).drop(["tag"]))
    with pytest.raises(InternalError, match="differ"):
        joined(tmp_path, [one, other])
    with pytest.raises(InternalError, match="index"):
        joined(tmp_path, [write(tmp_path / "c", table(rng, 3), write_page_index=True)])


def test_a_truncated_part_is_noticed(tmp_path: Path) -> None:
    data = write(tmp_path / "a", table(random.Random(1), 300))
    for wrong in (data[:-1], data[: len(data) // 2], data[-8:], b""):
        with pytest.raises(InternalError, match="truncated"):
            joined(tmp_path, [data, wrong])
