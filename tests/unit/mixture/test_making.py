"""Budgets, caps, phases and rows: what comes out where it can be said in a line, and what is refused."""

import math
import re
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.mixture import capacity
from pairmill.mixture.export import prefix_config
from pairmill.mixture.making import CountedSource, PlannedMixture, WantedPhase, make
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import Inputs, Mixture, PlannedTask
from pairmill.mixture.planning import exponent_weights, share_out
from pairmill.mixture.rounding import largest_remainder

LENGTH = 10


def source(name: str, *rows: int) -> CountedSource:
    return CountedSource(
        name,
        tuple(
            PlannedTask(f"{name}__{number}", one, one * LENGTH, one * LENGTH**2, 0) for number, one in enumerate(rows)
        ),
    )


def one(recipe: Recipe, epochs: int = 1) -> list[WantedPhase]:
    return [WantedPhase("all", 1.0, epochs, recipe)]


def tokens(made: PlannedMixture, phase: str = "all") -> dict[str, float]:
    return {source.name: source.tokens for source in made.sources if source.phase == phase}


def rows(made: PlannedMixture) -> dict[str, list[int]]:
    """Of each task the rows of every epoch of the training."""
    return {key[0]: wanted for key, wanted in mixture(made).wants().items()}


def mixture(made: PlannedMixture) -> Mixture:
    epochs = made.phases[-1].epochs[1]
    return Mixture(0, epochs, 65, 2, made.budget, made.unfilled, made.phases, made.sources, Inputs("0"))


UNIMAX = Recipe.parse("unimax")


def test_a_cap_may_differ_by_source_and_be_below_one() -> None:
    sources = [source("a", 10), source("b", 10), source("c", 100)]
    made = make(sources, one(Recipe.parse("unimax", max_epochs=4.0)), budget=600, caps={"a": 0.5, "b": 3.0})
    assert tokens(made) == pytest.approx({"a": 50, "b": 275, "c": 275})
    assert {one.name: one.cap for one in made.sources} == {"a": 0.5, "b": 3.0, "c": 4.0}


def test_a_cap_of_a_large_source_leaves_no_budget_while_others_have_room() -> None:
    """By ascending size, as where all caps are alike, the last source would be capped and 30 tokens missing."""
    made = make([source("a", 1), source("b", 2)], one(UNIMAX), budget=100, caps={"a": 10.0, "b": 1.0})
    assert tokens(made) == pytest.approx({"a": 80, "b": 20})


def test_without_a_budget_there_is_one_pass_or_what_caps_allow() -> None:
    sources = [source("a", 10), source("b", 90)]
    assert make(sources, one(Recipe.parse("english"))).budget == 1000
    assert make(sources, one(Recipe.parse("unimax", max_epochs=0.25))).budget == 250
    assert make(sources, one(Recipe.parse("weights", weights={"a": 1, "b": 0}))).budget == 100


def test_caps_count_over_all_phases() -> None:
    phases = [
        WantedPhase("first", 0.5, 2, Recipe.parse("unimax", max_epochs=2.0)),
        WantedPhase("last", 0.5, 2, Recipe.parse("unimax", max_epochs=2.0)),
    ]
    made = make([source("small", 10), source("large", 1000)], phases, budget=600)
    # 300 a phase: 150 of each, and of small only 50 are left for the second.
    assert tokens(made, "first") == pytest.approx({"small": 150, "large": 150})
    assert tokens(made, "last") == pytest.approx({"small": 50, "large": 250})
    assert rows(made)["small__0"] == [8, 7, 3, 2]


def test_a_phase_may_have_no_part_of_a_source() -> None:
    phases = [
        WantedPhase("web", 0.9, 3, Recipe.parse("weights", weights={"web": 1, "books": 0})),
        WantedPhase("books", 0.1, 1, Recipe.parse("weights", weights={"web": 0, "books": 1})),
    ]
    made = make([source("web", 90), source("books", 10)], phases, budget=1000)
    assert rows(made) == {"web__0": [30, 30, 30, 0], "books__0": [0, 0, 0, 10]}


