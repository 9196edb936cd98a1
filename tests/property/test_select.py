"""Cuts, quotas and sums of select are those of plain definitions, on any numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pairmill.stages.select import cuts, moments, quotas, table
from pairmill.stages.select.cuts import Candidates
from pairmill.stages.select.settings import Quota
from tests.support.definitions.selection import allotted, whole_numbers

KEYS = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 5e-324, -5e-324]),
    st.floats(-1, 1),
)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 4)), max_size=40)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that each way through the search is taken."""
    monkeypatch.setattr(cuts, "_FEW", 4)
    monkeypatch.setattr(cuts, "_COUNTERS", 64)


# A stall of a busy machine is not a slow strategy.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROWS, st.lists(st.integers(0, 25), min_size=4, max_size=4), st.integers(1, 70))
@example([(0.0, 0, 1), (-0.0, 0, 1), (0.0, 0, 1)], [2, 0, 0, 0], 1)
def test_the_rows_taken_are_those_of_sorting(rows: list[tuple[float, int, int]], wanted: list[int], step: int) -> None:
    keys = np.array([item[0] for item in rows], np.float64)
    codes = np.array([item[1] for item in rows], np.int64)
    weights = np.array([item[2] for item in rows], np.int64)
    every = Candidates(np.arange(len(rows)), cuts.to_bits(keys), codes, weights)

    def stream() -> Iterator[Candidates]:
        for start in range(0, len(rows), step):
            mask = np.zeros(len(rows), np.bool_)
            mask[start : start + step] = True
            yield every.where(mask)

    expected = set()
    for code, quota in enumerate(wanted):
        taken = 0
        for at in sorted((at for at in range(len(rows)) if rows[at][1] == code), key=lambda at: (-rows[at][0], at)):
            if taken >= quota:
                break
            expected.add(at)
            taken += rows[at][2]
    cut = cuts.find(stream, np.array(wanted, np.int64))
    assert set(np.flatnonzero(cut.take(every)).tolist()) == expected


@given(st.lists(KEYS, max_size=30))
def test_integers_of_keys_have_their_order(keys: list[float]) -> None:
    some = np.array(keys, np.float64)
    bits = cuts.to_bits(some)
    assert (bits > 0).all()
    assert [keys[at] for at in np.argsort(bits, kind="stable")] == sorted(keys)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)
VALUES = st.lists(st.tuples(st.one_of(NUMBERS, st.just(math.nan)), st.integers(0, 2)), max_size=40)


@given(VALUES, st.integers(0, 40))
@example([(1e9 + 1e-7, 0), (1e9, 0), (1e9 - 1e-7, 0)], 1)
@example([(5e-324, 0), (-5e-324, 0), (1e150, 1)], 2)
def test_means_and_deviations_are_those_of_all_rows_in_any_parts(rows: list[tuple[float, int]], cut: int) -> None:
    values = np.array([[row[0] for row in rows]], np.float64).reshape(1, -1)
    codes = np.array([row[1] for row in rows], np.int64)
    names = ["a", "b", "c"]
    merged = moments.Moments.merge(
        moments.Moments.from_values(values[:, some], codes[some], names, every[some])
        for every in [np.ones(len(rows), np.bool_)]
        for some in (slice(0, cut), slice(cut, None))
    )
    for code, name in enumerate(names):
        mine = [Fraction(value) for value, group in rows if group == code and not math.isnan(value)]
        count = sum(group == code for _, group in rows)
        assert (name in merged.names) == (count > 0)
        if not count:
            continue
        at = merged.names.index(name)
        assert merged.rows[at] == count
        if mine:
            mean = sum(mine, Fraction(0)) / len(mine)
            variance = sum(((value - mean) ** 2 for value in mine), Fraction(0)) / len(mine)
            close = 8 * len(mine) * math.ulp(max(abs(float(value)) for value in mine))
            assert merged.means[0, at] == pytest.approx(float(mean), rel=0, abs=close)
            assert merged.deviations[0, at] == pytest.approx(math.sqrt(float(variance)), rel=1e-9, abs=close)
        else:
            assert (merged.means[0, at], merged.deviations[0, at]) == (0, 0)


@given(NUMBERS, st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_equal_values_have_no_deviation(value: float, counts: list[int]) -> None:
    """z is 0 where all values are equal: not even a rounding may make a deviation of them."""
    merged = moments.Moments.merge(
        moments.Moments.from_values(np.full((1, count), value), np.zeros(count, np.int64), ["a"], np.ones(count, bool))
        for count in counts
    )
    assert (merged.means[0, 0], merged.deviations[0, 0]) == (value, 0)


HAVE = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**7), min_size=1)


@given(HAVE, st.integers(1, 10**8), st.sampled_from(["proportional", "unimax", "exponent", "weights"]), st.data())
def test_quotas_are_those_of_section_12(have: dict[str, int], budget: int, method: str, data: st.DataObject) -> None:
    quota = Quota()
    if method == "unimax":
        quota = Quota(method="unimax")
    elif method == "exponent":
        quota = Quota(method="exponent", exponent=data.draw(st.floats(0.1, 2)))
    elif method == "weights":
        numbers = st.integers(0, 5).map(float)
        weights = data.draw(st.dictionaries(st.sampled_from(sorted(have)), numbers, min_size=1))
        if not any(weights.values()):
            return
        quota = Quota(method="weights", weights=weights)
    made = quotas.split_budget(quota, budget, have)
    by_weight = quotas.weigh(quota, have)
    most = sum(count for name, count in have.items() if by_weight[name])
    assert sum(made.given.values()) == min(budget, most)
    assert all(0 <= made.given[name] <= have[name] for name in have)
    assert all(made.given[name] == 0 for name in have if not by_weight[name])
    wanted = allotted(by_weight, min(budget, most), have)
    assert made.given == {name: pytest.approx(wanted[name], abs=1.0) for name in have}
    exact = whole_numbers(wanted, min(budget, most))
    # A tie of remainders is decided by the last bits of float64.
    assert sum(abs(made.given[name] - exact[name]) for name in have) <= 2


@given(st.lists(st.tuples(st.integers(0, 19), st.lists(st.integers(0, 255), max_size=9)), max_size=9))
def test_a_table_in_a_file_is_one_in_memory(writes: list[tuple[int, list[int]]]) -> None:
    types = {"a": "<u8", "b": "u1"}
    with table.open_table(20, types) as item, table.open_table(20, types, held=0) as two:
        for start, values in writes:
            some = np.array(values[: 20 - start], np.uint8)
            for made in (item, two):
                made.write("a", start, some.astype(np.uint64) << np.uint64(50))
                made.write("b", start, some)
        for name in types:
            for start, stop in ((0, 20), (3, 9), (5, 5)):
                assert item.read(name, start, stop).tolist() == two.read(name, start, stop).tolist()
