"""The alarms of a sample: tasks that the context takes rows or tokens of, and tasks and rules that do not meet."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pairmill.engine import vanished
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.policing import REMOVED
from pairmill.engine.vanished import Alarm
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.results.sample import SampleResult
from pairmill.rules.book import SHIPPED, Rules
from pairmill.rules.match import literal_of
from pairmill.rules.rule import Rule
from pairmill.stages.sample import analytics

NO_RULE: Final = "no_rule"
"""Why rows of tasks without a rule are left out, with ``unmatched=leave``."""
POLICY: Final = "policy"
"""Why rows of tasks that a policy does not allow are left out, with ``policy_on=leave_out``."""
PASSES_TOTAL: Final = "passes_total"
"""Why rows are left out that were seen as often as their rule allows, in plans before this one."""
ASKED: Final = ("not_sampled", PASSES_TOTAL, NO_RULE, POLICY, REMOVED)
"""Reasons that rules and options ask for."""
MOST_ROWS: Final = (1 << 32) - 1
"""Of an epoch: fifteen times those of the largest one known."""
_NAMED: Final = 5
_COMPARED: Final = 200_000
"""Pairs of a rule without a task and a name that are compared, to find the nearest."""


def alarms_of(result: SampleResult, ledgers: Mapping[str, Ledger]) -> list[Alarm]:
    """Return the alarms of a plan or a sample; ``ledgers`` are those of its tasks."""
    lengths = {item["name"]: item["length"] for item in result.sources}
    alarms: list[Alarm] = []
    tokens: dict[str, list[int]] = {}
    for name, ledger in ledgers.items():
        stats = result.stats[name]
        tokens[name] = [lengths[name], min(lengths[name], stats["itoks"] + stats["rtoks"])]
        if not _is_off(result, name):
            numbers = result.examples.get(name, {}).items()
            ids = {reason: [f"{name}:{row}" for row in rows] for reason, rows in numbers}
            alarms += vanished.lost(name, ledger, tokens=tokens[name], asked=ASKED, examples=ids)

    def counted(kind: str, name: str, tasks: Sequence[str], reason: str = "") -> Alarm:
        rows = [sum(getattr(ledgers[task], what) for task in tasks) for what in ("rows_in", "rows_kept")]
        size = [sum(tokens[task][0] for task in tasks), sum(result.stats[task]["unique_toks"] for task in tasks)]
        return Alarm(kind, name, rows, size, reason)

    alarms += [counted(vanished.UNMATCHED_TASK, task, [task]) for task in result.unmatched]
    for first, second, tasks in result.two_rules:
        reason = f"{len(tasks):,} tasks, {min(tasks)} first"
        alarms.append(counted(vanished.TWO_RULES, f"{first!r} and {second!r}", tasks, reason))
    names = sorted({name for task in lengths for name in (task, analytics.category(task))})
    for number, label in enumerate(result.idle_rules):
        by, reason = result.hidden_rules.get(label), ""
        if by:
            reason = f"{by!r} before it takes its tasks"
        elif number * len(names) < _COMPARED:
            reason = did_you_mean(literal_of(label), names)
        alarms.append(Alarm(vanished.UNMATCHED_RULE, repr(label), reason=reason))
    return alarms


def without_rule(names: Sequence[str], prefix_config_path: str) -> InputError:
    """Return the error of tasks that no rule matches, with ``unmatched=refuse``."""
    return InputError(
        "no rule matches some tasks",
        where=f"unmatched=refuse, prefix_config_path={prefix_config_path}",
        got=f"{len(names):,} tasks: {', '.join(names[:_NAMED])}{', …' * (len(names) > _NAMED)}",
        hint="write a rule for each, or unmatched=take or leave",
    )


def refuse_too_many(rules: Rules, rows: Mapping[str, float], prefix_config_path: str) -> None:
    """Raise UsageError if an epoch has more rows than a plan can count: a slip in ``repeat`` takes all memory.

    Args:
        rows: that it has of each task.
    """
    if sum(rows.values()) > MOST_ROWS:
        name = max(rows, key=lambda task: rows[task])
        clause = rules.clause_of(name)
        raise UsageError(
            "an epoch has too many rows",
            where=prefix_config_path if clause is None else clause.where,
            got=f"{rows[name]:,.0f} rows of {name}, as often as it comes",
            expected=f"at most {MOST_ROWS:,} of all tasks",
            hint="lower repeat: or passes:",
        )


def two_rules(rules: Rules, tasks: Iterable[str]) -> list[tuple[str, str, list[str]]]:
    """Return the pairs of rules that match the same tasks, and these; of the shipped rules that is as it should be."""
    result: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        first, *more = rules.matching(task)[:2] or [""]
        if more and not {first, *more} <= set(SHIPPED):
            result.setdefault((first, more[0]), []).append(task)
    return [(first, second, names) for (first, second), names in sorted(result.items())]


def check_rules(rules: Rules, manifest: Manifest) -> None:
    """Raise InputError if an epoch does not have of a rule what its ``expect:`` says, as a mean over all epochs.

    In a plan that extends another these are the epochs that its parent does not have, unless some are drawn anew.
    """
    result, epochs = SampleResult.from_manifest(manifest), manifest.ledger.measures["epochs"]
    before = result.parent.get("drawn", {})
    epochs -= result.parent["from_epoch"] if before else 0
    amounts = {}
    for name, stats in result.stats.items():
        rows, tokens = before.get(name, (0, 0))
        amounts[name] = (
            (stats["cov_rows"] - rows) / epochs,
            (stats["cov_itoks"] + stats["cov_rtoks"] - tokens) / epochs,
        )
    check_amounts(rules, amounts)


def check_amounts(rules: Rules, amounts: Mapping[str, tuple[float, float]]) -> None:
    """Raise InputError if an epoch does not have what rules expect; ``amounts``: rows and tokens that it has of each
    task."""
    expectations = rules.expectations()
    if not (expectations or rules.top.expect):
        return
    counts: dict[str | None, list[float]] = {}
    for name, (rows, tokens) in amounts.items():
        mine = counts.setdefault(rules.label_of(name), [0.0, 0.0])
        mine[0] += rows
        mine[1] += tokens
    whole = sum(tokens for _, tokens in counts.values())
    if rules.top.expect:
        rows = sum(rows for rows, _ in counts.values())
        tasks = sum(rows > 0 for rows, _ in amounts.values())
        rules.top.expect.check("an epoch", {"rows": rows, "tokens": whole, "tasks": tasks})
    for label, expectation in expectations:
        rows, tokens = counts.get(label, [0.0, 0.0])
        expectation.check(
            f"the rule for {label!r}", {"rows": rows, "tokens": tokens, "share": tokens / whole if whole else 0.0}
        )


def _is_off(result: SampleResult, name: str) -> bool:
    """Return whether the rule of a task asks for none of its rows."""
    return not result.mixture and Rule.from_manifest(result.rules[name]).is_off()
