"""``pairmill trace row=`` and ``record=``: what a row is made of, what stages say of it, and when it is trained on."""

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.listing import list_results, read_head
from pairmill.errors import InputError
from pairmill.formats import attributes, decisions, some_rows
from pairmill.formats.opened import OpenResult
from pairmill.formats.records import RecordId
from pairmill.formats.row_files import ORIGIN
from pairmill.formats.row_groups import RowGroups
from pairmill.lineage.batches import Batching, PlanBatches
from pairmill.lineage.records import Level, Origins, Row
from pairmill.lineage.trace_config import TraceConfig
from pairmill.policy.policy import Policy
from pairmill.policy.removals import DEFAULT_POLICY
from pairmill.show.config import Wanted
from pairmill.show.lines import HEAD, SOFT, TARGET, Line, Part, line, visible

_RAW: Final = "pairmill.sources.raw_records"
_REGISTRY: Final = "pairmill.sources.registry"
"""Knows the sources, whose import takes long."""
_ABOUT: Final = ("revision", "licence", "language", "origin")
_NO_ROW: Final = "no row was made of it, or its task is not among these; rejects/ of clean has malformed records"
_RESULTS: Final = ("tokenize", "select", "curate", "take_out", "clean")
"""Stages whose newest result shows the rows of a record where there is no plan; the last one first."""


def trace_row(config: TraceConfig, plans: Mapping[str, OpenResult], batching: Batching | None = None) -> Iterator[Line]:
    """Yield what a row of a plan is made of, and every epoch, step and rank that has it.

    Args:
        config: with ``row``.
        plans: by name: one, or those that a training read; a task of the first that has it is meant.
        batching: of the training; None = steps are not shown.

    Raises:
        UsageError: there is no such row.
        InputError: the plan or the folders before it are damaged, or were made before records were kept.
    """
    row = Row(*Wanted.parse(config.row))
    some = [Origins.open(plan.uri, config.root) for plan in plans.values()]
    yield from describe_row(next((item for item in some if item.has(row.task)), some[0]), row, config)
    batches = PlanBatches(plans, batching)
    for source, (uri, origins) in enumerate(zip((plan.uri for plan in plans.values()), some, strict=True)):
        if len(some) == 1 or origins.has(row.task):
            yield from _describe_passes(origins, batches, [row], uri, source)


def trace_record(
    config: TraceConfig, plans: Mapping[str, OpenResult], batching: Batching | None = None
) -> Iterator[Line]:
    """Yield the rows that a record became, what became of each, and which plans have them when.

    Args:
        config: with ``record``, and ``root`` if there are no plans.
        plans: as of :func:`trace_row`; none = all that are below the project, each by itself.
        batching: of the training; None = steps are not shown.

    Raises:
        UsageError, InputError: no source has the record; or as :func:`trace_row`.
    """
    record = RecordId.parse(config.record)
    known: dict[str, tuple[Origins, list[Row]]] = {}
    read = PlanBatches(plans, batching) if plans else None
    for source, uri in enumerate([plan.uri for plan in plans.values()] or _results(config.root)):
        head = read_head(uri)
        tokens = next((ref.fingerprint for ref in head.inputs if ref.role == "tokenized"), uri)
        if tokens not in known:
            origins = Origins.open(uri, config.root)
            removals = [*_removals(origins, record, config)]
            try:
                rows, followed = origins.rows([record])[record], [*_follow(origins, record, config)]
            except InputError as error:  # it may be beyond the last line that has a row
                if not removals and not _is_raw(origins, record, config):
                    raise error from None
                rows, followed = [], [] if removals else [line(_NO_ROW)]
            if not known:
                yield from _describe_record(origins, record, config)
            yield from followed
            known[tokens] = origins, rows
        if head.stage == "sample":
            origins, rows = known[tokens]
            batches = read or PlanBatches.open(uri, batching)
            yield from _describe_passes(origins, batches, rows, uri, source if plans else 0)


def describe_row(origins: Origins, row: Row, config: TraceConfig) -> Iterator[Line]:
    """Yield the record of a row, what curate and select say of it, and with ``text`` the texts of both."""
    place = np.array([row.ordinal], np.int64)
    (record,) = origins.records(row.task, place)
    yield line(str(row), HEAD)
    yield from _describe_record(origins, record, config)
    yield from _verdicts(origins, row.task, int(origins.cleaned(row.task, place)[0]), config)


def _results(root: str) -> list[str]:
    """Return the finished plans below a root, newest first; without any the newest result before them."""
    top = storage.normalise(root, "root")
    for stage in ("sample", *_RESULTS):
        result = [item.uri for item in list_results(top, [stage]) if item.finished is not None]
        if result:
            return result if stage == "sample" else result[:1]
    raise InputError("no finished plan and no rows", where=f"root={top}", hint="run pairmill clean first")


def _describe_record(origins: Origins, record: RecordId, config: TraceConfig) -> Iterator[Line]:
    about = origins.about(record)
    told = ", ".join(f"{name} {about[name]}" for name in _ABOUT if about.get(name))
    yield [Part("record  ", SOFT), Part(visible(str(record))), Part(f"  {visible(told)}" if told else "", SOFT)]
    yield from _removals(origins, record, config)
    if config.text:
        try:
            raw = _read_raw(origins, record, config)
        except InputError as error:
            yield line(f"  its text is not at hand: {error}", SOFT)
            return
        group = f", row group {raw.row_group}" if raw.row_group >= 0 else ""
        yield line(f"  in {raw.uri}{group}:", SOFT)
        yield line(f"  {raw.text}")


