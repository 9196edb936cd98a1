"""The sampler: the reference's draws exactly, what the default profile decides otherwise, and properties of both.

The tests named ``defect_<n>`` are about the defects of the reference; docs/differences.md has a line for each.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.engine.options import Profile
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.formats.eligible_rows import DatasetRows, rows_of
from pairmill.formats.tokens import INDEX, INFO
from pairmill.interface.cli import Outcome
from pairmill.rules.rule import Rule
from pairmill.stages.sample import analytics
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import DatasetToDraw, draw_plan
from pairmill.stages.sample.node import materialize
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.run import MOST_TASKS, run
from pairmill.stages.sample.sampled_rows import SampledRows
from pairmill.stages.sample.wants import Wants
from tests.support.helpers import contents

Rows = list[tuple[int, int]]
"""(instruction length, response length) of every row of a task."""

CONFIG = SampleConfig(tokenized_path="unused", output_path="unused", epochs=3, context_size=16)


def index_of(rows: Rows) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    inst = np.array([row[0] for row in rows], np.int64)
    resp = np.array([row[1] for row in rows], np.int64)
    ends = np.cumsum(inst + resp)
    return {"inst_start": ends - resp - inst, "inst_len": inst, "resp_start": ends - resp, "resp_len": resp}


def task(name: str, rows: Rows, rule: Rule | None = None, config: SampleConfig = CONFIG) -> DatasetRows:
    return rows_of(name, rule or Rule(), [index_of(rows)], config)


def plain(count: int, length: int = 3) -> Rows:
    return [(2, length)] * count


def planned(
    tasks: list[DatasetRows], config: SampleConfig = CONFIG, workers: int = 2
) -> tuple[SamplePlan, list[SampledRows]]:
    drawn = draw_plan([to_draw(one, config) for one in tasks], config, workers)
    return drawn.plan, drawn.datasets


def to_draw(rows: DatasetRows, config: SampleConfig) -> DatasetToDraw:
    # Drawing may change what is drawn from.
    return DatasetToDraw(
        rows.name, rows.rule, lambda: deepcopy(rows), lambda: Wants.by_rule(rows.rule, config.seed, rows.name)
    )


def orders(tasks: list[DatasetRows], config: SampleConfig = CONFIG) -> list[list[tuple[int, int]]]:
    """Per epoch the rows in training order: number of the task, and place among its rows that may be sampled."""
    plan, _ = planned(tasks, config)
    source = np.repeat(np.arange(len(tasks)), [one.rows for one in plan.datasets])
    rows = [
        int(np.flatnonzero(tasks[number].columns["resp_start"] == start)[0])
        for number, start in zip(source, plan.rows["resp_start"].array(), strict=True)
    ]
    pairs = list(zip(source.tolist(), rows, strict=True))
    return [[pairs[place] for place in epoch.array()] for epoch in plan.epochs]


def draws(tasks: list[DatasetRows], config: SampleConfig = CONFIG) -> list[dict[str, list[int]]]:
    """Per epoch the rows of each task, in training order."""
    return [
        {one.name: [row for task, row in epoch if task == number] for number, one in enumerate(tasks)}
        for epoch in orders(tasks, config)
    ]


# --- a naive reference ----------------------------------------------------------------------------------------------


def naive_rows(rows: Rows, rule: Rule, config: SampleConfig) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """(row, instruction length, response length kept) row by row, and why the others go."""
    kept, dropped = [], Counter[str]()
    for number, (inst, resp) in enumerate(rows):
        room = max(0, config.context_size - inst)
        final = min(resp, room) if rule.long_context == "truncate" else resp
        if resp < config.min_resp_length:
            dropped["response_too_short"] += 1
        elif (room < 1) if rule.long_context == "truncate" else (resp > room):
            dropped["over_context"] += 1
        elif config.profile == "pairmill" and final < config.min_resp_length:
            dropped["response_too_short_once_cut"] += 1
        else:
            kept.append((number, inst, final))
    return kept, dropped


def naive_data_io(sizes: list[int], rules: list[Rule], config: SampleConfig) -> list[list[tuple[int, int]]]:
    """The reference's epochs: one generator for everything, in the order of its calls."""
    generator = np.random.Generator(np.random.Philox(config.seed))
    permutation: list[list[int]] = [[] for _ in sizes]
    cursor = [0] * len(sizes)
    result = []
    for _ in range(config.epochs):
        buffer: list[tuple[int, int]] = []
        for number, (size, rule) in enumerate(zip(sizes, rules, strict=True)):
            want = (size if rule.max_per_file is None else min(rule.max_per_file, size)) * rule.repeat
            taken = 0
            while taken < want:
                if cursor[number] == len(permutation[number]):
                    permutation[number] = generator.permutation(size).tolist()
                    cursor[number] = 0
                buffer.append((number, permutation[number][cursor[number]]))
                cursor[number] += 1
                taken += 1
        result.append([buffer[place] for place in generator.permutation(len(buffer)).tolist()])
    return result


