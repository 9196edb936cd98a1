"""What a benchmark is: rows make questions, texts of a question make a verdict, verdicts make figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairmill.engine.manifest import content_key

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
"""Rows of a data set by split."""
REFERENCE = "reference"
"""The name of the reference's verdict in :attr:`Verdict.extra`."""


@dataclass(frozen=True)
class Question:
    """A question of a benchmark.

    Args:
        benchmark: its name in the registry.
        id: of the row: its split and number.
        group: subject or category; empty if the benchmark has none.
        prompt: what the model gets, with the shots before it.
        condition: tags of the condition, joined by commas.
        gold: the right answer, JSON-like.
        choices: letters of the choices; empty if it is not multiple choice.
        digest: over prompt and condition.
        text: the question alone, without shots and choices.
        until: an answer is cut before the first of these.
        ending: not an answer is asked for, but how likely this one is, which begins as the harness writes it.
        max_tokens: most tokens of the answer, if it asks for fewer than the settings do; 0 = those of the settings.
        messages: of a chat, as OpenAI's protocol has them; empty = the prompt alone, as a message of the user.
        tools: that a chat offers, as OpenAI's protocol has them.
    """

    benchmark: str
    id: str
    group: str
    prompt: str
    condition: str = ""
    gold: Any = None
    choices: tuple[str, ...] = ()
    digest: str = ""
    text: str = ""
    until: tuple[str, ...] = ()
    ending: str | None = None
    max_tokens: int = 0
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the texts of a question are worth.

    Args:
        extracted: the answer that was read; None: none was found.
        correct: 0 to 1.
        invalid: no answer was found in the form that the benchmark asks for.
        extra: further verdicts by name. ``reference`` is that of the reference's scoring, ``reference_invalid`` what
            that calls invalid. Numbers of 0 to 1, or counts.
    """

    extracted: str | None
    correct: float
    invalid: bool
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Need:
    """Rows that a benchmark needs.

    Args:
        split: of the data set.
        columns: that every row has.
        first: how many rows; 0 = all.
        optional: the questions can be made without them.
    """

    split: str
    columns: tuple[str, ...]
    first: int = 0
    optional: bool = False


def digest_of(prompt: str, condition: str, *chat: object) -> str:
    """Return the digest of a prompt under a condition; of a chat, with its messages and tools."""
    return content_key(prompt, condition, *chat)
