"""How often each row of a plan was read: one byte a row, where 255 is as often or more."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill._native import add_passes
from pairmill.engine.manifest import Manifest
from pairmill.errors import UsageError
from pairmill.formats.eligible_rows import DatasetRows
from pairmill.formats.tokens import Dataset
from pairmill.stages.sample.alarms import PASSES_TOTAL
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.exposure.reading import Reading
from pairmill.stages.sample.node.plan import SamplePlan, fingerprints_of
from pairmill.stages.sample.sampled_rows import SampledRows

Passes = NDArray[np.uint8]


class PlanPasses:
    """The passes of the rows of one plan.

    Args:
        reading: what was read of it.
        by: what a task is told by: ``key``, its content, or ``name``.

    Attributes:
        counts: of each row of the plan, in its order; uint8 [rows].
        rows: that were read, each time counted.
        places: for the key or name of each task, the first row and the number of rows of its parts in the plan.

    Raises:
        Changed: the plan is not what its manifest says.
    """

    def __init__(self, reading: Reading, by: Literal["key", "name"] = "key") -> None:
        self.reading = reading
        self._plan = SamplePlan.load(reading.uri, reading.manifest, 1, stored=True)
        self.places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        first = 0
        for source in reading.result.sources:
            self.places[source[by]].append((first, source["rows"]))
            first += source["rows"]
        self.counts = np.zeros(first, np.uint8)
        self.rows = 0
        with log.progress("passes", reading.epochs + (reading.rows > 0)) as progress:
            for order in self._plan.epochs[reading.first : reading.epochs]:
                for piece in order.pieces():
                    add_passes(self.counts, piece)
                self.rows += len(order)
                progress.advance(1, len(order), 0)
            left = reading.rows
            for piece in self._plan.epochs[reading.epochs].pieces() if left else ():
                add_passes(self.counts, piece[:left])
                self.rows += min(left, len(piece))
                left -= len(piece)
                if left <= 0:
                    break

    def of_task(self, key: str) -> Passes:
        """Return the passes of the rows of a task, part after part; uint8 [rows]."""
        return np.concatenate([np.empty(0, np.uint8), *(self.counts[at : at + rows] for at, rows in self.places[key])])

    def column(self, key: str, name: str) -> NDArray[np.int64]:
        """Return an index array of the rows of a task, part after part; int64 [rows]."""
        values = self._plan.rows[name]
        parts = [values.part(at, at + rows) for at, rows in self.places[key] if rows]
        return np.concatenate([np.empty(0, np.int64), *parts])


@dataclass(frozen=True)
class SeenRows:
    """What a model saw of the plans of its training, one after another.

    A row is told by the content of its task, and by where its response begins there.

    Attributes:
        readings: of the plans.
        shared: how many rows of each task of a new plan were seen, by its name; :meth:`put_passes` counts them.
        by: what tells a task: ``key``, its content, or ``name``, the one that it has in the plans.
    """

    readings: Sequence[Reading]
    shared: dict[str, int] = field(default_factory=dict)
    by: Literal["key", "name"] = "key"

    @classmethod
    def parse(cls, after: str, root: str = "") -> Self:
        """Open what ``after=`` names, and all that came before it. Raises as :meth:`Reading.parse` and its chain."""
        return cls(Reading.parse(after, "after", root).chain())

    @classmethod
    def from_config(cls, config: SampleConfig) -> Self:
        """Open what the options name. Raises UsageError with the reference's profile, and as :meth:`parse`."""
        if config.profile == "data_io":
            hint = "leave one of them out"
            raise UsageError("the reference draws each plan anew", where="after", got=config.after, hint=hint)
        return cls.parse(config.after, config.root)

    @classmethod
    def before(cls, uri: str, manifest: Manifest) -> Self:
        """Open what was read before a plan that goes on after others. Raises as :meth:`Reading.chain`."""
        return cls(Reading(uri, manifest, 0).chain()[:-1])

    @property
    def place(self) -> str:
        """What was read, as the fingerprint of an input; the manifest of the last plan says what was before."""
        return self.readings[-1].place

    def recorded(self, sampled: Iterable[SampledRows]) -> dict[str, Any]:
        """Return what the manifest of the new plan says of it; ``sampled`` is what was drawn."""
        last = self.readings[-1]
        return {
            "plan": last.manifest.fingerprint,
            "fingerprints": fingerprints_of(last.manifest),
            "epochs": last.epochs,
            "rows": last.rows,
            "tasks": sum(count > 0 for count in self.shared.values()),
            "seen": sum(self.shared.values()),
            "left_out": sum(item.ledger.dropped.get(PASSES_TOTAL, 0) for item in sampled),
        }

    def count(self) -> None:
        """Read the epochs, once."""
        self.plans  # noqa: B018

    @cached_property
    def plans(self) -> list[PlanPasses]:
        """The passes of each; the epochs are read for it, once."""
        return [PlanPasses(reading, self.by) for reading in self.readings]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The tasks of which a row may have been seen."""
        sources = (item for reading in self.readings for item in reading.result.sources)
        return frozenset(item["key"] for item in sources if item["rows"])

    def total(self, key: str, most: int) -> int:
        """Return the passes of all rows of a task together; of each at most ``most`` count."""
        parts = [*self._of_task(key)] if key in self.keys else []
        if not parts:
            return 0
        _, counts = _by_start(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return int(np.minimum(counts, most).sum(dtype=np.int64))

    def put_passes(self, task: Dataset, rows: DatasetRows) -> None:
        """Say of each row of a new plan how often it was seen."""
        rows.passes = self.of_rows(task.key, rows.columns["resp_start"])
        self.shared[task.name] = rows.rows_seen(1)

    def of_rows(self, key: str, starts: NDArray[Any]) -> Passes:
        """Return how often rows of a task were seen, uint8 [rows]; ``starts`` is where their responses begin."""
        result = np.zeros(len(starts), np.uint16)
        for theirs, counts in self._of_task(key):
            at = np.searchsorted(theirs, starts)
            here = at < len(theirs)
            here[here] = theirs[at[here]] == starts[here]
            result[here] += counts[at[here]]
        return np.minimum(result, 255).astype(np.uint8)

    def of_whole_rows(self, key: str, starts: NDArray[np.int64]) -> Passes:
        """Return how often rows were seen, uint8 [rows]; of a row that was split, the piece that was seen most.

        Args:
            starts: where the responses of all its rows begin in its tokens, int64 [rows].
        """
        order = np.argsort(starts, kind="stable")
        result = np.zeros(len(starts), np.uint16)
        for theirs, counts in self._of_task(key):
            mine = np.zeros(len(starts), np.uint16)
            np.maximum.at(mine, order[np.searchsorted(starts[order], theirs, "right") - 1], counts)
            result += mine
        return np.minimum(result, 255).astype(np.uint8)

    def _of_task(self, key: str) -> Iterator[tuple[NDArray[np.int64], Passes]]:
        """Yield of each plan where the responses of the rows of a task begin, ascending, and their passes."""
        for plan in self.plans:
            if plan.places.get(key):
                starts, counts = plan.column(key, "resp_start"), plan.of_task(key)
                yield (starts, counts) if np.all(starts[1:] > starts[:-1]) else _by_start(starts, counts)


def _by_start(starts: NDArray[np.int64], counts: Passes) -> tuple[NDArray[np.int64], Passes]:
    """Add up the passes of equal rows. Return where they begin, ascending, and their passes."""
    different, place = np.unique(starts, return_inverse=True)
    sums = np.bincount(place.ravel(), counts, minlength=len(different))
    return different, np.minimum(sums, 255).astype(np.uint8)