@pytest.mark.parametrize("profile", ["data_io", "pairmill"])
@pytest.mark.parametrize("long_context", ["truncate", "drop"])
@pytest.mark.parametrize("seed", range(12))
def test_filtering_and_truncation_equal_a_loop_over_rows(profile: Profile, long_context: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    config = replace(
        CONFIG,
        profile=profile,
        context_size=int(draw.integers(1, 30)),
        min_resp_length=int(draw.integers(0, 6)),
    )
    rows = [(int(a), int(b)) for a, b in draw.integers(0, 25, (400, 2))]
    rule = Rule(long_context=long_context)
    found = task("t", rows, rule, config)
    kept, dropped = naive_rows(rows, rule, config)
    index = index_of(rows)
    assert found.columns["inst_start"].tolist() == [int(index["inst_start"][row]) for row, _, _ in kept]
    assert found.columns["resp_start"].tolist() == [int(index["resp_start"][row]) for row, _, _ in kept]
    assert found.columns["inst_len"].tolist() == [inst for _, inst, _ in kept]
    assert found.columns["resp_len"].tolist() == [resp for _, _, resp in kept]
    assert found.ledger.dropped == dict(dropped)
    assert found.ledger.notes.get("truncated", 0) == sum(resp < rows[row][1] for row, _, resp in kept)
    assert (found.ledger.rows_in, found.length) == (400, sum(map(sum, rows)))
    assert len(found) + sum(found.ledger.dropped.values()) == found.ledger.rows_in


@pytest.mark.parametrize("seed", range(8))
def test_data_io_draws_from_one_stream_in_the_order_of_the_reference(seed: int) -> None:
    draw = np.random.default_rng(seed)
    config = replace(CONFIG, profile="data_io", seed=seed, epochs=5)
    sizes = [0, 1, 7, 40, 13]
    choices: list[Rule] = [
        Rule(),
        Rule(max_per_file=int(draw.integers(0, 3))),
        Rule(max_per_file=int(draw.integers(1, 9)), repeat=int(draw.integers(0, 2))),
        Rule(max_per_file=3, repeat=4),
        Rule(max_per_file=-1),
    ]
    draw.shuffle(choices)  # type: ignore[arg-type]
    tasks = [
        task(f"t{number}", plain(size), rule, config)
        for number, (size, rule) in enumerate(zip(sizes, choices, strict=True))
    ]
    found = orders(tasks, config)
    assert found == naive_data_io(sizes, choices, config)
    taken = Counter(pair for epoch in found for pair in epoch)
    plan, findings = planned(tasks, config)
    for number, (source, one) in enumerate(zip(plan.datasets, findings, strict=True)):
        times = [count for (task, _), count in taken.items() if task == number]
        assert (source.rows, one.ledger.rows_out, one.stats.cov_rows) == (len(times), sum(times), sum(times))


def test_data_io_draws_are_frozen() -> None:
    config = replace(CONFIG, profile="data_io", epochs=2)
    found = orders([task("a", plain(3)), task("b", plain(4), Rule(max_per_file=2))], config)
    assert found == [[(0, 1), (0, 2), (1, 2), (1, 0), (0, 0)], [(0, 2), (0, 1), (0, 0), (1, 1), (1, 3)]]


def test_draws_are_frozen() -> None:
    config = replace(CONFIG, epochs=2)
    found = orders([task("a", plain(3)), task("b", plain(4), Rule(max_per_file=2))], config)
    assert found == [[(0, 1), (1, 0), (0, 0), (0, 2), (1, 1)], [(1, 2), (1, 3), (0, 1), (0, 2), (0, 0)]]


# --- properties of the default profile ------------------------------------------------------------------------------


def test_each_row_comes_once_before_any_comes_again() -> None:
    for size, cap, repeat, count in [(10, 3, 1, 11), (7, None, 3, 4), (5, 4, 2, 6), (1, 5, 3, 3), (10, 10, 1, 3)]:
        config = replace(CONFIG, epochs=count)
        found = draws([task("t", plain(size), Rule(max_per_file=cap, repeat=repeat))], config)
        flat = [row for epoch in found for row in epoch["t"]]
        want = (size if cap is None else min(cap, size)) * repeat
        assert [len(epoch["t"]) for epoch in found] == [want] * count
        seen = Counter(flat)
        assert max(seen.values()) - min(seen.get(row, 0) for row in range(size)) <= 1


def test_a_walk_through_a_task_goes_on_from_epoch_to_epoch() -> None:
    # The order within an epoch is another draw: the walk is the set of rows of each epoch.
    config = replace(CONFIG, epochs=5)
    found = draws([task("t", plain(10), Rule(max_per_file=4))], config)
    sets = [set(epoch["t"]) for epoch in found]
    assert not sets[0] & sets[1]
    assert len(sets[0] | sets[1] | sets[2]) == 10
    assert len((sets[2] | sets[3] | sets[4]) | sets[0] | sets[1]) == 10


def test_adding_removing_or_resizing_a_task_leaves_the_draws_of_all_others() -> None:
    config = replace(CONFIG, epochs=4)
    rule = Rule(max_per_file=5, repeat=1)

    def sets(*tasks: DatasetRows) -> list[dict[str, list[int]]]:
        return [{name: sorted(rows) for name, rows in epoch.items()} for epoch in draws(list(tasks), config)]

    alone = sets(task("m", plain(20), rule))
    more = sets(task("a", plain(9)), task("m", plain(20), rule), task("z", plain(3), Rule(repeat=5)))
    resized = sets(task("a", plain(30)), task("m", plain(20), rule), task("z", plain(1)))
    for one, two, three in zip(alone, more, resized, strict=True):
        assert one["m"] == two["m"] == three["m"]


def test_the_seed_changes_rows_and_orders_and_nothing_else_does() -> None:
    def found(seed: int, name: str = "t") -> list[dict[str, list[int]]]:
        return draws([task(name, plain(50), Rule(max_per_file=10))], replace(CONFIG, seed=seed))

    assert found(1) == found(1)
    assert found(1) != found(2)
    assert [sorted(epoch["t"]) for epoch in found(1)] != [sorted(epoch["u"]) for epoch in found(1, "u")]
    assert found(2**63 - 1)


def test_the_order_within_an_epoch_mixes_tasks_and_differs_between_epochs() -> None:
    tasks = [task("a", plain(200)), task("b", plain(200))]
    first, second, *_ = orders(tasks)
    assert first != second
    assert sorted(first) == sorted(second) == [(number, row) for number in (0, 1) for row in range(200)]
    changes = sum(one[0] != other[0] for one, other in pairwise(first))
    assert 150 < changes < 250


@pytest.mark.parametrize("seed", range(6))
def test_a_token_budget_takes_rows_until_it_is_reached(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [(1, int(length)) for length in draw.integers(2, 12, 60)]
    budget, repeat = int(draw.integers(20, 200)), int(draw.integers(1, 4))
    rule = Rule(max_response_tokens_per_file=budget, repeat=repeat)
    one = task("t", rows, rule)
    longest = max(length for _, length in rows)
    total = sum(length for _, length in rows)
    for epoch in draws([one]):
        spent = sum(rows[row][1] for row in epoch["t"])
        whole = total * repeat
        assert min(budget * repeat, whole) <= spent
        assert spent < budget * repeat + longest or spent == whole


def test_a_token_budget_and_a_cap_both_hold() -> None:
    def count(**rule: Any) -> int:
        return len(draws([task("t", plain(100, 10), Rule(**rule))])[0]["t"])

    assert count(max_response_tokens_per_file=100) == 10
    assert count(max_response_tokens_per_file=101) == 11
    assert count(max_response_tokens_per_file=100, max_per_file=5) == 5
    assert count(max_response_tokens_per_file=50, max_per_file=20) == 5
    assert count(max_response_tokens_per_file=100, repeat=3) == 30
    assert count(max_response_tokens_per_file=0) == 0
    assert count(max_response_tokens_per_file=1) == 1
    assert count(max_response_tokens_per_file=10**9) == 100
    assert count(max_response_tokens_per_file=10**9, repeat=2) == 200


def test_a_token_budget_walks_through_all_rows_before_any_comes_again() -> None:
    one = task("t", plain(10, 4), Rule(max_response_tokens_per_file=12))
    found = draws([one], replace(CONFIG, epochs=10))
    assert {len(epoch["t"]) for epoch in found} == {3}
    assert Counter(row for epoch in found for row in epoch["t"]) == dict.fromkeys(range(10), 3)


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
@pytest.mark.parametrize("rule", [Rule(max_per_file=0), Rule(repeat=0)])
def test_a_rule_that_wants_nothing_takes_nothing(profile: Profile, rule: Rule) -> None:
    config = replace(CONFIG, profile=profile)
    found = draws([task("a", plain(5), rule, config), task("b", plain(5), None, config)], config)
    assert [(len(epoch["a"]), len(epoch["b"])) for epoch in found] == [(0, 5)] * 3


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_epochs_without_rows_are_epochs(profile: Profile) -> None:
    config = replace(CONFIG, profile=profile, context_size=1)
    assert orders([task("a", plain(5), None, config)], config) == [[], [], []]


# --- a whole sample -------------------------------------------------------------------------------------------------


class Bench:
    """A tokenized folder of others, and samples of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenized = folder / "tokenized"
        self.target = folder / "shm" / "sampled"
        self.rows: dict[str, Rows] = {}
        self.tokens: dict[str, np.ndarray[Any, Any]] = {}
        self.tokenized.mkdir(parents=True)
        self.vocab(1000)
        self.rules([])

    def vocab(self, size: Any) -> None:
        (self.tokenized / INFO).write_text(json.dumps({"vocab_size": size, "boq": "é"}, ensure_ascii=False))

    def rules(self, items: list[dict[str, Any]]) -> None:
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(items))

    def put(self, name: str, rows: Rows, high: int = 1000, **changed: Any) -> None:
        folder = self.tokenized / name
        folder.mkdir(exist_ok=True)
        index: Mapping[str, Any] = index_of(rows)
        total = sum(map(sum, rows))
        self.rows[name] = rows
        self.tokens[name] = np.random.default_rng(len(self.rows)).integers(0, high, total).astype(np.uint32)
        np.save(folder / "tokens.npy", changed.get("tokens", self.tokens[name]))
        for part in INDEX:
            np.save(folder / f"{part}.npy", changed.get(part, index[part].astype(np.uint64)))

    def run(self, **options: Any) -> Outcome:
        values = {
            "tokenized_path": str(self.tokenized),
            "output_path": str(self.target),
            "prefix_config_path": str(self.folder / "rules.yaml"),
            "epochs": 2,
            "context_size": 16,
        }
        return run(SampleConfig(**{**values, **options}))

    def load(self, path: str) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = np.load(self.target / path)
        return array

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.target / "metadata.json").read_text())
        return found

    def texts(self, epoch: int) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Instruction and response tokens of every row of an epoch, as a trainer slices them."""
        tokens = self.load("tokens.npy")
        columns = [self.load(f"epoch_{epoch}/{part}.npy").tolist() for part in INDEX]
        return Counter(
            (tuple(tokens[a : a + b].tolist()), tuple(tokens[c : c + d].tolist()))
            for a, b, c, d in zip(*columns, strict=True)
        )

    def expected(self, name: str, row: int, cut: int = 1 << 40) -> tuple[tuple[int, ...], tuple[int, ...]]:
        index = index_of(self.rows[name])
        start, inst, resp_start, resp = (int(index[part][row]) for part in INDEX)
        tokens = self.tokens[name].tolist()
        return tuple(tokens[start : start + inst]), tuple(tokens[resp_start : resp_start + min(resp, cut)])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_a_trainers_slices_are_the_tokens_of_the_rows(bench: Bench, profile: Profile) -> None:
    draw = np.random.default_rng(5)
    for name in ("b.jsonl", "a__x.parquet", "B"):
        bench.put(name, [(int(a), int(b)) for a, b in draw.integers(1, 14, (30, 2))])
    bench.put("empty", [])
    bench.run(profile=profile, epochs=3)
    expected = Counter(
        bench.expected(name, row, 16 - inst)
        for name, rows in bench.rows.items()
        for row, (inst, resp) in enumerate(rows)
        if resp >= 2 and min(resp, 16 - inst) >= (2 if profile == "pairmill" else 1)
    )
    for epoch in range(3):
        assert bench.texts(epoch) == expected
    kinds = {bench.load(f"epoch_0/{part}.npy").dtype for part in INDEX}
    assert kinds == {np.dtype(np.int32 if profile == "pairmill" else np.int64)}


def test_defect_1_a_vocabulary_that_fits_takes_the_smaller_type(bench: Bench) -> None:
    bench.put("a", plain(5), high=200)
    for vocab, ours, theirs in [
        (255, "|u1", "|u1"),
        (256, "|u1", "<u2"),
        (257, "<u2", "<u2"),
        (65_535, "<u2", "<u2"),
        (65_536, "<u2", "<i4"),
        (65_537, "<i4", "<i4"),
        (None, "<i4", "<i4"),
    ]:
        bench.vocab(vocab)
        bench.run()
        assert bench.load("tokens.npy").dtype.str == ours, vocab
        bench.run(profile="data_io")
        assert bench.load("tokens.npy").dtype.str == theirs, vocab


def test_defect_2_only_tokens_that_are_sampled_are_kept(bench: Bench) -> None:
    bench.rules([{"prefix": "capped", "max_per_file": 1}])
    bench.put("capped", plain(10))
    bench.put("cut", [(4, 40)])
    bench.put("short", [(4, 1)])
    bench.run(epochs=2)
    assert len(bench.load("tokens.npy")) == 2 * 5 + 16
    bench.run(epochs=2, profile="data_io")
    assert len(bench.load("tokens.npy")) == 50 + 44 + 5


def test_defect_3_repeats_may_ask_for_more_rows_than_there_are(bench: Bench) -> None:
    bench.rules([{"prefix": "a", "repeat": 10}])
    bench.put("a", plain(7))
    bench.run()
    assert len(bench.load("epoch_0/inst_start.npy")) == 70
    assert set(bench.texts(1).values()) == {10}
    with pytest.raises(InputError, match=r"epoch 0: .*got 70; expected at most 7") as caught:
        bench.run(profile="data_io", output_path=str(bench.folder / "other"))
    assert caught.value.exit_code == 3
    assert not (bench.folder / "other").exists()


def test_defect_4_a_response_that_is_too_short_once_cut_is_left_out() -> None:
    rows = [(15, 9), (14, 9), (13, 9)]
    assert task("t", rows).columns["resp_len"].tolist() == [2, 3]
    assert task("t", rows).ledger.dropped == {"response_too_short_once_cut": 1}
    assert task("t", rows, None, replace(CONFIG, profile="data_io")).columns["resp_len"].tolist() == [1, 2, 3]


def test_defect_5_rows_left_out_are_counted_and_reported(bench: Bench) -> None:
    bench.put("a", [(3, 3), (16, 5), (20, 5), (3, 1), (15, 5), (3, 40)])
    outcome = bench.run()
    manifest = manifests.read(str(bench.target))
    assert manifest is not None
    assert manifest.ledger.rows_in == 6
    assert manifest.ledger.dropped == {"over_context": 2, "response_too_short": 1, "response_too_short_once_cut": 1}
    assert "### Rows Left Out or Cut" in outcome.stdout
    assert "| **a** | 6 | 1 | 2 | 1 | 1 |" in outcome.stdout
    assert "over_context" in outcome.report().html()
    assert "Left Out" not in bench.run(profile="data_io").stdout


def test_defect_6_truncated_rows_are_counted(bench: Bench) -> None:
    bench.put("a", [(3, 3), (3, 40), (3, 13), (3, 14)])
    outcome = bench.run()
    assert bench.metadata()["truncated_rows"] == 2
    assert outcome.metrics["truncated_rows"] == 2
    bench.run(profile="data_io")
    assert "truncated_rows" not in bench.metadata()


def test_defect_7_epochs_of_an_earlier_sample_go_and_metadata_says_how_many_there_are(bench: Bench) -> None:
    bench.put("a", plain(5))
    bench.run(epochs=4)
    assert bench.metadata()["epochs"] == 4
    bench.run(epochs=2)
    assert sorted(path.name for path in bench.target.glob("epoch_*")) == ["epoch_0", "epoch_1"]
    assert bench.metadata()["epochs"] == 2
    assert sorted(path.name for path in bench.target.parent.iterdir()) == ["sampled"]


def test_defect_8_unknown_keys_are_refused(bench: Bench) -> None:
    bench.put("a", plain(5))
    bench.rules([{"prefix": "a", "max_per_fil": 1}])
    with pytest.raises(UsageError, match=r"unknown key 'max_per_fil'.*did you mean 'max_per_file'"):
        bench.run()
    assert len(bench.run(profile="data_io").manifest()) > 0


def test_defect_9_a_task_more_leaves_the_rows_of_the_others(bench: Bench) -> None:
    bench.rules([{"prefix": "m", "max_per_file": 4}])
    bench.put("m", plain(20))
    bench.run()
    before = bench.texts(0)
    bench.put("a", plain(6))
    bench.run()
    assert before == before & bench.texts(0)
    assert sum(bench.texts(0).values()) == 10


def test_defect_10_vocab_size_stays_null_for_the_trainer_that_asserts_it(bench: Bench) -> None:
    bench.put("a", plain(5))
    for profile in ("pairmill", "data_io"):
        bench.run(profile=profile)
        assert bench.metadata()["vocab_size"] is None
        assert bench.metadata()["tokenizer_info"] == {"vocab_size": 1000, "boq": "é"}


def test_defect_11_no_warning_goes_to_stdout_and_none_for_rules_that_overlap_on_purpose(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.rules([{"prefix": "ab"}, {"prefix": "a"}])
    bench.put("abc", plain(5))
    caplog.set_level("INFO", "pairmill")
    assert "Warning" not in bench.run().stdout + caplog.text
    assert bench.run(profile="data_io").stdout.startswith("\n### Category")
    rule = '{"max_per_file":null,"long_context":"truncate","repeat":1}'
    assert f"Multiple possible prefixes for task abc, pick config {rule}" in caplog.text


def test_defect_12_a_token_outside_the_vocabulary_is_refused(bench: Bench) -> None:
    bench.vocab(256)
    bench.put("a", plain(50), high=300)
    with pytest.raises(
        InputError, match=r"tokenized/a: a token is outside the vocabulary; got \d+; expected below 256"
    ):
        bench.run()
    assert list(bench.target.parent.iterdir()) == []
    bench.run(profile="data_io")


def test_defect_13_a_category_named_global_is_counted_once(bench: Bench) -> None:
    bench.put("GLOBAL__x", plain(5))
    bench.put("other", plain(7))
    ours = bench.run().stdout
    assert "| **GLOBAL** | 12 (100.0%)" in ours
    assert "| **GLOBAL (category)** | 5 (41.7%)" in ours
    assert "| **GLOBAL** | 17 (100.0%)" in bench.run(profile="data_io").stdout


def test_defect_14_a_stray_folder_is_no_task(bench: Bench) -> None:
    bench.put("a", plain(5))
    (bench.tokenized / "notes").mkdir()
    (bench.tokenized / "notes" / "x").write_text("")
    assert bench.run().metrics["tasks"] == 1
    with pytest.raises(InputError, match="arrays of this data set are missing"):
        bench.run(profile="data_io")


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_defect_15_spans_outside_the_tokens_are_refused(bench: Bench, profile: Profile) -> None:
    bench.put("a", plain(5), inst_start=np.array([0, 5, 10, 15, 24], np.uint64))
    with pytest.raises(InputError, match="row 5: a span ends after the last token"):
        bench.run(profile=profile)
    assert not bench.target.exists()


def test_defect_16_a_budget_counts_response_tokens(bench: Bench) -> None:
    bench.rules([{"prefix": "a", "max_response_tokens_per_file": 30}])
    bench.put("a", plain(50, 6))
    bench.put("b", plain(3, 6))
    bench.run()
    assert int(bench.load("epoch_0/resp_len.npy").sum()) == 30 + 18
    bench.run(profile="data_io")
    assert int(bench.load("epoch_0/resp_len.npy").sum()) == 300 + 18


def test_defect_17_a_sample_that_fails_leaves_what_stood_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put("a", plain(5))
    bench.run()
    before = {path: path.read_bytes() for path in bench.target.rglob("*") if path.is_file()}
    assert len(before) == 2 + 2 * 4 + 1
    original = materialize._File.append

    def fail(file: Any, data: Any) -> None:
        if file._path == "metadata.json":
            raise OSError(28, "No space left on device", file._path)
        original(file, data)

    monkeypatch.setattr(materialize._File, "append", fail)
    with pytest.raises(StorageError, match="No space"):
        bench.run(epochs=3)
    assert {path: path.read_bytes() for path in bench.target.rglob("*") if path.is_file()} == before
    assert [path.name for path in bench.target.parent.iterdir()] == ["sampled"]


def test_what_others_put_at_the_target_is_not_touched(bench: Bench) -> None:
    bench.put("a", plain(5))
    bench.target.mkdir(parents=True)
    (bench.target / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="pairmill did not write what is there"):
        bench.run()
    assert (bench.target / "thesis.txt").read_text() == "x"
    (bench.target / "thesis.txt").unlink()
    assert not bench.run().reused  # an empty folder is nobody's


def test_a_target_that_is_no_folder_of_its_own_is_refused(bench: Bench) -> None:
    bench.put("a", plain(5))
    for output_path in ("/", "gs://bucket/x"):
        with pytest.raises(UsageError, match="output_path"):
            bench.run(output_path=output_path)
    with pytest.raises(UsageError, match="one or more of output_path, root is required"):
        bench.run(output_path="")


def test_a_second_run_does_nothing_and_a_damaged_sample_is_made_again(bench: Bench) -> None:
    bench.put("a", plain(5))
    first = bench.run()
    assert (first.reused, bench.run().reused) == (False, True)
    assert bench.run().stdout == first.stdout
    (bench.target / "epoch_1" / "inst_len.npy").unlink()
    assert not bench.run().reused
    assert bench.run().reused
    bench.put("b", plain(2))
    assert not bench.run().reused


@pytest.mark.parametrize("data", ["", "{", '{"format": 99}'])
def test_a_sample_whose_manifest_cannot_be_read_is_made_again(bench: Bench, data: str) -> None:
    # The hint of an unreadable manifest is to run the stage again: that must not end in the same error.
    bench.put("a", plain(5))
    root = bench.folder / "root"
    bench.run(root=str(root))
    (home,) = (root / "sample").glob("[0-9a-f]*")
    for folder in (bench.target, home):
        before = (folder / manifests.MANIFEST).read_bytes()
        (folder / manifests.MANIFEST).write_text(data)
        assert not bench.run(root=str(root)).reused
        assert (folder / manifests.MANIFEST).read_bytes() == before


def test_a_sample_without_a_row_is_an_input_error(bench: Bench) -> None:
    bench.put("a", [])
    with pytest.raises(InputError, match="has no rows"):
        bench.run()


def test_metadata_is_the_line_that_the_trainer_reads(bench: Bench) -> None:
    bench.put("a", [(2, 3), (2, 4)])
    bench.run(profile="data_io")
    assert (bench.target / "metadata.json").read_bytes() == (
        '{"tokenizer_info":{"vocab_size":1000,"boq":"é"},"vocab_size":null,"max_seq_len":16,"total_length":11}'.encode()
    )
    bench.run()
    assert list(bench.metadata()) == [
        "tokenizer_info",
        "vocab_size",
        "max_seq_len",
        "total_length",
        "epochs",
        "truncated_rows",
    ]


def test_the_mean_length_is_rounded_to_even(bench: Bench) -> None:
    bench.rules([{"prefix": "a", "max_per_file": 1}])
    bench.put("a", [(2, 2), (2, 3)])
    bench.run()
    assert bench.metadata()["total_length"] == 4  # (4 + 5) / 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": -1}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"context_size": 0}, "context_size"),
        ({"min_resp_length": -1}, "min_resp"),
    ],
)
def test_options_out_of_range_are_refused(bench: Bench, options: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=f"{said}.*out of range"):
        bench.run(**options)


def test_the_report_of_a_project_says_the_same_wherever_the_arrays_are(bench: Bench) -> None:
    bench.put("a", plain(5))
    root = bench.folder / "root"
    planned = bench.run(output_path="", root=str(root))
    (home,) = (root / "sample").glob("[0-9a-f]*")
    assert planned.parameters["output"] == str(home)
    text = (home / "report.md").read_text()
    assert text.startswith(planned.stdout)
    assert "## Inventory by source" in text
    drawn = bench.run(root=str(root))
    assert drawn.parameters == planned.parameters
    assert drawn.stdout == planned.stdout
    assert [path.name for path in (root / "sample").glob("[0-9a-f]*")] == [home.name]


def test_a_finished_report_does_not_change_when_the_arrays_are_drawn(bench: Bench) -> None:
    # Equal work, equal bytes: a finished folder is immutable, and its name is its content.
    bench.put("a", plain(5))
    root = bench.folder / "root"
    bench.run(output_path="", root=str(root))
    (home,) = (root / "sample").glob("[0-9a-f]*")
    before = contents(home)
    bench.run(root=str(root))
    assert contents(home) == before
    assert len(before) == 2 + 2 + len(INDEX) + 2  # manifest, marker; reports; rows; epochs


def test_coverage_is_counted_over_rows_that_may_be_sampled() -> None:
    one = task("c__t", [(2, 3), (2, 5), (2, 1)], Rule(max_per_file=1))
    plan, (found,) = planned([one], replace(CONFIG, epochs=1))
    stats, taken = found.stats, int(plan.rows["resp_len"].array()[0])
    assert (stats.rows, stats.itoks, stats.rtoks, stats.cov_rows, stats.unique_rows) == (2, 4, 8, 1, 1)
    assert (stats.cov_rtoks, stats.unique_toks, stats.cov_toks) == (taken, taken + 2, taken + 2)
    assert analytics.category("c__t__u") == "c"
    assert analytics.category("plain.jsonl") == "plain.jsonl"


# --- what a person is told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "options", "rules", "said"),
    [
        (
            plain(7, 9),
            {"context_size": 3},
            [],
            "7 rows: 7 response too short once cut.*raise context_size=3: the shortest row needs 4",
        ),
        (
            plain(7, 9),
            {"context_size": 1},
            [],
            "7 rows: 7 over context.*raise context_size=1: the shortest row needs 4",
        ),
        (
            [(2, 9), (3, 6)],
            {"context_size": 8},
            [{"prefix": "a", "long_context": "drop"}],
            "2 rows: 2 over context.*raise context_size=8: the shortest row needs 9",
        ),
        (
            plain(7),
            {"min_resp_length": 4},
            [],
            "7 rows: 7 response too short.*no response has min_resp_length=4 tokens",
        ),
        (
            plain(7),
            {},
            [{"prefix": "a", "max_per_file": 0}],
            "7 rows: 7 not sampled.*the rules select none: raise max_per",
        ),
        (plain(7), {}, [{"prefix": "", "repeat": 0}], "7 rows: 7 not sampled.*the rules select none"),
    ],
)
def test_a_sample_that_would_have_no_row_is_an_input_error_that_says_what_to_change(
    bench: Bench, rows: Rows, options: dict[str, Any], rules: list[dict[str, Any]], said: str
) -> None:
    bench.put("a", rows)
    bench.rules(rules)
    for place in ({}, {"output_path": "", "root": str(bench.folder / "root")}):
        with pytest.raises(InputError, match=f"no row is left to sample; got {said}") as caught:
            bench.run(**options, **place)
        assert caught.value.exit_code == 3
    assert not bench.target.exists()
    assert not (bench.folder / "root").exists()
    bench.run(profile="data_io", **options)  # the reference makes files of it, empty or not
    assert bench.load("epoch_0/inst_start.npy").dtype == np.int64


