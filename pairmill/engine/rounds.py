"""The rounds of a stage, each shard with its key."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from pairmill.engine import keys
from pairmill.engine.manifest import content_key, fingerprint_from
from pairmill.engine.options import RunOptions
from pairmill.engine.stage import Shard, ShardRecord, Stage, StagePlan
from pairmill.errors import InternalError

C = TypeVar("C", bound=RunOptions)
P = TypeVar("P", bound=StagePlan[Any])
T = TypeVar("T")


def rounds_of(stage: Stage[C, P], config: C, plan: P) -> Generator[Sequence[Shard[Any]], list[ShardRecord], P | None]:
    """Yield the shards of each round with their keys, and send the stage the records of each."""
    shared = _sharing(stage, config, plan)

    @cache
    def series_of(kind: type[Shard[Any]]) -> str:
        return fingerprint_from(stage.name, stage.version, kind.__qualname__, *shared(kind))

    return with_keys(stage.rounds(config, plan), key_maker(stage, config, plan), series_of)


def with_keys(
    rounds: Generator[Sequence[Shard[Any]], list[ShardRecord], T],
    key_of: Callable[[Shard[Any]], str],
    series_of: Callable[[type[Shard[Any]]], str] = lambda kind: kind.__qualname__,
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], T]:
    """Give each shard of these rounds its key and its series."""
    records: list[ShardRecord] | None = None
    while True:
        try:
            shards = next(rounds) if records is None else rounds.send(records)
        except StopIteration as end:
            result: T = end.value
            return result
        # Nothing but the sender may hold the records and shards of a round while the next one is made.
        records = None
        for shard in shards:
            # In place: a copy of each would double what a round of a million shards holds.
            object.__setattr__(shard, "key", key_of(shard))
            object.__setattr__(shard, "series", series_of(type(shard)))
        records = yield shards
        del shards


def abreast(
    *several: Generator[Sequence[Shard[Any]], list[ShardRecord], Any],
) -> Generator[list[Shard[Any]], list[ShardRecord], list[Any]]:
    """Yield the first rounds of several as one, then their second ones and so on; return what each returns."""
    results: dict[int, Any] = {}
    records: dict[int, list[ShardRecord]] = {}
    while True:
        shards: dict[int, Sequence[Shard[Any]]] = {}
        for number, rounds in enumerate(several):
            if number not in results:
                try:
                    shards[number] = rounds.send(records[number]) if number in records else next(rounds)
                except StopIteration as end:
                    results[number] = end.value
        if not shards:
            return [results[number] for number in range(len(several))]
        left = iter((yield [shard for some in shards.values() for shard in some]))
        records = {number: list(islice(left, len(some))) for number, some in shards.items()}


def key_maker(stage: Stage[C, P], config: C, plan: P) -> Callable[[Shard[Any]], str]:
    """Make what computes the key of a shard: a digest of all that its bytes may follow from.

    It raises InternalError if a field has a value of an unknown type, or the class reads an option that the stage
    lacks.
    """
    shared = _sharing(stage, config, plan)

    def key_of(shard: Shard[Any]) -> str:
        content = keys.identify(shard, (stage.name, type(shard).__qualname__))
        return content_key(stage.name, stage.version, *shared(type(shard)), content)

    return key_of


def _sharing(stage: Stage[C, P], config: C, plan: P) -> Callable[[type[Shard[Any]]], list[object]]:
    """Make what returns the code and the options that the keys of shards of a class follow from."""
    home = type(stage).__module__

    @cache
    def shared(kind: type[Shard[Any]]) -> list[object]:
        ours = stage.version > 0 and keys.is_ours(home)
        code = "" if ours else keys.code_digest(home, kind.__module__)
        where = stage.name, kind.__qualname__
        if kind.options_read is None:
            return [code, keys.identify([plan.manifest_options(config), plan.says], where)]
        unknown = sorted({*kind.options_read} - {item.name for item in fields(config)})
        if unknown:
            raise InternalError("reads an option that the stage lacks", where=kind.__qualname__, got=unknown[0])
        read = {name: plan.options.get(name, getattr(config, name)) for name in kind.options_read}
        return [code, keys.identify(read, where)]

    return shared
