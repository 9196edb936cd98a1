"""The tasks whose tokens lie in a sampled folder, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import log, storage
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError
from pairmill.formats.opened import RangedTokens
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.tokens import Array, Dataset

_TOKENS: Final = "tokens.npy"
_PROBE: Final = 16
_EPOCH: Final = "epoch_"


@dataclass(frozen=True)
class Spans:
    """The tokens of each task in a sampled folder.

    Attributes:
        names: of the tasks, in the order of their tokens.
        ends: after the last token of each; int64 [tasks].
        manifest: of a folder of pairmill's sampler; None of others.
        tasks: of a folder of others, the tokenized data sets.
    """

    uri: str
    names: Sequence[str]
    ends: NDArray[np.int64]
    manifest: Manifest | None = None
    tasks: Sequence[Dataset] = ()

    @classmethod
    def of_ours(cls, uri: str, manifest: Manifest) -> Spans:
        """Return the spans that the manifest of a folder says."""
        result = SampleResult.from_manifest(manifest)
        sizes = [(item["name"], item["length"]) for item in result.sources]
        if result.layout == "compact":
            sizes = [*result.sizes()]
        return cls(uri, [name for name, _ in sizes], np.cumsum([size for _, size in sizes], dtype=np.int64), manifest)

    @classmethod
    def of_data_io(cls, uri: str, tasks: Sequence[Dataset], where: str) -> Spans:
        """Return the spans of a folder of data_io's sampler, which has every token of every task, sorted by name.

        Raises:
            InputError: the tokenized folder has not as many tokens as the sampled one.
        """
        ends = np.cumsum([task.counts[1] for task in tasks], dtype=np.int64)
        have = Array.open(storage.join(uri, _TOKENS)).length
        if have != int(ends[-1]):
            raise InputError(
                "the folder was not sampled from these tasks",
                where=f"path={uri}",
                got=f"{have:,} tokens",
                expected=f"{int(ends[-1]):,}, the tokens of the {len(tasks):,} tasks of {where}",
                hint="give the folder as it was then; tasks= names some of its tasks",
            )
        return cls(uri, [task.name for task in tasks], ends, tasks=tasks)

    @property
    def firsts(self) -> NDArray[np.int64]:
        """The first token of each task; int64 [tasks]."""
        return self.ends - np.diff(self.ends, prepend=0)

    def probe(self, count: int) -> int:
        """Compare tokens at ``count`` places of each task with the tokenized folder; return how many were compared.

        Raises:
            InputError: they differ.
        """
        sampled, compared = RangedTokens([Array.open(storage.join(self.uri, _TOKENS))]), 0
        for task, first, end in zip(self.tasks, self.firsts.tolist(), self.ends.tolist(), strict=True):
            tokens = RangedTokens([task.array()])
            last = max(0, end - first - _PROBE)
            for place in sorted({round(last * number / max(1, count - 1)) for number in range(count)}):
                theirs = tokens[place : place + _PROBE]
                ours = sampled[first + place : first + place + len(theirs)]
                if not np.array_equal(ours, theirs):
                    raise InputError(
                        "the folder was not sampled from these tasks",
                        where=f"path={self.uri}: token {first + place:,}",
                        got=str(ours[:4].tolist()),
                        expected=f"{theirs[:4].tolist()}, as {task.name} has from token {place:,} on",
                        hint="give the folder as it was then, with the same tasks and names",
                    )
                compared += len(theirs)
        return compared

    @cached_property
    def epochs(self) -> list[int]:
        """The numbers of the epochs that the folder has, which need not begin at 0."""
        numbers = [int(name.removeprefix(_EPOCH)) for name in self._folders if name.removeprefix(_EPOCH).isdecimal()]
        if not numbers:
            raise InputError("not a sampled folder", where=f"path={self.uri}", got="no epoch", expected="epoch_0, …")
        return sorted(numbers)

    @property
    def _folders(self) -> Sequence[str]:
        return storage.store_for(self.uri).folders(self.uri)

    def starts(self, epoch: int) -> Iterator[NDArray[Any]]:
        """Yield where the responses of the rows of an epoch begin, some at a time."""
        return Array.open(storage.join(self.uri, f"epoch_{epoch}", "resp_start.npy")).pieces(1 << 20)

    def rows(self) -> NDArray[np.int64]:
        """Return how many rows all epochs have of each task; int64 [tasks].

        Raises:
            InputError: a row is of no task.
        """
        counts = np.zeros(len(self.names), np.int64)
        with log.progress("map", len(self.epochs)) as progress:
            for epoch in self.epochs:
                for piece in self.starts(epoch):
                    if int(piece.max()) >= int(self.ends[-1]):
                        raise InputError(
                            "a row begins after the last token",
                            where=storage.join(self.uri, f"epoch_{epoch}"),
                            got=f"{int(piece.max()):,}",
                            expected=f"below {int(self.ends[-1]):,}",
                        )
                    counts += np.bincount(np.searchsorted(self.ends, piece, "right"), minlength=len(counts))
                progress.advance(1, int(counts.sum()), 0)
        return counts
