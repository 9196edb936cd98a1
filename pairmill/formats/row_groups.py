"""Single rows of a Parquet file by ordinal or by a value, of which only the row groups that hold them are decoded."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.formats.parquet_reader import open_parquet


class RowGroups:
    """An open Parquet file. Use as a context manager.

    Raises:
        InputError: it is not one, or damaged.
    """

    def __init__(self, uri: str) -> None:
        self._stack = ExitStack()
        self._file: Any = self._stack.enter_context(open_parquet(uri))
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._starts: NDArray[np.int64] = np.cumsum([0, *sizes], dtype=np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        names: list[str] = self._file.schema_arrow.names
        return names

    def holding(self, ordinal: int) -> tuple[int, int]:
        """Return the number of the row group that has a row, and the ordinal of that group's first row."""
        group = min(int(np.searchsorted(self._starts, ordinal, "right")), len(self._starts) - 1) - 1
        return group, int(self._starts[group])

    def take(self, ordinals: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows with these ordinals, in the order of them; each is below ``len``.

        Args:
            ordinals: int64 [rows].
            columns: by name.
        """
        groups = np.searchsorted(self._starts, ordinals, "right") - 1
        order = np.argsort(groups, kind="stable")
        parts = [self._table(0, columns).slice(0, 0)] if len(self._starts) > 1 else []
        for group in np.unique(groups).tolist():
            mine = ordinals[groups == group] - self._starts[group]
            parts.append(self._table(group, columns).take(pa.array(mine)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return (
            pa.concat_tables(parts).unify_dictionaries().take(pa.array(back))
            if parts
            else self._file.schema_arrow.empty_table()
        )

    def column(self, name: str, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an integer column of the rows with these ordinals, int64 [rows]."""
        values: NDArray[np.int64] = self.take(ordinals, [name])[name].to_numpy().astype(np.int64)
        return values

    def find(self, name: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ordinals of the rows that have one of ``values`` in an integer column, ascending; int64 [rows]."""
        parts = [np.empty(0, np.int64)]
        for group in self._holding(name, np.unique(values)):
            column = self._table(group, [name])[name].to_numpy()
            parts.append(self._starts[group] + np.flatnonzero(np.isin(column, values)))
        return np.concatenate(parts)

    def _holding(self, name: str, values: NDArray[np.int64]) -> Iterator[int]:
        """Yield the row groups whose statistics let a column have one of some values, which ascend."""
        for group in range(len(self._starts) - 1):
            bounds = self._bounds(group, name)
            if bounds is None or np.searchsorted(values, bounds[0]) < np.searchsorted(values, bounds[1], "right"):
                yield group

    def _bounds(self, group: int, name: str) -> tuple[Any, Any] | None:
        """Return the least and the greatest value of a column in a row group, if the file says them."""
        number = self._file.schema_arrow.names.index(name)
        statistics = self._file.metadata.row_group(group).column(number).statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None

    def _table(self, group: int, columns: Iterable[str]) -> pa.Table:
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)
