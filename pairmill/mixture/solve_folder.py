"""The rules in effect: what a file's rules mean for the tasks of a tokenized folder, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pairmill.formats.eligible_rows import RowOptions
from pairmill.formats.task_summaries import TaskSummaries, summarize
from pairmill.formats.tokens import Dataset
from pairmill.rules.book import Rules
from pairmill.rules.rule import Rule
from pairmill.rules.solve import Pool
from pairmill.rules.solve_rules import SolvedRules, solve_rules

# What reads single rows is imported where rules have words for them: pyarrow, which it needs, is a third of a start.
if TYPE_CHECKING:
    from pairmill.mixture.members import RowChoice

_OF_ROWS = ("select_rows", "keep_together", "lengths")


@dataclass(frozen=True)
class EffectiveRules:
    """The rules of a file for tasks.

    Attributes:
        tasks: of the tokenized folder.
        epochs: of the plan.
        leave: whether tasks that no rule matches are left out.
        choices: what rules say of single rows, by the place of the task.
        choices_digest: what identifies all that these read; empty without any.
        sum_up: sums up the rows of tasks.
        kept: epochs that are drawn already; ``seen`` counts them.
        seen: returns how often rows of a task were seen before, given its key and how often each counts at most.
    """

    rules: Rules
    tasks: Sequence[Dataset]
    options: RowOptions
    epochs: int
    leave: bool = False
    choices: Mapping[int, RowChoice] = field(default_factory=dict)
    choices_digest: str = ""
    sum_up: Callable[[Sequence[Dataset], Sequence[str], RowOptions], TaskSummaries] = summarize
    seen: Callable[[str, int], int] = lambda *_: 0
    kept: int = 0

    @classmethod
    def open(
        cls,
        rules: Rules,
        tasks: Sequence[Dataset],
        options: RowOptions,
        epochs: int,
        *,
        rows: Sequence[str] = (),
        leave: bool = False,
        verify: bool = False,
    ) -> Self:
        """Open what the rules name; ``rows`` are those that were tokenized. Raises as members.open_choices."""
        if not any(getattr(clause, word) for clause in rules.clauses for word in _OF_ROWS):
            return cls(rules, tasks, options, epochs, leave=leave)
        from pairmill.mixture.members import open_choices

        choices, digest = open_choices(rules, tasks, options, rows, verify=verify)
        return cls(rules, tasks, options, epochs, leave=leave, choices=choices, choices_digest=digest)

    @cached_property
    def base(self) -> list[Rule]:
        """What the rules say of each task by itself."""
        if not self.leave:
            return [self.rules.match(task.name)[0] for task in self.tasks]
        off = Rule(max_per_file=0)
        names = (task.name for task in self.tasks)
        return [off if self.rules.label_of(name) is None else self.rules.match(name)[0] for name in names]

    @cached_property
    def solved(self) -> SolvedRules:
        """What they come to.

        Raises:
            UsageError: as :func:`solve_rules`.
            InputError: tasks cannot be read.
        """
        names = [task.name for task in self.tasks]
        most = np.full(len(names), math.inf)
        for place, (task, rule) in enumerate(zip(self.tasks, self.base, strict=True)):
            if (passes := rule.passes_total) is not None:
                left = int(self.pool.rows[place]) * passes - self.seen(task.key, passes)
                most[place] = max(0, left) / (self.epochs - self.kept)
        solved = solve_rules(self.rules, names, self.pool, self.epochs, self.base, most)
        made, groups, largest = [*solved.rules], [*solved.groups], dict[int, int]()

        def put(place: int, values: Sequence[float]) -> None:
            """Put other rows, tokens, response tokens and errors in place of those of a task, and in its group."""
            columns = (solved.rows, solved.tokens, solved.response_tokens, solved.errors)
            before, at = [float(column[place]) for column in columns], int(solved.group_of[place])
            for column, value in zip(columns, values, strict=False):
                column[place] = value
            groups[at] = groups[at]._replace(
                rows=groups[at].rows + values[0] - before[0],
                tokens=groups[at].tokens + values[1] - before[1],
                response_tokens=groups[at].response_tokens + values[2] - before[2],
                error=math.sqrt(max(0.0, groups[at].error ** 2 + values[3] ** 2 - before[3] ** 2)),
            )

        for place, choice in self.choices.items():
            rows = made[place].rows or (round(float(solved.rows[place])),) * self.epochs
            made[place] = replace(made[place], rows=rows, members=choice.draw(rows))
            if choice.clause.lengths or choice.clause.keep_together:
                drawn, at = choice.expected(rows), int(solved.group_of[place])
                largest[at] = max(largest.get(at, 0), drawn.largest)
                put(place, [*vars(drawn).values()])
        for place in np.flatnonzero(most < solved.rows).tolist():
            columns = (solved.rows, solved.tokens, solved.response_tokens, solved.errors)
            put(place, [float(column[place]) * most[place] / solved.rows[place] for column in columns])
        for at, rows_most in largest.items():
            if rows_most:
                text = f"keep_together: units of up to {rows_most:,} rows"
                groups[at] = groups[at]._replace(wanted=", ".join(filter(None, (groups[at].wanted, text))))
        return solved._replace(rules=tuple(made), groups=tuple(groups))

    @cached_property
    def of_task(self) -> Mapping[str, Rule]:
        """The rule by which each task is drawn, by name."""
        rules = self.solved.rules if self.rules.needs_solving else self.base
        return {task.name: rule for task, rule in zip(self.tasks, rules, strict=True)}

    def to_manifest(self, drawn: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """Return what :class:`~pairmill.formats.results.sample.SampleResult` says of groups; nothing without amounts.

        Args:
            drawn: rows and tokens of each task, over all epochs.
        """
        if not self.rules.needs_solving:
            return {}
        solved = self.solved
        got = np.array([drawn[task.name] for task in self.tasks], np.float64) / self.epochs
        size = len(solved.groups)
        sums = [np.bincount(solved.group_of, column, minlength=size).tolist() for column in got.T]
        columns = np.stack([solved.rows, solved.tokens, solved.errors]).round(3).T.tolist()
        return {
            "groups": [
                {**group.to_manifest(), "drawn_rows": rows, "drawn_tokens": tokens}
                for group, rows, tokens in zip(solved.groups, *sums, strict=True)
                if group.tasks
            ],
            "expected": {task.name: values for task, values in zip(self.tasks, columns, strict=True)},
            "scale": {} if solved.scale is None else asdict(solved.scale),
        }

    @cached_property
    def pool(self) -> Pool:
        """What may be drawn of the tasks. Raises InputError if they cannot be read."""
        summaries = self.sum_up(self.tasks, [rule.long_context for rule in self.base], self.options)
        names = ("rows", "inst_tokens", "resp_tokens", "squares", "resp_squares")
        columns = {name: np.array(getattr(summaries, name)) for name in names}
        for place, choice in self.choices.items():
            for name, value in zip(names, choice.expected_sums(choice.read(), self.base[place]), strict=True):
                columns[name][place] = round(value)
        order = sorted(range(len(self.tasks)), key=lambda place: (self.tasks[place].key, place))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return Pool(**columns, ranks=ranks)
