"""A plan over flat token files: windows of one source, or of several by weight."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pairmill._native import mixture_samples, mixture_sources
from pairmill.engine.manifest import seed_from
from pairmill.errors import UsageError
from pairmill.loader import arguments
from pairmill.loader.arguments import MAX, choice, instances, integer, number
from pairmill.loader.batch import DATASET_IDX, Batch
from pairmill.loader.plan import Draw, Phase, Position, World
from pairmill.loader.tokenizer import check_same_tokenizer
from pairmill.loader.window_plan import WindowPlan
from pairmill.loader.windows import Windows

SAMPLES = "samples"
"""The name of a mixture where batches and messages name a source."""


def probabilities(weights: Sequence[float], temperature: float) -> list[float]:
    """Return each source's share of the draws, in proportion to ``weight ** (1 / temperature)``; weight 0 stays 0.

    Raises:
        UsageError: a weight is negative or not finite, all are 0, or the temperature is not above 0.
    """
    if not math.isfinite(temperature) or temperature <= 0:
        raise UsageError("out of range", where="temperature", got=str(temperature), expected="above 0")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise UsageError("invalid", where="weights", got=str(list(weights)), expected="at least 0 each, not all 0")
    logs = [math.log(weight) / temperature if weight else -math.inf for weight in weights]
    parts = [math.exp(log - max(logs)) for log in logs]
    return [part / math.fsum(parts) for part in parts]


class MixturePlan(WindowPlan):
    """Windows drawn by weight, each source in its own order.

    Each pass over a source is a permutation that follows from the seed, the source's name and the number of the pass
    alone: another source, other weights or other ranks do not change it. What was drawn of a source is never forgotten,
    so no sample repeats before its pass is complete. Draws are numbered through the whole run. A mixture does not end;
    its epoch is as many draws as there are windows.

    Args:
        sources: with distinct names, one seq_len, and documents numbered in all or in none.
        weights: by name; by default the number of windows, so that every sample comes equally often.
        temperature: weights are raised to 1 / temperature.
        phases: with other weights or temperatures; a source that a phase does not name keeps its weight.
        seed: of the orders.

    Raises:
        UsageError: an argument is wrong.
        InputError: the tokenizers of two sources differ.
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
        sources = instances(sources, Windows, "sources", "Windows, with distinct names")
        weights = None if weights is None else arguments.weights(weights, "weights")
        temperature, self._seed = number(temperature, "temperature"), integer(seed, "seed")
        names = [source.name for source in sources]
        if not sources or len(set(names)) < len(sources):
            got = ", ".join(names) or "none"
            raise UsageError("names must be distinct", where="sources", got=got, hint="set name=")
        if len({(source.seq_len, source.fields) for source in sources}) > 1:
            got = "; ".join(f"{source.name}: seq_len {source.seq_len}, {source.fields}" for source in sources)
            raise UsageError("incompatible", where="sources", got=got, expected="one seq_len, the same arrays")
        check_same_tokenizer([(source.name, source.tokenizer) for source in sources], "sources")
        super().__init__(names, phases, sources[0].seq_len, sources[0].fields)
        self.sources = tuple(sources)
        self.sizes = [len(source) for source in sources]
        for name in weights or {}:
            choice(name, names, "weights")
        self._bounds = [self._bounds_of(phase, weights, temperature) for phase in self.phases]
        self._keys = [_key(self._seed, "source", name) for name in names]
        self._key = _key(self._seed, "draws")

    def _content(self) -> tuple[object, ...]:
        """Return all windows, with the names and the seed, which determine their order."""
        return "mixture", self._seed, [(source.name, source.digest) for source in self.sources]

    def _bounds_of(self, phase: Phase, weights: Mapping[str, float] | None, temperature: float) -> NDArray[np.uint64]:
        """Upper bounds of the random words that draw each source."""
        if phase.source:
            raise UsageError("a mixture has weights, not a folder", where="phases", got=repr(phase.source))
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
        super().check(world)
        for source in self.sources:
            source.check()

    def check_position(self, position: Position) -> None:
        for name, (passed, at), size in zip(self.names, position.cursors, self.sizes, strict=True):
            if at >= size or self._drawn(position) > MAX:
                raise UsageError(
                    "position is past the end of the data",
                    where=f"state: sources: {name}",
                    got=f"pass {passed}, draw {at}",
                    expected=f"draws of 0 to {size - 1}",
                )

    def cursor_at(self, position: Position) -> tuple[int, ...]:
        return divmod(self._drawn(position), sum(self.sizes))

    def _drawn(self, position: Position) -> int:
        return sum(number * size + at for (number, at), size in zip(position.cursors, self.sizes, strict=True))

    def draw(self, position: Position, world: World) -> Draw:
        count = world.batch_tokens // self.seq_len
        phase = self.phase_at(position)
        epoch, start = self.cursor_at(position)
        drawn = mixture_sources(self._key, self._drawn(position), count, self._bounds[phase])
        places = np.empty(count, np.uint64)
        cursors = []
        for source, ((passed, at), size) in enumerate(zip(position.cursors, self.sizes, strict=True)):
            mine = drawn == source
            begin, got = passed * size + at, int(mine.sum())
            if got and (not at or at + got > size):  # a pass begins
                self.sources[source].check()
            places[mine] = np.arange(begin, begin + got, dtype=np.uint64)
            cursors.append(divmod(begin + got, size))
        tokens = count * self.seq_len
        return Draw(
            after=Position(tuple(cursors), position.batches + 1, position.tokens + tokens),
            phase=phase,
            source=SAMPLES,
            epoch=epoch,
            start_row=start,
            rows=count,
            tokens=tokens,
            ends_epoch=start + count >= sum(self.sizes),
            detail=(drawn, places),
        )

    def fill(self, draw: Draw, rank: int, world: World, memory: NDArray[np.uint8]) -> Batch:
        drawn, places = (array[rank :: world.ranks] for array in draw.detail)
        arrays = self.arrays(memory, len(drawn))
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
        return draw.batch(self.phases, arrays, {}, rows)


def _key(seed: int, *names: str) -> int:
    return seed_from("mixture", seed, *names)
