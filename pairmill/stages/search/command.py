"""``pairmill stage search``, and its command ``settings``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.search.config import SearchConfig

_HERE = "pairmill.stages.search"
COMMANDS = {"settings": cli.settings_command("search", f"{_HERE}.settings:SearchSettings")}

main = partial(cli.main, "search", SearchConfig, f"{_HERE}.core:Search", commands=COMMANDS)
