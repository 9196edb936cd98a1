"""What near deduplication reads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pairmill.formats.slices import FileSlice
from pairmill.stages.curate.near.settings import NearSettings


class Dropped(Protocol):
    """Where the rows of a slice are that an earlier operation drops; picklable."""

    @property
    def key(self) -> str:
        """The identity of the rows, by content: equal keys mean equal rows."""

    def rows(self) -> NDArray[np.uint32]:
        """Return their numbers in the slice, from 0, ascending."""


@dataclass(frozen=True)
class NothingDropped:
    """An earlier operation drops nothing of the slice."""

    key: str = ""

    def rows(self) -> NDArray[np.uint32]:
        return np.empty(0, np.uint32)


@dataclass(frozen=True)
class NearSlice:
    """A slice of a row file.

    Args:
        part: what is read; ``part.path`` is the task, ``part.first`` the ordinal of its first row.
        rows: how many rows it has, dropped ones included.
        key: identity of the slice's bytes (and of where it is cut).
        fixed: whether its rows are never removed; two rows of fixed slices are never compared.
        dropped: the rows that are not looked at.
    """

    part: FileSlice
    rows: int
    key: str
    fixed: bool = False
    dropped: Dropped = field(default_factory=NothingDropped)

    def identify(self) -> object:
        """Return what a shard that reads the slice is keyed by."""
        return [self.key, self.part.first, self.part.start, self.part.stop, self.dropped.key]

    @property
    def task(self) -> str:
        """The data set that the file is."""
        return self.part.path


@dataclass(frozen=True)
class NearInput:
    """What near deduplication reads.

    Args:
        settings: how rows are compared.
        slices: in rank order: fixed ones first, the slices of a task one after another. Without those of prefixes whose
            mode is ``off``; those with ``report`` take part, and the caller changes the action of their decisions.
        same_condition_only: compare rows of an equal condition only.
        longest_response: prefer the row with more response tokens, then rank.
        index: the URIs of ``index/near`` of finished folders; their rows are fixed and rank before all slices.
        write_index: make the files of a new ``index/near``.
    """

    settings: NearSettings
    slices: Sequence[NearSlice]
    same_condition_only: bool = False
    longest_response: bool = False
    index: Sequence[str] = ()
    write_index: bool = False
