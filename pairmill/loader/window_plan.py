"""What plans over windows have in common: arrays of samples, dealt to ranks in turn; they never end."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.loader.batch import DATASET_IDX
from pairmill.loader.plan import Phase, TrainingPlan, World, checked_phases


class WindowPlan(TrainingPlan):
    """A global batch is ``batch_tokens / seq_len`` samples; sample k goes to rank k mod n.

    Args:
        names: of the sources.
        phases: None = one phase.
        seq_len: slots of a window.
        fields: names of a window's arrays.
    """

    def __init__(
        self, names: Sequence[str], phases: Sequence[Phase] | None, seq_len: int, fields: Sequence[str]
    ) -> None:
        self.names = tuple(names)
        self.phases = checked_phases([Phase()] if phases is None else phases, self.names)
        for number, phase in enumerate(self.phases):
            if phase.epoch:
                where, expected = f"phases[{number}]: epoch", "step or tokens: only folders of rows have epochs"
                raise UsageError("no such start", where=where, got=str(phase.epoch), expected=expected)
        self.seq_len, self._fields = seq_len, tuple(fields)

    @cached_property
    def digest(self) -> str:
        return content_key(*self._content())

    @abstractmethod
    def _content(self) -> tuple[object, ...]:
        """Return what the digest is of: JSON-like values."""

    def check(self, world: World) -> None:
        if world.slots % self.seq_len:
            raise UsageError(
                "not a whole number of windows",
                where="batch_tokens",
                got=f"{world.batch_tokens:,} tokens for {world.ranks} ranks",
                expected=f"a multiple of {world.ranks * self.seq_len:,}: a sample of seq_len={self.seq_len:,} per rank",
            )

    def size(self, world: World) -> int:
        slots_and_idx = len(self._fields) * self.seq_len + 1
        return slots_and_idx * (world.slots // self.seq_len) * np.dtype(np.int64).itemsize

    def arrays(self, memory: NDArray[np.uint8], samples: int) -> dict[str, NDArray[np.int64]]:
        """Return the arrays of a batch in its memory: int64 [samples, seq_len] for each field, ``dataset_idx``
        [samples]."""
        size = samples * self.seq_len
        *windows, last = np.split(memory.view(np.int64), [size * (n + 1) for n in range(len(self._fields))])
        fields = zip(self._fields, windows, strict=True)
        return {**{name: array.reshape(samples, self.seq_len) for name, array in fields}, DATASET_IDX: last}
