"""Compares plans: ``pairmill compare plans=<base>,<change> root=… held_out=… [option=value …]``.

Each plan is drawn again for each seed, trained on, and evaluated on the same held-out rows; the last task says which
plan is better. The same tasks are a Kubeflow pipeline (``pipelines/compiled/compare.yaml``) or, by this command,
processes of this machine (:mod:`pairmill.line.runs`). It needs torch here, and no kfp.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from pairmill import storage
from pairmill.address import is_address
from pairmill.engine.options import list_item, option
from pairmill.errors import UsageError
from pairmill.extras import require
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.line import proof
from pairmill.line.parameters import parameter
from pairmill.line.runs import (
    MEMORY,
    Ended,
    Here,
    MadeRun,
    SharedOptions,
    StageRun,
    Task,
    arrays,
    remove,
    train_and_evaluate,
)
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.train.config import TrainConfig

MAX_RUNS: Final = 16
"""With more the workflow object of a run would pass 1 MiB (docs/decisions/0049-weight-of-a-run.md)."""


@dataclass(kw_only=True)
class Comparison(Checked):
    """Compare plans of sample by trainings of one configuration on each."""

    root: str = parameter(CompareConfig, "root")
    plans: str = parameter(CompareConfig, "plans")
    held_out: str = option(
        "",
        help="held-out plan or sampled folder, of which every run has the loss; of plans with two tokenizers one for "
        "each, joined by commas; required with runs",
    )
    seeds: int = parameter(CompareConfig, "seeds")
    budget: int = parameter(CompareConfig, "budget")
    budget_of: str = parameter(CompareConfig, "budget_of")
    max_runs: int = option(
        MAX_RUNS, help="refuse more runs than this; of more Kubeflow shows no task to its end; 0 = any number"
    )
    train_config: str = parameter(TrainConfig, "train_config")
    set: str = parameter(CompareConfig, "set")
    benchmarks: str = parameter(EvaluateConfig, "benchmarks")
    data: str = parameter(EvaluateConfig, "data")
    training: str = parameter(EvaluateConfig, "training")
    evaluate_config: str = parameter(EvaluateConfig, "evaluate_config")
    evaluate_set: str = option("net.weights=ema", help="settings of every evaluation, in place of the file's")


@dataclass(kw_only=True)
class ComparisonHere(Comparison):
    """Compare plans of sample by trainings of one configuration on each."""

    runs: int = option(
        -1,
        help="0 = what differs between the plans alone, without training; -1 = a run of each seed",
        at_least=-1,
        at_most=0,
        hint="seeds= says how many",
    )
    out: str = option("", help="a new folder for what a contribution has to show; empty = none (docs/comparing.md)")
    before: str = option(
        "", help="with out=, of a change of no array: a checkout of the program before it, for time and memory"
    )
    max_runs: int = option(0, help="refuse more runs than this; 0 = any number")
    at_once: int = option(0, help="tasks side by side; 0 = one per available core", at_least=0)
    samples_path: str = option(
        "", help=f"folder for the arrays of runs, which are removed; empty = one in {MEMORY}, if it is there"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runs:
            _require_held_out(self, "; runs=0 compares without")


def _require_held_out(values: Comparison, more: str = "") -> None:
    if not values.held_out:
        hint = f"pairmill sample held_out=true … root=… makes its plan{more}"
        raise UsageError("required option missing", where="held_out", expected="rows set apart", hint=hint)


def refuse(values: Comparison) -> None:
    """Raise UsageError for options that the pipeline's first task would refuse."""
    _require_held_out(values)
    cli.build(CompareConfig, own_options(values))


def places_of(values: Comparison) -> list[tuple[str, str]]:
    """Return the folders that the options name, each with its option: they exist before the comparison."""
    plans = [("plans", place) for place in cli.build(CompareConfig, own_options(values)).named.values()]
    apart = [("held_out", item) for item in cli.split_list(values.held_out)]
    rows = [("training", item) for item in cli.split_list(values.training) if not is_address(item)]
    return [(name, place) for name, place in [*plans, *apart, *rows] if place]


