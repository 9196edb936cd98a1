"""The stage: what differs, which runs there are, verdicts, bad input; the same bytes after a kill at any instant."""

import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.errors import InputError, UsageError
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.compare.core import Compare
from pairmill.stages.compare.plans import Budget, read_all
from tests.support.data.compared_runs import asked, finished, plan
from tests.support.processes.crash_points import crashes

TASKS = {"web__a.jsonl": [4, 5, 6] * 20, "code__a.jsonl": [9] * 30}
MORE = {**TASKS, "math__a.jsonl": [20] * 40, "web__a.jsonl": [4, 5] * 40}


@pytest.fixture
def plans(tmp_path: Path) -> list[str]:
    return [f"base={plan(tmp_path / 'a', TASKS, epochs=3)}", f"change={plan(tmp_path / 'b', MORE, epochs=3)}"]


def judged(root: Path, plans: list[str], effects: Mapping[str, float], **options: Any) -> dict[str, Any]:
    config, runs, _ = asked(root, plans, **options)
    pairs = [finished(root, run, effects[run["plan"]], score=0.5 - effects[run["plan"]]) for run in runs]
    config = replace(config, trained=[one for one, _ in pairs], evaluated=[one for _, one in pairs])
    uri = runner.run(Compare(), config).uri
    return {**json.loads((Path(uri) / "compare.json").read_text()), "folder": Path(uri)}


def test_what_differs_is_told_without_a_run(tmp_path: Path, plans: list[str]) -> None:
    config = CompareConfig(root=str(tmp_path / "root"), plans=plans, seeds=0)
    made = runner.run(Compare(), config)
    (change,) = made.manifest.data["changes"]
    assert [row["source"] for row in change["sources"]] == ["code", "math", "web"] or [
        row["source"] for row in change["sources"]
    ] == ["math", "web", "code"]
    of = {row["source"]: row for row in change["sources"]}
    assert of["math"]["base"] is None
    assert (of["math"]["change"]["rows"], of["math"]["change"]["response_tokens"]) == (120, 2400)
    assert of["web"]["base"]["rows"] == 180
    table = (Path(made.uri) / "table.md").read_text()
    assert "| math | 0 → 120 |" in table
    assert made.manifest.data["runs"] == []
    assert runner.run(Compare(), config).reused


