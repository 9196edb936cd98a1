"""``sample preview``: the rules' outcome in a second, before anything is drawn or written."""

from __future__ import annotations

from functools import partial

from pairmill.engine import links
from pairmill.formats.tokenized import Folder
from pairmill.formats.union import open_tokenized
from pairmill.rules.book import Rules
from pairmill.rules.solve_folder import EffectiveRules
from pairmill.stages.sample.forecast.compared import compare
from pairmill.stages.sample.forecast.config import ForecastConfig
from pairmill.stages.sample.forecast.expected import Forecast
from pairmill.stages.sample.forecast.printed import Page
from pairmill.stages.sample.forecast.what_if import try_values


def preview(config: ForecastConfig) -> str:
    """Return the tables.

    Raises:
        UsageError: options or rules are wrong, or ask for what is not there.
        InputError: the tokenized folder is absent, unfinished or damaged, or no rule matches a task, against
            ``unmatched=refuse``.
    """
    with links.obeyed(config.links):
        folder = open_tokenized(config.tokenized_path, "tokenized_path", tolerate_strays=True, verify=config.verify)
    rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
    solve = partial(_solve, folder, config)
    now = solve(rules)
    return Page(
        now,
        rules,
        try_values(config.what_if, rules, now, solve) if config.what_if else None,
        compare(config.compare, now, solve) if config.compare else None,
    ).text(config.format)


def _solve(folder: Folder, config: ForecastConfig, rules: Rules) -> Forecast:
    choice = rules.top.unmatched or config.unmatched
    names = [task.name for task in folder.tasks if rules.clause_of(task.name) is None]
    if choice == "refuse" and names and not rules.is_empty:
        raise refuse_unmatched(names, config.prefix_config_path)
    leave = choice == "leave" and not rules.is_empty
    return Forecast.from_rules(
        EffectiveRules.open(
            rules, folder.tasks, config, config.epochs, rows=config.rows, leave=leave, verify=config.verify
        )
    )
