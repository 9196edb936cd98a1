"""The metrics of curate's heuristics, written as plainly as their definitions, to compare the fast ones with."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

_CODE = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~]|[!*(),]|%[0-9a-fA-F]{2})+")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,.")
_STOP = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
_ENDS = (".", "!", "?", "。", "！", "？", "…", '"', "'", "”", "’")


def metrics(text: str) -> dict[str, float]:
    """All 35 metrics of a text."""
    count = len(text)
    words = text.split()
    lines = [line for line in text.split("\n") if line.strip()]
    category = [unicodedata.category(character) for character in text]

    def of_text(part: float, empty: float = 0.0) -> float:
        return part / count if count else empty

    def of_words(part: float) -> float:
        return part / len(words) if words else 0.0

    def of_lines(test: Callable[[str], bool]) -> float:
        return sum(map(test, lines)) / len(lines) if lines else 0.0

    found: dict[str, float] = {
        "chars": count,
        "bytes": len(text.encode()),
        "words": len(words),
        "lines": len(lines),
        "non_alnum_ratio": 1 - of_text(sum(character in _PLAIN for character in text)),
        "symbol_ratio": of_text(
            sum(kind[0] in "PSC" and not at.isspace() for kind, at in zip(category, text, strict=True))
        ),
        "digit_ratio": of_text(category.count("Nd"), 1.0),
        "url_ratio": of_text(sum(len(match[0]) for match in _CODE.finditer(text)), 1.0),
        "whitespace_ratio": of_text(sum(map(str.isspace, text)), 1.0),
        "mean_word_length": of_words(sum(map(len, words))),
        "max_word_length": max(map(len, words), default=0),
        "alpha_word_ratio": of_words(sum(any(map(str.isalpha, word)) for word in words)),
        "hash_word_ratio": of_words(text.count("#")),
        "ellipsis_word_ratio": of_words(text.count("...") + text.count("…")),
        "stop_words": len(_STOP.intersection(words)),
        "bullet_line_ratio": of_lines(lambda line: line.lstrip().startswith(("•", "-", "*"))),
        "ellipsis_line_ratio": of_lines(lambda line: line.rstrip().endswith(("...", "…"))),
        "terminal_line_ratio": of_lines(lambda line: line.rstrip().endswith(_ENDS)),
        "short_line_ratio": of_lines(lambda line: len(line) <= 30),
        "newline_word_ratio": of_words(text.count("\n")),
    }
    for name, pieces in (("line", re.split("\n+", text)), ("para", re.split("\n{2,}", text.strip()))):
        repeats = _repeats(pieces)
        found[f"dup_{name}_frac"] = len(repeats) / len(pieces) if count else 0.0
        found[f"dup_{name}_char_frac"] = of_text(sum(map(len, repeats)))
    for size in range(2, 5):
        grams = Counter(" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
        top = grams.most_common(1)
        found[f"top_{size}gram_char_frac"] = of_text(len(top[0][0]) * top[0][1]) if top else 0.0
    for size in range(5, 11):
        found[f"dup_{size}gram_char_frac"] = of_text(_repeated_grams(words, size))
    found["char_rep_ratio"] = _character_repetition(text)
    lowered = [word.lower() for word in words]
    grams = Counter(" ".join(lowered[at : at + 10]) for at in range(len(words) - 9))
    repeated = sum(number for number in grams.values() if number > 1)
    found["word_rep_ratio"] = repeated / grams.total() if grams else 0.0
    return found


def _repeats(pieces: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [piece for piece in pieces if piece in seen or seen.add(piece)]  # type: ignore[func-returns-value]


def _repeated_grams(words: Sequence[str], size: int) -> int:
    seen: set[str] = set()
    at = length = 0
    while at <= len(words) - size:
        gram = "".join(words[at : at + size])
        if gram in seen:
            length += len(gram)
            at += size
        else:
            seen.add(gram)
            at += 1
    return length


def _character_repetition(text: str) -> float:
    grams = Counter(text[at : at + 10] for at in range(len(text) - 9))
    counts = sorted(grams.values(), reverse=True)
    largest = min(math.isqrt(len(counts)), sum(number > 1 for number in counts))
    return sum(counts[:largest]) / sum(counts) if counts else 0.0
