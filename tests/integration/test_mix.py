"""The mix stage: from a tokenized folder to a plan, whatever its rules, sources, attributes and workers are."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.interface import stagecli
from pairmill.mixture import counting, inputs
from pairmill.mixture.plan import BUCKETS, NAME
from pairmill.mixture.reading import load_mixture
from pairmill.rules.book import Rules
from pairmill.stages.mix import core
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.mix.core import Mix
from pairmill.stages.mix.preview import PreviewConfig, preview
from tests.support import tools
from tests.support.data.tokens_and_mixtures import Bench
from tests.support.helpers import contents
from tests.support.stages import curating, mixing
from tests.support.stages.mixing import mix, result
from tests.support.tokenizers.sides import trained

USAGE, INPUT = 2, 3


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Three sets with five tasks; lengths from 1 to 300, of which the context of 200 cuts some."""
    draw = random.Random(5)
    made = Bench(tmp_path / "bench", context=200)
    for name, rows in {"web__a": 300, "web__b": 41, "books__x": 20, "code__c": 7, "code__d": 0}.items():
        made.put(name, [draw.randint(1, 300) for _ in range(rows)])
    return made


def test_counts_are_those_of_the_samplers_filter(bench: Bench, tmp_path: Path) -> None:
    plan = mix(tmp_path, bench.tokenized, "method: unimax\n")
    counted = bench.counted()
    assert {key: (one.rows, one.response_tokens, one.squares) for key, one in plan.tasks.items()} == {
        key: (one.rows, one.response_tokens, one.squares) for key, one in counted.items()
    }
    assert 0 < plan.tasks["web__a", None].rows < 300  # responses of one token are too short
    assert plan.names == ["books", "code", "web"]
    assert plan.budget == sum(one.response_tokens for one in counted.values())


@pytest.mark.parametrize("long_context", ["truncate", "drop"])
def test_long_rows_are_those_of_the_rules(long_context: str, bench: Bench, tmp_path: Path) -> None:
    bench.rules([{"prefix": "web", "long_context": long_context, "max_per_file": 3, "repeat": 2}])
    plan = mix(tmp_path, bench.tokenized, "method: unimax\n", prefix_config_path=str(bench.folder / "rules.yaml"))
    lengths = bench.lengths["web__a"]
    kept = lengths[(lengths >= 2) & ((lengths <= 198) | (long_context == "truncate"))]
    one = plan.tasks["web__a", None]
    assert (one.rows, one.response_tokens) == (len(kept), int(np.minimum(kept, 198).sum()))


def test_the_sampler_draws_what_is_planned(bench: Bench, tmp_path: Path) -> None:
    said = (
        "method: unimax\nbudget: 15_000\nphases: [{name: a, until: 0.6, epochs: 2}, {name: b, until: 1, epochs: 1}]\n"
    )
    made = result(tmp_path, bench.tokenized, said)
    plan = load_mixture(made.uri)
    bench.run(mixture=made.uri)
    names = list(bench.lengths)
    for epoch in range(plan.epochs):
        drawn = Counter(names[number] for number in bench.epoch(epoch).task.tolist())
        assert drawn == Counter({key[0]: wanted[epoch] for key, wanted in plan.wants().items() if wanted[epoch]})


def test_tasks_that_are_left_out(bench: Bench, tmp_path: Path) -> None:
    said = "method: unimax\nothers: leave\nsources: [{name: web, prefixes: [web__]}]\n"
    made = result(tmp_path, bench.tokenized, said)
    plan = load_mixture(made.uri)
    assert plan.names == ["web", "(left out)"]
    assert {key[0] for key, wanted in plan.wants().items() if any(wanted)} == {"web__a", "web__b"}
    bench.run(mixture=made.uri)
    assert set(bench.epoch(0).task.tolist()) <= {0, 1}
    page = Mix().report(made.manifest).markdown()
    assert "Nothing is drawn of (left out)" in page


def test_sources_of_others(bench: Bench, tmp_path: Path) -> None:
    said = "method: weights\nweights: {big: 1, books: 2, code: 0}\nothers: sources\n"
    said += "sources: [{name: big, prefixes: [web__]}]\n"
    plan = mix(tmp_path, bench.tokenized, said)
    assert plan.names == ["big", "books", "code"]
    assert [one.share for one in plan.sources] == pytest.approx([1 / 3, 2 / 3, 0])


