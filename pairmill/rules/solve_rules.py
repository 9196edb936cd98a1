"""What the rules of a file mean for the tasks of a folder: the problem that :mod:`pairmill.rules.solve` solves, and
its outcome by group."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import UsageError
from pairmill.log import event
from pairmill.rules.book import Rules
from pairmill.rules.clause import AMOUNTS, Clause, Group
from pairmill.rules.match import Matcher, Selector
from pairmill.rules.rule import Rule
from pairmill.rules.solve import Pool, Problem, Scaled, Sharing, Solved, wanted_of
from pairmill.rules.solve_level import Counts, Reals, weights_of

_NEAR = 1e-9
NO_RULE = "(no rule)"
"""The group of the tasks that no rule matches."""


class GroupResult(NamedTuple):
    """What a group comes to. Rows and tokens are of an epoch, on average over epochs.

    Attributes:
        name: of the group; of a rule without one, what it says of names.
        where: file and rule.
        wanted: its amounts, as the rule says them; empty = only those of each task.
        binds: the key that decides; ``pool`` if all rows are taken, empty without an amount.
        pool_rows, pool_tokens: that may be sampled, once.
        rows, tokens, response_tokens: expected.
        error: standard error of ``tokens``, by the lengths of rows.
    """

    name: str
    where: str
    wanted: str
    binds: str
    tasks: int
    pool_rows: int
    pool_tokens: int
    rows: float
    tokens: float
    response_tokens: float
    error: float

    @property
    def passes(self) -> float:
        """Over the pool, in an epoch."""
        return self.rows / self.pool_rows if self.pool_rows else 0.0

    def to_manifest(self) -> dict[str, Any]:
        """Return it JSON-like."""
        return self._asdict()


class SolvedRules(NamedTuple):
    """What is drawn of each task. Rows and tokens are of an epoch, on average over epochs, float64 [tasks].

    Attributes:
        rules: of each task, in effect.
        rows, tokens, response_tokens: expected.
        errors: standard errors of ``tokens``, by the lengths of rows.
        group_of: the place in ``groups`` of each task, int64 [tasks].
        groups: in the order of the rules; last the tasks without a rule, if there are some.
        scale: if caps were scaled.
    """

    rules: tuple[Rule, ...]
    rows: Reals
    tokens: Reals
    response_tokens: Reals
    errors: Reals
    group_of: Counts
    groups: tuple[GroupResult, ...]
    scale: Scaled | None = None


def solve_rules(
    rules: Rules,
    tasks: Sequence[str],
    pool: Pool,
    epochs: int,
    base: Sequence[Rule] | None = None,
    most: Reals | None = None,
) -> SolvedRules:
    """Solve what rules say of groups.

    Args:
        pool: what they have; of those with ``select_rows`` only the rows that may be drawn.
        epochs: of the plan.
        base: the rule of each task, where it is not what ``rules.match`` says.
        most: as :class:`Problem` has it.

    Raises:
        UsageError: as :meth:`Problem.solve`, or rules contradict each other.
    """
    clauses = [rules.clause_of(name) for name in tasks]
    each = [*base] if base is not None else [rules.match(name)[0] for name in tasks]
    group_of = np.array([-1 if clause is None else clause.group for clause in clauses], np.int64)
    order = np.argsort(group_of, kind="stable")
    bounds = np.searchsorted(group_of[order], np.arange(len(rules.groups) + 1))
    caps = _caps_of_tasks(clauses, pool)
    sharings: list[Sharing] = []
    named: dict[str, NDArray[np.intp]] = {}
    binds: dict[str, str] = {}
    for place, group in enumerate(rules.groups):
        mine = named[group.name] = order[bounds[place] : bounds[place + 1]]
        if not group.bounded or not len(mine):
            continue
        if len(mine) == 1 and (cap := _cap_of_one(group, int(mine[0]), pool)) is not None:
            binds[group.name] = "pool" if cap >= pool.rows[mine[0]] else _first_amount(group)
            caps[mine] = np.minimum(caps[mine], cap)
            continue
        names = [tasks[task] for task in mine]
        sharings.append(_sharing(group, mine, [each[task] for task in mine], [clauses[task] for task in mine], names))
    sharings = [_weighted(sharing, pool) for sharing in sharings]
    solved = Problem(pool, each, caps, sharings, named, epochs=epochs, scale=rules.top.scale, most=most).solve()
    return _outcome(rules, solved, pool, group_of, {**binds, **solved.binds})


def _caps_of_tasks(clauses: Sequence[Clause | None], pool: Pool) -> Reals:
    """Return the rows that ``per_task`` allows beside what today's keys say, float64 [tasks]."""
    caps, mean = np.full(len(clauses), math.inf), pool.mean()
    for task, clause in enumerate(clauses):
        if clause is not None and clause.fraction is not None:
            caps[task] = round(clause.fraction * int(pool.rows[task]))
        if clause is not None and clause.max_tokens is not None and mean[task]:
            caps[task] = min(caps[task], math.floor(clause.max_tokens / mean[task] + _NEAR))
    return caps


