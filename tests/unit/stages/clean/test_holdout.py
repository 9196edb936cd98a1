"""How much is held out: the option's text, and the hash below which rows are."""

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from pairmill.errors import UsageError
from pairmill.stages.clean.holdout import Holdout
from pairmill.stages.clean.merge import hash_limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("0.01", Holdout(fraction=0.01)),
        (".5", Holdout(fraction=0.5)),
        ("1e-3", Holdout(fraction=0.001)),
        ("1", Holdout(rows=1)),
        ("500", Holdout(rows=500)),
    ],
)
def test_a_fraction_or_a_number_of_rows(text: str, expected: Holdout | None) -> None:
    assert Holdout.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("5%", "write holdout=0.05"),
        ("2.5 %", "write holdout=0.025"),
        ("500.0", "write holdout=500 for a number of rows"),
        ("2000000", "a fraction has no limit"),
        ("0", ""),
        ("0.0", ""),
        ("-1", ""),
        ("1.5", ""),
        ("true", ""),
        ("0.01 ", ""),
    ],
)
def test_anything_else_is_refused(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        Holdout.parse(text)
    said = str(raised.value)
    assert "holdout" in said
    assert "such as 0.01" in said
    assert hint in said


@pytest.mark.parametrize("fraction", [1e-9, 0.01, 0.3, 0.5, 0.7, 0.999999])
def test_a_fraction_takes_the_hashes_whose_draw_is_below_it(fraction: float) -> None:
    rng = random.Random(1)
    limit = int(hash_limit(Holdout(fraction=fraction), (), 9))
    near = [limit - 1, limit, limit + (1 << 11)]
    for value in [0, 2**64 - 1, *near, *(rng.getrandbits(64) for _ in range(500))]:
        u = (Fraction(value >> 11) + Fraction(1, 2)) / 2**53
        assert (value < limit) == (u < Fraction(fraction)), value


def test_a_number_takes_whole_records_of_the_smallest_hashes_that_fit() -> None:
    rng = random.Random(2)
    for _ in range(300):
        kinds = [rng.getrandbits(64) for _ in range(rng.randint(1, 12))]
        rows = [rng.choice(kinds) for _ in range(rng.randint(0, 40))]
        number = rng.randint(1, 45)
        pieces = np.array_split(np.array(rows, np.uint64), rng.randint(1, 5))
        limit = hash_limit(Holdout(rows=number), pieces, len(rows))
        expected, taken = set(), 0
        for one, count in sorted(Counter(rows).items()):
            taken += count
            if taken > min(number, len(rows) // 2):
                break
            expected.add(one)
        assert {one for one in rows if one < limit} == expected