def test_presets_say_their_exponent_and_shares(bench: Bench, tmp_path: Path) -> None:
    once = {name: int(np.minimum(some[some >= 2], 198).sum()) for name, some in bench.lengths.items()}
    made = result(tmp_path / "code", bench.tokenized, "method: code\n")
    plan = load_mixture(made.uri)
    web, books = once["web__a"] + once["web__b"], once["books__x"]
    shares = {one.name: one.share for one in plan.sources}
    assert shares["web"] / shares["books"] == pytest.approx((web / books) ** 1.3)
    page = Mix().report(made.manifest).markdown()
    assert "code (exponent 1.3)" in page
    assert f"{100 * shares['web']:.2f}%" in page
    english = mix(tmp_path / "english", bench.tokenized, "method: english\n")
    assert {one.epochs for one in english.sources} == {1.0}
    for key, wanted in english.wants().items():
        assert sum(wanted) == english.tasks[key].rows  # each row once, though three epochs do not divide them


def test_any_number_of_workers_and_any_sizes_of_shards(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "method: exponent\nexponent: 0.7\nmax_epochs: 2\n"
    made = [contents(Path(result(tmp_path / f"{n}", bench.tokenized, said, workers=n).uri)) for n in (1, 3, 8)]
    assert made[0] == made[1] == made[2]
    monkeypatch.setattr(inputs, "_TASKS_AT_ONCE", 1)
    single = contents(Path(result(tmp_path / "single", bench.tokenized, said, workers=3).uri))
    assert single[NAME] == made[0][NAME]
    assert single["report.html"].replace(b"\n", b"") != b""


def test_again_is_reused_and_another_budget_counts_nothing_again(bench: Bench, tmp_path: Path) -> None:
    first = result(tmp_path, bench.tokenized, "method: unimax\n")
    assert result(tmp_path, bench.tokenized, "# the same\nmethod: unimax\n").reused
    before = tools.stamps(tmp_path / "mix" / "shards")
    other = result(tmp_path, bench.tokenized, "method: unimax\nbudget: 900\n")
    assert other.uri != first.uri
    assert tools.stamps(tmp_path / "mix" / "shards") == before


def test_keys_of_shards_follow_from_what_they_read(bench: Bench, tmp_path: Path) -> None:
    """Whatever changes a count changes the key; what only the plan reads does not."""

    def keys(said: str = "method: unimax\n", rules: str = "[]", **options: Any) -> set[str]:
        given: dict[str, Any] = {"context_size": 200, **options}
        config = MixConfig(
            root=str(tmp_path),
            tokenized_path=str(bench.tokenized),
            mix_config=str(mixing.settings(tmp_path, said)),
            prefix_config_path=mixing.rules(tmp_path, rules),
            **given,
        )
        return {shard.key for shard in runner.first_round(Mix(), config)}

    before = keys()
    assert keys("method: code\nbudget: 500\ncaps: {web: 3}\n", epochs=5, seed=3) == before
    assert keys(rules="[{prefix: web, max_per_file: 3, repeat: 2}]") == before
    others = [
        keys(context_size=199),
        keys(min_resp_length=3),
        keys(rules="[{prefix: books, long_context: drop}]"),
    ]
    bench.put("books__x", [7] * 20)
    others.append(keys())
    assert all(other.isdisjoint(before) for other in others)
    assert len(set.union(*others)) == len(others)


def test_compared_with_an_earlier_plan(bench: Bench, tmp_path: Path) -> None:
    before = result(
        tmp_path, bench.tokenized, "method: unimax\nsources: [{name: web, prefixes: [web]}]\nothers: sources\n"
    )
    said = "method: code\nsources: [{name: crawl, prefixes: [web]}]\nothers: sources\n"
    made = result(tmp_path, bench.tokenized, said, compare=before.uri)
    assert contents(Path(made.uri))[NAME] == contents(Path(result(tmp_path, bench.tokenized, said).uri))[NAME]
    table = {row["source"]: row for row in made.manifest.data["table"]}
    assert table["crawl"]["earlier"] is None
    assert table["books"]["earlier"] == pytest.approx(1 / 3)
    page = Mix().report(made.manifest)
    assert "Before" in page.markdown()
    assert "It also had web." in page.markdown()
    assert "new" in page.markdown()
    assert "in the plan before" in page.html()


def test_preview_says_what_the_stage_plans(bench: Bench, tmp_path: Path) -> None:
    rules = mixing.rules(tmp_path)
    shown = preview(
        PreviewConfig(
            tokenized_path=str(bench.tokenized),
            prefix_config_path=rules,
            method="unimax",
            budget="9_000",
            max_epochs="2",
            epochs=3,
            context_size=200,
            allow_unfilled=True,
        )
    )
    said = "method: unimax\nbudget: 9000\nmax_epochs: 2\nallow_unfilled: true\n"
    plan = mix(tmp_path, bench.tokenized, said)
    for source in plan.sources:
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [source.name])
        assert f"{100 * source.share:.2f}%" in line
        assert f"{round(source.tokens):,}" in line
    assert not list(tmp_path.glob("**/_STARTED.json")) or (tmp_path / "mix").exists()


