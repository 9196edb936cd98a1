"""Runs the pipeline on this machine, without a cluster: ``python -m pipelines.local raw=… root=… [option=value …]``.

With ``train_config=`` it ends in a training, if torch is there.

The definition is the one that a cluster runs: kfp's local orchestrator resolves it, and each stage's own command runs
as a process. kfp's runners do not fit: SubprocessRunner refuses container components, and DockerRunner needs an engine
and reports success for containers that failed. So the two refusals of the subprocess handler are switched off. This
uses private names of kfp 2.17; tests/contract/test_local_runner.py fails when they move.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

import contextlib
import dataclasses
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.sample.config import held_out_path
from components.sample.node.config import FINGERPRINT
from components.sample.node.folder import Node
from pairmill import log
from pairmill.errors import PairmillError, UsageError
from pairmill.interface import cli, launcher
from pipelines import line, parameters


@dataclass
class TaskRun:
    """A task that ended: its stage, exit code, seconds, and the executor output that it wrote."""

    stage: str
    exit_code: int
    seconds: float
    output: dict[str, Any] = field(default_factory=dict)
    held_out: bool = False
    """Whether it sampled the held-out rows: the pipeline has two tasks of that stage."""

    def artifact(self, name: str) -> dict[str, Any]:
        """An output artifact: its uri and its metadata."""
        found: dict[str, Any] = self.output["artifacts"][name]["artifacts"][0]
        return found


class PipelineFailure(PairmillError):
    """A task failed. The exit code is that of its program."""

    def __init__(self, runs: list[TaskRun]) -> None:
        failed = runs[-1]
        super().__init__(
            f"task {failed.stage} failed", got=f"exit code {failed.exit_code}", hint="see its message above"
        )
        self.exit_code = failed.exit_code if 0 < failed.exit_code < 128 else 5


def run(pipeline: Callable[..., Any], arguments: Mapping[str, Any], pipeline_root: Path) -> list[TaskRun]:
    """Run a compiled pipeline function with these arguments; returns its tasks in the order they ran.

    Args:
        pipeline: a function decorated with ``dsl.pipeline``.
        arguments: its parameters by name.
        pipeline_root: local folder for the small artifacts (manifests, metrics, reports).

    Raises:
        PipelineFailure: a task ended with an exit code other than 0, or without its outputs.
    """
    from kfp import local

    runs: list[TaskRun] = []
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(pipeline_root), raise_on_error=True)
    with _native_tasks(runs), _quiet():
        try:
            pipeline(**arguments)
        except Exception as error:
            if runs and runs[-1].exit_code:
                raise PipelineFailure(runs) from error
            raise
    return runs


@contextlib.contextmanager
def _native_tasks(runs: list[TaskRun]) -> Iterator[None]:
    from kfp.local import status, subprocess_task_handler

    original = subprocess_task_handler.SubprocessTaskHandler

    class NativeTaskHandler(original):  # type: ignore[misc, valid-type]
        """Runs a container component's command as a process of this Python."""

        def validate_image(self, image: str) -> None:
            """Any image will do: none is used."""

        def validate_not_container_component(self, full_command: list[str]) -> None:
            """Container components are what this handler is for."""

        def run(self) -> Any:
            """Run the command; its messages go straight to stderr, its result to stderr as well."""
            command = list(self.full_command)
            if command[0] == "python":
                command[0] = sys.executable
            start = time.monotonic()
            # Without the variables of the task: they name volumes of a cluster.
            done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
            record = TaskRun(command[2].rsplit(".", 1)[-1], done.returncode, time.monotonic() - start)
            runs.append(record)
            if done.returncode:
                return status.Status.FAILURE
            task = launcher.ExecutorInput.parse(command[command.index(launcher.FLAG) + 1 :])
            # A cluster fails a task that does not write a declared output; kfp.local accepts it.
            missing = [name for name, path in task.output_parameters.items() if not path.exists()]
            if missing or not task.output_file.exists():
                record.exit_code = 5
                log.logger().error("task %s did not write %s", record.stage, ", ".join(missing) or "executor output")
                return status.Status.FAILURE
            record.output = json.loads(task.output_file.read_text())
            record.held_out = record.stage == "sample" and bool(task.parameters.get("held_out"))
            return status.Status.SUCCESS

    subprocess_task_handler.SubprocessTaskHandler = NativeTaskHandler
    try:
        yield
    finally:
        subprocess_task_handler.SubprocessTaskHandler = original


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # kfp prints a line for every event; the stages and the summary tell the same.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*have no effect in the current local runner", category=UserWarning)
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)

    def work() -> None:
        start = time.monotonic()
        options = cli.split(given)
        train = bool(options.get("train_config"))
        if train and importlib.util.find_spec("torch") is None:
            raise UsageError(
                "cannot train here",
                where="train_config",
                got="no torch in this environment",
                hint="pip install '.[train]' in a checkout of pairmill, or leave train_config= out and train where "
                "torch is: python -m components.train sampled=<output_path>",
            )
        arguments = dataclasses.asdict(cli.build(parameters.of(train), options))
        arguments |= parameters.placed(arguments)
        parameters.stage_configs(arguments)
        _refuse_other_files(arguments["output_path"], held_out=bool(arguments["holdout"]))
        without = parameters.idle(arguments, here=True)
        from pipelines.placement import Placement
        from pipelines.pretraining import build

        # No fan-out: processes share the work here, and kfp's local loops replace the outputs of tasks before them.
        # It is built for this run alone, so a stage that has nothing to do is left out.
        pipeline = build(
            Placement(retries=0, gpus=0),
            without=without,
            trainer_image="" if train else None,
            samples_path=arguments["output_path"],
        )
        with tempfile.TemporaryDirectory(prefix="pairmill-") as artifacts:
            runs = run(pipeline, arguments, Path(artifacts))
        _show(runs, arguments, time.monotonic() - start, _line(runs, arguments["root"]))

    return cli.program("pipelines.local", "local", parameters.TrainingParameters, given, work)


