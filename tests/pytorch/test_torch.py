"""The adapter: whose memory a tensor has, and that no loader of torch's repeats, loses or mixes up batches."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from pairmill.errors import InputError, UsageError
from pairmill.loader import Loader, MixturePlan, Phase, RowPlan, Windows
from pairmill.loader.batch import PREFIXLM, SCALARS
from pairmill.loader.torch import BatchDataset, PrefixLMDataset, _torch_memory, pinned, tensor
from tests.support.peers.hrm import HrmDataset

TOKENS = 24_576
"""Of a global batch; an epoch of the samples has 58 and drops the last."""

Pair = tuple[dict[str, torch.Tensor], dict[str, Any]]


@pytest.fixture(scope="module")
def plan(sampled: Path) -> RowPlan:
    return RowPlan(sampled)


def dataset(plan: RowPlan, **options: Any) -> PrefixLMDataset:
    scalars: Callable[[int], Any] = options.pop("scalars", int)
    return PrefixLMDataset(Loader(plan, **({"batch_tokens": TOKENS} | options)), scalars=scalars)


def same(one: Any, other: Any) -> bool:
    return (
        one[1] == other[1]
        and list(one[0]) == list(other[0])
        and all(torch.equal(value, other[0][name]) for name, value in one[0].items())
    )


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 0
    assert [number for number, pair in enumerate(zip(found, expected, strict=True)) if not same(*pair)] == []


@pytest.fixture(scope="module")
def epochs(plan: RowPlan) -> list[list[Any]]:
    """Every batch of all three epochs."""
    data = dataset(plan)
    return [list(data) for _ in range(3)]


def test_what_is_expected_can_be_told_apart(epochs: list[list[Any]]) -> None:
    assert [len(epoch) for epoch in epochs] == [58, 58, 58]
    assert not any(same(one, other) for one, other in zip(epochs[0], epochs[1], strict=True))
    assert not same(epochs[0][0], epochs[0][1])


@pytest.mark.parametrize("ranks", [1, 2])
def test_pairs_are_those_of_hrm_text(sampled: Path, plan: RowPlan, ranks: int) -> None:
    for rank in range(ranks):
        reference = HrmDataset(sampled, batch_max_length=TOKENS // ranks, rank=rank, num_replicas=ranks)
        data = dataset(plan, rank=rank, ranks=ranks)
        assert vars(data.metadata) == vars(reference.metadata)
        for _ in range(2):
            count = 0
            for (tensors, scalars), (arrays, numbers) in zip(data, reference, strict=True):
                assert list(tensors) == list(PREFIXLM)
                assert all(
                    value.dtype == torch.int32 and np.array_equal(value.numpy(), arrays[name])
                    for name, value in tensors.items()
                )
                assert scalars == numbers
                count += 1
            assert count > 50


# Memory


@pytest.mark.parametrize("allocate", [bytearray, partial(_torch_memory, pin=False)])
def test_a_tensor_is_the_arrays_own_memory(plan: RowPlan, allocate: Any) -> None:
    batch = next(iter(Loader(plan, batch_tokens=TOKENS, allocate=allocate)))
    for name in PREFIXLM:
        array, made = batch[name], tensor(batch[name])
        assert made.data_ptr() == array.ctypes.data
        array[5] = 77
        assert made[5] == 77
        assert made.dtype == torch.int32
        assert made.shape == (TOKENS,)


def test_memory_is_used_again_only_when_nothing_refers_to_it(plan: RowPlan) -> None:
    data = dataset(plan, threads=0)
    batches = iter(data)

    def place() -> int:
        tensors, _ = next(batches)
        return tensors["inputs"].data_ptr()

    tensors, _ = next(batches)
    kept, held = tensors["labels"][100:200].view(10, 10), tensors["inputs"].data_ptr()
    values = kept.clone()
    del tensors
    others = [place() for _ in range(10)]
    assert held not in others
    # The batch before is held until the next one is there.
    assert len(set(others)) == 2
    assert torch.equal(kept, values)
    del kept
    assert held in [place() for _ in range(3)]


def test_what_is_collected_as_garbage_comes_back_too(plan: RowPlan) -> None:
    data = dataset(plan, threads=2, prefetch=2)
    held = set()
    for tensors, _ in islice(data, 12):
        cycle: list[Any] = [tensors]
        cycle.append(cycle)
        held.add(tensors["inputs"].data_ptr())
        del tensors, cycle
        gc.collect()
    assert len(held) <= 5


def test_torchs_own_memory_keeps_its_storage_and_is_left_to_torch(plan: RowPlan) -> None:
    """torch records copies to a GPU in the storage. It must be the allocator's, and nothing else may write there."""
    given: list[torch.Tensor] = []

    def allocate(size: int) -> Any:
        given.append(torch.empty(size, dtype=torch.uint8))
        return given[-1].numpy()

    batches = iter(dataset(plan, threads=0, allocate=allocate))
    for number in range(4):
        tensors, _ = next(batches)
        for value in tensors.values():
            assert value.untyped_storage().data_ptr() == given[number].untyped_storage().data_ptr()
            assert value.untyped_storage().nbytes() == 6 * TOKENS * 4
        del tensors, value
    assert len(given) == 4


