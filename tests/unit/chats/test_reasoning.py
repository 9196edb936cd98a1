"""Reasoning in a field, in parts, or between marks is taken out of an answer once."""

from collections import Counter
from typing import Any

import pytest

from pairmill.chats.message import ChatFault
from pairmill.chats.reasoning import Reasoning


@pytest.mark.parametrize(
    ("message", "text", "reasoning", "rest", "note"),
    [
        ({}, "4", "", "4", ""),
        ({"reasoning_content": " two and two "}, "4", "two and two", "4", ""),
        ({"reasoning": "r"}, "4", "r", "4", ""),
        ({"reasoning_content": None, "thinking": "t"}, "4", "t", "4", ""),
        ({"reasoning_content": " ", "reasoning": "r"}, "4", "r", "4", ""),
        ({"thinking": [{"type": "thinking", "thinking": "a"}, "b", {"text": "c"}]}, "4", "a\nb\nc", "4", ""),
        ({}, "<think>\nr\n</think>\n\n4", "r", "4", ""),
        ({}, "r\n</think>\n4", "r", "4", ""),
        ({}, "<think></think>4", "", "4", ""),
        ({}, "</think>\n4", "", "4", ""),
        ({}, "Close it with </think> then.", "", "Close it with </think> then.", ""),
        ({}, "<think>r", "", "<think>r", "reasoning_without_end"),
        ({}, "Write <think> and </think>.", "", "Write <think> and </think>.", ""),
        ({"reasoning": "a"}, "<think>b</think>4", "a", "4", "reasoning_twice"),
        ({"reasoning": "a"}, "<think>a</think>4", "a", "4", ""),
    ],
)
def test_reasoning_is_taken_out_of_an_answer(
    message: dict[str, Any], text: str, reasoning: str, rest: str, note: str
) -> None:
    notes: Counter[str] = Counter()
    assert Reasoning().split(message, text, notes) == (reasoning, rest)
    assert dict(notes) == ({note: 1} if note else {})
    dropped: Counter[str] = Counter()
    assert Reasoning(use="drop").split(message, text, dropped) == ("", rest)
    assert dropped["reasoning_dropped"] == (1 if reasoning else 0)


def test_fields_and_marks_are_what_the_source_says() -> None:
    own = Reasoning(("meta.why",), ("[[", "]]"))
    assert own.split({"meta": {"why": "r"}, "reasoning": "x"}, "4", Counter()) == ("r", "4")
    assert own.split({"meta": "text"}, "[[r]] <think>4", Counter()) == ("r", "<think>4")
    assert own.marked("r", "4") == "[[\nr\n]]\n\n4"
    assert own.split({}, own.marked("r", "4"), Counter()) == ("r", "4")


@pytest.mark.parametrize("value", [5, {"a": 1}, [1], [None], [{"text": 5}], True])
def test_reasoning_that_is_no_text_is_a_fault(value: Any) -> None:
    with pytest.raises(ChatFault) as error:
        Reasoning().split({"reasoning": value}, "4", Counter())
    assert error.value.reason == "reasoning_is_no_text"
