"""Exact match and F1 of DROP (Dua et al. 2019, arXiv:1903.00161), as lm-evaluation-harness 0.4 computes them."""

import re
import string
from collections.abc import Sequence

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(text: str, answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Exact match and F1 (rounded to 0.01) of a text against the best of the answers, each of which is a list of spans.

    The text is one span. Of an answer with several spans it can match only one, so that its F1 is divided by them.
    """
    plain, bag = _plain(text)
    best_match, best_f1 = 0.0, 0.0
    for spans in answers:
        if not spans or not spans[0].strip():
            continue
        gold = [_plain(span) for span in spans]
        match = float(len(gold) == 1 and gold[0][0] == plain)
        f1 = round(max(_f1(bag, item) for _, item in gold) / len(gold), 2)
        best_match, best_f1 = max(best_match, match), max(best_f1, f1)
    return best_match, best_f1


def _plain(span: str) -> tuple[str, frozenset[str]]:
    """Return a span in lower case without articles and punctuation, numbers written alike, and the set of its words."""
    words = []
    for part in re.split("[ -]", span):
        word = part.lower()
        if not _is_number(word):
            word = word.translate(_PUNCTUATION)
        if _is_number(word):
            word = str(float(word))
        words.append(" ".join(_ARTICLE.sub(" ", word).split()))
    plain = " ".join(word for word in words if word)
    return plain, frozenset(plain.split())


def _f1(answer: frozenset[str], gold: frozenset[str]) -> float:
    numbers = {word for word in gold if _is_number(word)}
    if numbers and not numbers & answer:
        return 0.0
    common = len(answer & gold)
    precision = common / len(answer) if answer else 1.0
    recall = common / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
