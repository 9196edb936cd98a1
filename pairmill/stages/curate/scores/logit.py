"""Our own classifier: logistic regression over hashed word features, in a ``.npz`` of fixed bytes."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native

LABELS: Final = ("good", "bad")
"""The usual names of the positive label and the other one."""
_NAMES: Final = ("weights", "bias", "buckets", "ngrams")
_MAX_NGRAMS: Final = 64
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Logit:
    """A classifier.

    Args:
        weights: float32 [buckets].
        bias: of all rows.
        ngrams: longest n-gram of the features.
    """

    weights: NDArray[np.float32]
    bias: np.float32
    ngrams: int

    def probabilities(self, columns: Sequence[pa.Array]) -> NDArray[np.float64]:
        """Return the probability of each row that it is of the positive label; float64 [rows]."""
        counts = _native.curate_bucket_counts(columns, self.ngrams, len(self.weights))
        return _native.curate_logit(*counts, self.weights, float(self.bias))

    def dump(self) -> bytes:
        """Return the file: the same bytes for the same weights, whatever the clock says."""
        arrays = {
            "weights": self.weights,
            "bias": np.float32(self.bias),
            "buckets": np.int64(len(self.weights)),
            "ngrams": np.int64(self.ngrams),
        }
        file = BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name in _NAMES:
                member = BytesIO()
                np.lib.format.write_array(member, np.asarray(arrays[name]), version=(1, 0), allow_pickle=False)
                entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
                entry.create_system = 3
                archive.writestr(entry, member.getvalue())
        return file.getvalue()


def load(path: Path) -> Logit:
    """Read a file that ``dump`` made. Raises ValueError if it is another one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if sorted(file.files) != sorted(_NAMES):
                raise ValueError(f"it has {', '.join(file.files)}; expected {', '.join(_NAMES)}")
            weights, bias, buckets, ngrams = (file[name] for name in _NAMES)
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile, KeyError) as error:
        raise ValueError(str(error)) from error
    if weights.ndim != 1 or weights.dtype.kind != "f" or bias.size != 1 or buckets.size != 1 or ngrams.size != 1:
        raise ValueError(f"weights of type {weights.dtype} and shape {list(weights.shape)}")
    if len(weights) != int(buckets) or not 1 <= int(ngrams) <= _MAX_NGRAMS or not np.isfinite(weights).all():
        raise ValueError(f"{len(weights)} weights, {int(buckets)} buckets, ngrams {int(ngrams)}")
    return Logit(weights.astype(np.float32), np.float32(bias.reshape(())), int(ngrams))
