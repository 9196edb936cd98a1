"""``pairmill evaluate table=<watched runs>``: checkpoints × metrics, as a table for people and as CSV.

Several runs join by tokens. An average is over the benchmarks that every run has, and over rows alone that have a
figure of each of them: a mean over others would move when a benchmark comes or goes.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

from pairmill import storage
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.evaluation.settings import LENIENT, STRICT
from pairmill.fields import Checked
from pairmill.formats.training_results import EvaluateResult
from pairmill.report.model import Report, Table

WATCHED: Final = ("evaluate", "watched")
"""Below a root, where watched runs have their figures, a folder each."""
RESULTS: Final = "results"
HEAD: Final = ("run", "step", "tokens", "epoch_fraction", "metric", "value", "n", "low", "high")
AVERAGE: Final = "average"
_MISSING: Final = "—"
_Z: Final = 1.96


@dataclass(kw_only=True)
class TableConfig(Checked):
    """Print the figures of watched runs: checkpoints and metrics, joined by tokens."""

    runs: list[str] = option(help="roots of watched runs, or folders of their figures, joined by commas")
    averages: list[str] = option(
        [], help="averages besides that of all, as mathematics:gsm8k+math, joined by commas; empty = none"
    )
    format: Literal["text", "csv"] = option("text", help="text, or csv: a line a figure, with its interval")


class Metric(NamedTuple):
    """A figure of a checkpoint.

    Attributes:
        metric: its name: a benchmark, with ``_strict``, ``_lenient`` or ``_invalid``; ``held_out_loss``, …
        value: None = not known.
        n: questions, or rows.
        low, high: its 95 % interval, where that is known.
        kind: ``figure`` of a benchmark, or ``other``.
    """

    metric: str
    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    kind: str = "other"


def metrics_of(result: EvaluateResult) -> list[Metric]:
    """Return the figures of an evaluation."""
    made = []
    for name, item in result.benchmarks.items():
        whole = item["all"]
        made.append(Metric(name, whole["figure"], whole["n"], whole["low"], whole["high"], "figure"))
        ways = [way for way in (STRICT, LENIENT) if way in whole["also"]]
        made += [Metric(f"{name}_{way}", whole["also"][way], whole["n"]) for way in ways]
        made.append(Metric(f"{name}_invalid", whole["invalid"], whole["n"]))
    if result.held_out is not None:
        whole = result.held_out["table"]["all"]
        for name in ("loss", "bits_per_byte"):
            value, error = whole[name], whole[f"{name}_error"]
            around = (value - _Z * error, value + _Z * error) if value is not None and error is not None else ()
            made.append(Metric(f"held_out_{name}", value, whole["rows"], *around))
    return made


def results_of(place: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the results of a watched run by step."""
    store = storage.store_for(place)
    for entry in store.list(storage.join(place, RESULTS)):
        yield int(entry.path[:8]), json.loads(store.read(storage.join(place, RESULTS, entry.path)))


