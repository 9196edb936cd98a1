"""What an epoch has on average of rows that stay together is what many draws have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pairmill.mixture.units import Eligible, Units

SEEDS = 300


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ([3] * 40, (50, 50, 50)),
        ([1] * 90, (40, 40)),
        ([2, 4, 6] * 10, (31, 31)),
        ([1, 2, 3, 5, 8, 11] * 10, (100, 100, 100)),
        ([1, 2, 3, 5, 8, 11] * 10, (700, 20)),
        ([1] * 30 + [40], (30, 60)),
    ],
)
def test_expected_rows_tokens_and_error_are_those_of_draws(sizes: list[int], rows: Sequence[int]) -> None:
    random = np.random.default_rng(1)
    units = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    resp = random.integers(2, 20, len(units)) + units % 7 * 5
    lengths = resp + 2
    eligible = Eligible(np.arange(len(units), dtype=np.uint32), np.full(len(units), 2), resp)
    made = Units.from_rows(eligible, units, rows)
    drawn = np.zeros((SEEDS, 2))
    for seed in range(SEEDS):
        for part in made.parts(rows, f"seed {seed}"):
            drawn[seed] += np.array([sum(part.rows), sum(part.rows) * lengths[part.members].mean()]) / len(rows)
    expected = made.expected(rows)
    assert expected.largest == max(size for size in sizes if size <= min(rows))
    assert drawn[:, 0].mean() == pytest.approx(expected.rows, abs=0.25)
    assert drawn[:, 1].mean() == pytest.approx(expected.tokens, abs=4 * expected.error / np.sqrt(SEEDS) + 0.5)
    assert drawn[:, 1].std() == pytest.approx(expected.error, rel=0.15, abs=0.01)