def test_preview_of_nothing_asked_is_as_it_comes(bench: Bench, tmp_path: Path) -> None:
    before = tools.digests(tmp_path)
    shown = preview(
        PreviewConfig(
            tokenized_path=str(bench.tokenized),
            prefix_config_path=str(bench.folder / "rules.yaml"),
            mix_config=str(mixing.settings(tmp_path, "method: off\n")),
            context_size=200,
        )
    )
    (tmp_path / "mix.yaml").unlink()
    assert tools.digests(tmp_path) == before  # nothing is written
    assert shown.startswith("all: exponent (exponent 1)")
    for line in shown.splitlines()[2:]:
        _, share, natural, *_ = line.split()
        assert share == natural


def test_preview_of_weights_and_errors(bench: Bench) -> None:
    options: dict[str, Any] = {
        "tokenized_path": str(bench.tokenized),
        "prefix_config_path": str(bench.folder / "rules.yaml"),
        "context_size": 200,
    }
    shown = preview(PreviewConfig(**options, weights=["web=1", "books=3", "code=0"]))
    assert "75.00%" in shown
    with pytest.raises(UsageError, match=r"weights\.web: not a number"):
        preview(PreviewConfig(**options, weights=["web=x"]))
    with pytest.raises(UsageError, match="not a weight"):
        preview(PreviewConfig(**options, weights=["web"]))
    with pytest.raises(UsageError, match="not a number"):
        preview(PreviewConfig(**options, budget="lots"))
    with pytest.raises(UsageError, match="say the same"):
        preview(PreviewConfig(**options, exponent="1", temperature="2"))


