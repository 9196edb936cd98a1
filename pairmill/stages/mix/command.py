"""``pairmill mix``, and its commands ``preview``, ``export`` and ``settings``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import settings_command
from pairmill.mixture.settings import MixSettings
from pairmill.stages.mix.core import Mix
from pairmill.stages.mix.export import ExportConfig, export
from pairmill.stages.mix.preview import PreviewConfig, preview

COMMANDS = {
    "preview": Command(PreviewConfig, preview),
    "export": Command(ExportConfig, export),
    "settings": settings_command(MixSettings),
}


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return stagecli.main(Mix(), arguments, COMMANDS)
