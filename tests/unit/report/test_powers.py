"""Counts by powers of two, and their labels."""

import numpy as np

from pairmill.report.powers import bins, by_size


def test_numbers_are_counted_by_powers_of_two() -> None:
    counts = by_size(np.array([0, 1, 2, 3, 4, 5, 1024, 1025]))
    assert {power: int(count) for power, count in enumerate(counts) if count} == {0: 2, 1: 1, 2: 2, 3: 1, 10: 1, 11: 1}
    weighted = by_size(np.array([3, 4]), np.array([10, 5]))
    assert (int(weighted[2]), int(weighted.sum())) == (15, 15)
    assert by_size(np.empty(0, np.int64)).sum() == 0


def test_labels_leave_out_empty_counts_at_both_ends_alone() -> None:
    assert bins(by_size(np.array([3, 4, 1025])).tolist())[:2] == [("≤ 4", 2), ("≤ 8", 0)]
    assert len(bins(by_size(np.array([3, 4, 1025])).tolist())) == 10
    assert bins([0] * 64) == []
