"""A sample's plan: which rows, and which of them at which position of which epoch.

A plan does not depend on how the arrays are laid out (:mod:`pairmill.stages.sample.node.layout`). It is made once, kept
below the project's root as ``plan/<name>.npy``, and carried out on any number of machines.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.lib import format as npy

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.content import Content
from pairmill.engine.manifest import InputRef, Manifest
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER, find_base
from pairmill.formats.tokens import BYTES, INDEX, Array
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.plan_arrays import (
    HEADER_BYTES,
    JoinedArray,
    MergedArray,
    PlanArray,
    StoredArray,
    Values,
)

if TYPE_CHECKING:
    from pairmill.engine.writer import Writer

_EPOCHS = f"{FOLDER}epoch_"
_PLACES = "places_"
VERSION = 6
"""Of the plans that this program carries out: that of the stage (pairmill/stages/sample/core.py)."""


def fingerprint_of(version: int, options: Mapping[str, Any], inputs: Iterable[InputRef], layout: OutputFormat) -> str:
    """Content identity of a sample: the name of its plan's folder, and of its own in a node's folder."""
    refs = [[ref.role, ref.fingerprint] for ref in inputs]
    return manifests.fingerprint_from("sample", version, {**options, "layout": layout}, refs)


def fingerprints_of(manifest: Manifest) -> dict[str, str]:
    """Return the fingerprints of a plan's arrays on a node, by layout."""
    layouts: tuple[OutputFormat, ...] = ("compact", "data_io", "reference")
    return {name: fingerprint_of(manifest.version, manifest.options, manifest.inputs, name) for name in layouts}


class PlannedDataset(NamedTuple):
    """A data set of a plan: its name, its tokens, and how many of its rows are taken."""

    name: str
    length: int
    rows: int


class SamplePlan(NamedTuple):
    """Rows and epochs.

    Args:
        datasets: in the order of the plan.
        rows: the four index arrays of all rows that are taken, data set by data set in the order of the tokenized
            folder; int32 or int64, shape (rows,). Spans point into the data set's own ``tokens.npy``; responses are
            already cut to the context. Held-out rows may have the bytes of their responses too.
        epochs: for each epoch its rows in training order, as positions in ``rows``; uint32.
        parts: of a plan that adds to another, or extends it with rows: the plan that nothing was added to, and what was
            added, one after another; else none. Their data sets and rows together are those of the plan.
    """

    datasets: list[PlannedDataset]
    rows: Mapping[str, Values]
    epochs: Sequence[Values]
    parts: tuple[SamplePlan, ...] = ()

    def save(self, out: Writer) -> None:
        columns = {**self.rows, **{f"epoch_{number}": order for number, order in enumerate(self.epochs)}}
        for name, values in columns.items():
            with out.create(f"{FOLDER}{name}.npy") as path:
                values.save(path)

    @classmethod
    def load(cls, home: str, manifest: Manifest, workers: int, *, stored: bool = False) -> SamplePlan:
        """Read the plan in the folder ``home``, with the base that it adds to.

        Args:
            home: folder of the plan.
            stored: read arrays where they are in place of holding them.

        Raises:
            InputError: a file differs from the manifest, or the base is not there.
        """
        files = {file.path: file for file in manifest.files}

        def column(name: str) -> Values:
            path = f"{FOLDER}{name}.npy"
            if stored:
                content = Content(files[path].digest, promised=True, size=files[path].size)
                return StoredArray(Array.open(storage.join(home, *path.split("/")), content))
            data = manifests.read_file(home, manifest, path)
            return PlanArray(npy.read_array(io.BytesIO(data), allow_pickle=False))

        epochs = sum(file.path.startswith(_EPOCHS) for file in manifest.files)
        known = any(file.path == f"{FOLDER}{BYTES}.npy" for file in manifest.files)
        columns = (*INDEX, BYTES) if known else INDEX
        base = find_base(home, manifest)
        names = [*columns, *(f"epoch_{number}" for number in range(epochs))]
        names += [] if base is None else [f"{_PLACES}{number}" for number in range(epochs)]
        with ThreadPoolExecutor(workers) as pool:
            arrays = dict(zip(names, pool.map(column, names), strict=True))
        result = SampleResult.from_manifest(manifest)
        datasets = planned_datasets(result)
        rows = {name: arrays[name] for name in columns}
        orders = [arrays[f"epoch_{number}"] for number in range(epochs)]
        if base is None:
            return cls(datasets, rows, orders, _parts(datasets, rows, result.parts))
        under = cls.load(*base, workers, stored=stored)
        added = cls(datasets[len(under.datasets) :], rows, orders)
        return Addition(added, [arrays[f"{_PLACES}{number}"] for number in range(epochs)]).to(under, datasets)


def planned_datasets(result: SampleResult) -> list[PlannedDataset]:
    """Return the data sets of a plan, in the order of its rows: one whose rows were added to has several entries."""
    return [PlannedDataset(item["name"], item["length"], item["rows"]) for item in result.sources]


def _parts(
    datasets: list[PlannedDataset], rows: Mapping[str, PlanArray], parts: Sequence[int]
) -> tuple[SamplePlan, ...]:
    """Cut the rows of a plan that extends another as its files of tokens have them; ``parts`` counts data sets."""
    result, first = list[SamplePlan](), 0
    if len(parts) == 1:
        return ()
    for low, high in pairwise(accumulate(parts, initial=0)):
        mine = datasets[low:high]
        last = first + sum(item.rows for item in mine)
        cut = {name: PlanArray(values.array()[first:last]) for name, values in rows.items()}
        result.append(SamplePlan(mine, cut, ()))
        first = last
    return tuple(result)


class Addition(NamedTuple):
    """What a plan adds to its base: all that is kept of it.

    Attributes:
        plan: the added data sets, their rows, and these rows in the order of each epoch.
        places: where they come in each epoch, ascending; uint32.
    """

    plan: SamplePlan
    places: Sequence[Values]

    def save(self, out: Writer) -> None:
        self.plan.save(out)
        for number, places in enumerate(self.places):
            with out.create(f"{FOLDER}{_PLACES}{number}.npy") as path:
                places.save(path)

    def to(self, base: SamplePlan, datasets: list[PlannedDataset]) -> SamplePlan:
        """Return the whole plan; ``datasets`` are all of it, by the names that they have now."""
        rows = {name: JoinedArray(base.rows[name], self.plan.rows[name]) for name in INDEX}
        first = len(base.rows[INDEX[0]])
        epochs = [
            MergedArray(under, added, places, first)
            for under, added, places in zip(base.epochs, self.plan.epochs, self.places, strict=True)
        ]
        return SamplePlan(datasets, rows, epochs, (*(base.parts or (base,)), self.plan))


def sizes_of(manifest: Manifest) -> tuple[int, list[int]]:
    """Return how many rows a plan has, those of its base included, and each epoch of it; no array is read."""
    sizes = {file.path: (file.size - HEADER_BYTES) // 4 for file in manifest.files if file.path.startswith(_EPOCHS)}
    result = SampleResult.from_manifest(manifest)
    epochs = [sizes[f"{_EPOCHS}{number}.npy"] for number in range(len(sizes))]
    under = result.base["epochs"] if result.base else [0] * len(epochs)
    rows = sum(source["rows"] for source in result.sources)
    return rows, [mine + theirs for mine, theirs in zip(epochs, under, strict=True)]
