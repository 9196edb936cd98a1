"""The start of every program: first make Ctrl-C end it without a traceback, then import the rest."""

from pairmill.interface.interrupt import quiet


def main() -> int:
    """Run the command that ``sys.argv`` names; return the exit code."""
    quiet()
    import sys  # after quiet(): an interrupt during an import would print a traceback

    from pairmill.interface.command import run

    return run(sys.argv[1:])
