"""What the runs made: losses of held-out rows, scores, compute; read, and checked to be paired."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError
from pairmill.formats.settings_file import differences
from pairmill.formats.training_results import TrainResult
from pairmill.stages.compare.measures import mean_loss

_ROWS, _RESULTS, _METRICS = "held_out/rows.npy", "results.json", "metrics.jsonl"
_ROW = ("row", "source", "tokens", "bytes")
_POINTS = 60


@dataclass(frozen=True)
class Point:
    """The held-out loss while a run trained, with its averaged weights where it has some."""

    step: int
    tokens: int
    flops: float
    loss: float


@dataclass(frozen=True)
class Run:
    """A training and its evaluation.

    Attributes:
        plan: name of it.
        settings: of the training, without its seed and length; the version of the stage that trained, and the number of
            processes if losses follow from it.
        flops, tokens, labels, steps, parameters: of the training.
        curve: while it trained.
        sources: of held-out rows, by their numbers.
        rows: of them (``pairmill.stages.evaluate.held_out.KIND``).
        exact: whether bytes of responses are exact.
        benchmarks: verdict of each question by benchmark: right, and whether a plan's rows have it.
        figures: of each benchmark.
        digests: of both results.
    """

    plan: str
    seed: int
    settings: Mapping[str, Any]
    flops: float
    tokens: int
    labels: int
    steps: int
    parameters: int
    curve: Sequence[Point]
    sources: Sequence[str]
    rows: NDArray[Any]
    exact: bool
    benchmarks: Mapping[str, float]
    unseen: Mapping[str, float]
    questions: Mapping[str, int]
    weights: str
    digests: tuple[str, str]

    @classmethod
    def read(cls, asked: Mapping[str, str], trained: str, evaluated: str) -> Run:
        """Return the run that was asked for, from the folders of both stages.

        Raises:
            InputError: one is missing, damaged or of another run.
        """
        trained, run = manifests.read_result(trained, "trained", "train")
        evaluated, evaluation = manifests.read_result(evaluated, "evaluated", "evaluate")
        result = TrainResult.from_manifest(run)
        settings = dict(copy.deepcopy(result.settings))
        settings |= {"version of train": run.version, "processes": result.processes}
        seed = settings["training"].pop("seed")
        for name in ("tokens", "steps", "epochs"):
            settings["training"].pop(name)
        if seed != int(asked["seed"]):
            raise InputError(
                "another run than the one that is compared",
                where=f"trained: {trained}",
                got=f"seed {seed}",
                expected=f"plan {asked['plan']}, seed {asked['seed']}",
                hint="give trained= and evaluated= in the order of the output runs",
            )
        if not any(file.path == _ROWS for file in evaluation.files):
            hint = "evaluate with held_out="
            raise InputError("no loss of held-out rows", where=f"evaluated: {evaluated}", expected=_ROWS, hint=hint)
        rows = np.load(io.BytesIO(manifests.read_file(evaluated, evaluation, _ROWS)), allow_pickle=False)
        results = json.loads(manifests.read_file(evaluated, evaluation, _RESULTS))
        tables = results["benchmarks"]
        last = result.last
        return cls(
            plan=asked["plan"],
            seed=seed,
            settings=settings,
            flops=float(last["flops"]),
            tokens=int(last["tokens"]),
            labels=int(last["labels"]),
            steps=int(result.steps),
            parameters=int(result.parameters),
            curve=_curve(manifests.read_file(trained, run, _METRICS)),
            sources=results["held_out"]["sources"],
            rows=rows,
            exact=bool(results["held_out"]["exact"]),
            benchmarks={name: float(item["all"]["figure"]) for name, item in tables.items()},
            unseen={name: float(item["unseen"]["figure"]) for name, item in tables.items() if item["unseen"]},
            questions={name: int(item["all"]["n"]) for name, item in tables.items()},
            weights=str(results["model"].get("weights", "")),
            digests=(run.fingerprint, evaluation.fingerprint),
        )

    def loss(self, sources: Sequence[str] | None = None, *, by_bytes: bool = False) -> float:
        """Return the loss of the held-out rows of these sources; None = all."""
        numbers = None if sources is None else [at for at, name in enumerate(self.sources) if name in sources]
        return mean_loss(self.rows, numbers, by_bytes=by_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without rows."""
        return {
            "plan": self.plan,
            "seed": self.seed,
            "train": self.digests[0],
            "evaluate": self.digests[1],
            "flops": self.flops,
            "tokens": self.tokens,
            "response_tokens": self.labels,
            "steps": self.steps,
            "curve": [asdict(point) for point in self.curve],
        }


def _curve(metrics: bytes) -> list[Point]:
    """Return tokens and FLOPs of a step are those of the line before the held-out loss, or of the step itself."""
    result: list[Point] = []
    tokens, flops = 0, 0.0
    for line in map(json.loads, metrics.splitlines()):
        if line["kind"] == "step":
            tokens, flops = line["tokens"], line["flops"]
        elif line["kind"] == "heldout":
            loss = line.get("heldout_ema_loss", line["heldout_loss"])
            if loss is not None:
                result.append(Point(line["step"], tokens, flops, loss))
    every = -(-len(result) // _POINTS) or 1
    return result[:-1][::every] + result[-1:]


def read_all(
    asked: Sequence[Mapping[str, str]], trained: Sequence[str], evaluated: Sequence[str], *, tokenizers: int
) -> list[Run]:
    """Return all runs, which are then known to be paired.

    Args:
        asked: the runs that there should be.
        trained, evaluated: URIs, in their order.
        tokenizers: how many the plans have: of several, rows are not compared one by one.

    Raises:
        InputError: there are others than were asked for, or they cannot be compared.
    """
    if len(trained) != len(asked):
        raise InputError(
            "not the runs that are compared",
            where="trained",
            got=f"{len(trained)} runs",
            expected=f"{len(asked)}, in the order of the output runs",
        )
    runs = [Run.read(item, *pair) for item, *pair in zip(asked, trained, evaluated, strict=True)]
    first = runs[0]
    for run in runs[1:]:
        where = f"plan {run.plan}, seed {run.seed}"
        if run.settings != first.settings:
            result = sorted(differences(run.settings, first.settings).items())
            got = ", ".join(f"{name} {here} (else {there})" for name, (there, here) in result)
            raise InputError("trained with other settings", where=where, got=got, expected="one configuration")
        if run.weights != first.weights:
            raise InputError("evaluated with other weights", where=where, got=run.weights, expected=first.weights)
        if tokenizers == 1:
            same = all(np.array_equal(run.rows[name], first.rows[name]) for name in _ROW)
        else:
            same = len(run.rows) == len(first.rows) and run.rows["bytes"].sum() == first.rows["bytes"].sum()
        if not same or list(run.sources) != list(first.sources):
            raise InputError(
                "evaluated on other held-out rows",
                where=where,
                got=f"{len(run.rows):,} rows of {', '.join(run.sources)}",
                expected=f"those of plan {first.plan}, seed {first.seed}: {len(first.rows):,}",
                hint="give all runs one held_out=",
            )
        if run.questions != first.questions:
            got, expected = (", ".join(f"{name} {n}" for name, n in item.questions.items()) for item in (run, first))
            raise InputError("asked other questions", where=where, got=got, expected=expected)
    return runs