def _read_raw(origins: Origins, record: RecordId, config: TraceConfig) -> Any:
    source = importlib.import_module(_REGISTRY).named(record.source, config.sources)
    about = origins.about(record)
    return importlib.import_module(_RAW).read_record(record, about, origins.root, config.raw, source)


def _is_raw(origins: Origins, record: RecordId, config: TraceConfig) -> bool:
    """Return whether a raw file that is at hand has a record."""
    try:
        _read_raw(origins, record, config)
    except InputError:
        return False
    return True


def _removals(origins: Origins, record: RecordId, config: TraceConfig) -> Iterator[Line]:
    """Yield what takes a record out, since when and why."""
    place = storage.join(origins.root, DEFAULT_POLICY)
    if config.policy or storage.store_for(place).exists(place):
        for item in Policy.load(config.policy or place).removals:
            if (record.file, record.member or record.line) in item.records:
                evidence = f" ({item.evidence})" if item.evidence else ""
                told = f"removed on {item.date}, entry {item.name}, {item.reason}: {item.why}{evidence}"
                yield line(f"  {visible(told)}", TARGET)


def _follow(origins: Origins, record: RecordId, config: TraceConfig) -> Iterator[Line]:
    """Yield what became of the rows of a record from clean on."""
    rows = [(task, ordinal) for task, some in origins.cleaned_rows([record]).items() for ordinal in some]
    if not rows:
        yield line(_NO_ROW)
    for task, ordinal in sorted(rows):
        yield from _verdicts(origins, task, ordinal, config)


def _verdicts(origins: Origins, task: str, ordinal: int, config: TraceConfig) -> Iterator[Line]:
    """Yield what each stage has of a row of clean: where it is there, or why it is not; and its attributes."""
    before = ordinal
    last: Level | None = None
    for level in origins.follow(task, np.array([ordinal], np.int64)):
        place, stage = int(level.ordinals[0]), read_head(level.uri).stage
        where = f"{level.task}:{place}" if place >= 0 else "left out"
        name = f"{stage} {storage.name_of(level.uri)}"
        yield [Part(f"  {name}  ", SOFT), Part(visible(where))]
        for item in _decisions(level, before) if last is not None else ():
            yield line(f"    {item}")
        if place < 0:
            return
        before, last = place, level
    if last is not None:
        for operation, values in _attributes(last, before):
            told = [f"{name} {_shown(value)}" for name, value in values.items() if value is not None]
            yield line(f"    {operation}: {', '.join(told) or 'no value'}")
        if config.text:
            yield from _texts(last, before)


def _decisions(level: Level, ordinal: int) -> Iterator[str]:
    """Yield what a stage decided about a row that it read."""
    for operation, uri in _beside(level, "decisions"):
        with RowGroups(uri) as groups:
            table = groups.take(groups.find("ordinal", np.array([ordinal], np.int64)), decisions.SCHEMA.names)
        for item in table.to_pylist():
            other = f", repeats {item['other_task']}:{item['other_ordinal']}" if item["other_task"] else ""
            told = [
                f"{name} {_shown(item[name])}" for name in ("benchmark", "score_i", "score_r", "detail") if item[name]
            ]
            yield f"{item['action']} by {operation}, rule {item['rule']}{other}{', ' * bool(told)}{', '.join(told)}"


def _attributes(level: Level, ordinal: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for operation, uri in _beside(level, attributes.FOLDER):
        if operation != ORIGIN:
            with RowGroups(uri) as groups:
                (values,) = groups.take(np.array([ordinal], np.int64), groups.names).to_pylist()
            yield operation, values


def _beside(level: Level, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the operations that have a file of a kind beside a task, with the file's URI."""
    top = storage.join(level.uri, HELD_OUT.rstrip("/")) if level.task.startswith(HELD_OUT) else level.uri
    folder = storage.join(top, kind)
    for operation in sorted(storage.store_for(folder).folders(folder)):
        uri = storage.join(folder, operation, f"{level.task.removeprefix(HELD_OUT)}.parquet")
        if storage.store_for(uri).exists(uri):
            yield operation, uri


def _texts(level: Level, ordinal: int) -> Iterator[Line]:
    manifest = manifests.read(level.uri)
    assert manifest is not None
    path = next(file.path for file in manifest.files if file.task == level.task)
    row = some_rows.read(storage.join(level.uri, *path.split("/")), [ordinal])[ordinal]
    for name, text in row._asdict().items():
        yield line(name, SOFT)
        yield line(text or "", TARGET if name == "response" else "")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _describe_passes(
    origins: Origins, batches: PlanBatches, rows: Sequence[Row], plan: str, source: int
) -> Iterator[Line]:
    """Yield each epoch and place at which rows are drawn, with step and rank if batches are known."""
    numbers = {
        task: origins.numbers(task, np.array([row.ordinal for row in rows if row.task == task], np.int64))
        for task in dict.fromkeys(row.task for row in rows)
    }
    passes = list(batches.passes(numbers, source))
    times = f"{len(passes):,} times in {len({item.epoch for item in passes}):,} of {batches.epochs[source]:,} epochs"
    yield line(f"plan {storage.name_of(plan)}: {times}", HEAD)
    places = [(item.epoch, item.place) for item in passes]
    seen = {item[:2]: item for item in (batches.seen(places, source) if batches.batching else ())}
    for item in passes:
        at = seen.get((item.epoch, item.place))
        step = f", step {at.step:,}, rank {at.rank}" if at and at.step else ", in no step" if at else ""
        piece = f", piece {item.piece}" if item.piece else ""
        (ordinal,) = origins.ordinals(item.task, np.array([item.number], np.int64)).tolist()
        yield line(f"  epoch {item.epoch}, place {item.place:,}{step}: {item.task}:{ordinal}{piece}")
