"""Where records are below a root: rows of finished results, rows of plans, and the steps that saw them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from pairmill.engine import manifest as manifests
from pairmill.engine.listing import FOLDERS, ResultFolder, list_results
from pairmill.engine.manifest import Manifest
from pairmill.engine.policing import KEY, REMOVALS
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError, PairmillError
from pairmill.formats.records import RecordId
from pairmill.formats.results.sample import SampleResult
from pairmill.lineage.batches import Batching, Pass, PlanBatches, Seen
from pairmill.lineage.records import Origins, Row

ROWS: Final = ("clean", "take_out", "curate", "select")
TOKENS: Final = "tokenize"
PLANS: Final = "sample"


@dataclass(frozen=True)
class Holding:
    """A finished result with rows that are made of records.

    Args:
        manifest: of it.
        rows: ordinals by task, ascending; of token arrays and plans the rows' numbers in the arrays.
        tokens: of these rows, each once; 0 before there are tokens.
        passes: of a plan, where its epochs have them.
        seen: of a plan, the steps that had them; empty if nobody asked.
    """

    stage: str
    uri: str
    manifest: Manifest
    rows: Mapping[str, Sequence[int]]
    tokens: int = 0
    passes: Sequence[Pass] = ()
    seen: Sequence[Seen] = ()

    @property
    def count(self) -> int:
        """Rows of all tasks."""
        return sum(map(len, self.rows.values()))

    @property
    def from_epoch(self) -> int:
        """The first epoch that the plan drew: those before it are of the plan that it extends."""
        result = SampleResult.find(self.manifest) if self.stage == PLANS else None
        return int(result.parent.get("from_epoch", 0)) if result is not None else 0

    def obeys(self, entry: str) -> bool:
        """Return whether the result was made under an entry of a policy."""
        return entry in self.manifest.data.get(KEY, {}).get(REMOVALS, ())


@dataclass
class Places:
    """What a search below a root found.

    Args:
        holdings: results with such rows, in the order of the line.
        files: by digest of each row file of the records' sources, the ordinals of such rows.
        about: what clean says of the source of each record.
        unsearched: results in which the records could not be looked for, and why.
    """

    holdings: list[Holding] = field(default_factory=list)
    files: dict[str, list[int]] = field(default_factory=dict)
    about: dict[RecordId, Mapping[str, str]] = field(default_factory=dict)
    unsearched: list[tuple[str, str]] = field(default_factory=list)

    def of_stage(self, *stages: str) -> Iterator[Holding]:
        """Yield the results of some stages that hold such rows."""
        return (item for item in self.holdings if item.stage in stages)


def search(root: str, records: Sequence[RecordId], batching: Batching | None) -> Places:
    """Look for records in all finished results below a root.

    Args:
        records: each once.
        batching: of the trainings whose steps are asked for; None = they are not.

    Raises:
        InputError: no source has one of the records, or in no result it can be looked for.
    """
    result, errors = Places(), dict[RecordId, PairmillError]()
    others = [name for name in {item.folder for item in list_results(root)} if name not in FOLDERS]
    for folder in (*ROWS, *sorted(others)):
        for item in reversed(list_results(root, [folder])):
            _search_rows(item, records, result, errors)
    unknown = [record for record in records if record not in result.about]
    if unknown and (cleaned := [item for item in list_results(root, ROWS[:1]) if item.finished]):
        raise errors.get(unknown[0]) or _error_of(Origins.open(cleaned[0].uri), unknown[0])
    if unknown:
        raise InputError(
            "nothing is cleaned below this root",
            where=f"root={root}",
            expected="results of clean, in whose sources the records are",
            hint="name the project whose runs used the records",
        )
    for folder in (TOKENS, PLANS):
        for item in reversed(list_results(root, [folder])):
            _search_tokens(item, records, batching, result)
    return result


def _search_rows(
    item: ResultFolder, records: Sequence[RecordId], result: Places, errors: dict[RecordId, PairmillError]
) -> None:
    manifest = manifests.read(item.uri, refuse_begun=False)
    if manifest is None:
        return
    digests = {file.task: file.digest for file in manifest.files if file.task}
    sources = {source_of(task) for task in digests}
    mine = [record for record in records if record.source in sources]
    if not mine:
        return
    origins = Origins.open(item.uri)
    rows: dict[str, list[int]] = {}
    known = 0
    for record, made in _rows_of(origins, mine, errors):
        known += 1
        result.about.setdefault(record, origins.about(record))
        _add(rows, made)
    if not known:
        if not _obeys_any(manifest):  # then lines after its last row may have been taken out
            result.unsearched.append((item.uri, str(errors[mine[0]])))
        return
    wanted = {record.source for record in mine}
    for task, digest in digests.items():
        if source_of(task) in wanted:
            result.files[digest] = sorted({*result.files.get(digest, ()), *rows.get(task, ())})
    if rows:
        result.holdings.append(
            Holding(item.folder, item.uri, manifest, {name: sorted(some) for name, some in rows.items()})
        )


def _rows_of(
    origins: Origins, records: Sequence[RecordId], errors: dict[RecordId, PairmillError]
) -> Iterator[tuple[RecordId, Sequence[Row]]]:
    """Yield the rows of the records that a result knows, and note why it does not know the others."""
    try:
        yield from origins.rows(records).items()
    except PairmillError as error:
        if len(records) == 1:
            errors[records[0]] = error
            return
        for record in records:  # one by one: the error is of a single record, or of all
            yield from _rows_of(origins, [record], errors)


def _error_of(origins: Origins, record: RecordId) -> PairmillError:
    errors: dict[RecordId, PairmillError] = {}
    return errors[record] if not [*_rows_of(origins, [record], errors)] else InputError("not found", where=str(record))


def _search_tokens(item: ResultFolder, records: Sequence[RecordId], batching: Batching | None, result: Places) -> None:
    manifest = manifests.read(item.uri, refuse_begun=False)
    if manifest is None:
        return
    origins, errors = Origins.open(item.uri), dict[RecordId, PairmillError]()
    rows: dict[str, list[int]] = {}
    for _, made in _rows_of(origins, records, errors):
        _add(rows, made)
    # Of other sources nothing is known here, and nothing is of the records.
    reasons = [str(error) for record, error in errors.items() if _has_source(origins, record.source)]
    if reasons and not _obeys_any(manifest):
        result.unsearched.append((item.uri, reasons[0]))
    numbers = {name: origins.numbers(name, np.array(sorted(some), np.int64)) for name, some in rows.items()}
    numbers = {name: some for name, some in numbers.items() if len(some)}
    if not numbers:
        return
    held = {name: some.tolist() for name, some in numbers.items()}
    if item.folder == TOKENS:
        tokens = sum(_tokens_of(origins, name, some) for name, some in held.items())
        result.holdings.append(Holding(item.folder, item.uri, manifest, held, tokens))
        return
    plan = PlanBatches.open(item.uri, batching)
    passes = [*plan.passes(numbers)]
    if passes:
        drawn = {name: sorted({each.number for each in passes if each.task == name}) for name in held}
        drawn = {name: some for name, some in drawn.items() if some}
        tokens = sum(_tokens_of(origins, name, some) for name, some in drawn.items())
        seen = [*plan.seen([(each.epoch, each.place) for each in passes])] if batching is not None else []
        holding = Holding(item.folder, item.uri, manifest, drawn, tokens)
        result.holdings.append(replace(holding, passes=passes, seen=seen))


def _add(rows: dict[str, list[int]], made: Iterable[Row]) -> None:
    for row in made:
        rows.setdefault(row.task, []).append(row.ordinal)


def _obeys_any(manifest: Manifest) -> bool:
    return bool(manifest.data.get(KEY, {}).get(REMOVALS))


def _has_source(origins: Origins, source: str) -> bool:
    return any(source_of(task) == source for task in origins.tasks)


def _tokens_of(origins: Origins, task: str, numbers: Sequence[int]) -> int:
    """Return the tokens of some rows of token arrays."""
    data = origins.find_task(task).tokens
    assert data is not None
    total, first, wanted = 0, 0, np.array(numbers, np.int64)
    for chunk in data.index():
        size = len(chunk["inst_len"])
        mine = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, first + size)] - first
        total += int(chunk["inst_len"][mine].sum() + chunk["resp_len"][mine].sum())
        first += size
    return total
