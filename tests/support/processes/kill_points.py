"""Kill a process at instants at which it would leave something else behind, in place of at random ones.

What a killed process leaves changes with each file that gets or loses its name; what has no name yet, nobody reads.
Python tells its audit hooks of each such call before it is made, whichever module makes it: the stores, the sampler's
folder, and what is written tomorrow.

A stage does the same with each shard and each file. So `make test` kills a run before the last change of every third
kind, when most is there that could be taken for a result, and `make test-long` (``PAIRMILL_EVERY_KILL=1``) before every
change.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EVERY = "PAIRMILL_EVERY_KILL" in os.environ
_NAMES = {"os.rename", "os.link", "os.symlink"}
_REMOVALS = {"os.remove", "os.rmdir"}
_OURS = re.compile(r".*/(pairmill/.*\.py)")


def die_before(number: int) -> None:
    """Let this process be killed before its ``number``-th change of a name, counted from 1."""
    left = number

    def change(_: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    _look(change)


def note_changes(log: str) -> None:
    """Let this process write a line about each change of a name: of what kind it is."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _look(lambda kind: os.write(file, f"{kind}\n".encode()))


def _look(change: Callable[[str], object]) -> None:
    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NAMES or (event in _REMOVALS and _exists(*arguments)):
            change(_kind(event, arguments))

    sys.addaudithook(look)


def _exists(path: Any, folder: int = -1) -> bool:
    # A file that was renamed is removed by its former name too, which changes nothing.
    try:
        os.stat(path, dir_fd=None if folder < 0 else folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _kind(event: str, arguments: tuple[Any, ...]) -> str:
    """What is done, to a file of which ending or to a folder, and by which lines of ours."""
    names = [Path(os.fsdecode(each)) for each in arguments if isinstance(each, str | bytes | os.PathLike)]
    whats = [name.name if name.stem.isupper() else name.suffix for name in names]
    frame, lines = sys._getframe(1), []
    while frame := frame.f_back:  # type: ignore[assignment]
        if ours := _OURS.fullmatch(frame.f_code.co_filename):
            lines.append(f"{ours[1]}:{frame.f_lineno}")
    return " ".join([event, *whats, *lines])


def changes_of(run: Callable[[int, str], "subprocess.CompletedProcess[str]"], log: Path) -> list[str]:
    """The kinds of the changes that ``run`` makes, given 0 and a file to note them in."""
    done = run(0, str(log))
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def instants(changes: list[str]) -> list[int]:
    """The numbers of the changes before which to kill, of a run that makes these kinds of them."""
    if EVERY:
        return list(range(1, len(changes) + 1))
    last = {kind: number for number, kind in enumerate(changes, 1)}
    return sorted(last.values())[-1::-3][::-1]


def kills(run: Callable[[int, str], "subprocess.CompletedProcess[str]"], numbers: list[int]) -> Iterator[int]:
    """Each of these instants, after ``run``, given its number, was killed there."""
    for number in numbers:
        done = run(number, "")
        assert done.returncode == -signal.SIGKILL, (number, done.stderr)
        yield number
