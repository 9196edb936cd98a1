"""The Markdown analytics of a sample: coverage by category and task, in the reference's layout to the byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import Profile
from pairmill.formats.eligible_rows import REASONS, SPLIT
from pairmill.formats.split import NO_CUT
from pairmill.report.markdown import plain

if TYPE_CHECKING:
    from pairmill.mixture.realised import Realised

_HEADER = "| Name | Rows (%) | Tokens (%) | Cov Rows (%) | Cov Toks (%) | Cov IToks (%) | Cov RToks (%) |"
_RULE = "".join(character if character == "|" else "-" for character in _HEADER)
GLOBAL = "GLOBAL"
MOST_TASKS = 50
"""Tasks that have a line each on stdout; of more, :data:`TASKS` beside the report has the lines."""
TASKS = "tasks.csv"


@dataclass
class Stats:
    """Sums over rows that may be sampled; ``cov_*`` count a row as often as it was taken.

    ``squares`` is the sum of the squares of their lengths; plans of older versions lack it.
    """

    rows: int = 0
    itoks: int = 0
    rtoks: int = 0
    cov_rows: int = 0
    cov_itoks: int = 0
    cov_rtoks: int = 0
    unique_rows: int = 0
    unique_toks: int = 0
    squares: int = 0

    @property
    def toks(self) -> int:
        return self.itoks + self.rtoks

    @property
    def cov_toks(self) -> int:
        return self.cov_itoks + self.cov_rtoks

    def __add__(self, other: Stats) -> Stats:
        return Stats(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def category(task: str) -> str:
    """Return the part of a task's name before the first ``__``."""
    return task.split("__", 1)[0]


def total(tasks: Iterable[Stats]) -> Stats:
    """Add up some tasks, column by column: there may be tens of thousands."""
    return Stats(*map(sum, zip(*(vars(stats).values() for stats in tasks), strict=True)))


def by_category(tasks: Mapping[str, Stats]) -> dict[str, Stats]:
    result: dict[str, list[Stats]] = {}
    for name, stats in tasks.items():
        result.setdefault(category(name), []).append(stats)
    return {name: total(mine) for name, mine in result.items()}


def _sum_by_category(ledgers: Mapping[str, Ledger]) -> dict[str, Ledger]:
    result: dict[str, Ledger] = {}
    for name, ledger in ledgers.items():
        result.setdefault(category(name), Ledger()).add(ledger)
    return result


def markdown(
    stats: Mapping[str, Stats],
    ledgers: Mapping[str, Ledger],
    profile: Profile,
    context: int,
    realised: Realised | None = None,
    *,
    by_task: bool = True,
) -> str:
    """Return the analytics. The default profile adds a table of rows left out or cut, which the reference hides.

    Args:
        stats: by task.
        ledgers: by task.
        profile: whose.
        context: tokens.
        realised: what became of the mixture, if there is one.
        by_task: whether each task has its lines, and not only each category.
    """
    whole = total(stats.values())
    groups = by_category(stats)
    if GLOBAL in groups:
        if profile == "data_io":
            groups[GLOBAL] += whole  # the reference counts such a category's tasks twice
        else:
            groups[f"{GLOBAL} (category)"] = groups.pop(GLOBAL)
    base = groups.setdefault(GLOBAL, whole)
    lines = ["", "### Category Coverage Stats", _HEADER, _RULE]
    lines += [_line(name, groups[name], base) for name in sorted(groups)]
    if by_task:
        lines += ["", "### Task Coverage Stats", _HEADER, _RULE]
        lines += [_line(name, stats[name], base) for name in sorted(stats)]
    lines += [
        "",
        "### Global Summary",
        f"**Total Unique Tokens Sampled:** {_share(base.unique_toks, base.toks)}",
        f"**Total Unique Rows Sampled:** {_share(base.unique_rows, base.rows)}",
    ]
    if profile == "pairmill":
        # The shares above are of what is left: a row that lost half of its tokens counts as sampled whole.
        ledger = Ledger.sum(ledgers.values())
        rows, toks = ledger.notes.get("truncated", 0), ledger.measures.get("truncated_tokens", 0)
        lines += [
            f"**Rows Cut at the Context:** {_share(rows, whole.unique_rows)}",
            f"**Tokens Cut Off:** {_share(toks, whole.unique_toks + toks)}",
        ]
        if split := ledger.notes.get("split", 0):
            slots = whole.cov_rows * context
            pieces, tokens, repeated = (ledger.measures[name] for name in SPLIT)
            lines += [
                f"**Rows Split at the Context:** {_share(split, ledger.rows_in)}, into {pieces:,} pieces",
                f"**Tokens Split:** {_share(tokens, whole.toks)}, and {repeated:,} of instructions repeated",
                f"**Padding if Rows Are Not Packed:** {_share(slots - whole.cov_toks, slots)}",
            ]
    lines.append("")
    if profile == "pairmill":
        lines += [*_left_out(ledgers if by_task else _sum_by_category(ledgers)), ""]
    if realised is not None:
        # Imported here so that a node starts without it.
        from pairmill.mixture.shown import tables

        for block in tables(realised):
            lines += block.markdown(3)[1:]
            lines.append("")
    return "\n".join(lines) + "\n"


def padded_tokens(manifest: Manifest) -> int:
    """Return the slots without a token, over all epochs, if each row has a context to itself; a loader packs rows."""
    context: int = manifest.options["context_size"]
    return manifest.ledger.rows_out * context - manifest.ledger.measures["tokens_sampled"]


def _left_out(ledgers: Mapping[str, Ledger]) -> list[str]:
    # A sample without pieces has the columns that it always had.
    ledger = Ledger.sum(ledgers.values())
    split = "split" in ledger.notes or NO_CUT in ledger.dropped
    header = "| Name | Rows | Response too short | Over context | Too short once cut | Truncated | Tokens cut off |"
    header += " Character over context | Split | Pieces | Tokens split |" if split else ""
    lines = ["### Rows Left Out or Cut", header, "".join(c if c == "|" else "-" for c in header)]
    for name, ledger in sorted(ledgers.items()):
        counts = [ledger.dropped.get(reason, 0) for reason in REASONS]
        counts += [ledger.notes.get("truncated", 0), ledger.measures.get("truncated_tokens", 0)]
        if split:
            counts += [ledger.dropped.get(NO_CUT, 0), ledger.notes.get("split", 0)]
            counts += [ledger.measures.get(name, 0) for name in SPLIT[:2]]
        if any(counts):
            cells = " | ".join(f"{count:,}" for count in [ledger.rows_in, *counts])
            lines.append(f"| **{plain(name)}** | {cells} |")
    return lines if len(lines) > 3 else [lines[0], "nothing"]


def _percent(part: int, whole: int) -> float:
    return part / (whole or 1) * 100


def _share(part: int, whole: int) -> str:
    return f"{part:,} out of {whole:,} ({_percent(part, whole):.2f}%)"


def _line(name: str, stats: Stats, base: Stats) -> str:
    columns = ("rows", "toks", "cov_rows", "cov_toks", "cov_itoks", "cov_rtoks")
    cells = [(getattr(stats, column), getattr(base, column)) for column in columns]
    return (
        f"| **{plain(name)}** | "
        + " | ".join(f"{part:,} ({_percent(part, whole):.1f}%)" for part, whole in cells)
        + " |"
    )
