"""The search stage: mixtures for proxies, what they lost, and the mixture that loses least. Nets are laws here."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.runner import Result
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.mixture.plan import NAME
from pairmill.mixture.reading import load_mixture
from pairmill.stages.search.core import OPTIMUM
from pairmill.stages.search.space import KEPT
from tests.support import tools
from tests.support.data.tokens_and_mixtures import Bench
from tests.support.helpers import contents
from tests.support.nets import mixture_task
from tests.support.stages import curating, mixing, searching
from tests.support.stages.searching import (
    evaluated,
    log_linear,
    outputs_of,
    power,
    proxies,
    runs_of,
    sampled,
    search,
    shares_of,
)
from tests.support.tokenizers.sides import trained

ROWS = {"web__a": 900, "web__b": 120, "books__x": 240, "code__c": 330}
TARGETS = ("books", "code", "web")
SLOPES = {
    "books": {"web": 0.1, "books": -1.6, "code": 0.3},
    "code": {"web": 0.2, "books": 0.1, "code": -1.1},
    "web": {"web": -0.5, "books": -0.2, "code": 0.2},
}
GAINS = {
    "books": {"web": 0.2, "books": 1.3, "code": 0.1},
    "code": {"web": 0.1, "books": 0.1, "code": 0.9},
    "web": {"web": 0.8, "books": 0.4, "code": 0.1},
}


def bench_of(folder: Path, rows: dict[str, int], seed: int = 5) -> Bench:
    draw = random.Random(seed)
    made = Bench(folder, context=200)
    for name, count in rows.items():
        made.put(name, [draw.randint(2, 60) for _ in range(count)])
    return made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Three sources of a few hundred rows."""
    return bench_of(tmp_path / "bench", ROWS)


def fitted(root: Path, bench: Bench, law: searching.Law, noise: float = 0.0, **options: Any) -> Result:
    drawn = search(root, bench.tokenized, **options)
    return search(root, bench.tokenized, **options, **proxies(root, bench.tokenized, drawn, law, noise))


@pytest.mark.parametrize("law", [log_linear(SLOPES), power(GAINS)], ids=["log-linear", "power"])
def test_the_mixture_gains_nine_tenths_of_what_the_best_gains(bench: Bench, tmp_path: Path, law: searching.Law) -> None:
    made = fitted(tmp_path, bench, law, noise=0.003)
    data = made.manifest.data
    assert len(data["runs"]) == 3 * (len(TARGETS) + 1)
    limits = {axis["name"]: axis["limit"] for axis in data["axes"]}
    assert limits["books"] < 1
    lowest = searching.best(law, [*limits], limits)

    def mean(of: dict[str, float]) -> float:
        return sum(law(of).values()) / len(TARGETS)

    start = mean(data["runs"][0])
    assert start - mean(data["optimum"]["shares"]) >= 0.9 * (start - lowest)
    agreement = data["fit"]["objective"]["agreement"]
    assert agreement["pearson"] > 0.9
    assert agreement["spearman"] > 0.8
    assert made.manifest.data["optimum"]["gap"] <= 1e-6


def test_the_sampler_takes_what_was_found(bench: Bench, tmp_path: Path) -> None:
    made = fitted(tmp_path, bench, log_linear(SLOPES), set=["proxy_budget=3_000"])
    shares = made.manifest.data["optimum"]["shares"]
    whole, small = load_mixture(made.uri), load_mixture(f"{made.uri}/{OPTIMUM}")
    assert (whole.budget, small.budget) == (40_000, 3_000)
    for plan, off in ((whole, 0.02), (small, 0.04)):
        drawn = {source.name: source.share for source in plan.sources}
        assert drawn == pytest.approx(shares, abs=1e-5)
        assert shares_of(made.uri) == pytest.approx(shares, abs=off)
    passes = made.manifest.data["optimum"]["passes"]
    assert {source.name: source.epochs for source in whole.sources} == pytest.approx(passes, rel=1e-4)
    assert max(passes.values()) <= 3 * (1 + 1e-6)
    assert Path(sampled(tmp_path, bench.tokenized, made.uri), "report.html").exists()
    assert {load_mixture(run).budget for run in runs_of(made)} == {3_000}