def own_options(values: Any) -> dict[str, Any]:
    """Return the parameters that are options of the stage compare."""
    names = ("root", "plans", "held_out", "seeds", "budget", "budget_of", "set", *_CHECKED_FIRST)
    return {name: getattr(values, name) for name in names}


_CHECKED_FIRST: Final = ("max_runs", "train_config", "evaluate_config", "evaluate_set", "benchmarks", "data")
"""What every training and evaluation would refuse is refused by the first task."""


def compare_task(task: Task, values: Any, **results: Any) -> StageRun:
    """Run the stage that reads: at first the plans alone, in the end what the runs made."""
    own = own_options(values)
    if results:
        own = {name: value for name, value in own.items() if name not in _CHECKED_FIRST}
    return task("compare", **own, **results)


def one_run(task: Task, run: Any, values: Any) -> tuple[StageRun, MadeRun]:
    """Draw a run's plan again with its own seed, train on it, and evaluate.

    Args:
        run: has ``again``, ``held_out`` and ``set`` (:func:`pairmill.stages.compare.plans.runs`).
    """
    drawn = task("sample", root=values.root, again=run.again, tokenized_path="", output_path="")
    shared = SharedOptions.from_values(values, held_out=run.held_out)  # of its tokenizer
    return drawn, train_and_evaluate(task, drawn.output, run.set, shared)


def compare(values: ComparisonHere, task: Here) -> StageRun:
    """Compare on this machine; return what the last task made."""
    if not values.runs:
        return compare_task(task, SimpleNamespace(**{**vars(values), "seeds": 0}))
    checked = compare_task(task, values)
    with arrays(values.samples_path, "compare", values.root, values.plans) as place:
        given = SimpleNamespace(**{**vars(values), "samples_path": place})

        def body(run: Mapping[str, str]) -> MadeRun:
            drawn, made = one_run(task, SimpleNamespace(**run), given)
            remove(place.replace("{fingerprint}", drawn.outputs["fingerprint"]))
            return made

        runs = task.each(body, checked.outputs["runs"])
    return compare_task(
        task, values, trained=[item.trained.output for item in runs], evaluated=[item.evaluated.output for item in runs]
    )


def placed(values: ComparisonHere) -> None:
    """Make relative places absolute, for processes and keys.

    Raises:
        UsageError: no storage serves one.
    """
    values.root = storage.normalise(values.root, "root")
    apart = [storage.normalise(item, "held_out") for item in cli.split_list(values.held_out) if item]
    values.held_out = ",".join(map(list_item, apart))
    items = []
    for item in cli.split_list(values.plans):
        name, result, place = item.rpartition("=")
        items.append(list_item(f"{name}{result}{storage.normalise(place, 'plans')}"))
    values.plans = ",".join(items)
    values.training = ",".join(
        list_item(item if is_address(item) else storage.normalise(item, "training"))
        for item in cli.split_list(values.training)
        if item
    )


def main(given: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        values = cli.build(ComparisonHere, cli.split(given))
        if values.runs:
            require("train", "torch", where="seeds", instead="; runs=0 tells what differs without it")
        placed(values)
        if values.out:
            proof.refuse_existing(values.out)
        task = Here(values.at_once, _show)
        made = compare(values, task)
        folder = str(made.output)
        lines = [folder, f"{folder}/report.html", f"{folder}/table.md"]
        if values.out:
            lines.append(proof.write(values, folder, task.ended))
        sys.stdout.write("\n".join(lines) + "\n")

    return cli.program("compare", ComparisonHere, given, work)


def _show(ended: Ended) -> None:
    state = "reused" if ended.reused else f"failed with {ended.exit_code}" if ended.exit_code else "made"
    sys.stderr.write(f"  {ended.stage:10} {state:10} {ended.seconds:6.1f} s  {ended.folder}\n")
