"""Parameters of the pipeline that evaluates the checkpoints of a run as they appear (docs/evaluation.md)."""

from dataclasses import dataclass
from typing import Final

from pairmill.address import is_address
from pairmill.engine.options import option
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.interface.launcher import Component
from pairmill.line.parameters import parameter
from pairmill.stages.evaluate.config import WatchConfig

WATCH: Final = Component("evaluate", WatchConfig, image="trainer")
"""What Kubeflow is told of the command ``evaluate watch``; its task is placed as one of the stage is."""


@dataclass(kw_only=True)
class Parameters(Checked):
    """Ask the checkpoints of a training as they appear, beside it."""

    root: str = parameter(WatchConfig, "root")
    run: str = parameter(WatchConfig, "run")
    every: int = parameter(WatchConfig, "every")
    benchmarks: str = parameter(WatchConfig, "benchmarks")
    data: str = parameter(WatchConfig, "data")
    scorings: str = parameter(WatchConfig, "scorings")
    held_out: str = parameter(WatchConfig, "held_out")
    training: str = parameter(WatchConfig, "training")
    tokenizer: str = parameter(WatchConfig, "tokenizer")
    evaluate_config: str = parameter(WatchConfig, "evaluate_config")
    set: str = parameter(WatchConfig, "set")
    serve: str = parameter(WatchConfig, "serve")
    idle_hours: float = option(
        6.0,
        help="hours to wait for a run that has not begun, and for each next checkpoint: then the task ends with those "
        "that there are; 0 = however long it takes",
        at_least=0,
    )


def refuse(values: Parameters) -> None:
    """Raise UsageError for options that the task would refuse."""
    cli.build(WatchConfig, dict(vars(values)))


def places_of(values: Parameters) -> list[tuple[str, str]]:
    """Return the folders that the options name beside the root, each with its option."""
    rows = [("training", item) for item in cli.split_list(values.training) if not is_address(item)]
    return [*((name, getattr(values, name)) for name in ("run", "held_out", "tokenizer")), *rows]
