"""What was expected of a plan beside what was drawn: an estimate of other files cannot be mistaken for it. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pairmill.engine.manifest import Manifest
from pairmill.formats.results.sample import SampleResult
from pairmill.rules.rule import Rule
from pairmill.rules.solve import Pool, draw_variances
from pairmill.rules.solve_rules import NO_RULE
from pairmill.stages.sample.analytics import Stats

_MOST_ERRORS: Final = 3
"""Standard errors of the tokens of a group alone that are worth a look."""


@dataclass
class Beside:
    """Rows and tokens of a group in an epoch, on average over the epochs.

    Attributes:
        rows: expected.
        drawn_rows: that the plan has.
        tokens: expected.
        drawn_tokens: that the plan has.
        variance: of the expected tokens, by the lengths of rows; not a number if it is not known.
    """

    name: str
    rows: float = 0.0
    drawn_rows: float = 0.0
    tokens: float = 0.0
    drawn_tokens: float = 0.0
    variance: float = 0.0

    @property
    def errors(self) -> float:
        """The difference of tokens in standard errors; not a number if these are not known."""
        difference = self.drawn_tokens - self.tokens
        if self.variance:
            return difference / math.sqrt(self.variance)
        return 0.0 if abs(difference) < 1 else math.nan


def expected_beside_drawn(manifest: Manifest) -> list[Beside]:
    """Return the groups of a plan, in the order of its rules.

    None without rules, of the reference's profile, and of a mixture, which has a table of its own.
    """
    result, epochs = SampleResult.from_manifest(manifest), manifest.ledger.measures["epochs"]
    if result.mixture or manifest.options["profile"] != "pairmill" or not any(result.prefixes.values()):
        return []
    if result.groups:
        return [
            Beside(
                name=group["name"],
                rows=group["rows"],
                drawn_rows=group["drawn_rows"],
                tokens=group["tokens"],
                drawn_tokens=group["drawn_tokens"],
                variance=group["error"] ** 2,
            )
            for group in result.groups
        ]
    names = sorted(result.stats)
    tasks = [Stats(**result.stats[name]) for name in names]
    rows = np.array([_rows_of(result.rules[name], each, epochs) for name, each in zip(names, tasks, strict=True)])
    pool = _pool_of(tasks)
    drawn = np.rint(rows * epochs)
    tokens, variances = rows * pool.mean(), draw_variances(pool, drawn) / epochs**2
    # A plan of an older pairmill has no squares, so the lengths' spread is not known.
    variances[(pool.squares == 0) & (np.mod(drawn, np.maximum(1, pool.rows)) > 0)] = math.nan
    if result.after:  # plans before decided which rows are left
        variances[[result.rules[name].get("passes_total") is not None for name in names]] = math.nan
    groups: dict[str, Beside] = {}
    for number, (name, each) in enumerate(zip(names, tasks, strict=True)):
        label = result.prefixes.get(name)
        label = NO_RULE if label is None else label
        group = groups.setdefault(label, Beside(label))
        group.rows += float(rows[number])
        group.drawn_rows += each.cov_rows / epochs
        group.tokens += float(tokens[number])
        group.drawn_tokens += each.cov_toks / epochs
        group.variance += float(variances[number])
    return [*groups.values()]


def beyond_chance(groups: Sequence[Beside]) -> list[Beside]:
    """Return the groups that were drawn otherwise than expected: of many groups some are off by three errors."""
    most = math.sqrt(_MOST_ERRORS**2 + 2 * math.log(max(1, len(groups))))
    return [group for group in groups if abs(group.errors) > most]


def _rows_of(recorded: dict[str, Any], stats: Stats, epochs: int) -> float:
    """Return the rows of an epoch that the rule of a task asks for, on average."""
    rule = Rule.from_manifest(recorded)
    # The row that reaches a budget decides, what was seen before, or the plan's parts.
    if not {rule.max_response_tokens_per_file, rule.passes_total, rule.rows} <= {None}:
        return stats.cov_rows / epochs
    return (stats.rows if rule.max_per_file is None else min(rule.max_per_file, stats.rows)) * rule.repeat


def _pool_of(tasks: Sequence[Stats]) -> Pool:
    columns = [[each.rows, each.itoks, each.rtoks, each.squares] for each in tasks]
    rows, inst, resp, squares = np.array(columns, np.int64).reshape(-1, 4).T
    return Pool(rows, inst, resp, squares, np.zeros_like(rows), np.arange(len(rows)))
