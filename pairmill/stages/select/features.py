"""How texts become buckets (words and n-grams, hashed), and counts of buckets log weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.stages.select.settings import DsirSettings

# Added to each probability, as data-selection does: a bucket that nothing falls into has a logarithm too.
TINY: Final = 1e-8


@dataclass(frozen=True)
class Features:
    """The rule by which texts become buckets.

    Args:
        fields: whose features are added up.
        ngrams: longest n-gram.
        hash: of a feature.
        unicode: version of the tables that texts are split by.
    """

    fields: tuple[str, ...]
    ngrams: int
    buckets: int
    hash: str
    unicode: str

    @classmethod
    def from_settings(cls, settings: DsirSettings) -> Features:
        """Take them from the settings."""
        unicode = _native.curate_unicode()
        return cls(tuple(settings.fields), settings.ngrams, settings.buckets, settings.hash, unicode)

    def count(
        self, columns: Mapping[str, pa.Array], counts: NDArray[np.int64], which: NDArray[np.bool_] | None = None
    ) -> int:
        """Add how often each bucket occurs to ``counts`` int64 [buckets]; return how many features there are."""
        texts = [columns[name] for name in self.fields]
        return _native.select_count(texts, counts, self.ngrams, self.hash, which)  # type: ignore[arg-type]


@dataclass
class Fitted:
    """The data of a record of FitRows or FitTarget, whose file ``counts.npy`` has a line of counts for each text set.

    Args:
        rows: of the block.
        fitted: rows whose features were counted.
        features: of the counted rows.
    """

    rows: int = 0
    fitted: int = 0
    features: int = 0


def log_weights(counts: NDArray[np.int64], laplace: float) -> NDArray[np.float64]:
    """Return the log weight of each bucket, float64 [targets, buckets], of counts [1 + targets, buckets], raw first."""
    raw = _native.select_ln(shares(counts[0]) + TINY)
    weights = np.empty((len(counts) - 1, counts.shape[1]))
    for line, target in zip(weights, counts[1:].astype(np.float64), strict=True):
        line[:] = _native.select_ln(shares(target + laplace) + TINY) - raw
    return weights


def shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Divide counts by their sum; 0 of nothing. Whole numbers and halves are summed exactly."""
    # numpy adds in an order that depends on the processor.
    total = math.fsum(counts.tolist())
    return counts.astype(np.float64) / total if total else np.zeros(len(counts))
