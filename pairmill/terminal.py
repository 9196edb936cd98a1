"""What a person sees on a terminal: log lines, bars and tables, by rich. Imported by :func:`pairmill.log.terminal`."""

import logging
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live as Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as Table
from rich.text import Text as Text

from pairmill.redact import escaped

_console: Console | None = None


def console() -> Console:
    """Return the console on stderr, shared by log lines and progress bars so that they do not garble each other."""
    global _console
    if _console is None:
        _console = Console(stderr=True)
    return _console


class HumanHandler(logging.Handler):
    """Prints lines above the progress bar, without wrapping, with the level unless it is INFO."""

    def emit(self, record: logging.LogRecord) -> None:
        style = {"WARNING": "yellow", "ERROR": "bold red"}.get(record.levelname, "")
        label = f"{record.levelname.lower()}: " if style else ""
        console().print(Text(label, style), Text(escaped(self.format(record))), sep="", soft_wrap=True)


def write_styled(lines: Iterable[Sequence[tuple[str, str]]]) -> None:
    """Print lines of (text, style) on stdout as they are made, in colour unless ``NO_COLOR`` is set."""
    out = Console(highlight=False)
    for each in lines:
        out.print(Text.assemble(*each), soft_wrap=True)


def bars() -> Progress:
    """Return bars of rounds, each with a text ``rate``; they go when they end, and the log's last line stays."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console(), transient=True)


def training_bar() -> Progress:
    """Return the bar of a training, as wide as the terminal, with a text ``said``."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console(), transient=True)
