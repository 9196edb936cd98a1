"""The records of files between rounds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.runs import Range

KEYS = "keys.bin"
KEY = np.dtype([("key", "<u8"), ("at", "<u4")])
"""A band key, and the place of its row among the signed rows of the slice."""
KEY_OF_LONGEST = np.dtype([*KEY.descr, ("tokens", "<u4")])
"""As above, with the tokens of the row's response, which decide its rank."""
ROW = np.dtype([("row", "<u4"), ("size", "<u4"), ("tokens", "<u4")])
"""A signed row: its number in the slice, bytes of its sketch, tokens of its response."""
EDGE = np.dtype([("low", "<u8"), ("high", "<u8")])
"""Two ranks."""
MEMBER = np.dtype([("at", "<u4"), ("group", "<u4")])
"""A row of a component: its place among the signed rows of its slice, and its group."""
GATHERED = np.dtype([("number", "<u8"), ("row", "<u4"), ("size", "<u4"), ("tokens", "<u4"), ("", "<u4")])
"""A row of a group: its number of all rows, its number in its slice, bytes of its sketch, tokens of its response."""
DECISION = np.dtype(
    [
        ("row", "<u4"),
        ("other_task", "<u4"),
        ("other_ordinal", "<u4"),
        ("rule", "<u4"),
        ("score_i", "<f4"),
        ("score_r", "<f4"),
        ("place", "<u4"),
    ]
)
"""A finding, by slice: the row's number in its slice; the other row's task (its place in TASKS) and ordinal; the
rule; the place of the row's slice."""
_ROWS = 1 << 20


def located(table: Range, places: NDArray[np.integer[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the ROWs at these places, ascending, of a slice's table, and where their sketches begin, int64 [n]."""
    rows, starts = np.empty(len(places), ROW), np.empty(len(places), np.int64)
    before = first = 0
    for number, data in enumerate(table.blocks(_ROWS * ROW.itemsize)):
        block = np.frombuffer(data, ROW)
        stop = int(np.searchsorted(places, (number + 1) * _ROWS))
        some = places[first:stop] - np.uint32(number * _ROWS)
        ends = np.cumsum(block["size"], dtype=np.int64)
        rows[first:stop] = block.take(some)
        starts[first:stop] = before + ends[some] - rows["size"][first:stop]
        before, first = before + int(ends[-1]), stop
    return rows, starts