def test_the_report_says_what_to_trust(bench: Bench, tmp_path: Path) -> None:
    law = log_linear(SLOPES)
    options = {"set": ["runs=10"]}
    drawn = search(tmp_path, bench.tokenized, **options)
    assert "10 mixtures of 3 sources" in Path(drawn.uri, "report.md").read_text()
    results = proxies(tmp_path, bench.tokenized, drawn, law, 0.002)
    made = search(tmp_path, bench.tokenized, **options, **results)
    assert "The optimum was not measured" in Path(made.uri, "report.md").read_text()
    shares = made.manifest.data["optimum"]["shares"]
    measured = evaluated(tmp_path, {name: loss + 0.001 for name, loss in law(shares).items()})
    last = search(tmp_path, bench.tokenized, **options, **results, measured=measured)
    assert last.manifest.data["optimum"]["shares"] == shares
    text = Path(last.uri, "report.md").read_text()
    for part in (
        "Predicted",
        "Fit against truth",
        "Sensitivity of each source",
        "Passes over a source",
        "What helps what",
    ):
        assert part.lower() in text.lower()
    assert "a gain of" in text
    assert re.search(r"^\| all, the objective \| .*[+-]0\.0", text, re.MULTILINE)
    assert "A cap holds books" in text
    page = Path(last.uri, "report.html").read_text()
    assert page.count("<circle") == 11
    assert json.loads(Path(last.uri, "search.json").read_text()) == last.manifest.data


def test_losses_that_say_nothing_are_called_so(bench: Bench, tmp_path: Path) -> None:
    made = fitted(tmp_path, bench, lambda _: dict.fromkeys(TARGETS, 1.5), noise=0.01)
    text = Path(made.uri, "report.md").read_text()
    assert "The law agrees poorly" in text
    assert "less than twice the error" in text


def test_only_what_changed_is_searched_again(bench: Bench, tmp_path: Path) -> None:
    first = fitted(tmp_path, bench, log_linear(SLOPES))
    before = first.manifest.data["optimum"]["shares"]
    # One source more, and the rows of one as many and as long, but others.
    rows = {**ROWS, "papers__p": 200}
    later = bench_of(tmp_path / "later", rows)
    tokens = later.tokenized / "code__c" / "tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-4] + b"\x07\0\0\0")
    slopes = {
        **{name: {**by, "papers": -0.4} for name, by in SLOPES.items()},
        "papers": {"web": 0.1, "books": 0.0, "code": 0.0, "papers": -1.3},
    }
    law = log_linear(slopes)
    made = fitted(tmp_path, later, law, earlier=first.uri)
    data = made.manifest.data
    assert [axis["name"] for axis in data["axes"]] == [KEPT, "code", "papers"]
    assert len(data["runs"]) == 3 * (3 + 1) < 3 * (4 + 1)
    for shares in (*data["runs"], data["optimum"]["shares"]):
        if shares["web"] > 1e-3:
            assert shares["books"] / shares["web"] == pytest.approx(before["books"] / before["web"], rel=1e-3)
    limits = {one["name"]: min(1, one["cap"] * one["tokens"] / data["budget"]) for one in data["sources"]}
    names = sorted(limits)
    start = sum(law(data["runs"][0]).values()) / 4
    lowest = searching.best(law, names, limits, 30)
    found = sum(law(data["optimum"]["shares"]).values()) / 4
    assert start - found >= 0.8 * (start - lowest)
    assert "keep the shares among themselves" in Path(made.uri, "report.md").read_text()
    # A source can be asked to be searched again; without anything that changed nothing is to be searched.
    again = search(tmp_path, later.tokenized, earlier=first.uri, set=["again=[books]"])
    assert [axis["name"] for axis in again.manifest.data["axes"]] == ["books", "code", "papers", "web"]
    with pytest.raises(UsageError, match="no source differs from the earlier search"):
        search(tmp_path, bench.tokenized, earlier=first.uri)


def test_more_proxies_keep_those_that_there_are(bench: Bench, tmp_path: Path) -> None:
    few = search(tmp_path, bench.tokenized, set=["runs=6"])
    many = search(tmp_path, bench.tokenized, set=["runs=9"])
    pairs = zip(runs_of(few), runs_of(many), strict=False)
    assert [Path(one).read_bytes() == Path(other).read_bytes() for one, other in pairs] == [True] * 6
    assert sampled(tmp_path, bench.tokenized, runs_of(few)[3]) == sampled(tmp_path, bench.tokenized, runs_of(many)[3])


def test_results_in_any_order_and_in_any_root_are_the_same_search(bench: Bench, tmp_path: Path) -> None:
    law = log_linear(SLOPES)
    drawn = search(tmp_path, bench.tokenized)
    results = proxies(tmp_path, bench.tokenized, drawn, law, 0.003)
    made = search(tmp_path, bench.tokenized, **results)
    other = tmp_path / "other"
    turned = {name: [*reversed(items)] for name, items in results.items()}
    again = search(other, bench.tokenized, **turned, workers=2)
    kept = {NAME, OPTIMUM, "search.json"}
    assert {name: data for name, data in contents(Path(made.uri)).items() if name in kept} == {
        name: data for name, data in contents(Path(again.uri)).items() if name in kept
    }
    assert search(tmp_path, bench.tokenized, **results).reused


