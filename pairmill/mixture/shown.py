"""Predicted beside realised as parts of a report: bars, and tables that are also text."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.mixture.realised import Passes, Realised, Share
from pairmill.report.charts import Grouped
from pairmill.report.model import Block, Cell, Percent, Section, Table

_SHOWN = 20
"""Sources whose bars are drawn, those with most tokens."""
_COLUMNS = ("Source", "Rows", "Response tokens", "Planned", "Drawn", "Difference", "Standard error", "Explained")
_NOTE = (
    "Shares of the response tokens. A difference of 0.1 percentage points, or of four standard errors of drawing "
    "without replacement, is explained by chance."
)


def tables(realised: Realised) -> list[Block]:
    """Shares of the whole training, by phase and by epoch, and passes over the sources."""
    result: list[Block] = [Table("Mixture", _COLUMNS, [_share(item) for item in realised.whole], _NOTE)]
    if len(realised.phases) > 1:
        rows = [
            (_named(realised, name), *_share(item)) for name, *_ in realised.phases for item in realised.of_phase(name)
        ]
        result.append(Table("Mixture by phase", ("Phase", *_COLUMNS), rows))
    by_epoch = [(f"epoch_{epoch}", *_share(item)) for epoch, shares in realised.epochs() for item in shares]
    if realised.phases[-1][2] > 1:
        result.append(Table("Mixture by epoch", ("Epoch", *_COLUMNS), by_epoch))
    result.append(
        Table(
            "Mixture: passes over the sources",
            ("Source", "Rows", "Rows drawn", "Passes", "Most passes over a task", "Cap", "Tasks over the cap"),
            [_passes(item) for item in realised.passes],
            "A task is over its cap if more than one row an epoch is drawn beyond it.",
        )
    )
    return result


def blocks(realised: Realised) -> list[Block]:
    """Bars of what was planned and drawn, and the tables; those by phase and epoch are folded."""
    largest = sorted(realised.whole, key=lambda item: -max(item.predicted, item.realised))[:_SHOWN]
    bars = [(item.source, (Percent(item.predicted), Percent(item.realised))) for item in largest]
    first, *others = tables(realised)
    result = [Grouped("Mixture: shares planned and drawn", ("planned", "drawn"), bars, "of the response tokens"), first]
    return [*result, Section("Mixture by phase and epoch, and caps", others, summary(realised))]


def summary(realised: Realised) -> str:
    """Return what there is to say of it in one sentence."""
    largest = realised.largest
    sentence = f"the largest difference is {points(abs(largest.difference))} percentage points, of {largest.source!r}"
    outside = f"; {len(realised.outside):,} differ by more than chance explains" if realised.outside else ""
    over = f"; {realised.over_cap:,} tasks are over their cap" if realised.over_cap else ""
    return f"{len(realised.whole):,} sources: {sentence}{outside}{over}."


def points(share: float) -> str:
    """Return a share, or a difference, in percentage points."""
    return f"{100 * share:.3f}"


def _named(realised: Realised, phase: str) -> str:
    first, end = next((first, end) for name, first, end in realised.phases if name == phase)
    return f"{phase} (epoch_{first})" if end - first == 1 else f"{phase} (epoch_{first} to epoch_{end - 1})"


def _share(share: Share) -> Sequence[Cell]:
    return (
        share.source,
        share.rows,
        share.tokens,
        f"{points(share.predicted)}%",
        f"{points(share.realised)}%",
        f"{100 * share.difference:+.3f}",
        points(share.error),
        "yes" if share.within else "no",
    )


def _passes(item: Passes) -> Sequence[Cell]:
    passes = round(item.drawn / item.rows, 3) if item.rows else 0
    cap = "none" if item.cap is None else f"{item.cap:g}"
    return item.source, item.rows, item.drawn, passes, round(item.most, 3), cap, item.over
