"""The keys of a description that say what becomes of rows that are longer than the context."""

from typing import Any, Final

from pairmill.chats.window import ANSWERS, DROP, HEAD_TAIL, KEPT, PROMPTS, WINDOW, LongRows, Window
from pairmill.errors import UsageError, did_you_mean
from pairmill.sources.language.chats import Chats
from pairmill.sources.language.description import Description
from pairmill.sources.parsed import shown

_EXAMPLE: Final = "as in {keep: [system, tools, first_user], reserve_answer: 512}"
_SIZES: Final = ("first_user_tokens", "reserve_answer")


def read_long_rows(file: Description, chats: Chats | None) -> LongRows | None:
    """Return what a description wants done with long rows; None if it says nothing.

    Raises:
        UsageError: an entry is not valid, or needs another one.
    """
    prompt, answer = file.choice("long_prompt", *PROMPTS), file.choice("long_answer", *ANSWERS)
    rendered = chats is not None and chats.template is not None
    if prompt == WINDOW and not rendered:
        hint = "write 'template: chatml', or the path of one, for a source with turns:"
        raise file.wrong("long_prompt", "windows need a chat template", got=WINDOW, hint=hint)
    if "window" in file and prompt != WINDOW:
        raise file.wrong("window", "needs 'long_prompt: window'")
    allowed = file.flag("cut_ok", default=False)
    if prompt == HEAD_TAIL and not rendered and not allowed:
        raise file.wrong(
            "long_prompt",
            "a pair loses the middle of its instruction only where that is allowed",
            got=HEAD_TAIL,
            hint="write 'cut_ok: true', unless the response follows from all of the instruction, as a summary does",
        )
    if allowed and (prompt != HEAD_TAIL or rendered):
        raise file.wrong("cut_ok", "needs 'long_prompt: head_tail', and a source of pairs")
    return LongRows(prompt, answer or DROP, _window(file)) if prompt or answer else None


def _window(file: Description) -> Window:
    values: dict[str, Any] = {}
    for name, value, place in file.mapping("window", _EXAMPLE):
        if name == "keep":
            values[name] = _kept(value, place)
        elif name in _SIZES:
            values[name] = _expect(isinstance(value, int) and not isinstance(value, bool) and value > 0, value, place)
        elif name == "whole_turns":
            values[name] = _expect(isinstance(value, bool), value, place, "true or false")
        elif name == "drop_first":
            _expect(value == "oldest_turns", value, place, "oldest_turns")
        else:
            known = ("keep", "whole_turns", "drop_first", *_SIZES)
            hint = did_you_mean(name, known)
            raise UsageError("unknown entry", where=place, got=name, expected=", ".join(known), hint=hint)
    return Window(**values)


def _kept(value: Any, place: str) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    for name in names:
        _expect(name in KEPT, name, place, f"some of {', '.join(KEPT)}")
    return tuple(name for name in KEPT if name in names)


def _expect(holds: bool, value: Any, place: str, expected: str = "a number of tokens") -> Any:
    if not holds:
        raise UsageError("not a value of this entry", where=place, got=shown(value), expected=expected)
    return value