def test_runs_are_paired(tmp_path: Path, plans: list[str]) -> None:
    _, runs, opened = asked(tmp_path, plans, set=["optimizer.lr=0.1"])
    assert [(run["seed"], run["plan"]) for run in runs[:3]] == [("0", "base"), ("0", "change"), ("1", "base")]
    draws = [run["again"].rpartition("@") for run in runs]
    # One seed of a draw for both: what the plans have in common keeps its order.
    assert draws[0][2] == draws[1][2] != draws[2][2]
    assert draws[1][0] == opened[1].uri
    whole = opened[1].whole
    wanted = -(-50 * whole.tokens // whole.responses)
    assert runs[3]["set"] == (
        f"optimizer.lr=0.1,training.seed=1,training.tokens={wanted},training.epochs=0,training.steps=0"
    )


def test_a_verdict_and_its_page(tmp_path: Path, plans: list[str]) -> None:
    found = judged(tmp_path / "root", plans, {"base": 0.0, "change": 0.2})
    (pair,) = found["pairs"]
    assert pair["verdict"] == "worse"
    assert pair["sentence"].startswith("change is worse than base: held-out loss +0.")
    assert pair["all"]["low"] < 0.2 < pair["all"]["high"]
    assert found["held_out"] == {"rows": 20, "sources": ["code", "web"], "apart": ["math"], "exact_bytes": True}
    assert set(pair["by_source"]) == {"code", "web"}
    assert pair["benchmarks"]["gsm8k"]["mean"] == pytest.approx(-0.2)
    assert [one["dominated_by"] for one in found["frontier"]] == [[], ["base"]]
    page = (found["folder"] / "report.html").read_text()
    assert all(text in page for text in ("Compute against held-out loss", "math (not judged)", "Seeds needed"))
    assert (found["folder"] / "table.md").read_text().startswith("**change is worse than base")
    same = judged(tmp_path / "other", plans, {"base": 0.0, "change": 0.002})["pairs"][0]
    assert same["verdict"] == "not distinguishable"
    assert "seeds would tell a difference of this size; these 4 tell one of 0." in same["sentence"]


def test_several_plans_are_judged_together_and_single_sources_not_at_all(tmp_path: Path, plans: list[str]) -> None:
    plans = [*plans, f"third={plan(tmp_path / 'c', TASKS, epochs=3, seed=7)}"]
    found = judged(tmp_path / "root", plans, {"base": 0.0, "change": 0.2, "third": 0.0})
    assert [pair["verdict"] for pair in found["pairs"]] == ["worse", "not distinguishable"]
    first, second = (pair["all"] for pair in found["pairs"])
    # A first look has half of the level; Holm takes the smaller p twice.
    assert first["corrected_p"] == pytest.approx(2 * 2 * first["p"])
    assert second["corrected_p"] == pytest.approx(min(1.0, 2 * second["p"]))
    for pair in found["pairs"]:
        code, whole = pair["by_source"]["code"], pair["all"]
        assert whole["plans"] == 2
        assert code["plans"] == 0
        # Rows of all sources differ alike here, so only the correction makes the interval wider.
        assert whole["high"] - whole["low"] > 1.5 * (code["high"] - code["low"])
        assert "simultaneous 99 % interval" in pair["sentence"]
    table = (found["folder"] / "table.md").read_text()
    assert "| third less base | difference | 99 % interval | p | corrected for |" in table
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| all sources", "| code", "| gsm8k"))]
    assert {row[0]: row[-1] for row in rows[:3]} == {
        "| all sources": "looks and plans |",
        "| code": "nothing |",
        "| gsm8k (score)": "nothing |",
    }
    page = (found["folder"] / "report.html").read_text()
    assert "Verdicts are corrected for the number of plans (Holm)" in page
    assert "all but the first uncorrected" in page


def test_seeds_between_two_looks_are_judged_as_the_later_one(tmp_path: Path, plans: list[str]) -> None:
    found = judged(tmp_path / "root", plans, {"base": 0.0, "change": 0.2}, seeds=5)
    assert found["pairs"][0]["all"]["corrected_p"] == pytest.approx(4 * found["pairs"][0]["all"]["p"])
    assert "5 seeds are judged as 8 are." in (found["folder"] / "report.html").read_text()


def test_one_seed_gives_no_verdict_and_says_why(tmp_path: Path, plans: list[str]) -> None:
    found = judged(tmp_path / "root", plans, {"base": 0.0, "change": 0.2}, seeds=1)
    (pair,) = found["pairs"]
    assert pair["verdict"] is None
    assert "one seed gave held-out loss +0.19" in pair["sentence"]
    assert (pair["all"]["low"], pair["all"]["p"]) == (None, None)
    assert "One seed gives no verdict" in (found["folder"] / "report.html").read_text()


def test_two_tokenizers_are_compared_by_bytes(tmp_path: Path) -> None:
    plans = [str(plan(tmp_path / "a", TASKS, "aa", epochs=3)), str(plan(tmp_path / "b", TASKS, "bb", epochs=3, seed=2))]
    found = judged(tmp_path / "root", plans, {"A": 0.0, "B": -0.2})
    assert (found["measure"], found["unit"]) == ("bits per byte", "bits a byte")
    # Five response tokens are 20 bytes in both.
    assert found["pairs"][0]["all"]["mean"] == pytest.approx(-0.2 / 4 / 0.6931, abs=1e-4)
    assert found["pairs"][0]["verdict"] == "better"
    assert "several tokenizers" in (found["folder"] / "report.html").read_text()


def test_each_tokenizer_has_held_out_rows_of_its_own(tmp_path: Path) -> None:
    plans = [str(plan(tmp_path / "a", TASKS, "aa", epochs=3)), str(plan(tmp_path / "b", TASKS, "bb", epochs=3, seed=2))]
    apart = [str(plan(tmp_path / name, TASKS, name, epochs=1)) for name in ("aa", "bb")]
    _, runs, _ = asked(tmp_path, plans, held_out=apart[::-1], seeds=1)
    assert [run["held_out"] for run in runs] == apart
    with pytest.raises(UsageError, match="no held-out rows with the tokenizer of a plan; got plan B has tokenizer bb"):
        asked(tmp_path, plans, held_out=apart[:1])
    _, runs, _ = asked(tmp_path, [plans[0], plans[0]], held_out=apart[1:], seeds=1)
    assert {run["held_out"] for run in runs} == {apart[1]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 10**6}, "budget: more than the plan has; got 1,000,000 response tokens; expected at most"),
        ({"budget": 10**6, "budget_of": "all"}, "budget: more than the plan has; got 1,000,000 all tokens"),
        ({"set": ["training.seed=3"]}, "set: not a setting of a compared run; got training.seed=3"),
        ({"seeds": -1}, "seeds: out of range; got -1"),
    ],
)
def test_what_is_refused_before_anything_is_trained(
    tmp_path: Path, plans: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        asked(tmp_path, plans, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": ["training.ema=off"]}, "no average of weights; got ema, and training.ema is off"),
        ({"set": ["optimizer.lrr=1"]}, "optimizer.lrr=1: unknown key 'lrr'"),
        ({"evaluate_set": ["net.wights=ema"]}, "evaluate_set=net.wights=ema: unknown key 'wights'"),
        ({"benchmarks": ["gsm9k"]}, "gsm9k"),
        ({"data": ["gsm8k=./absent.jsonl"]}, "no data of the benchmark gsm8k"),
        ({"data": ["arc=./absent.jsonl"]}, "data of a benchmark that is not asked"),
        ({"data": ["here.jsonl"]}, "lacks a name"),
        ({"train_config": "absent.yaml"}, "the file does not exist"),
        ({"evaluate_config": "absent.yaml"}, "the file does not exist"),
    ],
)
def test_what_each_training_and_evaluation_would_refuse_is_refused_before_them(
    tmp_path: Path, plans: list[str], options: dict[str, Any], said: str
) -> None:
    (tmp_path / "train.yaml").touch()
    given = {
        "train_config": str(tmp_path / "train.yaml"),
        "evaluate_set": ["net.weights=ema"],
        "benchmarks": ["gsm8k", "lm_eval/any"],
        "budget": 50,
    }
    root = str(tmp_path / "root")
    assert runner.run(Compare(), CompareConfig(root=root, plans=plans, **given)).manifest.data["runs"] == []
    with pytest.raises((UsageError, InputError), match=said):
        runner.run(Compare(), CompareConfig(root=root, plans=plans, **{**given, **options}))


