"""The order of samples of KempnerForge: one permutation dealt to ranks, and the same of a weighted mixture.

Permutations are those of `torch.randperm` on a CPU. A set that has 214,748,364 samples or more is refused
(ValueError): torch draws its permutation in another way, which was never compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import _native

Ints = NDArray[np.int64]


class _Sampler:
    """What both samplers have: the seed of a permutation, a rank's share, a skip that acts once."""

    num_samples: int

    def __init__(self, num_replicas: int, rank: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        self.num_replicas, self.rank = num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        self._skip = 0

    def set_epoch(self, epoch: int) -> None:
        """Use the order of this epoch for the next pass."""
        self.epoch = epoch

    def set_skip(self, samples: int) -> None:
        """Drop this many of the rank's samples from the front of the next pass only."""
        self._skip = samples

    def state_dict(self) -> dict[str, int]:
        """`{epoch, seed, num_replicas, rank}`."""
        return {"epoch": self.epoch, "seed": self.seed, "num_replicas": self.num_replicas, "rank": self.rank}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Only the epoch is read back: a different seed, rank or number of ranks goes unnoticed."""
        self.epoch = state["epoch"]

    def __len__(self) -> int:
        """Samples that a pass without a skip should have."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())

    def indices(self) -> Ints:
        """This rank's samples of one pass, int64 [n]; the skip is used up."""
        order = self._pass(_native.Mt19937((self.seed + self.epoch) & 0xFFFF_FFFF))
        skip, self._skip = self._skip, 0
        return order[skip:]

    def _pass(self, random: _native.Mt19937) -> Ints:
        raise NotImplementedError

    def _order(self, random: _native.Mt19937, count: int) -> Ints:
        return random.randperm(count) if self.shuffle else np.arange(count, dtype=np.int64)

    def _share(self, order: Ints) -> Ints:
        """Every n-th element from the rank on, of an order that is cut to a multiple of n or padded with its front."""
        missing = -len(order) % self.num_replicas
        whole = len(order) // self.num_replicas * self.num_replicas
        order = order[:whole] if self.drop_last else np.concatenate([order, order[:missing]])
        return order[self.rank :: self.num_replicas]

    def _available(self, count: int) -> int:
        return count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)


class DistributedSampler(_Sampler):
    """One permutation of a data set for each epoch, from seed + epoch; each rank takes every n-th element.

    Args:
        dataset_size: number of samples.
        num_replicas: number of ranks.
        rank: of them, from 0.
        shuffle: False = the order as it is.
        seed: plus the epoch, the seed of the permutation; its low 32 bits count.
        drop_last: leave out samples after the last multiple of the ranks; else repeat samples from the front. If there
            are not enough of these for a rank, its pass is an AssertionError.
    """

    def __init__(
        self,
        dataset_size: int,
        num_replicas: int,
        rank: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
    ) -> None:
        super().__init__(num_replicas, rank, shuffle, seed, drop_last)
        self.dataset_size = dataset_size
        self.num_samples = self._available(dataset_size)

    def _pass(self, random: _native.Mt19937) -> Ints:
        share = self._share(self._order(random, self.dataset_size))
        if len(share) != self.num_samples:
            raise AssertionError(f"{self.dataset_size} samples do not reach rank {self.rank} of {self.num_replicas}")
        return share


class MixtureSampler(_Sampler):
    """In each epoch a share of each source, by weight and temperature, shuffled together.

    A pass is as long as all sources are for a rank. A source with less than its target repeats its share; one with more
    gives its first samples. With drop_last, a source smaller than the number of ranks gives nothing but keeps its
    target, so `len()` is more than what comes.

    Args:
        sizes: samples of each source.
        weights: of each source. Fewer are an IndexError; surplus ones count in the shares and are never drawn.
        num_replicas, rank, shuffle, seed, drop_last: as for `DistributedSampler`.
        temperature: 1 = by weight; above, more equally. Weight 0 counts as 1e-12 at any temperature but 1.

    Attributes:
        probs: share of each weight.
        target_counts: samples of a rank's pass by source.

    Raises:
        ValueError: no weights, a negative one, or all 0.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        weights: Sequence[float],
        num_replicas: int,
        rank: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(num_replicas, rank, shuffle, seed, drop_last)
        self.sizes = list(sizes)
        self.num_samples = sum(self._available(size) for size in self.sizes)
        self._weigh(weights, temperature, "MixtureSampler(weights=...)")

    def update_weights(self, weights: Sequence[float], temperature: float) -> None:
        """Use other weights from the next pass on.

        Raises:
            ValueError: another number of weights than of sources, or as above.
        """
        if len(weights) != len(self.sizes):
            raise ValueError(f"Expected {len(self.sizes)} weights, got {len(weights)}")
        self._weigh(weights, temperature, "MixtureSampler.update_weights")

    def _weigh(self, weights: Sequence[float], temperature: float, where: str) -> None:
        given = list(weights)
        if not given:
            raise ValueError(f"{where}: weights list is empty")
        if any(weight < 0 for weight in given):
            raise ValueError(f"{where}: weights must be non-negative, got {given}")
        if sum(given) <= 0:
            raise ValueError(
                f"{where}: weights must sum to > 0 (at least one dataset must have weight > 0), got {given}"
            )
        self.probs = _probabilities(given, temperature)
        self.target_counts = self._targets()

    def _targets(self) -> list[int]:
        targets = [round(share * self.num_samples) for share in self.probs]
        missing = self.num_samples - sum(targets)
        by_share = sorted(range(len(self.sizes)), key=lambda source: -self.probs[source])
        for step in range(abs(missing)):
            targets[by_share[step % len(by_share)]] += 1 if missing > 0 else -1
        return targets

    def _pass(self, random: _native.Mt19937) -> Ints:
        drawn = []
        offset = 0
        for size, target in zip(self.sizes, self.target_counts, strict=False):
            if target > 0 and size > 0:
                share = self._share(self._order(random, size))
                if len(share):
                    drawn.append(np.resize(share, target) + offset)
            offset += size
        everything = np.concatenate(drawn) if drawn else np.empty(0, np.int64)
        return everything[random.randperm(len(everything))] if self.shuffle else everything


def _probabilities(weights: Sequence[float], temperature: float) -> list[float]:
    if temperature == 1.0:
        total = sum(weights)
        return [weight / total for weight in weights]
    logs = [math.log(max(weight, 1e-12)) / temperature for weight in weights]
    highest = max(logs)
    parts = [math.exp(value - highest) for value in logs]
    total = sum(parts)
    return [part / total for part in parts]