def test_the_context_that_is_named_is_enough_and_one_less_is_not(bench: Bench) -> None:
    draw = np.random.default_rng(3)
    for rule in ("truncate", "drop"):
        bench.rules([{"prefix": "", "long_context": rule}])
        for name in "ab":
            bench.put(name, [(int(a), int(b)) for a, b in draw.integers(5, 60, (20, 2))])
        with pytest.raises(InputError, match="raise context_size=1:") as caught:
            bench.run(context_size=1)
        least = int(caught.value.hint.rsplit(" ", 1)[1])
        with pytest.raises(InputError, match="no row is left"):
            bench.run(context_size=least - 1)
        assert bench.run(context_size=least).metrics["rows_kept"] > 0


def test_rows_and_tokens_that_were_cut_are_said_everywhere(bench: Bench) -> None:
    # 2 of 4 rows, and 5 + 11 of 65 tokens.
    bench.put("c__a", [(3, 18), (3, 5), (2, 5)])
    bench.put("c__b", [(7, 20), (1, 1)])
    outcome = bench.run(root=str(bench.folder / "root"))
    cut = 5 + 11
    assert outcome.metrics["truncated_rows"] == 2
    assert outcome.metrics["truncated_tokens"] == cut
    assert "**Rows Cut at the Context:** 2 out of 4 (50.00%)" in outcome.stdout
    assert f"**Tokens Cut Off:** {cut} out of 63 (25.40%)" in outcome.stdout
    assert "| **c__a** | 3 | 0 | 0 | 0 | 1 | 5 |" in outcome.stdout
    manifest = manifests.read(str(bench.target))
    assert manifest is not None
    assert manifest.ledger.measures["truncated_tokens"] == cut
    assert {name: one.measures for name, one in manifest.shards.items()} == {
        "c__a": {"truncated_tokens": 5},
        "c__b": {"truncated_tokens": 11},
    }
    report = outcome.report()
    line = (
        "2 sampled rows (50.0%) are longer than the context and were cut: 16 tokens, 25.4% of the sampled rows', "
        "are not seen."
    )
    assert line in report.look_at
    assert "- **Tokens cut off**: 25.4%" in report.markdown()
    assert "| c__b | truncated | 1 | 11 |" in report.markdown()
    assert "Cut" not in bench.run(profile="data_io").stdout


