"""Long rows: every one fits by the plain recipe's count, targets stay whole, and windows are those of brute force."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from pairmill.chats.encode import ChatEncoder, EncodedRow
from pairmill.chats.long_rows import (
    ANSWER_CUT,
    ANSWER_SPLIT,
    LONG_ANSWER,
    LONG_PROMPT,
    PROMPT_CUT,
    WINDOWED,
    FittedRows,
    fit_row,
)
from pairmill.chats.render import WHOLE, Chat, PrefixMismatch, render
from pairmill.chats.template import ChatTemplate
from pairmill.chats.window import CUT, FIRST_USER, HEAD_TAIL, KEPT, SPLIT, WINDOW, LongRows, Window
from pairmill.encoder import Encoder
from tests.support.definitions.chats import FIVE, Recipe
from tests.support.helpers import draws
from tests.support.tokenizers import shapes

TOKENIZER = shapes.shaped("qwen")
PLAIN = Encoder.from_json(TOKENIZER)
WORDS = ["the", "cat", "what", "is", "seven", "12345", "é", "日本語", "a", "<", "b", "|", "!", "{}", "\\", "😀"]
LIMIT = 120


class Renderer:
    """One template, by our encoder and by the plain recipe."""

    def __init__(self, name: str) -> None:
        self.template = ChatTemplate(FIVE[name], "here")
        self.encoder = ChatEncoder(TOKENIZER, "here", self.template)
        self.recipe = Recipe(FIVE[name], TOKENIZER)

    def encode(self, chat: Chat) -> EncodedRow | str:
        try:
            prompt, rest = render(self.template, chat)
        except PrefixMismatch:
            return "mismatch"
        (row,) = self.encoder.encode([prompt], [rest], [chat.to_json()], WHOLE, 1)
        return row

    def size(self, chat: Chat) -> int | None:
        """Tokens by the plain recipe; None if the row would be dropped."""
        data = {"messages": list(chat.messages), **({"tools": chat.tools} if chat.tools else {})}
        ids = self.recipe.encode(*self.recipe.render(data))
        return None if ids is None else len(ids[0]) + len(ids[1])

    def count(self, text: str) -> int:
        return len(PLAIN.encode([text]).ids)

    def fit(self, chat: Chat, settings: LongRows, limit: int = LIMIT) -> FittedRows:
        row = self.encode(chat)
        assert not isinstance(row, str)
        assert len(row.ids) > limit
        return fit_row(row, chat, limit, settings, self.encode, self.count)


def text(draw: random.Random, most: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, most)))


def trajectory(draw: random.Random) -> Chat:
    messages: list[dict[str, Any]] = []
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": text(draw, 8)})
    about = {"name": "find", "description": text(draw, 5), "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": about}] if draw.random() < 0.5 else None
    for turn in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": text(draw, 20)})
        for step in range(draw.randint(0, 3) if tools else 0):
            name = f"{turn}.{step}"
            call = {"id": name, "type": "function", "function": {"name": "find", "arguments": {"q": text(draw, 3)}}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "content": text(draw, 10), "tool_call_id": name})
        messages.append({"role": "assistant", "content": text(draw, 20)})
    return Chat(messages, tools)


def windows(chat: Chat) -> list[Chat]:
    """All windows, from the longest: whole turns leave first, then groups of the last turn."""
    prompt, answer = chat.messages[:-1], chat.messages[-1]
    system = [item for item in prompt if item["role"] == "system"]
    rest = prompt[len(system) :]
    starts = [at for at, item in enumerate(rest) if item["role"] == "user"]
    last = starts[-1]
    groups = [at for at in range(last + 1, len(rest)) if rest[at]["role"] == "assistant"]
    suffixes = [rest[at:] for at in starts[1:]] + [[rest[last], *rest[at:]] for at in groups[1:]] + [[rest[last]]]
    return [Chat([*system, *some, answer], chat.tools) for some in suffixes]


@pytest.mark.parametrize("name", FIVE)
def test_windows_fit_and_are_those_of_brute_force(name: str) -> None:
    renderer, draw = Renderer(name), random.Random(5)
    settings = LongRows(WINDOW, window=Window(tuple(item for item in KEPT if item != FIRST_USER)))
    kinds: Counter[str] = Counter()
    for _ in range(draws(100)):
        chat = trajectory(draw)
        row = renderer.encode(chat)
        if isinstance(row, str) or len(row.ids) <= LIMIT:
            continue
        got = renderer.fit(chat, settings)
        sizes = [renderer.size(window) for window in windows(chat)]
        fitting = [at for at, size in enumerate(sizes) if size is not None and size <= LIMIT]
        kinds[got.reason] += 1
        if not fitting:
            assert got.rows == ()
            assert got.reason in (LONG_PROMPT, LONG_ANSWER)
            continue
        (row,) = got.rows
        expected = renderer.encode(windows(chat)[fitting[0]])
        assert not isinstance(expected, str)
        assert got.reason == WINDOWED
        assert row.ids.tolist() == expected.ids.tolist()
        assert len(row.ids) <= LIMIT
    assert kinds[WINDOWED] > draws(20)


@pytest.mark.parametrize(("answer", "note"), [(CUT, ANSWER_CUT), (SPLIT, ANSWER_SPLIT)])
def test_an_answer_is_cut_or_becomes_rows_with_the_prompt_each(answer: str, note: str) -> None:
    renderer = Renderer("chatml")
    chat = Chat([{"role": "user", "content": "a b c"}, {"role": "assistant", "content": " ".join(WORDS * 12)}])
    row = renderer.encode(chat)
    assert not isinstance(row, str)
    got = renderer.fit(chat, LongRows(WINDOW, answer))
    assert got.reason == note
    assert all(len(item.ids) <= LIMIT and item.prompt == row.prompt for item in got.rows)
    assert all(item.ids[: row.prompt].tolist() == row.ids[: row.prompt].tolist() for item in got.rows)
    answers = [number for item in got.rows for number in item.ids[row.prompt :].tolist()]
    whole = row.ids[row.prompt :].tolist()
    assert answers == (whole if answer == SPLIT else whole[: LIMIT - row.prompt])
    assert (len(got.rows) > 1) == (answer == SPLIT)


def test_a_long_answer_is_dropped_unless_the_source_says_otherwise() -> None:
    chat = Chat([{"role": "user", "content": "a b c"}, {"role": "assistant", "content": " ".join(WORDS * 12)}])
    assert Renderer("chatml").fit(chat, LongRows(WINDOW)) == FittedRows((), LONG_ANSWER)


def test_a_question_alone_that_is_too_long_is_dropped_or_loses_its_middle() -> None:
    renderer = Renderer("chatml")
    chat = Chat([{"role": "user", "content": " ".join(WORDS * 20)}, {"role": "assistant", "content": "yes"}])
    assert renderer.fit(chat, LongRows(WINDOW)) == FittedRows((), LONG_PROMPT)
    got = renderer.fit(chat, LongRows(HEAD_TAIL))
    assert got.reason == PROMPT_CUT
    (row,) = got.rows
    assert LIMIT - 8 <= len(row.ids) <= LIMIT
    whole = renderer.encode(chat)
    assert not isinstance(whole, str)
    assert row.ids[:20].tolist() == whole.ids[:20].tolist()
    assert row.ids[-20:].tolist() == whole.ids[-20:].tolist()


def test_settings_survive_a_manifest() -> None:
    settings = LongRows(WINDOW, SPLIT, Window((FIRST_USER,), False, 7, 9))
    assert LongRows.from_data(settings.to_data()) == settings
