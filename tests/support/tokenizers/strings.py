"""Strings made to break a tokenizer: drawn from a seed, for a given time, and reduced to the smallest that breaks it.

``make test`` looks at a few, the same each time. ``PAIRMILL_PROPERTY_SECONDS=60`` draws new ones for 60 seconds in each
test that uses them, and runs what takes too long for every day; ``PAIRMILL_PROPERTY_SEED=<number>`` repeats
such a run.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

SECONDS = float(os.environ.get("PAIRMILL_PROPERTY_SECONDS", 0))
SEED = int(os.environ.get("PAIRMILL_PROPERTY_SEED", secrets.randbits(32) if SECONDS else 0))

SPACES = [
    *" \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff",
    "\r\n",
]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'rE", "'ve", "'m", "'ll", "'Ll", "'d", "'ſ", "'x", "''", "'", "ſ", "\u212a"]
PUNCTUATION = [*'!?.,;:-_=+*/\\|<>(){}[]"#$%&@^`~。、…—«»', "<think>", "<|im_start|>", "\\frac"]
LETTERS = [*"aeAzéßЖשन日本가", "the", " the", "ing", "Привет", "שָׁ", "नमस्ते", "ไทย"]
NUMBERS = [*"0129²½Ⅷ٣𝟘", "2024"]
# Marks that compose or reorder, or are newer than Unicode 9, whose data normalises; and what composition excludes.
MARKS = [
    *"\u0300\u0301\u0308\u0323\u0344\u0340\u1ac1\u0898\u1df6\u0c3c\u1abf\u3099\u05c1\u093c",
    "e\u0301",
    "e\u0323\u0301",
]
JAMO = [*"\u1100\u1161\u11a8\u11a7\u1175\ua960\ud7b0\uac00\uac01", "\u1100\u1161\u11a8"]
OTHERS = [
    *"\x00\x04\x7f\u0378\u0958\u212b\ue000\ufffd\uffff\U00011938\U00020000\U0010ffff😀\u200d",
    "\U00011935\U00011930",
]
KINDS = [SPACES, CONTRACTIONS, PUNCTUATION, LETTERS, NUMBERS, MARKS, JAMO, OTHERS]
PIECES = [piece for kind in KINDS for piece in kind]

# Stretches of scalar values from which one is drawn: ASCII, Latin to Arabic, marks, jamo and syllables, all planes.
_STRETCHES = [
    (0, 0x7F), (0x80, 0x6FF), (0x300, 0x36F), (0x8D0, 0x8FF), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF),
    (0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF),
]  # fmt: skip
# On both sides of what caches, scanners and merging treat differently.
_LENGTHS = [*range(14, 18), *range(30, 34), *range(62, 67), *range(126, 130), 255, 256, 257]


def seeds(few: int) -> Iterator[int]:
    """This many seeds; in a long run, new ones until its time is over."""
    end = time.monotonic() + SECONDS
    for seed in count(SEED):
        if seed - SEED >= few and time.monotonic() >= end:
            return
        yield seed


def scalars(step: int = 1) -> Iterator[str]:
    """Texts with every Unicode scalar value, or every ``step``-th: alone, and between characters of every class."""
    for code in range(0, 0x110000, step):
        if not 0xD800 <= code < 0xE000:
            one = chr(code)
            yield one
            yield f"a{one}b {one}c '{one}1{one}{one}2\n{one}e\u0301{one}\u0323\u3000{one} {one}"


def nasty(draw: random.Random, pool: Sequence[str] = PIECES) -> str:
    """A text of up to 120 odd things."""
    return "".join(draw.choices(pool, k=draw.choice([0, 1, 2, 3, 5, 8, 13, 40, 120])))


def _part(draw: random.Random) -> str:
    chosen = draw.randrange(10)
    if chosen < 4:
        return "".join(draw.choices(PIECES, k=draw.randrange(1, 6)))
    if chosen < 6:
        return "".join(draw.choices(draw.choice(KINDS), k=draw.randrange(1, 8)))
    if chosen < 8:
        low, high = draw.choice(_STRETCHES)
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 6)))
    if chosen < 9:
        return "".join(
            draw.choices(draw.choice(["theacd", "aé日", "=-", " ", " \n", "e\u0301a"]), k=draw.choice(_LENGTHS))
        )
    return "".join(draw.choices(["the", " cat", " and", " 12", ",", ".\n", "  ", " it's"], k=draw.randrange(1, 40)))


def document(draw: random.Random) -> str:
    """One document of 0 to some 2,000 characters."""
    return "".join(_part(draw) for _ in range(draw.choice([0, 1, 1, 2, 3, 5, 8, 20])))


def smallest(text: str, fails: Callable[[str], bool]) -> str:
    """Leave out of ``text`` all that can be left out while it fails, or what can be in half a minute."""
    size, end = len(text), time.monotonic() + 30
    while size:
        start = 0
        while start < len(text) and time.monotonic() < end:
            shorter = text[:start] + text[start + size :]
            if fails(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text
