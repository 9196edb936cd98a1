"""Windows: a chat that is longer than the context becomes one that fits, by whole turns.

The rule is that of the Danish team's renderer (practice of 2026): a chat of several turns keeps the longest suffix of
complete turns, and the trace of an agent keeps its request and the newest complete groups of calls and results. The
answer and the declarations of tools are never clipped. Lengths are those of rendered tokens, so what is kept fits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self, TypeAlias

from pairmill.chats.message import Message
from pairmill.chats.render import Chat

SYSTEM, TOOLS, FIRST_USER = "system", "tools", "first_user"
KEPT: Final = (SYSTEM, TOOLS, FIRST_USER)
AS_IT_IS, DROP, WINDOW, HEAD_TAIL, CUT, SPLIT = "", "drop", "window", "head_tail", "cut", "split"
PROMPTS: Final = (DROP, WINDOW, HEAD_TAIL)
ANSWERS: Final = (DROP, CUT, SPLIT)

Measure: TypeAlias = Callable[[Chat], tuple[int, int] | None]
"""Tokens of a chat's prompt and of its answer; None if it cannot be rendered."""


@dataclass(frozen=True)
class Window:
    """What of a long chat is kept.

    Args:
        keep: what no window leaves out: the system messages, the declarations of tools, the first message of the user.
            The request of the answer's own turn is always kept.
        whole_turns: leave out whole turns, from one question to the next; else single questions and groups.
        first_user_tokens: the most tokens of the first user message in a window; 0 = all.
        reserve_answer: tokens that the prompt leaves free even if the answer is shorter.
    """

    keep: tuple[str, ...] = KEPT
    whole_turns: bool = True
    first_user_tokens: int = 0
    reserve_answer: int = 0


