"""Percentiles equal numpy's, however the rows are dealt out; what fits equals a count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pairmill.formats.token_lengths import CONTEXTS, PERCENTILES, TokenLengths


@pytest.mark.parametrize("seed", range(20))
def test_percentiles_are_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 2000))
    prompt = random.lognormal(5, 2, size).astype(np.uint32)
    response = random.lognormal(4, 1, size).astype(np.uint32)
    whole = TokenLengths()
    for part in np.array_split(np.arange(size), 3):
        some = TokenLengths()
        some.add(prompt[part], response[part])
        whole.join(TokenLengths.from_data(some.to_data()))
    described = whole.describe()
    assert described["rows"] == size
    total = prompt.astype(np.int64) + response
    for name, values in (("prompt", prompt), ("response", response), ("total", total)):
        expected = np.percentile(values, PERCENTILES, method="inverted_cdf").astype(int).tolist()
        assert described["percentiles"][name] == expected
    for context in CONTEXTS:
        fits = total <= context
        rows, tokens = described["fits"][str(context)]
        assert rows == pytest.approx(fits.mean())
        assert tokens == pytest.approx(response[fits].sum() / response.sum() if response.sum() else 1)


def test_of_no_rows_nothing_is_said() -> None:
    described = TokenLengths().describe()
    assert described["rows"] == 0
    assert described["percentiles"] == {"prompt": [], "response": [], "total": []}
    assert set(map(tuple, described["fits"].values())) == {(1.0, 1.0)}
