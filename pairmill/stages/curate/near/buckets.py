"""Round 2: the rows of a partition of the keys that have a key in common."""

from dataclasses import asdict, dataclass, field
from typing import Any

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
    """Finds the candidates of a partition.

    Args:
        inputs: digest of all that is signed.
        keys: the runs of all slices; an owner is the place of its slice.
        bases: the number of each slice's first row.
        fixed: rows of smaller numbers are never removed, nor compared with each other.
        longest_response: keys come with tokens.
        refine: whether there are families, which are refined; without, all members of a bucket are compared.
        keep: rows that are alike and stay; a row is compared with as many at least.
    """

    work = "find similar rows"

    inputs: str
    keys: Runs = field(metadata=unkeyed(OF_INPUTS))
    partition: int
    bases: tuple[int, ...] = field(metadata=unkeyed(OF_INPUTS))
    fixed: int
    longest_response: bool
    refine: bool
    keep: int

    def run(self, context: object, out: Writer) -> ShardResult:
        edges, families = _native.curate_near_buckets(*self._keys(), self.fixed, self.refine, self.keep)
        for path, pairs in ((EDGES, edges), (FAMILIES, families)):
            with out.create(path, scratch=True) as local:
                local.write_bytes(np.ascontiguousarray(pairs).view(np.uint8).data)
        return ShardResult(Ledger(), asdict(Paired(len(edges), len(families))))

    def _keys(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the keys, and the rank of the row of each."""
        result, owner = self.keys.rows(self.partition, KEY_OF_LONGEST if self.longest_response else KEY)
        numbers: NDArray[Any] = np.array(self.bases, np.uint64)[owner]
        numbers += result["at"]
        tokens = result["tokens"] if self.longest_response else None
        return np.ascontiguousarray(result["key"]), ranks.ranks(numbers, tokens, self.fixed)
