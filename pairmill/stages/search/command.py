"""``pairmill stage search``, and its command ``settings``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.search.core import Search
from pairmill.stages.search.settings import SearchSettings

COMMANDS = {"settings": settings_command(SearchSettings)}


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return stagecli.main(Search(), arguments, COMMANDS)
