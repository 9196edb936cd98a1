"""Idioms that several sources share: texts of a record, answers in boxes, choices by letter, reasoning in tags.

Functions that take a record raise MalformedRecord if it does not have what they look for.
"""

import re
import sys
from datetime import date, datetime
from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.choices import choice_letter
from pairmill.sources.parsed import Drop, MalformedRecord
from pairmill.sources.quirks import Quirks
from pairmill.text import boxed

_THOUGHT, _THOUGHT_END = "<think>", "</think>"
# Whole words in folded text. Each begins with its first letter, so that the search can skip to it.
_PROOF_WORDS = re.compile(r"p(?<!\wp)rove\b|s(?<!\ws)how\s+that\b")


def text_of(record: Any, key: str) -> str:
    """Return the text under ``key`` of a record. Raises MalformedRecord if there is none."""
    value = _value_of(record, key)
    if isinstance(value, str):
        return value
    raise MalformedRecord(f"null_{key}" if value is None else f"{key}_is_no_text")


def texts_of(record: Any, *keys: str, null: str | None = None) -> list[str]:
    """Return the texts under all of ``keys``. ``null``: the word that a null is read as; None: a null is malformed."""
    if type(record) is dict:
        # Most records: a call for each text takes several times as long.
        values = [record.get(key) for key in keys]
        if all(type(value) is str for value in values):
            return values  # type: ignore[return-value]
    if null is None:
        return [text_of(record, key) for key in keys]
    return [null if text is None else text for text in texts_or_nulls(record, *keys)]


def text_or_null(record: Any, key: str) -> str | None:
    """As ``text_of``, but a null is passed on: ``checked`` decides it by profile."""
    value = _value_of(record, key)
    if value is None or isinstance(value, str):
        return value
    raise MalformedRecord(f"{key}_is_no_text")


def texts_or_nulls(record: Any, *keys: str) -> list[str | None]:
    """As ``texts_of``, but nulls are passed on."""
    return [text_or_null(record, key) for key in keys]


def list_of(record: Any, key: str) -> list[Any]:
    """Return the list under ``key``."""
    value = _value_of(record, key)
    if isinstance(value, list):
        return value
    raise MalformedRecord(f"null_{key}" if value is None else f"{key}_is_no_list")


def list_of_texts(record: Any, key: str) -> list[str]:
    """Return the list of texts under ``key``."""
    value = list_of(record, key)
    for item in value:
        if not isinstance(item, str):
            raise MalformedRecord(f"null_in_{key}" if item is None else f"{key}_holds_no_text")
    return value


def _value_of(record: Any, key: str) -> Any:
    if not isinstance(record, dict):
        raise MalformedRecord("not_an_object")
    try:
        return record[key]
    except KeyError:
        raise MalformedRecord(f"missing_{key}") from None


def time_of(value: Any) -> date | str | None:
    """Return a date or time, as it is or as ISO 8601 writes it; None in place of what is neither."""
    if isinstance(value, date):  # a datetime is one as well
        return value
    try:
        datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
    except ValueError:
        return None
    return str(value).strip()


def letter_under(record: Any, key: str, choices: int | None) -> str:
    """Return the letter of the choice whose number is under ``key``.

    Args:
        key: of an integer from 0.
        choices: how many there are. None, as in the reference: any number has a letter, ``@`` is that of -1.
    """
    index = _value_of(record, key)
    if not isinstance(index, int) or isinstance(index, bool):
        raise MalformedRecord(f"null_{key}" if index is None else f"{key}_is_no_integer")
    lowest, end = (-65, sys.maxunicode - 64) if choices is None else (0, choices)
    if not lowest <= index < end:
        raise MalformedRecord(f"{key}_out_of_range")
    return choice_letter(index)


def boxed_answer(solution: str, *, unbraced: bool) -> str:
    r"""Return the content of the last ``\boxed{…}`` (without one, of the last ``\fbox{…}``), stripped; empty without
    either.

    Braces are counted from there on, escaped ones too, as the reference does.

    Args:
        solution: the text.
        unbraced: whether ``\boxed 5`` means ``5``. The reference takes the next group of braces, wherever it is.
    """
    mark = r"\boxed" if r"\boxed" in solution else r"\fbox"
    _, there, after = solution.rpartition(mark)
    if there and unbraced and not after.lstrip().startswith("{"):
        word = re.match(r"\s*([^\s{}$\\]+)", after)
        return word.group(1).rstrip(".,;:") if word else ""
    return boxed(solution) or ""


def without_thoughts(text: str) -> str:
    """``text`` without every shortest ``<think>…</think>``."""
    # str.find is ten times as fast as a regular expression's lazy dot, and thoughts are most of a text.
    kept = []
    place = 0
    while (start := text.find(_THOUGHT, place)) >= 0:
        end = text.find(_THOUGHT_END, start + len(_THOUGHT))
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(_THOUGHT_END)
    return "".join([*kept, text[place:]]) if kept else text


def answer_row(condition: str, question: str | None, text: str, quirks: Quirks) -> Row | Drop:
    """Return a row whose response is what a model said beside its reasoning."""
    answer = without_thoughts(text)
    if _THOUGHT in answer and not quirks.keep_unclosed_thoughts:
        return Drop("unclosed_thought")
    return Row(condition, question, answer if quirks.keep_space_after_thoughts else answer.strip())


def asks_for_proof(question: str, *, words: bool) -> bool:
    """Return whether a question says ``prove`` or ``show that``, in any case.

    Args:
        question: the text.
        words: whether only whole words count. In the reference ``improve`` counts too.
    """
    if words:
        folded = question.casefold()
        # Most questions contain neither, and this test is ten times as fast.
        return ("prove" in folded or "show" in folded) and _PROOF_WORDS.search(folded) is not None
    lower = question.lower()
    return "prove" in lower or "show that" in lower
