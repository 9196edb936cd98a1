"""Which source a row of a sampled folder is of, found by where its tokens are. Pure but for the index that it maps.

A folder that pairmill sampled has the tokens of one task after those of another, and its manifest says how many each
has. So the source of a row follows from its first token, by one binary search. A folder of another sampler says
nothing: it is one source.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.engine.source_names import source_of
from pairmill.formats.results.sample import SampleResult
from pairmill.loader.arrays import map_array
from pairmill.loader.folder import SampledFolder

Ints = NDArray[np.int64]

MOST = 48
"""Sources that are told apart; of more, the smallest are together one."""
OTHERS = "others"


class _Folder(NamedTuple):
    """Where the tokens of each of a folder's tasks end, ascending, and the number of the source of each."""

    path: Path
    ends: Ints
    numbers: Ints


class RowSources:
    """The sources of the rows of a plan.

    Args:
        folders: of the plan, in its order.
        titles: what a folder is called that does not say its tasks.

    Attributes:
        names: of the sources, sorted.
    """

    def __init__(self, folders: Sequence[SampledFolder], titles: Sequence[str]) -> None:
        result = [list(_tasks(folder, title)) for folder, title in zip(folders, titles, strict=True)]
        sizes: dict[str, int] = {}
        for source, size in (task for tasks in result for task in tasks):
            sizes[source] = sizes.get(source, 0) + size
        together = merged(sizes)
        self.names = tuple(sorted(set(together.values())))
        numbers = {name: number for number, name in enumerate(self.names)}
        self._folders = [
            _Folder(
                folder.path,
                np.fromiter(accumulate(size for _, size in tasks), np.int64, len(tasks)),
                np.array([numbers[together[source]] for source, _ in tasks], np.int64),
            )
            for folder, tasks in zip(folders, result, strict=True)
        ]
        self._starts: dict[tuple[int, int], NDArray[Any]] = {}

    def find(self, rows: Ints) -> Ints:
        """Find the source of each row.

        Args:
            rows: int64 [rows, 3]: number of the folder, epoch, row in it (:attr:`pairmill.loader.Batch.rows`).

        Returns:
            numbers in :attr:`names`, int64 [rows].
        """
        out = np.empty(len(rows), np.int64)
        for folder, epoch in np.unique(rows[:, :2], axis=0).tolist():
            mine = (rows[:, 0] == folder) & (rows[:, 1] == epoch)
            tasks = self._folders[folder]
            if len(tasks.ends) == 1:
                out[mine] = tasks.numbers[0]
                continue
            if (folder, epoch) not in self._starts:
                self._starts[folder, epoch] = map_array(tasks.path / f"epoch_{epoch}" / "inst_start.npy")
            first = self._starts[folder, epoch][rows[mine, 2]]
            out[mine] = tasks.numbers[np.searchsorted(tasks.ends, first, side="right")]
        return out


def merged(sizes: Mapping[str, int]) -> dict[str, str]:
    """Name each source: of more than :data:`MOST` the smallest are together one."""
    if len(sizes) <= MOST:
        return {name: name for name in sizes}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[: MOST - 1]
    return {name: name if name in largest else OTHERS for name in sizes}


def _tasks(folder: SampledFolder, title: str) -> Iterator[tuple[str, int]]:
    """Yield the source of each task, and how many of the folder's tokens are its own, in their order."""
    manifest = manifests.read(str(folder.path))
    result = [] if manifest is None else _sizes(manifest)
    if result and sum(size for _, size in result) == folder.token_count:
        yield from result
    else:
        yield title, folder.token_count


def _sizes(manifest: Manifest) -> list[tuple[str, int]]:
    result = SampleResult.find(manifest)
    if result is None:
        return []
    of_task = result.source_of_task
    return [(of_task.get(name) or source_of(name), size) for name, size in result.sizes()]
