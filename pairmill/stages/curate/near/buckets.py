"""Round 2: the rows of some partitions of the keys that have a key in common."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.runs import OF_INPUTS, Runs
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.records import KEY, KEY_OF_LONGEST

EDGES, FAMILIES = "edges.bin", "families.bin"
PAIR = np.dtype("<u8")
"""Two of them are an edge, of two ranks, or an entry of a family: the rank of its anchor and of a member."""


@dataclass
class Paired:
    """How many edges and entries of families a :class:`Buckets` shard has found."""

    edges: int
    families: int


@dataclass(frozen=True)
class Buckets(Shard[object], reads=()):
    """Finds the candidates of some partitions, one after another; pairs that several have are left once.

    Args:
        inputs: digest of all that is signed.
        keys: the runs of all slices; an owner is the place of its slice.
        first: the first partition.
        stop: one past the last.
        bases: the number of each slice's first row.
        fixed: rows of smaller numbers are never removed, nor compared with each other.
        longest_response: keys come with tokens.
        refine: whether there are families, which are refined; without, all members of a bucket are compared.
        keep: rows that are alike and stay; a row is compared with as many at least.
    """

    work = "find similar rows"

    inputs: str
    keys: Runs = field(metadata=unkeyed(OF_INPUTS))
    first: int
    stop: int
    bases: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))
    fixed: int
    longest_response: bool
    refine: bool
    keep: int

    def run(self, context: object, out: Writer) -> ShardResult:
        edges, families = (_distinct(list(pairs)) for pairs in zip(*self._pairs(), strict=True))
        for path, pairs in ((EDGES, edges), (FAMILIES, families)):
            with out.create(path, scratch=True) as local:
                local.write_bytes(pairs.view(np.uint8).data)
        return ShardResult(Ledger(), asdict(Paired(len(edges) // 2, len(families) // 2)))

    def _pairs(self) -> Iterator[tuple[NDArray[np.uint64], ...]]:
        """Yield the edges and the entries of families of each partition, uint64 [2 n]."""
        kind, bases = KEY_OF_LONGEST if self.longest_response else KEY, np.array(self.bases, np.uint64)
        for keys, owner in self.keys.rows_by_part(self.first, self.stop, kind):
            numbers = bases[owner]
            numbers += keys["at"]
            tokens = keys["tokens"] if self.longest_response else None
            ids, keys = ranks.ranks(numbers, tokens, self.fixed), np.ascontiguousarray(keys["key"])
            del numbers, owner, tokens  # they take as much as the keys
            edges, families = _native.curate_near_buckets(keys, ids, self.fixed, self.refine, self.keep)
            yield edges.ravel(), families.ravel()


def _distinct(pairs: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return the distinct pairs of several partitions, each of which has a pair once; uint64 [2 n]."""
    return pairs[0] if len(pairs) == 1 else _native.curate_near_distinct(np.concatenate(pairs))
