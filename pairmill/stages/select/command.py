"""``pairmill select``, and its command ``settings``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.select.core import Select
from pairmill.stages.select.settings import Settings

COMMANDS = {"settings": settings_command(Settings)}


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return stagecli.main(Select(), arguments, COMMANDS)
