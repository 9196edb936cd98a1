"""Windows equal brute force: the longest suffix of whole turns that fits."""

from __future__ import annotations

import itertools
import random
from typing import Any

from pairmill.chats.render import Chat
from pairmill.chats.window import FIRST_USER, KEPT, Window, cut_middle, fit


def message(role: str, size: int, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": " ".join(["x"] * size), **more}


def count(text: str) -> int:
    return len(text.split())


def measure(chat: Chat) -> tuple[int, int]:
    """Three tokens a message, and ten a tool."""
    sizes = [3 + count(item["content"]) for item in chat.messages]
    return sum(sizes[:-1]) + 10 * len(chat.tools or ()), sizes[-1]


def make_chat(random: random.Random) -> list[dict[str, Any]]:
    chat = [message("system", random.randint(0, 9))] * random.randint(0, 1)
    for _ in range(random.randint(1, 5)):
        chat += [message("user", random.randint(0, 30))] * random.randint(1, 2)
        for _ in range(random.randint(0, 3)):
            chat.append(message("assistant", random.randint(0, 20)))
            chat += [message("tool", random.randint(0, 20))] * random.randint(0, 2)
        if chat[-1]["role"] == "user":
            chat.append(message("assistant", random.randint(1, 20)))
    while chat[-1]["role"] != "assistant":
        chat.append(message("assistant", 4))
    return [dict(item, number=number) for number, item in enumerate(chat)]


def longest_suffix(chat: list[dict[str, Any]], limit: int, tools: list[Any]) -> list[int] | None:
    """Try each border of turns, then each border of groups of the last turn, from the longest."""
    prompt, answer = chat[:-1], chat[-1]
    system = [item for item in prompt if item["role"] == "system"]
    rest = [item for item in prompt if item["role"] != "system"]
    starts = [
        at for at, item in enumerate(rest) if item["role"] == "user" and (at == 0 or rest[at - 1]["role"] != "user")
    ]
    last = starts[-1]
    groups = [at for at in range(last, len(rest)) if rest[at]["role"] == "assistant"]
    request = list(itertools.takewhile(lambda item: item["role"] == "user", rest[last:]))
    tries = [rest[at:] for at in starts] + [request + rest[at:] for at in groups[1:]] + [request]
    for some in tries:
        whole = [*system, *some, answer]
        if sum(measure(Chat(whole, tools))) <= limit:
            return [item["number"] for item in whole]
    return None


def test_a_window_is_the_longest_suffix_of_whole_turns_that_fits() -> None:
    for seed in range(300):
        source = random.Random(seed)
        chat = make_chat(source)
        tools: list[Any] = [{}] * source.randint(0, 2)
        limit = source.randint(10, 150)
        window = Window(tuple(name for name in KEPT if name != FIRST_USER))
        got = fit(Chat(chat, tools), limit, window, measure, count)
        expected = longest_suffix(chat, limit, tools)
        assert (got and [item["number"] for item in got.chat.messages]) == expected, seed
        if got:
            assert got.left_out == len(chat) - len(got.chat.messages)
            assert got.chat.tools == tools


def test_an_agents_trace_keeps_its_request_and_the_newest_groups() -> None:
    chat = [message("system", 2), message("user", 5)]
    for _ in range(4):
        chat += [message("assistant", 2), message("tool", 6)]
    chat.append(message("assistant", 3))
    whole = sum(measure(Chat(chat)))
    got = fit(Chat(chat), whole - 1, Window(), measure, count)
    assert got is not None
    assert list(got.chat.messages) == [*chat[:2], *chat[4:]]
    assert fit(Chat(chat), sum(measure(Chat([*chat[:2], chat[-1]]))) - 1, Window(), measure, count) is None


def test_the_first_message_of_the_user_is_kept_and_clipped_in_tokens() -> None:
    chat = [message("user", 50), message("assistant", 9), message("user", 5), message("assistant", 5)]
    got = fit(Chat(chat), 30, Window(first_user_tokens=8), measure, count)
    assert got is not None
    assert got.clipped
    assert [count(item["content"]) for item in got.chat.messages] == [8, 5, 5]


def test_a_template_that_refuses_two_questions_in_a_row_gets_none() -> None:
    def strict(chat: Chat) -> tuple[int, int] | None:
        roles = [item["role"] for item in chat.messages]
        return None if ("user", "user") in itertools.pairwise(roles) else measure(chat)

    chat = [message("user", 5), message("assistant", 50), message("user", 5), message("assistant", 5)]
    got = fit(Chat(chat), 30, Window(), strict, count)
    assert got is not None
    assert list(got.chat.messages) == chat[2:]


def test_room_for_an_answer_is_left_although_this_one_is_short() -> None:
    chat = [message("user", 5), message("assistant", 5), message("user", 5), message("assistant", 1)]
    assert sum(measure(Chat(chat))) == 28
    got = fit(Chat(chat), 28, Window((), reserve_answer=10), measure, count)
    assert got is not None
    assert list(got.chat.messages) == chat[2:]


def test_system_messages_and_tools_that_are_not_kept_are_left_out() -> None:
    chat = [message("system", 50), message("user", 5), message("assistant", 5)]
    got = fit(Chat(chat, [{}]), 20, Window((FIRST_USER,)), measure, count)
    assert got is not None
    assert (list(got.chat.messages), got.chat.tools) == (chat[1:], None)


def test_a_prompt_without_its_middle_fits_and_keeps_both_ends() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 99)))
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}]

    def sizes(chat: Chat) -> tuple[int, int]:
        return len(chat.messages[0]["content"]), 2

    got = cut_middle(Chat(chat), 43, sizes)
    assert got is not None
    assert got.chat.messages[0]["content"] == text[:21] + text[-20:]
    assert cut_middle(Chat(chat, [{}]), 43, sizes) is None
    assert cut_middle(Chat(chat), 2, sizes) is None
