"""What attributes say of rows: bounds, numbers and groups of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pairmill.stages.select.attributes import grouped, names_of, numbers, within
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.score import score
from pairmill.stages.select.settings import Bound

REFERENCE = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("bound", "values", "kind", "inside"),
    [
        ({"min": 1.0}, [0, 1, 2, None], pa.int64(), [0, 1, 1, 0]),
        ({"max": 0.5}, [0.5, 0.6, float("nan"), None], pa.float64(), [1, 0, 0, 0]),
        ({"min": 1.0, "max": 2.0}, [0.9, 1.0, 2.0, 2.1], pa.float64(), [0, 1, 1, 0]),
        ({"in_": ["a", "b"]}, ["a", "c", "", None], pa.string(), [1, 0, 0, 0]),
        ({"in_": [""]}, ["a", "", None], pa.large_string(), [0, 1, 0]),
        ({"in_": [1, 2.5]}, [1.0, 2.5, 2.0, None], pa.float64(), [1, 1, 0, 0]),
        ({"in_": [3]}, [3, 4, None], pa.int32(), [1, 0, 0]),
        ({"in_": [True]}, [True, False, None], pa.bool_(), [1, 0, 0]),
        ({"in_": [1, 2], "min": 2.0}, [1, 2, 3], pa.int64(), [0, 1, 0]),
        ({"min": 1.0}, [True, False, None], pa.bool_(), [1, 0, 0]),
        ({"min": 1.0}, [None, None], pa.null(), [0, 0]),
        ({"in_": ["a"]}, [None], pa.null(), [0]),
        ({"max": 1.5}, [Decimal("1.25"), Decimal("1.75"), None], pa.decimal128(5, 2), [1, 0, 0]),
    ],
)
def test_bounds(bound: dict[str, Any], values: list[Any], kind: pa.DataType, inside: list[int]) -> None:
    result = within(Bound(attribute="a.b", **bound), pa.array(values, kind), None)
    assert result.tolist() == [bool(item) for item in inside]


def test_a_date_is_its_age_in_years() -> None:
    stamps = pa.array(
        [datetime(2025, 1, 1, tzinfo=UTC), None, datetime(2027, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
    )
    for column in (
        stamps,
        stamps.cast(pa.timestamp("ms", "UTC")),
        pa.array([date(2025, 1, 1), None, date(2027, 1, 1)]),
    ):
        ages = numbers(column, REFERENCE)
        assert ages[0] == pytest.approx(365 / 365.2425)
        assert np.isnan(ages[1])
        assert ages[2] == pytest.approx(-365 / 365.2425)
    assert within(Bound(attribute="a.b", max=1.0), stamps, REFERENCE).tolist() == [True, False, True]


def test_what_is_not_finite_is_null() -> None:
    assert np.isnan(numbers(pa.array([np.inf, -np.inf, np.nan, None]), None)).all()


@pytest.mark.parametrize(
    ("values", "kind", "edges", "names"),
    [
        (["b", "a", None, "a"], pa.string(), (), ["b", "a", "", "a"]),
        ([3, None, 3], pa.int64(), (), ["3", "", "3"]),
        ([True, False, None], pa.bool_(), (), ["true", "false", ""]),
        (
            [0.1, 0.2, 0.5, None, 9.0],
            pa.float64(),
            (0.2, 1.0),
            ["below 0.2", "0.2 to 1", "0.2 to 1", "", "1 and above"],
        ),
        ([], pa.string(), (), []),
        ([None, None], pa.null(), (), ["", ""]),
        ([None], pa.null(), (1.0,), [""]),
    ],
)
def test_groups(values: list[Any], kind: pa.DataType, edges: tuple[float, ...], names: list[str]) -> None:
    codes, result = grouped(pa.array(values, kind), edges, None)
    assert [result[code] for code in codes.tolist()] == names
    assert result == sorted(set(names))
    assert len(names_of((1.0, 2.0))) == 3


def test_null_and_a_group_without_deviation_score_nothing() -> None:
    values = np.array([1.0, 2.0, np.nan, 5.0])
    codes = np.array([0, 0, 0, 1])
    both = np.stack([values, values])
    groups = Moments.from_values(both, codes, ["a", "b"], np.ones(4, np.bool_))
    assert groups.scaled(0, values, codes).tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert score(both, codes, groups, (2.0, -0.5)).tolist() == [-1.5, 1.5, 0.0, 0.0]
