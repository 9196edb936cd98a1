"""``sample preview``: the rules' outcome in a second, before anything is drawn or written."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from pairmill.engine import links, policing
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import RowOptions
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import read_plan
from pairmill.formats.task_summaries import TaskSummaries, summarize
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import Dataset
from pairmill.log import event
from pairmill.mixture.solve_folder import EffectiveRules
from pairmill.policy import in_force
from pairmill.rules.book import Rules
from pairmill.stages.sample.alarms import check_amounts, refuse_too_many, without_rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.exposure.passes import SeenRows
from pairmill.stages.sample.extend import ParentPlan
from pairmill.stages.sample.preview.compared import compare
from pairmill.stages.sample.preview.config import PreviewConfig
from pairmill.stages.sample.preview.expected import Forecast
from pairmill.stages.sample.preview.printed import Page
from pairmill.stages.sample.preview.what_if import try_values


def preview(config: PreviewConfig) -> str:
    """Return the tables.

    Raises:
        UsageError: options or rules are wrong, or ask for what is not there.
        InputError: the tokenized folder is absent, unfinished or damaged, or no rule matches a task, against
            ``unmatched=refuse``, or the policy refuses one.
    """
    with links.obeyed(config.links):
        folder = open_tokenized(
            config.tokenized_path or config.extend,
            "tokenized_path",
            tolerate_strays=True,
            verify=config.verify,
            tasks=config.tasks,
        )
    with in_force(config):
        denied = policing.leave_out_tasks(folder.tasks, f"tokenized_path={folder.uri}")
    allowed = [task for task in folder.tasks if task.name not in denied]
    parent = _open_parent(config, folder) if config.extend else None
    rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
    rules.check_tasks(task.name for task in folder.tasks)
    held: dict[tuple[str, ...], TaskSummaries] = {}

    def sum_up(tasks: Sequence[Dataset], long_contexts: Sequence[str], options: RowOptions) -> TaskSummaries:
        # Of each file of rules, and without a place to keep them these would be read again.
        modes = tuple(long_contexts)
        if modes not in held:
            held[modes] = summarize(tasks, long_contexts, options)
        return held[modes]

    def solve(rules: Rules) -> Forecast:
        forecast = Forecast.from_rules(replace(_effective(rules, allowed, config, parent), sum_up=sum_up))
        rows = dict(zip(forecast.names, forecast.solved.rows.tolist(), strict=True))
        refuse_too_many(rules, rows, config.prefix_config_path)
        return forecast

    now = solve(rules)
    _warn_of_unexpected(now, rules)
    return Page(
        now,
        rules,
        try_values(config.what_if, rules, now, solve) if config.what_if else None,
        compare(config.compare, now, solve) if config.compare else None,
        parent.shown(len(allowed)) if parent is not None else None,
    ).text(config.format)


def _open_parent(config: PreviewConfig, folder: Folder) -> ParentPlan:
    """Open the plan that would go on. Raises as :meth:`ParentPlan.open`."""
    manifest = read_plan(config.extend, "extend").manifest
    names = ("extend", "from_epoch", "epochs", "context_size", "min_resp_length")
    given = SampleConfig(seed=manifest.options["seed"], **{name: getattr(config, name) for name in names})
    return ParentPlan.open(given, SampleResult.from_manifest(manifest).layout, folder)


def _warn_of_unexpected(forecast: Forecast, rules: Rules) -> None:
    """Log what the rules expect and an epoch does not have."""
    amounts = zip(forecast.solved.rows.tolist(), forecast.solved.tokens.tolist(), strict=True)
    try:
        check_amounts(rules, dict(zip(forecast.names, amounts, strict=True)))
    except InputError as error:
        event(str(error), level=logging.WARNING)


def _effective(
    rules: Rules, tasks: Sequence[Dataset], config: PreviewConfig, parent: ParentPlan | None
) -> EffectiveRules:
    choice = rules.on_unmatched(config.unmatched)
    if (
        choice == "refuse"
        and not rules.is_empty
        and (names := [task.name for task in tasks if rules.clause_of(task.name) is None])
    ):
        raise without_rule(names, config.prefix_config_path)
    leave = choice == "leave" and not rules.is_empty
    effective = EffectiveRules.open(
        rules, tasks, config, config.epochs, rows=config.rows, leave=leave, verify=config.verify
    )
    if parent is not None:
        for task, rule in effective.of_task.items():
            parent.require_same_cuts(task, rule)
        return replace(effective, kept=parent.first, seen=parent.seen.total)
    return replace(effective, seen=SeenRows.parse(config.after).total) if config.after else effective
