"""A mixture is carried out: rows are drawn exactly as planned, their tokens as nearly as chance allows."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.mixture.making import WantedPhase
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import NAME, Mixture
from pairmill.mixture.realised import Realised
from pairmill.stages.sample.config import SampleConfig
from tests.support.data.tokens_and_mixtures import Bench, changed
from tests.support.helpers import contents

CAPPED = Recipe.parse("unimax", max_epochs=4)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def twenty(bench: Bench) -> None:
    """Twenty tasks: 60 to 12,000 rows, of 6 to 1,500 tokens on average, all with a long tail."""
    draw = np.random.default_rng(20)
    for number in range(20):
        rows = int(60 * 200 ** (number * 7 % 20 / 19))
        mean = 6 * 250 ** (1 - number * 7 % 20 / 19)
        lengths = np.clip(draw.lognormal(math.log(mean), 1, rows), 2, 4000).astype(np.int64)
        bench.put(f"set{number // 4}__{number:02}.jsonl", lengths)


def realised(bench: Bench) -> Realised:
    manifest = manifests.read(str(bench.target))
    assert manifest is not None
    return Realised.load(manifest.data["mixture"])


def naive_shares(bench: Bench, plan: Mixture, epochs: range) -> dict[str, tuple[float, float, float]]:
    """Planned share, drawn share and its standard error of each source, from the arrays alone."""
    tasks = list(bench.lengths)
    of = {key[0]: source for key, source in plan.source_of.items()}
    drawn: dict[str, int] = defaultdict(int)
    for epoch in epochs:
        rows = bench.epoch(epoch)
        for number, tokens in enumerate(np.bincount(rows.task, rows.length, len(tasks))):
            drawn[of[tasks[number]]] += int(tokens)
    planned = defaultdict(float)
    for phase in plan.phases:
        overlap = len(range(max(phase.epochs[0], epochs[0]), min(phase.epochs[1], epochs[-1] + 1)))
        for source in plan.by_phase[phase.name]:
            planned[source.name] += source.tokens * overlap / phase.count
    variance: dict[str, float] = defaultdict(float)
    wants = plan.wants()
    for key, task in plan.tasks.items():
        lengths = bench.lengths[key[0]]
        if task.rows > 1:
            spread = float(np.var(lengths, ddof=1))
            at, end = sum(wants[key][: epochs[0]]), sum(wants[key][: epochs[-1] + 1])
            while at < end:  # pass by pass: a part of a pass is drawn without replacement
                part = min(end, (at // task.rows + 1) * task.rows) - at
                variance[of[key[0]]] += part * (1 - part / task.rows) * spread
                at += part
    total, whole = sum(drawn.values()), sum(planned.values())
    found = {}
    for name in plan.names:
        share = drawn[name] / total
        others = sum(value for other, value in variance.items() if other != name)
        error = math.sqrt((1 - share) ** 2 * variance[name] + share**2 * others) / total
        found[name] = planned[name] / whole, share, error
    return found


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(
    "recipe",
    [
        Recipe.parse("unimax", max_epochs=4),
        Recipe.parse("exponent", exponent=1.3, max_epochs=3),
        Recipe.parse("temperature", temperature=2.0, max_epochs=4),
    ],
    ids=lambda recipe: recipe.method,
)
def test_shares_of_twenty_tasks_come_out_as_planned(bench: Bench, recipe: Recipe, grouped: bool) -> None:
    twenty(bench)
    sources: dict[str, list[str]] = defaultdict(list)
    for name in bench.lengths:
        sources[name.split("__")[0] if grouped else name].append(name)
    plan = bench.plan(sources, epochs=5, recipe=recipe, budget=1.1 * sum(map(sum, bench.lengths.values())))
    outcome = bench.run()
    ranges = [range(5), *(range(epoch, epoch + 1) for epoch in range(5))]
    for epochs in ranges:
        for name, (planned, drawn, error) in naive_shares(bench, plan, epochs).items():
            assert abs(drawn - planned) <= max(0.001, 4 * error), (epochs, name, planned, drawn, error)
    # No cap is exceeded by more than a row of a task and epoch; every row is seen ⌊e⌋ or ⌈e⌉ times.
    wants = plan.wants()
    for number, name in enumerate(bench.lengths):
        epochs = [bench.epoch(epoch) for epoch in range(5)]
        counts = [int((one.task == number).sum()) for one in epochs]
        assert counts == wants[name, None]
        seen = np.bincount(
            np.concatenate([one.row[one.task == number] for one in epochs]), minlength=len(bench.lengths[name])
        )
        assert seen.max() - seen.min() <= 1
        assert sum(counts) <= (recipe.max_epochs or math.inf) * len(seen) + len(counts)
    # What is said of it is what was counted here.
    said = realised(bench)
    expected = naive_shares(bench, plan, range(5))
    assert {one.source: (one.predicted, one.realised, one.error) for one in said.whole} == {
        name: pytest.approx(values, rel=1e-9, abs=1e-12) for name, values in expected.items()
    }
    by_epoch = dict(said.epochs())
    assert {one.source: one.realised for one in by_epoch[3]} == {
        name: pytest.approx(values[1]) for name, values in naive_shares(bench, plan, range(3, 4)).items()
    }
    assert sorted(by_epoch) == list(range(5))
    assert all(one.within for one in said.shares)
    assert outcome.metrics["mixture_out_of_tolerance"] == outcome.metrics["mixture_over_cap"] == 0
    assert outcome.metrics["mixture_largest_difference_pp"] == pytest.approx(
        max(100 * abs(drawn - planned) for planned, drawn, _ in expected.values()), abs=1e-6
    )


def test_shares_are_exact_where_each_row_is_drawn_a_whole_number_of_times(bench: Bench) -> None:
    twenty(bench)
    counts = {name: int(lengths.sum()) for name, lengths in bench.lengths.items()}
    times = {name: 1 + number % 4 for number, name in enumerate(bench.lengths)}
    weights = {name: float(times[name] * count) for name, count in counts.items()}
    recipe = Recipe.parse("weights", weights=weights)
    plan = bench.plan(recipe=recipe, epochs=5, budget=sum(weights.values()))
    bench.run()
    for name, (planned, drawn, error) in naive_shares(bench, plan, range(5)).items():
        assert abs(drawn - planned) <= 1e-4 * 1e-3, name
        assert error == 0
    for number, name in enumerate(bench.lengths):
        seen = np.concatenate([one.row[one.task == number] for one in map(bench.epoch, range(5))])
        assert set(np.bincount(seen, minlength=len(bench.lengths[name])).tolist()) == {times[name]}


def test_phases_continue_the_walk_and_have_shares_of_their_own(bench: Bench) -> None:
    twenty(bench)
    names = list(bench.lengths)
    whole = sum(map(sum, bench.lengths.values()))
    weights = {name: float(number < 6) for number, name in enumerate(names)}
    phases = [
        WantedPhase("broad", 0.6, 3, Recipe.parse("exponent", exponent=1.0, max_epochs=2)),
        WantedPhase("narrow", 0.4, 2, Recipe.parse("weights", weights=weights, max_epochs=3)),
    ]
    plan = bench.plan(phases=phases, budget=0.7 * whole, allow_unfilled=True)
    outcome = bench.run()
    assert bench.metadata()["epochs"] == 5
    assert bench.metadata()["phases"] == [{"name": "broad", "epochs": [0, 3]}, {"name": "narrow", "epochs": [3, 5]}]
    for epochs in (range(3), range(3, 5), range(5)):
        for name, (planned, drawn, error) in naive_shares(bench, plan, epochs).items():
            assert abs(drawn - planned) <= max(0.001, 4 * error), (epochs, name)
    for number, name in enumerate(names):
        seen = np.concatenate([one.row[one.task == number] for one in map(bench.epoch, range(5))])
        counts = np.bincount(seen, minlength=len(bench.lengths[name]))
        assert counts.max() - counts.min() <= 1
    said = realised(bench)
    assert said.phases == [("broad", 0, 3), ("narrow", 3, 5)]
    expected = naive_shares(bench, plan, range(3, 5))
    assert {one.source: one.realised for one in said.of_phase("narrow")} == {
        name: pytest.approx(values[1]) for name, values in expected.items()
    }
    assert "### Mixture by phase" in outcome.stdout
    assert "| narrow (epoch_3 to epoch_4) |" in outcome.stdout


def test_buckets_are_drawn_each_as_its_own(bench: Bench) -> None:
    draw = np.random.default_rng(3)
    for name in ("a", "b", "c"):
        codes = draw.choice([0, 1, 2, 65535], 3000, p=[0.5, 0.3, 0.1, 0.1])
        bench.put(name, draw.integers(2, 200, 3000) * (1 + codes % 7), codes.tolist())
    buckets = ["math, high", "math, low", "rest"]
    recipe = Recipe.parse("weights", weights=dict(zip(buckets, (5.0, 1.0, 2.0), strict=True)))
    plan = bench.plan(buckets=buckets, recipe=recipe, epochs=4, budget=600_000)
    bench.run()
    wants = plan.wants()
    drawn = Counter[str]()
    for number, name in enumerate(bench.lengths):
        epochs = [bench.epoch(epoch) for epoch in range(4)]
        seen = np.concatenate([one.row[one.task == number] for one in epochs])
        assert not (bench.codes[name][seen] == 65535).any()
        for code, bucket in enumerate(buckets):
            members = np.flatnonzero(bench.codes[name] == code)
            counts = np.bincount(seen, minlength=3000)[members]
            assert counts.max() - counts.min() <= 1
            assert int(counts.sum()) == sum(wants[name, code])
            for epoch, one in enumerate(epochs):
                here = one.row[one.task == number]
                assert int((bench.codes[name][here] == code).sum()) == wants[name, code][epoch]
            drawn[bucket] += int((counts * bench.lengths[name][members]).sum())
    said = {one.source: one for one in realised(bench).whole}
    assert {name: one.tokens for name, one in said.items()} == drawn
    assert said["math, high"].predicted == pytest.approx(5 / 8)
    assert all(one.within for one in said.values())


def test_a_mixture_that_wants_what_the_rules_want_draws_the_same_rows(bench: Bench, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for name in ("a", "b"):
        bench.put(name, draw.integers(2, 60, 500))
    bench.rules([{"prefix": "b", "max_per_file": 120}])
    without = bench.run(mixture="", output_path=str(tmp_path / "other"), epochs=3, seed=6)
    plan = bench.plan(epochs=3)
    wants = {"a": 500, "b": 120}
    for source, name in enumerate(wants):
        plan = changed(plan, source, 0, rows_per_epoch=wants[name])
    bench.write(plan)
    outcome = bench.run()
    for epoch in range(3):
        ours, theirs = bench.epoch(epoch), bench.epoch(epoch, tmp_path / "other")
        assert ours.task.tolist() == theirs.task.tolist()
        assert ours.row.tolist() == theirs.row.tolist()
    assert outcome.metrics["rows_out"] == without.metrics["rows_out"]
    assert "mixture_sources" not in without.metrics
    assert "Mixture" not in without.stdout


def test_of_the_rules_only_long_context_applies(bench: Bench) -> None:
    bench.context = 32
    bench.put("a", [40] * 50 + [10] * 50)
    bench.put("b", [40] * 50 + [10] * 50)
    bench.rules([{"prefix": "a", "long_context": "drop", "repeat": 9}, {"prefix": "b", "max_per_file": 1}])
    bench.plan(epochs=1, recipe=Recipe.parse("exponent", exponent=1))
    bench.run()
    one = bench.epoch(0)
    assert Counter(zip(one.task.tolist(), one.length.tolist(), strict=True)) == {(0, 10): 50, (1, 30): 50, (1, 10): 50}


def test_the_plan_decides_epochs_and_seed(bench: Bench) -> None:
    bench.put("a", range(2, 300))
    bench.plan(epochs=4, seed=7)
    bench.run(epochs=9)
    manifest = manifests.read(str(bench.target))
    assert manifest is not None
    assert (manifest.options["epochs"], manifest.options["seed"]) == (4, 7)
    assert sorted(path.name for path in bench.target.glob("epoch_*")) == [f"epoch_{number}" for number in range(4)]
    assert bench.run(seed=7).reused


def test_the_mixture_and_what_rules_say_of_long_rows_are_the_identity(bench: Bench) -> None:
    bench.put("a", range(2, 300))
    plan = bench.plan(epochs=2)
    first = bench.run().parameters["fingerprint"]
    bench.rules([{"prefix": "a", "max_per_file": 3}])
    second = bench.run().parameters["fingerprint"]
    bench.rules([{"prefix": "a", "repeat": 3}])
    assert bench.run().parameters["fingerprint"] == second != first
    bench.write(changed(plan, 0, 0, rows_per_epoch=7))
    assert bench.run().parameters["fingerprint"] not in {first, second}
    bench.write(plan)
    assert bench.run(mixture=str(bench.mixture / NAME)).parameters["fingerprint"] == second


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("context", {"context_size": 100}, UsageError, "context_size: differs from the mixture.*got 100; expected 4097"),
    ("min_resp_length", {"min_resp_length": 3}, UsageError, "min_resp_length: differs.*got 3; expected 2; give min_r"),
    ("seed", {"seed": 9}, UsageError, "seed: differs from the mixture; got 9; expected 6; leave it out"),
    ("fingerprint", {}, InputError, "planned for another tokenized folder; got abcd; expected [0-9a-f]{16}, of token"),
    ("unknown", {}, InputError, "1 tasks of the mixture are not in the tokenized folder; got 'zz'.*run mix again"),
    ("missing", {}, InputError, "1 tasks of the tokenized folder are not in the mixture; got 'b'; expected every"),
    ("fewer", {}, InputError, "task 'a': the rows that may be.*got 298 rows with .*expected 400 rows with"),
    ("tokens", {}, InputError, "task 'a'.*298 rows with 44,849 response tokens; expected 298 rows with 44,850"),
    (
        "rules",
        {},
        InputError,
        "mixture=.*: prefix_config_path says other things of long rows.*expected other; give",
    ),
    ("capacity", {}, UsageError, "an epoch would have more rows than may be sampled.*expected at most 596 rows"),
    ("absent", {"mixture": "no/mixture.json"}, InputError, "the mixture does not exist.*check the path"),
    ("folder", {"mixture": "."}, InputError, "mixture.json does not exist.*give the folder that mix printed"),
    ("profile", {"profile": "data_io"}, UsageError, "mixture: the reference has no mixtures.*profile=data_io; leave"),
    ("source", {}, InputError, "task 'b' has different sources in different phases; got .*expected one source"),
]


@pytest.mark.parametrize(("case", "options", "kind", "said"), REFUSED, ids=[case for case, *_ in REFUSED])
def test_refusals_come_before_a_byte_is_written(
    bench: Bench,
    case: str,
    options: dict[str, Any],
    kind: type[Exception],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(bench.tokenized)
    for name in ("a", "b"):
        bench.put(name, range(2, 300))
    plan = bench.plan(epochs=2, budget=30_000)
    raw = json.loads(plan.dump())
    match case:
        case "fingerprint":
            raw["inputs"]["tokenized"] = "abcd"
        case "unknown":
            raw["sources"][0]["tasks"].append({**raw["sources"][0]["tasks"][0], "task": "zz"})
        case "missing":
            raw["sources"][1]["tasks"] = []
        case "fewer":
            raw["sources"][0]["tasks"][0] |= {"rows": 400}
        case "tokens":
            raw["sources"][0]["tasks"][0]["response_tokens"] += 1
        case "rules":
            raw["inputs"]["long_rows"] = "other"
        case "capacity":
            raw["sources"][0]["tasks"][0]["rows_per_epoch"] = 597
        case "source":
            raw["epochs"] = 4
            raw["phases"] = [{"name": name, "epochs": at, "share": 0.5} for name, at in (("x", [0, 2]), ("y", [2, 4]))]
            for one in raw["sources"]:
                one["phase"] = "x"
            other = [{**one, "phase": "y"} for one in raw["sources"]]
            other[0]["tasks"], other[1]["tasks"] = other[1]["tasks"], other[0]["tasks"]
            raw["sources"] += other
    (bench.mixture / NAME).write_text(json.dumps(raw))
    before = contents(tmp_path)
    for more in ({}, {"root": str(tmp_path / "root")}) if case != "folder" else ({},):
        with pytest.raises(kind, match=said) as error:
            bench.run(**{**options, **more})
        assert error.value.exit_code == (2 if kind is UsageError else 3)  # type: ignore[attr-defined]
        made = {path: data for path, data in contents(tmp_path).items() if path not in before}
        assert not [path for path in made if "epoch_" in path or path.endswith(("tokens.npy", "plan"))]
        assert not bench.target.exists()


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (np.zeros(299, np.uint16), r"not the buckets of this task; got uint16 \[299\]; expected uint16 \[298\]"),
        (np.zeros(298, np.int64), r"not the buckets of this task; got int64 \[298\]; expected uint16"),
        (
            np.ones(298, np.uint16),
            "rows that may be sampled are in buckets that the mixture.*got '1'; expected 0",
        ),
        (np.arange(298) // 200 * 65535, "task 'a', bucket 'x': the rows that may be sampled are not .*got 200 rows"),
        (None, "a.npy"),
    ],
)
def test_wrong_buckets_are_refused(bench: Bench, codes: Any, said: str) -> None:
    bench.put("a", range(2, 300), [0] * 298)
    bench.plan(buckets=["x", "y"], epochs=1)
    path = bench.mixture / "buckets" / "a.npy"
    path.unlink()
    if codes is not None:
        np.save(path, codes.astype(np.uint16) if codes.max() > 1 else codes)
    with pytest.raises(InputError, match=said):
        bench.run()
    assert not bench.target.exists()


def test_a_plan_whose_cap_is_exceeded_is_said_so(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.put(name, range(2, 300))
    plan = bench.plan(epochs=3, recipe=Recipe.parse("unimax", max_epochs=1))
    assert bench.run().metrics["mixture_over_cap"] == 0
    bench.write(changed(plan, 0, 0, rows_per_epoch=101))  # 303 rows of 298: a row more an epoch is allowed
    assert bench.run().metrics["mixture_over_cap"] == 1
    bench.write(changed(plan, 0, 0, rows_per_epoch=100))
    assert bench.run().metrics["mixture_over_cap"] == 0


def test_options_say_what_they_do() -> None:
    with pytest.raises(UsageError, match="the reference has no mixtures"):
        SampleConfig(tokenized_path="x", mixture="m", profile="data_io")


def test_only_rows_that_the_mixture_draws_count_as_cut(bench: Bench) -> None:
    over = bench.context + 7
    bench.put("a__drawn", [over] * 3 + [20] * 3)
    bench.put("b__not_drawn", [over] * 9)
    bench.plan(recipe=Recipe.parse("weights", weights={"a__drawn": 1.0, "b__not_drawn": 0.0}), epochs=1)
    outcome = bench.run(root=str(bench.folder / "root"))
    manifest = manifests.read(str(bench.target))
    assert manifest is not None
    assert outcome.metrics["truncated_rows"] == manifest.shards["a__drawn"].notes["truncated"] <= 3
    assert "truncated" not in manifest.shards["b__not_drawn"].notes
    assert "| b__not_drawn | truncated |" not in outcome.report().markdown()
