"""Targets against a brute-force list: each answer is asked for by itself."""

import random
from collections import Counter

from pairmill.chats.targets import Answer, Targets
from tests.support.helpers import draws


def expected(targets: Targets, answers: list[Answer], index: set[int] | None) -> list[str]:
    """Why each answer is none, one rule after the other over the whole list."""
    why = [""] * len(answers)
    for n, answer in enumerate(answers):
        wanted = {"both": True, "calls": answer.calls, "text": not answer.calls}[targets.kinds]
        if not wanted or (index is not None and not index & set(answer.messages)):
            why[n] = "not_the_target"
        elif answer.weight == 0:
            why[n] = "weight_zero"
    for n in range(len(answers)):
        later = any(not why[k] for k in range(n + 1, len(answers)))
        if not why[n] and later and targets.answers == "last":
            why[n] = "not_the_last_answer"
    if targets.answers == "first":
        for n in reversed(range(len(answers))):
            if not why[n] and any(not why[k] for k in range(n)):
                why[n] = "not_the_first_answer"
    behind, taken = 0, 0
    for n in reversed(range(len(answers))):
        if why[n]:
            continue
        if behind % targets.stride:
            why[n] = "left_out_by_stride"
        elif targets.most and taken == targets.most:
            why[n] = "left_out_by_max_targets"
        else:
            taken += 1
        behind += 1
    return why


def test_targets_are_what_brute_force_takes() -> None:
    draw = random.Random(12)
    seen: Counter[str] = Counter()
    for _ in range(draws(5000)):
        answers = [Answer(n, [2 * n + 1], draw.random() < 0.4, draw.random() < 0.8) for n in range(draw.randrange(12))]
        index = {draw.randrange(24) for _ in range(6)} if draw.random() < 0.3 else None
        targets = Targets(
            draw.choice(["all", "all", "last", "first"]),
            draw.choice(["both", "both", "text", "calls"]),
            draw.choice([1, 1, 2, 3]),
            draw.choice([0, 0, 1, 3]),
        )
        reasons = targets.reasons(answers, index)
        assert reasons == expected(targets, answers, index)
        seen.update(reasons)
    assert len(seen) == 7
    assert min(seen.values()) > draws(300)


def test_without_more_a_chat_has_a_row_for_each_weight() -> None:
    draw = random.Random(13)
    for _ in range(200):
        weights = [draw.randrange(2) for _ in range(9)]
        reasons = Targets().reasons([Answer(n, [n], weight=weight) for n, weight in enumerate(weights)])
        assert reasons.count("") == sum(weights)
        assert reasons.count("weight_zero") == 9 - sum(weights)


def test_stride_bounds_the_square() -> None:
    answers = [Answer(n, [n]) for n in range(1000)]
    for stride in (2, 5, 10):
        kept = [
            answer.place
            for answer, why in zip(answers, Targets(stride=stride).reasons(answers), strict=True)
            if not why
        ]
        assert kept[-1] == 999
        assert sum(kept) * stride <= 999 * 1001 // 2 + 1000 * stride
    few = Targets(stride=5, most=3).reasons(answers)
    assert [answer.place for answer, why in zip(answers, few, strict=True) if not why] == [989, 994, 999]
