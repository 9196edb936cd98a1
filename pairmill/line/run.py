"""Runs the line on this machine, without a cluster: ``pairmill run raw=… root=… [option=value …]``.

Each task of ``table.LINE`` is a process, started as Kubeflow's launcher starts it; none needs kfp. With
``train_config=`` the line ends in a training, if torch is there.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.extras import require
from pairmill.interface import cli
from pairmill.line import parameters
from pairmill.line.runs import Ended, Here
from pairmill.line.table import GIVEN, HELD_OUT, LINE, Task, result_without
from pairmill.lineage import command as line
from pairmill.stages.fetch.config import KINDS
from pairmill.stages.sample.config import held_out_path
from pairmill.stages.sample.node.config import FINGERPRINT
from pairmill.stages.sample.node.folder import Node


@dataclass(frozen=True)
class TaskRun:
    """A task that ended well, and its fingerprint."""

    task: Task
    ended: Ended
    fingerprint: str


def run(values: Mapping[str, Any], without: Collection[str], here: Here) -> list[TaskRun]:
    """Run the tasks of the line one after another; return those that ran, in that order.

    Args:
        values: the parameters by name.
        without: stages that have nothing to do.
        here: runs a stage.

    Raises:
        RunFailure: a task ended with an exit code other than 0, or without its outputs.
    """
    runs: list[TaskRun] = []
    results: dict[str, str] = {}
    values = dict(values)
    for task in LINE:
        if task.only_with and not values.get(task.only_with):
            continue
        if task.stage in without:
            given = values[GIVEN[task.stage]] if task.stage in GIVEN else ""
            results[task.name] = given or result_without(task, results) or ""
            continue
        own = {name: values[name] for name in parameters.options_of(task.stage, training="train_config" in values)}
        if task.stage == "train" and values["output_path"]:
            own["samples_path"] = values["output_path"]
        read = {name: results[source] for name, source in task.reads.items() if results.get(source)}
        made = here(task.stage, **own, **task.options, **read)
        if task.stage == "fetch":
            # From here on they are places, where they may have been addresses.
            values |= {name: made.outputs[f"given_{name}"] for name in KINDS}
        results[task.name] = made.output
        runs.append(TaskRun(task, here.ended[-1], made.outputs["fingerprint"]))
    return runs


def main(given: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        start = time.monotonic()
        options = cli.split(given)
        train = bool(options.get("train_config"))
        if train:
            require(
                "train",
                "torch",
                where="train_config",
                instead=", or leave train_config= out and train where torch is: pairmill train sampled=<output_path>",
            )
        values = dataclasses.asdict(cli.build(parameters.parameters_class(train), options))
        values |= parameters.placed(values)
        without = parameters.idle(values, here=True)
        _refuse_other_files(values["output_path"], held_out=bool(values["holdout"]))
        runs = run(values, without, Here(1, output=sys.stderr))
        _show(runs, values, time.monotonic() - start)

    return cli.program("run", parameters.TrainingParameters, given, work)


def _refuse_other_files(output_path: str, *, held_out: bool) -> None:
    """Raise UsageError if ``sample``, the last stage, would refuse what is at its output_path."""
    if output_path:
        for path in (output_path, held_out_path(output_path))[: 1 + held_out]:
            Node(path, "0" * 16).refuse_other_files()


def _show(runs: Sequence[TaskRun], values: Mapping[str, Any], seconds: float) -> None:
    """Write the page over all stages, and print what was made and where it is."""
    lines = []
    for item in runs:
        name = f"{item.task.stage}, held out" if item.task.name == HELD_OUT else item.task.stage
        state = "reused" if item.ended.reused else "made"
        lines.append(f"  {name:16} {state:7} {item.ended.seconds:6.1f} s  {item.ended.folder}")
    reused = all(item.ended.reused for item in runs)
    lines += ["", f"  {'every stage was reused' if reused else 'done'} in {seconds:.1f} s"]
    by_name = {item.task.name: item for item in runs}
    place = values["output_path"]
    for what, task, path in (("arrays", "sample", place), ("held out", HELD_OUT, held_out_path(place))):
        if place and task in by_name:
            lines.append(f"  {what}: {path.replace(FINGERPRINT, by_name[task].fingerprint)}")
    sampled = by_name["sample"]
    page = line.run(line.LineConfig(root=values["root"], sample=sampled.fingerprint))
    lines += [f"  report: {sampled.ended.folder}/report.html", f"  the line: {page}"]
    if "train" in by_name:
        folder = by_name["train"].ended.folder
        lines += [f"  trained: {folder}", f"  report of the training: {folder}/report.html"]
    sys.stdout.write("\n".join(lines) + "\n")