def _cap_of_one(group: Group, task: int, pool: Pool) -> int | None:
    """Return the rows that a group allows which has one task; None if it is not so simple.

    A file that a program writes has a rule for each of thousands of tasks.
    """
    if group.share is not None or group.tokens is not None or group.passes is not None:
        return None
    caps = []
    if group.max_rows is not None:
        caps.append(group.max_rows)
    if group.fraction is not None:
        caps.append(round(group.fraction * int(pool.rows[task])))
    mean = pool.mean(group.count)[task] if group.max_tokens is not None else 0.0
    if group.max_tokens is not None and mean:
        caps.append(math.floor(group.max_tokens / mean + _NEAR))
    return min(caps, default=int(pool.rows[task]))


def _first_amount(group: Group) -> str:
    return next(key for key in AMOUNTS if getattr(group, key) is not None)


def _sharing(
    group: Group, mine: NDArray[np.intp], each: Sequence[Rule], clauses: Sequence[Clause | None], names: Sequence[str]
) -> Sharing:
    """Return a group with the factors of its tasks; the others are of its tasks too."""
    repeats = sorted({rule.repeat for rule in each if not rule.is_off()}) or [1]
    if len(repeats) > 1:
        raise UsageError(
            f"the rules of the group {group.name!r} repeat rows differently, and share an amount",
            where=group.where,
            got=" and ".join(f"repeat: {number}" for number in repeats),
            expected="one repeat: for all rules of a group with an amount",
            hint="make two groups of it",
        )
    factors = np.array([1.0 if clause is None else clause.weight for clause in clauses])
    factors[[rule.is_off() for rule in each]] = 0.0
    if group.weights:
        matcher, values = Matcher([Selector(globs=(glob,)) for glob in group.weights]), [*group.weights.values(), 1.0]
        first = [matcher.first(name) for name in names]
        factors *= [values[number] for number in first]
        used = set(first)
        if idle := [glob for number, glob in enumerate(group.weights) if number not in used]:
            event(f"{group.where}: weights that are for no task of the group: {', '.join(idle)}", level=logging.WARNING)
    return Sharing(group, mine, factors, repeats[0])


def _weighted(sharing: Sharing, pool: Pool) -> Sharing:
    """Return it with rows of its tasks in place of factors."""
    mine = sharing.tasks
    cost = None if sharing.unit is None else pool.mean(sharing.unit)[mine]
    return sharing._replace(weights=sharing.weights * weights_of(sharing.group.within, pool.rows[mine], cost))


def _outcome(rules: Rules, solved: Solved, pool: Pool, group_of: Counts, binds: Mapping[str, str]) -> SolvedRules:
    tokens, response_tokens = solved.rows * pool.mean(), solved.rows * pool.mean("response")
    count = len(rules.groups)
    places = np.where(group_of < 0, count, group_of)

    def sums(values: Any) -> list[float]:
        result: list[float] = np.bincount(places, values, minlength=count + 1).tolist()
        return result

    pools = pool.rows, pool.inst_tokens + pool.resp_tokens
    columns = zip(*map(sums, (None, *pools, solved.rows, tokens, response_tokens, solved.errors**2)), strict=True)
    groups = [*rules.groups, Group(name=NO_RULE, clauses=(), where=rules.where)]
    results = tuple(
        GroupResult(
            name=group.name,
            where=group.where,
            wanted=wanted_of(group),
            binds=binds.get(group.name, ""),
            tasks=int(each[0]),
            pool_rows=int(each[1]),
            pool_tokens=int(each[2]),
            rows=each[3],
            tokens=each[4],
            response_tokens=each[5],
            error=math.sqrt(each[6]),
        )
        for group, each in zip(groups, columns, strict=True)
    )
    return SolvedRules(
        rules=solved.rules,
        rows=solved.rows,
        tokens=tokens,
        response_tokens=response_tokens,
        errors=solved.errors,
        group_of=places,
        groups=results if results[-1].tasks else results[:-1],
        scale=solved.scale,
    )
