"""Metrics of texts, and bounds for them: lengths, shares of characters, words and lines, repetition.

docs/curation.md has their definitions. Metrics are of raw texts, each an attribute: ``i_`` of the instruction, ``r_``
of the response, ``j_`` of both joined by a line feed, ``p_`` of the pair. Metrics of an empty text are null, and so are
those of a pair with an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill import arrow_compute as pc
from pairmill.errors import UsageError
from pairmill.fields import NAME, Checked, setting
from pairmill.formats import rows
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import Mode, Reasons, Rule, ScoredOperation

VERSION: Final = 1

Field: TypeAlias = Literal["instruction", "response", "joined"]
Profile: TypeAlias = Literal["pairs", "seed_web", "gopher", "none"]

_PREFIXES: Final[Mapping[str, str]] = {"instruction": "i_", "response": "r_", "joined": "j_"}
PAIR: Final[Mapping[str, str]] = {
    "p_response_instruction_ratio": "number",
    "p_copy_ratio": "number",
    "p_same": "integer",
}
"""Metrics of a pair and their types; ``p_same`` is 1 or 0."""


def _metrics() -> dict[str, str]:
    kinds = _native.curate_metrics(pa.nulls(0, pa.string()))  # pa.array() would import pandas
    return {name: "integer" if values.dtype == np.int64 else "number" for name, values in kinds.items()}


METRICS: Final[Mapping[str, str]] = _metrics()
"""Metrics of a text and their types."""


@dataclass(frozen=True, kw_only=True)
class Condition(Checked):
    """Which rows a rule looks at."""

    metric: str = setting(help="of the rule's field", choices=tuple(METRICS))
    min: float = setting(help="the least value of a row that the rule looks at")


@dataclass(frozen=True, kw_only=True)
class HeuristicRule(Checked, any_of=("min", "max")):
    """Bounds of a metric; a value on a bound is kept."""

    metric: str = setting(
        help="such as url_ratio, or of pairs p_same, p_copy_ratio, p_response_instruction_ratio",
        choices=(*METRICS, *PAIR),
    )
    field: Field = setting("response", help="instruction, response or joined; of no meaning for pairs")
    min: float | None = setting(None, help="least value that is kept")
    max: float | None = setting(None, help="greatest value that is kept")
    if_: Condition | None = setting(
        None, help="look only at rows where another metric of the field has at least a value: {metric: words, min: 50}"
    )
    name: str = setting(
        "",
        help="in decisions and in the ledger; empty = made of field, metric and bound, such as r_url_ratio_max",
        form=NAME,
    )

    def rules(self) -> list[Rule]:
        """Return the same as rules, without a name of its own one for each bound."""
        prefix = _PREFIXES[self.field]
        column = self.metric if self.metric in PAIR else prefix + self.metric
        when = (prefix + self.if_.metric, self.if_.min) if self.if_ is not None else None
        if self.name:
            return [Rule(self.name, column, self.min, self.max, when=when)]
        made = []
        if self.min is not None:
            made.append(Rule(f"{column}_min", column, min=self.min, when=when))
        if self.max is not None:
            made.append(Rule(f"{column}_max", column, max=self.max, when=when))
        return made


def _bounds(field: Field, **bounds: tuple[float | None, float | None]) -> tuple[HeuristicRule, ...]:
    return tuple(HeuristicRule(metric=name, field=field, min=least, max=most) for name, (least, most) in bounds.items())


PROFILES: Final[Mapping[str, tuple[HeuristicRule, ...]]] = {
    "none": (),
    "pairs": (
        *_bounds("response", url_ratio=(None, 0.2), dup_10gram_char_frac=(None, 0.3)),
        HeuristicRule(metric="char_rep_ratio", max=0.5, if_=Condition(metric="words", min=50)),
        *_bounds("response", max_word_length=(None, 1000), symbol_ratio=(None, 0.6), p_same=(None, 0)),
        *_bounds("instruction", words=(None, 100_000)),
    ),
    "seed_web": _bounds(
        "joined", non_alnum_ratio=(None, 0.25), digit_ratio=(None, 0.15), url_ratio=(None, 0.2), words=(50, 100_000)
    ),
    "gopher": _bounds(
        "response",
        words=(50, 100_000),
        mean_word_length=(3, 10),
        hash_word_ratio=(None, 0.1),
        ellipsis_word_ratio=(None, 0.1),
        bullet_line_ratio=(None, 0.9),
        ellipsis_line_ratio=(None, 0.3),
        alpha_word_ratio=(0.8, None),
        stop_words=(2, None),
        dup_line_frac=(None, 0.3),
        dup_para_frac=(None, 0.3),
        dup_line_char_frac=(None, 0.2),
        dup_para_char_frac=(None, 0.2),
        top_2gram_char_frac=(None, 0.2),
        top_3gram_char_frac=(None, 0.18),
        top_4gram_char_frac=(None, 0.16),
        dup_5gram_char_frac=(None, 0.15),
        dup_6gram_char_frac=(None, 0.14),
        dup_7gram_char_frac=(None, 0.13),
        dup_8gram_char_frac=(None, 0.12),
        dup_9gram_char_frac=(None, 0.11),
        dup_10gram_char_frac=(None, 0.1),
    ),
}
"""Rules by name. The bound of ``seed_web`` on perplexity is the default of the operation ``perplexity``."""

# An override for web pages may ask for seed_web where the settings above it do not. These metrics cost little.
_ALWAYS_JOINED: Final = tuple(f"j_{rule.metric}" for rule in PROFILES["seed_web"])


@dataclass(frozen=True, kw_only=True)
class HeuristicsSettings(Checked):
    """Metrics of texts with bounds."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "profile", "rules")

    mode: Mode = setting("report", help="drop, report or off")
    profile: Profile = setting(
        "pairs",
        help="pairs; seed_web (the bounds of data_io, for web pages); gopher (the bounds of Gopher, for prose); none",
    )
    rules_: list[HeuristicRule] = setting(
        [],
        help="items {metric, field, min, max, if, name} after those of the profile; one of an equal name replaces it",
    )
    metrics: Literal["all", "rules"] = setting("all", help="all, or only those that the rules ask for")

    def __post_init__(self) -> None:
        super().__post_init__()
        names: dict[str, int] = {}
        for number, own in enumerate(self.rules_, 1):
            for rule in own.rules():
                if names.setdefault(rule.name, number) != number:
                    where, expected = f"rules[{number}]", "a distinct name for each"
                    raise UsageError(f"duplicate name {rule.name!r}", where=where, expected=expected)

    def rules(self) -> list[Rule]:
        """Return all rules in the order in which they are asked."""
        made = {rule.name: rule for item in (*PROFILES[self.profile], *self.rules_) for rule in item.rules()}
        return list(made.values())

    def scorers(self, root: str, variants: Sequence[HeuristicsSettings] = ()) -> list[Scorer]:
        """Return what computes the metrics.

        Args:
            root: unused; there are no files.
            variants: the settings of overrides, whose rules may ask for further metrics.
        """
        asked = [rule for item in (self, *variants) if item.mode != "off" for rule in item.rules()]
        needed = {name for rule in asked for name in (rule.attribute, rule.when[0] if rule.when else rule.attribute)}
        if self.metrics == "all":
            needed |= {*(f"{prefix}{name}" for prefix in ("i_", "r_") for name in METRICS), *PAIR, *_ALWAYS_JOINED}
        order = [*(f"{prefix}{name}" for prefix in _PREFIXES.values() for name in METRICS), *PAIR]
        return [HeuristicsScorer(tuple(name for name in order if name in needed))]


