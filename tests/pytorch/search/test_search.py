"""A search whose nets are real, over a task whose best mixture is known; and one that is stopped before every task."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.line import search
from tests.support.helpers import contents
from tests.support.nets.mixture_task import BEST, Inside, options
from tests.support.stages import mixing

FEWEST = "training.steps=12"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("task")


def loss(losses: dict[str, float]) -> float:
    return sum(losses[name] for name in ("left", "right")) / 2


def found(task: Path, root: Path, **values: Any) -> dict[str, Any]:
    here = Inside()
    folder = Path(search.run(options(task, root, **values), here).folder)
    made: dict[str, Any] = json.loads((folder / "search.json").read_text())
    return {**made, "folder": folder, "tasks": [(one.stage, one.reused) for one in here.ended]}


def test_nine_tenths_of_what_the_best_mixture_gains(task: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made = found(task, root)
    # Three for each source, and three more; then the optimum.
    assert len(made["runs"]) == 3 * len(BEST) + 3 == sum(stage == "train" for stage, _ in made["tasks"]) - 1
    shares = made["optimum"]["shares"]
    assert shares == pytest.approx(BEST, abs=0.08)
    start = made["fit"]["objective"]["measured"][0]
    gained = start - loss(made["measured"])
    # The best mixture, trained as the proxies were.
    config = options(task, root)
    weights = ", ".join(f"{name}: {share}" for name, share in BEST.items())
    said = f"method: weights\nweights: {{{weights}}}\nbudget: {made['proxy_budget']}\nmax_epochs: 4\n"
    plan = mixing.result(root, Path(config.tokenized), said, context_size=64, epochs=1, prefix_config_path=PREFIX).uri
    best = search.proxy(Inside(), config, plan, str(tmp_path / "best"))
    evaluated = json.loads((Path(best.made.evaluated.output) / "results.json").read_text())["held_out"]["table"]
    lowest = loss({name: evaluated[name]["bits_per_byte"] for name in ("left", "right")})
    assert start - lowest > 0.3
    assert gained >= 0.9 * (start - lowest)
    agreement = made["fit"]["objective"]["agreement"]
    assert agreement["pearson"] > 0.8
    predicted = made["optimum"]["objective"]
    assert abs(predicted - loss(made["measured"])) < 3 * agreement["error"]
    text = (made["folder"] / "report.md").read_text()
    assert "Nothing is drawn of noise" in text
    assert [path.name for path in (root / "arrays").iterdir()] == ["PLAN"]
    # Started again nothing is done.
    again = found(task, root)
    assert again["folder"] == made["folder"]
    # Arrays were removed, and are made again.
    assert all(reused for stage, reused in again["tasks"] if stage != "sample")


PREFIX = "prefix_config.yaml"


class Stopped(Exception):
    """As if the machine went."""


def test_a_search_that_is_stopped_again_and_again_ends_in_the_same_bytes(task: Path, tmp_path: Path) -> None:
    fast = {"runs": 5, "train_set": FEWEST}
    whole = found(task, tmp_path / "whole", **fast)
    order = [stage for stage, _ in whole["tasks"]]
    assert len(order) == 3 + 6 * 3
    config = options(task, tmp_path / "stopped", **fast)
    done = 0
    # Within the loop, before the fit, within the run of the optimum, before the last task.
    for point in [1, 3, 16, 18, 20]:
        left = point

        def dies(_: str) -> None:
            nonlocal left
            if not left:
                raise Stopped
            left -= 1

        here = Inside(dies=dies)
        with pytest.raises(Stopped):
            search.run(config, here)
        assert len(here.ended) == point
        assert all(one.reused for one in here.ended[:done] if one.stage != "sample")
        done = point
    here = Inside()
    folder = Path(search.run(config, here).folder)
    assert [one.stage for one in here.ended if not one.reused and one.stage != "sample"] == ["search"]
    assert contents(folder) == contents(whole["folder"])
    assert folder.name == whole["folder"].name


@pytest.mark.parametrize(
    ("values", "said"),
    [
        # 7,200 response tokens are 12,000 inputs, 31 batches. What is close to them is found by drawing rows.
        (
            {"train_set": "training.steps=32"},
            "train_set training.steps, for .*run-000.json: more than there are; got 32",
        ),
        ({"train_set": "training.steps=70"}, "training.steps: more than a mixture has; got 70; expected at"),
        ({"train_set": "training.tokens=13000"}, "training.tokens: more than a mixture has; got 13,000"),
        ({"train_set": "training.tokens=12001"}, "train_set training.tokens, for .*: more than there are; got 12,001"),
        ({"train_set": "training.epochs=2"}, "training.epochs: more than a mixture has; got 2; expected at most 1"),
        (
            {"train_set": "training.ema=off"},
            "no average of weights; got ema, and training.ema is off; expected evaluate_",
        ),
        ({"train_set": "training.setps=3"}, "train_set=training.setps=3: unknown key"),
        ({"evaluate_set": "net.wights=ema"}, "evaluate_set=net.wights=ema: unknown key"),
    ],
)
def test_what_every_proxy_would_refuse_is_refused_before_one_is_trained(
    task: Path, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    here = Inside()
    with pytest.raises(UsageError, match=said):
        search.run(options(task, tmp_path, runs=5, **values), here)
    assert "train" not in [one.stage for one in here.ended]
    assert not list((tmp_path / "arrays").glob("*/metadata.json"))


def test_ten_steps_are_evaluated_with_the_average_that_evaluate_asks_for(task: Path, tmp_path: Path) -> None:
    made = found(task, tmp_path, runs=5, train_set="training.steps=10")
    assert made["measured"]
