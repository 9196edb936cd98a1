"""Rows that are longer than the context: what a source wants done, and how it is done in tokens.

A row whose prompt is too long is dropped, gets a window of its chat, or loses the middle of its longest question. A row
whose answer is too long, even after the shortest prompt, is dropped, loses its end, or becomes several rows.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from pairmill.chats.encode import EncodedRow
from pairmill.chats.render import Chat
from pairmill.chats.window import (
    AS_IT_IS,
    CUT,
    HEAD_TAIL,
    SPLIT,
    WINDOW,
    Fitted,
    LongRows,
    Measure,
    cut_middle,
    fit,
    keep_least,
)

LONG_PROMPT, LONG_ANSWER = "long_prompt", "long_answer"
"""Reasons of dropped rows."""
WINDOWED, PROMPT_CUT, ANSWER_CUT, ANSWER_SPLIT = "windowed", "prompt_cut", "answer_cut", "answer_split"
"""Notes of rows that were made to fit."""

Encode: TypeAlias = Callable[[Chat], "EncodedRow | str"]
"""Ids of a chat, or why it has none."""


class FittedRows(NamedTuple):
    """What became of a long row.

    Args:
        rows: those in its place; several if its answer was split, none if it is dropped.
        reason: why it is dropped, or how it was made to fit; empty = it stays as it is.
    """

    rows: tuple[EncodedRow, ...]
    reason: str


def fit_row(
    row: EncodedRow,
    chat: Chat,
    limit: int,
    settings: LongRows,
    encode: Encode,
    count: Callable[[str], int],
    estimate: Measure | None = None,
) -> FittedRows:
    """Make a row that is too long fit.

    Args:
        row: its ids, more than ``limit``.
        chat: what they were rendered from.
        limit: tokens of prompt and response together.
        settings: what the source wants.
        encode: renders and encodes a chat.
        count: tokens of a text.
        estimate: a faster measure, which may be wrong for few chats: what it finds is encoded, and looked for again by
            ``encode`` if it does not fit.
    """

    def measure(other: Chat) -> tuple[int, int] | None:
        made = encode(other)
        return None if isinstance(made, str) else (made.prompt, len(made.ids) - made.prompt)

    def shorten(measured: Measure) -> Fitted | None:
        if settings.prompt == WINDOW:
            return fit(chat, limit, settings.window, measured, count)
        return cut_middle(chat, limit, measured) if settings.prompt == HEAD_TAIL else None

    def encoded(fitted: Fitted | None) -> EncodedRow | None:
        made = encode(fitted.chat) if fitted else None
        return None if isinstance(made, str) else made

    fitted = shorten(estimate or measure)
    made = encoded(fitted)
    if estimate and fitted and (made is None or len(made.ids) > limit):
        made = encoded(shorten(measure))
    if made is not None:
        return FittedRows((made,), WINDOWED if settings.prompt == WINDOW else PROMPT_CUT)
    shortest = encoded(keep_least(chat, settings.window, count)) if settings.prompt == WINDOW else row
    if shortest is None or shortest.prompt >= limit:
        return FittedRows((), LONG_PROMPT) if settings.prompt else FittedRows((row,), AS_IT_IS)
    if settings.answer == CUT:
        return FittedRows((_pieces(shortest, limit)[0],), ANSWER_CUT)
    if settings.answer == SPLIT:
        return FittedRows(tuple(_pieces(shortest, limit)), ANSWER_SPLIT)
    return FittedRows((), LONG_ANSWER)


def _pieces(row: EncodedRow, limit: int) -> list[EncodedRow]:
    """Return a row for each piece of the answer, with the whole prompt each."""
    room = limit - row.prompt
    ends = range(row.prompt, len(row.ids), room)
    prompt = row.ids[: row.prompt]
    return [row._replace(ids=np.concatenate([prompt, row.ids[at : at + room]])) for at in ends]
