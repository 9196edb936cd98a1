"""The start of every program: first make Ctrl-C end it without a traceback, then import the rest."""

import gc
import sys
from importlib import import_module

from pairmill.interface.interrupt import quiet


def main() -> int:
    """Run the command that ``sys.argv`` names; return the exit code."""
    quiet()
    # By default a collection follows 700 new objects: while a manifest of 100,000 files is read, a quarter of the time.
    gc.set_threshold(50_000, 20, 20)
    # After quiet(): an interrupt here would print a traceback.
    import_module("pairmill.interface.light").lighten()
    from pairmill.interface.command import run

    return run(sys.argv[1:])
