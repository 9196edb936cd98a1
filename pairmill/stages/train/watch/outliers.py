"""Steps that stick out: their loss or gradient norm is far above that of the steps before them.

A value sticks out if it is more than :data:`FAR` times their spread above the median of the last :data:`WINDOW` values.
The spread is 1.4826 times the median distance from that median, which of normal values is their standard deviation, and
at least a hundredth of the median: one large value moves neither. A step with fewer than :data:`LEAST` steps before it
is not looked at, nor is a value that is not finite, which skips the update and has a line of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Self

WINDOW: Final = 128
LEAST: Final = 32
FAR: Final = 6.0
MOST: Final = 8
"""Steps that are kept, those that stick out the most."""
WATCHED: Final = ("loss", "grad_norm")


@dataclass
class Outliers:
    """What a run knows of its last steps, and of those that stuck out the most: checkpoints keep it.

    Attributes:
        last: the last values by name.
        highest: of each step that is kept ``step``, ``loss``, ``grad_norm``, ``what`` of the two sticks out, its
            ``usual`` value, ``times`` that the spread goes into the distance, and ``before``, the loader's position
            before it. By ``times``, the highest first.
    """

    last: dict[str, list[float]] = field(default_factory=dict)
    highest: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Read what a checkpoint kept; nothing of one that kept nothing."""
        last = {name: [*values] for name, values in state.get("last", {}).items()}
        return cls(last, [dict(item) for item in state.get("highest", ())])

    def add(self, step: int, values: Mapping[str, float], before: Mapping[str, Any]) -> dict[str, Any] | None:
        """Look at a step.

        Args:
            step: of the optimizer.
            values: of :data:`WATCHED`.
            before: the loader's position before it.

        Returns:
            what sticks out of it, as in :attr:`highest` without the position; None = nothing.
        """
        looked = [self._look(name, values[name]) for name in WATCHED]
        best = max((item for item in looked if item is not None), key=lambda item: item["times"], default=None)
        if best is None:
            return None
        best = {**values, **best}
        self.highest.append({"step": step, **best, "before": dict(before)})
        self.highest.sort(key=lambda item: (-item["times"], item["step"]))
        del self.highest[MOST:]
        return best if best["times"] > FAR else None

    def _look(self, name: str, value: float) -> dict[str, Any] | None:
        """Compare a value with those before it, and keep it."""
        before = self.last.setdefault(name, [])
        result = None
        if not math.isfinite(value):
            return None
        if len(before) >= LEAST:
            usual = median(before)
            spread = max(1.4826 * median(abs(item - usual) for item in before), abs(usual) / 100, 1e-12)
            times = (value - usual) / spread
            result = {"what": name, "usual": usual, "times": times} if times > 0 else None
        before.append(value)
        del before[:-WINDOW]
        return result
