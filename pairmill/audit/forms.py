r"""The census: in which form answers give what was asked for, and which benchmarks' scorers read it.

A form is told by the text alone, without control tokens, by the first entry of :data:`FORMS` that fits.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pairmill.chats.message import parse_json
from pairmill.evaluation.benchmarks import REGISTRY
from pairmill.evaluation.scoring.numbers import strict
from pairmill.text import boxed

LEAST_ACCEPTED: Final = 0.2
"""The share of its family's answers, by tokens, that a benchmark's scorer should read."""
_CALL: Final = re.compile(r"<tool_call>|<function_calls>|^\s*[A-Za-z_][\w.]*\((?:\w+=[^\n]*)?\)\s*$")
_THINK: Final = re.compile(r"\s*<think(?:ing)?>")
_LETTER: Final = re.compile(r"\s*[(\[]?[A-Ja-j][)\].]?\s*")
_ANSWER: Final = re.compile(r"\b(?:the|final) answer(?: is|:)", re.IGNORECASE)
_AFTER_BOX: Final = 3
"""Characters that may follow the last box at the end: a full stop, a dollar."""
_BOX: Final = ("\\boxed", "\\fbox")


def _is_json(text: str) -> bool:
    bare = text.strip()
    if bare[:1] not in ("{", "["):
        return False
    try:
        parse_json(bare)
    except ValueError:
        return False
    return True


def _boxes(text: str) -> int:
    return sum(text.count(mark) for mark in _BOX) if boxed(text) is not None else 0


def _boxed_at_end(text: str) -> bool:
    after = text[max(map(text.rfind, _BOX)) :].rpartition("}")[2].strip()
    return _boxes(text) == 1 and len(after) <= _AFTER_BOX and not any(map(str.isalnum, after))


FORMS: Final[Mapping[str, Callable[[str], object]]] = {
    "tool call": _CALL.search,
    "thought first": _THINK.match,
    "JSON": _is_json,
    "boxed at the end": _boxed_at_end,
    "boxed elsewhere": _boxes,
    "code block": lambda text: text.count("```") >= 2,
    "letter": _LETTER.fullmatch,
    "bare number": lambda text: strict(text) is not None,
    "the answer is …": _ANSWER.search,
    "prose": lambda text: True,
}
"""By name, what tells whether an answer has the form."""


def form_of(text: str) -> str:
    """Return the form of an answer."""
    return next(name for name, fits in FORMS.items() if fits(text))


@dataclass(frozen=True)
class Acceptance:
    """What the scorer of a benchmark reads of the answers of its family.

    Attributes:
        sources: whose names say that they train what it asks.
        accepted: the share of their response tokens an epoch in whose answers the scorer reads one.
    """

    benchmark: str
    sources: list[str]
    accepted: float


def readers_of(text: str) -> list[str]:
    """Return the benchmarks whose scorers read an answer in a text."""
    return [name for name, benchmark in REGISTRY.items() if benchmark.accepts(text)]


def acceptances(counts: Mapping[str, Mapping[str, float]], tokens: Mapping[str, float]) -> Iterable[Acceptance]:
    """Yield what each benchmark with a family in the plan accepts of it.

    Args:
        counts: by source and benchmark, the share of the sampled response tokens that its scorer reads.
        tokens: of responses in the plan, by source.
    """
    for name, benchmark in REGISTRY.items():
        family = [source for source in counts if any(word in f"{source}_".lower() for word in benchmark.family)]
        whole = sum(tokens[source] for source in family)
        if whole:
            accepted = sum(tokens[source] * counts[source].get(name, 0.0) for source in family)
            yield Acceptance(name, family, accepted / whole)
