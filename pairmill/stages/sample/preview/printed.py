"""The tables of ``sample preview``, as Markdown, CSV or JSON."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pairmill.report.model import Block, Cell, Percent, Table
from pairmill.rules.book import Rules
from pairmill.rules.solve import Scaled
from pairmill.stages.sample.preview.compared import Difference
from pairmill.stages.sample.preview.expected import Expected, Forecast
from pairmill.stages.sample.preview.what_if import Ladder

MOST_TASKS: Final = 50
"""Tasks that have a line each in Markdown."""
_HEADER: Final = (
    *("Tasks", "Rows there", "Unique rows", "Rows an epoch", "Tokens an epoch", "Share", "Passes an epoch"),
    *("Passes in all", "Exposures"),
)
_COLUMNS: Final = (
    *("name", "group", "binds", "pool_rows", "pool_tokens", "unique_rows", "rows", "tokens", "response_tokens"),
    *("error", "share", "passes", "exposures"),
)


@dataclass(frozen=True)
class Page:
    """What a preview prints.

    Args:
        forecast: of the rules.
        rules: as their file says them.
        ladder: values that were tried.
        compared: with another plan, or other rules.
        extends: of a plan that goes on, its fingerprint, epochs and rows that are kept, and tasks that are new.
    """

    forecast: Forecast
    rules: Rules
    ladder: Ladder | None = None
    compared: Sequence[Difference] | None = None
    extends: Mapping[str, Any] | None = None

    def text(self, form: str) -> str:
        """Return it in a form: md, csv or json."""
        if form == "csv":
            return self._csv()
        return self._json() if form == "json" else self._markdown()

    def _markdown(self) -> str:
        count = len(self.forecast.names)
        groups = [*sorted(self.forecast.groups, key=lambda line: -line.tokens), self.forecast.total]
        blocks: list[Block] = [
            Table(
                "Groups",
                ("Group", "Amounts", "Decided by", *_HEADER),
                [(line.name, line.group, line.binds, *_cells(line)) for line in groups],
                "Rows and tokens of prompts and responses, as expected, on average over the epochs. "
                "Exposures: how often a row that is drawn is seen in all epochs.",
            )
        ]
        if count <= MOST_TASKS:
            rows = [(line.name, line.group, *_cells(line)[1:]) for line in self.forecast.tasks]
            blocks.append(Table("Tasks", ("Task", "Group", *_HEADER[1:]), rows))
        if self.ladder is not None:
            blocks.append(self._ladder(self.ladder))
        if floors := self.floors():
            note = "All rows of their tasks are taken: the cap could be left out."
            blocks.append(Table("Caps that do not bind", ("Group", "Cap", "Tasks", "Rows there"), floors, note))
        if idle := self._idle():
            blocks.append(Table("Rules without a task", ("Rule", "Hidden by"), [tuple(rule.values()) for rule in idle]))
        if self.compared is not None:
            blocks.append(_differences(self.compared))
        lines = [self._kept(self.extends), ""] if self.extends is not None else []
        if (scale := self.forecast.solved.scale) is not None:
            lines += [_scaled(scale), ""]
        lines += [line for block in blocks for line in [*block.markdown(3)[1:], ""]]
        if count > MOST_TASKS:
            lines += [f"{count:,} tasks; format=csv has a line for each", ""]
        return "\n".join(lines[:-1]) + "\n"

    def _kept(self, extends: Mapping[str, Any]) -> str:
        first, new = extends["epochs"], self.forecast.epochs
        return (
            f"Epochs 0 to {first - 1} are those of {extends['plan']}: {extends['rows']:,} rows. What follows is of "
            f"epochs {first} to {first + new - 1} alone; {extends['new_tasks']:,} of its tasks are new."
        )

    def _ladder(self, ladder: Ladder) -> Table:
        rows: list[Sequence[Cell]] = [
            (
                step.value,
                step.group.unique_rows,
                round(step.group.tokens),
                Percent.ratio(step.group.tokens, step.epoch_tokens),
                round(step.group.tokens / ladder.now, 3) if ladder.now else "–",
                round(step.group.tokens * self.forecast.epochs),
                round(step.group.exposures, 2),
            )
            for step in ladder.steps
        ]
        return Table(
            f"What if: {ladder.key} of {ladder.group}",
            (ladder.key, "Unique rows", "Tokens an epoch", "Of the epoch", "× now", "Tokens in all", "Exposures"),
            rows,
            f"It has {round(ladder.now):,} tokens an epoch now.",
        )

    def floors(self) -> list[tuple[str, str, int, int]]:
        """Return the caps that are above what is there: group, cap, tasks, and rows; for a cap of each task those of
        the largest."""
        floors: list[tuple[str, str, int, int]] = []
        pool = self.forecast.pool
        largest: dict[int, tuple[int, int]] = {}
        for name, rows in zip(self.forecast.names, pool.rows.tolist(), strict=True):
            if (clause := self.rules.clause_of(name)) is not None:
                tasks, most = largest.get(clause.number, (0, 0))
                largest[clause.number] = tasks + 1, max(most, rows)
        for clause in self.rules.clauses:
            tasks, most = largest.get(clause.number, (0, 0))
            cap = clause.rule.max_per_file
            if tasks and cap is not None and cap >= most:
                floors.append((clause.who.label, f"max_per_file: {cap:,}", tasks, most))
        floors += [
            (group.name, group.wanted, group.tasks, group.pool_rows)
            for group in self.forecast.solved.groups
            if group.wanted and group.binds == "pool"
        ]
        return floors

    def _idle(self) -> list[dict[str, str]]:
        return [{"rule": rule.label, "hidden_by": rule.hidden_by} for rule in self.rules.idle(self.forecast.names)]

    def _csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for line in self.forecast.tasks:
            values = line.to_json()
            writer.writerow([_rounded(values[column]) for column in _COLUMNS])
        return out.getvalue()

    def _json(self) -> str:
        data: dict[str, Any] = {
            "epochs": self.forecast.epochs,
            "total": self.forecast.total.to_json(),
            "groups": [line.to_json() for line in self.forecast.groups],
            "tasks": [line.to_json() for line in self.forecast.tasks],
            "not_binding": [dict(zip(("group", "cap", "tasks", "rows"), item, strict=True)) for item in self.floors()],
        }
        data["without_task"] = self._idle()
        if self.forecast.solved.scale is not None:
            data["scale"] = asdict(self.forecast.solved.scale)
        if self.ladder is not None:
            steps = [{**step.group.to_json(), "value": step.value} for step in self.ladder.steps]
            data["what_if"] = {**asdict(self.ladder), "steps": steps}
        if self.extends is not None:
            data["extends"] = self.extends
        if self.compared is not None:
            data["compared"] = [asdict(item) for item in self.compared]
        return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


def _scaled(scale: Scaled) -> str:
    what = "tokens" if scale.count == "all" else "response tokens"
    fits = f"it can have {math.ceil(scale.floor):,} to {math.floor(scale.ceiling):,}"
    return f"Caps are times {scale.factor:.6g}, so that an epoch has {scale.to:,} {what}: {fits}."


def _cells(line: Expected) -> tuple[Cell, ...]:
    return (
        line.tasks,
        line.pool_rows,
        line.unique_rows,
        round(line.rows),
        round(line.tokens),
        Percent(round(line.share, 9)),
        round(line.passes, 3),
        round(line.passes * line.epochs, 2),
        round(line.exposures, 2),
    )


def _differences(compared: Sequence[Difference]) -> Table:
    rows = [
        (
            item.name,
            round(item.before),
            round(item.after),
            f"{round(item.after - item.before):+,}",
            Percent(item.share_before),
            Percent(item.share_after),
        )
        for item in sorted(compared, key=lambda item: -abs(item.after - item.before))
    ]
    total = [sum(item.before for item in compared), sum(item.after for item in compared)]
    rows.append(("all", round(total[0]), round(total[1]), f"{round(total[1] - total[0]):+,}", Percent(1), Percent(1)))
    header = ("Group", "Tokens there", "Tokens here", "Difference", "Share there", "Share here")
    return Table("Compared, tokens an epoch", header, rows)


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