@pytest.mark.parametrize(("passes", "epochs"), [(1, 10), (2, 3), (3, 2), (1, 7), (5, 5)])
def test_whole_passes_are_whole(passes: int, epochs: int) -> None:
    """Every row as often as the cap says, though no epoch could have the same number of rows."""
    sources = [source("a", 101, 7, 1), source("b", 1003)]
    made = make(sources, one(Recipe.parse("unimax", max_epochs=passes), epochs), budget=1e9, allow_unfilled=True)
    for counted in sources:
        for task in counted.tasks:
            wanted = rows(made)[task.task]
            assert sum(wanted) == passes * task.rows
            assert max(wanted) - min(wanted) <= 1


def test_whole_passes_over_two_phases() -> None:
    phases = [
        WantedPhase("a", 0.37, 3, Recipe.parse("english")),
        WantedPhase("b", 0.63, 4, Recipe.parse("english")),
    ]
    made = make([source("s", 101, 7, 1, 333)], phases)
    assert {name: sum(wanted) for name, wanted in rows(made).items()} == {
        "s__0": 101, "s__1": 7, "s__2": 1, "s__3": 333
    }  # fmt: skip


def test_few_rows_are_drawn_in_some_epochs() -> None:
    made = make([source("a", 3), source("b", 30_000)], one(Recipe.parse("english"), 10))
    assert sorted(rows(made)["a__0"]) == [0] * 7 + [1] * 3


def test_epochs_are_equal_where_that_is_near_enough() -> None:
    made = make([source("a", 12_345, 54_321)], one(Recipe.parse("unimax"), 7), budget=300_003)
    (found,) = made.sources
    assert [type(task.rows_per_epoch) for task in found.tasks] == [int, int]
    real = {task.task: found.tokens * task.rows / (found.epochs and 666_660) / 7 for task in found.tasks}
    assert {task.task: task.rows_per_epoch for task in found.tasks} == largest_remainder(real)


def test_within_a_source_tasks_get_as_much_as_they_are_or_the_same() -> None:
    sources = [source("a", 10, 90)]
    assert rows(make(sources, one(UNIMAX), budget=200)) == {"a__0": [2], "a__1": [18]}
    assert rows(make(sources, one(UNIMAX), budget=100, within="unimax")) == {"a__0": [5], "a__1": [5]}
    capped = make(sources, one(Recipe.parse("unimax", max_epochs=1.0)), budget=400, within="unimax")
    assert rows(capped) == {"a__0": [10], "a__1": [30]}


def test_within_a_source_a_task_keeps_its_cap_over_all_phases() -> None:
    recipe = Recipe.parse("unimax", max_epochs=1.0)
    phases = [WantedPhase("first", 0.5, 1, recipe), WantedPhase("last", 0.5, 1, recipe)]
    made = make([source("a", 10, 90)], phases, budget=500, within="unimax")
    # 25 rows a phase: the small task has 10 rows in all.
    assert rows(made) == {"a__0": [10, 0], "a__1": [15, 25]}


