"""Shards that wait for a server run in threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pairmill.engine import workers
from pairmill.errors import InputError


def test_what_shards_raise_in_threads_is_an_outcome_or_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shards: list[Any] = [SimpleNamespace(waits=True, number=number) for number in range(6)]
    threads = set()

    def run(stage: str, shard: Any, context: object, folder: str) -> Any:
        threads.add(threading.current_thread().name)
        if shard.number == 2:
            raise InputError("no such file")
        if shard.number == 9:
            raise ZeroDivisionError
        return lambda: shard.number

    monkeypatch.setattr(workers, "run_shard", run)
    with workers.WorkerPool("fetch", "nowhere", 3) as pool:
        outcomes = {shard.number: outcome for shard, outcome in pool.run(None, shards)}
        assert isinstance(outcomes.pop(2), InputError)
        assert outcomes == {number: number for number in (0, 1, 3, 4, 5)}
        assert threads == {workers.SHARDS}
        shards[3].number = 9
        with pytest.raises(ZeroDivisionError):
            list(pool.run(None, shards))
