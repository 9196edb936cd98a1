"""Signals that end a run after its step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals() -> Iterator[list[str]]:
    """Note SIGTERM, SIGUSR1 and Ctrl-C in place of ending: the names of those that came. Only a main thread hears them.

    A second Ctrl-C ends at once. Where Ctrl-C is ignored, as in the background of a shell, it stays so.
    """
    heard: list[str] = []

    def hear(number: int, _: object) -> None:
        heard.append(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(number, before[number])

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    wanted: list[int] = [signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        wanted.append(signal.SIGINT)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        signal.signal(number, hear)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
