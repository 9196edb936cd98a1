"""The decisions on a task, as the shard reads them that applies them."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill import _native
from pairmill.engine.runs import Range, read_all
from pairmill.formats import decisions
from pairmill.stages.curate.near.records import DECISION


@dataclass(frozen=True)
class Decided:
    """Decisions of one group on one slice.

    Args:
        found: DECISION rows.
        tasks: the names of the tasks of the other rows.
        first: the ordinal of the slice's first row.
    """

    found: Range
    tasks: Range
    first: int


@dataclass(frozen=True)
class DecidedTask:
    """All decisions on a task: ``operation.Decisions``.

    Args:
        key: identity of the decisions.
        parts: by slice and group.
    """

    key: str
    parts: tuple[Decided, ...]

    def identify(self) -> object:
        """Return what the table follows from."""
        return self.key

    def read(self) -> pa.Table:
        """Read the table, by ordinal."""
        rules = _native.curate_near_rules()
        if not self.parts:
            return decisions.empty()
        names: dict[str, int] = {}
        blocks = []
        firsts = []
        ranges = [item for part in self.parts for item in (part.found, part.tasks)]
        data = list(read_all(ranges))
        for part, raw, tasks in zip(self.parts, data[::2], data[1::2], strict=True):
            result = np.frombuffer(raw, DECISION).copy()
            places = np.array([names.setdefault(task, len(names)) for task in json.loads(tasks)], np.uint32)
            result["other_task"] = places[result["other_task"]]
            blocks.append(result)
            firsts.append(np.full(len(result), part.first, np.int64))
        result, ordinal = np.concatenate(blocks), np.concatenate(firsts)
        ordinal += result["row"]
        # The files name tasks of other rows too, in the order of the slices, which depend on how files are cut.
        used = sorted(list(names)[place] for place in np.unique(result["other_task"]).tolist())
        by_name = np.zeros(len(names), np.uint32)
        by_name[[names[name] for name in used]] = np.arange(len(used))
        order = np.lexsort((result["other_ordinal"], by_name[result["other_task"]], result["rule"], ordinal))
        result, ordinal = result[order], ordinal[order]
        contained = result["rule"] == rules.index("contained")
        return decisions.table_of(
            {
                "ordinal": pa.array(ordinal.astype(np.uint32)),
                "rule": _named(result["rule"], rules),
                "action": _named(contained, ["drop", "report"]),
                "other_task": _named(by_name[result["other_task"]], used),
                "other_ordinal": pa.array(np.ascontiguousarray(result["other_ordinal"])),
                "score_i": pa.array(np.ascontiguousarray(result["score_i"])),
                "score_r": pa.array(np.ascontiguousarray(result["score_r"])),
            },
            len(result),
        )


def _named(places: np.ndarray, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), pa.array(names, pa.string()))
