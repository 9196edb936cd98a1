"""Memory of batches returns to the pool at any moment, and is freed when the pool is gone."""

import gc
from pathlib import Path
from threading import Thread
from typing import Any

from pairmill.loader import Loader, RowPlan
from pairmill.loader.batch import Pool
from pairmill.loader.loader import _Prefetcher
from tests.support.data import samples
from tests.support.helpers import PATIENCE


def test_memory_may_come_back_while_the_same_thread_takes_some() -> None:
    """As when taking collects garbage that holds a batch."""
    held: list[Any] = []

    class Collecting(list[Any]):
        def pop(self, place: Any = -1) -> Any:
            held.clear()
            return super().pop(place)

    pool = Pool(64, 4)
    first = pool.take()
    held.append(pool.take())
    pool._free = Collecting()
    del first
    taken: list[Any] = []
    thread = Thread(target=lambda: taken.append(pool.take()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for itself"
    assert len(taken) == 1
    assert len(pool._free) == 1


def test_what_was_made_ahead_goes_when_a_state_is_loaded(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(5, 5)] * 200])
    gc.collect()
    before = _prefetchers()  # of tests that ran before, whose tracebacks are kept
    with Loader(RowPlan(folder), batch_tokens=40) as loader:
        for _ in range(5):
            next(iter(loader))
            loader.load_state_dict(loader.state_dict())
        gc.collect()
        assert _prefetchers() <= before


def _prefetchers() -> set[int]:
    return {id(what) for what in gc.get_objects() if isinstance(what, _Prefetcher)}
