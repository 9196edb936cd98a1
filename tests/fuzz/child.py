"""Stages in one process, one after another, as their command lines run them: ``python -m tests.fuzz.child <job>``.

The job is a JSON file. Its stages read each other's results: ``{clean}`` in an option is the output of clean. After
each stage a line goes to the file of results. A nursery forks this program from a process that has imported the stages.
"""

import dataclasses
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pairmill import storage
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.interface import cli, stagecli
from pairmill.interface.cli import Outcome
from pairmill.sources.files.card import configs_of, hub_split
from pairmill.stages.clean.core import Clean
from pairmill.stages.curate.core import Curate
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.mix.core import Mix
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample
from pairmill.stages.search.settings import SearchSettings
from pairmill.stages.select.core import Select
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from pairmill.training.settings import TrainSettings
from tests.support.processes.crash_points import CrashPoints

STAGES = {
    stage.name: stage
    for stage in (Fetch(), Clean(), Curate(), Select(), TrainTokenizer(), Tokenize(), Mix(), Evaluate())
}


def _card(path: str) -> None:
    card = Path(path).read_bytes().decode(errors="replace")
    files = ["data/train.jsonl", "README.md", "a/b/test.parquet"]
    for split in ("train", "test"):
        hub_split(files, card, split)
    configs_of(card)


READERS: dict[str, Callable[[str], object]] = {
    "card": _card,
    "train settings": TrainSettings.load,
    "search settings": SearchSettings.load,
    "evaluate settings": EvaluateSettings.load,
}
"""What only reads a file, of which stages need more than this environment has: torch, or a trained net."""


@dataclasses.dataclass
class Nothing:
    """No options."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What a process does.

    Args:
        stages: name and options of each, in order.
        results: path of the file that gets a line for each stage.
        die_at: the instant of the store's work at which the process is killed, from 1; 0 = it is not.
        memory: bytes of memory that the process may ask for; 0 = no limit.
    """

    stages: list[tuple[str, dict[str, str]]]
    results: str
    die_at: int = 0
    memory: int = 0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a stage ended.

    Args:
        stage: its name.
        code: its exit code.
        output: what later stages read, a folder.
        instants: of the store's work, until then.
        memory: bytes that the process grew by at most, until then.
        share: of its work, if that is all that was done.
    """

    stage: str
    code: int
    output: str
    instants: int
    memory: int
    share: str


def main(path: str) -> int:
    """Run the stages until one fails; returns its exit code."""
    job = Job(**json.loads(Path(path).read_bytes()))
    if job.memory:
        resource.setrlimit(resource.RLIMIT_DATA, (job.memory, job.memory))
    points = CrashPoints(job.die_at)
    points.install(type(storage.store_for("/")))
    outputs: dict[str, str] = {}
    before = _memory()
    with open(job.results, "a") as file:
        for name, options in job.stages:
            given = [f"{key}={_filled(value, outputs)}" for key, value in options.items()]
            code, outputs[name] = _stage(name, given)
            ended = Ended(name, code, outputs[name], points.passed, _memory() - before, options.get("share", ""))
            file.write(json.dumps(dataclasses.asdict(ended)) + "\n")
            file.flush()
            if code:
                return code
    return 0


def _filled(value: str, outputs: Mapping[str, str]) -> str:
    for name, output in outputs.items():
        value = value.replace(f"{{{name}}}", output)
    return value


def _memory() -> int:
    """The most bytes that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _stage(name: str, given: list[str]) -> tuple[int, str]:
    if name in READERS:
        (argument,) = given
        return cli.program(name, Nothing, [], lambda: _read(name, argument)), ""
    config, run = _program(name)
    output = ""

    def noted(config: Any) -> Outcome:
        nonlocal output
        outcome = run(config)
        output = str(outcome.parameters["output"])
        return outcome

    return cli.main(name, config, noted, given), output


def _read(name: str, argument: str) -> None:
    READERS[name](argument.partition("=")[2])


def _program(name: str) -> tuple[type[Any], Callable[[Any], Outcome]]:
    if name == "sample":
        return SampleConfig, sample
    stage = STAGES[name]
    return stage.config, lambda config: stagecli.run(stage, config)


if __name__ == "__main__":
    # Stages print their results, which go to the file of results.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(main(sys.argv[1]))