def test_only_rows_that_are_drawn_count_as_cut(bench: Bench) -> None:
    bench.put("c__few", [(3, 18)] * 9)
    bench.put("c__none", [(3, 18)] * 5)
    bench.put("c__short", [(2, 3)] * 3)
    bench.rules([{"prefix": "c__few", "max_per_file": 2}, {"prefix": "c__none", "max_per_file": 0}])
    outcome = bench.run(root=str(bench.folder / "root"), epochs=1)
    assert outcome.metrics["truncated_rows"] == 2
    lost = outcome.metrics["truncated_tokens"]
    report = outcome.report()
    (line,) = (one for one in report.look_at if "were cut" in one)
    assert line.startswith(f"2 sampled rows (40.0%) are longer than the context and were cut: {lost:,} tokens, ")
    assert "| c__few | truncated | 2 |" in report.markdown()
    assert "| c__none | truncated |" not in report.markdown()


@pytest.mark.parametrize("rule", ["max_per_file: 0", "repeat: 0", "max_response_tokens_per_file: 0"])
def test_a_task_that_is_lost_is_told_with_its_rows_and_one_that_was_not_asked_for_is_not(
    bench: Bench, rule: str
) -> None:
    bench.put("all_over_the_context", [(40, 3)] * 50)
    bench.put("all_too_short", [(2, 0)] * 7)
    bench.put("kept", plain(5))
    bench.put("not_asked_for", plain(5))
    (bench.folder / "rules.yaml").write_text(f"- prefix: not_asked\n  {rule}\n")
    (line,) = [one for one in bench.run(min_resp_length=1).report().look_at if "gone" in one]
    assert "of all_over_the_context (50 → 0 rows; 2,150 → 0 tokens; over context; as all_over_the_context:1 and" in line
    assert "all_too_short (7 → 0 rows; 14 → 0 tokens; response too short;" in line
    assert "kept" not in line
    assert "not_asked_for" not in line