@dataclass(frozen=True)
class Point:
    """A checkpoint of a run, and its figures by name."""

    run: str
    step: int
    tokens: int | None
    epoch: float | None
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class Curves:
    """The points of runs, by tokens, then by run and step.

    Args:
        points: of all runs.
        averages: names of the benchmarks of each average.
    """

    points: Sequence[Point]
    averages: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, places: Sequence[str], averages: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Read watched runs: URIs of folders, as the watcher makes them.

        Raises:
            UsageError: an average names a benchmark that no run has.
        """
        names = [storage.name_of(place) for place in places]
        runs = [name.partition("-")[0] for name in names]
        points = []
        for place, name, run in zip(places, names, runs, strict=True):
            for step, raw in results_of(place):
                metrics = {item[0]: Metric(*item) for item in raw["metrics"]}
                shown = run if runs.count(run) == 1 else name  # one run that was asked in two ways
                points.append(Point(shown, step, raw["tokens"], raw["epoch_fraction"], metrics))
        points.sort(key=lambda point: (point.tokens or 0, point.run, point.step))
        made = cls(points, dict(averages or {}))
        known = {name for point in points for name in point.metrics}
        for name, members in made.averages.items():
            for member in members:
                if member not in known:
                    expected = ", ".join(sorted(known))
                    raise UsageError("no such metric", where=f"averages: {name}", got=member, expected=expected)
        common = made._common()
        return cls(points, {**made.averages, **({AVERAGE: common} if len(common) > 1 else {})})

    def _benchmarks(self) -> list[str]:
        names = (metric for point in self.points for metric in point.metrics.values())
        return list(dict.fromkeys(metric.metric for metric in names if metric.kind == "figure"))

    def _common(self) -> list[str]:
        """Return the benchmarks that every run has."""
        by_run: dict[str, set[str]] = {}
        for point in self.points:
            by_run.setdefault(point.run, set()).update(point.metrics)
        return [name for name in self._benchmarks() if all(name in has for has in by_run.values())]

    def average(self, name: str, point: Point) -> float | None:
        """Return an average of a point; None if a member has no figure there."""
        values = [item.value for member in self.averages[name] if (item := point.metrics.get(member))]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(self.averages[name]) else None

    def csv(self) -> str:
        """Return a line a figure, under :data:`HEAD`."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for point in self.points:
            at = [point.run, point.step, point.tokens, point.epoch]
            for metric in point.metrics.values():
                if metric.value is not None:
                    writer.writerow([*at, metric.metric, metric.value, metric.n, metric.low, metric.high])
            for name, members in self.averages.items():
                value = self.average(name, point)
                if value is not None:
                    n = sum(point.metrics[member].n for member in members)
                    writer.writerow([*at, name, value, n, None, None])
        return file.getvalue()

    def newest(self) -> dict[str, float]:
        """Return the step, the tokens and the figures of the last checkpoint, by name; of none nothing."""
        if not self.points:
            return {}
        last = self.points[-1]
        known: dict[str, float | None] = {"step": last.step, "tokens": last.tokens}
        known |= {name: metric.value for name, metric in last.metrics.items()}
        known |= {name: self.average(name, last) for name in self.averages}
        return {name: value for name, value in known.items() if value is not None}

    def report(self) -> Report:
        """Return the table as a report."""
        head, *rows = self._grid()
        title = f"{len(rows):,} checkpoints"
        return Report("evaluate watch", self.newest(), [Table(title, head, rows, self._note())])

    def text(self) -> str:
        """Return a row a checkpoint and a column a figure, and under it what the average is of."""
        rows, note = self._grid(), self._note()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "".join(f"{line.rstrip()}\n" for line in [*lines, *([note] if note else [])])

    def _note(self) -> str:
        left_out = [name for name in self._benchmarks() if name not in self.averages.get(AVERAGE, [name])]
        return f"The average is without {', '.join(left_out)}, which not every run has." if left_out else ""

    def _grid(self) -> list[list[str]]:
        """Return the head of the table, and its rows."""
        columns = self._benchmarks()
        losses = {name for point in self.points for name in point.metrics if name.startswith("held_out_")}
        head = ["run", "step", "tokens", "epoch", *columns, *self.averages, *sorted(losses)]
        rows = [head]
        for point in self.points:
            tokens = _MISSING if point.tokens is None else f"{point.tokens:,}"
            epoch = _MISSING if point.epoch is None else f"{point.epoch:.2f}"
            shares = [_value(point, name) for name in columns] + [self.average(name, point) for name in self.averages]
            cells = [_MISSING if value is None else f"{100 * value:.1f}" for value in shares]
            others = [_value(point, name) for name in sorted(losses)]
            cells += [_MISSING if value is None else f"{value:.4f}" for value in others]
            rows.append([point.run, f"{point.step:,}", tokens, epoch, *cells])
        return rows


def _value(point: Point, name: str) -> float | None:
    metric = point.metrics.get(name)
    return metric.value if metric is not None else None


def table(config: TableConfig) -> str:
    """Return the table of watched runs, as text or as CSV.

    Raises:
        InputError: there is no watched run.
        UsageError: an average is not <name>:<benchmark>+<benchmark>.
    """
    places = [place for given in config.runs for place in _places(given)]
    averages: dict[str, list[str]] = {}
    for item in config.averages:
        name, colon, members = item.partition(":")
        if not colon or not name or not all(members.split("+")):
            raise UsageError("not an average", where="averages", got=item, expected="<name>:<benchmark>+<benchmark>")
        averages[name] = members.split("+")
    curves = Curves.read(places, averages)
    return curves.csv() if config.format == "csv" else curves.text()


def _places(given: str) -> list[str]:
    uri = storage.normalise(given, "table")
    store = storage.store_for(uri)
    if RESULTS in store.folders(uri):
        return [uri]
    top = storage.join(uri, *WATCHED)
    places = [storage.join(top, name) for name in store.folders(top)]
    places = [place for place in places if RESULTS in store.folders(place)]
    if not places:
        hint = "pairmill evaluate watch=<run> every=<steps> root=<project> makes them"
        raise InputError("no figures of a watched run", where=f"table={given}", got="none", hint=hint)
    return places
