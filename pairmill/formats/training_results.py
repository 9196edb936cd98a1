"""What finished trainings and what follows from them promise, as :mod:`pairmill.formats.results` says it of the stages.

Apart from those, as a sample starts without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.engine.results import Result, empty, left_out
from pairmill.formats.results import ByName, Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainFacts(Result):
    """What the loop and its configuration know of a run beside metrics.jsonl.

    Args:
        parameters: trained numbers.
        net: its name and size, e.g. ``hrm`` or ``hrm B``.
        vocab_size: padded vocabulary.
        steps: T, planned steps.
        epochs: of the plan that are trained on, where known.
        precision, attention: what was chosen at start, e.g. ``bfloat16``, ``flex``.
        devices: what it ran on, e.g. ``8 x NVIDIA H100``; of the last attempt.
        device_count: processes of the last attempt; for hours of devices.
        processes: their number, where losses follow from it; 0 = they do not.
        peak_flops: of all devices together, per second; 0 = not known.
        price_per_hour: of one device; 0 = not known.
        ema_beta: of the averaged weights; 0 = none.
        absent: parameters without a gradient → steps in which they had none.
        plan: digest of the data's plan.
        data: what is read: a name → text, in order (kind, path or Hub id, revision, manifest's fingerprint, mixture).
        sources: source → share of tokens that the plan or mixture promises; may be empty.
        settings: all settings (`TrainSettings.to_manifest()`).
        differences: setting → (the profile's value, this run's), where they differ.
    """

    parameters: int
    net: str = ""
    vocab_size: int = 0
    steps: int = 0
    epochs: float | None = None
    precision: str = ""
    attention: str = ""
    devices: str = ""
    device_count: int = 1
    processes: int = 0
    peak_flops: float = 0.0
    price_per_hour: float = 0.0
    ema_beta: float = 0.0
    absent: Mapping[str, int] = empty()
    plan: str = ""
    data: Mapping[str, str] = empty()
    sources: Mapping[str, float] = empty()
    profile: str = ""
    settings: ByName = empty()
    differences: Mapping[str, Sequence[Any]] = empty()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainResult(TrainFacts):
    """The run, and what ``summary.summarise`` read of metrics.jsonl.

    Attributes:
        last: the last value of each number; ``first_loss`` the first loss.
        end: means over the end of the run.
        speed: of training without evaluation.
        by_source: tokens, labels and losses.
        curves: points of each number.
        event_counts, events: what happened.
        samples: the last texts that were generated, and their step.
        highest: the steps whose loss or gradient norm stuck out the most, and ``texts`` of rows that they had.
    """

    last: ByName
    end: Mapping[str, float] = empty()
    first_loss: float | None = None
    speed: ByName = empty()
    by_source: Mapping[str, Mapping[str, float]] = empty()
    curves: Mapping[str, Sequence[Sequence[float]]] = empty()
    event_counts: Mapping[str, int] = empty()
    events: Rows = ()
    samples: ByName = empty()
    highest: Rows = left_out(())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExportResult(Result):
    """What was exported.

    Attributes:
        to: the form.
        splits, sources: rows and tokens of each.
        facts: of each source, as manifests of the line say them.
        tokenizer_info: of tokens.
    """

    to: str
    splits: Mapping[str, ByName]
    sources: Mapping[str, ByName] = empty()
    facts: Mapping[str, ByName] = empty()
    tokenizer_info: ByName = empty()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluateResult(Result):
    """The model, and what it scored and lost.

    Attributes:
        model: what it is.
        profile: of the settings.
        benchmarks: figures, data and generation of each.
        held_out: loss on held-out rows: ``table`` by source; None = not measured.
    """

    benchmarks: Mapping[str, ByName]
    model: ByName = empty()
    profile: str = ""
    held_out: ByName | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
    seeds: Sequence[int] = left_out(())
    held_out: ByName = left_out({})
    weights: str = left_out("")
    parameters: Sequence[int] = left_out(())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