def test_a_source_without_a_row_gives_nothing() -> None:
    made = make([source("a", 0), source("b", 10), CountedSource("none", ())], one(UNIMAX), budget=50)
    assert tokens(made) == {"a": 0, "b": 50, "none": 0}
    assert rows(made) == {"a__0": [0], "b__0": [5]}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "exponent", "exponent": 2.0, "temperature": 3.0}, "temperature: .*say the same.*one of them"),
        ({"name": "exponent"}, "exponent: required option missing"),
        ({"name": "temperature"}, "temperature: required option missing"),
        ({"name": "temperature", "exponent": 1.0}, "exponent: method: temperature does not read"),
        ({"name": "weights"}, "weights: required option missing"),
        ({"name": "unimax", "exponent": 1.0}, "exponent: method: unimax does not read it"),
        ({"name": "code", "exponent": 1.3}, "exponent: method: code does not read it"),
        ({"name": "english", "max_epochs": 4.0}, "max_epochs: .*cap of its own; got 4"),
        ({"name": "unimax", "max_epochs": 0.0}, "max_epochs: out of range; got 0; expected above 0.*weight 0"),
        ({"name": "unimax", "max_epochs": -1.0}, "max_epochs: out of range; got -1"),
        ({"name": "exponent", "exponent": -1.0}, "exponent: out of range; got -1.0"),
        ({"name": "temperature", "temperature": 0.0}, "temperature: out of range"),
    ],
)
def test_recipes_that_say_too_much_or_too_little(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Recipe.parse(**asked)


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        (
            Recipe.parse("unimax", max_epochs=2.0),
            {"budget": 3000},
            "budget: .*got 3,000.*at most 2,000.*allow_unfilled",
        ),
        (Recipe.parse("unimax"), {"budget": 0.0}, "budget: out of range"),
        (Recipe.parse("unimax"), {"caps": {"webb": 2.0}}, "no source is called 'webb'.*did you mean 'web'"),
        (Recipe.parse("unimax"), {"caps": {"web": 0.0}}, "caps.web: out of range"),
        (Recipe.parse("weights", weights={"web": 1, "bookz": 2}), {}, "called 'bookz'.*did you mean 'books'"),
        (Recipe.parse("weights", weights={"web": 1}), {}, "a source has no weight; got none for 'books'"),
        (Recipe.parse("weights", weights={"web": 0, "books": 0}), {}, "no source with a weight has a row"),
        (Recipe.parse("weights", weights={"web": -1, "books": 2}), {}, "weights.web: out of range"),
    ],
)
def test_what_the_data_does_not_allow(recipe: Recipe, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        make([source("web", 90), source("books", 10)], one(recipe), **options)
    assert caught.value.exit_code == 2


def test_unfilled_is_said_if_it_is_allowed() -> None:
    made = make([source("a", 10)], one(Recipe.parse("english"), 1), budget=250, allow_unfilled=True)
    assert (made.budget, made.unfilled, tokens(made)) == (250, 150, {"a": 100})


def test_more_rows_in_an_epoch_than_there_are() -> None:
    sources = [source("a", 10), source("b", 90)]
    made = make(sources, one(Recipe.parse("unimax", max_epochs=4.0), 3), budget=4000)
    with pytest.raises(UsageError, match="epochs are too few; got 3 epochs of 134 rows") as caught:
        capacity.check(mixture(made))
    (least,) = re.findall(r"give it (\d+) epochs", str(caught.value))
    capacity.check(mixture(make(sources, one(Recipe.parse("unimax", max_epochs=4.0), int(least)), budget=4000)))


def test_rules_for_other_samplers() -> None:
    made = make([source("a", 10), source("ab", 90)], one(Recipe.parse("unimax", max_epochs=4.0), 2), budget=300)
    assert prefix_config(mixture(made), long_context={"a__0": "drop"}) == (
        "# 2 epochs, context 65, min_resp_length 2\n"
        '- {prefix: "ab__0", max_per_file: 7}\n'
        '- {prefix: "a__0", max_per_file: 7, long_context: drop}\n'
    )


def test_rules_say_one_phase() -> None:
    phases = [WantedPhase("first", 0.5, 1, UNIMAX), WantedPhase("last", 0.5, 1, UNIMAX)]
    plan = mixture(make([source("a", 10)], phases, budget=600))
    assert "max_per_file: 10, repeat: 3}" in prefix_config(plan, "last")
    with pytest.raises(UsageError, match="several phases"):
        prefix_config(plan)
    with pytest.raises(UsageError, match="did you mean 'last'"):
        prefix_config(plan, "lsat")


def test_large_counts_to_large_powers() -> None:
    weights = exponent_weights({"a": 10**300, "b": 10**299, "none": 0}, 50)
    assert weights == pytest.approx({"a": 1, "b": 1e-50, "none": 0})
    assert math.isfinite(sum(weights.values()))


@pytest.mark.parametrize(
    ("weights", "budget", "limits"),
    [
        ({"a": -1.0}, 1, {}),
        ({"a": math.nan}, 1, {}),
        ({"a": 1.0}, -1, {}),
        ({"a": 1.0}, math.inf, {}),
        ({"a": 1.0}, 1, {"a": -1.0}),
        ({"a": 1.0}, 1, {"b": 1.0}),
    ],
)
def test_numbers_that_cannot_be_shared_out(weights: dict[str, float], budget: float, limits: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        share_out(weights, budget, limits)
