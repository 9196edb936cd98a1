"""What looks at each row by itself: an operation of one pass over the rows, without an exchange between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.formats import rows


@dataclass
class Scored:
    """What an operation says of the rows of a batch.

    Args:
        columns: of attributes: one array for each of ``Scorer.types()``, with a value or null for each row.
        findings: by ``decisions.SCHEMA``; ``ordinal`` is the row's index in the batch.
        counts: added up over all rows, for the report.
    """

    columns: list[pa.Array] = field(default_factory=list)
    findings: pa.Table | None = None
    counts: dict[str, int] = field(default_factory=dict)


class Scorer(ABC):
    """An operation with its options: a frozen dataclass, picklable."""

    operation: ClassVar[str]

    @property
    def name(self) -> str:
        """Of its folder below ``attributes/`` and ``decisions/``: the operation's, or a classifier's own."""
        return self.operation

    @abstractmethod
    def identity(self) -> list[Any]:
        """All that its values follow from beside the rows, JSON-like: options, digests of models, a version."""

    def types(self) -> dict[str, str]:
        """The names and types (``pairmill.formats.attributes.TYPES``) of its attributes."""
        return {}

    @abstractmethod
    def opened(self) -> AbstractContextManager[Callable[[rows.Batch], Scored]]:
        """Load what it needs, a model or an index, once; then it scores one batch after another."""
