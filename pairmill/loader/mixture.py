"""A plan over flat token files: windows of one source, or of several by weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill._native import mixture_samples, mixture_sources
from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.loader.arguments import MOST, number, several, whole
from pairmill.loader.batch import DATASET_IDX, Batch, windows_of, windows_size
from pairmill.loader.plan import Draw, Phase, Plan, Position, World, checked_phases, checked_weights
from pairmill.loader.tokenizer import see_one
from pairmill.loader.windows import Windows

SAMPLES = "samples"
"""What a mixture is called where batches and messages name a source."""


def probabilities(weights: Sequence[float], temperature: float) -> list[float]:
    """Each source's share of the draws, in proportion to ``weight ** (1 / temperature)``; weight 0 stays 0.

    Raises:
        UsageError: a weight is negative or no number, all are 0, or the temperature is not above 0.
    """
    if not math.isfinite(temperature) or temperature <= 0:
        raise UsageError("is no temperature", where="temperature", got=str(temperature), expected="above 0")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise UsageError("are no weights", where="weights", got=str(list(weights)), expected="0 or more, not all 0")
    logs = [math.log(weight) / temperature if weight else -math.inf for weight in weights]
    parts = [math.exp(log - max(logs)) for log in logs]
    return [part / math.fsum(parts) for part in parts]


class MixturePlan(Plan):
    """Windows drawn by weight, each source in an order of its own.

    Each pass over a source is a permutation that follows from the seed, the source's name and the number of the pass
    alone: another source, other weights or other ranks change nothing in it. What has been drawn of a source is never
    forgotten, so no sample repeats before its pass is complete. Draws are numbered through the whole run; of those of a
    global batch, the one in position k goes to rank k mod n. A mixture does not end; an epoch of it is as many draws as
    there are windows.

    Args:
        sources: with names that differ, one seq_len, and documents numbered in all or in none.
        weights: by name; by default the windows of each, so that every sample comes equally often.
        temperature: weights are raised to one over it.
        phases: with other weights or temperatures; a source that a phase does not name keeps its weight.
        seed: of the orders.

    Raises:
        UsageError: an argument is wrong.
        InputError: two sources are of two tokenizers.
    """

    def __init__(
        self,
        sources: Sequence[Windows],
        *,
        weights: Mapping[str, float] | None = None,
        temperature: float = 1.0,
        phases: Sequence[Phase] | None = None,
        seed: int = 0,
    ) -> None:
        sources = several(sources, Windows, "sources", "Windows, with names that differ")
        weights = None if weights is None else checked_weights(weights, "weights")
        temperature, seed = number(temperature, "temperature"), whole(seed, "seed")
        self.names = tuple(source.name for source in sources)
        if not sources or len(set(self.names)) < len(sources):
            raise UsageError(
                "need names that differ", where="sources", got=", ".join(self.names) or "none", hint="give name="
            )
        kinds = {(source.seq_len, source.fields) for source in sources}
        if len(kinds) > 1:
            got = "; ".join(f"{source.name}: seq_len {source.seq_len}, {source.fields}" for source in sources)
            raise UsageError("do not go together", where="sources", got=got, expected="one seq_len, the same arrays")
        see_one([(source.name, source.tokenizer) for source in sources], "sources")
        self.sources = tuple(sources)
        self.seq_len = sources[0].seq_len
        self._names = (*sources[0].fields, DATASET_IDX)
        self.sizes = [len(source) for source in sources]
        self.phases = checked_phases([Phase()] if phases is None else phases, self.names)
        self._bounds = [self._bounds_of(phase, weights, temperature) for phase in self.phases]
        self._seed = seed
        self._keys = [_key(seed, "source", name) for name in self.names]
        self._key = _key(seed, "draws")

    @cached_property
    def digest(self) -> str:
        """Of all windows, with the names and the seed, which their order follows from."""
        return content_key("mixture", self._seed, [(source.name, source.digest) for source in self.sources])

    def _bounds_of(self, phase: Phase, weights: Mapping[str, float] | None, temperature: float) -> NDArray[np.uint64]:
        if phase.source:
            raise UsageError("names a folder, and a mixture has weights", where="phases", got=repr(phase.source))
        unknown = [name for name in weights or {} if name not in self.names]
        if unknown:
            expected = f"one of {', '.join(self.names)}"
            raise UsageError("is unknown", where="weights", got=repr(unknown[0]), expected=expected)
        sizes = {name: float(size) for name, size in zip(self.names, self.sizes, strict=True)}
        given = {**(sizes if weights is None else weights), **(phase.weights or {})}
        used = temperature if phase.temperature is None else phase.temperature
        shares = probabilities([given.get(name, 0) for name in self.names], used)
        last = max(number for number, share in enumerate(shares) if share)
        ends = [min(int(math.fsum(shares[: number + 1]) * 2**64), 2**64 - 1) for number in range(last)]
        return np.array(ends + [2**64 - 1] * (len(shares) - last), np.uint64)

    def begin(self) -> Position:
        return Position(((0, 0),) * len(self.sources))

    def check(self, world: World) -> None:
        """See whether a rank's tokens are whole windows.

        Raises:
            UsageError: they are not.
            InputError: a file was made shorter.
        """
        check_windows(world, self.seq_len)
        for source in self.sources:
            source.check()

    def position(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> Position:
        """The position that a state says (:meth:`Plan.position`).

        Raises:
            UsageError: not such a state, or not such a draw.
            InputError: it belongs to other data.
        """
        position = super().position(state, accept_other_data=accept_other_data)
        for name, (passed, at), size in zip(self.names, position.cursors, self.sizes, strict=True):
            if at >= size or self._drawn(position) > MOST:
                raise UsageError(
                    "lies behind the data",
                    where=f"state: sources: {name}",
                    got=f"pass {passed}, draw {at}",
                    expected=f"draws of 0 to {size - 1}",
                )
        return position

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        return divmod(self._drawn(position), sum(self.sizes))

    def _drawn(self, position: Position) -> int:
        return sum(number * size + at for (number, at), size in zip(position.cursors, self.sizes, strict=True))

    def draw(self, position: Position, world: World) -> Draw:
        """The global batch at a position; a mixture never ends.

        Raises:
            InputError: a source begins anew, and one of its files was made shorter.
        """
        first, size = self._drawn(position), sum(self.sizes)
        count = world.batch_tokens // self.seq_len
        phase = self.phase_at(position)
        drawn = mixture_sources(self._key, first, count, self._bounds[phase])
        places = np.empty(count, np.uint64)
        cursors = []
        for source, ((passed, at), length) in enumerate(zip(position.cursors, self.sizes, strict=True)):
            mine = drawn == source
            begin, got = passed * length + at, int(mine.sum())
            if got and (not at or at + got > length):
                self.sources[source].check()
            places[mine] = np.arange(begin, begin + got, dtype=np.uint64)
            cursors.append(divmod(begin + got, length))
        tokens = count * self.seq_len
        epoch, start = divmod(first, size)
        return Draw(
            after=Position(tuple(cursors), position.batches + 1, position.tokens + tokens),
            phase=phase,
            source=SAMPLES,
            epoch=epoch,
            start_row=start,
            rows=count,
            tokens=tokens,
            ends_epoch=(first + count) // size > epoch,
            detail=(drawn, places),
        )

    def size(self, world: World) -> int:
        return windows_size(self._names, world.slots // self.seq_len, self.seq_len)

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        drawn, places = (array[rank :: world.ranks] for array in draw.detail)
        arrays = windows_of(memory, self._names, len(drawn), self.seq_len)
        rows = np.empty((len(drawn), 3), np.int64)
        rows[:, 0] = arrays[DATASET_IDX][:] = drawn
        for source, (size, key) in enumerate(zip(self.sizes, self._keys, strict=True)):
            mine = drawn == source
            rows[mine, 1] = places[mine] // np.uint64(size)
            rows[mine, 2] = mixture_samples(key, size, places[mine])
        edges = np.flatnonzero(np.diff(rows[:, 0])) + 1
        for low, high in pairwise([0, *edges, len(rows)]):
            source = self.sources[rows[low, 0]]
            source.fill(rows[low:high, 2], {name: arrays[name][low:high] for name in source.fields})
        return Batch.of(draw, self.phases, arrays, {}, rows)


def check_windows(world: World, seq_len: int) -> None:
    """See whether a rank's tokens are whole windows.

    Raises:
        UsageError: they are not.
    """
    if world.slots % seq_len:
        raise UsageError(
            "are no whole windows",
            where="batch_tokens",
            got=f"{world.batch_tokens:,} tokens for {world.ranks} ranks",
            expected=f"a multiple of {world.ranks * seq_len:,}: a sample of seq_len={seq_len:,} for each rank",
        )


def _key(seed: int, *names: str) -> int:
    return int(content_key("mixture", seed, *names)[:16], 16)
