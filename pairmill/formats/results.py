"""What a finished stage promises: the data of its manifest, as one dataclass a stage.

``finish`` returns ``to_data`` of one; reports and later stages read it with ``from_manifest``. Values are JSON-like.
A field with a default is left out of the manifest while it has that value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Self, TypeAlias

from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError

Rows: TypeAlias = Sequence[Mapping[str, Any]]
ByName: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The base of all."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Read the data of a manifest.

        Raises:
            InputError: it lacks what the stage promises.
        """
        result = cls.find(manifest)
        if result is None:
            lacking = [name for name, default in _defaults(cls).items() if default is MISSING]
            raise InputError(
                f"not a result of {cls.__name__.removesuffix('Result').lower()} of this version",
                where=f"{manifest.stage} {manifest.fingerprint}: data",
                got=", ".join(sorted(manifest.data)) or "nothing",
                expected=", ".join(lacking),
                hint="run that stage again",
            )
        return result

    @classmethod
    def find(cls, manifest: Manifest) -> Self | None:
        """Read the data of a manifest; None if it lacks what the stage promises."""
        defaults = _defaults(cls)
        if any(default is MISSING and name not in manifest.data for name, default in defaults.items()):
            return None
        return cls(**{name: manifest.data[name] for name in defaults if name in manifest.data})

    def to_data(self) -> dict[str, Any]:
        """Return the data of the manifest."""
        values = {name: getattr(self, name) for name in _defaults(type(self))}
        return {name: values[name] for name, default in _defaults(type(self)).items() if values[name] != default}


def _defaults(kind: type[Result]) -> dict[str, Any]:
    return {item.name: _default(item) for item in fields(kind)}


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


@dataclass(frozen=True, kw_only=True)
class CleanResult(Result):
    """Rows of each output file by path, those that are held out, and what became of each source."""

    outputs: Mapping[str, int]
    sources: Mapping[str, ByName]
    held_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RowsResult(Result):
    """Of a stage that chooses rows: by attribute and source how many rows have a value and their sum, before and after.

    A stage promises more in a manifest of its own; this is what the page over the line reads.
    """

    means: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SelectResult(RowsResult):
    """Rows that were selected, and by what."""

    settings: ByName


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerResult(Result):
    """The vocabulary.

    Attributes:
        asked: tokens that were asked for; ``vocab_size`` are there.
        tasks: rows and bytes of each task.
        merges: how many there are.
        growth: tokens, and bytes per token of a vocabulary of that size.
        longest: tokens, and their bytes.
        metrics: what Kubeflow compares.
    """

    asked: int
    tasks: Mapping[str, dict[str, int]]
    vocab_size: int
    merges: int
    growth: Sequence[Any]
    longest: Sequence[Any]
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class MixResult(Result):
    """The plan in numbers.

    Attributes:
        method: of the settings.
        budget: response tokens of the plan; ``asked`` is what the settings say, or None.
        unfilled: response tokens that the caps leave.
        epochs: of all phases.
        phases: ``PlannedPhase`` each.
        table: ``SourceRow`` of each source, by phase and for all of them.
        compared: whether an earlier mixture is shown beside it; ``gone`` are the sources that only that one has.
        tasks: source, rows and response tokens of each task.
    """

    method: str
    budget: float
    asked: float | None
    unfilled: float
    epochs: int
    phases: Rows
    table: Rows
    compared: bool
    gone: Sequence[str]
    tasks: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class SampleResult(Result):
    """What was drawn.

    Attributes:
        layout: of the arrays.
        analytics: the report's text.
        stats: ``analytics.Stats`` of each task.
        lengths, cuts: histograms of rows.
        sources: name and rows of each task, in the order of the plan.
        rules: the rule of each task, and in ``prefixes`` the prefix that it is of.
        idle_rules: prefixes of rules without a task.
        tokenizer_info: as text, in the order of the file.
        tokenizer: digest; empty = not known.
        mixture: what was drawn of a mixture, with the tasks of its sources.
        sample: the files of the arrays, once they were digested.
    """

    layout: Any
    analytics: str
    stats: Mapping[str, Mapping[str, int]]
    lengths: list[int]
    cuts: list[int]
    sources: Rows
    rules: Mapping[str, dict[str, Any]]
    prefixes: Mapping[str, str | None]
    idle_rules: Sequence[str]
    tokenizer_info: str
    tokenizer: str = ""
    mixture: ByName = field(default_factory=dict)
    sample: Rows = ()

    @property
    def source_of_task(self) -> dict[str, str]:
        """Return the source of the mixture that each task is of."""
        sources = self.mixture.get("sources", {})
        return {task: source for source, tasks in sources.items() for task in tasks}


@dataclass(frozen=True, kw_only=True)
class TrainResult(Result):
    """The run: ``summary.Facts``, and what ``summary.data_of`` read of metrics.jsonl."""

    net: str
    parameters: int
    vocab_size: int
    steps: int
    epochs: float | None
    precision: str
    attention: str
    devices: str
    device_count: int
    processes: int
    peak_flops: float
    price_per_hour: float
    ema_beta: float
    absent: Mapping[str, int]
    plan: str
    data: Mapping[str, str]
    sources: Mapping[str, float]
    profile: str
    settings: ByName
    differences: Mapping[str, Sequence[Any]]
    last: ByName
    end: Mapping[str, float]
    first_loss: float | None
    speed: ByName
    by_source: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, Sequence[Sequence[float]]]
    event_counts: Mapping[str, int]
    events: Rows
    samples: ByName


@dataclass(frozen=True, kw_only=True)
class EvaluateResult(Result):
    """The model, and what it scored and lost.

    Attributes:
        model: what it is.
        profile: of the settings.
        benchmarks: figures, data and generation of each.
        held_out: loss on held-out rows: ``table`` by source; None = not measured.
    """

    model: ByName
    profile: str
    benchmarks: Mapping[str, ByName]
    held_out: ByName | None


@dataclass(frozen=True, kw_only=True)
class CompareResult(Result):
    """Plans beside each other; with runs also what they lost (``pairmill.stages.compare.result``)."""

    plans: Rows
    common_sources: Sequence[str]
    changes: Rows
    tokenizers: int
    measure: str
    unit: str
    level: float
    budget: Any
    runs: Rows
    pairs: Rows
    frontier: Rows
    seeds: Sequence[int] = ()
    held_out: ByName = field(default_factory=dict)
    weights: str = ""
    parameters: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class SearchResult(Result):
    """Mixtures of proxies; with what these lost, the law and the mixture that loses least."""

    measure: str
    budget: float
    proxy_budget: float
    epochs: int
    sources: Rows
    axes: Rows
    earlier: bool
    runs: Sequence[Mapping[str, float]]
    fit: Any
    optimum: Any
    measured: Mapping[str, float] | None


def tokenizer_digest(manifest: Manifest) -> str:
    """Return the digest of the tokenizer of a tokenized or a sampled folder; empty = the manifest does not say it."""
    refs = [ref.fingerprint for ref in manifest.inputs if ref.role == "tokenizer"]
    return refs[0] if refs else str(manifest.data.get("tokenizer", ""))
