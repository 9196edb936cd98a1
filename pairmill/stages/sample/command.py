"""``pairmill sample``, and its commands ``preview``, ``inspect``, ``verify``, ``wait``, ``serve`` and ``prepare``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import cli
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.run import COMMANDS, run


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return cli.main(NAME, SampleConfig, run, arguments, COMMANDS)
