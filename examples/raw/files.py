"""The kinds of files that raw data comes in, written a row at a time. The same rows give the same bytes."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Source = Callable[[Path, random.Random, int], None]
"""Writes a source below a folder, with a generator of random numbers and a scale."""
Row = Callable[[random.Random, int], dict[str, Any]]

_LARGEST_GROUP = 10_000


def card(folder: Path, repository: str, configs: Mapping[str, Mapping[str, str]]) -> None:
    """Write a data set card: per config the pattern of each split's files."""
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, pattern in splits.items():
            lines += [f"  - split: {split}", f"    path: {pattern}"]
    lines += ["---", f"# Generated example in the format of {repository}; not the published data set", ""]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def splits(*names: str, folder: str = "data") -> dict[str, str]:
    """Return the usual patterns of splits of Parquet."""
    return {name: f"{folder}/{name}-*" for name in names}


def part(folder: Path, split: str) -> Path:
    """Return the one file of a split."""
    return folder / f"{split}-00000-of-00001.parquet"


def on_the_hub(
    repository: str,
    rows: Mapping[str, int],
    types: Mapping[str, Any] | None = None,
    *,
    fixed: Mapping[str, int] | None = None,
    config: str = "default",
    folder: str = "data",
    group: int = 0,
) -> Callable[[Row], Source]:
    """Make a source of a function of a generator and a number, which returns that row: a card, and Parquet by split.

    Args:
        repository: that the card names.
        rows: of each split, times the scale.
        types: Arrow types of columns that are not text.
        fixed: rows of splits that do not grow with the scale.
        config: the one of the card.
        folder: of the files.
        group: rows of a row group, times the scale; 0 = as `parquet` chooses.
    """

    def source(row: Row) -> Source:
        def write(below: Path, rng: random.Random, scale: int) -> None:
            counts = {split: count * scale for split, count in rows.items()} | dict(fixed or {})
            card(below, repository, {config: splits(*counts, folder=folder)})
            for split, count in counts.items():
                made = (row(rng, number) for number in range(count))
                parquet(part(below / folder, split), made, count, types, group=group * scale)

        return write

    return source


def parquet(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    count: int,
    types: Mapping[str, Any] | None = None,
    *,
    group: int = 0,
) -> None:
    """Write rows with the same keys.

    Args:
        path: of the file.
        rows: the rows.
        count: how many there are.
        types: Arrow types of columns that are not text.
        group: rows of a row group; 0 = a third of them, but no more than 10,000.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = _blocks(rows, group or min(-(-count // 3), _LARGEST_GROUP))
    first = next(blocks)
    schema = pa.schema([(name, (types or {}).get(name, pa.string())) for name in first[0]])
    with pq.ParquetWriter(path, schema) as writer:
        for block in itertools.chain([first], blocks):
            writer.write_table(pa.Table.from_pylist(block, schema))


def _blocks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rows = iter(rows)
    while block := list(itertools.islice(rows, size)):
        yield block


def json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write an object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def json_array(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one array of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows), indent=1, ensure_ascii=False), encoding="utf-8")


def tar_gz(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write an archive of files, as they come; a name that ends in ``/`` is a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file,
        tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
