"""One side of bench_encode, in a process and an environment of its own: ``peer_encode.py <side> <tokenizer> <texts>``.

Each side encodes in the fastest way that its documentation names for many texts on one thread, in batches of as many
strings as suit all of them best; making the tokenizer and reading the texts is not counted. Prints as JSON the seconds
of the first pass and of the second, and a digest of the ids, which a third pass makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

BATCH = 2048

Batches = list[Any]
Side = tuple[Batches, Callable[[Any], Any], Callable[[Any], Iterable[bytes]]]


def batches(texts: Any) -> Batches:
    """The texts, BATCH at a time."""
    return [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]


def pairmill(tokenizer: str, texts: list[str]) -> Side:
    """Arrow arrays in, arrays of numpy out."""
    import pyarrow as pa

    from pairmill.encoder import Encoder

    encoder = Encoder.from_file(tokenizer)
    assert encoder.path == "native", encoder.reason
    return batches(pa.array(texts, pa.large_string())), encoder.encode, lambda encoded: [encoded.ids.tobytes()]


def wheel(tokenizer: str, texts: list[str]) -> Side:
    """Lists of str in, encodings without offsets out."""
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(tokenizer)
    made.encode_special_tokens = True
    return (
        batches(texts),
        lambda batch: made.encode_batch_fast(batch, add_special_tokens=False),
        lambda encodings: (array("I", encoding.ids).tobytes() for encoding in encodings),
    )


def fastokens(tokenizer: str, texts: list[str]) -> Side:
    """Lists of str in, all ids as one bytes object out."""
    os.environ["FASTOKENS_BPE_THREADS"] = "1"
    from fastokens._native import Tokenizer

    made = Tokenizer.from_file(tokenizer)
    return (
        batches(texts),
        lambda batch: made.encode_batch_flat(batch, split_special_tokens=True),
        lambda flat: [flat[0]],
    )


def tokenizers_1(tokenizer: str, texts: list[str]) -> Side:
    """Lists of str in, encodings out, of which the ids are not even asked for."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(tokenizer)
    return (
        batches(texts),
        lambda batch: made.encode_batch(batch, add_special_tokens=False, encode_special_tokens=True),
        lambda encodings: (encoding.ids_array.tobytes() for encoding in encodings),
    )


SIDES = {"pairmill": pairmill, "wheel": wheel, "fastokens": fastokens, "tokenizers 1": tokenizers_1}


def main(side: str, tokenizer: str, texts: str) -> None:
    """Encode the texts three times."""
    given, encode, ids = SIDES[side](tokenizer, pickle.loads(Path(texts).read_bytes()))
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        for batch in given:
            encode(batch)
        seconds.append(time.perf_counter() - start)
    digest = hashlib.sha256()
    for batch in given:
        for piece in ids(encode(batch)):
            digest.update(piece)
    print(json.dumps({"cold": seconds[0], "warm": seconds[1], "ids": digest.hexdigest()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
