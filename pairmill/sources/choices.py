"""Choices by letter, as questions with several answers name them."""

from collections.abc import Iterable


def choice_letter(index: int) -> str:
    """Return ``A`` for 0, ``B`` for 1, and so on by code point."""
    return chr(65 + index)


def choice_lines(choices: Iterable[str]) -> list[str]:
    """Return ``A: first``, ``B: second``, …"""
    return [f"{choice_letter(index)}: {choice}" for index, choice in enumerate(choices)]
