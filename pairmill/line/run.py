"""Runs the line on this machine, without a cluster: ``pairmill run [run.yaml] raw=… root=… [option=value …]``.

Everything that can be refused is refused before the first stage (:mod:`pairmill.line.checks`).
Each task of ``table.LINE`` is a process, started as Kubeflow's launcher starts it; none needs kfp. With
``train_config=`` the line ends in a training, if torch is there.
"""

import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pairmill.engine.options import WorkerSlice, list_item, option
from pairmill.errors import Attempts, PairmillError, UsageError
from pairmill.extras import require
from pairmill.fields import Checked
from pairmill.interface import cli, run_file
from pairmill.line import checks, dry_run, parameters
from pairmill.line.runs import Ended, Here
from pairmill.line.table import GIVEN, HELD_OUT, LINE, Task, result_without
from pairmill.lineage import command as line
from pairmill.rules import DEFAULT_FILE
from pairmill.sources.registry import is_file
from pairmill.stages.fetch.config import KINDS
from pairmill.stages.sample.config import held_out_path
from pairmill.stages.sample.node.config import FINGERPRINT

_SHARED = tuple(task.stage for task in LINE if task.shared)


@dataclass(kw_only=True)
class Extent(Checked):
    """How much of the line this process runs."""

    dry_run: Literal["false", "true", "json"] = option(
        "false",
        help="true: print what a run takes (minutes, rows, tokens, disk, memory, requests), measured on the first "
        "records of each source, and leave nothing; json: the same for programs",
        excludes=("upto",),
    )
    upto: str = option(
        "", help="the last stage to run; empty = all of them", choices=tuple(dict.fromkeys(task.stage for task in LINE))
    )
    share: str = option(
        "",
        help="with upto=: run this share of that stage, as 2/7, or auto in an array job (docs/slurm.md); the first "
        "share finishes it",
        needs="upto",
        parse=WorkerSlice.parse,
    )

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks of the line to run. Raises UsageError if the work of the last one cannot be shared."""
        if self.share and self.upto not in _SHARED:
            raise UsageError("cannot be shared", where="upto", got=self.upto, expected=", ".join(_SHARED))
        last = max((at for at, task in enumerate(LINE) if task.stage == self.upto), default=len(LINE))
        return LINE[: last + 1]

    def shared(self, task: Task) -> dict[str, Any]:
        """Return the options by which a task does a share of its work."""
        if not self.share or task.stage != self.upto:
            return {}
        part = WorkerSlice.parse(self.share)
        return {"share": str(part), "finish": part.number == 1}


@dataclass(kw_only=True)
class RunParameters(Extent, parameters.TrainingParameters):
    """Every stage, from raw files to a trained net; a first argument run.yaml has options in it."""


@dataclass(frozen=True)
class TaskRun:
    """A task that ended well, and its fingerprint."""

    task: Task
    ended: Ended
    fingerprint: str


def run(values: Mapping[str, Any], without: Collection[str], here: Here, extent: Extent | None = None) -> list[TaskRun]:
    """Run the tasks of the line one after another; return those that ran, in that order.

    Args:
        values: the parameters by name.
        without: stages that have nothing to do.
        here: runs a stage.
        extent: how much of the line; None = all of it.

    Raises:
        RunFailure: a task ended with an exit code other than 0, or without its outputs.
    """
    runs: list[TaskRun] = []
    results: dict[str, str] = {}
    values, extent = dict(values), extent or Extent()
    for task in extent.tasks():
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
        made = here(task.stage, **own, **task.options, **read, **extent.shared(task))
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
        options = cli.given_options(given, parameters.LISTS)
        try:
            own = [item.name for item in dataclasses.fields(Extent) if item.name in options.values]
            extent = cli.build(Extent, {name: options.values.pop(name) for name in own})
            extent.tasks()
            values, without, wanted = checked(options.values)
        except PairmillError as error:
            raise options.locate(error) from error
        if extent.dry_run != "false":
            _estimate(values, without, wanted, as_json=extent.dry_run == "json")
            return
        runs = run(values, without, Here(1, output=sys.stderr), extent)
        _show(runs, values, time.monotonic() - start)

    return cli.program("run", RunParameters, given, work)


def _estimate(values: dict[str, Any], without: Collection[str], wanted: checks.Wanted, *, as_json: bool) -> None:
    """Print what a run would take; nothing is left behind."""

    def runner(changed: Mapping[str, Any], ended: Callable[[Ended], None]) -> None:
        run(changed, without, Here(1, show=ended))

    made = dry_run.estimate({name: value for name, value in values.items() if name != "train_config"}, wanted, runner)
    sys.stdout.write(json.dumps(made, indent=1) + "\n" if as_json else dry_run.table(made))
    sys.stdout.flush()
    dry_run.refuse_too_large(values, made)


def checked(options: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...], checks.Wanted]:
    """Return the parameters of a run, places made absolute, the stages that have nothing to do, and the sources.

    Raises:
        PairmillError, Refusals: what any stage would refuse.
    """
    attempts, train = Attempts(), bool(options.get("train_config"))
    with attempts.each():
        if train:
            require(
                "train",
                "torch",
                where="train_config",
                instead=", or leave train_config= out and train where torch is: pairmill train sampled=<output_path>",
            )
    kind = parameters.parameters_class(train)
    with attempts.each():
        cli.build(kind, options)
    wrong = {error.where for error in attempts.errors}
    if "root" in wrong or "root" not in options:
        attempts.refuse()
    # Of the others it is known too whether they are right.
    values = dataclasses.asdict(cli.build(kind, {name: text for name, text in options.items() if name not in wrong}))
    with attempts.each():
        parameters.stage_configs(values)
    attempts.refuse()
    values |= parameters.placed(values)
    configs = parameters.stage_configs(values)
    without = parameters.idle_of(configs, here=True)
    return values, without, checks.check(values, configs, without)


def _write_run_file(values: Mapping[str, Any], page: str, fingerprint: str) -> str:
    """Write the options that made a sample beside the page of its line; return the URI."""
    kind = parameters.parameters_class("train_config" in values)
    given = {item.name: values[item.name] for item in dataclasses.fields(kind) if values[item.name] != item.default}
    items = (os.path.abspath(item) if is_file(item) else item for item in cli.split_list(values["sources"]))
    given["sources"] = ",".join(map(list_item, items))
    given |= {name: cli.split_list(given[name]) for name in parameters.LISTS & given.keys() if given[name]}
    if values["prefix_config_path"] == DEFAULT_FILE and os.path.exists(DEFAULT_FILE):
        given["prefix_config_path"] = os.path.abspath(DEFAULT_FILE)
    uri = f"{page.removesuffix('.html')}.yaml"
    text = run_file.write({name: value for name, value in given.items() if value != ""}, _HEAD.format(fingerprint))
    line.write(uri, text)
    return uri


_HEAD = "The options that made the sample {}. Makes it again: pairmill run <this file>"


def _show(runs: Sequence[TaskRun], values: Mapping[str, Any], seconds: float) -> None:
    """Write the page over all stages, and print what was made and where it is."""
    lines = []
    for item in runs:
        name = f"{item.task.stage}, held out" if item.task.name == HELD_OUT else item.task.stage
        state = "reused" if item.ended.reused else "made"
        lines.append(f"  {name:16} {state:7} {item.ended.seconds:6.1f} s  {item.ended.folder}")
    by_name = {item.task.name: item for item in runs}
    if "sample" not in by_name:
        sys.stdout.write("\n".join(lines) + "\n")
        return
    reused = all(item.ended.reused for item in runs)
    lines += ["", f"  {'every stage was reused' if reused else 'done'} in {seconds:.1f} s"]
    place = values["output_path"]
    for what, task, path in (("arrays", "sample", place), ("held out", HELD_OUT, held_out_path(place))):
        if place and task in by_name:
            lines.append(f"  {what}: {path.replace(FINGERPRINT, by_name[task].fingerprint)}")
    sampled = by_name["sample"]
    page = line.run(line.LineConfig(root=values["root"], sample=sampled.fingerprint))
    lines += [f"  report: {sampled.ended.folder}/report.html", f"  the line: {page}"]
    lines.append(f"  again: pairmill run {shlex.quote(_write_run_file(values, page, sampled.fingerprint))}")
    if "train" in by_name:
        folder = by_name["train"].ended.folder
        lines += [f"  trained: {folder}", f"  report of the training: {folder}/report.html"]
    sys.stdout.write("\n".join(lines) + "\n")
