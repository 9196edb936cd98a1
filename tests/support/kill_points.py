"""Kill a process at every instant at which it would leave something else behind, in place of at random ones.

What a killed process leaves changes with each file that gets or loses its name; what has no name yet, nobody reads.
Python tells its audit hooks of each such call before it is made, whichever module makes it: the stores, the sampler's
folder, and what is written tomorrow.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

_NAMES = {"os.rename", "os.link", "os.symlink"}
_REMOVALS = {"os.remove", "os.rmdir"}


def die_before(number: int) -> None:
    """Let this process be killed before its ``number``-th change of a name, counted from 1."""
    left = number

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _NAMES or (event in _REMOVALS and _exists(*arguments)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def _exists(path: Any, folder: int = -1) -> bool:
    # A file that was renamed is removed by its former name too, which changes nothing.
    try:
        os.stat(path, dir_fd=None if folder < 0 else folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def kills(run: Callable[[int], "subprocess.CompletedProcess[str]"]) -> Iterator[int]:
    """The number of each instant, after ``run``, given the number, was killed there; ends when a run ends by itself."""
    for number in count(1):
        done = run(number)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            assert number > 1, "no change of a name was seen"
            return
        yield number
