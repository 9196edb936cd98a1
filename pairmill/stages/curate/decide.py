"""What becomes of each row of a task: the findings of all operations, put together. No text is read.

Operations are asked in the order of the registry. The first that drops a row owns it, and what later ones find
of that row is left out. Those that only report count as if they dropped, so that both modes count the same: what one
of them would drop, no later one that reports counts again. Of an operation that drops, a rule that reports counts what
it alone would drop besides.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import decisions
from pairmill.formats.attributes import unknown
from pairmill.rowstage import RemovedRows
from pairmill.stages.curate.operation import Rule, TaskFindings
from pairmill.stages.curate.tallies import Tally

REMOVED: Final = "removed"
TALLY: Final = "tally.json"
_ACTIONS: Final = decisions.ACTIONS
_DROPS: Final = (_ACTIONS.index("drop"), _ACTIONS.index("cap"))
_BATCH = 1 << 16


@dataclass
class Decided:
    """The data of a record.

    Args:
        rows: of the task.
        kept: how many stay.
        dropped: how many go, by reason.
        operations: files of decisions by operation's name.
        slices: of each slice: its rows, how many of them go, the digest of which, and by reason.
        would_go: rows that stay although a rule finds them that removes rows, but for its mode.
    """

    rows: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    slices: list[tuple[int, int, str, dict[str, int]]] = field(default_factory=list)
    would_go: int = 0

    def removed(self, record: ShardRecord) -> Iterator[tuple[int, RemovedRows]]:
        """Yield how many rows each slice has, and those that go."""
        start = 0
        for rows, count, digest, dropped in self.slices:
            yield rows, RemovedRows(record.uri(REMOVED), start, count, digest, dropped)
            start += count


@dataclass(frozen=True)
class Decide(Shard[object], reads=()):
    """The decisions on the rows of one task.

    Args:
        source: that it belongs to.
        cuts: ordinals of the first rows of slices, and how many rows there are.
        found: what each operation finds, in order.
        report_all: whether each operation reports by itself.
    """

    work = "decide about rows"

    task: str
    source: str
    cuts: tuple[int, ...]
    found: tuple[TaskFindings, ...]
    report_all: bool

    @property
    def rows(self) -> int:
        """Of the task."""
        return self.cuts[-1]

    def run(self, context: object, out: Writer) -> ShardResult:
        removed = np.zeros(self.rows, np.bool_)
        claimed = np.zeros(self.rows, np.bool_)  # by operations that report
        reported = np.zeros(self.rows, np.bool_)  # by those, and by rules that report
        data = Decided(self.rows, 0)
        by_part: list[dict[str, int]] = [{} for _ in self.cuts[1:]]
        tally = Tally(self.task, self.source)
        for item in self.found:
            table = _sorted(item, self._read(item))
            if not self.report_all:
                # Personal data is redacted in every row that stays, so in mode report it is counted in those too.
                hidden = removed | claimed if item.reports and not item.changes else removed
                shown = ~hidden[table["ordinal"].to_numpy()]
                table = table if shown.all() else table.filter(pa.array(shown))
            if not len(table):
                continue
            ordinals = table["ordinal"].to_numpy().astype(np.int64)
            names, codes = decisions.names_of(table["rule"])
            acting = np.array([name in item.actions for name in names], np.bool_)[codes]
            owns = acting & _first(ordinals, acting)
            says = np.array([_ACTIONS.index(item.actions.get(name, "report")) for name in names])[codes]
            # Each span of personal data is replaced, whichever is first.
            carried_out = (owns | (says == _ACTIONS.index("redact"))) & (not item.reports and not self.report_all)
            actions = np.where(carried_out, says, _ACTIONS.index("report"))
            dropping = np.isin(actions, _DROPS)
            removed[ordinals[dropping]] = True
            claimed[ordinals[owns & ~dropping]] = True
            would = _first_of_rule(ordinals, codes, owns, np.array([name in item.reported for name in names])[codes])
            if not item.changes:
                reported[ordinals[owns & ~dropping | would]] = True
            modes = {
                name: "report" if item.reports or self.report_all or name not in item.actions else item.actions[name]
                for name in names
            }
            places = np.searchsorted(ordinals, self.cuts)
            for dropped, (start, stop) in zip(by_part, pairwise(places.tolist()), strict=True):
                some = slice(start, stop)
                for reason, count in _reasons(item, table[some], names, codes[some], actions[some]):
                    dropped[reason] = dropped.get(reason, 0) + count
                    data.dropped[reason] = data.dropped.get(reason, 0) + count
            column = pa.DictionaryArray.from_arrays(pa.array(actions.astype(np.int32)), pa.array(_ACTIONS))
            table = table.set_column(2, decisions.SCHEMA.field("action"), column)
            path = data.operations[item.name] = decisions.path_of(item.name, self.task)
            with out.create(path) as local:
                decisions.write(local, table)
            bounds = {rule.name: rule for rule, _ in item.rules}
            tally.add(item.name, table, owns, would, modes, bounds, matrix=item.by_source)
        data.kept = int(self.rows - removed.sum())
        data.would_go = int((reported & ~removed).sum())
        gone = np.flatnonzero(removed).astype(np.uint32)
        for mine, dropped, (start, stop) in zip(
            np.split(gone, np.searchsorted(gone, self.cuts[1:-1])), by_part, pairwise(self.cuts), strict=True
        ):
            data.slices.append((stop - start, len(mine), _digest(mine), dropped))
        with out.create(REMOVED, scratch=True) as local:
            local.write_bytes(gone.astype("<u4").tobytes())
        with out.create(TALLY, scratch=True) as local:
            local.write_bytes(tally.dump())
        return ShardResult(Ledger(), asdict(data))

    def _read(self, findings: TaskFindings) -> pa.Table:
        tables = [decisions.empty()]
        if findings.decisions is not None:
            tables.append(findings.decisions.read())
        for result in findings.findings:
            with storage.store_for(result.uri).open(result.uri) as file:
                tables.append(pa.ipc.open_file(pa.BufferReader(file.read())).read_all())
        by_files: dict[tuple[ShardFile | InputFile, ...], list[tuple[Rule, str]]] = {}
        for rule, column in findings.rules:
            by_files.setdefault(column.files, []).append((rule, column.name))
        for files, rules in by_files.items():
            tables += _broken([file.uri for file in files], rules, self.task, self.rows)
        table = pa.concat_tables([table.cast(decisions.SCHEMA) for table in tables]).unify_dictionaries()
        return table.combine_chunks()


def _broken(uris: Sequence[str], rules: Sequence[tuple[Rule, str]], task: str, rows: int) -> Iterator[pa.Table]:
    """Yield the rows that break rules about attributes of some files."""
    start = 0
    for uri in uris:
        with storage.store_for(uri).open(uri) as source:
            file = pq.ParquetFile(source)
            known = file.schema_arrow.names
            conditions = [rule.when[0] for rule, _ in rules if rule.when is not None]
            names = list(dict.fromkeys([*(name for _, name in rules), *conditions]))
            for name in names:
                if name not in known:
                    raise unknown(f"no attribute {name!r}", name, uri, known, "name another in the rule", InputError)
            for batch in file.iter_batches(batch_size=_BATCH, columns=names, use_threads=False):
                for rule, name in rules:
                    when = batch.column(rule.when[0]) if rule.when is not None else None
                    at = np.flatnonzero(rule.broken_by(batch.column(name), when))
                    if len(at):
                        yield _findings_of(rule, batch.column(name).take(pa.array(at)), at + start)
                start += len(batch)
    if start != rows:
        raise InputError(
            "a file of attributes has another number of rows than its task",
            where=task,
            got=f"{start} rows in {', '.join(uris)}",
            expected=f"{rows} rows",
            hint="make the input folder again",
        )


def _findings_of(rule: Rule, values: pa.Array, ordinals: NDArray[np.int64]) -> pa.Table:
    plain = values.to_pylist()
    columns: dict[str, Any] = {
        "ordinal": ordinals.astype(np.uint32),
        "rule": [rule.name] * len(plain),
        "action": ["report"] * len(plain),
        "detail": [rule.describe(value) for value in plain],
    }
    if rule.values is None:
        columns["score_r" if rule.attribute.rpartition(".")[2].startswith("r_") else "score_i"] = values.cast(
            pa.float64()
        ).cast(pa.float32())
    return decisions.table_of(columns, len(plain))


def _sorted(findings: TaskFindings, table: pa.Table) -> pa.Table:
    """By ordinal, then as the operation orders its rules, else as they are."""
    if not len(table):
        return table
    names, codes = decisions.names_of(table["rule"])
    if findings.only:
        counts = np.array([name in findings.only for name in names], np.bool_)[codes]
        table, codes = table.filter(pa.array(counts)), codes[counts]
    place = {name: at for at, name in enumerate([*findings.order, *(rule.name for rule, _ in findings.rules)])}
    priority = np.array([place.get(name, len(place)) for name in names], np.int64)[codes]
    step = np.diff(table["ordinal"].to_numpy().astype(np.int64))
    if ((step > 0) | ((step == 0) & (np.diff(priority) >= 0))).all():  # as those of rows that were compared are
        return table
    return table.take(pa.array(np.lexsort((priority, table["ordinal"].to_numpy()))))


def _reasons(
    findings: TaskFindings, table: pa.Table, names: Sequence[str], codes: NDArray[np.int64], actions: NDArray[np.int64]
) -> Iterator[tuple[str, int]]:
    """Yield the ledger reasons of what drops rows, and how many each has."""
    dropping = np.isin(actions, _DROPS)
    tasks, at = decisions.names_of(table["other_task"])
    held_out = np.array([*(name.startswith(HELD_OUT) for name in tasks), False], np.bool_)[at]
    kinds, counts = np.unique(np.stack([codes, actions, held_out])[:, dropping], axis=1, return_counts=True)
    for (code, action, other), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
        yield findings.reasons.reason(findings.name, names[code], _ACTIONS[action], other_held_out=bool(other)), count


def _digest(ordinals: NDArray[np.uint32]) -> str:
    return hashlib.sha256(ordinals.astype("<u4").tobytes()).hexdigest()


def _first(ordinals: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which are the first of their ordinal among those that count; ordinals ascend."""
    first = np.zeros(len(ordinals), np.bool_)
    at = np.flatnonzero(among)
    if len(at):
        new = np.ones(len(at), np.bool_)
        new[1:] = ordinals[at][1:] != ordinals[at][:-1]
        first[at[new]] = True
    return first


def _first_of_rule(
    ordinals: NDArray[np.int64], codes: NDArray[np.int64], owns: NDArray[np.bool_], among: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which are the first of their ordinal and rule among those that count, and come before the one that owns
    the row.

    Args:
        ordinals: ascending.
        codes: of the rules.
        owns: at most one of an ordinal.
        among: those that count.
    """
    owner = np.flatnonzero(owns)
    place = np.searchsorted(ordinals[owner], ordinals)
    owned = np.append(ordinals[owner], -1)[place] == ordinals
    before = ~owned | (np.arange(len(ordinals)) < np.append(owner, -1)[place])
    at = np.flatnonzero(among & before)
    _, firsts = np.unique(np.stack([ordinals[at], codes[at]]), axis=1, return_index=True)
    first = np.zeros(len(ordinals), np.bool_)
    first[at[firsts]] = True
    return first
