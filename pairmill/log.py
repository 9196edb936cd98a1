"""Logs on stderr: short lines on a terminal, otherwise (a pod, a pipe) one JSON object a line.

``PAIRMILL_LOG=human|json`` overrides the choice. stdout is reserved for the stage's result.
"""

import importlib.util
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from pairmill.redact import escaped, escaped_json, scrubbed

LOGGER_NAME = "pairmill"
_PROGRESS_LINE_SECONDS = 10.0
_SHORT_SECONDS = 1.0
"""What takes less than this has no line for a person."""


def logger() -> logging.Logger:
    """Return the one logger of the project."""
    return logging.getLogger(LOGGER_NAME)


def human() -> bool:
    """Return whether log lines are for a person, not for a collector."""
    choice = os.environ.get("PAIRMILL_LOG", "auto")
    return choice == "human" or (choice != "json" and (in_notebook() or sys.stderr.isatty()))


def draws() -> bool:
    """Return whether :mod:`pairmill.terminal` can draw: a notebook has its own output, and a trainer may lack rich."""
    return not in_notebook() and importlib.util.find_spec("rich") is not None


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return "ipykernel.kernelapp" in sys.modules


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Return a record without secrets. Libraries log URLs through their own handlers, which no formatter of ours
    sees."""
    record = logging.LogRecord(*args, **kwargs)
    try:
        message = record.getMessage()
    except Exception:  # a library's malformed log call
        message = f"{record.msg} {record.args}"
    record.msg, record.args = scrubbed(message), ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = scrubbed(logging.Formatter().formatException(record.exc_info))
    if record.name != LOGGER_NAME:
        record.msg = escaped(record.msg)
    return record


def _scrubbed(value: object) -> object:
    """Return a value of a JSON line, with its texts scrubbed."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, Mapping):
        return {key: _scrubbed(item) for key, item in value.items()}
    return [_scrubbed(item) for item in value] if isinstance(value, list | tuple) else value


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "severity": record.levelname,
            "message": record.getMessage(),
        }
        for key, value in getattr(record, "fields", {}).items():
            line[key] = _scrubbed(value)
        if record.exc_text:
            line["exception"] = record.exc_text
        # Kubeflow's API shows only this key of a JSON line.
        line["log"] = "\n".join(line[key] for key in ("message", "exception") if key in line)
        return escaped_json(json.dumps(line, ensure_ascii=False))


class _PlainFormatter(logging.Formatter):
    """A line with its level unless it is INFO, for a notebook, and for a terminal without rich."""

    def format(self, record: logging.LogRecord) -> str:
        label = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{label}{escaped(super().format(record))}"


def setup() -> None:
    """Attach the handler. Safe to call again, as worker processes do."""
    logging.setLogRecordFactory(_record)
    log = logger()
    log.handlers.clear()
    log.propagate = False
    log.setLevel(logging.INFO)
    handler: logging.Handler
    if human():
        if draws():
            handler = terminal().HumanHandler()
        else:
            handler = logging.StreamHandler(sys.stdout if in_notebook() else sys.stderr)
            handler.setFormatter(_PlainFormatter())
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonFormatter())
    log.addHandler(handler)


def terminal() -> ModuleType:
    """Return :mod:`pairmill.terminal`, which draws for people. A pod does without: rich takes 50 ms to import."""
    from pairmill import terminal

    return terminal


def notebook() -> ModuleType:
    """Return :mod:`pairmill.notebook`, which draws in the output of a cell."""
    return importlib.import_module("pairmill.notebook")


def event(message: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log ``message``; ``fields`` become keys of the JSON line and are not shown to a person."""
    logger().log(level, message, extra={"fields": fields})


class Progress(Protocol):
    """Receives the runner's progress."""

    def advance(self, shards: int, rows: int, size: int) -> None:
        """Add completed shards, their rows and their output bytes."""


class _Lines:
    """Counts what is done, and logs it every ten seconds and at the end.

    Args:
        title: what is done, for people.
        total: how much of it there is.
        unit: what is counted.
        fields: further keys of JSON lines.
    """

    def __init__(self, title: str, total: int, unit: str, fields: Mapping[str, object]) -> None:
        self._title, self._total, self._unit, self._fields = title, total, unit, fields
        self._start = self._last = time.monotonic()
        self._done = self._rows = self._bytes = 0

    def advance(self, shards: int, rows: int, size: int) -> None:
        self._done, self._rows, self._bytes = self._done + shards, self._rows + rows, self._bytes + size
        now = time.monotonic()
        seconds = max(now - self._start, 1e-9)
        left = seconds / max(self._done, 1) * (self._total - self._done)
        message = f"{self._title}: {self._done}/{self._total} {self._unit}"
        if self._done < self._total:
            if now - self._last < _PROGRESS_LINE_SECONDS:
                return
            message += f", {clock(left)} left"
        elif human() and seconds < _SHORT_SECONDS:
            return  # of a small run nobody reads a line for each round
        else:
            message += f" in {seconds:.1f} s"
        self._last = now
        fields = {
            **self._fields,
            self._unit: self._done,
            f"{self._unit}_planned": self._total,
            "rows": self._rows,
            "rows_per_second": round(self._rows / seconds),
            "bytes_per_second": round(self._bytes / seconds),
            "seconds": round(seconds, 3),
            "seconds_left": round(left, 1),
        }
        logger().info(message, extra={"fields": fields})


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, or with hours before them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes:02}:{rest:02}"


@contextmanager
def progress(title: str, total: int, unit: str = "shards", **fields: object) -> Iterator[Progress]:
    """Log how far some work is, every ten seconds and at its end; on a terminal show a bar while it goes on.

    Args:
        title: what is done, for people.
        total: how much of it there is.
        unit: what is counted.
        fields: further keys of JSON lines.
    """
    lines = _Lines(title, total, unit, fields)
    if human() and in_notebook():
        with notebook().CellBar(title, total, lines) as bar:
            yield bar
        return
    if not (human() and sys.stderr.isatty() and draws()):
        yield lines
        return
    # The line at the end stays, and the bar goes.
    with terminal().bars() as bars:
        task = bars.add_task(title, total=total, rate="")
        start = time.monotonic()
        seen = [0, 0]

        class _Bar:
            def advance(self, shards: int, rows: int, size: int) -> None:
                seen[0] += rows
                seen[1] += size
                seconds = max(time.monotonic() - start, 1e-9)
                rate = f"{seen[0] / seconds:,.0f} rows/s" + f"  {seen[1] / seconds / 1e6:,.1f} MB/s" * bool(size)
                bars.update(task, advance=shards, rate=rate)
                lines.advance(shards, rows, size)

        yield _Bar()
