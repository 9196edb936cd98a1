"""What was found, counted for the report: by rule and source, with a few samples of each rule."""

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill.engine.source_names import source_of
from pairmill.formats import decisions
from pairmill.stages.curate.operation import Rule
from pairmill.text import hash64

SAMPLES: Final = 20
"""Of each rule."""
_COLUMNS = ("other_task", "other_ordinal", "benchmark", "item", "score_i", "score_r", "action", "detail")


@dataclass
class Tally:
    """Counts and samples of some tasks.

    Args:
        task: of one task its name; empty for several.
        source: of one task its source.
        rules: findings by operation's name, rule, source and action.
        owned: the rows that an operation drops, or would drop in mode drop, by its name, the rule that is first of
            the row's, and source.
        reported: the rows that a rule would drop which only reports though its operation may drop: the same.
        modes: what is done with what a rule finds, by operation's name and rule; several where sources differ.
        matrix: near duplicates by source and the kept row's source.
        benchmarks: findings by benchmark, rule and source.
        hit_rows: rows with a finding, by benchmark.
        items: those hit, by benchmark.
        samples: by ``<name>.<rule>``, each (order, sample); the smallest orders stay.
        closest: the same by how close scores are to their bounds.
    """

    task: str = ""
    source: str = ""
    rules: dict[str, dict[str, dict[str, dict[str, int]]]] = field(default_factory=dict)
    owned: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    reported: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    modes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    matrix: dict[str, dict[str, int]] = field(default_factory=dict)
    benchmarks: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    hit_rows: dict[str, int] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    closest: dict[str, list[Any]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        table: pa.Table,
        owns: NDArray[np.bool_],
        would: NDArray[np.bool_],
        modes: Mapping[str, str],
        bounds: Mapping[str, Rule],
        *,
        matrix: bool,
    ) -> None:
        """Count the decisions of an operation on the rows of the task.

        Args:
            name: of the operation's folder.
            table: the decisions.
            owns: those for which their operation would drop the row.
            would: those for which a rule that only reports would drop it.
            modes: what is done with what each rule finds.
            bounds: those of its rules that are bounds of an attribute.
            matrix: whether they are near duplicates.
        """
        rules, rule_at = decisions.names_of(table["rule"])
        actions, action_at = decisions.names_of(table["action"])
        ordinals = table["ordinal"].to_numpy().astype(np.uint64)
        for code, rule in enumerate(rules):
            mine = np.flatnonzero(rule_at == code)
            if not len(mine):
                continue
            by_action = np.bincount(action_at[mine], minlength=len(actions)).tolist()
            counts = {action: count for action, count in zip(actions, by_action, strict=True) if count}
            _add(self.rules, {name: {rule: {self.source: counts}}})
            self.modes.setdefault(name, {})[rule] = [modes[rule]]
            for counted, into in ((owns, self.owned), (would, self.reported)):
                if counted[mine].any():
                    into.setdefault(name, {}).setdefault(rule, {})[self.source] = int(counted[mine].sum())
            order = drawn(self.task, rule, ordinals[mine])
            self._sample(self.samples, f"{name}.{rule}", table, mine, order)
            margin = _margin(table, mine, bounds.get(rule))
            if margin is not None:
                self._sample(self.closest, f"{name}.{rule}", table, mine, margin)
        if matrix:
            tasks, at = decisions.names_of(table["other_task"])
            by_task = np.bincount(at[owns & (at >= 0)], minlength=len(tasks)).tolist()
            for task, count in zip(tasks, by_task, strict=True):
                if count:
                    _add(self.matrix, {self.source: {source_of(task): count}})
        self._add_benchmarks(table, rules, rule_at, ordinals)

    def _add_benchmarks(
        self, table: pa.Table, rules: list[str], rule_at: NDArray[np.int64], ordinals: NDArray[np.uint64]
    ) -> None:
        benchmarks, at = decisions.names_of(table["benchmark"])
        for code, benchmark in enumerate(benchmarks):
            mine = np.flatnonzero(at == code)
            if not len(mine):
                continue
            for rule, count in zip(rules, np.bincount(rule_at[mine], minlength=len(rules)).tolist(), strict=True):
                if count:
                    _add(self.benchmarks, {benchmark: {rule: {self.source: count}}})
            items = table["item"].take(pa.array(mine)).unique().to_pylist()
            self.items[benchmark] = sorted({*self.items.get(benchmark, ()), *map(str, items)})
            _add(self.hit_rows, {benchmark: len(np.unique(ordinals[mine]))})

    def _sample(
        self, into: dict[str, list[Any]], key: str, table: pa.Table, mine: NDArray[np.int64], order: NDArray[Any]
    ) -> None:
        chosen = np.argsort(order, kind="stable")[:SAMPLES]
        some = table.take(pa.array(mine[chosen]))
        columns = {name: some[name].to_pylist() for name in ("ordinal", "rule", *_COLUMNS)}
        into[key] = [
            [order[at].item(), {"task": self.task, **{name: values[number] for name, values in columns.items()}}]
            for number, at in enumerate(chosen.tolist())
        ]

    def join(self, other: Self) -> None:
        """Add those of other tasks."""
        for counts in ("rules", "owned", "reported", "matrix", "benchmarks", "hit_rows"):
            _add(getattr(self, counts), getattr(other, counts))
        for name, modes in other.modes.items():
            known = self.modes.setdefault(name, {})
            for rule, some in modes.items():
                known[rule] = sorted({*known.get(rule, ()), *some})
        for benchmark, items in other.items.items():
            self.items[benchmark] = sorted({*self.items.get(benchmark, ()), *items})
        for mine, theirs in ((self.samples, other.samples), (self.closest, other.closest)):
            for key, some in theirs.items():
                mine[key] = heapq.nsmallest(SAMPLES, [*mine.get(key, ()), *some], key=_order)

    def raw(self) -> dict[str, Any]:
        """Return it JSON-like."""
        return asdict(self)

    def dump(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(self.raw(), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read it from JSON."""
        return cls(**json.loads(data))


def _order(entry: Sequence[Any]) -> tuple[Any, str, int]:
    return entry[0], entry[1]["task"], entry[1]["ordinal"]


def _add(mine: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Add counts, which may be nested."""
    for name, item in other.items():
        if isinstance(item, dict):
            _add(mine.setdefault(name, {}), item)
        else:
            mine[name] = mine.get(name, 0) + item


def drawn(task: str, rule: str, ordinals: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Draw a number for each row by task, rule and ordinal alone (SplitMix64); the smallest are samples."""
    with np.errstate(over="ignore"):
        z = ordinals * np.uint64(0x9E3779B97F4A7C15) + np.uint64(hash64(rule, task))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed >> np.uint64(11)  # so that JSON keeps it


def _margin(table: pa.Table, mine: NDArray[np.int64], rule: Rule | None) -> NDArray[np.float64] | None:
    """Return how far each finding is from its bound: of an attribute its distance, else the smaller score; None
    without."""
    some = table.take(pa.array(mine))
    scores = np.stack([some[name].to_numpy().astype(np.float64) for name in ("score_i", "score_r")])
    if np.isnan(scores).all():
        return None
    least = np.fmin(scores[0], scores[1])
    if rule is not None:
        ends = [abs(least - bound) for bound in rule.bounds if bound is not None]
        least = np.min(ends, axis=0) if ends else least
    rounded: NDArray[np.float64] = np.nan_to_num(least, nan=1e300).round(6)
    return rounded


def joined(tallies: Iterable[Tally]) -> Tally:
    """Return those of several groups of tasks."""
    total = Tally()
    for item in tallies:
        total.join(item)
    return total
