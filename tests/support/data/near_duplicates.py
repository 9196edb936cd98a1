"""Rows with near duplicates of every kind, from a seed: copies, edits, templates, labels and documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pairmill.formats import rows

_CONSONANTS, _VOWELS = "bcdfghklmnprstvwz", "aeiou"


def words(count: int, seed: int = 1) -> list[str]:
    """Invented words of two to five syllables."""
    random = Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = range(random.randint(2, 5))
        found["".join(random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in syllables)] = None
    return list(found)


_WORDS = words(8_000)


@dataclass(frozen=True)
class Shares:
    """How many of a hundred rows are of a kind; the others are unique pairs."""

    copies: int = 3
    edits: int = 6
    templates: int = 10
    labels: int = 10
    documents: int = 5


def generated(count: int, seed: int = 0, shares: Shares = Shares(), length: int = 60) -> Iterator[rows.Row]:
    """Rows; ``length`` is the usual number of words of a field.

    Copies and edits are of rows up to 2,000 before. A template is one of a few texts with another word or number.
    """
    random = Random(seed)
    recent: list[rows.Row] = []
    shells = [_text(random, length) for _ in range(3)]
    for number in range(count):
        dice = random.randrange(100)
        old = random.choice(recent) if recent else None
        limits = [shares.copies, shares.edits, shares.templates, shares.labels, shares.documents]
        kind = next((at for at in range(5) if dice < sum(limits[: at + 1])), 5)
        if kind == 0 and old:
            row = old
        elif kind == 1 and old:
            row = rows.Row(old.condition, _edited(random, old.instruction or ""), _edited(random, old.response or ""))
        elif kind == 2:
            shell = shells[number % len(shells)].split()
            shell[len(shell) // 2] = random.choice(_WORDS)
            row = rows.Row("", " ".join(shell) + f" {random.randrange(2)}", random.choice(["yes", "no", "B"]))
        elif kind == 3:
            row = rows.Row("", _text(random, random.randint(5, length)), random.choice(["yes", "no", "maybe so"]))
        elif kind == 4:
            row = rows.Row("", "", _text(random, 2 * length))
        else:
            row = rows.Row(random.choice(["", "math"]), _text(random, length), _text(random, length))
        recent.append(row)
        del recent[:-2_000]
        yield row


def _text(random: Random, length: int) -> str:
    return " ".join(random.choices(_WORDS, k=max(1, length + random.randint(-length // 4, length // 4))))


def _edited(random: Random, text: str) -> str:
    """Four of a hundred words are others, or none."""
    found = [random.choice(_WORDS) if random.randrange(25) == 0 else word for word in text.split()]
    return " ".join(word for word in found if random.randrange(100))


def write(path: Path, some: Iterator[rows.Row] | list[rows.Row], group: int = 10_000) -> Path:
    """Write rows as a row file, Parquet in row groups of ``group``."""
    listed = list(some)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, rows.writer_for(path.name, file) as writer:
        for start in range(0, len(listed), group):
            writer.write(listed[start : start + group])
    return path
