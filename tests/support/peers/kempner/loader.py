"""The stateful loader of KempnerForge without torch: batches are stacked numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tests.support.peers.kempner.samplers import DistributedSampler, MixtureSampler


class Samples(Protocol):
    """Gives samples by index."""

    def __getitem__(self, index: int, /) -> Any: ...


class StatefulDataLoader:
    """Batches in the order of a sampler, with a count of those handed out.

    Batches are made when they are asked for: the original's worker processes and prefetching change neither the batches
    nor the state. `iter()` in mid-epoch continues rather than starts again. A state's seed, ranks and batch size are
    ignored: loaded with others, it is another position.

    Args:
        dataset: gives samples by index.
        batch_size: samples of a rank's batch.
        sampler: the order.
        drop_last: leave out an incomplete last batch.
    """

    def __init__(
        self,
        dataset: Samples,
        batch_size: int,
        sampler: DistributedSampler | MixtureSampler,
        *,
        drop_last: bool = True,
    ) -> None:
        self.dataset, self.batch_size, self.sampler, self.drop_last = dataset, batch_size, sampler, drop_last
        self._epoch = self._batches_yielded = 0
        self._batches: Iterator[list[int]] = iter(())

    def __len__(self) -> int:
        """Batches of an epoch, by the sampler's own length."""
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Self:
        self.sampler.set_epoch(self._epoch)
        if self._batches_yielded > 0:
            self.sampler.set_skip(self._batches_yielded * self.batch_size)
        self._batches = self._cut(self.sampler.indices())
        return self

    def __next__(self) -> Any:
        indices = next(self._batches, None)
        if indices is None:
            self._epoch += 1
            self._batches_yielded = 0
            raise StopIteration
        batch = collate([self.dataset[index] for index in indices])
        self._batches_yielded += 1
        return batch

    def _cut(self, order: NDArray[np.int64]) -> Iterator[list[int]]:
        for start in range(0, len(order), self.batch_size):
            indices = order[start : start + self.batch_size].tolist()
            if len(indices) == self.batch_size or not self.drop_last:
                yield indices

    def state_dict(self) -> dict[str, Any]:
        """`{epoch, batches_yielded, sampler}`."""
        return {
            "epoch": self._epoch,
            "batches_yielded": self._batches_yielded,
            "sampler": self.sampler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to that position with the next `iter()`."""
        self._epoch, self._batches_yielded = state["epoch"], state["batches_yielded"]
        self.sampler.load_state_dict(state["sampler"])


def collate(samples: Sequence[Any]) -> Any:
    """Samples as a batch: dicts by key, arrays stacked along a new first axis, Python integers as int64 [batch]."""
    if isinstance(samples[0], dict):
        return {name: collate([sample[name] for sample in samples]) for name in samples[0]}
    return np.stack([np.asarray(sample) for sample in samples])
