"""``pairmill clean``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.stages.clean.core import Clean


def main(arguments: Sequence[str]) -> int:
    """Run the stage; return the exit code."""
    return stagecli.main(Clean(), arguments)
