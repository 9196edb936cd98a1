"""Reads ``mixture.json``, and refuses what is not a plan that can be executed."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, did_you_mean
from pairmill.mixture.methods import PLANNED
from pairmill.mixture.plan import (
    FORMAT,
    MOST_EPOCHS,
    NAME,
    UNIT,
    Inputs,
    Mixture,
    PlannedPhase,
    PlannedSource,
    PlannedTask,
)
from pairmill.rules import Key

_CLOSE: Final = 1e-6


def load_mixture(given: str, option: str = "mixture") -> Mixture:
    """Read the plan of a folder, or a file itself.

    Raises:
        InputError: absent, unfinished or damaged, or not a plan.
    """
    uri = storage.normalise(given, option)
    if storage.name_of(uri).endswith(".json"):
        if not storage.store_for(uri).exists(uri):
            raise InputError("the mixture does not exist", where=f"{option}={uri}", hint="check the path")
        return read(storage.store_for(uri).read(uri), uri)
    manifest = manifests.read_intact(uri)
    path = storage.join(uri, NAME)
    if not storage.store_for(uri).exists(path):
        raise InputError(
            f"not a mixture: {NAME} does not exist",
            where=f"{option}={uri}",
            hint="give the folder that mix printed, or the file",
        )
    return read(manifests.read_file(uri, manifest, NAME), path)


def read(data: bytes, where: str) -> Mixture:
    """Read a file's content.

    Raises:
        InputError: not a plan, of another format, or its numbers contradict each other.
    """
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise _wrong(where, "not valid JSON", got=str(error)) from error
    if not isinstance(raw, dict):
        raise _wrong(where, "not a JSON object", got=type(raw).__name__)
    if raw.get("format") != FORMAT:
        raise _wrong(where, "another format", got=repr(raw.get("format")), expected=str(FORMAT))
    values = _keys(where, raw, Mixture)
    _require(where, values, {"seed": int, "epochs": int, "context": int, "min_resp_length": int})
    _require(where, values, {"budget": float, "unfilled": float, "phases": list, "sources": list, "inputs": dict})
    if values.get("unit", UNIT) != UNIT:
        raise _wrong(where, "another unit", got=repr(values["unit"]), expected=UNIT)
    buckets = values.get("buckets", [])
    if not isinstance(buckets, list) or not all(isinstance(name, str) for name in buckets):
        raise _wrong(f"{where}, buckets", "not a list of names", got=repr(buckets)[:60])
    inputs = _keys(f"{where}, inputs", values["inputs"], Inputs)
    phases = tuple(_phase(f"{where}, phases[{number}]", each) for number, each in enumerate(values["phases"], 1))
    _check_phases(where, phases, values["epochs"])
    by_name = {phase.name: phase for phase in phases}
    sources = tuple(
        _source(f"{where}, sources[{number}]", each, by_name, len(buckets))
        for number, each in enumerate(values["sources"], 1)
    )
    result = Mixture(
        **{**values, "phases": phases, "sources": sources, "inputs": Inputs(**inputs), "buckets": tuple(buckets)}
    )
    _check_sources(where, result)
    return result


def _phase(where: str, raw: Any) -> PlannedPhase:
    values = _keys(where, raw, PlannedPhase)
    _require(where, values, {"name": str, "epochs": list, "share": float})
    ends = values["epochs"]
    if len(ends) != 2 or not all(_is(end, int) for end in ends) or not 0 <= ends[0] < ends[1]:
        raise _wrong(f"{where}, epochs", "not a range", got=repr(ends), expected="[first, end], first < end")
    return PlannedPhase(**{**values, "epochs": (ends[0], ends[1])})


def _source(where: str, raw: Any, phases: dict[str, PlannedPhase], buckets: int) -> PlannedSource:
    values = _keys(where, raw, PlannedSource)
    _require(where, values, {"name": str, "phase": str, "tokens": float, "share": float, "epochs": float})
    if values["phase"] not in phases:
        raise _wrong(where, "no such phase", got=repr(values["phase"]), expected=", ".join(phases))
    if values["method"] not in PLANNED:
        raise _wrong(where, "unknown method", got=repr(values["method"]), expected=", ".join(PLANNED))
    if values["cap"] is not None:
        _require(where, values, {"cap": float})
    if not isinstance(values["tasks"], list):
        raise _wrong(f"{where}, tasks", "not a list", got=repr(values["tasks"])[:60])
    count = phases[values["phase"]].count
    tasks = tuple(
        _task(f"{where}, tasks[{number}]", each, count, buckets) for number, each in enumerate(values["tasks"], 1)
    )
    return PlannedSource(**{**values, "tasks": tasks})


def _task(where: str, raw: Any, epochs: int, buckets: int) -> PlannedTask:
    values = _keys(where, raw, PlannedTask)
    _require(where, values, {"task": str, "rows": int, "response_tokens": int, "squares": int})
    rows = values["rows_per_epoch"]
    if isinstance(rows, list):
        if len(rows) != epochs:
            raise _wrong(
                where, "rows_per_epoch has another length", got=str(len(rows)), expected=f"{epochs}, the phase's epochs"
            )
        values["rows_per_epoch"] = tuple(rows)
    for each in rows if isinstance(rows, list) else (rows,):
        if not _is(each, int) or each < 0:
            raise _wrong(where, "rows_per_epoch is not a count", got=repr(each), expected="0 or more")
        if each and not values["rows"]:
            raise _wrong(where, "a task without rows cannot give any", got=repr(each), expected="0")
    bucket = values.get("bucket")
    if bucket is not None and not (_is(bucket, int) and 0 <= bucket < buckets):
        raise _wrong(where, "no such bucket", got=repr(bucket), expected=f"0 to {buckets - 1}" if buckets else "none")
    return PlannedTask(**values)


def _check_phases(where: str, phases: Collection[PlannedPhase], epochs: int) -> None:
    at = 0
    for phase in phases:
        if phase.epochs[0] != at:
            raise _wrong(
                where,
                f"phase {phase.name!r} does not begin where the last one ends",
                got=str(phase.epochs[0]),
                expected=str(at),
            )
        at = phase.epochs[1]
    if at != epochs or not phases:
        raise _wrong(where, "the phases do not have all epochs", got=str(at), expected=str(epochs))
    if len({phase.name for phase in phases}) < len(phases):
        raise _wrong(where, "two phases have one name", got=", ".join(phase.name for phase in phases))
    if epochs > MOST_EPOCHS:
        raise _wrong(f"{where}, epochs", "out of range", got=f"{epochs:,}", expected=f"at most {MOST_EPOCHS:,}")
    shares = math.fsum(phase.share for phase in phases)
    if abs(shares - 1) > _CLOSE:
        raise _wrong(where, "the shares of the phases do not add up to 1", got=repr(shares))


def _check_sources(where: str, mixture: Mixture) -> None:
    listed: dict[tuple[str, str, int | None], str] = {}
    sources_of: dict[Key, str] = {}
    whole: dict[str, bool] = {}
    for source in mixture.sources:
        for task in source.tasks:
            other = listed.setdefault((source.phase, *task.key), source.name)
            if other != source.name or whole.setdefault(task.task, task.bucket is None) != (task.bucket is None):
                raise _wrong(
                    where,
                    f"task {task.task!r} has two sources in phase {source.phase!r}",
                    got=f"{other!r} and {source.name!r}",
                    expected="each task, or each bucket of it, in one source",
                )
            first = sources_of.setdefault(task.key, source.name)
            if first != source.name:
                raise _wrong(
                    where,
                    f"task {task.task!r} has different sources in different phases",
                    got=f"{first!r} and {source.name!r}",
                    expected="one source in all phases",
                )
    if len(listed) < sum(len(source.tasks) for source in mixture.sources):
        raise _wrong(where, "a source lists a task twice")
    for name, sources in mixture.by_phase.items():
        total = math.fsum(source.tokens for source in sources)
        for source in sources:
            if abs(source.tokens - source.share * total) > _CLOSE * total:
                raise _wrong(
                    where,
                    f"the share of {source.name!r} in phase {name!r} is not that of its tokens",
                    got=repr(source.share),
                    expected=repr(source.tokens / total),
                )


def _keys(where: str, raw: Any, kind: type[Any]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _wrong(where, "not an object", got=repr(raw)[:60])
    known = _KNOWN[kind]
    if not raw.keys() <= known.keys():
        unknown = next(key for key in raw if key not in known)
        raise _wrong(where, f"unknown key {unknown!r}", expected=", ".join(known), hint=did_you_mean(unknown, known))
    for name, required in known.items():
        if required and name not in raw:
            raise _wrong(where, "key missing", expected=name)
    return {**raw}


_KNOWN = {
    kind: {item.name: item.default is MISSING for item in fields(kind)}
    for kind in (Mixture, PlannedPhase, PlannedSource, PlannedTask, Inputs)
}


def _require(where: str, values: dict[str, Any], kinds: dict[str, type[Any]]) -> None:
    for name, kind in kinds.items():
        if not _is(values[name], kind):
            raise _wrong(f"{where}, {name}", "not a valid value", got=repr(values[name])[:60], expected=_EXPECTED[kind])


def _is(value: Any, kind: type[Any]) -> bool:
    if kind is int or kind is float:
        right = isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value))
        return right and not isinstance(value, bool) and value >= 0
    return isinstance(value, kind)


_EXPECTED = {
    int: "an integer of 0 or more",
    float: "a number of 0 or more",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


def _wrong(where: str, what: str, *, got: str = "", expected: str = "", hint: str = "") -> InputError:
    return InputError(f"not a valid {NAME}: {what}", where=where, got=got, expected=expected, hint=hint or _AGAIN)


_AGAIN: Final = "run mix again; the plan is not meant to be edited"
