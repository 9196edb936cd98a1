"""``pairmill select``, and its command ``settings``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.select.config import SelectConfig

_HERE = "pairmill.stages.select"
COMMANDS = {"settings": cli.settings_command("select", f"{_HERE}.settings:Settings")}

main = partial(cli.main, "select", SelectConfig, f"{_HERE}.core:Select", commands=COMMANDS)
