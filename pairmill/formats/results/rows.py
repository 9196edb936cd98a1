"""What stages promise that choose rows, or learn from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.engine.results import Result, empty
from pairmill.formats.results import ByName, Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowsResult(Result):
    """Of a stage that chooses rows: by attribute and source how many rows have a value and their sum, before and after.

    A stage promises more in a manifest of its own; this is what the page over the line reads.
    """

    means: Mapping[str, Mapping[str, Sequence[float]]] = empty()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CurateResult(RowsResult):
    """What became of rows, and what each operation found (``curate.outcome.summarise``).

    Attributes:
        settings: of all operations.
        sources: rows, and those kept and dropped by reason, of each source.
        operations: mode, and counts by rule and source, of each operation and classifier.
        matrix: near duplicates by source and the kept row's source.
        benchmarks: items, those that rows repeat, and these rows.
        histograms: of attributes, by ``<operation>.<column>``.
        samples, closest: decisions with texts, by ``<operation>.<rule>``.
        costs: what each operation read, compared and wrote.
    """

    settings: ByName = empty()
    sources: Mapping[str, dict[str, Any]] = empty()
    operations: Mapping[str, dict[str, Any]] = empty()
    matrix: Mapping[str, Mapping[str, int]] = empty()
    benchmarks: Mapping[str, dict[str, Any]] = empty()
    histograms: Mapping[str, ByName] = empty()
    samples: Mapping[str, Rows] = empty()
    closest: Mapping[str, Rows] = empty()
    costs: Mapping[str, ByName] = empty()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SelectResult(RowsResult):
    """Rows that were selected, and by what (``select.summary.summarise``)."""

    settings: ByName
    method: str = ""
    mode: str = ""
    budget: ByName = empty()
    rows: int = 0
    candidates: int = 0
    chosen: int = 0
    outside: int = 0
    rankings: Rows = ()
    groups: ByName = empty()
    divergences: Mapping[str, ByName] = empty()
    lengths: ByName = empty()
    sources: Mapping[str, dict[str, Any]] = empty()
    samples: Mapping[str, ByName] = empty()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainTokenizerResult(Result):
    """The vocabulary.

    Attributes:
        asked: tokens that were asked for; ``vocab_size`` are there.
        tasks: rows and bytes of each task.
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
