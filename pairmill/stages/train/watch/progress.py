"""How far a run is: a bar on a terminal, elsewhere a line every ten seconds; and a table at the end."""

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from pairmill import log
from pairmill.report.model import Cell, format_cell

_LINE_SECONDS: Final = 10.0


class Progress:
    """Shows steps.

    Args:
        title: what is trained.
        total: planned steps.
        done: steps of earlier attempts.
    """

    def __init__(self, title: str, total: int, done: int) -> None:
        self._title, self._total, self._first = title, total, done
        self._start = self._said = time.monotonic()
        self._heldout: float | None = None
        self._rest = ""
        self._bars: Any = None
        if log.human() and sys.stderr.isatty():
            self._bars, self._task = self._shown(done)

    def _shown(self, done: int) -> tuple[Any, Any]:
        bars = log.terminal().training_bar()
        task = bars.add_task("train", total=self._total, completed=done, said="")
        bars.start()
        return bars, task

    def update(self, step: int, loss: float, tokens_per_s: float) -> None:
        """Show that a step is done."""
        if self._bars is not None:
            self._rest = f"loss {loss:.4f}  {tokens_per_s:,.0f} tokens/s"
            self._bars.update(self._task, completed=step, said=self._line())
            return
        now = time.monotonic()
        if step < self._total and now - self._said < _LINE_SECONDS:
            return
        self._said = now
        left = (now - self._start) / max(1, step - self._first) * (self._total - step)
        heldout = "" if self._heldout is None else f", held-out {self._heldout:.4f}"
        log.event(
            f"train: step {step:,} of {self._total:,}, loss {loss:.4f}{heldout}, {tokens_per_s:,.0f} tokens/s, "
            f"{duration(left)} left",
            step=step,
            steps_planned=self._total,
            loss=loss,
            heldout_loss=self._heldout,
            tokens_per_second=round(tokens_per_s),
            seconds_left=round(left, 1),
        )

    def evaluated(self, loss: float) -> None:
        """Show the loss that held-out rows have now."""
        self._heldout = loss
        if self._bars is not None:
            self._bars.update(self._task, said=self._line())

    def _line(self) -> str:
        return self._rest if self._heldout is None else f"held-out {self._heldout:.4f}  {self._rest}"

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def summary(title: str, rows: Mapping[str, Cell], fields: Mapping[str, Any]) -> None:
    """Show the end of a run: a table of the rows for a person, one line with the fields for a collector."""
    shown = {name: format_cell(value) for name, value in rows.items()}
    if not log.human():
        log.event(f"{title}: " + ", ".join(f"{name} {value}" for name, value in shown.items()), **fields)
        return
    draw = log.terminal()
    table = draw.Table(title=draw.Text(title), show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right", overflow="fold")
    for name, value in shown.items():
        table.add_row(draw.Text(name), draw.Text(value))
    draw.console().print(table)


def duration(seconds: float) -> str:
    """Write seconds as a person says them.

    >>> duration(0.4), duration(75), duration(3725), duration(180_000)
    ('0 s', '1 min 15 s', '1 h 2 min', '50 h 0 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
