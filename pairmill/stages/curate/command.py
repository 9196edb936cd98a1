"""``pairmill curate``, and its commands ``explain``, ``show``, ``settings`` and ``train_classifier``."""

from functools import partial

from pairmill.interface import cli
from pairmill.interface.cli import Command, settings_command
from pairmill.stages.curate.config import CurateConfig

_HERE = "pairmill.stages.curate"
COMMANDS = {
    "explain": Command(f"{_HERE}.explain:ExplainConfig", f"{_HERE}.explain:explain"),
    "show": Command(f"{_HERE}.show:ShowConfig", f"{_HERE}.show:show"),
    "settings": settings_command("curate", f"{_HERE}.settings:Settings"),
    "train_classifier": Command(f"{_HERE}.train_classifier:TrainConfig", f"{_HERE}.train_classifier:train"),
}

main = partial(cli.main, "curate", CurateConfig, f"{_HERE}.core:Curate", commands=COMMANDS)