@dataclass(frozen=True)
class LongRows:
    """What a source wants done with rows that are too long.

    Args:
        prompt: ``drop``, ``window`` or ``head_tail``; empty = such rows stay as they are, for sample to decide.
        answer: ``drop``, ``cut`` or ``split``.
        window: what of a chat is kept.
    """

    prompt: str = AS_IT_IS
    answer: str = DROP
    window: Window = field(default_factory=Window)

    @classmethod
    def from_data(cls, values: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_data` wrote."""
        window = {**values["window"], "keep": tuple(values["window"]["keep"])}
        return cls(values["prompt"], values["answer"], Window(**window))

    def to_data(self) -> dict[str, Any]:
        """Return it as a manifest keeps it."""
        return asdict(self)


class Fitted(NamedTuple):
    """A chat that fits.

    Args:
        chat: what is left of it.
        left_out: messages that are not in the window.
        clipped: whether a message of the user was shortened.
    """

    chat: Chat
    left_out: int
    clipped: bool


def fit(chat: Chat, limit: int, window: Window, measure: Measure, count: Callable[[str], int]) -> Fitted | None:
    """Return the longest window of a chat that is too long; None if none fits.

    Args:
        chat: too long a one.
        limit: tokens of prompt and answer together.
        window: what is kept.
        measure: tokens of a chat; a chat with fewer turns must not be longer.
        count: tokens of a text.
    """
    keeps = [window.keep, tuple(name for name in window.keep if name != FIRST_USER)]
    # A template may refuse two messages of the user in a row: then the first goes with its turn.
    for keep in dict.fromkeys(keeps):
        windows = _Windows(chat, keep, window, count)
        low, high = 0, len(windows.droppable) + 1
        while low < high:
            middle = (low + high) // 2
            if middle <= len(windows.droppable) and not _fits(windows.without(middle), limit, window, measure):
                low = middle + 1
            else:
                high = middle
        if low <= len(windows.droppable):
            return windows.without(low)
    return None


def keep_least(chat: Chat, window: Window, count: Callable[[str], int]) -> Fitted:
    """Return the window of a chat with nothing but what is always kept."""
    windows = _Windows(chat, window.keep, window, count)
    return windows.without(len(windows.droppable))


def cut_middle(chat: Chat, limit: int, measure: Measure) -> Fitted | None:
    """Return a chat whose longest message of the user lost its middle, so that it fits; None if that is not enough.

    Prompts with tools are never cut. Of a text of n characters, the first half of k and the last half of k stay, with
    the largest k that is found by bisection.
    """
    messages = chat.messages
    users = [at for at, message in enumerate(messages[:-1]) if message["role"] == "user"]
    if chat.tools or not users or any(item["role"] == "tool" or item.get("tool_calls") for item in messages):
        return None
    longest = max(users, key=lambda at: len(messages[at]["content"] or ""))

    def cut(size: int) -> Fitted:
        shorter = dict(messages[longest], content=halves(messages[longest]["content"], size))
        return Fitted(Chat([*messages[:longest], shorter, *messages[longest + 1 :]]), 0, True)

    size = largest(len(messages[longest]["content"] or "") - 1, lambda size: _fits(cut(size), limit, Window(), measure))
    return cut(size) if size else None


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from 1 to ``most`` that fits, by bisection; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def halves(text: str, size: int) -> str:
    """Return the beginning and the end of a text, ``size`` characters together."""
    return text[: (size + 1) // 2] + text[len(text) - size // 2 :]


def _fits(chat: Fitted, limit: int, window: Window, measure: Measure) -> bool:
    sizes = measure(chat.chat)
    return sizes is not None and sizes[0] + max(sizes[1], window.reserve_answer) <= limit


class _Windows:
    """The windows of a chat, from the longest to the shortest.

    Attributes:
        droppable: groups of messages, by index, in the order in which they are left out.
    """

    def __init__(self, chat: Chat, keep: Sequence[str], window: Window, count: Callable[[str], int]) -> None:
        messages = chat.messages
        self._messages = list(messages)
        self._tools = chat.tools if TOOLS in keep else None
        before = range(len(messages) - 1)
        systems = {at for at in before if messages[at]["role"] == "system"}
        first = next((at for at in before if messages[at]["role"] == "user"), -1)
        self._clipped = False
        if first >= 0 and window.first_user_tokens:
            text = messages[first]["content"] or ""
            self._messages[first] = dict(messages[first], content=clip(text, window.first_user_tokens, count))
            self._clipped = self._messages[first]["content"] != text
        self._first = first
        always = {first} if FIRST_USER in keep else set()
        self._gone = set() if SYSTEM in keep else systems
        turns = list(_split_turns([at for at in before if at not in systems], messages))
        *old, last = turns or [[]]
        request, *groups = list(_split_groups(last, messages)) or [[]]
        if request and messages[request[0]]["role"] != "user":
            groups.insert(0, request)
        if not window.whole_turns:
            old = [group for turn in old for group in _split_groups(turn, messages)]
        units = [[at for at in unit if at not in always] for unit in (*old, *groups)]
        self.droppable = [unit for unit in units if unit]

    def without(self, count: int) -> Fitted:
        """Return the window without the first ``count`` droppable groups."""
        gone = self._gone.union(*self.droppable[:count])
        kept = [at for at in range(len(self._messages)) if at not in gone]
        clipped = self._clipped and self._first not in gone
        return Fitted(Chat([self._messages[at] for at in kept], self._tools), len(gone), clipped)


def clip(text: str, tokens: int, count: Callable[[str], int]) -> str:
    """Return the beginning of a text that has at most this many tokens."""
    return text if count(text) <= tokens else text[: largest(len(text), lambda size: count(text[:size]) <= tokens)]


def _split_turns(places: Sequence[int], messages: Sequence[Message]) -> Iterator[list[int]]:
    """Yield the turns, each from the user's messages to before the next ones."""
    turn: list[int] = []
    for at in places:
        begins = messages[at]["role"] == "user" and turn and messages[turn[-1]]["role"] != "user"
        if begins:
            yield turn
            turn = []
        turn.append(at)
    if turn:
        yield turn


def _split_groups(places: Sequence[int], messages: Sequence[Message]) -> Iterator[list[int]]:
    """Yield the user's messages of a turn, then each message of the assistant with the results that follow it."""
    group: list[int] = []
    for at in places:
        if group and messages[at]["role"] == "assistant":
            yield group
            group = []
        group.append(at)
    if group:
        yield group
