"""The phases of a mixture reach the loader with the folder; explicit phases win; a resume keeps them on any ranks."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.loader import Batch, Loader, MixturePlan, Phase, RowPlan, Windows
from pairmill.mixture.making import WantedPhase
from pairmill.mixture.methods import Recipe
from tests.support.data.tokens_and_mixtures import Bench

TOKENS = 4 * 600


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("phases"))
    draw = np.random.default_rng(4)
    for name in ("web", "code", "math"):
        bench.put(name, draw.integers(2, 120, 600))
    phases = [
        WantedPhase("broad", 0.5, 2, Recipe.parse("unimax")),
        WantedPhase("narrow", 0.3, 1, Recipe.parse("weights", weights={"web": 0, "code": 1, "math": 1})),
        WantedPhase("last", 0.2, 2, Recipe.parse("weights", weights={"web": 0, "code": 0, "math": 1})),
    ]
    bench.plan(phases=phases, budget=100_000)
    bench.run()
    return bench


def tasks_of(bench: Bench, batches: list[Batch]) -> set[int]:
    found = set()
    for batch in batches:
        for _, epoch, row in batch.rows.tolist():
            found.add(int(bench.epoch(epoch).task[row]))
    return found


@pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
def test_phases_are_those_of_the_folder(bench: Bench, tail: Any) -> None:
    plan = RowPlan(bench.target, tail=tail)
    assert [(phase.name, phase.epoch, phase.source) for phase in plan.phases] == [
        ("broad", 0, "data"),
        ("narrow", 2, "data"),
        ("last", 3, "data"),
    ]
    with Loader(plan, batch_tokens=TOKENS) as loader:
        batches = list(loader)
    assert [batch.phase for batch in batches] == [(0, 0, 1, 2, 2)[batch.epoch] for batch in batches]
    assert {batch.phase for batch in batches} == {0, 1, 2}
    if tail != "carry":  # a batch that goes on into the next epoch belongs to the phase in which it begins
        for phase, tasks in ((0, {0, 1, 2}), (1, {1, 2}), (2, {2})):
            assert tasks_of(bench, [batch for batch in batches if batch.phase == phase]) == tasks


def test_explicit_phases_win(bench: Bench) -> None:
    with Loader(RowPlan(bench.target, phases=[Phase("data")]), batch_tokens=TOKENS) as loader:
        batches = list(loader)
    assert {batch.phase for batch in batches} == {0}
    phases = [Phase("data", lr_scale=0.5), Phase("data", epoch=1, lr_scale=0.25), Phase("data", epoch=4, lr_scale=0.1)]
    with Loader(RowPlan(bench.target, phases=phases), batch_tokens=TOKENS) as loader:
        scales = {batch.epoch: batch.lr_scale for batch in loader}
    assert scales == {0: 0.5, 1: 0.25, 2: 0.25, 3: 0.25, 4: 0.1}
    with pytest.raises(UsageError, match="phases: missing"):
        RowPlan({"a": bench.target, "b": bench.target})


def test_the_same_batches_and_phases_come_after_a_resume_on_other_ranks(bench: Bench) -> None:
    def rows(batches: Iterator[Batch]) -> list[tuple[int, int, int]]:
        return [(batch.step, batch.phase, batch.start_row) for batch in batches]

    with Loader(RowPlan(bench.target), batch_tokens=TOKENS) as loader:
        whole = rows(iter(loader))
    assert len(whole) > 25
    states: list[dict[str, Any]] = []
    with Loader(RowPlan(bench.target), batch_tokens=TOKENS) as loader:
        states.extend(loader.state_dict() for _ in loader)
    for at, state in enumerate(states):
        assert state["phase"] == (0, 0, 1, 2, 2)[min(state["epoch"], 4)]
        for ranks in (1, 2, 4):
            # A global batch depends on the ranks' slots, so that only its beginning and its phase are those of before.
            loader = Loader(RowPlan(bench.target), batch_tokens=TOKENS, rank=ranks - 1, ranks=ranks, threads=0)
            loader.load_state_dict(json.loads(json.dumps(state)))
            again = list(islice(loader, 1))
            assert rows(iter(again)) == whole[at + 1 : at + 2]


@pytest.mark.parametrize(
    "phases",
    [
        5,
        [],
        ["a"],
        [{"name": "a"}],
        [{"name": 5, "epochs": [0, 5]}],
        [{"name": "a", "epochs": [0, 4]}],
        [{"name": "a", "epochs": [1, 5]}],
        [{"name": "a", "epochs": [0, 2.0]}, {"name": "b", "epochs": [2.0, 5]}],
        [{"name": "a", "epochs": [0, 2]}, {"name": "b", "epochs": [3, 5]}],
        [{"name": "a", "epochs": [0, 2]}, {"name": "a", "epochs": [2, 5]}],
        [{"name": "a", "epochs": [0, 5]}, {"name": "b", "epochs": [5, 5]}],
    ],
)
def test_a_folder_with_damaged_phases_is_refused(bench: Bench, phases: Any, tmp_path: Path) -> None:
    for path in bench.target.iterdir():
        if path.name not in {"metadata.json", "_MANIFEST.json"}:
            (tmp_path / path.name).symlink_to(path)
    metadata = bench.metadata()
    assert metadata["phases"][0]["name"] == "broad"
    (tmp_path / "metadata.json").write_text(json.dumps({**metadata, "phases": phases}))
    with pytest.raises(InputError, match=r"metadata.json: phases: wrong value.*from 0 to 5.*sample again"):
        RowPlan(tmp_path)
    del metadata["phases"]
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    assert [(phase.name, phase.epoch) for phase in RowPlan(tmp_path).phases] == [("", 0)]


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ([Phase("data", epoch=1)], r"phases\[0\]: first phase must start at once; got .*epoch=1"),
        (
            [Phase("data"), Phase("data", epoch=2, step=4)],
            r"phases\[1\]: ambiguous start.*one of step, tokens and epoch",
        ),
        ([Phase("data"), Phase("data", epoch=2), Phase("data", epoch=2)], r"phases\[2\]: does not start after"),
        ([Phase("data"), Phase("data", epoch=-1)], r"phases\[1\]: epoch: out of range"),
        ([Phase("data"), Phase("data", epoch=1, name=5)], r"phases\[1\]: name: wrong type"),  # type: ignore[arg-type]
    ],
)
def test_wrong_epochs_of_phases(bench: Bench, phases: list[Phase], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RowPlan(bench.target, phases=phases)


def test_windows_have_no_epochs_to_start_a_phase_with(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100, dtype=np.uint16))
    source = Windows.of_files(tmp_path, seq_len=8, name="a")
    with pytest.raises(UsageError, match=r"phases\[1\]: epoch: no such start; got 2; expected step or tokens"):
        MixturePlan([source], phases=[Phase(), Phase(epoch=2)])