@pytest.mark.parametrize(("tail", "batch", "warns"), [("drop", 8, False), ("drop", 999, True), ("keep", 999, False)])
def test_a_budget_that_last_batches_may_leave_out_is_warned_of(
    tmp_path: Path, plans: list[str], tail: str, batch: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.yaml").write_text(f"batch: {{tokens: {batch}, tail: {tail}}}\n")
    with caplog.at_level(logging.WARNING, "pairmill"):
        runner.run(
            Compare(),
            CompareConfig(root=str(tmp_path / "root"), plans=plans, train_config=str(tmp_path / "train.yaml")),
        )
    said = [one.getMessage() for one in caplog.records if "may leave out" in one.getMessage()]
    assert [re.search("of plan (\\w+)", one)[1] for one in said if re.search("of plan", one)] == (  # type: ignore[index]
        ["base"] if warns else []
    )


def test_plans_that_are_none(tmp_path: Path, plans: list[str]) -> None:
    with pytest.raises(UsageError, match="takes two plans or more"):
        CompareConfig(root="r", plans=plans[:1])
    with pytest.raises(UsageError, match="names must be distinct; got base"):
        CompareConfig(root="r", plans=[plans[0], plans[0]])
    with pytest.raises(InputError, match="not a plan of sample"):
        asked(tmp_path, [plans[0], f"x={tmp_path}"])
    other = plan(tmp_path / "c", {"sudoku__a.jsonl": [5] * 9}, epochs=3)
    config = CompareConfig(root=str(tmp_path), plans=[plans[0], f"other={other}"], seeds=0)
    with pytest.raises(UsageError, match="no source in common"):
        runner.run(Compare(), config)


def test_the_budget_is_nine_tenths_of_the_smallest_plan(tmp_path: Path, plans: list[str]) -> None:
    config = CompareConfig(root=str(tmp_path), plans=plans)
    opened = read_all(config)
    budget = Budget.of_plans(config, opened)
    assert budget.tokens == int(0.9 * (5 * 180 + 9 * 90))
    assert budget.read["base"] == -(-budget.tokens * opened[0].whole.tokens // opened[0].whole.responses)


def test_results_that_are_not_the_runs(tmp_path: Path, plans: list[str]) -> None:
    config, runs, _ = asked(tmp_path / "root", plans, seeds=2)
    pairs = [finished(tmp_path / "root", run, 0.0) for run in runs]

    def refused(said: str, at: int = -1, **other: Any) -> None:
        mine = list(pairs)
        if other:
            mine[at] = finished(tmp_path / "root", runs[at], 0.0, **other)
        elif at >= 0:
            mine = [pairs[0], pairs[2], pairs[1], pairs[3]]
        else:
            mine = mine[:-1]
        given = replace(config, trained=[one for one, _ in mine], evaluated=[one for _, one in mine])
        with pytest.raises(InputError, match=said):
            runner.run(Compare(), given)

    refused("not the runs that are compared; got 3 runs; expected 4")
    refused("another run than the one that is compared; got seed 1; expected plan change, seed 0", 0)
    refused(r"trained with other settings; got optimizer.lr 0.3 \(else 0.001\)", settings=("optimizer.lr=0.3",))
    refused(r"trained with other settings; got processes 2 \(else 0\)", processes=2)
    refused(r"trained with other settings; got version of train 2 \(else 1\)", version=2)
    refused("evaluated on other held-out rows; got 31 rows", rows=31)
    with pytest.raises(UsageError, match="evaluated: not as many"):
        replace(config, trained=["x"])


def test_a_kill_at_any_instant_changes_nothing(tmp_path: Path, plans: list[str]) -> None:
    config, runs, _ = asked(tmp_path / "results", plans, seeds=2)
    pairs = [finished(tmp_path / "results", run, 0.1 * (run["plan"] == "change")) for run in runs]
    root = tmp_path / "root"
    config = replace(config, root=str(root), trained=[one for one, _ in pairs], evaluated=[one for _, one in pairs])

    def compare() -> dict[str, str]:
        return {file.path: file.digest for file in runner.run(Compare(), config).manifest.files}

    whole = compare()
    assert {"compare.json", "table.md", "report.html", "report.md"} == whole.keys()
    shutil.rmtree(root)
    instants = 0
    for _ in crashes(compare, root, stride=3):
        assert compare() == whole
        shutil.rmtree(root)
        instants += 1
    assert instants > 3
