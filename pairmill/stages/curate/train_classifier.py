"""``pairmill curate train_classifier``: a logit classifier of good and poor rows, and a report on it.

The same rows give the same bytes on every machine: which rows are taken and held back follows from their names, their
order is fixed, and the arithmetic is ``rust/core/src/curate/logit.rs``.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pairmill import _native, log, storage
from pairmill.engine.options import option
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.fields import Checked
from pairmill.formats import row_files, rows
from pairmill.report.model import Percent, Report, Table, describe_names
from pairmill.stages.curate.scores.fields import Field, columns_of
from pairmill.stages.curate.scores.logit import Logit

_END: Final = ".npz"
_BINS: Final = 10
_STRONGEST: Final = 30
_TERMS: Final = 3


@dataclass(kw_only=True)
class TrainConfig(Checked):
    """Train a classifier that tells rows like the positives from rows like the negatives."""

    positives: list[str] = option(
        help="folders or URIs of rows (.jsonl, .parquet) that are good, joined by commas", filled=True
    )
    negatives: list[str] = option(help="the same of rows that are poor, or of all rows", filled=True)
    output: str = option(
        help="path or URI of the classifier, <name>.npz; <name>.html and <name>.md report on it",
        form=(r".*\.npz", f"<name>{_END}"),
    )
    field: Field = option("response", help="instruction, response or both; write the same in curate_config.yaml")
    rows: int = option(50_000, help="at most this many rows of each side, drawn by seed", at_least=2, at_most=1 << 40)
    held_back: float = option(0.2, help="share of the rows that are not trained on but measured", at_least=0, below=1)
    buckets: int = option(10_000, help="buckets of hashed words and n-grams", at_least=2, at_most=1 << 24)
    ngrams: int = option(2, help="longest n-gram in words, 1 to 64", at_least=1, at_most=64)
    seed: int = option(0, help="of which rows are drawn and which are held back", at_least=0, at_most=1 << 53)


class Example(NamedTuple):
    """A row: its side, task, ordinal and texts."""

    positive: bool
    task: str
    ordinal: int
    texts: tuple[str, ...]


def share_of(row_id: str, seed: int, salt: str) -> float:
    """Return a number in (0, 1) that follows from a row and nothing else (spec curation, 0.5)."""
    drawn = xxhash.xxh3_64_intdigest(f"{salt}\t{row_id}".encode(), seed=seed)
    return float((drawn >> 11) + 0.5) * 2.0**-53


def train(config: TrainConfig) -> str:
    """Train, write the classifier and its report, and return the classifier's URI.

    Raises:
        InputError: a side has no rows, or none is left to train on.
    """
    output = storage.normalise(config.output, "output")
    examples = [*_drawn(config, True), *_drawn(config, False)]
    held = np.array([_row_share(item, config.seed, "held_back") < config.held_back for item in examples], np.bool_)
    positive = np.array([item.positive for item in examples], np.bool_)
    for name, wanted in (("positives", True), ("negatives", False)):
        if not (~held & (positive == wanted)).any():
            raise InputError("no row is left to train on", where=name, hint="give more rows, or a smaller held_back=")
    columns = [pa.array(texts, pa.large_string()) for texts in zip(*(item.texts for item in examples), strict=True)]
    chosen = [column.filter(pa.array(~held)) for column in columns]
    counts = _native.curate_bucket_counts(chosen, config.ngrams, config.buckets)
    log.event(f"train_classifier: {int((~held).sum()):,} rows, {len(counts[1]):,} features")
    weights, bias = _native.curate_logit_train(*counts, positive[~held], config.buckets)
    logit = Logit(weights.astype(np.float32), np.float32(bias), config.ngrams)
    measured = np.flatnonzero(held)
    result = logit.probabilities([column.take(pa.array(measured)) for column in columns])
    report = _report(config, logit, chosen, [examples[at] for at in measured.tolist()], result, int((~held).sum()))
    store = storage.store_for(output)
    name = output.removesuffix(_END)
    store.write(f"{name}.html", report.html().encode())
    store.write(f"{name}.md", report.markdown().encode())
    # Last: where there is a classifier, there is its report.
    store.write(output, logit.dump())
    for line in [report.verdict, *report.look_at]:
        log.event(f"train_classifier: {line}")
    return f"{output}\n"


def _row_share(example: Example, seed: int, salt: str) -> float:
    return share_of(f"{example.task}:{example.ordinal}", seed, salt)


def _drawn(config: TrainConfig, positive: bool) -> list[Example]:
    """Return the rows of a side with the smallest shares, in the order of tasks and rows."""
    option_name = "positives" if positive else "negatives"
    held: list[tuple[float, Example]] = []
    for example in _examples(getattr(config, option_name), option_name, config.field, positive):
        # Negative, so that the heap gives up the largest.
        entry = (-_row_share(example, config.seed, "rows"), example)
        if len(held) < config.rows:
            heapq.heappush(held, entry)
        elif entry > held[0]:
            heapq.heapreplace(held, entry)
    return sorted((example for _, example in held), key=lambda example: (example.task, example.ordinal))


def _examples(uris: Sequence[str], option_name: str, field: Field, positive: bool) -> Iterator[Example]:
    for file in row_files.discover(uris, option_name).files:
        for batch in rows.read(file.uri, content=file.content):
            rows.refuse_nulls(batch, file.uri)
            texts = zip(*(column.to_pylist() for column in columns_of(batch, field)), strict=True)
            for ordinal, of_row in enumerate(texts, batch.start):
                yield Example(positive, file.task, ordinal, of_row)


def auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return how often a positive row has the higher probability of a pair; half a time where both have the same."""
    _, place = np.unique(scores, return_inverse=True)
    ups = np.bincount(place[positive], minlength=int(place.max(initial=-1)) + 1)
    downs = np.bincount(place[~positive], minlength=len(ups))
    below = np.cumsum(downs) - downs
    pairs = int(ups.sum()) * int(downs.sum())
    return (2 * int((ups * below).sum()) + int((ups * downs).sum())) / (2 * pairs) if pairs else math.nan


