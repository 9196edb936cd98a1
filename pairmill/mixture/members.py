"""Rows of a task that are drawn apart from its others: chosen ones, classes by length, and rows that stay together.

What is chosen is said by the numbers of rows in the task's arrays, whether they may be sampled or not.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy

from pairmill import arrow_compute as pc
from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, Content, pinned, whole
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import fingerprint_from
from pairmill.errors import InputError, UsageError
from pairmill.formats import attributes
from pairmill.formats.eligible_rows import RowOptions, rows_of
from pairmill.formats.row_files import ORIGIN, attributes_of
from pairmill.formats.tokens import Dataset
from pairmill.mixture.units import Eligible, ExpectedDraw, Units
from pairmill.rules.book import Rules
from pairmill.rules.clause import Clause
from pairmill.rules.rule import Numbers, Part, Rule
from pairmill.rules.solve import Pool, draw_variances
from pairmill.rules.solve_level import Counts, Level, spread, whole_rows

Beside = Mapping[str, InputFile]
"""Files of attributes of a task by operation."""

_WORDS = ("select_rows", "keep_together", "lengths")
_ORDINAL = f"{ORIGIN}.ordinal"
_ROWS = "give rows= the rows that were tokenized"


@dataclass(frozen=True)
class RowChoice:
    """What a rule says of single rows of a task.

    Args:
        task: of the tokenized folder.
        clause: the rule.
        chosen: the rows that may be drawn, uint32 ascending; None = all.
        beside: attributes of the rows that were tokenized; None without.
    """

    task: Dataset
    clause: Clause
    options: RowOptions
    chosen: Numbers | None = None
    beside: Beside | None = None

    def read(self) -> Eligible:
        """Read the rows that may be drawn.

        Raises:
            InputError: there are no such rows, or the arrays are damaged.
        """
        made = rows_of(self.task.name, self.clause.rule, self.task.index(), self.options, numbered=True)
        assert made.origins is not None
        columns = made.columns
        result = Eligible(made.origins, *(columns[name].astype(np.int64) for name in ("inst_len", "resp_len")))
        if self.chosen is None:
            return result
        if len(self.chosen) and self.chosen[-1] >= made.ledger.rows_in:
            raise InputError(
                "a row is chosen that the task has not",
                where=f"{self.clause.where} select_rows, task {self.task.name!r}",
                got=f"row {self.chosen[-1]:,}",
                expected=f"below {made.ledger.rows_in:,}",
                hint="choose among the rows of this tokenized folder; they are numbered from 0",
            )
        return result.take(np.isin(result.numbers, self.chosen, assume_unique=True))

    def classes(self, rows: Eligible) -> list[Eligible]:
        """Return the rows of each class by length; without classes, all."""
        if not self.clause.lengths:
            return [rows]
        edges = [item.upto for item in self.clause.lengths if item.upto is not None]
        code = np.searchsorted(edges, rows.inst_len + rows.resp_len, side="left")
        return [rows.take(code == number) for number in range(len(self.clause.lengths))]

    def parts(self, rows: tuple[int, ...], stream: str) -> list[Part]:
        """Return what is drawn.

        Args:
            rows: of the task in each epoch.
            stream: seed and name of its random numbers.

        Raises:
            InputError: the rows are not there, or lack an attribute.
        """
        eligible = self.read()
        if self.clause.keep_together:
            return self._units_of(eligible, rows).parts(rows, stream)
        classes = self.classes(eligible)
        if len(classes) == 1:
            return [Part("", eligible.numbers, rows)]
        wanted = self.split([len(item.numbers) for item in classes], rows)
        return [
            Part(f"length {number}", item.numbers, tuple(wanted[number].tolist()))
            for number, item in enumerate(classes)
        ]

    def draw(self, rows: tuple[int, ...]) -> ChosenRows:
        """Return what is drawn of the task, if each epoch has these numbers of rows."""
        return ChosenRows(self, rows)

    def expected_sums(self, rows: Eligible, rule: Rule) -> tuple[float, ...]:
        """Return what :meth:`Eligible.sums` does, with the means that an epoch has: classes by length change them."""
        classes = self.classes(rows)
        count = len(rows.numbers)
        if len(classes) == 1 or not count:
            return rows.sums()
        wanted = count if rule.max_per_file is None else min(count, rule.max_per_file)
        drawn = self.split([len(item.numbers) for item in classes], [max(1, wanted)])[:, 0]
        parts = [item.sums() for item in classes]
        total = drawn.sum()
        sums = [
            sum(times * part[at] / max(1, part[0]) for times, part in zip(drawn, parts, strict=True))
            for at in range(1, 5)
        ]
        return count, *(value * count / total for value in sums)

    def expected(self, rows: tuple[int, ...]) -> ExpectedDraw:
        """Return what an epoch has on average of a task that is drawn by length or by units, if each epoch is to have
        these numbers of rows."""
        if self.clause.keep_together:
            return self._units_of(self.read(), rows).expected(rows)
        classes = self.classes(self.read())
        have, inst, resp, squares, resp_squares = np.array([item.sums() for item in classes]).T.astype(np.int64)
        pool = Pool(have, inst, resp, squares, resp_squares, np.arange(len(classes)))
        drawn = self.split(have.tolist(), rows).sum(1).astype(np.float64)
        count = len(rows)
        return ExpectedDraw(
            sum(rows) / count,
            float((drawn * pool.mean()).sum()) / count,
            float((drawn * pool.mean("response")).sum()) / count,
            float(np.sqrt(draw_variances(pool, drawn).sum())) / count,
        )

    def split(self, have: Sequence[int], rows: Sequence[int]) -> Counts:
        """Share the rows of epochs out over classes by length, int64 [classes, epochs].

        Rows of a class come again in an epoch that is to have more than there are, unless the class says that they do
        not; what it lacks then goes to the others by their shares.
        """
        lengths, there = self.clause.lengths, np.array(have, np.float64)
        shares = np.array([item.share for item in lengths]) * (there > 0)
        again = np.array([not item.no_repeat for item in lengths])
        result = np.zeros((len(lengths), len(rows)), np.int64)
        for count in {*rows}:
            level = Level(shares, np.where(again & (there > 0), float(count), np.minimum(there, count)))
            epochs = [number for number, value in enumerate(rows) if value == count]
            real = level.rows(level.reaching(count)) * len(epochs)
            result[:, epochs] = spread(whole_rows(real, np.arange(len(lengths))), len(epochs))
        return result

    def _units_of(self, eligible: Eligible, rows: Sequence[int]) -> Units:
        """Return the units, of rows with the same attribute, that epochs of these numbers of rows have room for."""
        where = f"{self.clause.where} keep_together"
        values = column_of(self.task, self.beside or {}, self.clause.keep_together, where)
        codes = values.dictionary_encode()
        # A row without a value stays by itself.
        alone = pa.array(np.arange(len(codes)) + len(codes.dictionary))
        units = pc.coalesce(codes.indices.cast(pa.int64()), alone).to_numpy()
        return Units.from_rows(eligible, units[eligible.numbers], rows)


@dataclass(frozen=True)
class ChosenRows:
    """What is drawn of a task whose rule chooses single rows: how many each epoch has."""

    choice: RowChoice
    rows: tuple[int, ...]

    def parts(self, stream: str) -> list[Part]:
        return self.choice.parts(self.rows, stream)


def column_of(task: Dataset, beside: Beside, name: str, where: str) -> Any:
    """Return an attribute of each row of a task's arrays, an Arrow array.

    Args:
        task: of a tokenized folder.
        beside: attributes of the rows that were tokenized.
        name: ``<operation>.<column>``.
        where: it was asked for, for messages.

    Raises:
        InputError: there is no such attribute, or it is of other rows.
    """
    operation, _, column = name.partition(".")
    if operation not in beside:
        what = f"the rows of {task.name!r} have no such attribute"
        raise attributes.unknown(what, name, where, [f"{key}.…" for key in sorted(beside)], _ROWS, InputError)
    file = beside[operation]
    with pinned(file.uri, file.content) as opened:
        table = pq.ParquetFile(opened)
        names = table.schema_arrow.names
        if column not in names:
            what = f"the rows of {task.name!r} have no such attribute"
            raise attributes.unknown(what, name, where, [f"{operation}.{each}" for each in names], _ROWS, InputError)
        values = table.read([column]).column(0).combine_chunks()
    ordinals, count = task.ordinals(), task.array("inst_len").length
    fits = len(values) == count if ordinals is None else not len(ordinals) or int(ordinals[-1]) < len(values)
    if not fits:
        raise InputError(
            f"the attributes of {task.name!r} do not fit the tokenized rows",
            where=where,
            got=f"{len(values):,} rows with attributes",
            expected=f"{count:,} rows, those of the tokenized folder",
            hint=_ROWS,
        )
    return values if ordinals is None else values.take(pa.array(ordinals))


_ROW_NUMBERS: Final = "<task>.npy with numbers of rows, or the folder that select printed"


@dataclass(frozen=True)
class Selection:
    """The rows that ``select_rows`` of a rule names.

    Args:
        clause: the rule.
        uri: a ``.npy``, a folder with one for each task, or a folder that select made.
        files: of a finished folder by path; empty if it is not finished.
    """

    clause: Clause
    uri: str
    files: Mapping[str, Content]

    @classmethod
    def open(cls, clause: Clause, tasks: Sequence[str]) -> Selection:
        """Open what a rule names.

        Raises:
            UsageError: it is one file, and the rule is for several tasks.
            InputError: it is not there, or a task has no rows in it.
        """
        where = f"{clause.where} select_rows"
        uri = storage.normalise(clause.select_rows, where)
        if uri.endswith(".npy") and len(tasks) != 1:
            raise UsageError(
                "one file of row numbers, and not one task",
                where=where,
                got=f"{len(tasks):,} tasks: {', '.join(tasks[:5])}{' …' * (len(tasks) > 5)}",
                expected="a rule for one task, or a folder with <task>.npy for each",
            )
        storage.require(uri, _ROW_NUMBERS, where)
        manifest = None if uri.endswith(".npy") else manifests.read_intact(uri)
        files = {} if manifest is None else {f.path: Content(f.digest, promised=True) for f in manifest.files}
        result = cls(clause, uri, files)
        missing = [task for task in tasks if not result._exists(task)]
        if missing:
            raise InputError(
                "no rows are chosen of a task",
                where=f"{where}={uri}",
                got=f"none of {', '.join(missing[:5])}{' …' * (len(missing) > 5)}",
                expected=_ROW_NUMBERS,
            )
        return result

    @cached_property
    def _selected(self) -> bool:
        return any(path.startswith(f"{attributes.FOLDER}/{ORIGIN}/") for path in self.files)

    def _path(self, task: str) -> str:
        return attributes.path_of(task, ORIGIN) if self._selected else f"{task}.npy"

    def _exists(self, task: str) -> bool:
        if self.uri.endswith(".npy"):
            return storage.store_for(self.uri).exists(self.uri)
        if self.files:
            return self._path(task) in self.files
        uri = storage.join(self.uri, f"{task}.npy")
        return storage.store_for(uri).exists(uri)

    def read(self, task: Dataset, beside: Beside | None) -> tuple[Numbers, str]:
        """Return the numbers of the rows in a task's arrays, ascending, and what identifies the choice.

        Raises:
            InputError: they are not numbers of rows, ascending, each once; or what select chose is of other rows.
        """
        where = f"{self.clause.where} select_rows, task {task.name!r}"
        uri = self.uri if self.uri.endswith(".npy") else storage.join(self.uri, *self._path(task.own).split("/"))
        if self._selected:
            content = self.files[self._path(task.own)]
            with pinned(uri, content) as opened:
                selected = pq.ParquetFile(opened).read(["ordinal"]).column(0).to_numpy()
            origins = self._origins(task, beside, where)
            if len(selected) and not np.isin(selected, origins).any():
                raise InputError("select chose among other rows than were tokenized", where=where, hint=_ROWS)
            return np.flatnonzero(np.isin(origins, selected)).astype(np.uint32), content.digest
        with whole(uri, self.files.get(self._path(task.own), UNKNOWN)) as opened:
            data = opened.read()
        digest = digest_bytes(data)
        try:
            numbers = npy.read_array(io.BytesIO(data), allow_pickle=False)
        except ValueError as error:
            raise InputError("not an array", where=uri, got=str(error), hint="numpy.save writes one") from error
        if numbers.ndim != 1 or numbers.dtype.kind not in "ui" or (len(numbers) and int(numbers[0]) < 0):
            got = f"{numbers.dtype} {list(numbers.shape)}"
            raise InputError("not numbers of rows", where=uri, got=got, expected="integers of 0 or more, [rows]")
        wrong = np.flatnonzero(numbers[1:] <= numbers[:-1])
        if len(wrong):
            at = int(wrong[0])
            raise InputError(
                "the numbers of rows do not ascend",
                where=uri,
                got=f"{numbers[at]:,} and then {numbers[at + 1]:,}",
                expected="each row once, in order",
                hint="numpy.unique sorts them",
            )
        if len(numbers) and int(numbers[-1]) >= 1 << 32:
            raise InputError("not numbers of rows", where=uri, got=f"{numbers[-1]:,}", expected="below 2**32")
        return numbers.astype(np.uint32), digest

    def _origins(self, task: Dataset, beside: Beside | None, where: str) -> Any:
        """Return for each row of the task's arrays the ordinal that select knows it by."""
        if beside is None:
            raise UsageError(
                "select numbers rows as the file had them that was given first",
                where=where,
                expected="rows=<the rows that were tokenized>",
                hint="they say which of these rows each one is",
            )
        if ORIGIN in beside:
            return column_of(task, beside, _ORDINAL, where).to_numpy()
        ordinals = task.ordinals()
        return np.arange(task.array("inst_len").length) if ordinals is None else ordinals


