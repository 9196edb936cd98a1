"""What several test modules need: the repository, a program of ours as a process, and what a folder holds."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 300.0
"""Seconds after which what has not come does not come: a process that has not ended hangs. It costs nothing but where
one does, and a machine under load takes minutes for what is done in two seconds."""
SOON = 60.0
"""Seconds in which must happen what an idle machine does within one."""
SWITCHED = ("select", "mix")
"""Stages that their shipped settings switch off."""


def draws(many: int) -> int:
    """How many random cases to try: a quarter, and with ``PAIRMILL_ALL_DRAWS=1`` (``make test-long``) all."""
    return many if "PAIRMILL_ALL_DRAWS" in os.environ else many // 4


def environment() -> dict[str, str]:
    """Environment for a child that imports our packages and the tests', wherever it is started."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def python(*arguments: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run this Python with these arguments from the repository; stdout and stderr as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start(code: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
    """Start this Python on a piece of code, in a process group of its own; its stdout can be read as text."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env=environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def writable(path: Path) -> Path:
    """The same file, for a test that damages it: finished files are read-only to everybody but root."""
    path.chmod(path.stat().st_mode | 0o200)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones included, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until the condition holds; fail with ``what`` if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


def missing(what: str) -> NoReturn:
    """A test cannot run because this machine does not allow something: passed over by hand, a failure in CI."""
    import pytest  # a third of a second, for each worker process of a toy stage

    if os.environ.get("CI"):
        pytest.fail(f"this machine does not allow {what}, and CI must not pass a test over")
    pytest.skip(f"this machine does not allow {what}")


def mount(path: Path, *options: str) -> None:
    """Mount a tmpfs with these options on a folder, or with ``remount`` change it."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"mounting a small file system ({done.stderr.strip()})")


def alive(pid: int) -> bool:
    """Whether a process runs (one that ended and waits for its parent does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


@contextmanager
def as_somebody(folder: Path) -> Iterator[None]:
    """As a user who may read what all may, also where tests run as root."""
    if os.geteuid():
        yield
        return
    for place in (folder, *folder.parents):
        mode = place.stat().st_mode & 0o777
        if mode and mode & 0o55 != 0o55:  # pytest's own folders are for their owner alone
            place.chmod(mode | 0o55)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
