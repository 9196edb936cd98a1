"""``search_config.yaml``: how many proxies there are, how their mixtures are drawn, and what is to be low."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from components.search.draw import Draw
from pairmill.errors import UsageError
from pairmill.formats.settings_file import SettingsFile, render, to_json

DEFAULT: Final = "search_config.yaml"
"""The default file, in the working directory. It is optional: without it every setting has its default."""

HEAD: Final = """How a mixture is searched. Every setting has its default. Sources, budget and caps are mix_config's.
An override of the command line counts more than this file: set=runs=24,objective.measure=loss
Made by: python -m components.search settings"""

RUNS_PER_AXIS: Final = 3
"""Proxies for each share that is searched, and as many more; arXiv 2602.12237 finds that a linear number is enough."""


def _between(settings: Any, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            expected = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
            raise UsageError("out of range", where=name, got=f"{value:g}", expected=expected)


@dataclass(frozen=True, kw_only=True)
class DrawSettings:
    """The mixtures of the proxies: Dirichlet, around the shares of the sources as they come.

    Args:
        seed: of the draws.
        lowest: the lowest strength of the distribution; low ones give mixtures of few sources.
        highest: the highest strength; high ones give mixtures near the centre.
        flatten: the centre is in proportion to size ** flatten; 1 is as the sources come, 0 the same for all.
        least: a share below this is 0.
    """

    seed: int = 0
    lowest: float = 0.5
    highest: float = 10.0
    flatten: float = 0.5
    least: float = 0.005

    def __post_init__(self) -> None:
        _between(self, 0, 2**53, "seed")
        _between(self, 0.01, 1000, "lowest", "highest")
        _between(self, 0, 1, "flatten")
        _between(self, 0, 0.5, "least")
        if self.lowest > self.highest:
            raise UsageError(
                "above highest", where="lowest", got=f"{self.lowest:g}", expected=f"at most {self.highest:g}"
            )

    def draw(self) -> Draw:
        """What draws take."""
        return Draw(self.seed, (self.lowest, self.highest), self.flatten, self.least)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is to be low: a mean of held-out losses.

    Args:
        measure: bits_per_byte, or loss in nats a token.
        weights: by source of the held-out rows; those that are left out count nothing. Empty = all count the same.
        closeness: what it costs to be far from the shares as they come, for each nat of divergence; 0 = nothing.
    """

    measure: Literal["bits_per_byte", "loss"] = "bits_per_byte"
    weights: dict[str, float] = field(default_factory=dict)
    closeness: float = 0.0

    def __post_init__(self) -> None:
        _between(self, 0, math.inf, "closeness")
        for name, weight in self.weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise UsageError("out of range", where=f"weights.{name}", got=f"{weight:g}", expected="0 or more")
        if self.weights and not any(self.weights.values()):
            raise UsageError("nothing counts", where="weights", expected="a weight above 0")


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """All settings.

    Args:
        runs: proxies, the mixture as it comes among them; null = 3 for each share that is searched, and 3 more.
        proxy_budget: response tokens of a proxy; null = the budget of mix_config.
        max_epochs: passes over any source at the budget of mix_config, where that has no cap; null = no cap.
        again: sources that are searched again although they are as they were, with earlier=.
        draw: mixtures of the proxies.
        objective: what is to be low.
    """

    runs: int | None = None
    proxy_budget: float | None = None
    max_epochs: float | None = 4.0
    again: list[str] = field(default_factory=list)
    draw: DrawSettings = field(default_factory=DrawSettings)
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        _between(self, 1, 10_000, "runs")
        _between(self, 1, math.inf, "proxy_budget")
        if self.max_epochs is not None and not (math.isfinite(self.max_epochs) and self.max_epochs > 0):
            raise UsageError(
                "out of range", where="max_epochs", got=f"{self.max_epochs:g}", expected="above 0, or null"
            )

    @classmethod
    def load(cls, given: str, overrides: Sequence[str] = ()) -> Self:
        """Read the file at a path or URI. Raises UsageError with the line of the first mistake."""
        file = SettingsFile.load(given, "search_config", DEFAULT)
        file.override(overrides, "set")
        return file.onto(cls())

    def count(self, axes: int) -> int:
        """How many proxies there are, if this many shares are searched."""
        return self.runs if self.runs is not None else RUNS_PER_AXIS * (axes + 1)

    def said(self) -> dict[str, Any]:
        """JSON-like, for the manifest."""
        found: dict[str, Any] = to_json(self)
        return found


def default_file() -> str:
    """The text of search_config.yaml as it is shipped."""
    return render(SearchSettings(), HEAD)