def test_the_objective_is_what_counts(bench: Bench, tmp_path: Path) -> None:
    for name in TARGETS:
        made = fitted(tmp_path, bench, log_linear(SLOPES), set=[f"objective.weights={{{name}: 1}}", "max_epochs=null"])
        shares = made.manifest.data["optimum"]["shares"]
        assert max(shares, key=lambda one: shares[one]) == name
    near = fitted(tmp_path, bench, log_linear(SLOPES), set=["objective.closeness=10"])
    whole = sum(one["tokens"] for one in near.manifest.data["sources"])
    for one in near.manifest.data["sources"]:
        assert near.manifest.data["optimum"]["shares"][one["name"]] == pytest.approx(one["tokens"] / whole, abs=0.03)


def test_buckets_are_sources_too(tmp_path: Path) -> None:
    draw = random.Random(4)
    words = [f"w{number}" for number in range(40)]
    rows = [("direct", f"{n} {draw.choice(words)}", " ".join(draw.choices(words, k=n % 60 + 1))) for n in range(180)]
    given = curating.write(tmp_path / "rows", {"a.jsonl": rows})
    off = "exact: off\nnear: off\ndecontaminate: off\nheuristics: report\n"
    curated = curating.curate(tmp_path / "curated", given, off)
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|direct|>", "<|cot|>", "<|noisy|>", "<|synth|>"]
    special += [f"<|{name}_{end}|>" for name in ("object_ref", "box", "quad") for end in ("start", "end")]
    trained([" ".join(words)] * 9, 400, True, special).save(str(tmp_path / "tokenizer.json"))
    done = tools.stage("tokenize", rows=curated, tokenizer=tmp_path / "tokenizer.json", root=tmp_path / "tokens")
    root, tokenized = tmp_path / "root", tools.folder(done)
    said = (
        "budget: 2_000\nmax_epochs: 4\nbuckets: {attributes: [{attribute: heuristics.r_words, edges: [12, 30], "
        "names: [short, middle, long]}]}\n"
    )
    options = {"rows": [str(curated)], "set": ["runs=6"]}
    law = log_linear({"a": {"short": 0.5, "middle": 0.1, "long": -1.0}})
    drawn = search(root, tokenized, said, **options)
    found = search(root, tokenized, said, **options, **proxies(root, tokenized, drawn, law))
    shares = found.manifest.data["optimum"]["shares"]
    assert set(shares) == {"short", "middle", "long"}
    assert max(shares, key=lambda name: shares[name]) == "long"
    # The sampler reads the bucket of each row beside the plan.
    assert shares_of(found.uri) == pytest.approx(shares, abs=0.05)
    assert Path(sampled(root, tokenized, found.uri), "report.html").exists()


@pytest.mark.parametrize(
    ("said", "options", "message", "code"),
    [
        ("", {"set": ["runs=4"]}, "too few runs .* 4 runs for 3 shares; expected at least 5; 12 are a good number", 2),
        ("max_epochs: 1\nbudget: 1e9\n", {}, "caps do not allow so large a budget.*expected at most", 2),
        ("caps: {books: 0.1, code: 0.1, web: 0.1}\nbudget: 20_000\n", {}, "caps do not allow so large a budget", 2),
        ("", {"set": ["proxy_budget=1e12"]}, "a proxy would see more than the training", 2),
        ("method: unimax\nphases: [{name: a, until: 1, epochs: 2}]\n", {}, "one mixture for the whole training", 2),
        ("sources: [{name: all, prefixes: ['']}]\n", {}, "nothing to search; got one source, 'all'", 2),
        ("", {"set": ["objective.weights={x: -1}"]}, "out of range", 2),
        ("", {"set": ["draw.lowest=20"]}, r"lowest.*: out of range; got 20; expected 0.01 to 10 \(highest\)", 2),
        ("", {"set": ["runz=3"]}, "unknown key 'runz'.*runs", 2),
        ("", {"evaluated": ["x"]}, "evaluated: not as many; got 1, and 0 of sampled", 2),
        ("", {"measured": "x"}, "measured: needs evaluated", 2),
        ("", {"earlier": "nowhere"}, "not a result of search; got no manifest", 3),
        ("", {"held_out": "nowhere"}, "not a sampled folder", 3),
    ],
)
def test_what_is_refused(
    bench: Bench, tmp_path: Path, said: str, options: dict[str, Any], message: str, code: int
) -> None:
    with pytest.raises(PairmillError, match=message) as raised:
        search(tmp_path, bench.tokenized, said, **options)
    assert raised.value.exit_code == code


