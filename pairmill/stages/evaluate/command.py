"""``pairmill evaluate``, with its commands ``settings``, ``watch`` and ``table``."""

from collections.abc import Sequence
from typing import Final

from pairmill.interface import cli, launcher
from pairmill.interface.cli import Command, settings_command
from pairmill.interface.parent import end_with_parent
from pairmill.stages.evaluate.config import EvaluateConfig, WatchConfig

_HERE: Final = "pairmill.stages.evaluate"
COMMANDS: Final = {
    "settings": settings_command("evaluate", "pairmill.evaluation.settings:EvaluateSettings"),
    "watch": Command(WatchConfig, f"{_HERE}.watch:watch"),
    "table": Command(f"{_HERE}.curves:TableConfig", f"{_HERE}.curves:table"),
}
_OPTIONS: Final = {"watch": "run", "table": "runs"}
"""The option of a command that its name is too: ``watch=<run>`` is ``watch run=<run>``."""


def main(arguments: Sequence[str]) -> int:
    """Run the stage, or one of its commands; return the exit code."""
    end_with_parent()
    if list(arguments[:2]) == ["watch", launcher.FLAG]:  # a task of pairmill/kubeflow/evaluate.py
        return cli.main("evaluate watch", WatchConfig, f"{_HERE}.watch:watch_as_task", arguments[1:])
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if equals and name in _OPTIONS:
            arguments = [name, f"{_OPTIONS[name]}={value}", *arguments[:at], *arguments[at + 1 :]]
            break
    return cli.main("evaluate", EvaluateConfig, f"{_HERE}.core:Evaluate", arguments, COMMANDS)
