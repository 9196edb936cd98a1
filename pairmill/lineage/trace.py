"""``pairmill trace``: the rows that a step of a training had, and what each was made of; or when it had rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.training_results import TrainResult
from pairmill.lineage.batches import Batching, Place, PlanBatches
from pairmill.lineage.records import Origins
from pairmill.lineage.row_trace import trace_record, trace_row
from pairmill.lineage.trace_config import TraceConfig
from pairmill.loader import Phase
from pairmill.loader.plan import Position
from pairmill.show.config import ShowConfig
from pairmill.show.lines import HEAD, SOFT, Line, line
from pairmill.show.sample import Sample
from pairmill.training.data_settings import DataPhase
from pairmill.training.profiles import PROFILES

_NAMED: Final = re.compile(r"([\w. -]+)=(.+)")
_ANY: Final = "data"
_AT: Final = re.compile(rb'\{"step": (\d+), "kind": "step",.*?"at": \{(.*?)\}, "tokens": (\d+)')
_CURSOR: Final = re.compile(rb"\[(\d+, \d+)\]")


def show(config: TraceConfig) -> Iterator[Line]:
    """Yield the lines of a step.

    Raises:
        UsageError: there is no such step or rank, or nothing says how batches were made.
        InputError: a folder is not there, or is not what the option says.
    """
    if not config.step:
        yield from _show_rows(config)
        return
    plans, batching = read_training(config)
    batches = PlanBatches(plans, batching)
    if config.rank >= batching.ranks:
        raise UsageError("no such rank", where="rank", got=str(config.rank), expected=f"0 to {batching.ranks - 1}")
    places = batches.batch(config.step)
    mine = [place for place in places if config.rank in (-1, place.rank)]
    spans = ", ".join(_spans(places, list(plans)))
    yield line(f"step {config.step:,}: {len(places):,} rows on {batching.ranks:,} ranks, {spans}", HEAD)
    some = mine[: config.n] if config.n else mine
    yield from _named(batches, some, plans, config)
    if len(some) < len(mine):
        yield line(f"… and {len(mine) - len(some):,} more rows; n=0 prints all", SOFT)


def _show_rows(config: TraceConfig) -> Iterator[Line]:
    """Yield the lines of a row or of a record."""
    batching = _given(config) if config.batch_tokens else None
    plans: Mapping[str, OpenResult] = {}
    if config.run:
        plans, batching = read_training(config)
    elif config.plan:
        plans = read_plans(config)
    if not plans and not (config.record and config.root):
        expected = "plan=<plan> or run=<a run of train>" + ", or root=<project> for all its plans" * bool(config.record)
        raise UsageError("no plan is named", where="row" if config.row else "record", expected=expected)
    yield from trace_row(config, plans, batching) if config.row else trace_record(config, plans, batching)


def _given(config: TraceConfig) -> Batching:
    """Return how batches were made, as the options say it."""
    names = ("packing", "balance", "tail", "long_rows", "one_token_rows")
    shape: dict[str, Any] = {name: getattr(config, name) for name in names if getattr(config, name)}
    shape |= {"batch_tokens": config.batch_tokens, "ranks": config.ranks or 1, "accumulate": config.accumulate}
    return Batching(**shape)


def _named(
    batches: PlanBatches, places: Sequence[Place], plans: Mapping[str, OpenResult], config: TraceConfig
) -> Iterator[Line]:
    names = batches.names(places) if batches.planned else []
    told: dict[Place, str] = {}
    why = "" if batches.planned else "rows of arrays without their plan have no records: give the plan, or root="
    for source, uri in enumerate(plan.tokens_at or plan.uri for plan in plans.values()) if batches.planned else ():
        by_task: dict[str, list[tuple[Place, int]]] = {}
        for place, name in zip(places, names, strict=True):
            if place.source == source:
                by_task.setdefault(name.task, []).append((place, name.number))
        for task, rows in by_task.items():
            try:
                origins = Origins.open(uri, storage.normalise(config.root, "root") if config.root else "")
                ordinals = origins.ordinals(task, np.array([number for _, number in rows]))
                told |= {place: f"{task}:{at}" for (place, _), at in zip(rows, ordinals.tolist(), strict=True)}
                for (place, _), record in zip(rows, origins.records(task, ordinals), strict=True):
                    told[place] += f"  {record}"
            except InputError as error:  # rows still have names
                why = f"records are not known: {error}"
    shown = []
    if config.text or not names:
        shown = [Sample(plan, ShowConfig(path=plan.uri, root=config.root)) for plan in plans.values()]
    for at, place in enumerate(places):
        if not names:
            text = shown[place.source].row(place.epoch, place.place).name
        else:
            text = told.get(place) or f"{names[at].task}:{names[at].number}"
            piece = f", piece {names[at].piece + 1} of its response" if names[at].piece else ""
            text += f"  ({names[at].prompt:,} + {names[at].response:,} tokens{piece})"
        yield line(f"rank {place.rank}  {place.epoch}:{place.place}  {text}", HEAD if config.text else "")
        if config.text:
            yield from list(shown[place.source].describe(place.epoch, place.place))[1:]
            yield []
    if why:
        yield line(why, SOFT)


def _spans(places: Sequence[Place], names: Sequence[str]) -> Iterator[str]:
    """Say of each epoch from where to where its rows come."""
    for source, epoch in sorted({place[:2] for place in places}):
        rows = [place.place for place in places if place[:2] == (source, epoch)]
        of_plan = f" of {names[source]}" if len(names) > 1 else ""
        yield f"places {min(rows):,} to {max(rows):,} of epoch {epoch}{of_plan}"


def read_training(config: TraceConfig) -> tuple[dict[str, OpenResult], Batching]:
    """Read which plans a training read, and how it made batches: of its run, or as the options say.

    Raises:
        UsageError: options say neither.
        InputError: the run, or a plan of it, is not there.
    """
    if not config.run:
        if not config.plan or not config.batch_tokens:
            where = "batch_tokens" if config.plan else "plan, run"
            expected = "run=<a run of train>, or plan= with batch_tokens= and ranks= of the training"
            raise UsageError("nothing says how batches were made", where=where, expected=expected)
        return read_plans(config), _given(config)
    run = open_result(config.run, "run")
    if run.stage != "train" or run.manifest is None:
        hint = "a training that has not ended is traced with plan=, batch_tokens= and ranks="
        raise InputError("not a finished run of train", where=f"run={run.uri}", got=run.kind, hint=hint)
    result = TrainResult.from_manifest(run.manifest)
    samples = _samples(run, result, config)
    settings = result.settings
    reading, batch = settings["data"], settings["batch"]
    only = next(iter(samples)) if len(samples) == 1 else ""
    phases = [Phase(**DataPhase(**item).arguments()) for item in reading["phases"]]
    in_ranks = "packed_by_process" in PROFILES[settings["profile"]].quirks
    return read_plans(config, samples), Batching(
        batch_tokens=batch["tokens"],
        ranks=config.ranks or result.device_count,
        parts=batch["accumulate"],
        packing="ranks" if in_ranks else "whole",
        balance=reading["balance"],
        tail=batch["tail"],
        long_rows=batch["long_rows"],
        one_token_rows=reading["one_token_rows"],
        phases=tuple(Phase(**{**vars(phase), "source": phase.source or only}) for phase in phases),
        marks=_marks(run.uri, len(samples) or len(config.plan)),
    )


def _marks(run: str, sources: int) -> list[Position]:
    """Return the positions that the lines of a run have, from the first batch to the last; none of an older run."""
    marks = [Position(((0, 0),) * sources)]
    uri = storage.join(run, "metrics.jsonl")
    with storage.store_for(uri).open(uri) as file:
        for text in file:
            if match := _AT.match(text):
                cursors = [tuple(map(int, pair.split(b","))) for pair in _CURSOR.findall(match[2])]
                marks.append(Position(tuple(cursors), int(match[1]), int(match[3])))
    return marks if len(marks) > 1 else []


def _samples(run: OpenResult, result: TrainResult, config: TraceConfig) -> dict[str, str]:
    """Return where the plans of a run should be, by the names that its phases have for them."""
    prints = [ref.fingerprint for ref in run.inputs if ref.role == "sampled"]
    root = storage.normalise(config.root, "root") if config.root else storage.parent_of(storage.parent_of(run.uri))
    facts = result.data
    named = [_NAMED.fullmatch(item) for item in facts.get("sample", "").split(", ")]
    names = [match[1] for match in named if match is not None]
    if not prints and not config.plan:
        raise InputError(
            "this run read no plan of sample, so its rows have no names",
            where=f"run={run.uri}",
            got=", ".join(f"{name}: {value}" for name, value in result.data.items()),
            hint="if it read a sampled folder of another program, give the folder too, plan=<folder>: rows then have "
            "places; windows and streams have no rows",
        )
    if len(prints) > 1 and len(names) != len(prints) and not config.plan:
        raise InputError(
            "this run does not say which folder had which name",
            where=f"run={run.uri}",
            got=f"{len(prints)} samples",
            hint="give them as they were given to train: plan=name=<plan>,name=<plan>",
        )
    of_run = names if len(names) == len(prints) else [_ANY] * len(prints)
    return {name: storage.join(root, "sample", item) for name, item in zip(of_run, prints, strict=True)}


def read_plans(config: TraceConfig, of_run: Mapping[str, str] = MappingProxyType({})) -> dict[str, OpenResult]:
    """Open the plans that options name, else those of a run, by the names that phases have for them.

    Raises:
        InputError: one is not there, or not a plan.
    """
    result: dict[str, OpenResult] = {}
    known = list(of_run)
    for item in config.plan:
        match = _NAMED.fullmatch(item)
        name = match[1] if match else known[0] if len(known) == 1 else _ANY
        result[name] = _opened(match[2] if match else item, config.root)
    for name, uri in of_run.items() if not config.plan else ():
        if not manifests.exists(uri):
            hint = "give plan=<the plan>, or root=<the project that it is in>"
            raise InputError("the plan of the run is not there", where=f"run={config.run}", expected=uri, hint=hint)
        result[name] = open_result(uri)
    wrong = [plan for plan in result.values() if plan.kind not in ("plan", "sampled")]
    if wrong or len({plan.kind for plan in result.values()}) > 1:
        got = ", ".join(f"{plan.uri} ({plan.kind})" for plan in result.values())
        hint = "give <root>/sample/<fingerprint>"
        raise InputError("not plans of sample", where="plan", got=got, expected="plans, or arrays of rows", hint=hint)
    return {name: replace(plan, tokens_at=config.tokenized) for name, plan in result.items()}


def _opened(place: str, root: str) -> OpenResult:
    """Open a plan; of arrays the plan that they were made of, where it is below the project."""
    result = open_result(place, "plan")
    if result.kind == "sampled" and result.manifest is not None and root:
        uri = storage.join(storage.normalise(root, "root"), "sample", result.manifest.fingerprint)
        result = open_result(uri) if manifests.exists(uri) else result
    return result
