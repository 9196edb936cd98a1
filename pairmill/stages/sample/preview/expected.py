"""Expected rows and tokens of tasks and groups: the rows that rules take, times the means of what is there. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmill.mixture.solve_folder import EffectiveRules
from pairmill.rules.rule import Rule
from pairmill.rules.solve import Pool
from pairmill.rules.solve_rules import SolvedRules


@dataclass(frozen=True)
class Expected:
    """What an epoch has of a task or group, on average over the epochs.

    Attributes:
        name: of the task or group.
        group: of the task; of a group its amounts, as its rule says them.
        binds: the key that decides; ``pool`` if a cap does not.
        pool_rows: rows that may be drawn, once.
        pool_tokens: tokens of these.
        unique_rows: rows that the epochs draw, each counted once.
        rows: that an epoch has.
        tokens: that an epoch has.
        response_tokens: of these.
        error: standard error of ``tokens``, from the lengths of rows.
        share: of the tokens of an epoch.
    """

    name: str
    group: str
    binds: str
    tasks: int
    pool_rows: int
    pool_tokens: int
    unique_rows: int
    rows: float
    tokens: float
    response_tokens: float
    error: float
    share: float
    epochs: int

    @property
    def passes(self) -> float:
        """Over what may be drawn, in an epoch."""
        return self.rows / self.pool_rows if self.pool_rows else 0.0

    @property
    def exposures(self) -> float:
        """Times that a row which is drawn is seen in all epochs, on average."""
        return self.rows * self.epochs / self.unique_rows if self.unique_rows else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it with what follows from it."""
        return {**asdict(self), "passes": self.passes, "exposures": self.exposures}


@dataclass(frozen=True)
class Forecast:
    """What rules take of tasks.

    Attributes:
        pool: what may be drawn of them.
        solved: what is drawn of each.
        epochs: how many are drawn.
    """

    names: Sequence[str]
    pool: Pool
    solved: SolvedRules
    epochs: int

    @classmethod
    def from_rules(cls, effective: EffectiveRules) -> Self:
        """Solve rules. Raises UsageError if they ask for what is not there, InputError if tasks cannot be read."""
        names = [task.name for task in effective.tasks]
        return cls(names, effective.pool, effective.solved, effective.epochs - effective.kept)

    @cached_property
    def tasks(self) -> list[Expected]:
        """The tasks in their order."""
        groups = [group.name for group in self.solved.groups]
        rules = zip(self.solved.rules, self.pool.rows.tolist(), strict=True)
        labels = [
            (name, groups[place], _binds(*item))
            for name, place, item in zip(self.names, self.solved.group_of.tolist(), rules, strict=True)
        ]
        return self._lines(np.arange(len(self.names)), labels)

    @cached_property
    def groups(self) -> list[Expected]:
        """The groups that have tasks, in the order of the rules."""
        labels = [(group.name, group.wanted, group.binds) for group in self.solved.groups]
        return [line for line in self._lines(self.solved.group_of, labels) if line.tasks]

    @cached_property
    def total(self) -> Expected:
        """All tasks together."""
        return self._lines(np.zeros(len(self.names), np.int64), [("all", "", "")])[0]

    def _lines(self, place: NDArray[np.int64], labels: Sequence[tuple[str, str, str]]) -> list[Expected]:
        """Return sums over the tasks at each place, int64 [tasks]; ``labels``: name, group and key of each place."""
        solved, pool = self.solved, self.pool

        def sums(values: NDArray[Any] | None) -> NDArray[Any]:
            return np.bincount(place, values, minlength=len(labels))

        counts = {"tasks": None, "pool_rows": pool.rows, "pool_tokens": pool.inst_tokens + pool.resp_tokens}
        counts["unique_rows"] = np.minimum(pool.rows, np.rint(solved.rows * self.epochs))
        columns = {name: sums(values).astype(np.int64).tolist() for name, values in counts.items()}
        for name in ("rows", "tokens", "response_tokens"):
            columns[name] = sums(getattr(solved, name)).tolist()
        columns["error"] = np.sqrt(sums(solved.errors**2)).tolist()
        whole = float(solved.tokens.sum()) or 1.0
        columns["share"] = [tokens / whole for tokens in columns["tokens"]]
        given = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return [Expected(*label, epochs=self.epochs, **each) for label, each in zip(labels, given, strict=True)]


def _binds(rule: Rule, rows: int) -> str:
    """Return which key decides what is drawn of a task with that many rows; empty if its group does, or none."""
    if rule.rows is not None or rule.max_per_file is None:
        return ""
    return "pool" if rows <= rule.max_per_file else "max_per_file"
