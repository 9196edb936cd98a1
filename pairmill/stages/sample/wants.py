"""What to draw of a data set: walks through its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.rules import Key
from pairmill.rules.rule import Rule

Rows = NDArray[np.uint32]


class WalkToDraw(NamedTuple):
    """A walk through the rows of a data set, or through some of them.

    Attributes:
        stream: the name of its random numbers.
        members: numbers of the data set's rows, ascending, uint32; None = all that may be sampled.
        rows: that each epoch takes; None = as the other three say.
        cap, budget: rows, and response tokens, of an epoch before ``repeat``; None = all.
        key: of the mixture's plan, if it is of one.
        earlier: what holds before some epochs in place of rows, cap, repeat and budget: the first epoch for which it
            does not hold, ascending, and the walk whose numbers count until then.
        most: how often a row may be seen in all, in the plans before too; None = no limit.
    """

    stream: str
    members: Rows | None = None
    rows: Sequence[int] | None = None
    cap: int | None = None
    repeat: int = 1
    budget: int | None = None
    key: Key | None = None
    most: int | None = None
    earlier: Sequence[tuple[int, WalkToDraw]] = ()


class Wants(NamedTuple):
    """What to draw of a data set.

    Attributes:
        walks: through its rows.
        check: called with its rows, and with rows and response tokens that each walk walks through; raises InputError.
    """

    walks: Sequence[WalkToDraw]
    check: Callable[[int, Sequence[tuple[int, int]]], None] = lambda *_: None

    @classmethod
    def by_rule(cls, rule: Rule, seed: int, stream: str) -> Wants:
        """Return what a rule asks for; the names of the walks' random numbers begin with ``stream``."""
        most = rule.passes_total
        if rule.members is not None:
            parts = rule.members.parts(f"{seed}\0{stream}")
            names = [f"{stream}\0{part.name}" if part.name else stream for part in parts]
            named = zip(names, parts, strict=True)
            return cls([WalkToDraw(name, part.members, rows=part.rows, most=most) for name, part in named])
        cap, budget = rule.max_per_file, rule.max_response_tokens_per_file
        return cls([WalkToDraw(stream, rows=rule.rows, cap=cap, repeat=rule.repeat, budget=budget, most=most)])
