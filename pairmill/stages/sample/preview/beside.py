"""What was expected of a plan beside what was drawn: an estimate of other files cannot be mistaken for it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pairmill.engine.manifest import Manifest
from pairmill.formats.results import SampleResult
from pairmill.rules.rule import Rule
from pairmill.rules.solve_rules import NO_RULE
from pairmill.stages.sample.analytics import Stats

if TYPE_CHECKING:
    from pairmill.report.model import Cell, Table

MOST_ERRORS: Final = 3
"""Standard errors of the tokens of a group that are worth a look."""


@dataclass
class Beside:
    """Rows and tokens of a group in an epoch, on average over the epochs.

    Attributes:
        name: of the group.
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
    found: dict[str, Beside] = {}
    for name, values in result.stats.items():
        label = result.prefixes.get(name)
        label = NO_RULE if label is None else label
        group = found.setdefault(label, Beside(label))
        _add(group, Stats(**values), result.rules[name], epochs)
    return [*found.values()]


def _add(group: Beside, stats: Stats, recorded: dict[str, Any], epochs: int) -> None:
    """Add a task to its group."""
    rule, drawn = Rule.from_manifest(recorded), stats.cov_rows / epochs
    rows = (stats.rows if rule.max_per_file is None else min(rule.max_per_file, stats.rows)) * rule.repeat
    if rule.max_response_tokens_per_file is not None:  # which the row that reaches it decides
        rows = round(drawn)
    mean = stats.toks / stats.rows if stats.rows else 0.0
    group.rows += rows
    group.drawn_rows += drawn
    group.tokens += rows * mean
    group.drawn_tokens += stats.cov_toks / epochs
    last = rows * epochs % stats.rows if stats.rows else 0
    if last:
        spread = max(0.0, stats.squares / stats.rows - mean**2) if stats.squares else math.nan
        group.variance += spread * last * (stats.rows - last) / max(1, stats.rows - 1) / epochs**2


def expected_table(groups: Sequence[Beside]) -> Table:
    """Return the table of a report, whose model a sample that has none starts without."""
    from pairmill.report.model import Table

    rows: list[tuple[Cell, ...]] = [
        (
            group.name,
            round(group.rows),
            round(group.drawn_rows),
            round(group.tokens),
            round(group.drawn_tokens),
            f"{round(group.drawn_tokens - group.tokens):+,}",
            "–" if math.isnan(group.errors) else f"{group.errors:+.1f}",
        )
        for group in groups
    ]
    return Table(
        "Expected and drawn, an epoch",
        ("Group", "Rows expected", "Rows drawn", "Tokens expected", "Tokens drawn", "Difference", "Standard errors"),
        rows,
        "Expected from the mean lengths of the rows that may be sampled; beyond three standard errors look twice.",
    )