def open_choices(
    rules: Rules, tasks: Sequence[Dataset], options: RowOptions, given: Sequence[str], *, verify: bool = False
) -> tuple[dict[int, RowChoice], str]:
    """Open what rules say of single rows.

    Args:
        tasks: of the tokenized folder.
        given: ``rows=``, the rows that were tokenized.
        verify: digest their files now.

    Returns:
        The choice of each task that has one, by its place, and what identifies all that they read; empty without any.

    Raises:
        UsageError: words of a rule contradict each other, or ``rows=`` is missing.
        InputError: something that a rule names is not there, or is of other rows.
    """
    by_clause: dict[int, list[int]] = {}
    with_words = {clause.number for clause in rules.clauses if any(getattr(clause, word) for word in _WORDS)}
    for place, task in enumerate(tasks if with_words else ()):
        clause = rules.clause_of(task.name)
        if clause is not None and clause.number in with_words:
            by_clause.setdefault(clause.number - 1, []).append(place)
    clauses = [rules.clauses[number] for number in by_clause]
    for clause in clauses:
        _refuse_contradictions(clause)
    together = next((clause for clause in clauses if clause.keep_together), None)
    if together is not None and not given:
        raise UsageError(
            "keep_together needs the rows with their attributes",
            where=f"{together.where} keep_together",
            expected="rows=<the rows that were tokenized>",
            hint="the folder that clean, curate or select printed",
        )
    names = {tasks[place].own for places in by_clause.values() for place in places}
    beside, digest = attributes_of(given, names, verify=verify) if given and names else ({}, "")
    identities: list[Any] = [digest]
    choices: dict[int, RowChoice] = {}
    for number, places in by_clause.items():
        clause = rules.clauses[number]
        selection = Selection.open(clause, [tasks[place].own for place in places]) if clause.select_rows else None
        for place in places:
            chosen, mine = None, beside.get(tasks[place].own)
            if selection is not None:
                chosen, identity = selection.read(tasks[place], mine)
                identities.append([tasks[place].key, identity])
            choices[place] = RowChoice(tasks[place], clause, options, chosen, mine)
    return choices, fingerprint_from(identities) if choices else ""


def _refuse_contradictions(clause: Clause) -> None:
    if clause.lengths and clause.keep_together:
        what = "rows cannot be drawn by their lengths and stay together"
        raise UsageError(what, where=clause.where, got="lengths and keep_together", hint="leave one of them out")
    if clause.rule.long_context == "split":
        word = next(key for key in _WORDS if getattr(clause, key))
        raise UsageError(
            "a row that is split is not one row any more",
            where=clause.where,
            got=f"{word} and long_context: split",
            hint="write long_context: truncate, or drop",
        )
