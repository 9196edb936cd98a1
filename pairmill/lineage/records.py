"""Which records the rows of a finished folder are made of, and which rows records became; nothing is scanned for it.

A row's way back is short: its place in token arrays is the ordinal in its row file, or ``rows.npy`` has that; the
attribute ``origin`` that curate and select write has its ordinal in the file of clean; and ``records/`` beside that
file has the record. All are read by row groups.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.listing import read_head
from pairmill.engine.manifest import is_fingerprint
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats import attributes, records
from pairmill.formats.records import RecordId, RecordsFile
from pairmill.formats.results.raw import CleanResult
from pairmill.formats.row_files import ORIGIN
from pairmill.formats.row_groups import RowGroups
from pairmill.formats.tokenized import Opening
from pairmill.formats.tokenized_path import open_place
from pairmill.formats.tokens import Dataset

_SINCE: Final = 8
"""The version of clean that first kept records."""
_ARRAY: Final = "{}/inst_len.npy"
_NEAR: Final = 3
_SHOWN: Final = 5

Ordinals = NDArray[np.int64]


class Row(NamedTuple):
    """A row of a task by its ordinal in the task's row file, from 0."""

    task: str
    ordinal: int

    def __str__(self) -> str:
        return f"{self.task}:{self.ordinal}"


class Level(NamedTuple):
    """Some rows of clean as a later folder has them.

    Attributes:
        task: what it calls their task.
        ordinals: in its row file, int64 [rows]; -1 of a row that it does not have.
    """

    uri: str
    task: str
    ordinals: Ordinals


class _Task(NamedTuple):
    """Where the files of a task are.

    Args:
        name: of it in the folders of rows.
        folders: with its rows, the last one first; the first one is of clean.
        tokens: its arrays, in a tokenized folder.
    """

    name: str
    folders: tuple[str, ...]
    tokens: Dataset | None

    @property
    def cleaned(self) -> str:
        """The folder of clean."""
        return self.folders[-1]

    def origin(self, folder: str) -> str:
        """Return the file with the ordinals that the rows of a folder had in that of clean; empty: the same ones."""
        uri = _beside(folder, self.name, ORIGIN)
        return uri if folder != self.cleaned and storage.store_for(uri).exists(uri) else ""

    def records(self) -> str:
        """Return the file with the records of the rows that clean wrote."""
        return storage.join(self.cleaned, *records.path_of(self.name).split("/"))