def test_linked_tasks_are_left_out_with_a_warning(bench: Bench) -> None:
    bench.put("a", plain(5))
    bench.run()
    for name in "bc":
        (bench.tokenized / name).symlink_to(bench.tokenized / "a")
    assert bench.run().report().look_at == ["Links that are left out: b/, c/."]
    with pytest.raises(InputError, match=r"symbolic links are refused; got 2 links: b/, c/"):
        bench.run(links="refuse")
    assert set(json.loads(bench.run(links="follow").manifest())["shards"]) == {"a", "b", "c"}


def test_nothing_is_said_of_cuts_where_nothing_was_cut(bench: Bench) -> None:
    bench.put("a", plain(5))
    outcome = bench.run()
    assert outcome.report().look_at == []
    assert "**Tokens Cut Off:** 0 out of 25 (0.00%)" in outcome.stdout
    assert outcome.metrics["truncated_tokens"] == 0


def test_stdout_has_a_line_for_each_of_a_few_tasks_and_for_each_category_of_many(bench: Bench) -> None:
    few = [f"c{number % 3}__t{number:02}" for number in range(MOST_TASKS)]
    for name in few:
        bench.put(name, plain(5))
    assert all(f"| **{name}** |" in bench.run().stdout for name in few)
    bench.put("c1__long", [(2, 30)])
    planned = bench.run(root=str(bench.folder / "root"))
    assert "c1__" not in planned.stdout
    assert "| **c1** | 86 (" in planned.stdout
    assert "| **c1** | 86 | 0 | 0 | 0 | 1 | 16 |" in planned.stdout.partition("### Rows Left Out or Cut")[2]
    assert "### Task Coverage Stats" not in planned.stdout
    file = Path(planned.stdout.splitlines()[-1].rpartition(" ")[2])
    assert planned.stdout.splitlines()[-1] == f"{MOST_TASKS + 1} tasks; each has its line in {file}"
    lines = file.read_text().splitlines()
    assert file.name == "tasks.csv"
    assert sorted(line.partition(",")[0] for line in lines[1:]) == sorted([*few, "c1__long"])
    assert "data.analytics" in bench.run().stdout.splitlines()[-1]
    assert "### Task Coverage Stats" in bench.run(profile="data_io").stdout  # the reference prints all


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_a_rule_that_applies_to_no_task_is_named_and_each_tasks_rule_is_in_the_report(
    bench: Bench, profile: Profile
) -> None:
    bench.put("chat__x", plain(5))
    bench.put("code__y", plain(5))
    bench.put("other", plain(5))
    bench.rules(
        [{"prefix": "chta", "max_per_file": 1}, {"prefix": "co", "max_per_file": 2}, {"prefix": "zzz__", "repeat": 2}]
    )
    outcome = bench.run(profile=profile)
    for report in (outcome.report(), bench.run(profile=profile).report()):
        assert "Rules that apply to no task: 'chta' (did you mean 'chat'?), 'zzz__'." in report.look_at
        assert "Tasks that no rule matches, so they are taken whole: chat__x (5 rows;" in report.look_at[0]
        page = report.markdown()
        assert "| chat__x | no rule |  | all | 1 | truncate | all |" in page
        assert "| code__y | 'co' |  | 2 | 1 | truncate | all |" in page
        assert "Rules that apply to no task\n\n| Rule | Hidden by |\n|---|---|\n| 'chta' |  |\n| 'zzz__' |  |\n" in page
    many = [{"prefix": f"set{number:02}__"} for number in range(20)]
    bench.rules([*many, {"prefix": "chta"}])
    _, line = bench.run(profile=profile).report().look_at
    assert line.endswith("'chta' (did you mean 'chat'?).")
    assert line.count("'set") == 20
    bench.rules([{"prefix": "chat"}, {"prefix": "c"}, {"prefix": ""}])
    (line,) = bench.run(profile=profile).report().look_at
    assert "'c' and '' (5 rows" in line


def test_a_rule_that_is_nothing_is_no_matter_where_no_task_reaches_it(bench: Bench) -> None:
    bench.put("a", plain(5))
    bench.rules([{"prefix": "a"}, {"prefix": "b", "max_per_file": "many"}])
    assert "'b'" in str(bench.run(profile="data_io").report().look_at)


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_names_of_tasks_are_escaped_in_the_analytics_and_ordinary_ones_stay(bench: Bench, profile: Profile) -> None:
    bench.rules([{"prefix": "", "max_per_file": 1}])
    bench.put("a|b<i>__*x*", [*plain(3), (1, 1), (3, 40)])
    bench.put("flan__cot_zs data__wiki-dialog (1) & more.parquet", [*plain(3), (1, 1)])
    text = bench.run(profile=profile).stdout
    assert "| **a\\|b\\<i>** |" in text
    assert "| **a\\|b\\<i>\\_\\_\\*x\\*** |" in text
    assert "| **flan__cot_zs data__wiki-dialog (1) & more.parquet** |" in text
    for block in text.split("\n\n"):
        bars = [len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines() if line.startswith("|")]
        assert len(set(bars)) <= 1, block