def test_exported_rules_draw_what_is_planned(bench: Bench, tmp_path: Path) -> None:
    """The sampler that is given the rules in place of the plan: never more, and short by less than repeat rows."""
    said = "method: unimax\nbudget: 30_000\n"
    made = result(tmp_path, bench.tokenized, said, epochs=4)
    plan, target = load_mixture(made.uri), tmp_path / "rules.out.yaml"
    tools.ended(tools.stage("mix", mixture=made.uri, prefix_config=target), USAGE)  # a command comes first
    done = tools.run([*tools.command("mix"), "export", f"mixture={made.uri}", f"prefix_config={target}"])
    assert (tools.ended(done).out, done.code) == ("", 0)
    Rules.load(str(target), "pairmill", "prefix_config_path")  # no rule hides another
    bench.run(mixture="", prefix_config_path=str(target), epochs=4)
    names = list(bench.lengths)
    repeated = 0
    for epoch in range(4):
        drawn = Counter(names[number] for number in bench.epoch(epoch).task.tolist())
        for key, wanted in plan.wants().items():
            mean = sum(wanted) // 4
            repeat = max(1, -(-mean // max(1, plan.tasks[key].rows)))
            assert mean - repeat < drawn[key[0]] <= mean
            repeated += repeat > 1
    assert repeated


# Buckets


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Rows with attributes of curate, and their tokens."""
    tmp_path = tmp_path_factory.mktemp("attributed")
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    draw = random.Random(2)

    def rows(count: int) -> list[tuple[str, str, str]]:
        return [
            (
                "direct",
                f"{number} {' '.join(draw.choices(words, k=4))}",
                " ".join(draw.choices(words, k=draw.randint(1, 60))),
            )
            for number in range(count)
        ]

    given = curating.write(tmp_path / "rows", {"a.jsonl": rows(70), "b.parquet": rows(31), "c.jsonl": rows(9)})
    off = "exact: off\nnear: off\ndecontaminate: off\nheuristics: report\n"
    curated = curating.curate(tmp_path / "curated", given, off)
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|direct|>", "<|cot|>", "<|noisy|>", "<|synth|>"]
    special += [
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
        "<|quad_start|>",
        "<|quad_end|>",
    ]
    trained([" ".join(words)] * 9, 400, True, special).save(str(tmp_path / "tokenizer.json"))
    done = tools.stage(
        "tokenize", rows=curated, tokenizer=tmp_path / "tokenizer.json", root=tmp_path / "tokens", workers=1
    )
    return curated, tools.folder(done)


BY_WORDS = "buckets: {attributes: [{attribute: heuristics.r_words, edges: [10, 30], names: [short, middle, long]}]}\n"


def test_buckets_of_rows_by_an_attribute(attributed: tuple[Path, Path], tmp_path: Path) -> None:
    curated, tokenized = attributed
    said = f"method: attribute\nweights: {{short: 1, middle: 2, long: 1}}\nbudget: 2000\n{BY_WORDS}"
    made = result(tmp_path / "root", tokenized, said, rows=[str(curated)], context_size=4097)
    plan = load_mixture(made.uri)
    assert plan.buckets == ("short", "middle", "long", "none")
    shares = {one.name: one.share for one in plan.sources}
    assert shares == pytest.approx({"short": 0.25, "middle": 0.5, "long": 0.25})
    looked = 0
    for task in ("a.jsonl", "b.parquet", "c.jsonl"):
        words = pq.read_table(curated / f"attributes/heuristics/{task}.parquet")["r_words"].to_numpy()
        codes = np.load(Path(made.uri) / BUCKETS / f"{task}.npy")
        assert codes.dtype == np.uint16
        assert codes.tolist() == [int(one >= 10) + int(one >= 30) for one in words]
        lengths = np.load(tokenized / task / "resp_len.npy")
        for code in set(codes.tolist()):
            one = plan.tasks[task, code]
            assert (one.rows, one.response_tokens) == (int((codes == code).sum()), int(lengths[codes == code].sum()))
            looked += 1
    assert looked >= 7
    target = tmp_path / "sampled"
    options = {"tokenized_path": tokenized, "mixture": made.uri, "prefix_config_path": mixing.rules(tmp_path)}
    tools.ended(tools.stage("sample", **options, output_path=target))
    drawn = sum(len(np.load(target / f"epoch_{epoch}" / "resp_len.npy")) for epoch in range(3))
    assert drawn == sum(sum(wanted) for wanted in plan.wants().values())


@pytest.mark.parametrize("buckets", ["", BY_WORDS])
def test_rows_that_rules_split_are_counted_in_pieces(
    buckets: str, attributed: tuple[Path, Path], tmp_path: Path
) -> None:
    """Of a bucket too: a piece is in the bucket of its row. The sampler compares all counts with its own."""
    curated, tokenized = attributed
    rules = mixing.rules(tmp_path / "of rows", "[{prefix: a, long_context: split}, {prefix: b, long_context: drop}]")
    options = {"rows": [str(curated)], "context_size": 40, "prefix_config_path": rules}
    made = result(tmp_path / "root", tokenized, f"method: english\n{buckets}", **options)
    plan = load_mixture(made.uri)
    there = len(np.load(tokenized / "a.jsonl" / "resp_len.npy"))
    assert sum(one.rows for key, one in plan.tasks.items() if key[0] == "a.jsonl") > there
    assert made.manifest.ledger.notes["split"] > 0
    target = tmp_path / "sampled"
    given = {"tokenized_path": tokenized, "mixture": made.uri, "prefix_config_path": rules, "context_size": 40}
    tools.ended(tools.stage("sample", **given, output_path=target))
    drawn = sum(int(np.load(target / f"epoch_{epoch}" / "resp_len.npy").sum()) for epoch in range(3))
    assert drawn == plan.budget  # each row once


@pytest.mark.parametrize("rule", ["truncate", "split"])
def test_counts_do_not_depend_on_how_many_rows_are_read_at_once(
    rule: str, attributed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curated, tokenized = attributed
    rules = mixing.rules(tmp_path / "of rows", f"[{{prefix: '', long_context: {rule}}}]")
    options = {"rows": [str(curated)], "context_size": 40, "prefix_config_path": rules}
    plans = []
    for at_once in (1 << 18, 7):
        monkeypatch.setattr(counting, "_ROWS_AT_ONCE", at_once)
        plans.append(mix(tmp_path / str(at_once), tokenized, f"method: english\n{BY_WORDS}", **options))
    assert plans[0] == plans[1]
    assert len(plans[0].tasks) >= 7


def test_buckets_of_two_attributes_and_a_plain_source(attributed: tuple[Path, Path], tmp_path: Path) -> None:
    curated, tokenized = attributed
    said = (
        "method: unimax\nsources: [{name: whole, prefixes: [b.]}]\n"
        "buckets: {prefixes: [a.], attributes: [{attribute: heuristics.r_words, edges: [20]}, "
        "{attribute: heuristics.i_words, in: ['5', '6']}]}\nothers: leave\n"
    )
    plan = mix(tmp_path / "root", tokenized, said, rows=[str(curated)])
    assert plan.buckets[:5] == ("<20|5", "<20|6", "<20|other", "<20|none", ">=20|5")
    assert plan.names == ["whole", "<20|5", ">=20|5", "(left out)"]
    assert {key[0] for key in plan.tasks if key[1] is not None} == {"a.jsonl"}


def test_another_bucket_or_attribute_is_another_key(attributed: tuple[Path, Path], tmp_path: Path) -> None:
    curated, tokenized = attributed
    made = [
        result(tmp_path, tokenized, f"method: english\nbuckets: {{attributes: [{one}]}}\n", rows=[str(curated)])
        for one in (
            "{attribute: heuristics.r_words, edges: [10]}",
            "{attribute: heuristics.r_words, edges: [11]}",
            "{attribute: heuristics.i_words, edges: [10]}",
        )
    ]
    assert len({one.uri for one in made}) == 3
    assert len(tools.records(tmp_path, "mix")) == 3


def test_attributes_that_do_not_fit_the_tokenized_rows(attributed: tuple[Path, Path], tmp_path: Path) -> None:
    _, tokenized = attributed
    other = curating.write(
        tmp_path / "less", {name: [("", "q", "a b c")] * 5 for name in ("a.jsonl", "b.parquet", "c.jsonl")}
    )
    curated = curating.curate(
        tmp_path / "other", other, "exact: off\nnear: off\ndecontaminate: off\nheuristics: report\n"
    )
    with pytest.raises(PairmillError, match=r"do not fit the tokenized rows; got 5 rows with attributes") as caught:
        mix(tmp_path / "root", tokenized, f"method: unimax\n{BY_WORDS}", rows=[str(curated)])
    assert caught.value.exit_code == INPUT


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("heuristics.r_wrods", "have no such attribute; got heuristics.r_wrods; .*; write heuristics.r_words"),
        ("quality.score", "have no such attribute; got quality.score; expected heuristics.i_"),
    ],
)
def test_attributes_that_are_not_there(
    attribute: str, said: str, attributed: tuple[Path, Path], tmp_path: Path
) -> None:
    curated, tokenized = attributed
    asked = f"method: unimax\nbuckets: {{attributes: [{{attribute: {attribute}, edges: [1]}}]}}\n"
    with pytest.raises(PairmillError, match=said) as caught:
        mix(tmp_path / "root", tokenized, asked, rows=[str(curated)])
    assert caught.value.exit_code == INPUT


def test_buckets_without_their_rows(bench: Bench, attributed: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rows: buckets need the rows"):
        mix(tmp_path / "root", bench.tokenized, f"method: unimax\n{BY_WORDS}")
    with pytest.raises(InputError, match="5 tasks are not among the rows"):
        mix(tmp_path / "root", bench.tokenized, f"method: unimax\n{BY_WORDS}", rows=[str(attributed[0])])


# What is refused


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("method: unimax\nmax_epochs: 2\nbudget: '1e9'\n", USAGE, "budget: not a valid value.*expected a number"),
        ("method: unimax\nmax_epochs: 1\nbudget: 900_000\n", USAGE, "mix_config budget.*got 900,000.*at most [0-9,]+"),
        ("method: weights\nweights: {web: 1, boks: 2, code: 1}\n", USAGE, "no source is called 'boks'.*'books'"),
        ("method: unimax\ncaps: {wbe: 1}\n", USAGE, "no source is called 'wbe'.*did you mean 'web'"),
        ("method: exponent\nexponent: 1\ntemperature: 2\n", USAGE, "line 3, temperature: .*say the same"),
        ("method: unimax\nmax_epochs: 0\n", USAGE, "line 2, max_epochs: out of range; got 0"),
        ("method: unimax\ncaps: {web: 0}\n", USAGE, "line 2, caps: out of range; got 0|caps.*out of range"),
        ("method: unimax\nsources: [{name: a, prefixes: [web]}, {name: b, prefixes: [web__a]}]\nothers: leave\n",
         USAGE, "two sources have the task 'web__a'.*'a' and 'b'"),
        ("method: unimax\nsources: [{name: a, prefixes: [wbe__]}]\nothers: leave\n",
         USAGE, "no task begins with 'wbe__'.*'web'"),
        ("method: unimax\nsources: [{name: a, prefixes: [web]}]\n", USAGE, "3 tasks have no source.*others: leave"),
        ("method: weights\nweights: {wbe: 1}\nothers: leave\n", USAGE, "there is no source.*which makes these: .*web"),
        ("method: unimax\nphases: [{name: a, until: 0.5}, {name: b, until: 0.9}]\n", USAGE, "do not end at 1; got 0.9"),
        ("method: unimax\nphases: [{name: a, until: 0.5}, {name: b, until: 0.5}]\n", USAGE, "not ascending"),
        ("method: unimax\nphases: [{name: a, until: 0.5}, {name: b, until: 1}]\n",
         USAGE, "whole number of epochs.*got 0.5 of 3"),
        ("method: unimax\nphases: [{name: a, until: 0.5, epochs: 1}, {name: b, until: 1}]\n", USAGE, "has no epochs"),
        ("method: unimax\nphases: [{name: a, until: 1, method: code, exponent: 2}]\n",
            USAGE, r"phases\[1\]\.exponent: .*code does not read"),
        ("method: attribute\nweights: {a: 1}\n", USAGE, "buckets: .*needs buckets"),
        ("method: unimax\nbuckets: {attributes: [{attribute: a.b, edges: [2, 1]}]}\n",
         USAGE, "edges: not ascending.*expected .1.0, 2.0."),
        ("method: unimax\nbuckets: {attributes: [{attribute: a.b}]}\n",
         USAGE, "edges, in is required"),
        ("method: unimax\nbuckets: {attributes: [{attribute: ab, edges: [1]}]}\n",
         USAGE, "attribute: not a valid value; got 'ab'; expected <operation>.<column>"),
        ("method: unimax\nbudget: 200_000\n", USAGE, "epochs are too few; got 3 epochs of"),
        ("method: unimaks\n", USAGE, "unknown value.*did you mean 'unimax'"),
        ("metod: unimax\n", USAGE, "unknown key 'metod'.*did you mean 'method'"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(said: str, code: int, expected: str, bench: Bench, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(PairmillError, match=expected) as caught:
        mix(root, bench.tokenized, said)
    assert caught.value.exit_code == code
    assert not list(root.rglob("_STARTED.json"))  # refused before a byte of the result is written
    assert not list(root.rglob(NAME))


def test_a_message_and_an_exit_code(bench: Bench, tmp_path: Path) -> None:
    path = mixing.settings(tmp_path, "method: unimax\nmax_epochs: 1\nbudget: 900_000\n")
    options = {"tokenized_path": bench.tokenized, "mix_config": path, "prefix_config_path": mixing.rules(tmp_path)}
    done = tools.stage("mix", root=tmp_path / "root", **options)
    assert (done.code, done.out) == (USAGE, "")
    assert "allow_unfilled" in done.message
    done = tools.stage("mix", root=tmp_path / "root", **{**options, "tokenized_path": tmp_path / "none"})
    assert (done.code, done.out) == (INPUT, "")
    done = tools.stage("mix", root=tmp_path / "root", **options, compare=tmp_path / "none")
    assert (done.code, done.out) == (INPUT, "")
    assert "compare=" in done.message


def test_a_tokenized_folder_that_changes(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plan of the run and its shards, as if somebody tokenized again into the same folder."""
    open_inputs = core.open_inputs

    def then_change(*given: Any, **options: Any) -> Any:
        found = open_inputs(*given, **options)
        bench.put("books__x", [5] * 20)
        return found

    monkeypatch.setattr(core, "open_inputs", then_change)
    with pytest.raises(PairmillError, match="changed while it was read") as caught:
        mix(tmp_path / "root", bench.tokenized, "method: unimax\n")
    assert caught.value.exit_code == INPUT
    monkeypatch.undo()
    before = mix(tmp_path / "root", bench.tokenized, "method: english\n")
    bench.put("books__x", [6] * 20)
    after = mix(tmp_path / "root", bench.tokenized, "method: english\n")
    assert before.inputs.tokenized != after.inputs.tokenized
    assert after.tasks["books__x", None].response_tokens == 120


def test_nothing_left_to_sample(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row may be sampled; got 368 response too short"):
        mix(tmp_path / "root", bench.tokenized, "method: unimax\n", min_resp_length=1000)


# Nothing asked


def test_off_is_over_at_once_and_hands_nothing_on(bench: Bench, tmp_path: Path) -> None:
    for options in ({"said": "method: off\n"}, {"said": "method: unimax\n", "profile": "data_io"}):
        said = options.pop("said")
        root = tmp_path / options.get("profile", "off")
        config = MixConfig(
            root=str(root),
            tokenized_path=str(tmp_path / "is not even read"),
            mix_config=str(mixing.settings(tmp_path, said)),
            **options,  # type: ignore[arg-type]
        )
        start = time.process_time()
        outcome = stagecli.run(Mix(), config)
        assert time.process_time() - start < 1
        assert outcome.stdout == "\n"
        assert outcome.parameters["output"] == ""
        assert "nothing to do" in outcome.report().markdown()
        assert {path.name for path in root.rglob("*") if path.is_file()} == {
            "_MANIFEST.json", "_STARTED.json", "report.html", "report.md"
        }  # fmt: skip
    bench.run(mixture="")
    assert len(bench.epoch(0).row) == sum(one.rows for one in bench.counted().values())


def test_held_out_rows_are_never_read(tmp_path: Path) -> None:
    """Every byte of them is another one, in files of the same size: the plan has the same bytes."""
    tools.raw_data(tmp_path / "raw", 40)
    root, rules = tmp_path / "root", tools.rules(tmp_path / "rules.yaml")
    cleaned = tools.folder(tools.stage("clean", raw=tmp_path / "raw", root=root, holdout=0.2, workers=1))
    trained_ = tools.stage(
        "train_tokenizer", rows=cleaned, root=root, vocab_size=400, prefix_config_path=rules, workers=1
    )
    tokenized = tools.folder(
        tools.stage("tokenize", rows=cleaned, tokenizer=tools.folder(trained_), root=root, workers=1)
    )
    held_out = sorted((tokenized / "holdout").rglob("*.npy"))
    assert len(held_out) >= 5
    plans = []
    for name in ("before", "after"):
        plans.append(
            contents(Path(result(tmp_path / name, tokenized, "method: unimax\n", context_size=4097).uri))[NAME]
        )
        for path in held_out:
            path.chmod(0o644)
            path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))
    assert plans[0] == plans[1]
    tasks = {task["task"] for source in json.loads(plans[0])["sources"] for task in source["tasks"]}
    assert tasks
    assert not any(task.startswith("holdout") for task in tasks)
    rows = sum(task["rows"] for source in json.loads(plans[0])["sources"] for task in source["tasks"])
    manifest = tools.read_manifest(tokenized)
    assert 0 < rows <= manifest["ledger"]["rows_out"]
    assert sum(manifest["data"]["held_out"].values()) > 0
