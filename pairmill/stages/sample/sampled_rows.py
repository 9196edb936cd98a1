"""What was drawn: a plan, and what is counted of each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pairmill.engine.manifest import Ledger
from pairmill.rules import Key
from pairmill.rules.rule import Rule
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.node.plan import SamplePlan


class SampledRows(NamedTuple):
    """What was drawn of a data set.

    Attributes:
        ledger: what became of its rows.
        length: tokens of the data set.
        least_context: the smallest context with which a row is left whose response is long enough; NEVER if none is.
        examples: by ledger reason, the numbers of the first two rows from 1.
        stats: of the rows that may be sampled, and of those that were.
        drawn: with a mixture, the response tokens of each of its tasks and buckets in each epoch.
    """

    name: str
    rule: Rule
    ledger: Ledger
    length: int
    least_context: int
    examples: dict[str, list[int]]
    stats: Stats
    drawn: Mapping[Key, Sequence[int]] = {}


class DrawnSample(NamedTuple):
    """A plan, and what was drawn for it.

    Attributes:
        datasets: what was drawn of each, in the order of the plan.
        lengths: rows over all epochs by tokens, as :func:`pairmill.report.powers.by_size` counts.
        cuts: rows by how many tokens they lost, as it counts.
    """

    plan: SamplePlan
    datasets: list[SampledRows]
    lengths: list[int]
    cuts: list[int]
