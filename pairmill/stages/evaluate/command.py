"""``pairmill evaluate``, with its commands ``settings``, ``watch`` and ``table``."""

from collections.abc import Sequence
from typing import Final

from pairmill.evaluation.settings import EvaluateSettings
from pairmill.interface import cli, launcher, stagecli
from pairmill.interface.cli import Command
from pairmill.interface.parent import end_with_parent
from pairmill.interface.stagecli import settings_command
from pairmill.stages.evaluate.config import WatchConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.curves import TableConfig, table
from pairmill.stages.evaluate.watch import watch, watch_as_task

COMMANDS: Final = {
    "settings": settings_command(EvaluateSettings),
    "watch": Command(WatchConfig, watch),
    "table": Command(TableConfig, table),
}
_OPTIONS: Final = {"watch": "run", "table": "runs"}
"""The option of a command that its name is too: ``watch=<run>`` is ``watch run=<run>``."""


def main(arguments: Sequence[str]) -> int:
    """Run the stage, or one of its commands; return the exit code."""
    end_with_parent()
    if list(arguments[:2]) == ["watch", launcher.FLAG]:  # a task of pairmill/kubeflow/evaluate.py
        return cli.main("evaluate watch", WatchConfig, watch_as_task, arguments[1:])
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if equals and name in _OPTIONS:
            rest = [*arguments[:at], *arguments[at + 1 :]]
            return stagecli.main(Evaluate(), [name, f"{_OPTIONS[name]}={value}", *rest], COMMANDS)
    return stagecli.main(Evaluate(), arguments, COMMANDS)
