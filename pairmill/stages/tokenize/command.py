"""``pairmill tokenize``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.stages.tokenize.core import Tokenize


def main(arguments: Sequence[str]) -> int:
    """Run the stage; return the exit code."""
    return stagecli.main(Tokenize(), arguments)
