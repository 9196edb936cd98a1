"""How many rows or response tokens each group gives. The arithmetic is that of mixtures: pairmill.mixture.planning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import floor

from pairmill.errors import UsageError
from pairmill.mixture.planning import exponent_weights, share_out
from pairmill.mixture.rounding import largest_remainder
from pairmill.stages.select.settings import Quota


@dataclass(frozen=True)
class Quotas:
    """Parts of a budget by group, in its unit.

    Args:
        asked: their part by the rule alone, whatever they have; a real number.
        given: their quota: none above what they have, and what others lack is shared out by the same rule.
    """

    asked: dict[str, float]
    given: dict[str, int]


def split_budget(quota: Quota, budget: int, have: Mapping[str, int]) -> Quotas:
    """Share a budget out to groups, given what each has, in rows or in response tokens.

    Quotas are integers by largest remainder, ties by name. A group's weight is what it has, or that to a power, or 1,
    or the number that was given.
    """
    weights = weigh(quota, have)
    most = min(budget, sum(count for name, count in have.items() if weights[name]))
    real = share_out(weights, most, {name: float(count) for name, count in have.items()}).tokens
    return Quotas(share_out(weights, budget).tokens, _round(real, most, have))


def weigh(quota: Quota, have: Mapping[str, int]) -> dict[str, float]:
    """Return the weight of each group."""
    if quota.method == "weights":
        return {name: float(quota.weights.get(name, 0)) for name in have}
    if quota.method == "unimax":
        return {name: float(count > 0) for name, count in have.items()}
    return exponent_weights(have, quota.exponent if quota.method == "exponent" else 1.0)


def refuse_unknown(quota: Quota, names: Sequence[str], group_by: str | None) -> None:
    """Raise UsageError for a weight of a group that no candidate is in."""
    for name in quota.weights:
        if name not in names:
            near = get_close_matches(name, names, 1)
            shown = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
            raise UsageError(
                f"no row is in the group {name!r}",
                where="attributes.quota.weights",
                got=repr(name),
                expected=f"groups by {group_by}: {shown}" if group_by else "group_by: <attribute>",
                hint=f"write {near[0]!r}" if near else "",
            )


def _round(real: Mapping[str, float], total: int, have: Mapping[str, int]) -> dict[str, int]:
    """Round to integers of this sum, none above what its group has: a real number may be a bit off an integer."""
    real = {name: min(value, float(have[name])) for name, value in real.items()}
    # Sums of float64 may miss the total by more than one row where counts are near 2**53.
    whole = {name: floor(value) for name, value in real.items()}
    missing = total - sum(whole.values())
    if 0 <= missing <= len(whole):
        whole = largest_remainder(real, total)
    for name in sorted(whole, key=lambda name: (whole[name] - real[name], name)):
        whole[name] = min(whole[name], have[name])
    left = total - sum(whole.values())
    for name in sorted(whole):
        if left <= 0:
            break
        more = min(left, have[name] - whole[name]) if real[name] else 0
        whole[name] += more
        left -= more
    return whole
