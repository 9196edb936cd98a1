"""The registry of laws: what a proxy's held-out loss is, given the shares of its mixture; a module each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pairmill.stages.search.laws import log_linear

Floats = NDArray[np.float64]


class Law(Protocol):
    """A law that was fitted to the losses of one target; it has to be convex in the shares.

    Attributes:
        floor: what no mixture gets below.
        slopes: float64 [axes], for the report: the loss falls along an axis with a low one.
    """

    @property
    def floor(self) -> float: ...

    @property
    def slopes(self) -> Floats: ...

    def at(self, shares: Floats) -> Any:
        """Return the loss of a mixture float64 [axes], or of many float64 [mixtures, axes]."""

    def gradient(self, shares: Floats) -> Floats:
        """Return the slope of the loss in each share, float64 [axes]."""


@dataclass(frozen=True)
class LawKind:
    """A law of the registry.

    Args:
        formula: of the loss, for the report.
        fit: makes the law of shares float64 [runs, axes], whose rows add up to 1, and losses float64 [runs].
        more_runs: how many more runs than axes it takes to fit it with one run left out.
        left_out: returns what the law of all other runs says of each run, float64 [runs]; None = it is fitted anew
            without each of them.
    """

    formula: str
    fit: Callable[[Floats, Floats], Law]
    more_runs: int = 2
    left_out: Callable[[Floats, Floats], Floats] | None = None

    def leave_out(self, shares: Floats, losses: Floats) -> Floats:
        """Return what the law of all other runs says of each run, float64 [runs]."""
        if self.left_out is not None:
            return self.left_out(shares, losses)
        runs = range(len(losses))
        others = [np.arange(len(losses)) != run for run in runs]
        return np.array([self.fit(shares[others[run]], losses[others[run]]).at(shares[run]) for run in runs])


LAWS: Final[dict[str, LawKind]] = {
    "log_linear": LawKind("floor + exp(shares · slopes)", log_linear.fit, left_out=log_linear.left_out)
}
"""The registry; the first is the default."""

DEFAULT: Final = next(iter(LAWS))

if TYPE_CHECKING:
    LawName = str
else:
    LawName = Literal[tuple(LAWS)]
