"""Verdicts of curate in plain Python, as spec/curation.md sections 2.1, 3 and 4 define them, from tokens and numbers.

Tokens, numbers and light forms come from the Rust module; tests/property/test_curate_text.py defines those.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from pairmill import _native
from tests.support.data.leaks import Item

Tokens = list[str]
Gram = tuple[str, ...]


class Text:
    """A text and its forms."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _forms(self) -> tuple[str, Tokens, list[str]]:
        light, tokens, numbers = (
            pa.array(one)[0].as_py() for one in _native.curate_forms(pa.array([self.text], pa.large_string()))
        )
        return light, tokens, numbers

    @property
    def tokens(self) -> Tokens:
        return self._forms[1]

    @property
    def numbers(self) -> list[str]:
        return self._forms[2]

    def equals(self, other: Text) -> bool:
        """Equal tokens; without any, equal light forms."""
        if not self.tokens and not other.tokens:
            return self._forms[0] == other._forms[0]
        return self.tokens == other.tokens


def grams(tokens: Sequence[str], size: int = 3) -> set[Gram]:
    return {tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)}


def common(a: Tokens, b: Tokens) -> float:
    one, other = grams(a), grams(b)
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


def ratio(a: Tokens, b: Tokens) -> float:
    short, long = sorted((len(a), len(b)))
    return short / long if long else 1.0


