"""Means of attributes before and after rows are dropped, by source: what a page over several stages compares.

A value counts as a whole number of ``UNIT``, so that sums do not depend on how a task was cut.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pairmill import arrow_compute as pc
from pairmill.engine.source_names import source_of

MEANS: Final = "means"
"""The key in records of shards and in manifests."""
UNIT: Final = 2.0**-30
_LARGE: Final = 2.0**32
"""From here on a value in units does not fit into 64 bits."""
_YEAR: Final = 365.2425 * 86_400e6
"""Microseconds."""


class Means:
    """Sums over the rows of a task."""

    def __init__(self, task: str) -> None:
        self._source = source_of(task)
        self._sums: dict[str, list[int]] = {}

    def add(self, operation: str, rows: pa.RecordBatch, kept: pa.RecordBatch) -> None:
        """Count some rows, and those of them that are kept; numbers, truth values and dates (as years) have a mean."""
        for name in rows.schema.names:
            if (mine := _count(rows.column(name))) is None:
                continue
            sums = self._sums.setdefault(f"{operation}.{name}", [0, 0, 0, 0])
            for at, part in enumerate((*mine, *(_count(kept.column(name)) or (0, 0)))):
                sums[at] += part

    def data(self) -> dict[str, Any]:
        """Return what the record of a shard says."""
        return {"source": self._source, "attributes": dict(sorted(self._sums.items()))}


def joined(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return what the manifest says, of the data of records: by attribute and source four numbers.

    They are the rows that have a value, the sum of it, and the same of the kept rows. Any order gives the same.
    """
    result: dict[str, dict[str, list[int]]] = {}
    for data in records:
        item = data.get(MEANS) or {"attributes": {}}
        for name, sums in item["attributes"].items():
            total = result.setdefault(name, {}).setdefault(item["source"], [0, 0, 0, 0])
            for at, part in enumerate(sums):
                total[at] += part
    units = round(1 / UNIT)
    return {
        name: {
            source: [rows, value / units, kept, kept_value / units]
            for source, (rows, value, kept, kept_value) in sorted(sources.items())
        }
        for name, sources in sorted(result.items())
    }


def _count(column: pa.Array) -> tuple[int, int] | None:
    """Return rows with a finite value, and its sum in units; None if the type has no mean."""
    if pa.types.is_timestamp(column.type):
        values = 1970 + pc.cast(column, pa.int64()).drop_null().to_numpy() / _YEAR
    elif pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = pc.cast(column.drop_null(), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        return None
    values = values[np.isfinite(values)]
    large = np.abs(values) >= _LARGE
    units = np.rint(values[~large] / UNIT).astype(np.int64)
    # In two parts, neither of which overflows.
    total = (int((units >> 20).sum()) << 20) + int((units & 0xFFFFF).sum())
    return len(values), total + sum(int(value) * round(1 / UNIT) for value in values[large].tolist())