def test_a_source_without_tokens_is_refused(tmp_path: Path) -> None:
    bench = bench_of(tmp_path / "bench", {"web__a": 20, "books__x": 20})
    bench.put("empty__e", [1, 1, 1])
    with pytest.raises(InputError, match="a source has no response token; got 'empty'"):
        search(tmp_path, bench.tokenized, "")
    left = "others: leave\nsources: [{name: web, prefixes: [web__]}, {name: books, prefixes: [books__]}]\n"
    assert len(search(tmp_path, bench.tokenized, left).manifest.data["sources"]) == 2


def test_results_of_other_mixtures_or_rows_are_refused(bench: Bench, tmp_path: Path) -> None:
    law = log_linear(SLOPES)
    drawn = search(tmp_path, bench.tokenized)
    results = proxies(tmp_path, bench.tokenized, drawn, law)
    fewer = {name: items[:-1] for name, items in results.items()}
    with pytest.raises(InputError, match="1 of 12 mixtures were not evaluated; got 11 plans; none is of run 11"):
        search(tmp_path, bench.tokenized, **fewer)
    with pytest.raises(InputError, match="12 of 12 mixtures were not evaluated"):
        search(tmp_path, bench.tokenized, **results, seed=9)
    other = evaluated(tmp_path, law(drawn.manifest.data["runs"][3]), rows=51)
    with pytest.raises(InputError, match="evaluated on other rows; got books, code, web differ"):
        search(tmp_path, bench.tokenized, sampled=results["sampled"], evaluated=[*results["evaluated"][:-1], other])
    with pytest.raises(InputError, match="evaluated on other rows"):
        search(tmp_path, bench.tokenized, **results, measured=other)
    with pytest.raises(UsageError, match=r"the held-out rows have no source 'boks'.*did you mean 'books'"):
        search(tmp_path, bench.tokenized, **results, set=["objective.weights={boks: 1}"])
    plain = mixing.result(tmp_path, bench.tokenized, "method: unimax\n").uri
    with pytest.raises(InputError, match="not a result of sample; got a result of mix"):
        search(tmp_path, bench.tokenized, sampled=[plain], evaluated=results["evaluated"][:1])
    with pytest.raises(InputError, match="found no mixture yet"):
        search(tmp_path, bench.tokenized, earlier=drawn.uri)


def test_outputs_are_what_a_pipeline_loops_over(bench: Bench, tmp_path: Path) -> None:
    drawn = search(tmp_path, bench.tokenized)
    found = outputs_of(drawn)
    assert found["optimum"] == ""
    assert found["mixtures"] == [{"mixture": run} for run in runs_of(drawn)]
    made = fitted(tmp_path, bench, log_linear(SLOPES))
    assert outputs_of(made)["optimum"] == f"{made.uri}/{OPTIMUM}"


def test_held_out_rows_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    config = mixture_task.options(tmp_path / "task", tmp_path / "root")
    tokens = Path(config.tokenized)
    said = {"context_size": 64, "epochs": 1, "held_out": config.held_out}
    weighted = {"set": ["objective.weights={left: 1, right: 1}"]}
    assert len(search(tmp_path, tokens, "", **said, **weighted).manifest.data["runs"]) == 12
    with pytest.raises(InputError, match=r"a source has no held-out rows.*none of 'noise'; some of left, right"):
        search(tmp_path, tokens, "", **said)
    with pytest.raises(UsageError, match=r"the held-out rows have no source 'noise'; got left, right"):
        search(tmp_path, tokens, "", **said, set=["objective.weights={noise: 1}"])
    plan = mixture_task.held_out_plan(tmp_path / "plans", tokens)
    assert search(tmp_path, tokens, "", **{**said, "held_out": plan}, **weighted).reused
    trained_on = sampled(tmp_path, tokens, "", context_size=64, epochs=1)
    with pytest.raises(InputError, match="these rows are trained on"):
        search(tmp_path, tokens, "", **{**said, "held_out": trained_on}, **weighted)
    # Another tokenizer: one more token, and so another digest.
    other = mixture_task.options(tmp_path / "other", tmp_path / "root", more="\n")
    with pytest.raises(InputError, match="made with different tokenizers"):
        search(tmp_path, tokens, "", **{**said, "held_out": other.held_out}, **weighted)
