"""What the manifest of a finished run says of it: small, whatever its number of steps."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pairmill.formats.results import Rows
from pairmill.formats.training_results import TrainFacts, TrainResult
from pairmill.stages.train.watch.records import Line, numbers_of, perplexity, read

_POINTS: Final = 150
"""Of a curve: a chart is not wider than this many of them can be told apart on."""
_SOURCES: Final = 200
_CURVES: Final = 10
"""Sources that have curves: those with the most tokens."""
_EVENTS: Final = 200
_SAMPLES: Final = 12
_LAST: Final = 0.05
"""The loss at the end is the mean of the lines of this part of the run: that of one step follows its batch."""


class _Curve:
    """A number over steps, in buckets of equally many steps.

    Args:
        width: steps of a bucket.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._buckets: dict[int, list[float]] = {}

    def add(self, step: int, value: float) -> None:
        result = self._buckets.get((step - 1) // self._width)
        if result is None:
            self._buckets[(step - 1) // self._width] = [step, value, value, value, 1]
        else:
            result[0] = step
            result[1] += value
            result[2], result[3] = min(result[2], value), max(result[3], value)
            result[4] += 1

    def points(self) -> list[list[float]]:
        """Return the last step, mean, least and greatest value of each bucket."""
        return [
            [int(step), *map(_short, (total / count, low, high))]
            for step, total, low, high, count in self._buckets.values()
        ]


def summarise(metrics: Path, facts: TrainFacts, highest: Rows = ()) -> TrainResult:
    """Collect what the manifest promises: the facts, the last lines, events, and curves of at most 150 points.

    Args:
        metrics: the run's metrics.jsonl, from its first step to its last.
        facts: of the run.
        highest: the steps that stuck out the most, with the texts of rows.
    """
    width = max(1, math.ceil(facts.steps / _POINTS))
    curves: dict[str, _Curve] = {}
    last: Line = {}
    first: dict[str, float] = {}
    at_end: dict[str, list[float]] = {}
    events: list[Line] = []
    counts: dict[str, int] = {}
    samples: Line = {}
    speed = _Speed()
    for line in read(metrics):
        step = line["step"]
        if line["kind"] == "event":
            counts[line["event"]] = counts.get(line["event"], 0) + 1
            events.append({name: value for name, value in line.items() if name not in {"kind", "time"}})
        elif line["kind"] == "sample":
            samples = line
        else:
            numbers = numbers_of(line)
            speed.add(step, numbers)
            last |= {"step": step, **numbers}
            for name, value in numbers.items():
                first.setdefault(name, value)
                if not name.startswith(("tokens/", "labels/")):
                    curves.setdefault(name, _Curve(width)).add(step, value)
                if step > (1 - _LAST) * facts.steps:
                    at_end.setdefault(name, []).append(value)
    end = {name: sum(values) / len(values) for name, values in at_end.items()}
    sources = _sources(last, first, end, facts)
    drawn = {name for name in curves if "/" not in name}
    drawn |= {name for name in curves if name.partition("/")[2] in list(sources)[:_CURVES]}
    return TrainResult(
        **vars(facts),
        last=last,
        end={name: end[name] for name in ("loss", "accuracy", "exact_accuracy") if name in end},
        first_loss=first.get("loss"),
        speed=speed.summarise(facts.peak_flops),
        by_source=dict(list(sources.items())[:_SOURCES]),
        curves={name: curves[name].points() for name in sorted(drawn)},
        event_counts=counts,
        events=[item for item in events if item["event"] not in {"begun", "finished", "outlier"}][:_EVENTS],
        samples={"step": samples["step"], "texts": samples["samples"][:_SAMPLES]} if samples else {},
        highest=[{name: value for name, value in item.items() if name != "before"} for item in highest],
    )


def _sources(
    last: Mapping[str, float], first: Mapping[str, float], end: Mapping[str, float], facts: TrainFacts
) -> dict[str, dict[str, float]]:
    """Collect by source: tokens, labels, and losses where there are any; those with the most tokens first."""
    result: dict[str, dict[str, float]] = {name: {} for name in facts.sources}
    for key, value in last.items():
        kind, _, name = key.partition("/")
        if name:
            result.setdefault(name, {})[kind] = value
    for name, each in result.items():
        if f"loss/{name}" in first:
            each["first_loss"] = first[f"loss/{name}"]
            each["loss"] = end.get(f"loss/{name}", last[f"loss/{name}"])
        if name in facts.sources:
            each["planned"] = facts.sources[name]
    return dict(sorted(result.items(), key=lambda item: (-item[1].get("tokens", 0), item[0])))


class _Speed:
    """Seconds of training without evaluation, added up from the rates of the lines."""

    def __init__(self) -> None:
        self._step, self._seconds, self._waited = 0, 0.0, 0.0
        self._tokens: float = 0
        self._flops: float = 0

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        if "step_s" in numbers:
            steps, self._step = step - self._step, step
            self._seconds += steps * numbers["step_s"]
            self._waited += steps * numbers["wait_s"]
            self._tokens, self._flops = numbers["tokens"], numbers["flops"]

    def summarise(self, peak: float) -> dict[str, float]:
        if not self._seconds:
            return {}
        return {
            "seconds": _short(self._seconds),
            "tokens_per_s": _short(self._tokens / self._seconds),
            "wait_share": _short(self._waited / self._seconds),
            **({"mfu": _short(self._flops / self._seconds / peak)} if peak else {}),
        }


def metrics_of(result: TrainResult) -> dict[str, float]:
    """Return the numbers that Kubeflow compares between runs (pairmill/engine/metrics.py says what each is)."""
    last, end, speed = result.last, result.end, result.speed
    results = {
        **end,
        **({"perplexity": perplexity(end["loss"])} if "loss" in end else {}),
        **{name: last.get(name) for name in _KUBEFLOW},
        **{name: speed.get(name) for name in ("tokens_per_s", "mfu")},
        "steps": last.get("step"),
        "parameters": result.parameters,
    }
    return {name: value for name, value in results.items() if value is not None}


_KUBEFLOW: Final = (
    "heldout_loss",
    "heldout_perplexity",
    "heldout_ema_loss",
    "heldout_ema_perplexity",
    "tokens",
    "labels",
    "flops",
)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