def _refuse_other_files(output_path: str, *, held_out: bool) -> None:
    """Raise UsageError if ``sample``, the last stage, would refuse what is at its output_path."""
    if output_path:
        for path in (output_path, held_out_path(output_path))[: 1 + held_out]:
            Node(path, "0" * 16).refuse_other_files()


def _line(runs: list[TaskRun], root: str) -> str:
    """Write the page over all stages; returns its URI."""
    (sampled,) = (task for task in runs if task.stage == "sample" and not task.held_out)
    fingerprint = sampled.artifact(launcher.REPORT)["metadata"]["fingerprint"]
    return line.run(line.LineConfig(root=root, sample=fingerprint))


def _show(runs: list[TaskRun], arguments: Mapping[str, Any], seconds: float, page: str) -> None:
    lines = []
    reused, trained = True, None
    for task in runs:
        made = task.artifact(launcher.REPORT)["metadata"]
        state = "reused" if made["reused"] == "true" else "made"
        reused = reused and state == "reused"
        name = f"{task.stage}, held out" if task.held_out else task.stage
        lines.append(f"  {name:16} {state:7} {task.seconds:6.1f} s  {made['data']}")
        if task.stage == "sample" and not task.held_out:
            final = made
        elif task.stage == "train":
            trained = made
    lines += ["", f"  {'every stage was reused' if reused else 'done'} in {seconds:.1f} s"]
    places = {"arrays": (arguments["output_path"], final)}
    for task in runs:
        if task.held_out:
            places["held out"] = (held_out_path(arguments["output_path"]), task.artifact(launcher.REPORT)["metadata"])
    if arguments["output_path"]:
        for what, (place, made) in places.items():
            lines.append(f"  {what}: {place.replace(FINGERPRINT, made['fingerprint'])}")
    lines += [f"  report: {final['data']}/report.html", f"  the line: {page}"]
    if trained:
        lines += [f"  trained: {trained['data']}", f"  report of the training: {trained['data']}/report.html"]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
