"""Rows or windows to evaluate on: each once, or a fixed part of them; the same ones for any run and any ranks.

They are packed here and not by the loader: an evaluation has no position, drops no row at its end, and takes a part of
the rows that does not depend on their order. A batch does not depend on the number of ranks; batch i goes to rank
i mod n, and every rank has as many, because the ranks of a sharded net compute together.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill._native import mixture_samples
from pairmill.engine.manifest import content_key, seed_from
from pairmill.errors import UsageError
from pairmill.formats.tokens import INDEX
from pairmill.loader import Windows
from pairmill.loader.arrays import map_array
from pairmill.loader.batch import DATASET_IDX, IGNORED, PREFIXLM, SCALARS
from pairmill.loader.folder import SampledFolder
from pairmill.loader.sources import Ints, RowSources

_KEY = seed_from("train", "held out")
"""Of the order in which rows are chosen: not the run's seed, so that runs are compared on the same rows."""


def choose_rows(size: int, count: int) -> Ints:
    """Return the first of a fixed permutation of ``size`` numbers, int64 [min(count, size)]."""
    return mixture_samples(_KEY, size, np.arange(min(count, size), dtype=np.uint64))


class Filled(NamedTuple):
    """A batch in memory.

    Attributes:
        arrays: as a batch of the loader has them.
        scalars: of rows.
        source: number of the source of each of its rows or windows.
    """

    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, int]
    source: Ints


class HeldOut(ABC):
    """What to evaluate on.

    Attributes:
        sources: names, in the order of the numbers in ``Microbatch.sources``.
        longest: inputs of the longest row, or of a window.
    """

    sources: tuple[str, ...]
    longest: int

    @property
    @abstractmethod
    def digest(self) -> str:
        """Hexadecimal sha256."""

    @abstractmethod
    def __len__(self) -> int:
        """Count rows or windows."""

    @abstractmethod
    def _shares(self, numbers: Ints, slots: int) -> Sequence[Ints]:
        """Deal rows or windows to batches."""

    @abstractmethod
    def _fill(self, numbers: Ints, slots: int) -> Filled:
        """Fill a batch with these."""

    def batches(self, rows: int, slots: int, rank: int = 0, ranks: int = 1) -> Iterator[Filled]:
        """Yield the batches of a rank.

        Args:
            rows: how many at most, always the same; 0 = all.
            slots: of a batch; more if the longest row needs them.
        """
        numbers = np.sort(choose_rows(len(self), rows or len(self)))
        slots = max(slots, self.longest)
        shares = self._shares(numbers, slots)
        for turn in range(0, len(shares), ranks):
            mine = turn + rank
            filled = self._fill(shares[mine if mine < len(shares) else 0], slots)
            if mine >= len(shares):  # it takes part, and counts nothing
                filled.arrays["labels"].fill(IGNORED)
            yield filled


class HeldOutRows(HeldOut):
    """The rows of a held-out sampled folder, which has one epoch.

    Args:
        folder: opened.
        rows: says their sources.
        target_only: only responses count.
    """

    def __init__(self, folder: SampledFolder, rows: RowSources, *, target_only: bool) -> None:
        if len(folder.epochs) > 1:
            raise UsageError(
                "a folder to train on, not one of held-out rows",
                where="held_out",
                got=f"{folder.path}: {len(folder.epochs)} epochs",
                expected="one epoch: each row once, as sample makes it with held_out=true",
            )
        self.folder, self.sources, self._sources, self._target_only = folder, rows.names, rows, target_only
        self.longest = folder.surveys[0].longest[0]

    @property
    def digest(self) -> str:
        return self.folder.digest

    def __len__(self) -> int:
        return self.folder.epochs[0].rows

    @cached_property
    def _index(self) -> list[NDArray[Any]]:
        return [map_array(self.folder.epochs[0].folder / f"{name}.npy") for name in INDEX]

    def _shares(self, numbers: Ints, slots: int) -> Sequence[Ints]:
        _, inst, _, resp = (column[numbers].astype(np.int64) for column in self._index)
        edges, room = [], slots
        for at, inputs in enumerate((inst + resp - 1).tolist()):
            if inputs > room:
                edges.append(at)
                room = slots
            room -= inputs
        return np.split(numbers, edges)

    def _fill(self, numbers: Ints, slots: int) -> Filled:
        window = np.column_stack([numbers, *(column[numbers].astype(np.int64) for column in self._index)])
        out = np.empty((len(PREFIXLM), slots), np.int32)
        places = np.arange(len(numbers), dtype=np.uint32)
        sizes = self.folder.fill(np.ascontiguousarray(window), places, self._target_only, out)
        rows = np.column_stack([np.zeros((len(numbers), 2), np.int64), numbers])
        arrays = dict(zip(PREFIXLM, out, strict=True))
        return Filled(arrays, dict(zip(SCALARS, sizes, strict=True)), self._sources.find(rows))


class HeldOutWindows(HeldOut):
    """Windows of several sources, one after another.

    Args:
        windows: of each source.
        across: documents of a window see each other, as KempnerForge evaluates.
    """

    def __init__(self, windows: Sequence[Windows], *, across: bool = False) -> None:
        self._windows, self._across = list(windows), across
        self.sources = tuple(item.name for item in windows)
        self.longest = windows[0].seq_len
        self._ends = np.cumsum([len(item) for item in windows])

    @cached_property
    def digest(self) -> str:
        return content_key("held-out windows", [item.digest for item in self._windows])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _shares(self, numbers: Ints, slots: int) -> Sequence[Ints]:
        count = slots // self.longest
        return np.split(numbers, range(count, len(numbers), count))

    def _fill(self, numbers: Ints, slots: int) -> Filled:
        sources = np.searchsorted(self._ends, numbers, side="right")
        arrays: dict[str, NDArray[Any]] = self._windows[0].empty(len(numbers))
        for source in np.unique(sources).tolist():
            mine = np.flatnonzero(sources == source)
            part = {name: np.empty((len(mine), self.longest), np.int64) for name in arrays}
            first = int(self._ends[source - 1]) if source else 0
            self._windows[source].fill(numbers[mine] - first, part)
            for name, array in part.items():
                arrays[name][mine] = array
        if self._across:
            arrays.pop("doc_ids", None)
        return Filled({**arrays, DATASET_IDX: sources}, {}, sources)