@dataclass(frozen=True)
class HeuristicsScorer(Scorer):
    """Computes metrics."""

    operation: ClassVar[str] = "heuristics"

    columns: tuple[str, ...] = setting(help="those wanted, as ``i_words`` or ``p_same``")

    def identity(self) -> list[Any]:
        return [VERSION, _native.curate_unicode()]

    def types(self) -> dict[str, str]:
        return {name: PAIR.get(name) or METRICS[name[2:]] for name in self.columns}

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        yield self._score

    def _score(self, batch: rows.Batch) -> Scored:
        result: dict[str, pa.Array] = {}
        instruction, response = (column.fill_null("") for column in (batch.instruction, batch.response))
        for prefix, texts in (("i_", instruction), ("r_", response), ("j_", None)):
            wanted = [name[2:] for name in self.columns if name.startswith(prefix)]
            if not wanted:
                continue
            measured = texts if texts is not None else joined(instruction, response)
            values = _native.curate_metrics(measured, wanted)
            empty = _is_empty(measured)
            result |= {f"{prefix}{name}": pa.array(values[name], mask=empty) for name in wanted}
        if any(name in PAIR for name in self.columns):
            pairs = _native.curate_pair_metrics(instruction, response)
            empty = _is_empty(instruction) | _is_empty(response)
            for name, column in pairs.items():
                numbers = column.astype(np.int64) if column.dtype == np.bool_ else column
                result[f"p_{name}"] = pa.array(numbers, mask=empty)
        return Scored([result[name] for name in self.columns])


def joined(instruction: pa.Array, response: pa.Array) -> pa.Array:
    """Both texts with a line feed between them, or the one that is not empty."""
    both = ~(_is_empty(instruction) | _is_empty(response))
    between = pc.if_else(pa.array(both), "\n", "").cast(response.type)
    return pc.binary_join_element_wise(instruction.cast(response.type), between, response, pa.scalar("", response.type))


def _is_empty(texts: pa.Array) -> NDArray[np.bool_]:
    lengths: NDArray[np.int64] = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return np.equal(lengths, 0)


class _Heuristics(ScoredOperation[HeuristicsSettings]):
    def scorers(self, variants: Sequence[HeuristicsSettings], root: str) -> list[Scorer]:
        return variants[0].scorers(root, variants)


HEURISTICS: Final = _Heuristics(
    name="heuristics",
    settings=HeuristicsSettings,
    help="metrics of texts with bounds",
    reasons=Reasons("heuristic:{rule}"),
    counts_shown=(),
)
