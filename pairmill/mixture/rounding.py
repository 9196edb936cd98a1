"""Integers in place of real numbers, with the same sum."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pairmill.rules import solve_level


def largest_remainder(values: Mapping[str, float], total: int | None = None) -> dict[str, int]:
    """Round each value down, and give what is missing to those with the largest remainders, ties by name.

    Args:
        values: 0 or more, by name.
        total: of the integers, not below the sum of the values rounded down; None = the rounded sum of the values, ties
            to even.
    """
    if total is None:
        total = round(math.fsum(values.values()))
    result = {name: math.floor(value) for name, value in values.items()}
    missing = total - sum(result.values())
    if missing < 0 or (missing and not result):
        raise ValueError(f"{total} is not a sum of {len(result)} values that are rounded up or down")
    each, more = divmod(missing, len(result) or 1)
    order = sorted(values, key=lambda name: (result[name] - values[name], name))
    for place, name in enumerate(order):
        result[name] += each + (place < more)
    return result


def spread(totals: Mapping[str, int], epochs: int) -> dict[str, list[int]]:
    """Share the rows of each name out over epochs: as evenly as integers can, and so that epochs differ by one in sum.

    The rows beyond what each epoch has go to the next epochs in turn, name after name.
    """
    rows = solve_level.spread(np.array([*totals.values()], np.int64), epochs)
    return dict(zip(totals, rows.tolist(), strict=True))
