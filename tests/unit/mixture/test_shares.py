"""Standard errors of shares, against draws without replacement."""

import random
import statistics

import pytest

from pairmill.mixture import shares
from pairmill.mixture.making import CountedSource, WantedPhase, make
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import Inputs, Mixture, PlannedTask
from pairmill.mixture.shares import Drawn

DRAWS = 4000


def walk(draw: random.Random, lengths: list[int], before: int, drawn: int) -> int:
    """Tokens of the next rows of a walk of permutations."""
    rows: list[int] = []
    while len(rows) < before + drawn:
        rows += draw.sample(lengths, len(lengths))
    return sum(rows[before : before + drawn])


@pytest.mark.parametrize(("before", "drawn"), [(0, 7), (0, 20), (15, 11), (3, 20), (3, 17), (19, 46), (0, 40)])
def test_the_variance_of_a_walk(before: int, drawn: int) -> None:
    draw = random.Random(f"{before} {drawn}")
    lengths = [draw.randint(1, 400) for _ in range(20)]
    variance = shares.length_variance(20, sum(lengths), sum(one * one for one in lengths))
    assert variance == pytest.approx(statistics.pvariance(lengths))
    expected = shares.draw_variance(20, variance, before, drawn)
    found = statistics.pvariance([walk(draw, lengths, before, drawn) for _ in range(DRAWS)])
    # The error of a variance of 4,000 draws is about 2 %.
    assert found == pytest.approx(expected, rel=0.12, abs=1e-9)
    assert (expected == 0) == ((before % 20 == 0 and drawn % 20 == 0) or (before + drawn) % 20 == before % 20 == 0)


def test_whole_passes_have_no_error() -> None:
    for rows in (1, 2, 17):
        assert shares.draw_variance(rows, 5.0, 3 * rows, 4 * rows) == 0
    assert shares.draw_variance(17, 5.0, 3, 17) > 0
    assert shares.draw_variance(0, 0.0, 0, 0) == 0


def test_the_error_of_a_share() -> None:
    draw = random.Random("share")
    lengths = {name: [draw.randint(1, top) for _ in range(50)] for name, top in {"a": 900, "b": 40}.items()}
    drawn = {"a": 13, "b": 31}
    parts = {
        name: shares.drawn_of(PlannedTask(name, 50, sum(some), sum(one * one for one in some), 0), 0, drawn[name])
        for name, some in lengths.items()
    }
    expected = shares.share_errors(parts)
    found = []
    for _ in range(DRAWS):
        tokens = {name: walk(draw, some, 0, drawn[name]) for name, some in lengths.items()}
        found.append(tokens["a"] / sum(tokens.values()))
    assert statistics.pstdev(found) == pytest.approx(expected["a"], rel=0.1)
    assert expected["a"] == pytest.approx(expected["b"])


def test_comparison_allows_a_tenth_of_a_point_or_four_errors() -> None:
    drawn = {"a": Drawn(500, 0.0), "b": Drawn(500, 0.0)}
    found = shares.compare({"a": 0.5009, "b": 0.4991}, drawn)
    assert all(one.within and one.tolerance == 0.001 for one in found.values())
    assert not shares.compare({"a": 0.5011, "b": 0.4989}, drawn)["a"].within
    uncertain = {"a": Drawn(500, 100.0), "b": Drawn(500, 100.0)}
    found = shares.compare({"a": 0.52, "b": 0.48}, uncertain)
    assert found["a"].tolerance == pytest.approx(4 * found["a"].error)
    assert found["a"].within
    assert shares.compare({"a": 0.0}, {"a": Drawn()})["a"].realised == 0


def test_predicted_and_expected_shares_of_phases() -> None:
    sources = [CountedSource(name, (PlannedTask(name, 100, 1000, 12_000, 0),)) for name in ("a", "b")]
    phases = [
        WantedPhase("first", 0.5, 1, Recipe.parse("weights", weights={"a": 3, "b": 1})),
        WantedPhase("last", 0.5, 3, Recipe.parse("weights", weights={"a": 0, "b": 1})),
    ]
    made = make(sources, phases, budget=800)
    plan = Mixture(0, 4, 65, 2, made.budget, made.unfilled, made.phases, made.sources, Inputs("0"))
    assert shares.predicted(plan, "first") == {"a": 0.75, "b": 0.25}
    assert shares.predicted(plan, "last") == {"a": 0, "b": 1}
    assert shares.predicted(plan) == {"a": 0.375, "b": 0.625}
    assert {name: one.tokens for name, one in shares.expected(plan).items()} == {"a": 300, "b": 500}
    last = shares.expected(plan, 1, 4)
    assert (last["a"].tokens, last["b"].tokens) == (0, 400)
    # 10 rows were drawn before: 40 of the rest of a pass.
    assert last["b"].variance == pytest.approx(20 * (40 * 60 + 0) / 99)
