"""``pairmill evaluate``, and its command ``settings``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.evaluation.settings import EvaluateSettings
from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.evaluate.core import Evaluate

COMMANDS = {"settings": settings_command(EvaluateSettings)}


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return stagecli.main(Evaluate(), arguments, COMMANDS)
