"""What groups, shares and scales mean in rows: against brute force, and against programs that were there before."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairmill.errors import UsageError
from pairmill.mixture import planning
from pairmill.rules.book import Rules
from pairmill.rules.clause import Budget, Group, Scale
from pairmill.rules.rule import Rule
from pairmill.rules.solve import Pool, Problem, Sharing, Solved
from pairmill.rules.solve_level import Level, spread, weights_of, whole_rows
from pairmill.rules.solve_rules import solve_rules

# What hypothesis loads before its first draw takes seconds where other tests run beside it.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
counts = st.integers(0, 60)
Groups = dict[tuple[int, ...], dict[str, Any]]


def pool(rows: list[int], mean: list[int] | int = 10, part: float = 0.4) -> Pool:
    """Tasks whose rows have ``mean`` tokens each, of which ``part`` are of responses."""
    number = np.array(rows, np.int64)
    tokens = number * np.array(mean, np.int64)
    resp = (tokens * part).astype(np.int64)
    squares = tokens * np.array(mean, np.float64)
    return Pool(number, tokens - resp, resp, squares, squares * part**2, np.arange(len(rows)))


def solve(
    of: Pool,
    groups: Groups | None = None,
    rules: list[Rule] | None = None,
    limits: list[float] | None = None,
    epochs: int = 1,
    scale: Scale | None = None,
    most: list[float] | None = None,
) -> Solved:
    """Solve groups, given as the keys of a rule by numbers of tasks; keys besides are ``repeat`` and ``factors``."""
    count = len(of.rows)
    made, named, each = [], {}, [*(rules or [Rule()] * count)]
    for tasks, keys in (groups or {}).items():
        keys = {"name": f"g{tasks[0]}", "clauses": (0,), "where": "rules.yaml rule 1", **keys}
        repeat, factors = keys.pop("repeat", 1), keys.pop("factors", [1.0] * len(tasks))
        group = Group(**keys)
        named[group.name] = np.array(tasks)
        for task in tasks:
            each[task] = replace(each[task], repeat=repeat)
        if group.bounded:
            sharing = Sharing(group, np.array(tasks), np.array(factors), repeat)
            cost = None if sharing.unit is None else of.mean(sharing.unit)[[*tasks]]
            weights = np.array(factors) * weights_of(group.within, of.rows[[*tasks]], cost)
            made.append(sharing._replace(weights=weights))
    no_limits = np.full(count, math.inf) if limits is None else np.array(limits)
    left = None if most is None else np.array(most)
    return Problem(of, each, no_limits, made, named, epochs, scale, left).solve()


def tokens(of: Pool, solved: Solved) -> float:
    return float((solved.rows * of.mean()).sum())


@relaxed
@given(st.lists(st.tuples(st.integers(0, 9), counts), min_size=1, max_size=12), st.integers(0, 500))
def test_a_level_shares_out_as_mixtures_do(tasks: list[tuple[int, int]], budget: int) -> None:
    weights, limits = (np.array(values, np.float64) for values in zip(*tasks, strict=True))
    level = Level(weights, limits)
    names = [f"{number:02}" for number in range(len(tasks))]
    expected = planning.share_out(
        dict(zip(names, weights.tolist(), strict=True)), budget, dict(zip(names, limits.tolist(), strict=True))
    )
    np.testing.assert_allclose(level.rows(level.reaching(budget)), [*expected.tokens.values()], rtol=1e-9, atol=1e-9)


@relaxed
@given(st.lists(st.tuples(st.integers(1, 9), counts, st.integers(1, 9)), min_size=1, max_size=8), st.integers(0, 900))
def test_a_level_reaches_a_budget_of_tokens(tasks: list[tuple[int, int, int]], budget: int) -> None:
    weights, limits, cost = (np.array(values, np.float64) for values in zip(*tasks, strict=True))
    level = Level(weights, limits)
    spent = float((level.rows(level.reaching(budget, cost)) * cost).sum())
    assert spent == pytest.approx(min(budget, float((limits * cost).sum())))


@relaxed
@given(st.lists(counts, min_size=1, max_size=9), st.integers(1, 12))
def test_rows_are_spread_over_epochs_evenly(totals: list[int], epochs: int) -> None:
    made = spread(np.array(totals), epochs)
    assert made.sum(1).tolist() == totals
    assert all(np.ptp(rows) <= 1 for rows in (*made, made.sum(0)))


@relaxed
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 20), st.sampled_from(["size", "sqrt", "even"])
)
def test_rows_of_a_group_are_the_nearest_integers(rows: list[int], budget: int, within: Any) -> None:
    solved = solve(pool(rows), {tuple(range(len(rows))): {"max_rows": budget, "within": within}})
    level = Level(weights_of(within, np.array(rows), None), np.array(rows, np.float64))
    real = level.rows(level.reaching(budget))
    most = min(budget, sum(rows))
    splits = [split for split in itertools.product(*(range(n + 1) for n in rows)) if sum(split) == most]
    nearest = min(sum((x - y) ** 2 for x, y in zip(split, real, strict=True)) for split in splits)
    got = [rule.rows[0] for rule in solved.rules if rule.rows is not None]
    assert len(got) == len(rows)
    assert sum(got) == most
    assert sum((x - y) ** 2 for x, y in zip(got, real, strict=True)) == pytest.approx(nearest, abs=1e-9)


@relaxed
@given(st.permutations(range(5)))
def test_the_order_of_tasks_decides_nothing(order: list[int]) -> None:
    rows = np.array([3, 3, 3, 7, 50])
    level = Level(weights_of("sqrt", rows, None), rows.astype(np.float64))
    real = level.rows(level.reaching(13))
    ranks = np.arange(5)
    assert whole_rows(real[order], ranks[order], 13).tolist() == whole_rows(real, ranks, 13)[order].tolist()


def test_a_cap_of_a_group_is_the_cap_of_its_equal_shards() -> None:
    solved = solve(pool([40_000] * 4), {(0, 1, 2, 3): {"max_rows": 50_000}}, epochs=3)
    assert [rule.rows for rule in solved.rules] == [(12_500,) * 3] * 4
    assert solved.binds == {"g0": "max_rows"}


def test_what_a_task_has_not_flows_to_the_others() -> None:
    solved = solve(pool([10, 100, 1000]), {(0, 1, 2): {"max_rows": 300, "within": "even"}})
    assert [rule.rows for rule in solved.rules] == [(10,), (100,), (190,)]
    solved = solve(pool([10, 100]), {(0, 1): {"max_rows": 300}})
    assert [rule.rows for rule in solved.rules] == [(10,), (100,)]
    assert solved.binds == {"g0": "pool"}


def test_unimax_repeats_small_tasks_and_the_others_repeat_all() -> None:
    keys = {"max_rows": 60, "repeat": 3}
    assert [rule.rows for rule in solve(pool([10, 100]), {(0, 1): {**keys, "within": "unimax"}}).rules] == [
        (30,),
        (150,),
    ]
    assert [rule.rows for rule in solve(pool([10, 100]), {(0, 1): {**keys, "within": "even"}}).rules] == [(30,), (150,)]
    assert [rule.rows for rule in solve(pool([50, 100]), {(0, 1): {**keys, "within": "unimax"}}).rules] == [
        (90,),
        (90,),
    ]
    wide = {"max_rows": 40, "repeat": 3}
    assert [rule.rows for rule in solve(pool([10, 100]), {(0, 1): {**wide, "within": "unimax"}}).rules] == [
        (30,),
        (90,),
    ]
    assert [rule.rows for rule in solve(pool([10, 100]), {(0, 1): {**wide, "within": "even"}}).rules] == [(30,), (90,)]


def test_few_rows_of_many_tasks_reach_all_of_them_over_the_epochs() -> None:
    solved = solve(pool([5] * 100), {tuple(range(100)): {"max_rows": 10}}, epochs=10)
    rows = np.array([rule.rows for rule in solved.rules])
    assert rows.sum(0).tolist() == [10] * 10
    assert rows.sum(1).tolist() == [1] * 100


@relaxed
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 30)), min_size=2, max_size=8),
    st.integers(1, 4000),
    st.sampled_from(["size", "sqrt", "even"]),
    st.integers(1, 4),
)
def test_tokens_of_a_group_are_not_exceeded_and_a_row_short_at_most(
    tasks: list[tuple[int, int]], budget: int, within: Any, epochs: int
) -> None:
    rows, mean = zip(*tasks, strict=True)
    of = pool([*rows], [*mean])
    keys = {"max_tokens": budget, "within": within}
    solved = solve(of, {tuple(range(len(rows))): keys}, epochs=epochs)
    there = min(budget, float((of.rows * of.mean()).sum()))
    assert there - max(mean) <= tokens(of, solved) <= budget + 1e-6


def test_fraction_and_passes_count_rows() -> None:
    of = pool([10, 30, 60])
    assert solve(of, {(0, 1, 2): {"fraction": 0.5}}).rows.tolist() == [5, 15, 30]
    assert solve(of, {(0, 1, 2): {"passes": 1.5}}, epochs=2).rows.tolist() == [15, 45, 90]
    assert solve(of, {(0, 1, 2): {"passes": 2}}).rules[0].rows == (20,)
    assert solve(of, limits=[5, math.inf, math.inf]).rules[0].max_per_file == 5


def test_a_share_of_the_final_tokens_as_dfm11_post_has_it() -> None:
    """33 % anchors by the square root of what they have, at most one pass, some sources with 0.5 and 0.25."""
    random = np.random.default_rng(0)
    rows, mean = random.integers(20_000, 2_000_000, 40).tolist(), random.integers(100, 900, 40).tolist()
    factors = [0.5 if number % 5 == 0 else 0.25 if number % 7 == 0 else 1.0 for number in range(30)]
    of = pool(rows, mean)
    anchors = tuple(range(10, 40))
    behaviour = {tuple(range(10)): {"fraction": 0.1}}
    solved = solve(of, {**behaviour, anchors: {"share": 0.33, "within": "sqrt", "factors": factors}}, epochs=5)
    each = solved.rows * of.mean()
    assert each[10:].sum() / each.sum() == pytest.approx(0.33, abs=1e-6)
    assert each[10:].sum() == pytest.approx(each[:10].sum() * 0.33 / 0.67, rel=1e-6)
    wanted = np.array(factors) * np.sqrt(of.rows[10:] * of.mean()[10:])
    free = solved.rows[10:] < of.rows[10:]
    level = each[10:] / wanted
    assert free.any()
    assert np.ptp(level[free]) / level[free].max() < 1e-3
    assert (solved.rows <= of.rows).all()


@relaxed
@given(st.lists(st.tuples(counts, st.integers(1, 40), st.none() | counts), min_size=3, max_size=7), st.integers(1, 95))
def test_a_share_counts_what_passes_total_leaves(tasks: list[tuple[int, int, int | None]], percent: int) -> None:
    rows, mean, most = (list(values) for values in zip(*tasks, strict=True))
    left = [math.inf if rest is None else float(rest) for rest in most]
    of, share = pool(rows, mean), percent / 100
    # The first two share it out; each of them gives what it has three times, or what is left, and then no more.
    there = [min(count, rest) * size for count, size, rest in zip(rows[2:], mean[2:], left[2:], strict=True)]
    wanted = share / (1 - share) * sum(there)
    can = sum(min(3 * count, rest) * size for count, size, rest in zip(rows[:2], mean[:2], left[:2], strict=True))
    groups: Groups = {(0, 1): {"share": share, "passes": 3}}
    if not there or not sum(there) or wanted > can * (1 + 1e-9):
        with pytest.raises(UsageError, match=r"cannot have as many tokens|a share of nothing"):
            solve(of, groups, most=left)
        return
    solved = solve(of, groups, epochs=10_000, most=left)
    drawn = np.minimum(solved.rows, left) * mean
    assert (solved.rows[:2] <= np.array(left[:2]) + 1e-9).all()
    assert drawn[:2].sum() == pytest.approx(share * drawn.sum(), abs=0.01)
    # Rows of both as often, unless one of them has no more.
    low, high = sorted(range(2), key=lambda task: solved.rows[task] / max(1, rows[task]))
    even = solved.rows[low] * rows[high] == pytest.approx(solved.rows[high] * rows[low], rel=0.01, abs=0.1 * max(rows))
    assert even or solved.rows[low] == pytest.approx(min(3 * rows[low], left[low]), abs=0.001)


def test_shares_and_parts_of_groups_are_one_linear_system() -> None:
    of = pool([100_000] * 6, [10, 20, 30, 40, 50, 60])
    solved = solve(
        of,
        {
            (0,): {"max_rows": 30_000},
            (1,): {"share": 0.2, "passes": 9},
            (2,): {"share": 0.3, "passes": 9},
            (3,): {"tokens": Budget(fraction=0.5, group="g1")},
            (4,): {"tokens": Budget(fraction=0.25, group="g0")},
            (5,): {"tokens": Budget(120_000)},
        },
        epochs=7,
    )
    matrix = np.eye(6)
    matrix[1] -= 0.2
    matrix[2] -= 0.3
    matrix[3, 1], matrix[4, 0] = -0.5, -0.25
    expected = np.linalg.solve(matrix, [300_000, 0, 0, 0, 0, 120_000])
    np.testing.assert_allclose(solved.rows * of.mean(), expected, atol=60)


@relaxed
@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.integers(1, 30), st.none() | st.integers(0, 300), st.integers(1, 3)),
        min_size=1,
        max_size=7,
    ),
    st.floats(0.001, 0.999),
    st.sampled_from([(), ("repeat",), ("g0",)]),
    st.integers(1, 3),
)
def test_a_scale_hits_its_target_between_floor_and_ceiling(
    tasks: list[tuple[int, int, int | None, int]], part: float, keep: tuple[str, ...], epochs: int
) -> None:
    rows, mean, caps, repeats = zip(*tasks, strict=True)
    of = pool([*rows, 100, 300], [*mean, 7, 11])
    rules = [Rule(max_per_file=cap, repeat=repeat) for cap, repeat in zip(caps, repeats, strict=True)] + [Rule()] * 2
    groups: Groups = {(len(rows), len(rows) + 1): {"name": "g0", "max_rows": 80}}
    kept = [
        cap is None or cap == 0 or (repeat > 1 and "repeat" in keep) for cap, repeat in zip(caps, repeats, strict=True)
    ]
    low = [
        (min(n, cap) if cap is not None else n) * repeat * kept_
        for n, cap, repeat, kept_ in zip(rows, caps, repeats, kept, strict=True)
    ]
    high = [(min(n, c) if k and c is not None else n) * r for n, c, r, k in zip(rows, caps, repeats, kept, strict=True)]
    group = ([20, 60], [20, 60]) if "g0" in keep else ([0, 0], [100, 300])
    floor, ceiling = (float((np.array(each) * of.mean()).sum()) for each in ([*low, *group[0]], [*high, *group[1]]))
    to = round(floor + part * (ceiling - floor))
    if not floor < to < ceiling:
        return
    solved = solve(of, groups, rules, epochs=epochs, scale=Scale("rules.yaml", to, keep=keep))
    assert solved.scale is not None
    assert solved.scale.floor == pytest.approx(floor)
    assert solved.scale.ceiling == pytest.approx(ceiling)
    assert abs(tokens(of, solved) - to) <= max(of.mean())
    for task, (n, cap, repeat, is_kept) in enumerate(zip(rows, caps, repeats, kept, strict=True)):
        if not is_kept and cap:
            wanted = min(n, cap * solved.scale.factor) * repeat
            assert abs(solved.rows[task] - wanted) <= 1


def test_a_scale_to_two_billion_tokens() -> None:
    random = np.random.default_rng(1)
    rows, mean = random.integers(50, 2_000_000, 4006).tolist(), random.integers(50, 1500, 4006).tolist()
    of = pool(rows, mean)
    rules = [Rule(max_per_file=5000, repeat=1 + number % 2) if number > 20 else Rule() for number in range(4006)]
    small = [Rule(max_per_file=500) if number <= 20 else rule for number, rule in enumerate(rules)]
    solved = solve(of, {}, small, scale=Scale("rules.yaml", 2_000_000_000))
    assert abs(tokens(of, solved) - 2e9) <= max(mean)
    with pytest.raises(UsageError, match="so few tokens") as caught:
        solve(of, {}, rules, scale=Scale("rules.yaml", 2_000_000_000))
    floor = math.ceil(float((of.rows * of.mean())[:21].sum()))
    assert f"{floor:,} to " in caught.value.expected


def test_a_share_that_a_scale_makes_too_large_is_told_by_the_scaled_epoch() -> None:
    with pytest.raises(UsageError, match="cannot have as many tokens") as caught:
        solve(pool([100, 9000]), {(0,): {"share": 0.5}}, [Rule(), Rule(max_per_file=50)], scale=Scale("r", 40_000))
    assert caught.value.got == "share: 50% of epoch: 20,000 tokens an epoch"


def test_scale_and_shares_hold_together() -> None:
    of = pool([10_000] * 4, [10, 20, 30, 40])
    groups: Groups = {(0, 1): {"max_rows": 500}, (2, 3): {"share": 0.25, "within": "even"}}
    solved = solve(of, groups, epochs=4, scale=Scale("rules.yaml", 80_000))
    each = solved.rows * of.mean()
    assert each.sum() == pytest.approx(80_000, abs=40)
    assert each[2:].sum() == pytest.approx(20_000, abs=40)


@pytest.mark.parametrize(
    ("groups", "message", "expected"),
    [
        ({(0,): {"share": 0.6}, (1,): {"share": 0.4}}, "leave nothing", "60% of g0 and 40% of g1"),
        ({(0,): {"share": 0.9}}, "cannot have as many tokens", "at most 1,000, passes over its tasks: 1"),
        ({(0,): {"tokens": Budget(5_000)}}, "cannot have as many tokens", "write tokens: 1000, or passes: 5"),
        ({(0, 1, 2): {"share": 0.5}}, "a share of nothing", "leave share: out"),
        (
            {(0,): {"tokens": Budget(group="g1")}, (1,): {"tokens": Budget(group="g0")}},
            "in a circle",
            "g0 of g1 of g0",
        ),
        ({(0,): {"tokens": Budget(group="h1")}, (1,): {}}, "no group is called 'h1'", "g1"),
    ],
)
def test_what_cannot_be_is_refused_with_figures(groups: Any, message: str, expected: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        solve(pool([100] * 3), groups)
    error = caught.value
    assert expected in f"{error.got} {error.expected} {error.hint}"
    assert error.where == "rules.yaml rule 1"


def test_what_the_hint_says_can_be_done() -> None:
    of = pool([100, 300])
    with pytest.raises(UsageError) as caught:
        solve(of, {(0,): {"share": 0.9}})
    assert caught.value.hint == "write share: 25% of epoch, or passes: 27"
    assert solve(of, {(0,): {"share": 0.25}}).rows.tolist() == [100, 300]
    assert solve(of, {(0,): {"share": 0.9, "passes": 27}}).rows.tolist() == [2700, 300]


def test_thousands_of_tasks_are_scaled_in_a_moment() -> None:
    random = np.random.default_rng(2)
    of = pool(random.integers(10, 90_000, 16_023).tolist(), random.integers(50, 1500, 16_023).tolist())
    groups = {tuple(range(at, at + 100)): {"max_rows": 100_000, "within": "sqrt"} for at in range(0, 10_000, 100)}
    rules = [Rule(max_per_file=2000)] * 16_023
    solved = solve(of, groups, rules, epochs=10, scale=Scale("rules.yaml", 3_000_000_000))
    assert abs(tokens(of, solved) - 3e9) <= 1500


def test_a_rule_that_is_off_has_no_part_in_its_group() -> None:
    items = [{"prefix": "a", "group": "g", "fraction": 0.5}, {"prefix": "b", "group": "g", "skip": True}]
    rules = Rules.from_items([*items, {"prefix": "c", "group": "g"}], "pairmill", "rules.yaml")
    assert solve_rules(rules, ["a", "b", "c"], pool([100, 100, 50]), 1).rows.tolist() == [50, 0, 25]


def test_rules_of_a_group_repeat_alike() -> None:
    items = [{"prefix": "a", "group": "g", "max_rows": 50, "repeat": 2}, {"prefix": "b", "group": "g"}]
    rules = Rules.from_items(items, "pairmill", "rules.yaml")
    with pytest.raises(UsageError, match="repeat rows differently") as caught:
        solve_rules(rules, ["a", "b"], pool([100, 100]), 1)
    assert caught.value.got == "repeat: 1 and repeat: 2"


def test_the_example_of_the_documentation_is_solved() -> None:
    text = (Path(__file__).parents[3] / "docs/amounts.md").read_text()
    (example,) = re.findall("```yaml\n(.*?)```", text, re.DOTALL)
    names = [
        "flan__a",
        "flan__b",
        "opus_da_en",
        "opus_de_en",
        "anchors__web",
        "anchors__x",
        "opus_sv_en",
        "gsm8k",
        "other",
    ]
    of = pool([3_000_000, 900_000, 9_000_000, 700_000, 4_000_000, 6_000_000, 300_000, 7_000, 50_000], 300)
    solved = solve_rules(Rules.from_items(yaml.safe_load(example), "pairmill", "rules.yaml"), names, of, 5)
    groups = {group.name: group for group in solved.groups}
    whole = sum(group.tokens for group in groups.values())
    assert whole == pytest.approx(2e9, abs=300)
    assert groups["anchors__"].tokens / whole == pytest.approx(0.33, abs=1e-6)
    assert groups["opus_sv_"].tokens == pytest.approx(groups["opus"].tokens / 4, abs=600)
    web, other = solved.rows[4:6]
    assert web / other == pytest.approx(0.25 * math.sqrt(4 / 6), rel=1e-4)
    assert groups["gsm8k"].passes == 10
    assert groups["(no rule)"].passes == 1
