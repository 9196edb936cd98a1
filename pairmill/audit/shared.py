"""Prompts that sources share: of each source all prompts of some lengths, the same lengths of all sources as far as
there is room, so that what two of them have is seen in both."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import seed_from

NAME: Final = "prompts.npy"
LEAST_SHARED: Final = 0.05
"""The share of shared prompts from which a source is to be looked at."""
MOST: Final = 2_000_000
"""Prompts of all sources together."""
_SHORT: Final = 8
"""Tokens of a prompt that says too little to be compared."""
_FEW: Final = 64
"""Sources that may share a prompt if it is told which they are."""

Prompts = NDArray[np.uint64]
"""Digests of prompt and answer, [rows, 2]; each prompt once."""


def choose_lengths(counts: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Return which lengths are looked at, bool [lengths]: in an order that is the same for all sources, as many as have
    at most this many rows together.

    Args:
        counts: rows by length of the prompt in tokens, int64 [lengths].
        most: rows.
    """
    result = np.zeros(len(counts), np.bool_)
    room = most
    for length in sorted(np.flatnonzero(counts[_SHORT:]) + _SHORT, key=lambda item: seed_from("prompts", str(item))):
        if counts[length] <= room:
            room -= int(counts[length])
            result[length] = True
    return result


def digests_of(texts: Iterator[tuple[bytes, bytes]]) -> Prompts:
    """Return the digests of prompts and answers, given as the bytes of their tokens."""
    parts = [b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in pair) for pair in texts]
    made = np.frombuffer(b"".join(parts), "<u8").reshape(-1, 2)
    return made[np.unique(made[:, 0], return_index=True)[1]].astype(np.uint64)


def count_shared(sources: Mapping[str, Prompts]) -> dict[str, dict[str, int | str]]:
    """Return of each source its prompts, how many another source has too, and with the same answer; and the source
    that has the most of them, empty if there are none."""
    names = list(sources)
    owners = np.concatenate([np.full(len(item), at) for at, item in enumerate(sources.values())] or [np.empty(0, int)])
    rows = np.concatenate([*sources.values()] or [np.empty((0, 2), np.uint64)])
    order = np.lexsort((owners, rows[:, 0]))
    owners, rows = owners[order], rows[order]
    bounds = [0, *(np.flatnonzero(np.diff(rows[:, 0])) + 1).tolist(), len(rows)]
    shared, same = np.zeros(len(names), int), np.zeros(len(names), int)
    others = [dict[int, int]() for _ in names]
    for first, end in pairwise(bounds):
        if end - first > 1:
            group = owners[first:end].tolist()
            answers = rows[first:end, 1].tolist()
            for at, answer in zip(group, answers, strict=True):
                shared[at] += 1
                same[at] += answers.count(answer) > 1
                for other in group if len(group) <= _FEW else ():
                    others[at][other] = others[at].get(other, 0) + (other != at)
    return {
        name: {
            "prompts": len(sources[name]),
            "shared": int(shared[at]),
            "same": int(same[at]),
            "most": names[max(others[at], key=lambda other: (others[at][other], -other))] if others[at] else "",
        }
        for at, name in enumerate(names)
    }
