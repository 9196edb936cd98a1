"""What section 12 of the curation spec says of mixtures, in plain Python, as slow and as literal as it can be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction


def unimax(counts: Mapping[str, float], budget: float, cap: float) -> dict[str, float]:
    """Sources ascending by count, ties by name: each gets an equal part of what is left, or its cap."""
    order = sorted(counts, key=lambda name: (counts[name], name))
    left, found = Fraction(budget), {}
    for place, name in enumerate(order):
        given = min(left / (len(order) - place), Fraction(cap) * Fraction(counts[name]))
        found[name] = given
        left -= given
    return {name: float(value) for name, value in found.items()}


def by_weight(
    weights: Mapping[str, float], budget: float, limits: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Every free source whose part exceeds its limit is fixed there, until none is; the rest is shared by weight."""
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    most = {name: Fraction(limit) for name, limit in limits.items() if not math.isinf(limit)}
    free = {name for name in exact if exact[name]}
    found = dict.fromkeys(exact, Fraction(0))
    while True:
        left = Fraction(budget) - sum(found[name] for name in exact if name not in free)
        whole = sum(exact[name] for name in free)
        over = [name for name in free if name in most and left * exact[name] / whole > most[name]]
        if not over:
            break
        for name in over:
            found[name] = most[name]
            free.discard(name)
    for name in free:
        found[name] = left * exact[name] / whole
    return {name: float(value) for name, value in found.items()}, 0.0 if free else float(left)


def exponent_weights(counts: Mapping[str, float], exponent: float) -> dict[str, float]:
    """Counts to a power, with 60 digits."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        raw = {name: Decimal(count) ** Decimal(exponent) if count else Decimal(0) for name, count in counts.items()}
        whole = sum(raw.values())
        return {name: float(value / whole) for name, value in raw.items()}


def largest_remainder(values: Mapping[str, float], total: int) -> dict[str, int]:
    """Round down, then one more to those with the largest remainders, ties by name, until the sum is right."""
    found = {name: math.floor(value) for name, value in values.items()}
    left = {name: values[name] - found[name] for name in values}
    while sum(found.values()) < total:
        best = max(left.values())
        name = min(name for name in left if left[name] == best)
        found[name] += 1
        left[name] = -1.0
    return found
