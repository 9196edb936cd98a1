"""Idioms that several sources share: texts of a record, answers in boxes, choices by letter, reasoning in tags."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from sources.source import Malformed

_THOUGHT, _THOUGHT_END = "<think>", "</think>"
_ABSENT = object()
# Whole words in folded text; that both begin with their first letter lets the search skip to it.
_PROOF_WORDS = re.compile(r"p(?<!\wp)rove\b|s(?<!\ws)how\s+that\b")


def text_of(record: Any, key: str) -> str | Malformed:
    """The text under ``key`` of a record, or why it is none."""
    if not isinstance(record, dict):
        return Malformed("not_an_object")
    value = record.get(key)
    if isinstance(value, str):
        return value
    if value is None:
        return Malformed(f"null_{key}" if key in record else f"missing_{key}")
    return Malformed(f"{key}_is_no_text")


def texts_of(record: Any, *keys: str) -> list[str] | Malformed:
    """The texts under all of ``keys``, or what is wrong with the first that is none."""
    found = []
    for key in keys:
        text = text_of(record, key)
        if isinstance(text, Malformed):
            return text
        found.append(text)
    return found


def text_or_null(record: Any, key: str) -> str | Malformed | None:
    """As ``text_of``, but a null is passed on: data_io writes it, and ``checked`` puts it aside by default."""
    if isinstance(record, dict):
        value = record.get(key, _ABSENT)
        if value is None or isinstance(value, str):
            return value
    return text_of(record, key)


def texts_or_nulls(record: Any, *keys: str) -> list[str | None] | Malformed:
    """As ``texts_of``, nulls passed on."""
    found = []
    for key in keys:
        text = text_or_null(record, key)
        if isinstance(text, Malformed):
            return text
        found.append(text)
    return found


def texts_with_nulls_as(word: str | None, record: Any, *keys: str) -> list[str] | Malformed:
    """As ``texts_of``, but a null is read as ``word``, as the reference's formatting does; None: no null is taken."""
    if word is None:
        return texts_of(record, *keys)
    texts = texts_or_nulls(record, *keys)
    return texts if isinstance(texts, Malformed) else [word if text is None else text for text in texts]


def list_of(record: Any, key: str) -> list[Any] | Malformed:
    """The list under ``key``, or why it is none."""
    if not isinstance(record, dict):
        return Malformed("not_an_object")
    value = record.get(key)
    if value is None:
        return Malformed(f"null_{key}" if key in record else f"missing_{key}")
    return value if isinstance(value, list) else Malformed(f"{key}_is_no_list")


def list_of_texts(record: Any, key: str) -> list[str] | Malformed:
    """The list of texts under ``key``, or why it is none."""
    value = list_of(record, key)
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, str):
                return Malformed(f"null_in_{key}" if item is None else f"{key}_holds_no_text")
    return value


def choice_letter(index: int) -> str:
    """``A`` for 0, ``B`` for 1, and so on by code point."""
    return chr(65 + index)


def choice_lines(choices: Iterable[str]) -> list[str]:
    """``A: first``, ``B: second``, …"""
    return [f"{choice_letter(index)}: {choice}" for index, choice in enumerate(choices)]


def letter_under(record: Any, key: str, choices: int | None) -> str | Malformed:
    """The letter of the choice whose number stands under ``key``.

    Args:
        record: the record.
        key: of an integer from 0.
        choices: how many there are. None, as in the reference: any number has a letter, ``@`` is that of -1.
    """
    if not isinstance(record, dict):
        return Malformed("not_an_object")
    index = record.get(key)
    if index is None:
        return Malformed(f"null_{key}" if key in record else f"missing_{key}")
    if not isinstance(index, int) or isinstance(index, bool):
        return Malformed(f"{key}_is_no_integer")
    lowest, end = (-65, sys.maxunicode - 64) if choices is None else (0, choices)
    return choice_letter(index) if lowest <= index < end else Malformed(f"{key}_out_of_range")


def boxed_answer(solution: str, *, unbraced: bool) -> str:
    r"""The content of the last ``\boxed{…}`` (or, if there is none, ``\fbox{…}``), stripped; empty if there is none.

    Braces are counted from there on, escaped ones too, as the reference does.

    Args:
        solution: the text.
        unbraced: what ``\boxed 5`` means. True: the answer is ``5``. False, as in the reference: the next group of
            braces, wherever it is.
    """
    for mark in (r"\boxed", r"\fbox"):
        start = solution.rfind(mark)
        if start >= 0:
            break
    else:
        return ""
    after = start + len(mark)
    if unbraced and not solution[after:].lstrip().startswith("{"):
        word = re.match(r"\s*([^\s{}$\\]+)", solution[after:])
        return word.group(1).rstrip(".,;:") if word else ""
    depth = 0
    opened = -1
    for place in range(start, len(solution)):
        character = solution[place]
        if character == "{":
            if opened < 0:
                opened = place
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return solution[opened + 1 : place].strip() if opened >= 0 else ""
    return ""


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


def asks_for_proof(question: str, *, words: bool) -> bool:
    """Whether a question says ``prove`` or ``show that``, in any case.

    Args:
        question: the text.
        words: whole words alone count; False, as in the reference: ``improve`` counts as well.
    """
    if words:
        folded = question.casefold()
        # Most questions hold neither, and that is found out ten times as fast.
        return ("prove" in folded or "show" in folded) and _PROOF_WORDS.search(folded) is not None
    lower = question.lower()
    return "prove" in lower or "show that" in lower
