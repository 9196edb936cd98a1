"""Rows of the Hub, as ``datasets`` streams them, where files alone do not tell the rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.errors import InputError
from pairmill.formats import rows
from pairmill.net import hub
from pairmill.sources.origin import HubRows

_PART_BYTES = 128 << 20
_GROUP_BYTES = 16 << 20
_BATCH_ROWS = 1000
_HINT = "check name, config and split on the Hub; a gated data set needs HF_TOKEN"


def stream(
    origin: HubRows,
    commit: str,
    split: str,
    repository: hub.Repository,
    fields: Sequence[str],
    create: Callable[[str], AbstractContextManager[Path]],
    limit: int = 0,
) -> int:
    """Write the rows of a split, as ``datasets`` streams them, to Parquet files ``<split>-00000.parquet`` and so on.

    Returns the number of rows.

    Args:
        origin: the data set.
        commit: its revision.
        split: what to read.
        repository: it again, for messages.
        fields: columns that the source reads; empty = all.
        create: gives the local file for a name.
        limit: streaming stops after this many rows; 0 = at the end.

    Raises:
        InputError: ``datasets`` cannot read it, or made other texts of a field
            (:func:`pairmill.formats.rows.refuse_mixed`).
        StorageError: the Hub does not answer.
    """

    groups = _groups(origin, commit, split, repository, limit)
    group = next(groups, None)
    if group is None:
        raise InputError("contains no row", where=f"{origin.repo} {origin.config} {split}")
    schema = group.schema
    rows.refuse_mixed(schema, fields, f"{origin.repo} {origin.config} {split}")
    part = written = 0
    while group is not None:
        with create(f"{split}-{part:05}.parquet") as path, pq.ParquetWriter(path, schema) as writer:
            size = 0
            while group is not None and size < _PART_BYTES:
                try:
                    writer.write_table(group.cast(schema))
                except pa.ArrowException as error:
                    raise InputError(
                        "datasets cannot read it",
                        where=f"{origin.repo} {origin.config} {split}",
                        got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                        hint=_HINT,
                    ) from error
                size += group.nbytes
                written += len(group)
                group = next(groups, None)
        part += 1
    return written


def _groups(origin: HubRows, commit: str, split: str, repository: hub.Repository, limit: int) -> Iterator[pa.Table]:
    """Yield the rows of a split in tables large enough to be row groups."""
    waiting: list[pa.Table] = []
    where = f"{origin.repo} {origin.config} {split}"
    with hub.open_split(repository, origin.config, split, commit, where=where, hint=_HINT) as result:
        result = result.take(limit) if limit else result
        for table in result.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            waiting.append(table)
            if sum(item.nbytes for item in waiting) >= _GROUP_BYTES:
                yield pa.concat_tables(waiting, promote_options="permissive")
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")