def _report(
    config: TrainConfig,
    logit: Logit,
    columns: Sequence[pa.Array],
    held: Sequence[Example],
    scores: NDArray[np.float64],
    trained: int,
) -> Report:
    positive = np.array([item.positive for item in held], np.bool_)
    right = (scores >= 0.5) == positive
    accuracy = Percent.ratio(int(right.sum()), len(held))
    area = auc(scores, positive)
    by_source = _by_source(held, scores, right)
    alone = [str(name) for name, up, down, *_ in by_source if not up or not down]
    look_at = []
    if not held:
        look_at.append("No row was held back, so nothing was measured.")
    if alone and len(by_source) > 1:
        look_at.append(
            f"{describe_names(alone)}: on one side only. The classifier may have learnt the source, not the quality."
        )
    return Report(
        "train_classifier",
        {
            "rows trained on": trained,
            "rows held back": len(held),
            "accuracy": accuracy,
            "AUC": "–" if math.isnan(area) else f"{area:.4f}",
            "buckets": config.buckets,
            "field": config.field,
        },
        [
            Table(
                "Accuracy by source",
                ("source", "positives", "negatives", "accuracy", "mean probability"),
                by_source,
                "A classifier that has learnt the source is right about whole sources, whatever their rows.",
            ),
            Table("Calibration", ("probability", "rows", "mean", "positives"), _calibration(scores, positive)),
            *_strongest(config, logit, columns),
        ],
        verdict=f"{trained:,} rows trained on; of {len(held):,} held back {accuracy} are right.",
        look_at=look_at,
    )


def _by_source(
    held: Sequence[Example], scores: NDArray[np.float64], right: NDArray[np.bool_]
) -> list[tuple[str, int, int, Percent, str]]:
    places: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(held):
        places[source_of(item.task)].append(at)
    table = []
    for source, rows_of in sorted(places.items()):
        ups = sum(held[item].positive for item in rows_of)
        mean = math.fsum(scores[rows_of].tolist()) / len(rows_of)
        table.append(
            (source, ups, len(rows_of) - ups, Percent.ratio(int(right[rows_of].sum()), len(rows_of)), f"{mean:.3f}")
        )
    return table


def _calibration(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> list[tuple[str, int, str, Percent]]:
    place = np.minimum((scores * _BINS).astype(np.int64), _BINS - 1)
    table = []
    for number in range(_BINS):
        mine = place == number
        rows_in = int(mine.sum())
        mean = f"{math.fsum(scores[mine].tolist()) / rows_in:.3f}" if rows_in else "–"
        span = f"{number / _BINS:.1f} to {(number + 1) / _BINS:.1f}"
        table.append((span, rows_in, mean, Percent.ratio(int(positive[mine].sum()), rows_in)))
    return table


def _strongest(config: TrainConfig, logit: Logit, columns: Sequence[pa.Array]) -> Iterator[Table]:
    """Yield the features that say most for either side, by the terms that are most often in their buckets."""
    order = np.argsort(logit.weights, kind="stable")
    sides = {
        "Strongest features of positives": [at for at in order[::-1][:_STRONGEST].tolist() if logit.weights[at] > 0],
        "Strongest features of negatives": [at for at in order[:_STRONGEST].tolist() if logit.weights[at] < 0],
    }
    wanted = np.array(sorted({at for side in sides.values() for at in side}), np.uint32)
    buckets, terms, counts = _native.curate_bucket_terms(columns, wanted, config.ngrams, config.buckets)
    names: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for bucket, term, count in zip(buckets.tolist(), pa.array(terms).to_pylist(), counts.tolist(), strict=True):
        names[bucket].append((-count, term))
    for title, side in sides.items():
        table = [
            (
                ", ".join(term for _, term in sorted(names[at])[:_TERMS]),
                sum(-count for count, _ in names[at]),
                f"{logit.weights[at]:+.3f}",
            )
            for at in side
        ]
        yield Table(title, ("terms of the bucket", "times", "weight"), table)
