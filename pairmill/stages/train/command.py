"""``pairmill train``, and its commands ``generate``, ``export``, ``check`` and ``settings``."""

import atexit
import gc
import os
from collections.abc import Sequence

from pairmill.engine.candidates import with_left_out
from pairmill.interface import cli
from pairmill.interface.cli import Command
from pairmill.interface.parent import end_with_parent
from pairmill.stages.train import launch
from pairmill.stages.train.config import TrainConfig

_HERE = "pairmill.stages.train"
RUN = f"{_HERE}.outcome:run"
COMMANDS = {
    "generate": Command(f"{_HERE}.generate:GenerateConfig", f"{_HERE}.generate:generate"),
    "export": Command(f"{_HERE}.export.command:ExportConfig", f"{_HERE}.export.command:export"),
    "check": Command(f"{_HERE}.check:CheckConfig", f"{_HERE}.check:check"),
    "settings": Command(f"{_HERE}.settings:SettingsConfig", f"{_HERE}.settings:write_settings"),
}


def main(arguments: Sequence[str]) -> int:
    """Be the stage, or one of its commands, or another rank than 0 of a run; return the exit code."""
    # Threads of torch that wait for each other spin: beside other programs on two cores a step took nine times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    atexit.register(gc.unfreeze)
    end_with_parent()
    if launch.rank() and arguments[:1] and arguments[0] not in COMMANDS:

        def follow() -> None:
            given = with_left_out("train", TrainConfig, cli.split(arguments))
            cli.named(f"{_HERE}.core:follow")(cli.build(TrainConfig, given))

        return cli.program("train", TrainConfig, arguments, follow)
    return cli.main("train", TrainConfig, RUN, arguments, COMMANDS)
