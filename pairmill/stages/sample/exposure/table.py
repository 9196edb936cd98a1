"""Rows and tokens of sources by how often they were seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.source_names import source_of
from pairmill.report.model import Table
from pairmill.stages.sample.exposure.passes import Passes, SeenRows
from pairmill.stages.sample.inventory.pages import as_csv, as_markdown

CLASSES: Final = ("0", "1", "2", "3–4", "5–9", "10+")
_SUMS: Final = ("Passes", "Tokens seen", "Most passes")
_NOTE: Final = (
    "Rows that may be drawn, each once, by how often they were seen. Passes and tokens seen count each time; a row "
    "that was seen 255 times or more counts as 255."
)
_BOUNDS: Final = (1, 2, 3, 5, 10)
_CLASS_OF: Final = np.searchsorted(np.array(_BOUNDS), np.arange(256), "right")


@dataclass
class Exposure:
    """How often rows were seen.

    Attributes:
        name: of the source or task.
        rows: of each class of :data:`CLASSES`; int64 [6].
        tokens: of these rows, each once.
        passes: of all rows together, and what they come to in tokens.
        most: passes of the row that was seen most; 255 = as many or more.
    """

    name: str
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))
    passes: int = 0
    tokens_seen: int = 0
    most: int = 0

    def add(self, other: Exposure) -> None:
        """Add rows of others."""
        self.rows += other.rows
        self.tokens += other.tokens
        self.passes += other.passes
        self.tokens_seen += other.tokens_seen
        self.most = max(self.most, other.most)

    def add_rows(self, counts: Passes, lengths: NDArray[np.int64]) -> None:
        """Add rows, uint8 [rows], with their tokens, int64 [rows]."""
        place = _CLASS_OF[counts]
        self.rows += np.bincount(place, minlength=len(CLASSES))
        sums = [int(lengths[place == number].sum()) for number in range(len(CLASSES))]
        self.tokens += np.array(sums, np.int64)
        self.passes += int(counts.sum(dtype=np.int64))
        self.tokens_seen += int((lengths * counts).sum())
        self.most = max(self.most, int(counts.max(initial=0)))


def exposures(seen: SeenRows) -> Iterator[Exposure]:
    """Yield the exposure of each task of all plans, by the name that the last plan with it has.

    What may be drawn of a task and was in no plan was seen 0 times.
    """
    done = set[str]()
    for number, reading in reversed([*enumerate(seen.readings)]):
        stats = reading.result.stats
        for source in reading.result.sources:
            key = source["key"]
            if key in done:
                continue
            done.add(key)
            starts, counts, lengths = _rows_of(seen, number, key)
            made = Exposure(source["name"])
            made.add_rows(counts, lengths)
            mine = stats[source["name"]]
            made.rows[0] += max(0, mine["rows"] - len(starts))
            made.tokens[0] += max(0, mine["itoks"] + mine["rtoks"] - int(lengths.sum()))
            yield made


def _rows_of(seen: SeenRows, last: int, key: str) -> tuple[NDArray[np.int64], Passes, NDArray[np.int64]]:
    """Return the rows of a task that plans have, ``last`` being the last of these: starts, passes and tokens."""
    plans = [plan for plan in seen.plans[: last + 1] if plan.places.get(key)]
    starts = np.concatenate([plan.column(key, "resp_start") for plan in reversed(plans)])
    lengths = np.concatenate([plan.column(key, "inst_len") + plan.column(key, "resp_len") for plan in reversed(plans)])
    counts = np.concatenate([plan.of_task(key) for plan in reversed(plans)])
    if np.all(starts[1:] > starts[:-1]):
        return starts, counts, lengths
    different, first, place = np.unique(starts, return_index=True, return_inverse=True)
    sums = np.bincount(place.ravel(), counts, minlength=len(different))
    return different, np.minimum(sums, 255).astype(np.uint8), lengths[first]


def lines_of(seen: SeenRows, group_by: str) -> list[Exposure]:
    """Return the exposure of each source or task; the one with most tokens seen comes first."""
    lines: dict[str, Exposure] = {}
    for item in exposures(seen):
        name = item.name if group_by == "task" else source_of(item.name)
        lines.setdefault(name, Exposure(name)).add(item)
    return sorted(lines.values(), key=lambda line: (-line.tokens_seen, line.name))


def write(lines: Sequence[Exposure], group_by: str, form: str) -> str:
    """Return the table in one of the formats of the option."""
    if form == "json":
        return json.dumps([_as_json(line) for line in lines], indent=1, ensure_ascii=False) + "\n"
    whole = Exposure("all")
    for line in lines:
        whole.add(line)
    every = [*lines, whole]
    title = group_by.capitalize()
    if form == "csv":
        header = [title, *(f"{what} {name}" for what in ("Rows", "Tokens") for name in CLASSES), *_SUMS]
        rows = [[line.name, *line.rows.tolist(), *line.tokens.tolist(), *_sums(line)] for line in every]
        return as_csv(Table(title, header, rows))
    by_rows = [[line.name, *line.rows.tolist(), *_sums(line)] for line in every]
    by_tokens = [[line.name, *line.tokens.tolist()] for line in every]
    tables = [
        Table("Rows by times seen", (title, *CLASSES, *_SUMS), by_rows, _NOTE),
        Table("Tokens by times seen", (title, *CLASSES), by_tokens, "Of these rows, each once."),
    ]
    return "\n\n".join("\n".join(as_markdown(table)) for table in tables) + "\n"


def _sums(line: Exposure) -> list[int]:
    return [line.passes, line.tokens_seen, line.most]


def _as_json(line: Exposure) -> dict[str, Any]:
    by_class = {what: dict(zip(CLASSES, getattr(line, what).tolist(), strict=True)) for what in ("rows", "tokens")}
    return {"name": line.name, **by_class, "passes": line.passes, "tokens_seen": line.tokens_seen, "most": line.most}
