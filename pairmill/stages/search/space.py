"""What is searched: a share of each source, or of sources that keep their shares among themselves. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError

Floats = NDArray[np.float64]

KEPT: Final = "(as before)"
"""The axis of the sources that keep their shares among themselves."""


@dataclass(frozen=True)
class Source:
    """A source of the search.

    Attributes:
        name: distinct.
        tokens: response tokens of one pass.
        limit: the most tokens that a mixture may take of it, by its cap; infinite without one.
        digest: of its rows and of how they are counted: while it is the same, so is the source.
    """

    name: str
    tokens: int
    limit: float
    digest: str


@dataclass(frozen=True)
class Axis:
    """One share that is searched: its name, and what part of it each of its sources has."""

    name: str
    parts: Mapping[str, float]


@dataclass(frozen=True)
class Space:
    """The shares that are searched.

    Attributes:
        sources: in the order of the settings.
        axes: of the search; every source is in one.
        natural: of each axis, its share of one pass over everything.
        limits: of each axis, its largest share at the budget.
    """

    sources: tuple[Source, ...]
    axes: tuple[Axis, ...]
    natural: tuple[float, ...]
    limits: tuple[float, ...]

    @classmethod
    def from_sources(cls, sources: Sequence[Source], budget: float, kept: Mapping[str, float] | None = None) -> Space:
        """Make the space of these sources.

        Args:
            sources: with distinct names.
            budget: response tokens of the whole training.
            kept: earlier shares of the sources that keep them among themselves; they become one axis.

        Raises:
            InputError: a source has no token.
            UsageError: there is only one axis, or the caps do not allow the budget.
        """
        empty = [source.name for source in sources if not source.tokens]
        if empty:
            raise InputError(
                f"{len(empty):,} sources have no response tokens"
                if len(empty) > 1
                else "a source has no response token",
                where="sources",
                got=", ".join(map(repr, empty[:5])) + (" …" if len(empty) > 5 else ""),
                expected="rows that may be sampled",
                hint="leave it out with sources: and others: leave in mix_config, or raise context_size",
            )
        whole = sum(source.tokens for source in sources)
        most = math.fsum(min(source.limit, budget) for source in sources)
        if most < budget * (1 - 1e-9):
            raise UsageError(
                "the caps do not allow so large a budget",
                where="mix_config budget",
                got=f"{budget:,.0f} response tokens",
                expected=f"at most {math.floor(most):,}",
                hint="lower budget, or raise max_epochs or caps",
            )
        axes = _axes(sources, {} if kept is None else kept)
        if len(axes) < 2:
            raise UsageError(
                "there is nothing to search",
                where="earlier" if kept else "sources",
                got="no source differs from the earlier search" if kept else f"one source, {axes[0].name!r}",
                expected="two sources or more",
                hint="name sources in again: of search_config, or leave earlier= out"
                if kept
                else "see sources: in mix_config",
            )
        by_name = {source.name: source for source in sources}
        natural = [sum(by_name[name].tokens for name in axis.parts) / whole for axis in axes]
        limits = [
            min([1.0, *(by_name[name].limit / budget / part for name, part in axis.parts.items() if part)])
            for axis in axes
        ]
        if math.fsum(limits) < 1 - 1e-6:
            raise UsageError(
                "the caps allow no mixture in which the other sources keep their shares",
                where="earlier",
                got=f"at most {100 * math.fsum(limits):.3g}% of the budget",
                expected="100%",
                hint="lower budget, raise caps, or search all sources again: leave earlier= out",
            )
        return cls(tuple(sources), tuple(axes), tuple(natural), tuple(limits))

    def expand(self, point: Floats) -> dict[str, float]:
        """Return the share of each source, of the shares of the axes."""
        result = dict.fromkeys((source.name for source in self.sources), 0.0)
        for axis, share in zip(self.axes, point.tolist(), strict=True):
            for name, part in axis.parts.items():
                result[name] = share * part
        return result


def _axes(sources: Sequence[Source], kept: Mapping[str, float]) -> list[Axis]:
    held = [source for source in sources if source.name in kept]
    if len(held) < 2:
        return [Axis(source.name, {source.name: 1.0}) for source in sources]
    shares = {source.name: kept[source.name] for source in held}
    whole = math.fsum(shares.values())
    if not whole:  # the earlier search took nothing of any of them
        shares = {source.name: float(source.tokens) for source in held}
        whole = math.fsum(shares.values())
    together = Axis(KEPT, {name: share / whole for name, share in shares.items()})
    return [together, *(Axis(source.name, {source.name: 1.0}) for source in sources if source.name not in kept)]
