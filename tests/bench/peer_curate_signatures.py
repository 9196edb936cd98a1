"""MinHash signatures by datasketch and rensa, 128 permutations: the peers of curate for signatures alone.

    python peer_curate_signatures.py SIDE ROWS

SIDE: datasketch or rensa, of the 3-grams of lower-case words between blanks; rensa_hashed, of 3-grams that are hashed
already, which is the signature without its text. Prints {seconds, rows, megabytes}.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from xxhash import xxh3_64_intdigest

PERMUTATIONS = 128


def grams(text: str) -> list[str]:
    """Word 3-grams."""
    words = text.lower().split()
    return [" ".join(words[at : at + 3]) for at in range(len(words) - 2)]


def datasketch(texts: list[str]) -> float:
    from datasketch import MinHash

    start = time.process_time()
    for at in range(0, len(texts), 1_000):
        MinHash.bulk(
            [[gram.encode() for gram in grams(text)] for text in texts[at : at + 1_000]], num_perm=PERMUTATIONS
        )
    return time.process_time() - start


def rensa(texts: list[str]) -> float:
    from rensa import RMinHash

    start = time.process_time()
    for at in range(0, len(texts), 1_000):
        RMinHash.digest_matrix_from_token_sets([grams(text) for text in texts[at : at + 1_000]], PERMUTATIONS, 42)
    return time.process_time() - start


def rensa_hashed(texts: list[str]) -> float:
    from rensa import RMinHash

    sets = [np.unique(np.array([xxh3_64_intdigest(gram) for gram in grams(text)], np.uint64)) for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.uint64)
    flat = np.concatenate(sets)
    start = time.process_time()
    RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, PERMUTATIONS, 42)
    return time.process_time() - start


def main() -> None:
    table = pq.read_table(Path(sys.argv[2]), columns=["instruction", "response"]).to_pydict()
    texts = [f"{one} {other}" for one, other in zip(table["instruction"], table["response"], strict=True)]
    took = globals()[sys.argv[1]](texts)
    size = sum(len(text.encode()) - 1 for text in texts) / 1e6
    print(json.dumps({"seconds": took, "rows": len(texts), "megabytes": size}))


main()
