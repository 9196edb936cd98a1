"""The start of every program: first make Ctrl-C end it without a traceback, then import the rest."""

import sys

from pairmill.interface.interrupt import quiet


def main() -> int:
    """Run the command that ``sys.argv`` names; return the exit code."""
    quiet()
    from pairmill.interface.command import run  # after quiet(): an interrupt here would print a traceback

    return run(sys.argv[1:])
