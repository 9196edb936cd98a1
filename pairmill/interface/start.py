"""The start of every program: first make Ctrl-C end it without a traceback, then import the rest."""

import gc
import sys

from pairmill.interface.interrupt import quiet


def main() -> int:
    """Run the command that ``sys.argv`` names; return the exit code."""
    quiet()
    # By default a collection follows 700 new objects: while a manifest of 100,000 files is read, a quarter of the time.
    gc.set_threshold(50_000, 20, 20)
    from pairmill.interface.command import run  # after quiet(): an interrupt here would print a traceback

    return run(sys.argv[1:])
