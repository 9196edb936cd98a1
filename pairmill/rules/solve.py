"""From what rules say of groups to the rows of each task in every epoch, before anything is drawn. Pure.

The order is fixed (docs/rules.md): caps first, times the factor of ``scale``; then ``tokens:`` and ``share:`` of all
groups together, which are one linear equation in the tokens of an epoch; then whole rows. Tokens are expected ones:
rows times the task's mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import UsageError, did_you_mean
from pairmill.rules.clause import AMOUNTS, Count, Group, Scale
from pairmill.rules.rule import Rule
from pairmill.rules.solve_level import Counts, Level, Reals, spread, whole_rows

_ENOUGH: Final = 1e18
"""A factor that lifts every cap above its pool."""
_SLACK: Final = 1e-9
_CAPS: Final = ("max_rows", "max_tokens", "fraction")


class Pool(NamedTuple):
    """What tasks have: rows that may be sampled, and their tokens after truncation. All int64 [tasks].

    Attributes:
        squares, resp_squares: sums of squared lengths of rows, and of responses.
        ranks: a number of each task that follows from its content; it decides ties.
    """

    rows: Counts
    inst_tokens: Counts
    resp_tokens: Counts
    squares: NDArray[Any]
    resp_squares: NDArray[Any]
    ranks: Counts

    def mean(self, count: Count = "all") -> Reals:
        """Return tokens of a row of each task on average; 0 of a task without rows."""
        tokens = self.resp_tokens if count == "response" else self.inst_tokens + self.resp_tokens
        return np.divide(tokens, self.rows, out=np.zeros(len(tokens)), where=self.rows > 0)


class Sharing(NamedTuple):
    """A group with an amount, which its tasks share.

    Args:
        group: what the rules say.
        tasks: numbers of its tasks, ascending.
        weights: rows of each of them at a level of 1, float64 [tasks of the group].
        repeat: how often each drawn row is there; of a number of tokens, the most that it may be.
    """

    group: Group
    tasks: NDArray[np.intp]
    weights: Reals
    repeat: int = 1

    @property
    def is_target(self) -> bool:
        """Whether it is to have a number of tokens, and not at most that."""
        return self.group.share is not None or self.group.tokens is not None

    @property
    def has_caps(self) -> bool:
        """Whether there is something to scale."""
        return any(getattr(self.group, key) is not None for key in _CAPS)

    @property
    def times(self) -> int:
        """How often each row that its level gives is there."""
        return 1 if self.is_target or self.group.within == "unimax" else self.repeat

    @property
    def most(self) -> float:
        """How often its level may give a row."""
        passes = self.group.passes
        if self.is_target:
            return float(self.repeat) if passes is None else passes
        return max(1.0, passes or 1.0) * self.repeat / self.times

    @property
    def unit(self) -> Count | None:
        """What is shared out: tokens, or rows if None."""
        return "all" if self.is_target else None if self.group.max_tokens is None else self.group.count


@dataclass(frozen=True)
class Scaled:
    """What ``scale`` found: the factor, and the tokens of an epoch with all scaled caps at nothing, and at all that
    they cap."""

    factor: float
    floor: float
    ceiling: float
    to: float
    count: Count


class Solved(NamedTuple):
    """The rules of tasks, and what they come to. Rows and tokens are of an epoch, on average over epochs.

    Attributes:
        rules: of each task, what is drawn.
        rows: of each task, float64 [tasks].
        errors: standard error of the tokens of each task, by the lengths of its rows, float64 [tasks].
        binds: by group with an amount, its key that decides; ``pool`` if all rows are taken.
        scale: if caps were scaled.
    """

    rules: tuple[Rule, ...]
    rows: Reals
    errors: Reals
    binds: Mapping[str, str]
    scale: Scaled | None = None


@dataclass
class Problem:
    """What is to be solved.

    Args:
        pool: of the tasks.
        rules: of each task, as its own keys say.
        caps: rows of each task that keys allow which ``rules`` do not say, before repeat; infinite = no limit,
            float64 [tasks].
        sharings: the groups with an amount; a task is in one at most.
        named: the tasks of each group, also of those without an amount.
        epochs: of the plan.
        scale: factor on caps.
        most: rows that each task may have in an epoch, on average over epochs, float64 [tasks]; None = any. Groups that
            are to have a number of tokens, or a share, take no more and count no more of others; caps do not know it.
    """

    pool: Pool
    rules: Sequence[Rule]
    caps: Reals
    sharings: Sequence[Sharing] = ()
    named: Mapping[str, NDArray[np.intp]] | None = None
    epochs: int = 1
    scale: Scale | None = None
    most: Reals | None = None

    def solve(self) -> Solved:
        """Return the rows of each task in every epoch.

        Raises:
            UsageError: shares leave nothing or cannot be reached, a group is named that is not there or that hangs on
                itself, or the scale is out of reach.
        """
        scaled = self._scaled(self.scale) if self.scale else None
        real = self._real(factor := scaled.factor if scaled else 1.0)
        self._require_reached(real)
        totals = self._totals(real)
        rows = np.where(totals < 0, real, totals / self.epochs)
        errors = np.sqrt(draw_variances(self.pool, np.rint(rows * self.epochs))) / self.epochs
        binds = {sharing.group.name: self._binds(sharing, self._limits(factor), factor) for sharing in self.sharings}
        return Solved(tuple(self._rules(totals)), rows, errors, binds, scaled)

    # Real numbers of rows.

    @cached_property
    def _mean(self) -> Mapping[str, Reals]:
        return {"all": self.pool.mean(), "response": self.pool.mean("response")}

    @cached_property
    def _caps(self) -> Reals:
        """Rows that the keys of each task allow before repeat, float64; infinite without such a key."""
        rows = np.array([math.inf if rule.max_per_file is None else rule.max_per_file for rule in self.rules])
        for number, rule in enumerate(self.rules):
            budget, mean = rule.max_response_tokens_per_file, self._mean["response"][number]
            if budget is not None and mean:
                # The row that reaches a budget is drawn: on average half of it is beyond, and more of a long one.
                beyond = self.pool.resp_squares[number] / self.pool.rows[number] / mean / 2 if budget else 0.0
                rows[number] = min(rows[number], (budget + beyond) / mean)
        result: Reals = np.minimum(rows, self.caps)
        return result

    @cached_property
    def _repeats(self) -> Reals:
        return np.array([rule.repeat for rule in self.rules], np.float64)

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        """Which tasks have a cap that is scaled."""
        result = np.isfinite(self._caps) & (self._caps > 0)
        for sharing in self.sharings:
            # Together: the tasks of a group are rounded together.
            result[sharing.tasks] = sharing.has_caps or (not sharing.is_target and bool(result[sharing.tasks].any()))
        keep = self.scale.keep if self.scale else ()
        for name in keep:
            result[self._repeats != 1 if name == "repeat" else (self.named or {})[name]] = False
        return result & (self.scale is not None)

    def _limits(self, factor: float) -> Reals:
        caps = self._caps.copy()
        caps[self._free & np.isfinite(caps)] *= factor
        return np.minimum(self.pool.rows, caps)

    def _real(self, factor: float) -> Reals:
        """Return rows of each task in an epoch, with caps times a factor."""
        limits = self._limits(factor)
        rows = limits * self._repeats
        for sharing in self.sharings:
            if not sharing.is_target:
                level = self._level(sharing, limits)
                rows[sharing.tasks] = (
                    level.rows(min(self._levels(sharing, level, limits, factor).values())) * sharing.times
                )
        for sharing, level, tokens in self._targets(rows, limits):
            rows[sharing.tasks] = level.rows(level.reaching(tokens, self._cost(sharing)))
        return rows

    def _cost(self, sharing: Sharing) -> Reals | None:
        """Return what a row of each of its tasks counts on average; None = rows are counted."""
        return None if sharing.unit is None else self._mean[sharing.unit][sharing.tasks]

    def _level(self, sharing: Sharing, limits: Reals) -> Level:
        rows = limits[sharing.tasks] * sharing.most
        return Level(sharing.weights, self._left(rows, sharing.tasks) if sharing.is_target else rows)

    def _left(self, rows: Reals, tasks: NDArray[np.intp] | slice = slice(None)) -> Reals:
        """Return what all epochs leave of these rows of tasks."""
        return rows if self.most is None else np.minimum(rows, self.most[tasks])

    def _budgets(self, sharing: Sharing, limits: Reals, factor: float) -> dict[str, float]:
        """Return the caps of a group by key, in what its level gives."""
        factor = factor if self._free[sharing.tasks].any() else 1.0
        have = float(self.pool.rows[sharing.tasks][sharing.weights > 0].sum())
        by = {"fraction": factor * have, "passes": float(limits[sharing.tasks].sum())}
        amounts = {key: getattr(sharing.group, key) for key in (*_CAPS, "passes")}
        return {
            key: amounts[key] * by.get(key, factor) * sharing.repeat / sharing.times
            for key in amounts
            if amounts[key] is not None
        }

    def _levels(self, sharing: Sharing, level: Level, limits: Reals, factor: float) -> dict[str, float]:
        """Return the levels that the caps of a group allow, by key; the lowest binds."""
        budgets = self._budgets(sharing, limits, factor)
        cost = {"max_tokens": self._cost(sharing)}
        return {"pool": level.top, **{key: level.reaching(budgets[key], cost.get(key)) for key in budgets}}

    def _binds(self, sharing: Sharing, limits: Reals, factor: float) -> str:
        if sharing.is_target:
            return "tokens" if sharing.group.share is None else "share"
        levels = self._levels(sharing, self._level(sharing, limits), limits, factor)
        return min(levels, key=lambda key: levels[key])

    # Groups that are to have a number of tokens.

    def _targets(self, rows: Reals, limits: Reals) -> list[tuple[Sharing, Level, float]]:
        """Return the level and the tokens of each, given the rows of the tasks that are in none."""
        targets = [sharing for sharing in self.sharings if sharing.is_target]
        if not targets:
            return []
        tokens = self._left(rows) * self._mean["all"]
        for sharing in targets:
            tokens[sharing.tasks] = 0.0
        parts = {sharing.group.name: self._part(sharing.group, tokens, ()) for sharing in targets}
        of_epoch = math.fsum(part for _, part in parts.values())
        if of_epoch >= 1 - _SLACK:
            raise _too_many(targets)
        whole = (float(tokens.sum()) + math.fsum(number for number, _ in parts.values())) / (1 - of_epoch)
        return [
            (sharing, self._level(sharing, limits), number + part * whole)
            for sharing, (number, part) in zip(targets, parts.values(), strict=True)
        ]

    def _part(self, group: Group, tokens: Reals, above: tuple[str, ...]) -> tuple[float, float]:
        """Return the tokens of a group: a number, and a part of those of the epoch; ``tokens`` are of other tasks."""
        if group.name in above:
            circle = " of ".join((*above[above.index(group.name) :], group.name))
            raise UsageError("groups hang on each other in a circle", where=group.where, got=f"tokens: {circle}")
        if group.share is not None:
            return 0.0, group.share
        if group.tokens is None:
            return float(tokens[(self.named or {})[group.name]].sum()), 0.0
        if group.tokens.tokens is not None:
            return float(group.tokens.tokens), 0.0
        name = group.tokens.group
        if name not in (self.named or {}):
            raise UsageError(
                f"no group is called {name!r}",
                where=group.where,
                expected=", ".join(self.named or {}),
                hint=did_you_mean(name, self.named or {}),
            )
        other = next((sharing.group for sharing in self.sharings if sharing.group.name == name), None)
        number, part = self._part(other or Group(name=name, clauses=(), where=""), tokens, (*above, group.name))
        return group.tokens.fraction * number, group.tokens.fraction * part

    def _require_reached(self, real: Reals) -> None:
        """Raise UsageError if a group cannot have the tokens that it is to have."""
        limits = self._limits(1.0)
        tokens_of = self._left(real) * self._mean["all"]
        for sharing, level, tokens in self._targets(real, limits):
            most = float((level.rows(level.top) * self._mean["all"][sharing.tasks]).sum())
            if sharing.group.share and not tokens:
                what = "a share of nothing: no other task has a row"
                raise UsageError(what, where=sharing.group.where, hint="leave share: out")
            if tokens <= most * (1 + _SLACK):
                continue
            others = float(tokens_of.sum() - tokens_of[sharing.tasks].sum())
            share = math.floor(1e4 * most / (others + most)) / 100 if most else 0.0
            fits = f"tokens: {math.floor(most)}" if sharing.group.share is None else f"share: {share:g}% of epoch"
            passes = math.ceil(100 * tokens * sharing.most / most - _SLACK) / 100 if most else 0.0
            whole = limits[sharing.tasks] * sharing.most
            left = bool((self._left(whole, sharing.tasks) < whole).any())
            raise UsageError(
                f"the group {sharing.group.name!r} cannot have as many tokens",
                where=sharing.group.where,
                got=f"{wanted_of(sharing.group)}: {tokens:,.0f} tokens an epoch",
                expected=f"at most {most:,.0f}, passes over its tasks: {sharing.most:g}"
                + " and what passes_total leaves" * left,
                hint=(f"write {fits}, or " + ("raise passes_total" if left else f"passes: {passes:g}"))
                if most
                else "none of its tasks has a row" + " that passes_total leaves" * left,
            )

    # The factor.

    def _scaled(self, scale: Scale) -> Scaled:
        def tokens(factor: float) -> float:
            rows = self._real(factor)
            for sharing, _, wanted in self._targets(rows, self._limits(factor)):
                # As if it had what it is to have: what it lacks is refused by that, and not by the scale.
                have = float((rows * self._mean["all"])[sharing.tasks].sum())
                rows[sharing.tasks] *= wanted / have if have else 1.0
            return float((rows * self._mean[scale.count]).sum())

        floor, ceiling = tokens(0.0), tokens(_ENOUGH)
        if not floor * (1 - _SLACK) <= scale.to <= ceiling * (1 + _SLACK):
            below = scale.to < floor
            raise UsageError(
                f"the caps cannot be scaled to so {'few' if below else 'many'} tokens",
                where=f"{scale.where} scale",
                got=f"to: {scale.to:,}",
                expected=f"{math.ceil(floor):,} to {math.floor(ceiling):,}"
                f"{' response' if scale.count == 'response' else ''} tokens an epoch",
                hint=("cap what has no cap" + ", or shorten keep:" * bool(scale.keep))
                if below
                else "raise repeat:, or add tasks",
            )
        low, high = 0.0, 1.0
        while tokens(high) < scale.to and high < _ENOUGH:
            low, high = high, high * 2
        for _ in range(64):
            middle = (low + high) / 2
            low, high = (low, middle) if tokens(middle) >= scale.to else (middle, high)
        return Scaled(high, floor, ceiling, scale.to, scale.count)

    # Whole rows.

    def _totals(self, real: Reals) -> Counts:
        """Return the rows of tasks over all epochs, int64; -1 of those that their own keys decide."""
        totals = np.full(len(self.rules), -1, np.int64)
        limits, ranks, epochs = self._limits(1.0), self.pool.ranks, self.epochs
        for sharing in self.sharings:
            if sharing.is_target or self._free[sharing.tasks].any():
                continue
            budgets = {
                key: value * epochs * sharing.times for key, value in self._budgets(sharing, limits, 1.0).items()
            }
            rows = min((round(budgets[key]) for key in budgets if key != "max_tokens"), default=None)
            totals[sharing.tasks] = whole_rows(
                real[sharing.tasks] * epochs, ranks[sharing.tasks], rows, budgets.get("max_tokens"), self._cost(sharing)
            )
        now = np.where(totals < 0, real, totals / epochs)
        for sharing, _, tokens in self._targets(now, limits):
            part = real[sharing.tasks] * epochs
            totals[sharing.tasks] = whole_rows(
                part, ranks[sharing.tasks], None, tokens * epochs, self._cost(sharing), nearest=True
            )
        if self.scale:
            now, cost, free = np.where(totals < 0, real, totals / epochs), self._mean[self.scale.count], self._free
            left = self.scale.to - float((now * cost)[~free].sum())
            totals[free] = whole_rows(real[free] * epochs, ranks[free], None, left * epochs, cost[free], nearest=True)
        return totals

    def _rules(self, totals: Counts) -> list[Rule]:
        rules = [*self.rules]
        for task in np.flatnonzero(np.isfinite(self.caps) & (totals < 0)).tolist():
            cap, limit = rules[task].max_per_file, int(self.caps[task])
            rules[task] = replace(rules[task], max_per_file=limit if cap is None else min(cap, limit))
        groups = [self._free.nonzero()[0], *(sharing.tasks[~self._free[sharing.tasks]] for sharing in self.sharings)]
        for tasks in groups:
            tasks = tasks[np.argsort(self.pool.ranks[tasks], kind="stable")]
            for task, rows in zip(tasks.tolist(), spread(totals[tasks], self.epochs).tolist(), strict=True):
                rules[task] = replace(rules[task], rows=tuple(rows))
        return rules


def wanted_of(group: Group) -> str:
    """Return the amounts of a group, as its rule says them."""
    texts = []
    for key in AMOUNTS:
        value = getattr(group, key)
        if key == "share" and value is not None:
            texts.append(f"share: {100 * value:.6g}% of epoch")
        elif key == "tokens" and value is not None:
            texts.append(f"tokens: {value.fraction:g} of {value.group}" if value.group else f"tokens: {value.tokens:,}")
        elif value is not None:
            texts.append(f"{key}: {value:,}")
    return ", ".join(texts)


def draw_variances(pool: Pool, drawn: Reals) -> Reals:
    """Return the variance of the tokens of the rows that each task draws, float64 [tasks], as
    :func:`pairmill.mixture.shares.draw_variance` does from the first row of a walk on."""
    rows = pool.rows.astype(np.float64)
    lengths = np.maximum(0.0, np.divide(pool.squares, rows, out=np.zeros(len(rows)), where=rows > 0) - pool.mean() ** 2)
    last = np.mod(drawn, np.maximum(1.0, rows))
    result: Reals = lengths * last * (rows - last) / np.maximum(1.0, rows - 1)
    return result


def _too_many(targets: Sequence[Sharing]) -> UsageError:
    shares = [sharing.group for sharing in targets if sharing.group.share is not None]
    return UsageError(
        "the shares of an epoch leave nothing for the other tasks",
        where=shares[-1].where,
        got=" and ".join(f"{100 * (group.share or 0):.6g}% of {group.name}" for group in shares),
        expected="less than 100% together, with what tokens: takes of these groups",
        hint="lower a share; tasks that are to have all of an epoch need none: leave the others out",
    )