def distance(a: str, b: str) -> int:
    """Optimal string alignment."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if not i or not j:
                table[i][j] = i + j
                continue
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


def is_typing_error(a: str, b: str) -> bool:
    return a.isalpha() and b.isalpha() and min(len(a), len(b)) >= 6 and a[0] == b[0] and distance(a, b) == 1


def longest_hole(tokens: Tokens, other: Tokens) -> int:
    """The longest run of tokens that no shared 3-gram covers."""
    shared = grams(other)
    covered = [False] * len(tokens)
    for at in range(len(tokens) - 2):
        if tuple(tokens[at : at + 3]) in shared:
            covered[at : at + 3] = [True] * 3
    longest = run = 0
    for one in covered:
        run = 0 if one else run + 1
        longest = max(longest, run)
    return longest


def is_block(a: Tokens, b: Tokens) -> bool:
    short, long = sorted((a, b), key=len)
    if ratio(a, b) < 0.70:
        return False
    for start in range(len(long) - len(short) + 1):
        wrong = [(x, y) for x, y in zip(short, long[start:], strict=False) if x != y]
        if len(wrong) <= math.ceil(len(short) / 20) and all(is_typing_error(x, y) for x, y in wrong):
            return True
    return False


class Verdict(NamedTuple):
    """Whether two rows are duplicates, the rule, and the scores of both fields."""

    duplicate: bool
    rule: str
    instruction: float
    response: float


def verify(
    a: tuple[str, str],
    b: tuple[str, str],
    number_guard: str = "both",
    min_response: int = 20,
    min_instruction: int = 16,
) -> Verdict:
    """Section 2.1, of pairs."""
    (x, xr), (y, yr) = ((Text(one[0]), Text(one[1])) for one in (a, b))
    if number_guard != "off" and x.numbers != y.numbers:
        return Verdict(False, "numbers", 0, 0)
    if number_guard == "both" and xr.numbers != yr.numbers:
        return Verdict(False, "numbers", 0, 0)
    strong = min(len(xr.tokens), len(yr.tokens)) >= min_response
    if xr.equals(yr):
        response = 1.0
    elif strong and ratio(xr.tokens, yr.tokens) >= 0.70:
        response = common(xr.tokens, yr.tokens)
        if response < 0.75:
            return Verdict(False, "response", 0, response)
    else:
        return Verdict(False, "response", 0, 0)
    if x.equals(y):
        return Verdict(True, "equal_instruction", 1, response)
    if min(len(x.tokens), len(y.tokens)) < min_instruction:
        return Verdict(False, "short_instruction", 0, response)
    if not strong:
        block = is_block(x.tokens, y.tokens)
        rule = "weak_block" if block else "weak_instruction"
        return Verdict(block, rule, common(x.tokens, y.tokens), response)
    if ratio(x.tokens, y.tokens) < 0.70:
        return Verdict(False, "instruction_length", 0, response)
    score = common(x.tokens, y.tokens)
    if score < 0.75:
        return Verdict(False, "instruction", score, response)
    if min(longest_hole(x.tokens, y.tokens), longest_hole(y.tokens, x.tokens)) >= 8:
        return Verdict(False, "slot", score, response)
    return Verdict(True, "strong", score, response)


@dataclass(frozen=True)
class Leak:
    """What a row has of an item; ``at_threshold``: rounding of the score decides."""

    verdict: str
    field: str
    question: float
    answer: float
    at_threshold: bool = False


class Leaks:
    """Section 3: what rows have of the items of benchmarks."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items: dict[Gram, list[Item]] = {}
        for item in items:
            self._items.setdefault(tuple(Text(item.question).tokens), []).append(item)
        self._counts = Counter(gram for question in self._items for gram in grams(question))

    def of(self, instruction: str, response: str) -> dict[tuple[str, str], Leak]:
        """By benchmark and name of the item."""
        fields = {"instruction": Text(instruction), "response": Text(response)}
        seeds = grams(fields["instruction"].tokens, 5) | grams(fields["response"].tokens, 5)
        answered = fields["response"].tokens
        found: dict[tuple[str, str], Leak] = {}
        for question, items in self._items.items():
            if len(question) < 5:
                if question and list(question) == fields["instruction"].tokens:
                    for item in items:
                        answer = self._answer(item, answered, whole=True)
                        verdict = "question_answer" if answer >= 0.8 else "short_question"
                        found[item.benchmark, item.name] = Leak(verdict, "instruction", 1.0, answer)
                continue
            if not grams(question, 5) & seeds:
                continue
            scores = {name: self._question(question, text.tokens) for name, text in fields.items()}
            name = "instruction" if scores["instruction"][0] >= scores["response"][0] - 1e-12 else "response"
            score, start = scores[name]
            least = 1 - 0.25 * min(1.0, max(0.0, (len(question) - 12) / 20))
            if score < least - 1e-12:
                continue
            for item in items:
                region = answered if name == "instruction" else answered[start:]
                answer = self._answer(item, region, whole=name == "instruction")
                verdict = "question_answer" if answer >= 0.8 else "question"
                if Counter(Text(item.question).numbers) - Counter(fields[name].numbers):
                    verdict = "variant"
                tie = abs(score - least) < 1e-12 and least < 1
                found[item.benchmark, item.name] = Leak(verdict, name, score, answer, tie)
        return found

    def _weight(self, some: set[Gram]) -> float:
        return math.fsum(math.log(1 + len(self._items) / self._counts[gram]) for gram in some)

    def _question(self, question: Gram, field: Tokens) -> tuple[float, int]:
        """The best share of the question in a window, and where that begins."""
        wanted, length = grams(question), len(question)
        windows = [(0, len(field))]
        if len(field) > 4 * length + 200:
            windows = [(at, at + 2 * length + 10) for at in range(0, len(field), length)]
        shares = [
            (self._weight(wanted & grams(field[start:end])) / self._weight(wanted), start) for start, end in windows
        ]
        most = max(share for share, _ in shares)
        return next(one for one in shares if one[0] >= most - 1e-12)

    def _answer(self, item: Item, region: Tokens, *, whole: bool) -> float:
        return max((self._share(Text(answer).tokens, region, whole) for answer in item.answers), default=0.0)

    def _share(self, answer: Tokens, region: Tokens, whole: bool) -> float:
        if not answer or not region:
            return 0.0
        if len(answer) == 1 and len(answer[0]) == 1:
            return float(answer[0] in (region[0], region[-1]))
        if len(answer) <= 3:
            parts = [region[:10], region[-20:]] if whole and len(region) > 50 else [region]
            return float(any(tuple(answer) in grams(part, len(answer)) for part in parts))
        return len(grams(answer) & grams(region)) / len(grams(answer))


def pair_metrics(instruction: str, response: str) -> tuple[float, float]:
    """Section 4: tokens of the response for each of the instruction, and its 3-grams that the instruction has."""
    asked, said = Text(instruction).tokens, Text(response).tokens
    copied = len(grams(asked) & grams(said)) / len(grams(said)) if grams(said) else 0.0
    return len(said) / len(asked) if asked else 0.0, copied
