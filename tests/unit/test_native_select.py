"""The border of what select calls: shapes, dtypes, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from pairmill import _native

TEXTS = [pa.array(["Ab c", "", "c c c"]), pa.array(["x", "y z", "é"], pa.large_string())]


def test_a_score_is_the_sum_of_the_weights_of_the_counted_buckets() -> None:
    weights = np.random.default_rng(0).normal(size=(3, 40))
    sums, features = _native.select_score(TEXTS, weights, 2)
    assert (sums.shape, sums.dtype, features.dtype) == ((3, 3), np.float64, np.uint32)
    indptr, indices, counts = _native.curate_bucket_counts(TEXTS, 2, 40)
    for row in range(3):
        mine = slice(int(indptr[row]), int(indptr[row + 1]))
        assert features[row] == counts[mine].sum()
        np.testing.assert_allclose(sums[:, row], weights[:, indices[mine]] @ counts[mine], rtol=1e-12)
    one, _ = _native.select_score(TEXTS, weights[1:2], 2)
    assert one[0].tolist() == sums[1].tolist()


def test_counts_are_added_to_those_that_are_there() -> None:
    counts = np.ones(40, np.int64)
    assert _native.select_count(TEXTS, counts, 1, "sha256", np.array([True, False, True])) == 2 + 1 + 3 + 1
    assert counts.sum() == 40 + 7
    expected = np.ones(40, np.int64)
    for row in (0, 2):
        _native.select_count([column.slice(row, 1) for column in TEXTS], expected, 1, "sha256")
    assert counts.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _native.select_score([], np.zeros((1, 4))), "no columns"),
        (lambda: _native.select_score(TEXTS, np.zeros((0, 4))), "no target"),
        (lambda: _native.select_score(TEXTS, np.zeros((1, 0))), "buckets = 0"),
        (lambda: _native.select_score(TEXTS, np.zeros((1, 4)), 0), "ngrams = 0"),
        (lambda: _native.select_score(TEXTS, np.zeros((1, 4)), 2, "md5"), "hash"),
        (lambda: _native.select_count(TEXTS, np.zeros(4, np.int64), 2, "xxh3", np.ones(2, np.bool_)), "2 values"),
        (lambda: _native.select_count([TEXTS[0], TEXTS[1][:1]], np.zeros(4, np.int64)), "as many in each"),
        (lambda: _native.select_draws("a", np.array([-1]), 0, ""), "got row -1"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("seed", "salt"), [(0, ""), (7, "target"), (2**64 - 1, "ein Ziel ä")])
def test_draws_are_hashes_of_salt_and_row(seed: int, salt: str) -> None:
    rows = np.array([0, 9, 10, 12_345_678_901, 2**63 - 1])
    draws = _native.select_draws("data__a b.jsonl", rows, seed, salt)
    for row, draw in zip(rows.tolist(), draws.tolist(), strict=True):
        found = xxhash.xxh3_64_intdigest(f"{salt}\tdata__a b.jsonl:{row}".encode(), seed)
        assert draw == ((found >> 11) + 0.5) / 2**53
    noise = _native.select_draws("data__a b.jsonl", rows, seed, salt, noise=True)
    assert noise.tolist() == [pytest.approx(-math.log(-math.log(one)), rel=1e-14) for one in draws.tolist()]


def test_logarithms_are_within_one_unit_of_the_librarys_and_recorded() -> None:
    numbers = np.concatenate([np.random.default_rng(1).lognormal(0, 9, 10_000), [1.0, 1e-8, 5e-324, 1e308]])
    found = _native.select_ln(numbers)
    assert found.dtype == np.float64
    for number, one in zip(numbers.tolist(), found.tolist(), strict=True):
        assert abs(one - math.log(number)) <= math.ulp(one)
    # The same bits on every machine.
    assert [float(one).hex() for one in _native.select_ln(np.array([1e-8, 0.3, 3.0, 12345.678]))] == RECORDED


RECORDED = [
    "-0x1.26bb1bbb55516p+4",
    "-0x1.34378fcbda721p+0",
    "0x1.193ea7aad030ap+0",
    "0x1.2d79559791e31p+3",
]


def test_tokens_are_counted() -> None:
    texts = pa.array(["3+4 = 7", "", "你好 a-b"])
    assert _native.select_tokens(texts).tolist() == np.diff(pa.array(_native.curate_forms(texts)[1]).offsets).tolist()
