"""Raw files: which are read, how they are written, and their records one at a time."""

from typing import Any


def load_readers() -> Any:
    """Return :mod:`readers`: it needs Arrow, a third of a start, and declarations of sources do without."""
    from pairmill.sources.files import readers

    return readers
