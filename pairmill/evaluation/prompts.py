"""Prompts of benchmarks: a question with its choices, with shots before it."""

from collections.abc import Iterable, Sequence
from string import ascii_uppercase


def letters(count: int) -> tuple[str, ...]:
    """Return the letters of a number of choices, at most 26."""
    return tuple(ascii_uppercase[:count])


def choices_prompt(question: str, choices: Sequence[str]) -> str:
    """Return a question, a line for each choice, and ``Answer:``."""
    lines = [f"{letter}. {choice.strip()}" for letter, choice in zip(letters(len(choices)), choices, strict=True)]
    return "\n".join([question.strip(), *lines, "Answer:"])


def shot(prompt: str, letter: str) -> str:
    """Return a prompt with its answer."""
    return f"{prompt} {letter}"


def with_shots(shots: Iterable[str], prompt: str) -> str:
    """Shots, each followed by an empty line, and a prompt."""
    return "".join(f"{item}\n\n" for item in shots) + prompt


def options_prompt(question: str, options: Sequence[str]) -> str:
    """Return a question, ``Options:``, and a line for each of them, with its letter in round brackets."""
    lines = "".join(f"({letter}) {item}\n" for letter, item in zip(letters(len(options)), options, strict=True))
    return f"{question}\nOptions:\n{lines}"


def passage_prompt(passage: str, question: str) -> str:
    """Return a passage, ``Q:`` and ``A:``."""
    return f"{passage}\nQ: {question}\nA:"
