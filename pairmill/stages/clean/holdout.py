"""Which rows of a task are held out: those whose record's first question has a small hash.

The hash is of the question's light form, so all rows of a record are on one side, and with a fraction all records with
that question are, in any task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pairmill.engine.inputs import HELD_OUT
from pairmill.errors import UsageError
from pairmill.formats.row import Row
from pairmill.sources.source import Source
from pairmill.text import hash64, light

NOTE = "held_out"
"""The note under which held-out rows are counted."""

_SALT = "holdout"
_EXPECTED = "a fraction below 1 such as 0.01, or rows of each task such as 500; empty = none"
_MAX_ROWS = 1_000_000


@dataclass(frozen=True)
class Holdout:
    """How much of each task is held out: a fraction of the questions, or a number of rows.

    Args:
        fraction: between 0 and 1; 0 = ``rows`` says it.
        rows: the most rows of a task. A task keeps at least half of its rows for training.
    """

    fraction: float = 0.0
    rows: int = 0

    @classmethod
    def parse(cls, text: str) -> Holdout | None:
        """Raise UsageError if the option's text is neither a fraction nor a number of rows."""
        if not text:
            return None
        if re.fullmatch(r"[0-9]{1,9}", text) and 0 < int(text) <= _MAX_ROWS:
            return cls(rows=int(text))
        if re.fullmatch(r"0?\.[0-9]{1,17}|[0-9](\.[0-9]+)?[eE]-[0-9]{1,2}", text) and 0 < float(text) < 1:
            return cls(fraction=float(text))
        hint = ""
        if re.fullmatch(r"[0-9.]+ ?%", text) and text.count(".") < 2:
            hint = f"write holdout={float(text.rstrip('% ')) / 100:g}"
        elif re.fullmatch(r"[0-9]+\.0*", text) and int(float(text)):
            hint = f"write holdout={int(float(text))} for a number of rows"
        elif text.isdigit() and int(text) > _MAX_ROWS:
            hint = f"at most {_MAX_ROWS:,} rows of a task; a fraction has no limit"
        raise UsageError(
            "neither a fraction nor a number of rows", where="holdout", got=text, expected=_EXPECTED, hint=hint
        )


def held_out_path(path: str) -> str:
    """Return where the held-out rows of an output are, and what their task is called."""
    return HELD_OUT + path


def hash_of(source: Source, record: Any, rows: list[Row]) -> int:
    """Return the hash that all rows of a record have."""
    return hash64(_SALT, light(source.first_question(record, rows)))
