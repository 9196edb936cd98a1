"""The words in which two texts differ, for people: long parts that are equal are left out."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

Kind = Literal["same", "differs", "gap"]

_MAX_WORDS = 400
"""Of each text, after what both begin with: comparing takes the square of it."""
_AROUND = 20
"""Equal words that are shown before and after words that differ, and at the ends of a text."""
_FEW = 5
"""Words that are not worth being left out."""
# A word with the white space before it. Han, kana, Thai and other scripts without blanks have a word a character.
_WORD = re.compile(
    r"\s*(?:[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
    r"|(?:(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff])\w)+"
    r"|[^\w\s]|$)"
)


class Span(NamedTuple):
    """A part of a text: equal in both, different, or a note in place of words that are left out."""

    text: str
    kind: Kind


def compare(left: str, right: str, around: int = _AROUND) -> tuple[list[Span], list[Span]]:
    """Return the spans of two texts. White space is shown, and not compared.

    Args:
        left: a text.
        right: the other text.
        around: equal words that stay before and after a difference, and at both ends.
    """
    ours, theirs = _words(left), _words(right)
    mine, other = [word.strip() for word in ours], [word.strip() for word in theirs]
    least = min(len(mine), len(other))
    begin = next((at for at in range(least) if mine[at] != other[at]), least)
    end = next((at for at in range(least - begin) if mine[-1 - at] != other[-1 - at]), least - begin)
    stop, halt = len(mine) - end, len(other) - end
    # Words that are frequent in a long text begin no match: without this a text of one word takes a second.
    matcher = SequenceMatcher(
        None, mine[begin : min(stop, begin + _MAX_WORDS)], other[begin : min(halt, begin + _MAX_WORDS)], autojunk=True
    )
    same = [(0, 0, begin)]
    same += [(a + begin, b + begin, size) for a, b, size in matcher.get_matching_blocks()]
    same.append((stop, halt, end))
    return (
        _spans(ours, [(a, size) for a, _, size in same], around),
        _spans(theirs, [(b, size) for _, b, size in same], around),
    )


def shorten(text: str, words: int = 4 * _AROUND) -> list[Span]:
    """Return a text by itself, without the middle of a long one."""
    result = _words(text)
    return _spans(result, [(0, len(result))], words // 2)


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word]


def _spans(words: Sequence[str], same: Sequence[tuple[int, int]], around: int) -> list[Span]:
    """Spans of words, given the runs (start, length) that are equal, in order; runs may touch."""
    result: list[Span] = []
    at = 0
    for start, size in _joined(same):
        result += [*_differing(words[at:start], 3 * around), *_parts(words[start : start + size], "same", around)]
        at = start + size
    return _merged([*result, *_differing(words[at:], 3 * around)])


def _joined(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, size in runs:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        elif size:
            joined.append((start, size))
    return joined


def _differing(words: Sequence[str], around: int) -> list[Span]:
    """Return a run of words that differ; the white space before them is not marked."""
    spans = _parts(words, "differs", around)
    if not spans:
        return []
    bare = spans[0].text.lstrip()
    blank = spans[0].text[: len(spans[0].text) - len(bare)]
    return [Span(blank, "same"), Span(bare, "differs"), *spans[1:]]


def _parts(words: Sequence[str], kind: Kind, around: int) -> list[Span]:
    """Return a run of words as a span, or as its two ends if it is long."""
    left_out = len(words) - 2 * around
    if left_out <= _FEW:
        return [Span("".join(words), kind)] if words else []
    gap = Span(f" [… {left_out:,} words …] ", "gap")
    return [Span("".join(words[:around]), kind), gap, Span("".join(words[-around:]).lstrip(), kind)]


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].kind == span.kind != "gap":
            merged[-1] = Span(merged[-1].text + span.text, span.kind)
        elif span.text:
            merged.append(span)
    return merged