def test_pinned_memory(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan, allocate=pinned, threads=0)
    if torch.cuda.is_available():
        found = list(data)
        assert all(value.is_pinned() for tensors, _ in found for value in tensors.values())
    else:
        with pytest.warns(UserWarning, match="found no GPU, memory is not pinned"):
            found = list(data)
    assert_same(found, epochs[0])


# Scalars, epochs, position


def test_scalars_are_what_the_trainer_wants(plan: RowPlan) -> None:
    _, numbers = next(iter(dataset(plan)))
    assert list(numbers) == list(SCALARS)
    assert all(type(value) is int for value in numbers.values())
    _, made = next(iter(dataset(plan, scalars=torch.tensor)))
    assert all(value.dtype == torch.int64 and value.shape == () and not value.is_cuda for value in made.values())
    assert {name: int(value) for name, value in made.items()} == numbers


def test_an_iteration_is_the_rest_of_an_epoch(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan)
    found = list(islice(data, 20))
    assert data.batch is not None
    assert (data.batch.step, data.batch.epoch) == (19, 0)
    assert_same(found + list(data), epochs[0])
    assert_same(list(data), epochs[1])
    assert_same(list(data), epochs[2])
    with pytest.raises(InputError, match=r"all batches were handed out; got 174 batches.*sample more"):
        list(data)
    with pytest.raises(TypeError):
        len(data)  # type: ignore[arg-type]


def test_a_saved_position_is_gone_on_from_with_other_ranks(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan)
    list(data)
    list(islice(data, 7))
    state = json.loads(json.dumps(data.state_dict()))
    again = dataset(plan)
    again.load_state_dict(state)
    assert_same(list(again), epochs[1][7:])
    ranks = [dataset(plan, rank=rank, ranks=3) for rank in range(3)]
    rows = []
    for one in ranks:
        one.load_state_dict(state)
        for _ in one:
            assert one.batch is not None
            rows += one.batch.rows[:, 2].tolist()
    assert sorted(rows) == list(range(state["start_row"], max(rows) + 1))


def test_another_kind_of_plan_is_no_pair(plan: RowPlan) -> None:
    loader = Loader(plan, batch_tokens=TOKENS)
    assert list(next(iter(BatchDataset(loader)))) == list(PREFIXLM)
    loader.plan = object()  # type: ignore[assignment]
    with pytest.raises(UsageError, match="not a loader of rows; got object; expected RowPlan; use BatchDataset"):
        PrefixLMDataset(loader)


def test_windows_are_tensors_too(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000, dtype=np.uint16))
    mixture = MixturePlan([Windows.of_files(tmp_path, seq_len=16, name="a")])
    for allocate in (bytearray, partial(_torch_memory, pin=False)):
        data = BatchDataset(Loader(mixture, batch_tokens=64, ranks=2, rank=1, allocate=allocate))
        count = 0
        for made, batch in zip(data, Loader(mixture, batch_tokens=64, ranks=2, rank=1).epoch(), strict=True):
            assert list(made) == ["input_ids", "labels", "dataset_idx"]
            assert made["labels"].shape == (2, 16)
            assert all(value.dtype == torch.int64 for value in made.values())
            assert all(np.array_equal(value.numpy(), batch[name]) for name, value in made.items())
            count += 1
        assert count == 16


def test_metadata_are_those_of_the_first_phase(sampled: Path) -> None:
    both = RowPlan({"a": sampled, "b": sampled}, phases=[Phase("b"), Phase("a", step=5, lr_scale=0.5)])
    data = dataset(both)
    assert data.metadata is both.folders[1].metadata
    list(islice(data, 6))
    assert data.batch is not None
    assert (data.batch.source, data.batch.lr_scale) == ("a", 0.5)


# Loaders of torch's


def test_dataloader_in_this_process(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan)
    loader = DataLoader(data, batch_size=None)
    for epoch in epochs[:2]:
        found = list(loader)
        assert isinstance(found[0], list)
        assert_same(found, epoch)
    assert data.state_dict()["sources"] == {"data": [2, 0]}


def test_dataloader_with_a_worker(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan)
    loader = DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=8, persistent_workers=True)
    for epoch in epochs[:2]:
        assert_same(list(loader), epoch)
    with pytest.raises(UsageError, match=r"has no position here: another process reads it.*worker process"):
        data.state_dict()
    with pytest.raises(UsageError, match="cannot be read from here"):
        next(iter(data))
    # A state that is loaded here does not reach a worker that is there already; a new one begins at it.
    data.load_state_dict(dataset(plan).state_dict())
    with pytest.raises(UsageError, match="a state loaded in the process that started this worker"):
        list(loader)
    assert_same(list(DataLoader(data, batch_size=None, num_workers=1)), epochs[0])


