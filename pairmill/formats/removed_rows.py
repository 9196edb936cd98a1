"""Rows of token arrays that a policy takes out, one by one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pairmill import storage
from pairmill.engine import policing
from pairmill.engine.policing import Subject
from pairmill.engine.source_names import HELD_OUT
from pairmill.formats.tokens import Dataset, Ints


@dataclass(frozen=True)
class RemovedRows:
    """Rows of a task that are taken out.

    Args:
        task: of the tokenized folder.
        ordinals: of these rows in the task's row file, ascending.
    """

    task: Dataset
    ordinals: Sequence[int]

    def numbers(self) -> Ints:
        """Return the numbers of the rows in the task's arrays, int64, ascending."""
        ordinals = np.array(self.ordinals, np.int64)
        there = self.task.ordinals()
        return ordinals if there is None else np.flatnonzero(np.isin(there, ordinals)).astype(np.int64)

    def spans(self) -> dict[str, Ints]:
        """Return ``number`` and the four index arrays of the rows, int64."""
        numbers, first = self.numbers(), 0
        parts: list[dict[str, Ints]] = []
        for chunk in self.task.index():
            size = len(chunk["inst_len"])
            mine = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, first + size)]
            parts.append({"number": mine, **{name: values[mine - first] for name, values in chunk.items()}})
            first += size
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def removed_rows(tasks: Iterable[Dataset]) -> dict[str, RemovedRows]:
    """Return the rows that the policy in force takes out, by task.

    Raises:
        InputError: the row file that a task was made of was not searched for them.
    """
    result = {}
    for task in tasks if policing.is_in_force() else ():
        # Held-out rows of a task have its name in a folder of their own, and are never renamed.
        name = task.name if task.name.startswith(HELD_OUT) else task.own
        rows = policing.removed_rows(Subject.from_task(name, place=storage.parent_of(task.uri)))
        if rows:
            result[task.name] = RemovedRows(task, rows)
    return result
