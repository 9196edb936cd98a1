"""Whatever the sizes, weights and caps are: budgets are those of the spec's own loop, and rows add up."""

from __future__ import annotations

import math
import random

import pytest

from pairmill.mixture import planning
from pairmill.mixture.making import CountedSource, PlannedMixture, WantedPhase, make
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import PlannedTask
from pairmill.mixture.rounding import largest_remainder, spread
from tests.support.definitions import mixture_weights

ROUNDS = 300
CLOSE = 1e-9


def counts(draw: random.Random, *, most: float = 11) -> dict[str, int]:
    names = [f"s{number}" for number in range(draw.randint(1, 14))]
    found = {name: int(10 ** draw.uniform(0, most)) if draw.random() < 0.9 else 0 for name in names}
    if not any(found.values()):
        found[names[0]] = 7
    if draw.random() < 0.3:  # ties
        found.update(dict.fromkeys(names[: len(names) // 2], 1000))
    return found


def test_unimax_is_the_loop_over_ascending_sources() -> None:
    draw = random.Random("unimax")
    filled = 0
    for _ in range(ROUNDS):
        sizes, cap = counts(draw), draw.choice([0.1, 0.5, 1.0, 2.5, 4.0, 64.0])
        budget = sum(sizes.values()) * 10 ** draw.uniform(-3, 1.5)
        got = planning.unimax(sizes, budget, planning.limits_of(sizes, cap))
        assert got.tokens == pytest.approx(mixture_weights.unimax(sizes, budget, cap), rel=CLOSE)
        assert got.unfilled == pytest.approx(max(0, budget - cap * sum(sizes.values())), rel=CLOSE, abs=CLOSE * budget)
        filled += not got.unfilled
    assert ROUNDS / 4 < filled < ROUNDS


def test_weights_and_caps_are_the_loop_of_fixing_sources() -> None:
    draw = random.Random("weights")
    capped = 0
    for _ in range(ROUNDS):
        sizes = counts(draw)
        weights = {name: draw.choice([0.0, 1.0, 10 ** draw.uniform(-6, 6)]) for name in sizes}
        weights[next(iter(weights))] = 1.0
        limits = {name: size * draw.choice([0.01, 0.5, 1, 4, math.inf]) for name, size in sizes.items() if size}
        limits |= {name: 0.0 for name in sizes if name not in limits}
        budget = sum(sizes.values()) * 10 ** draw.uniform(-4, 1)
        got = planning.share_out(weights, budget, limits)
        tokens, unfilled = mixture_weights.by_weight(weights, budget, limits)
        for name, expected in tokens.items():
            assert got.tokens[name] == pytest.approx(expected, rel=1e-7, abs=CLOSE * budget)
            assert got.tokens[name] <= limits[name]
        assert got.unfilled == pytest.approx(unfilled, rel=CLOSE, abs=CLOSE * budget)
        capped += any(0 < got.tokens[name] == limits[name] for name in sizes)
    assert capped > ROUNDS / 4


def test_exponents_are_powers_of_sizes() -> None:
    draw = random.Random("exponent")
    for _ in range(60):
        sizes, exponent = counts(draw), draw.choice([0.0, 0.3, 0.7, 1.0, 1.3, 3.8])
        got = planning.exponent_weights(sizes, exponent)
        whole = math.fsum(got.values())
        shares = {name: weight / whole for name, weight in got.items()}
        assert shares == pytest.approx(mixture_weights.exponent_weights(sizes, exponent), rel=CLOSE)


def test_the_order_of_names_does_not_matter() -> None:
    draw = random.Random("order")
    for _ in range(60):
        sizes = counts(draw)
        mixed = dict(draw.sample([*sizes.items()], len(sizes)))
        budget = sum(sizes.values()) * draw.uniform(0.1, 3)
        one, other = (planning.unimax(some, budget, planning.limits_of(some, 2.0)) for some in (sizes, mixed))
        assert one.tokens == other.tokens
        assert largest_remainder({n: c / 7 for n, c in sizes.items()}) == largest_remainder(
            {n: c / 7 for n, c in mixed.items()}
        )


def test_integers_are_those_of_the_definition() -> None:
    draw = random.Random("integers")
    for _ in range(ROUNDS):
        values = {f"t{number}": draw.choice([0.0, 0.5, draw.uniform(0, 40)]) for number in range(draw.randint(1, 30))}
        total = round(math.fsum(values.values()))
        got = largest_remainder(values)
        assert got == mixture_weights.largest_remainder(values, total)
        epochs = draw.randint(1, 9)
        rows = spread(got, epochs)
        assert {name: sum(each) for name, each in rows.items()} == got
        sums = [sum(each[epoch] for each in rows.values()) for epoch in range(epochs)]
        assert max(sums) - min(sums) <= 1
        assert all(max(each) - min(each) <= 1 for each in rows.values())


def random_sources(draw: random.Random) -> list[CountedSource]:
    sources = []
    for number in range(draw.randint(1, 6)):
        tasks = []
        for task in range(draw.randint(1, 5)):
            rows = draw.choice([0, 1, 3, draw.randint(2, 3000)])
            tokens = rows * draw.randint(1, 900)
            tasks.append(PlannedTask(f"s{number}__{task}", rows, tokens, tokens * tokens // max(1, rows), 0))
        sources.append(CountedSource(f"s{number}", tuple(tasks)))
    return sources if any(one.response_tokens for one in sources) else random_sources(draw)


def random_phases(draw: random.Random, cap: float) -> list[WantedPhase]:
    count = draw.choice([1, 1, 2, 3])
    parts = [draw.uniform(0.1, 1) for _ in range(count)]
    recipes = [
        draw.choice(
            [
                Recipe.parse("unimax", max_epochs=cap),
                Recipe.parse("exponent", exponent=1.3, max_epochs=cap),
            ]
        )
        for _ in parts
    ]
    return [
        WantedPhase(f"p{number}", part / sum(parts), draw.randint(1, 7), recipe)
        for number, (part, recipe) in enumerate(zip(parts, recipes, strict=True))
    ]


def test_rows_of_phases_give_the_tokens_and_keep_the_caps() -> None:
    draw = random.Random("rows")
    lists = capped = 0
    for _ in range(ROUNDS):
        sources, cap = random_sources(draw), draw.choice([0.3, 1.0, 2.0, 5.0])
        phases = random_phases(draw, cap)
        budget = cap * sum(one.response_tokens for one in sources) * draw.uniform(0.05, 1.2)
        within = draw.choice(["proportional", "unimax"])
        made = make(sources, phases, budget=budget, within=within, allow_unfilled=True)  # type: ignore[arg-type]
        lists += check_rows(made, proportional=within == "proportional")
        capped += check_caps(made, sources, cap)
    assert lists > 50
    assert capped > 50


def rows_in(task: PlannedTask, epochs: int) -> int:
    return sum(task.wanted(epoch) for epoch in range(epochs))


def check_rows(made: PlannedMixture, *, proportional: bool) -> int:
    """Rows of each task in each phase against its tokens; how many tasks differ between epochs."""
    lists = 0
    counts_of = {phase.name: phase.count for phase in made.phases}
    for source in made.sources:
        count = counts_of[source.phase]
        for task in source.tasks:
            rows = rows_in(task, count)
            if isinstance(task.rows_per_epoch, tuple):
                lists += 1
                assert max(task.rows_per_epoch) - min(task.rows_per_epoch) == 1
            if not task.response_tokens:
                assert rows == 0
            elif proportional:  # a row for rounding, a row that an earlier phase owes, or 1 % where epochs are equal
                assert abs(rows - source.epochs * task.rows) <= max(2, 0.01 * source.epochs * task.rows)
    return lists


def check_caps(made: PlannedMixture, sources: list[CountedSource], cap: float) -> int:
    """No task has more than its cap and a row an epoch; those that are at their cap have exactly that."""
    phases = {phase.name: phase.count for phase in made.phases}
    drawn: dict[str, int] = {}
    tokens: dict[str, float] = {}
    for source in made.sources:
        tokens[source.name] = tokens.get(source.name, 0) + source.tokens
        for task in source.tasks:
            drawn[task.task] = drawn.get(task.task, 0) + rows_in(task, phases[source.phase])
    exact = 0
    for counted in sources:
        assert tokens[counted.name] <= cap * counted.response_tokens * (1 + CLOSE)
        full = tokens[counted.name] >= cap * counted.response_tokens * (1 - CLOSE)
        for task in counted.tasks:
            assert drawn[task.task] <= cap * task.rows + sum(phases.values())
            if full and task.rows:
                assert abs(drawn[task.task] - cap * task.rows) <= 1, (task, drawn[task.task])
                exact += cap * task.rows == drawn[task.task]
    return exact
