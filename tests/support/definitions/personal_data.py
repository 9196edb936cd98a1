"""Personal data as section 8 of spec/curation.md and the module of it define it: slow, with regular expressions."""

from __future__ import annotations

import ipaddress
import re

Span = tuple[int, int, str]

_MAIL = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?\.[A-Za-z]{2,}(?![A-Za-z0-9])"
)
_GROUPS = re.compile(r"[0-9]+(?:[ -][0-9]+)*")
_COUNTRY = re.compile(r"(?<![A-Za-z0-9_+])\+[1-9]")
_ADDRESS = re.compile(r"(?<![A-Za-z0-9_.])([0-9]{1,3}(?:\.[0-9]{1,3}){3})(?=\.?(?![A-Za-z0-9_.]))")


def spans(text: str) -> list[Span]:
    """All of it from left to right, in characters; an earlier kind wins."""
    found: list[Span] = []
    for kind, some in (("EMAIL", _mails), ("CARD", _cards), ("PHONE", _phones), ("IP", _addresses)):
        before = list(found)
        for start, stop in some(text):
            if all(stop <= first or start >= end for first, end, _ in before):
                found.append((start, stop, kind))
    return sorted(found)


def _mails(text: str) -> list[tuple[int, int]]:
    return [one.span() for one in _MAIL.finditer(text)]


def _cards(text: str) -> list[tuple[int, int]]:
    found = []
    for run in _GROUPS.finditer(text):
        if _is_card(text, *run.span()):
            found.append(run.span())
        else:  # a card and other numbers
            groups = re.compile("[0-9]+").finditer(text, *run.span())
            found += [one.span() for one in groups if _is_card(text, *one.span())]
    return found


def _is_card(text: str, start: int, stop: int) -> bool:
    groups = re.split("[ -]", text[start:stop])
    digits = "".join(groups)
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return (
        13 <= len(digits) <= 19
        and len({*digits}) > 1
        and sum(sum(map(int, str(one))) for one in doubled) % 10 == 0
        and all(len(group) >= 4 for group in groups[:-1])
        # No part of a word, of a decimal number, or of a list of numbers without blanks.
        and not re.search(r"(?:[A-Za-z0-9_]|[0-9][.,])\Z", text[:start])
        and not re.match(r"[A-Za-z0-9_]|[.,][0-9]", text[stop:])
    )


def _phones(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for sign in _COUNTRY.finditer(text):
        start = sign.start()
        if found and start < found[-1][1]:
            continue
        ends = [stop for stop in range(start + 2, min(len(text), start + 64) + 1) if _is_number(text[start:stop])]
        # Whole groups of digits.
        ends = [stop for stop in ends if not text[stop : stop + 1].isdigit() or not text[stop : stop + 1].isascii()]
        if ends and not re.match("[A-Za-z0-9_]", text[ends[-1] :]):
            found.append((start, ends[-1]))
    return found


def _is_number(text: str) -> bool:
    """Groups of digits, some in parentheses but not the last, with at most one sign between two."""
    if not re.fullmatch(r"\+[0-9]+(?:[ .-]?\([0-9]+\)(?=[ .-]?[(0-9])|[ .-][0-9]+|(?<=\))[0-9]+)*", text):
        return False
    decimal = re.fullmatch(r"\+[0-9]+\.[0-9]+", text)
    return text[-1].isdigit() and not decimal and 8 <= sum(map(str.isdigit, text)) <= 15


def _addresses(text: str) -> list[tuple[int, int]]:
    found = []
    for one in _ADDRESS.finditer(text):
        try:
            address = ipaddress.IPv4Address(one[1])
        except ValueError:
            continue
        # Releases of Python differ in what they say of this block.
        if address.is_global and address not in ipaddress.IPv4Network("192.0.0.0/24"):
            found.append(one.span(1))
    return found
