"""fastText models: language identification and classifiers."""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

MODULE: Final = "fasttext"
KIND: Final = "a supervised fastText model"
EXTRA: Final = "classifiers"
_PREFIX: Final = "__label__"
_MAGIC: Final = 793712314
_SUPERVISED: Final = 3
_CENTROIDS: Final = 256


@dataclass(frozen=True)
class FastText:
    """A loaded model, its labels without ``__label__``."""

    labels: list[str]
    _model: Any

    def predict(self, text: str, count: int) -> list[tuple[str, float]]:
        """Return the ``count`` most probable labels of a line of text, all with -1, and probabilities in [0, 1]."""
        labels, result = self._model.predict(text, k=count, threshold=0.0)
        bounded = np.clip(np.array(result, np.float32), 0, 1).tolist()
        return list(zip((label.removeprefix(_PREFIX) for label in labels), bounded, strict=True))


def load_fasttext(path: Path) -> FastText:
    """Load a fastText model. Raises ValueError if the file is not one.

    Its parts are walked before the library reads it: of a cut file that makes a model that knows nothing, or it ends
    the process.
    """
    import fasttext

    labels = labels_of(path)
    return FastText([label.removeprefix(_PREFIX) for label in labels], fasttext.load_model(str(path)))


def one_line(text: str) -> str:
    """Return a text with blanks in place of line feeds."""
    return text.replace("\n", " ")


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def skip(self, size: int) -> None:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, within a part of {size:,} bytes")
        self.at += size

    def take(self, form: str) -> tuple[int, ...]:
        start = self.at
        self.skip(struct.calcsize("<" + form))
        return struct.unpack_from("<" + form, self.data, start)

    def text(self) -> bytes:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise ValueError("it ends within its dictionary")
        start, self.at = self.at, end + 1
        return self.data[start:end]


def labels_of(path: Path) -> list[str]:
    """Return the labels of a supervised model, in the order of the file.

    Raises:
        ValueError: it is another file, damaged, or a model without labels.
    """
    size = path.stat().st_size
    if size < 8:
        raise ValueError(f"it has {size} bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        magic, version = reader.take("ii")
        if magic != _MAGIC or not 11 <= version <= 12:
            raise ValueError("it does not begin as one")
        dim, _, _, _, _, _, _, kind, bucket, *_ = reader.take("12i")
        reader.skip(8)
        if kind != _SUPERVISED:
            raise ValueError("it has word vectors and no labels")
        labels = _dictionary(reader)
        (quantised,) = reader.take("?")
        _matrix(reader, bool(quantised))
        (output,) = reader.take("?")
        outputs = _matrix(reader, bool(quantised and output))
        if dim < 1 or bucket < 0 or outputs != len(labels) or reader.at != len(data):
            raise ValueError("its parts do not fit together")
    return labels


def _dictionary(reader: _Reader) -> list[str]:
    size, words, count, _, pruned = reader.take("iiiqq")
    if size != words + count or count < 1:
        raise ValueError("it has no labels")
    labels = []
    for _ in range(size):
        text = reader.text()
        _, label = reader.take("qb")
        if label:
            labels.append(text.decode("utf-8", "replace"))
    if len(labels) != count:
        raise ValueError("its dictionary is damaged")
    reader.skip(8 * max(pruned, 0))
    return labels


def _matrix(reader: _Reader, quantised: bool) -> int:
    """Skip a matrix; returns its number of rows."""
    if not quantised:
        rows, columns = reader.take("qq")
        reader.skip(4 * rows * columns)
        return rows
    normed, rows, _, codes = reader.take("?qqi")
    reader.skip(codes)
    _quantiser(reader)
    if normed:
        reader.skip(rows)
        _quantiser(reader)
    return rows


def _quantiser(reader: _Reader) -> None:
    dim, *_ = reader.take("4i")
    reader.skip(4 * dim * _CENTROIDS)
