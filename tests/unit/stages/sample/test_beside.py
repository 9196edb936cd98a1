"""What was expected beside what was drawn: what is worth a look."""

import math

import pytest

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.formats.results.sample import SampleResult
from pairmill.stages.sample.preview.beside import Beside, beyond_chance, expected_beside_drawn

KEYS = ("rows", "itoks", "rtoks", "squares", "cov_rows", "cov_itoks", "cov_rtoks", "unique_rows", "unique_toks")


def group(errors: float) -> Beside:
    return Beside("x", tokens=1000, drawn_tokens=1000 + errors, variance=1)


@pytest.mark.parametrize(("groups", "errors", "count"), [(1, 3.1, 1), (1, 2.9, 0), (11_413, 4.5, 0), (11_413, 6, 1)])
def test_of_many_groups_some_are_off_by_chance(groups: int, errors: float, count: int) -> None:
    assert len(beyond_chance([group(-errors), *[group(0)] * (groups - 1)])) == count


@pytest.mark.parametrize("after", [{}, {"plan": "0" * 16}])
def test_what_passes_total_leaves_is_no_surprise(after: dict[str, str]) -> None:
    # Two passes of ten rows over three epochs: 6 2/3 rows an epoch, and every token of them.
    stats = dict(zip(KEYS, (10, 50, 100, 2500, 20, 100, 200, 10, 150), strict=True))
    result = SampleResult(
        layout="compact",
        stats={"a": stats},
        sources=[],
        prefixes={"a": "a"},
        rules={"a": {"passes_total": 2}},
        after=after,
    )
    data = {"layout": "compact", **result.to_data()}
    ledger = Ledger(10, 10, 20, measures={"epochs": 3})
    manifest = Manifest("sample", 5, "0" * 16, {"profile": "pairmill"}, [], ledger, [], data=data)
    (line,) = expected_beside_drawn(manifest)
    assert (line.rows, line.tokens) == (pytest.approx(20 / 3), pytest.approx(100))
    assert math.isnan(line.variance) == bool(after)
    assert after or line.errors == 0
