"""Figures of many samples of one question."""

from collections import Counter
from collections.abc import Sequence

from pairmill.text import boxed

LARGEST = 999


def vote(text: str) -> int | None:
    """Return the integer from 1 to 999 that the box, or else the whole text, is."""
    inside = boxed(text)
    inside = (text if inside is None else inside).strip()
    try:
        value = int(inside)  # Python refuses more than 4,300 digits itself
    except ValueError:
        return None
    return value if 1 <= value <= LARGEST else None


def chosen(votes: Sequence[int], most: int) -> list[int]:
    """Return the most frequent votes; of equally frequent ones that which was given first."""
    return [value for value, _ in Counter(votes).most_common(most)]


def agreement(votes: Sequence[int]) -> int:
    """Return how often the most frequent vote was given."""
    return max(Counter(votes).values(), default=0)


def pass_at(samples: int, correct: int, k: int) -> float:
    """Return the probability that at least one of k samples drawn without replacement is correct (arXiv:2107.03374, eq.
    1).

    Raises:
        ValueError: k is larger than the number of samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"k = {k} of {samples} samples")
    wrong = 1.0
    for drawn in range(k):
        wrong *= max(0, samples - correct - drawn) / (samples - drawn)
    return 1.0 - wrong
