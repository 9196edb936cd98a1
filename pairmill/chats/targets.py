"""Which answers of a chat are learned: each of them is a target, or is left out for a reason."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

ALL, LAST, FIRST = "all", "last", "first"
TEXT, CALLS, BOTH = "text", "calls", "both"
KINDS = (TEXT, CALLS, BOTH)

NOT_THE_TARGET, WEIGHT_ZERO = "not_the_target", "weight_zero"
NOT_THE_LAST, NOT_THE_FIRST = "not_the_last_answer", "not_the_first_answer"
STRIDE, MOST = "left_out_by_stride", "left_out_by_max_targets"
REASONS = (NOT_THE_TARGET, WEIGHT_ZERO, NOT_THE_LAST, NOT_THE_FIRST, STRIDE, MOST)


@dataclass
class Answer:
    """An answer that could be a target.

    Args:
        place: of the answer in the history.
        messages: places in the record's list of the messages that it was read from.
        calls: whether it calls a tool.
        weight: 0 or 1.
    """

    place: int
    messages: list[int]
    calls: bool = False
    weight: int = 1


@dataclass(frozen=True)
class Targets:
    """What a source says of its targets.

    Args:
        answers: all of them, the last or the first.
        kinds: answers without a call (``text``), with one (``calls``), or both.
        stride: every ``stride``-th target is taken, counted from the last.
        most: the most targets of a chat, the last of those that ``stride`` takes; 0 = all.
    """

    answers: str = ALL
    kinds: str = BOTH
    stride: int = 1
    most: int = 0

    def reasons(self, answers: Sequence[Answer], index: Collection[int] | None = None) -> list[str]:
        """Return of each answer why it is not a target; empty if it is one.

        Args:
            answers: of one chat, in its order.
            index: places in the record's list of the only messages that may be targets; None = any may.
        """
        reasons = [self._reason(answer, index) for answer in answers]
        left = [number for number, reason in enumerate(reasons) if not reason]
        if self.answers != ALL and left:
            chosen, reason = (left[-1], NOT_THE_LAST) if self.answers == LAST else (left[0], NOT_THE_FIRST)
            for number in left:
                reasons[number] = "" if number == chosen else reason
            left = [chosen]
        strided = left[::-1][:: self.stride]
        taken = set(strided)
        for number in left:
            if number not in taken:
                reasons[number] = STRIDE
        for number in strided[self.most :] if self.most else ():
            reasons[number] = MOST
        return reasons

    def _reason(self, answer: Answer, index: Collection[int] | None) -> str:
        if self.kinds != BOTH and answer.calls != (self.kinds == CALLS):
            return NOT_THE_TARGET
        if index is not None and not any(place in index for place in answer.messages):
            return NOT_THE_TARGET
        return "" if answer.weight else WEIGHT_ZERO