def test_a_worker_continues_where_this_process_is(plan: RowPlan, epochs: list[list[Any]]) -> None:
    data = dataset(plan, threads=2)
    begun = list(islice(data, 3))
    assert_same(begun + list(DataLoader(data, batch_size=None, num_workers=1)), epochs[0])


def test_a_second_worker_does_not_replay_the_epoch(plan: RowPlan, epochs: list[list[Any]]) -> None:
    loader = DataLoader(dataset(plan), batch_size=None, num_workers=1)
    assert_same(list(loader), epochs[0])
    with pytest.raises(
        UsageError, match=r"cannot be read from here: another process reads it.*persistent_workers=True"
    ):
        list(loader)


def test_a_workers_iteration_cannot_be_left_midway(plan: RowPlan) -> None:
    """Batches that the worker made ahead would be lost without a word."""
    loader = DataLoader(dataset(plan), batch_size=None, num_workers=1, persistent_workers=True)
    list(islice(loader, 3))
    with pytest.raises(UsageError, match=r"was left midway.*never handed out"):
        list(loader)


def test_several_workers_are_refused(plan: RowPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.loader.torch.get_worker_info", lambda: SimpleNamespace(id=0, num_workers=2))
    with pytest.raises(UsageError, match=r"DataLoader: num_workers.*got 2; expected 0 or 1.*threads=2"):
        next(iter(dataset(plan)))


def test_several_worker_processes_give_no_batch(plan: RowPlan) -> None:
    given = iter(DataLoader(dataset(plan), batch_size=None, num_workers=2))
    # On a busy machine torch may see that a worker has ended before it reads why.
    with pytest.raises((UsageError, RuntimeError)) as refused:
        next(given)
    assert isinstance(refused.value, UsageError) or "exited unexpectedly" in str(refused.value)


def test_pinned_memory_in_a_worker_is_refused(plan: RowPlan) -> None:
    with pytest.raises(UsageError, match=r"not available in a worker process.*num_workers=0"):
        list(DataLoader(dataset(plan, allocate=pinned), batch_size=None, num_workers=1))


def test_a_worker_that_is_spawned_is_refused(plan: RowPlan) -> None:
    with pytest.raises(UsageError, match="multiprocessing_context='fork'"):
        list(DataLoader(dataset(plan), batch_size=None, num_workers=1, multiprocessing_context="spawn"))


# torchdata's own call of something that torch is about to remove.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("at", [1, 20, 57, 58])
def test_stateful_dataloader(plan: RowPlan, epochs: list[list[Any]], workers: int, at: int) -> None:
    def loader() -> Any:
        return StatefulDataLoader(dataset(plan), batch_size=None, num_workers=workers, persistent_workers=workers > 0)

    one = loader()
    batches: Iterator[Any] = iter(one)
    assert_same([next(batches) for _ in range(at)], epochs[0][:at])
    state = one.state_dict()
    other = loader()
    other.load_state_dict(state)
    rest = list(other)
    if at < 58:
        assert_same(rest, epochs[0][at:])
        assert_same(list(other), epochs[1])
    else:
        # The epoch's end was not reached yet, and is found first.
        assert rest == []
        assert_same(list(other), epochs[1])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 1])
def test_stateful_dataloader_between_epochs(plan: RowPlan, epochs: list[list[Any]], workers: int) -> None:
    def loader() -> Any:
        return StatefulDataLoader(dataset(plan), batch_size=None, num_workers=workers, persistent_workers=workers > 0)

    one = loader()
    assert_same(list(one), epochs[0])
    state = one.state_dict()
    other = loader()
    other.load_state_dict(state)
    assert_same(list(other), epochs[1])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_distributed_checkpoint(plan: RowPlan, epochs: list[list[Any]], tmp_path: Path) -> None:
    """HRM-Text's trainer saves with it; a data set is one of its stateful objects."""
    data = dataset(plan)
    list(islice(data, 9))
    dcp.save({"data": data, "step": 9}, checkpoint_id=tmp_path / "saved")
    again = dataset(plan)
    state: dict[str, Any] = {"data": again, "step": 0}
    dcp.load(state, checkpoint_id=tmp_path / "saved")
    assert state["step"] == 9
    assert_same(list(again), epochs[0][9:])


def test_without_torch_the_error_says_what_to_install(sampled: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; import pairmill.loader; import pairmill.loader.torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert (
        "ImportError: pairmill.loader.torch needs torch, which pairmill does not install: pip install torch"
        in run.stderr
    )
