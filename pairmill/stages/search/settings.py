"""``configs/search_config.yaml``: how many proxies there are, how their mixtures are drawn, and what is to be low."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import FileSettings
from pairmill.stages.search.draw import Draw
from pairmill.stages.search.laws import DEFAULT, LAWS, LawName

RUNS_PER_AXIS: Final = 3
"""Proxies for each share that is searched, and as many more; arXiv 2602.12237 finds that a linear number is enough."""


@dataclass(frozen=True, kw_only=True)
class DrawSettings(Checked):
    """The mixtures of the proxies: Dirichlet, around the shares of the sources as they come."""

    seed: int = setting(0, help="of the draws", at_least=0, at_most=2**53)
    lowest: float = setting(
        0.5,
        help="the lowest strength of the distribution; low ones give mixtures of few sources",
        at_least=0.01,
        at_most="highest",
    )
    highest: float = setting(
        10.0, help="the highest strength; high ones give mixtures near the centre", at_least=0.01, at_most=1000
    )
    flatten: float = setting(
        0.5,
        help="the centre is in proportion to size ** flatten; 1 is as the sources come, 0 the same for all",
        at_least=0,
        at_most=1,
    )
    least: float = setting(0.005, help="a share below this is 0", at_least=0, at_most=0.5)

    def draw(self) -> Draw:
        """Return what draws take."""
        return Draw(self.seed, (self.lowest, self.highest), self.flatten, self.least)


@dataclass(frozen=True, kw_only=True)
class Objective(Checked):
    """What is to be low: a mean of held-out losses."""

    measure: Literal["bits_per_byte", "loss"] = setting("bits_per_byte", help="bits_per_byte, or loss in nats a token")
    weights: dict[str, float] = setting(
        {},
        help="by source of the held-out rows; those that are left out count nothing. Empty = all count the same",
        at_least=0,
        nonzero=True,
    )
    closeness: float = setting(
        0.0,
        help="what it costs to be far from the shares as they come, for each nat of divergence; 0 = nothing",
        at_least=0,
    )


@dataclass(frozen=True, kw_only=True)
class SearchSettings(FileSettings):
    """All settings."""

    OPTION: ClassVar = "search_config"
    HEAD: ClassVar = """\
How a mixture is searched. Every setting has its default. Sources, budget and caps are mix_config's.
An override of the command line counts more than this file: set=runs=24,objective.measure=loss
Made by: pairmill search settings"""

    runs: int | None = setting(
        None,
        help="proxies, the mixture as it comes among them; null = 3 for each share that is searched, and 3 more",
        at_least=1,
        at_most=10_000,
    )
    proxy_budget: float | None = setting(
        None, help="response tokens of a proxy; null = the budget of mix_config", at_least=1
    )
    max_epochs: float | None = setting(
        4.0, help="passes over any source at the budget of mix_config, where that has no cap; null = no cap", above=0
    )
    again: list[str] = setting([], help="sources that are searched again although they are as they were, with earlier=")
    law: LawName = setting(DEFAULT, help=", ".join(LAWS))
    draw: DrawSettings = setting(DrawSettings, help="mixtures of the proxies")
    objective: Objective = setting(Objective, help="what is to be low")

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like values; those of the default law do not name it, so that searches made before are reused."""
        values = super().to_manifest()
        return {name: value for name, value in values.items() if (name, value) != ("law", DEFAULT)}

    def count(self, axes: int) -> int:
        """Count the proxies, if this many shares are searched."""
        return self.runs if self.runs is not None else RUNS_PER_AXIS * (axes + 1)
