"""What an operation does with what it finds, and the rules that compare attributes with bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Mode: TypeAlias = Literal["drop", "report", "off"]
"""Remove the rows that an operation finds, only report them, or do not run it."""

PiiMode: TypeAlias = Literal["redact", "report", "off"]


@dataclass(frozen=True)
class Rule:
    """Bounds of an attribute. A row breaks the rule if its value is outside; a null breaks no rule.

    Args:
        name: in decisions and in the ledger.
        attribute: the column; of a filter ``<operation>.<column>``.
        min: the least value that is kept; None = no bound.
        max: the greatest value that is kept; None = no bound.
        values: the texts or numbers that are kept; None = any.
        when: another column of the same operation and its least value; rows below, or with a null there, keep the rule.
    """

    name: str
    attribute: str
    min: float | None = None
    max: float | None = None
    values: tuple[str | int | float | bool, ...] | None = None
    when: tuple[str, float] | None = None

    @property
    def bounds(self) -> list[float | None]:
        """Least and greatest value, for a histogram."""
        return [self.min, self.max]

    def broken_by(self, column: pa.Array, when: pa.Array | None = None) -> NDArray[np.bool_]:
        """Return which rows break the rule; bool [rows].

        Args:
            column: the rule's attribute.
            when: the column that ``self.when`` names; it is required if there is one.
        """
        broken = np.zeros(len(column), np.bool_)
        if self.values is not None:
            allowed = set(self.values)
            at = column.dictionary_encode()
            wrong = np.array([item is not None and item not in allowed for item in at.dictionary.to_pylist()], np.bool_)
            codes = at.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            if len(wrong):
                broken |= np.where(codes >= 0, wrong[codes], False)
        if self.min is not None or self.max is not None:
            numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN, which breaks nothing
            with np.errstate(invalid="ignore"):
                broken |= numbers < (-np.inf if self.min is None else self.min)
                broken |= numbers > (np.inf if self.max is None else self.max)
        if self.when is not None:
            assert when is not None, self.when
            condition = when.cast(pa.float64()).to_numpy(zero_copy_only=False)
            with np.errstate(invalid="ignore"):
                broken &= condition >= self.when[1]
        return broken


def first_failing(rules: Sequence[Rule], columns: Mapping[str, pa.Array], rows: int) -> NDArray[np.intp]:
    """Return the index of the first rule that each row breaks, or -1; intp [rows].

    Args:
        rules: in the order in which they are asked.
        columns: by name: those of ``attribute`` and ``when``.
        rows: in each column.
    """
    first = np.full(rows, -1, np.intp)
    for index, rule in enumerate(rules):
        when = columns[rule.when[0]] if rule.when is not None else None
        first[(first < 0) & rule.broken_by(columns[rule.attribute], when)] = index
    return first


def detail_of(rule: Rule, value: object) -> str:
    """Return what a decision says of a broken rule: the value, rounded for people, and the bound."""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    if rule.values is not None and value not in rule.values:
        return f"{shown}, not in {', '.join(map(str, rule.values))}"
    if rule.min is not None and isinstance(value, int | float) and value < rule.min:
        return f"{shown} < {rule.min:g}"
    if rule.max is not None and isinstance(value, int | float) and value > rule.max:
        return f"{shown} > {rule.max:g}"
    return shown
