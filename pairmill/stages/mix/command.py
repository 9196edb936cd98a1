"""``pairmill mix``, and its commands ``preview``, ``export`` and ``settings``."""

from functools import partial

from pairmill.interface import cli
from pairmill.interface.cli import Command, settings_command
from pairmill.stages.mix.config import MixConfig

_HERE = "pairmill.stages.mix"
COMMANDS = {
    "preview": Command(f"{_HERE}.preview:PreviewConfig", f"{_HERE}.preview:preview"),
    "export": Command(f"{_HERE}.export:ExportConfig", f"{_HERE}.export:export"),
    "settings": settings_command("mix", "pairmill.mixture.settings:MixSettings"),
}

main = partial(cli.main, "mix", MixConfig, f"{_HERE}.core:Mix", commands=COMMANDS)
