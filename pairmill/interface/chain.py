"""Several stages one after another in one pod: ``pairmill chain --executor-input {{$}}``.

Each is a process of its own, started as Kubeflow's launcher starts it. So a run of a comparison or search is one task
of its pipeline: with a task for each stage, eight runs would pass what a workflow object holds.

The input ``steps`` lists them: ``{"stage": name, "options": {…}, "together": true}``. An option ``=name`` is the input
of that name, ``=stage.output`` the folder of an earlier stage; with ``together`` a stage takes the input ``options``
too. An output parameter has the name of the stage whose folder it holds.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from pairmill import log
from pairmill.errors import PairmillError
from pairmill.interface import cli, launcher

STEPS: Final = "steps"
PROGRAM = ("pairmill", "stage")
"""The module of the stages' programs, and its arguments before the name of a stage."""


@dataclass(kw_only=True)
class ChainConfig:
    """Run several stages in one pod."""


class StageEnded(PairmillError):
    """A stage failed. The exit code is that of its program."""

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(f"stage {stage} failed", got=f"exit code {code}", hint="see its message above")
        self.exit_code = code if 0 < code < 128 else 5


@dataclass(frozen=True)
class Ended:
    """How the program of a stage ended: its exit code, and if that is 0 its executor output."""

    code: int
    output: Mapping[str, Any]

    def artifact(self, name: str) -> dict[str, Any]:
        """Return the metadata of an artifact."""
        result: dict[str, Any] = self.output["artifacts"][name]["artifacts"][0]["metadata"]
        return result


def run_stage(
    stage: str,
    options: Mapping[str, Any],
    outputs: Collection[str],
    folder: Path,
    environment: Mapping[str, str],
    stdout: TextIO | None = None,
) -> Ended:
    """Run a stage's program as Kubeflow's launcher would. One that does not write an output has failed, as there.

    Args:
        options: by name.
        outputs: output parameters that are asked for.
        folder: for its outputs; each artifact is a file there.
        environment: of the program.
        stdout: where it prints its result for people; None = nowhere.
    """
    artifacts = (launcher.MANIFEST, launcher.METRICS, launcher.REPORT)
    given = {
        "inputs": {"parameterValues": dict(options)},
        "outputs": {
            "parameters": {name: {"outputFile": str(folder / "parameters" / name)} for name in sorted(outputs)},
            "artifacts": {name: {"artifacts": [{"uri": str(folder / name)}]} for name in artifacts},
            "outputFile": str(folder / "output.json"),
        },
    }
    command = [sys.executable, "-m", *PROGRAM, stage, launcher.FLAG, json.dumps(given)]
    # stdout has the result of the whole; that of a stage is in its outputs.
    to = subprocess.DEVNULL if stdout is None else stdout.fileno()
    code = subprocess.run(command, stdout=to, check=False, env=environment).returncode
    if code:
        return Ended(code, {})
    written = folder / "output.json"
    missing = [name for name in sorted(outputs) if not (folder / "parameters" / name).exists()]
    if missing or not written.exists():
        log.logger().error("task %s did not write %s", stage, ", ".join(missing) or "executor output")
        return Ended(5, {})
    return Ended(code, json.loads(written.read_text()))


def run(task: launcher.ExecutorInput) -> None:
    """Run the steps of a task, and write what it puts out.

    Raises:
        StageEnded: of the first that failed.
    """
    values = {name: value for name, value in task.parameters.items() if name != STEPS}
    with tempfile.TemporaryDirectory(prefix="pairmill-") as top:
        for step in task.parameters[STEPS]:
            stage, folder = step["stage"], Path(top) / step["stage"]
            folder.mkdir()
            options = {name: _filled(value, values) for name, value in step["options"].items()}
            if step.get("together"):
                options[launcher.OPTIONS] = task.options
            ended = run_stage(stage, options, ("output",), folder, os.environ)
            if ended.code:
                raise StageEnded(stage, ended.code)
            values[f"{stage}.output"] = ended.output["parameterValues"]["output"]
        folders = {name: values[f"{name}.output"] for name in task.output_parameters}
        report = (folder / launcher.REPORT).read_bytes()
        task.put(folders, {launcher.REPORT: (report, ended.artifact(launcher.REPORT))})


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    return values[value[1:]] if isinstance(value, str) and value.startswith("=") else value


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        launcher.adopt_secrets()
        run(launcher.ExecutorInput.parse(arguments[1:]))

    return cli.program("chain", ChainConfig, arguments, work)
