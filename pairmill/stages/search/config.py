"""Options of the search stage."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pairmill.engine.options import option
from pairmill.formats import settings_file
from pairmill.mixture.config import MixtureConfig

if TYPE_CHECKING:
    from pairmill.stages.search.settings import SearchSettings


@dataclass(kw_only=True)
class SearchConfig(MixtureConfig):
    """Draw mixtures for small trainings; fit a law to what they lose, and find the mixture that loses least."""

    mix_config: str = option(
        settings_file.DEFAULT,
        help="sources, budget and caps, as of mix; its method and weights are not read",
        changes_bytes=False,  # the mixtures say it by content
    )
    held_out: str = option(
        "",
        help="the held-out rows that proxies are evaluated on, to check before they are trained; empty = not checked",
        changes_bytes=False,
    )
    search_config: str = option(
        settings_file.DEFAULT,
        help="proxies and objective, as a YAML file; default = what is built in, as in configs/search_config.yaml",
        changes_bytes=False,
    )
    set: list[str] = option(
        [], help="settings in place of the file's, as runs=24,objective.measure=loss", changes_bytes=False
    )
    runs: int = option(0, help="proxies; 0 = as search_config says", changes_bytes=False, at_least=0)
    max_runs: int = option(0, help="refuse more proxies than this; 0 = any number", changes_bytes=False, at_least=0)
    earlier: str = option(
        "",
        help="a finished search: sources that are as they were keep its shares among themselves, and only the others "
        "are searched; empty = all are searched",
        changes_bytes=False,
    )
    train_config: str = option(
        "",
        help="settings of every proxy, as a YAML file, to check before one is trained; empty = not checked",
        changes_bytes=False,
    )
    train_set: list[str] = option([], help="settings in place of that file's", changes_bytes=False)
    evaluate_config: str = option(
        "", help="settings of every evaluation, to check with those of the proxies", changes_bytes=False
    )
    evaluate_set: list[str] = option([], help="settings in place of that file's", changes_bytes=False)
    sampled: list[str] = option(
        [], help="the plans that sample made of the proxies' mixtures, joined by commas", changes_bytes=False
    )
    evaluated: list[str] = option(
        [],
        help="what evaluate made of the proxies, in the order of sampled; empty = mixtures are drawn, and no law is "
        "fitted",
        changes_bytes=False,
        as_many_as="sampled",
    )
    measured: str = option(
        "", help="what evaluate made of the optimum; empty = not measured", changes_bytes=False, needs="evaluated"
    )

    @cached_property
    def settings(self) -> SearchSettings:
        """What the file and ``set`` say; read once."""
        # Laws need numpy, and the help does without.
        from pairmill.stages.search.settings import SearchSettings

        result = SearchSettings.load(self.search_config, self.set)
        return dataclasses.replace(result, runs=self.runs) if self.runs else result
