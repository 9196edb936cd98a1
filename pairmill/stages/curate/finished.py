"""Reads a finished folder of curate: what became of its rows, and their texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, task_name
from pairmill.engine.manifest import File, Manifest
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats import rows, some_rows
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.results.rows import CurateResult
from pairmill.formats.rows import Row
from pairmill.stages.curate.operations import in_order

STAGE: Final = "curate"
REMOVED: Final = ("drop", "cap")
"""Actions that remove a row."""

RowId = tuple[str, int]
"""Task and ordinal."""


@dataclass(frozen=True)
class CuratedFolder:
    """A finished folder.

    Args:
        manifest: of it.
    """

    uri: str
    manifest: Manifest

    @classmethod
    def open(cls, path: str) -> Self:
        """Open the folder that ``path=`` names.

        Raises:
            InputError: it is absent, unfinished, of another stage, or some of its files are missing or changed.
        """
        uri = storage.normalise(path, "path")
        manifest = manifests.read_intact(uri)
        expected = "the folder that pairmill.stages.curate printed"
        if manifest is None:
            raise InputError(
                "not a finished folder", where=f"path={uri}", got=f"no {manifests.MANIFEST}", expected=expected
            )
        if manifest.stage != STAGE:
            raise InputError(
                "the folder is of another stage", where=f"path={uri}", got=manifest.stage, expected=expected
            )
        return cls(uri, manifest)

    @cached_property
    def result(self) -> CurateResult:
        """What the manifest promises."""
        return CurateResult.from_manifest(self.manifest)

    @cached_property
    def tasks(self) -> dict[str, File]:
        """The file of each task's kept rows."""
        return {file.task: file for file in self.manifest.files if file.task}

    @cached_property
    def _beside(self) -> dict[tuple[str, str, str], File]:
        """Files of attributes and decisions, by kind, operation and task."""
        result = {}
        for file in self.manifest.files:
            path = file.path.removeprefix(HELD_OUT)
            if not file.task and path.startswith(("attributes/", "decisions/")):
                kind, operation, name = path.split("/", 2)
                before = file.path[: len(file.path) - len(path)]
                result[kind, operation, before + name.removesuffix(".parquet")] = file
        return result

    def operations(self, task: str | None = None) -> list[str]:
        """Return the operations that were on, in order; with a task, also those with decisions about its rows."""
        known = set(self.result.operations)
        known |= {name for kind, name, owner in self._beside if kind == "decisions" and task in (None, owner)}
        return in_order(known)

    def row_id(self, text: str, option: str = "row") -> RowId:
        """Parse ``<task>:<ordinal>``, where the task may be given as the path of its file.

        Raises:
            UsageError: not such a text, an unknown task, or a row that the task does not have.
        """
        name, _, number = text.rpartition(":")
        if not name or not number.isascii() or not number.isdecimal():
            raise UsageError(
                "not a row", where=option, got=repr(text), expected="<task>:<ordinal>, as in data__a.jsonl:0"
            )
        held_out = HELD_OUT if name.startswith(HELD_OUT) else ""
        task = held_out + task_name(name.removeprefix(HELD_OUT))
        if task not in self.tasks:
            raise UsageError(
                "unknown task",
                where=option,
                got=repr(name),
                expected="a task of this folder",
                hint=did_you_mean(task, self.tasks, f"the first is {min(self.tasks, default='none')!r}"),
            )
        ordinal = int(number)
        count = self.count(task)
        if ordinal >= count:
            raise UsageError(
                "the task does not have this row",
                where=option,
                got=str(ordinal),
                expected=f"0 to {count - 1}" if count else "no row: the task is empty",
                hint="ordinals count the rows of the input, from 0",
            )
        return task, ordinal

    def count(self, task: str) -> int:
        """Return how many rows the task had before."""
        if task in self.manifest.shards:
            return self.manifest.shards[task].rows_in
        return rows.count(self._uri(self.tasks[task])) + len(self._removed(task))

    def _removed(self, task: str) -> list[int]:
        """Ordinals of the rows that a decision removed, in order."""
        result: set[int] = set()
        for operation in self.operations(task):
            for batch in self._decisions(operation, task, ["ordinal", "action"]):
                columns = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                result.update(ordinal for ordinal, action in columns if action in REMOVED)
        return sorted(result)

    def _kept(self, task: str) -> NDArray[np.int64]:
        """Ordinals of the kept rows, in order: all but those that a decision removed.

        The attribute ``origin.ordinal`` may count the rows of an earlier stage's file, not of the one that was curated.
        """
        return np.delete(np.arange(self.count(task), dtype=np.int64), self._removed(task))

    def findings(self, operation: str, task: str, ordinal: int) -> list[dict[str, Any]]:
        """Return what an operation decided about a row, by the names of ``pairmill.formats.decisions.SCHEMA``."""
        result = []
        for batch in self._decisions(operation, task):
            at = np.flatnonzero(np.asarray(batch.column(batch.schema.get_field_index("ordinal"))) == ordinal)
            result += [batch.slice(int(index), 1).to_pylist()[0] for index in at]
        return result

    def decisions(self, operation: str, rule: str) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Decisions by a rule, with their task, in batches."""
        for kind, name, task in sorted(self._beside):
            if kind == "decisions" and name == operation:
                for batch in self._decisions(operation, task):
                    rules = batch.column(batch.schema.get_field_index("rule")).to_pylist()
                    at = [index for index, item in enumerate(rules) if item == rule]
                    if at:
                        yield task, batch.take(pa.array(at))

    def _decisions(self, operation: str, task: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        file = self._beside.get(("decisions", operation, task))
        if file is not None:
            uri = self._uri(file)
            with open_parquet(uri, _content(file)) as parquet:
                yield from parquet_batches(uri, parquet, columns)

    def attributes(self, task: str, ordinal: int) -> dict[str, Any]:
        """Return the attributes of a kept row by ``operation.column``; none of a row that was removed."""
        kept = self._kept(task)
        place = int(np.searchsorted(kept, ordinal))
        if place == len(kept) or kept[place] != ordinal:
            return {}
        result: dict[str, Any] = {}
        operations = sorted(name for kind, name, owner in self._beside if kind == "attributes" and owner == task)
        for operation in operations:
            file = self._beside["attributes", operation, task]
            uri = self._uri(file)
            with open_parquet(uri, _content(file)) as parquet:
                start = 0
                for batch in parquet_batches(uri, parquet, None):
                    if start <= place < start + len(batch):
                        values = batch.slice(place - start, 1).to_pylist()[0]
                        result |= {f"{operation}.{name}": value for name, value in values.items()}
                        break
                    start += len(batch)
        return result

    def texts(self, wanted: Iterable[RowId], given: Sequence[str]) -> dict[RowId, Row]:
        """Return the rows with these ids, as many as can be found.

        Rows that are kept are in the folder itself. Others are in the rows that were curated, which the folder does
        not know by place: without ``given`` only samples in the manifest are found, cut as they are there.

        Args:
            wanted: tasks and ordinals.
            given: folders of the rows that were curated, as ``rows=`` names them; files too.

        Raises:
            InputError: a folder has other rows, or does not have a task.
        """
        by_task: dict[str, list[int]] = {}
        for task, ordinal in wanted:
            by_task.setdefault(task, []).append(ordinal)
        result: dict[RowId, Row] = {}
        for task, ordinals in sorted(by_task.items()):
            if task not in self.tasks:  # of an index, whose rows are elsewhere
                continue
            if given:
                some = some_rows.read(_find(self.tasks[task].path, given), ordinals)
                result |= {(task, ordinal): row for ordinal, row in some.items()}
                continue
            kept = self._kept(task)
            places = {int(np.searchsorted(kept, ordinal)): ordinal for ordinal in ordinals}
            places = {place: item for place, item in places.items() if place < len(kept) and kept[place] == item}
            file = self.tasks[task]
            some = some_rows.read(self._uri(file), places, _content(file))
            result |= {(task, places[place]): row for place, row in some.items()}
            result |= {(task, item): self._sampled[task, item] for item in ordinals if (task, item) in self._sampled}
        return result

    def refuse_other_rows(self, given: Sequence[str]) -> None:
        """Raise InputError if ``rows=`` names a finished folder that this one was not made of."""
        fingerprints = {ref.fingerprint for ref in self.manifest.inputs}
        for item in given:
            uri = storage.normalise(item, "rows")
            other = None if storage.store_for(uri).exists(uri) else manifests.read(uri)
            if other is not None and other.fingerprint not in fingerprints:
                raise InputError(
                    "not the rows that were curated",
                    where=f"rows={uri}",
                    got=other.fingerprint,
                    expected=", ".join(sorted(fingerprints)),
                    hint="give what rows= of pairmill.stages.curate was",
                )

    @cached_property
    def _sampled(self) -> dict[RowId, Row]:
        result: dict[RowId, Row] = {}
        for samples in (self.result.samples, self.result.closest):
            for some in samples.values():
                for item in some:
                    result[item["task"], item["ordinal"]] = _row(item, "")
                    if item.get("other_task"):
                        result[item["other_task"], item["other_ordinal"]] = _row(item, "other_")
        return result

    def item(self, benchmark: str, item: str) -> tuple[str, str] | None:
        """Question and answer of an item, if a sample in the manifest has them."""
        for some in self.result.samples.values():
            for each in some:
                if (each.get("benchmark"), each.get("item")) == (benchmark, item):
                    return each.get("other_instruction") or "", each.get("other_response") or ""
        return None

    def _uri(self, file: File) -> str:
        return storage.join(self.uri, *file.path.split("/"))


def _row(sample: Mapping[str, Any], prefix: str) -> Row:
    return Row("", sample.get(f"{prefix}instruction") or "", sample.get(f"{prefix}response") or "")


def _content(file: File) -> Content:
    return Content(file.digest, promised=True)


def _find(path: str, given: Sequence[str]) -> str:
    """Return the URI of a file with this path below one of the folders that were given."""
    for item in given:
        top = storage.normalise(item, "rows")
        store = storage.store_for(top)
        if store.exists(top):
            if storage.name_of(top) == path:
                return top
            continue
        uri = storage.join(top, *path.split("/"))
        if store.exists(uri):
            return uri
    raise InputError(
        "the rows that were curated are not here",
        where=f"rows={','.join(given)}",
        expected=f"a folder with {path}",
        hint="give what rows= of pairmill.stages.curate was",
    )
