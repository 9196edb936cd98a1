"""A piece of code as a process of its own, forked from one that has imported the clients of object stores."""

import sys
from collections.abc import Sequence

from tests.support.helpers import environment
from tests.support.processes import nursery


def fork(code: str, *arguments: str, others: Sequence[int] = ()) -> nursery.Child:
    """Start it as ``python -c`` does; ``others`` are descriptors whose numbers are its last arguments."""
    return nursery.shared(nursery.STORES).start(__name__, [code, *arguments], environment(), others=others)


def end(child: nursery.Child) -> tuple[str, int]:
    """Wait for it: what it wrote to stdout and stderr, and its exit code."""
    assert child.stdout is not None
    with child.stdout as output:
        return output.read().decode(), child.wait()


if __name__ == "__main__":
    exec(sys.argv.pop(1), {"__name__": "__main__"})
