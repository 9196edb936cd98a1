"""Models for tests, made here: no weights of others."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairmill.formats.rows import Batch
from tests.support.helpers import REPOSITORY

KENLM = REPOSITORY / "build" / "kenlm"


def use_kenlm() -> None:
    """Make kenlm and sentencepiece importable, which are not in the environment: kenlm has no wheel."""
    assert (KENLM / ".installed").exists(), "run make build/kenlm/.installed"
    if str(KENLM) not in sys.path:
        sys.path.append(str(KENLM))


def batch_of(responses: Sequence[str], instructions: Sequence[str] | None = None) -> Batch:
    """Rows with these texts."""
    empty = [""] * len(responses)
    columns = (empty, instructions or empty, responses)
    return Batch(0, *(pa.array(column, pa.large_string()) for column in columns))


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _value(name: str, kind: int, dims: Sequence[int | str]) -> bytes:
    shape = b"".join(_field(1, _field(1 if isinstance(one, int) else 2, one)) for one in dims)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))


def write_onnx(path: Path, table: Sequence[Sequence[float]], inputs: Sequence[str] = ("input_ids",)) -> None:
    """Write a model that looks up each token in ``table`` and gives the mean of the rows, [1, labels].

    The first of ``inputs`` is looked up; the others are not used.
    """
    int64, float32 = 7, 1
    columns = len(table[0])
    data = b"".join(struct.pack(f"<{columns}f", *row) for row in table)
    tensor = _field(1, len(table)) + _field(1, columns) + _field(2, float32) + _field(8, "table") + _field(9, data)
    gather = _field(1, "table") + _field(1, inputs[0]) + _field(2, "rows") + _field(4, "Gather")
    axes = _field(1, "axes") + _field(8, 1) + _field(20, 7)
    keep = _field(1, "keepdims") + _field(3, 0) + _field(20, 2)
    mean = _field(1, "rows") + _field(2, "logits") + _field(4, "ReduceMean") + _field(5, axes) + _field(5, keep)
    graph = _field(1, gather) + _field(1, mean) + _field(2, "tiny") + _field(5, tensor)
    graph += b"".join(_field(11, _value(name, int64, [1, "tokens"])) for name in inputs)
    graph += _field(12, _value("logits", float32, [1, columns]))
    path.write_bytes(_field(1, 8) + _field(8, _field(2, 13)) + _field(7, graph))


def write_tokenizer(path: Path, words: Sequence[str]) -> None:
    """Write a tokenizer of these words, which have the numbers from 1; 0 is any other."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"[UNK]": 0, **{word: number for number, word in enumerate(words, 1)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def write_fasttext(path: Path, labels: Sequence[str], words: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
    """Write a supervised model: a word's row of the input matrix is its vector, labels are the axes (softmax)."""
    dim = len(labels)
    entries = [(word, 0) for word in ["</s>", *words]] + [(f"__label__{label}", 1) for label in labels]
    data = struct.pack("<ii", 793712314, 12)
    # dim, ws, epoch, minCount, neg, wordNgrams, loss = softmax, model = supervised, bucket, minn, maxn, lrUpdateRate, t
    data += struct.pack("<12id", dim, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100, 1e-4)
    data += struct.pack("<iiiqq", len(entries), len(words) + 1, len(labels), 1, -1)
    data += b"".join(name.encode() + b"\0" + struct.pack("<qb", 1, kind) for name, kind in entries)
    matrix = np.vstack([np.zeros((1, dim)), np.asarray(rows)]).astype("<f4")
    data += b"\0" + struct.pack("<qq", *matrix.shape) + matrix.tobytes()
    output = np.eye(dim, dtype="<f4")
    path.write_bytes(data + b"\0" + struct.pack("<qq", dim, dim) + output.tobytes())
