"""``pairmill tokenize``, and its commands ``union`` and ``diff``."""

from functools import partial

from pairmill.interface import cli
from pairmill.interface.cli import Command
from pairmill.stages.tokenize.config import TokenizeConfig

_HERE = "pairmill.stages.tokenize"
COMMANDS = {
    "union": Command(f"{_HERE}.unions:UnionConfig", f"{_HERE}.unions:show_union"),
    "diff": Command(f"{_HERE}.unions:DiffConfig", f"{_HERE}.unions:show_diff"),
}

main = partial(cli.main, "tokenize", TokenizeConfig, f"{_HERE}.core:Tokenize", commands=COMMANDS)
