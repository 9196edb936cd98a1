"""Rows of benchmarks: local files and buckets (.jsonl, .parquet), or a commit of a data set of the Hub."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill import storage
from pairmill.errors import InputError
from pairmill.evaluation.benchmarks.base import Base
from pairmill.evaluation.benchmarks.question import Need, Row
from pairmill.formats import jsonstream
from pairmill.net import hub
from pairmill.sources.files.card import hub_split

_READ: Final = (".jsonl", ".parquet")


def load(benchmark: Base, place: str = "", revision: str = "") -> dict[str, list[Row]]:
    """Return the rows of the splits that a benchmark needs.

    Args:
        benchmark: whose rows.
        place: a file with the questions; a folder of files that are named after their splits (``test.jsonl``,
            ``data/test-00000-of-00001.parquet``); with a revision the name of a data set of the Hub; empty = the
            benchmark's own there.
        revision: its commit, branch or tag; give a commit, or the rows change with the branch.

    Raises:
        InputError: no such place, a split without files, a file that cannot be read, no rows, or a missing column: it
            names the benchmark, the column and those that there are.
        StorageError: the Hub or the storage does not answer.
    """
    made = {}
    for need in benchmark.needs:
        if revision or not place:
            rows = _of_hub(benchmark, need, place or benchmark.source, revision or "main")
        else:
            rows = _of_files(benchmark, need, storage.normalise(place, f"data of {benchmark.name}"))
        if rows is not None:
            made[need.split] = list(_checked(benchmark, need, rows))
    return made


def _checked(benchmark: Base, need: Need, rows: Iterator[Row]) -> Iterator[Row]:
    where, count = f"benchmark {benchmark.name}, {need.split}", 0
    for row in islice(rows, need.first or None):
        missing = [column for column in need.columns if column not in row]
        if missing:
            raise InputError(
                f"the benchmark {benchmark.name} has no column {missing[0]!r}",
                where=f"{where}, row {count}",
                got=", ".join(map(str, row)) or "no columns",
                expected=", ".join(need.columns),
                hint="rename the column, or name the data set that the benchmark is made from",
            )
        count += 1
        yield row
    if not count and not need.optional:
        raise InputError(f"the benchmark {benchmark.name} has no rows", where=where, expected="at least one")


def _of_files(benchmark: Base, need: Need, place: str) -> Iterator[Row] | None:
    store = storage.store_for(place)
    if store.exists(place):
        # One file is the questions; what else is needed is beside it or nowhere.
        if need.split == benchmark.needs[0].split:
            return _read(place)
        if need.optional:
            return None
        raise _no_split(benchmark, need, place, storage.name_of(place), "give a folder with a file for each split")
    paths = sorted(entry.path for entry in store.list(place))
    paths = [path for path in paths if path.endswith(_READ) and not path.startswith((".", "_"))]
    result: list[str] = []
    for config in benchmark.configs:
        result += [path for path in hub_split(paths, "", need.split, config) if path not in result]
    result = result or list(hub_split(paths, "", need.split))
    if not result:
        if need.optional:
            return None
        hint = f"name a file {need.split}.jsonl or {need.split}.parquet" if paths else "check the path"
        raise _no_split(benchmark, need, place, ", ".join(paths[:5]), hint)
    return (row for path in result for row in _read(storage.join(place, *path.split("/"))))


def _no_split(benchmark: Base, need: Need, place: str, got: str, hint: str) -> InputError:
    return InputError(
        f"no rows of the split {need.split!r} of the benchmark {benchmark.name}",
        where=place,
        got=got or "no .jsonl or .parquet file",
        expected=f"a file that is named after the split {need.split}",
        hint=hint,
    )


def _read(uri: str) -> Iterator[Row]:
    if uri.endswith(".jsonl"):
        yield from _lines(uri)
    elif uri.endswith(".parquet"):
        yield from _parquet(uri)
    else:
        raise InputError("no reader for this file", where=uri, expected=" or ".join(_READ))


def _lines(uri: str) -> Iterator[Row]:
    for number, line in jsonstream.lines(uri):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError("not valid JSON", where=f"{uri}, line {number}", got=str(error)) from error
        if not isinstance(row, dict):
            raise InputError("not an object", where=f"{uri}, line {number}", got=type(row).__name__)
        yield row


def _parquet(uri: str) -> Iterator[Row]:

    with storage.store_for(uri).open(uri) as file:
        try:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=1024):
                yield from batch.to_pylist()
        except pa.ArrowException as error:
            raise InputError("not a valid Parquet file", where=uri, got=" ".join(str(error).split())[:300]) from error


def _of_hub(benchmark: Base, need: Need, name: str, revision: str) -> Iterator[Row] | None:
    if need.optional and need.split == "shots":
        return None  # no data set of the Hub has them
    return _streamed(name, benchmark.configs if name == benchmark.source else ("default",), need, revision)


def _streamed(name: str, configs: Sequence[str], need: Need, revision: str) -> Iterator[Row]:
    repository = hub.Repository(name, "dataset", "write an existing commit, branch or tag after @")
    hint = "check the name and the commit; a gated data set needs HF_TOKEN"
    for config in configs:
        where = f"{name} {config} {need.split} at {revision}"
        with hub.open_split(repository, config, need.split, revision, where=where, hint=hint) as result:
            yield from result
