"""Shares a budget out over sources: UniMax, exponent, temperature, weights, all with caps. Pure arithmetic, float64.

All methods are one: sources get what is proportional to their weight, but none more than its limit, and what that
leaves goes to the others by weight. UniMax has equal weights. The result does not depend on the order of the mappings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from pairmill.errors import UsageError


@dataclass(frozen=True)
class Allotment:
    """What each source gets.

    Attributes:
        tokens: by name, in the order of the weights; of whatever the budget counts.
        unfilled: what is left of the budget although every source with a weight has its limit; exactly 0.0 if a source
            has less than its limit.
    """

    tokens: dict[str, float]
    unfilled: float


def share_out(weights: Mapping[str, float], budget: float, limits: Mapping[str, float] | None = None) -> Allotment:
    """Share a budget out by weight, up to limits.

    It is the rule: every free source whose part by weight of what is left exceeds its limit is fixed at the limit,
    until there is none; the free ones share the rest. Here sources are sorted by limit/weight, so it is one pass.

    Args:
        weights: by name, 0 or more; a source of weight 0 gets nothing.
        budget: 0 or more.
        limits: by name, 0 or more; a source without one has none.

    Raises:
        UsageError: a number is negative or not finite, or a limit names an unknown source.
    """
    limits = {} if limits is None else limits
    _check(weights, budget, limits)
    free = [(limits.get(name, math.inf) / weight, name) for name, weight in weights.items() if weight and budget]
    free.sort()
    names = [name for _, name in free]
    # Sums of what remains, from the end: a difference of large sums would lose the small ones.
    remaining = list(accumulate(weights[name] for name in reversed(names)))[::-1]
    left, fixed = budget, 0
    while fixed < len(names) and free[fixed][0] < left / remaining[fixed]:
        left -= limits[names[fixed]]
        fixed += 1
    tokens = dict.fromkeys(weights, 0.0)
    for name in names[:fixed]:
        tokens[name] = float(limits[name])
    left = max(0.0, math.fsum([budget, *(-tokens[name] for name in names[:fixed])]))
    whole = math.fsum(weights[name] for name in names[fixed:])
    for name in names[fixed:]:
        tokens[name] = min(left * (weights[name] / whole), limits.get(name, math.inf))
    return Allotment(tokens, 0.0 if fixed < len(names) else left)


def unimax(counts: Mapping[str, float], budget: float, limits: Mapping[str, float] | None = None) -> Allotment:
    """Share a budget out as evenly as the limits allow (arXiv 2304.09151); a source of count 0 gets nothing."""
    return share_out({name: float(count > 0) for name, count in counts.items()}, budget, limits)


def exponent_weights(counts: Mapping[str, float], exponent: float) -> dict[str, float]:
    """Weights in proportion to ``count ** exponent``; the largest is 1.

    Above 1 an exponent favours the head, below 1 it flattens, 0 is uniform. A count of 0 has the weight 0. A
    temperature T is the exponent 1/T.

    Raises:
        UsageError: the exponent is negative or not finite.
    """
    if not (math.isfinite(exponent) and exponent >= 0):
        raise UsageError("out of range", where="exponent", got=repr(exponent), expected="0 or more")
    largest = max(counts.values(), default=0)
    # Of the ratio, because a large count to a large power would overflow.
    return {name: (count / largest) ** exponent if count else 0.0 for name, count in counts.items()}


def limits_of(
    counts: Mapping[str, float], max_epochs: float | None, caps: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the most that each source may give: its cap in epochs times its count; sources without a cap are left out.

    Args:
        counts: of one pass.
        max_epochs: the cap of all sources; None = no cap.
        caps: of single sources, in place of that.
    """
    capped = {name: (caps or {}).get(name, max_epochs) for name in counts}
    return {name: cap * counts[name] for name, cap in capped.items() if cap is not None}


def _check(weights: Mapping[str, float], budget: float, limits: Mapping[str, float]) -> None:
    if not (math.isfinite(budget) and budget >= 0):
        raise UsageError("out of range", where="budget", got=repr(budget), expected="0 or more")
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise UsageError("out of range", where=f"weights.{name}", got=repr(weight), expected="0 or more")
    for name, limit in limits.items():
        if not limit >= 0:
            raise UsageError("out of range", where=f"limits.{name}", got=repr(limit), expected="0 or more")
        if name not in weights:
            raise UsageError("no such source", where=f"limits.{name}", expected=", ".join(weights))
