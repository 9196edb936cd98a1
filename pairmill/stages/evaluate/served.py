"""A server that a command of the user starts for an exported checkpoint, and that ends with its evaluation."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from pairmill.errors import InputError, StorageError
from pairmill.net import http
from pairmill.retry import Again

_LOOK: Final = 0.2
_GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_FAILING: Final = 500
_PATIENCE: Final = 1800.0
"""Seconds in which a server has to answer: those of large models compile for minutes."""


@contextlib.contextmanager
def running(command: str, model: str) -> Iterator[str]:
    """Start a server, yield its URL once it answers, and end it with all that it started.

    Args:
        command: with ``{model}`` and ``{port}`` in it.
        model: the folder.

    Raises:
        InputError: it ended before it answered.
        StorageError: it does not answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.replace("{model}", model).replace("{port}", str(port)) for word in shlex.split(command)]
    guarded = [sys.executable, "-m", __name__, *words]
    with subprocess.Popen(guarded, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _await(process, url)
            yield url
        finally:
            process.stdin.close()


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        if (code := process.poll()) is not None:
            hint = "see its message above; try the command by hand"
            raise InputError("the server ended before it answered", where="serve", got=f"exit code {code}", hint=hint)
        try:
            return http.tried(f"{url}/models", lambda: _look(url))
        except Again:
            if time.monotonic() > until:
                raise StorageError("the server does not answer", where=f"{url}/models") from None
            time.sleep(_LOOK)


def _look(url: str) -> None:
    with http.client() as client:
        if client.get(f"{url}/models").status_code >= _FAILING:
            raise Again("not ready")


def guard(words: Sequence[str]) -> int:
    """Run a command, and end it with all that it started when the standard input ends; return its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_end, args=(process,), daemon=True).start()
    return process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(guard(sys.argv[1:]))
