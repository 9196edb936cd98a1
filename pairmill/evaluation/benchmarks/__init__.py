"""Benchmarks by name. A file each; what they are made of is in ``question``, where their rows come from in ``data``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pairmill.errors import UsageError, did_you_mean
from pairmill.evaluation.benchmarks import data
from pairmill.evaluation.benchmarks.aime import Aime
from pairmill.evaluation.benchmarks.arc import Arc
from pairmill.evaluation.benchmarks.base import Base
from pairmill.evaluation.benchmarks.bfcl import Bfcl
from pairmill.evaluation.benchmarks.boolq import BoolQ
from pairmill.evaluation.benchmarks.drop import Drop
from pairmill.evaluation.benchmarks.gsm8k import Gsm8k
from pairmill.evaluation.benchmarks.hellaswag import HellaSwag
from pairmill.evaluation.benchmarks.ifeval import IfEval, IfEvalByPunkt
from pairmill.evaluation.benchmarks.math import Math
from pairmill.evaluation.benchmarks.mmlu import Mmlu
from pairmill.evaluation.benchmarks.mmlu_pro import MmluPro
from pairmill.evaluation.benchmarks.question import REFERENCE, Need, Question, Row, Rows, Verdict
from pairmill.evaluation.benchmarks.winogrande import Winogrande
from pairmill.redact import scrubbed

__all__ = [
    "REFERENCE",
    "REGISTRY",
    "VERSION",
    "Need",
    "Question",
    "Row",
    "Rows",
    "Verdict",
    "load",
    "named",
    "shown",
]

VERSION: Final = 3
"""Of all that prompts and verdicts follow from, besides rows and options."""

_ALL: tuple[Base, ...] = (
    Gsm8k(),
    Math(),
    Drop(),
    Mmlu(),
    MmluPro(),
    Arc(),
    HellaSwag(),
    Winogrande(),
    BoolQ(),
    Aime(),
    IfEval(),
    IfEvalByPunkt(),
    Bfcl(),
)
REGISTRY: Final[Mapping[str, Base]] = MappingProxyType({benchmark.name: benchmark for benchmark in _ALL})
"""With the options that they have by default; ``dataclasses.replace`` gives others."""


def named(name: str) -> Base:
    """Return the benchmark of a name. Raises UsageError with the nearest name."""
    if name not in REGISTRY:
        raise UsageError(
            "unknown benchmark",
            where="benchmarks",
            got=name,
            expected=", ".join(REGISTRY),
            hint=did_you_mean(name, REGISTRY),
        )
    return REGISTRY[name]


def load(name: str, place: str = "", revision: str = "") -> Rows:
    """Return the rows of a benchmark by split; see :func:`pairmill.evaluation.benchmarks.data.load`."""
    return data.load(named(name), place, revision)


def shown(place: str) -> str:
    """Return a place as reports show it: without credentials."""
    return scrubbed(place)