class Origins:
    """Which records the rows of a finished folder are made of.

    Args:
        folder: URI of the folder: of clean, of a stage that chooses rows, tokenized, a union, or a plan.
        root: project below which the folders are that it was made of; empty = the one that the folder is below.

    Raises:
        InputError: it is not such a folder.
    """

    def __init__(self, folder: str, root: str = "") -> None:
        self.uri = folder
        self.root = root or storage.parent_of(storage.parent_of(folder))
        head = read_head(folder)
        self._is_tokenized = head.stage in ("tokenize", "union", "sample")
        self._tasks: dict[str, _Task] = {}
        self._ends: dict[str, dict[str, int]] = {}
        self._alone = folder if head.stage == "tokenize" else ""

    @classmethod
    def open(cls, folder: str, root: str = "") -> Self:
        """Open a folder by path or URI."""
        return cls(storage.normalise(folder, "path"), storage.normalise(root, "root") if root else "")

    @cached_property
    def _datasets(self) -> Mapping[str, Dataset]:
        folder = open_place(self.uri, Opening("path", held_out=None))
        return {task.name: task for task in folder.tasks}

    @cached_property
    def tasks(self) -> list[str]:
        """Names of all tasks, sorted, as the folder calls them; held-out ones too."""
        if self._is_tokenized:
            return sorted(self._datasets)
        manifest = manifests.read(self.uri)
        return sorted({file.task for file in manifest.files if file.task}) if manifest is not None else []

    def has(self, task: str) -> bool:
        """Return whether it has a task of this name."""
        return (
            task in self._tasks
            or (bool(self._alone) and _exists(self._alone, _ARRAY.format(task)))
            or task in self.tasks
        )

    def ordinals(self, task: str, numbers: Ordinals) -> Ordinals:
        """Return the ordinals in the row file of rows that are numbered as in token arrays; int64 [rows] both."""
        known = self._all_ordinals(task)
        return numbers if known is None else known[numbers]

    def numbers(self, task: str, ordinals: Ordinals) -> Ordinals:
        """Return the numbers in token arrays of all rows that have one of these ordinals, ascending; int64 [rows]."""
        known = self._all_ordinals(task)
        if known is not None:
            return np.flatnonzero(np.isin(known, ordinals)).astype(np.int64)
        return np.unique(ordinals)

    def _all_ordinals(self, task: str) -> Ordinals | None:
        tokens = self.find_task(task).tokens
        return None if tokens is None else tokens.ordinals()

    def records(self, task: str, ordinals: Ordinals) -> list[RecordId]:
        """Return the records of rows of a task, in the order of their ordinals (int64 [rows]).

        Raises:
            UsageError: there is no such task or row.
            InputError: the records are not known.
        """
        ordinals = self.cleaned(task, ordinals)
        with RecordsFile(self.find_task(task).records()) as file:
            _refuse_beyond(ordinals, len(file), task)
            return file.read(ordinals)

    def cleaned(self, task: str, ordinals: Ordinals) -> Ordinals:
        """Return the ordinals that rows of a task had in the folder of clean, in the same order; int64 [rows]."""
        where = self.find_task(task)
        if origin := where.origin(where.folders[0]):
            with RowGroups(origin) as groups:
                _refuse_beyond(ordinals, len(groups), task)
                return groups.column("ordinal", ordinals)
        return ordinals

    def follow(self, task: str, ordinals: Ordinals) -> Iterator[Level]:
        """Yield what became of rows of clean, in it and in each folder of rows after it.

        Args:
            task: as the folder that was opened calls it.
            ordinals: of the rows in the folder of clean, int64 [rows].
        """
        where = self.find_task(task)
        for folder in reversed(where.folders):
            known = dict(zip(ordinals.tolist(), ordinals.tolist(), strict=True))
            if origin := where.origin(folder):
                with RowGroups(origin) as groups:
                    places = groups.find("ordinal", ordinals)
                    known = dict(zip(groups.column("ordinal", places).tolist(), places.tolist(), strict=True))
            yield Level(folder, where.name, np.array([known.get(at, -1) for at in ordinals.tolist()], np.int64))

    def rows(self, wanted: Iterable[RecordId]) -> dict[RecordId, list[Row]]:
        """Return the rows that records became, sorted; of one without a row that is left none.

        Raises:
            InputError: a source has no such record.
        """
        result: dict[RecordId, list[Row]] = {record: [] for record in wanted}
        for task, rows in self.cleaned_rows(result).items():
            *_, last = self.follow(task, np.array([*rows], np.int64))
            for ordinal, record in zip(last.ordinals.tolist(), rows.values(), strict=True):
                result[record] += [Row(task, ordinal)] if ordinal >= 0 else []
        for made in result.values():
            made.sort()
        return result

    def cleaned_rows(self, wanted: Iterable[RecordId]) -> dict[str, dict[int, RecordId]]:
        """Return the rows that clean made of records: by task, as this folder calls it, their ordinals in clean's file.

        Raises:
            InputError: a source has no such record.
        """
        result: dict[str, dict[int, RecordId]] = {}
        by_source: dict[str, list[RecordId]] = {}
        for record in wanted:
            by_source.setdefault(record.source, []).append(record)
        for source, some in by_source.items():
            left = {*some}
            for folder, tasks in self._tasks_of(source, some):
                for own in tasks:
                    with RecordsFile(storage.join(folder, *records.path_of(own).split("/"))) as file:
                        rows = dict(file.search(some))
                    left -= {*rows.values()}
                    for name in self._called(own, folder) if rows else ():
                        result[name] = rows
            for record in sorted(left):
                self._refuse_unknown(record)
        return result

    def about(self, record: RecordId) -> Mapping[str, Any]:
        """Return what clean says of the source of a record: origin, revision, licence and the like."""
        return next((item["about"] for item in self._sources(record.source).values()), {})

    def find_task(self, name: str) -> _Task:
        """Return where the files of a task are.

        Raises:
            UsageError: there is no such task.
            InputError: the folders before it are gone, or have no records.
        """
        if name not in self._tasks:
            self._tasks[name] = self._locate(name)
        return self._tasks[name]

    def _locate(self, name: str) -> _Task:
        tokens, places = None, [self.uri]
        own = name
        if self._is_tokenized:
            tokens = self._dataset(name)
            held_out = storage.name_of(storage.parent_of(tokens.uri)) == HELD_OUT.rstrip("/")
            own = f"{HELD_OUT if held_out else ''}{tokens.own}"
            home = storage.parent_of(storage.parent_of(tokens.uri) if held_out else tokens.uri)
            places = [*self._before(home)]
        for place in places:
            if folders := self._path(place, own):
                return _Task(own, tuple(folders), tokens)
        raise self._without_records(name, own, places)

    def _path(self, folder: str, own: str) -> list[str]:
        """Return the folders with the rows of a task, from this one to that of clean; none if they are not known."""
        if _has_records(folder, own):
            return [folder]
        after = (self._path(uri, own) for uri in self._before(folder)) if _has_rows(folder, own) else ()
        return next(([folder, *path] for path in after if path), [])

    def _dataset(self, name: str) -> Dataset:
        if self._alone and _exists(self._alone, _ARRAY.format(name)):
            return Dataset(name, storage.join(self._alone, *name.split("/")))
        if name not in self._datasets:
            raise _no_task(name, self.tasks, self.uri)
        return self._datasets[name]

    def _before(self, folder: str) -> Iterator[str]:
        """Yield the folders of rows that a folder was made of."""
        roots = dict.fromkeys((self.root, storage.parent_of(storage.parent_of(folder))))
        for ref in read_head(folder).inputs:
            if ref.role == "rows" and is_fingerprint(ref.fingerprint):
                stages = [ref.stage] if ref.stage else ["select", "curate", "take_out", "clean"]
                places = (storage.join(root, stage, ref.fingerprint) for root in roots for stage in stages)
                yield from filter(manifests.exists, places)

    def _above(self, folder: str) -> Iterator[str]:
        """Yield the folders of rows that one was made of, and those before them."""
        for uri in self._before(folder):
            yield uri
            yield from self._above(uri)

    def _without_records(self, name: str, own: str, places: Sequence[str]) -> InputError | UsageError:
        """Return the error for a task whose rows have no record that is known."""
        where = f"the task {name!r} of {self.uri}"
        if not self._is_tokenized and name not in self.tasks:
            return _no_task(name, self.tasks, self.uri)
        if not places:
            return InputError(
                "the rows that it was tokenized from are not known",
                where=where,
                got="no folder of clean, curate or select before it",
                expected=f"their folders below {self.root}",
                hint="name the project with root=; rows and tokens that were given have no records",
            )
        for uri in dict.fromkeys(item for place in places for item in (place, *self._above(place))):
            manifest = manifests.read(uri)
            if manifest is None or not any(file.task == own for file in manifest.files):
                continue
            if manifest.stage == "clean" and manifest.version < _SINCE:
                return _made_before(where, uri, manifest.version)
        return InputError(
            "its rows were given, and no clean made them of records",
            where=where,
            got=", ".join(places),
            expected="rows that clean made",
            hint="describe the files with a YAML source and clean them (docs/sources.md)",
        )

    @cached_property
    def _cleaned(self) -> dict[str, CleanResult]:
        """What the manifests of all folders of clean say that the folder was made of, by URI."""
        if self._is_tokenized:
            homes = {storage.parent_of(task.uri) for task in self._datasets.values()}
            homes = {storage.parent_of(home) if home.endswith(f"/{HELD_OUT.rstrip('/')}") else home for home in homes}
            ends = [place for home in sorted(homes) for place in self._before(home)]
        else:
            ends = [self.uri]
        result = {}
        for uri in dict.fromkeys(item for end in ends for item in (end, *self._above(end))):
            if read_head(uri).stage == "clean":
                manifest = manifests.read(uri)
                assert manifest is not None
                result[uri] = CleanResult.from_manifest(manifest)
        return result

    def _sources(self, name: str) -> dict[str, Mapping[str, Any]]:
        """Return what the folders of clean say of a source, by URI."""
        return {uri: made.sources[name] for uri, made in self._cleaned.items() if name in made.sources}

    def _tasks_of(self, source: str, wanted: Sequence[RecordId]) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the folders of clean that have a source, each with the source's tasks.

        Raises:
            InputError: none has.
        """
        result = self._sources(source)
        if not result:
            names = sorted({name for made in self._cleaned.values() for name in made.sources})
            got = f"{wanted[0]}, of the source {source!r}"
            raise InputError(
                "no source has this record",
                where="record",
                got=got,
                expected=f"a record of {', '.join(names[:_SHOWN])}{' …' * (len(names) > _SHOWN)}",
                hint=did_you_mean(source, names),
            )
        for uri, item in result.items():
            if "tasks" not in item:
                raise _made_before(f"the source {source!r} of {self.uri}", uri, _SINCE - 1)
            yield uri, item["tasks"]

    @cached_property
    def _names(self) -> Mapping[str, list[str]]:
        """What the folder calls the tasks of rows, by their own names."""
        result: dict[str, list[str]] = {}
        for name in self.tasks:
            own = name
            if self._is_tokenized:
                task = self._datasets[name]
                held_out = storage.name_of(storage.parent_of(task.uri)) == HELD_OUT.rstrip("/")
                own = f"{HELD_OUT if held_out else ''}{task.own}"
            result.setdefault(own, []).append(name)
        return result

    def _called(self, own: str, cleaned: str) -> Iterator[str]:
        """Yield what the folder calls a task of a folder of clean; nothing if it does not have it."""
        for name in self._names.get(own, ()):
            if self.find_task(name).cleaned == cleaned:
                yield name

    def _refuse_unknown(self, record: RecordId) -> None:
        """Raise InputError if no row is made of the raw file of a record, or none of it or of a record after it."""
        last = self._last_lines(record.source)
        if record.file not in last:
            near = get_close_matches(record.file, sorted(last), _NEAR, 0) or sorted(last)[:_NEAR]
            raise InputError(
                "no source has this record",
                where="record",
                got=str(record),
                expected=f"a record of a raw file that gave rows, as {', '.join(near)} did",
                hint=f"write {near[0]}:<line from 1>" if near else f"no row is made of {record.source}",
            )
        if record.line > last[record.file]:
            raise InputError(
                "no source has this record, or the file ends with records that give no row",
                where="record",
                got=str(record),
                expected=f"lines 1 to {last[record.file]:,}",
                hint=f"the last one that gave a row is {record.file}:{last[record.file]}",
            )

    def _last_lines(self, source: str) -> Mapping[str, int]:
        """Return the last line of each raw file of a source that gave rows."""
        if source not in self._ends:
            ends = self._ends[source] = {}
            for uri, item in self._sources(source).items():
                for task in item["tasks"]:
                    with RecordsFile(storage.join(uri, *records.path_of(task).split("/"))) as file:
                        for name, line in file.last_lines().items():
                            ends[name] = max(ends.get(name, 0), line)
        return self._ends[source]


def _made_before(where: str, folder: str, version: int) -> InputError:
    return InputError(
        "it was made before clean kept which record each row is made of",
        where=where,
        got=f"{folder}, made by version {version} of clean",
        expected=f"version {_SINCE} or later",
        hint="make it again from clean on: run pairmill clean with the same options, then the stages after it",
    )


def _beside(folder: str, task: str, operation: str) -> str:
    """Return the URI of a task's attributes in a folder of rows."""
    top = HELD_OUT if task.startswith(HELD_OUT) else ""
    return storage.join(folder, *f"{top}{attributes.path_of(task.removeprefix(top), operation)}".split("/"))


def _exists(folder: str, path: str) -> bool:
    uri = storage.join(folder, *path.split("/"))
    return storage.store_for(uri).exists(uri)


def _has_records(folder: str, task: str) -> bool:
    return _exists(folder, records.path_of(task))


def _has_rows(folder: str, task: str) -> bool:
    """Return whether a stage that chooses rows has a task; held-out ones have no numbers of rows, as all stay."""
    uri = _beside(folder, task, ORIGIN)
    return task.startswith(HELD_OUT) or storage.store_for(uri).exists(uri)


def _refuse_beyond(ordinals: Ordinals, rows: int, task: str) -> None:
    if len(ordinals) and int(ordinals.max()) >= rows:
        expected = f"0 to {rows - 1:,}"
        raise UsageError("no such row", where="row", got=f"{task}:{int(ordinals.max())}", expected=expected)


def _no_task(name: str, tasks: Sequence[str], where: str) -> UsageError:
    expected = ", ".join(tasks[:_SHOWN]) + " …" * (len(tasks) > _SHOWN)
    return UsageError("no such task", where=where, got=name, expected=expected, hint=did_you_mean(name, tasks))
