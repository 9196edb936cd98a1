"""A bar in the output of a notebook's cell, for each round while it goes on."""

import html
import importlib
import time
from types import TracebackType
from typing import Any, Self

_SECONDS = 0.2
"""Between two updates of a bar."""


class CellBar:
    """A bar in the output of the cell, which goes when the work ends.

    Args:
        title: what is done, for people.
        total: how much of it there is.
        lines: logs the same now and then, and at the end.
    """

    def __init__(self, title: str, total: int, lines: Any) -> None:
        self._title, self._total, self._lines = title, total, lines
        self._done, self._next = 0, 0.0
        self._display = importlib.import_module("IPython.display")

    def __enter__(self) -> Self:
        self._handle = self._display.display(self._html(), display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.update(self._display.HTML(""))

    def advance(self, shards: int, rows: int, size: int) -> None:
        """Add what is done (:class:`pairmill.log.Progress`)."""
        self._done += shards
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS
            self._handle.update(self._html())
        self._lines.advance(shards, rows, size)

    def _html(self) -> Any:
        bar = f'<progress value="{self._done}" max="{max(1, self._total)}"></progress>'
        return self._display.HTML(f"{html.escape(self._title)} {bar} {self._done:,}/{self._total:,}")
