"""Several processes: what they agree on, FSDP2 against one process, checkpoints that move to other numbers of ranks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pairmill.stages.train import launch
from pairmill.stages.train.core import follow
from pairmill.stages.train.run import checkpoint, parallel
from pairmill.stages.train.run.checkpoint import Checkpoints
from pairmill.stages.train.run.job import STOPPED
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.step import Stepper
from tests.pytorch.train import tiny
from tests.pytorch.train.ranks_pool import Pool

WIDTH, IDS, STEPS = 6, 11, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # 7 rows: not divisible by 2 or 3 ranks.
        self.up, self.down = nn.Linear(WIDTH, 7, bias=False), nn.Linear(7, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Recurrent(nn.Module):
    """As the nets: blocks that are called many times, the head outside of forward, a frozen vector in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(IDS, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        # One row: with 2 or 3 ranks some have none.
        self.scale = nn.Parameter(torch.empty(1))
        self.head = nn.Linear(WIDTH, IDS, bias=False)
        self.register_buffer("z", torch.empty(WIDTH, dtype=torch.bfloat16))

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)

    def forward(self, ids: Tensor, *, reaches: bool = True) -> Tensor:
        x = self.embed(ids)
        y = x if reaches else x.detach()
        with torch.no_grad():
            z = self.layers[0](x + self.z)
        for _ in range(3):
            for layer in self.layers:
                y = layer(y + z) * self.scale
        return y


class State:
    """The optimizer of the tests: what checkpoints use of the real one."""

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        self.parameters = parameters
        self.state = {
            # One parameter has no state.
            name: {"exp_avg": torch.zeros_like(one.detach())}
            for name, one in parameters.items()
            if name != "scale"
        }
        self.counts = dict.fromkeys(parameters, 0)

    def step(self) -> None:
        with torch.no_grad():
            for name, one in self.parameters.items():
                if one.grad is not None:
                    self.counts[name] += 1
                    if name in self.state:
                        self.state[name]["exp_avg"].add_(one.grad)
                    one.sub_(0.01 * one.grad)
                    one.grad = None

    def numbers(self) -> dict[str, Any]:
        return {"steps": dict(self.counts)}

    def set_numbers(self, numbers: dict[str, Any]) -> None:
        self.counts = dict(numbers["steps"])


def initial(name: str, shape: torch.Size) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(name.encode()))) * 0.5


@torch.no_grad()
def initialise(net: nn.Module) -> None:
    for name, one in (*net.named_parameters(), *net.named_buffers()):
        rows, first = parallel.local(one)
        rows.copy_(initial(name, one.shape)[first : first + len(rows)])


def made(ranks: Ranks, precision: torch.dtype = torch.float32) -> tuple[Any, State]:
    with torch.device("meta"):
        net = Recurrent()
    parallel.shard(net, ranks, precision)
    initialise(net)
    return net, State(parallel.parameters(net))


def trained(net: Any, optimizer: State, ranks: Ranks, steps: range) -> None:
    """Steps of six micro-batches in all, whatever the number of ranks."""
    for step in steps:
        for number in range(ranks.rank, 6, ranks.size):
            ids = torch.randint(0, IDS, (5,), generator=torch.Generator().manual_seed(100 * step + number))
            with ranks.together("a step"):
                # In the first step the embedding gets no gradient at all.
                logits = net.head(net(ids, reaches=step > 0)).float()
                (functional.cross_entropy(logits, ids, reduction="sum") / 30).backward()
        parallel.reduce(net)
        if step == 0:
            assert optimizer.parameters["embed.weight"].grad is None
        optimizer.step()


def wholes(net: Any, optimizer: State, ranks: Ranks) -> dict[str, list[float]]:
    tensors, _ = checkpoint.state_of(net, optimizer)  # type: ignore[arg-type]
    return {name: one.float().flatten().tolist() for name, one in parallel.whole(tensors, ranks)}


def close(first: dict[str, list[float]], second: dict[str, list[float]], allowed: float) -> bool:
    assert first.keys() == second.keys()
    worst = max(abs(a - b) for name in first for a, b in zip(first[name], second[name], strict=True))
    return worst <= allowed


# What ranks run


def train(precision: torch.dtype = torch.float32) -> Any:
    ranks = parallel.start("cpu", 60)
    net, optimizer = made(ranks, precision)
    started = wholes(net, optimizer, ranks)
    trained(net, optimizer, ranks, range(STEPS))
    with torch.no_grad():
        evaluated = net.head(net(torch.arange(5))).float()
        for one in optimizer.parameters.values():
            rows, _ = parallel.local(one)
            rows.mul_(2)
        parallel.reshard(net)
        doubled = net.head(net(torch.arange(5))).float()
        for one in optimizer.parameters.values():
            rows, _ = parallel.local(one)
            rows.div_(2)
        parallel.reshard(net)
    ended = wholes(net, optimizer, ranks)
    ranks.close()
    return started, ended, evaluated.tolist(), doubled.tolist(), dict(optimizer.counts)


def saved(folder: str, first: int, until: int, asynchronous: bool) -> Any:
    """Go on from the newest checkpoint to a step, save it, and tell the state before and after."""
    ranks = parallel.start("cpu", 60)
    net, optimizer = made(ranks)
    checkpoints = Checkpoints(folder, ranks, keep=2, asynchronous=asynchronous)
    found = checkpoints.newest()
    if found is not None:
        for one in (*optimizer.parameters.values(), net.z):
            parallel.local(one)[0].fill_(-1)
        checkpoint.restore(checkpoints, found, net, optimizer)
        assert found.says["place"] == first
        assert found.read("tokenizer.json") == b"{}"
    begun = wholes(net, optimizer, ranks)
    trained(net, optimizer, ranks, range(first, until))
    tensors, numbers = checkpoint.state_of(net, optimizer)  # type: ignore[arg-type]
    checkpoints.save(until, tensors, {"place": until, "optimizer": numbers}, {"tokenizer.json": b"{}"})
    checkpoints.wait()
    ended = wholes(net, optimizer, ranks)
    ranks.close()
    return found and found.step, begun, ended, dict(optimizer.counts)


def differing() -> None:
    ranks = parallel.start("cpu", 20)
    try:
        ranks.agree("the plan", {"digest": "a", "same": 1} if ranks.rank != 1 else {"digest": "b", "same": 1})
    finally:
        ranks.meet("the end of the test")


def flags() -> Any:
    ranks = parallel.start("cpu", 20)
    told = ranks.any(ranks.rank == 1, False), ranks.share("a word", f"of {ranks.rank}"), ranks.gather("n", ranks.rank)
    total = ranks.sum(torch.tensor([1.0, ranks.rank])).tolist()
    ranks.close()
    return told, total


def waiting() -> None:
    parallel.start("cpu", 2)


def late() -> None:
    """Rank 1 never comes to what the others do."""
    ranks = parallel.start("cpu", 2)
    if ranks.rank == 1:
        time.sleep(4)
    else:
        ranks.sum(torch.ones(1))


def unwritable(folder: str) -> Any:
    """The second checkpoint of rank 1 finds a full disk."""
    ranks = parallel.start("cpu", 20)
    net, optimizer = made(ranks)
    checkpoints = Checkpoints(folder, ranks)
    tensors, numbers = checkpoint.state_of(net, optimizer)  # type: ignore[arg-type]
    checkpoints.save(1, tensors, {"optimizer": numbers})
    checkpoints.wait()
    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank == 1:
            patch.setattr(checkpoint._Saving, "_free", lambda self: 12_345)
        checkpoints.save(2, tensors, {"optimizer": numbers})
        while not ranks.any(checkpoints.failed)[0]:
            time.sleep(0.01)
        with pytest.raises(checkpoint.StorageError) as failed:
            checkpoints.wait()
    found = checkpoints.newest()
    ranks.close()
    return str(failed.value), found and found.step


def staged(root: str, sampled: str, seen: str, at: int, how: int) -> Any:
    """The whole stage; before a step, rank ``size - 1`` gets a signal. Rows that are trained on go to a file a rank."""
    config = tiny.config(Path(root), Path(sampled), "checkpoints.every_steps=2", "batch.tail=keep", "batch.tokens=120")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    parallel._ANSWER_S = 1  # type: ignore[misc]
    step = Stepper.step
    with Path(seen).open("a") as file:

        def told(self: Stepper, number: int, batch: Any) -> Any:
            if number == at and rank == size - 1:
                os.kill(os.getpid(), how)
            done = step(self, number, batch)
            for packed in (micro.packed for micro in batch.micro):
                for first, end in pairwise(packed.starts):
                    print(number, *packed.inputs[first:end].tolist(), file=file, flush=True)
            return done

        Stepper.step = told  # type: ignore[method-assign]
        try:
            if rank:
                follow(config)
                return None
            group = launch.Group(config)
            failed = True
            try:
                result = tiny.train(config, group)
                failed = False
            except SystemExit:
                failed = False
                raise
            finally:
                group.end(failed=failed)
            return tiny.digest(result), tiny.lines(result), tiny.events(result), asdict(result.manifest.ledger)
        finally:
            Stepper.step = step  # type: ignore[method-assign]


def pruning_late(folder: str) -> Any:
    """Rank 0 is slow to delete; the others must not write their next parts meanwhile."""
    ranks = parallel.start("cpu", 20)
    net, optimizer = made(ranks)
    checkpoints = Checkpoints(folder, ranks, keep=1)
    with pytest.MonkeyPatch.context() as patch:
        prune = Checkpoints._prune
        patch.setattr(Checkpoints, "_prune", lambda *args: (time.sleep(0.2), prune(*args)))
        for step in (1, 2, 3):
            tensors, numbers = checkpoint.state_of(net, optimizer)  # type: ignore[arg-type]
            checkpoints.save(step, tensors, {"optimizer": numbers})
        found = checkpoints.newest()
    ranks.close()
    return found and found.step


# The tests


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is one of its own, and leaves no variable of torchrun's."""
    monkeypatch.setenv("WORLD_SIZE", "1")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(3)
    yield pool
    pool.close()


def test_ranks_train_as_one_process_does(pool: Pool) -> None:
    started, ended, evaluated, doubled, counts = train()
    assert counts["embed.weight"] == STEPS - 1
    assert counts["head.weight"] == STEPS
    for size in (2, 3):
        results = pool.values(size, train)
        first = results[0]
        assert first[0] == started, "initial weights do not depend on ranks"
        assert close(first[1], ended, 1e-6)
        assert first[4] == counts
        for _, rest, theirs, after, _ in results:
            assert torch.allclose(torch.tensor(theirs), torch.tensor(evaluated), atol=1e-5)
            # Weights that changed without a step are those that the next forward pass uses.
            assert torch.allclose(torch.tensor(after), torch.tensor(doubled), atol=1e-4)
            assert rest is first[1] or not any(rest.values()), "whole tensors are on rank 0 alone"


def test_bfloat16_keeps_float32_weights(pool: Pool) -> None:
    _, exact, *_ = train()
    for size in (1, 2):
        first = pool.values(size, train, torch.bfloat16)[0]
        assert close(first[1], exact, 0.05)
        assert not close(first[1], exact, 1e-6)
        weights = torch.tensor(first[1]["model.head.weight"])
        assert not torch.equal(weights, weights.bfloat16().float())


def test_a_checkpoint_moves_to_another_number_of_ranks(pool: Pool, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    step, before = None, None
    for number, size in enumerate((2, 3, 1, 3)):
        results = pool.values(size, saved, folder, number, number + 1, number % 2 == 0)
        found, begun, ended, counts = results[0]
        assert found == step
        if before is not None:
            assert begun == before, "each tensor is as it was saved"
        assert [result[3] for result in results] == [counts] * size
        step, before = number + 1, ended
    assert sorted(os.listdir(folder)) == ["00000003", "00000004"]
    assert len(list((tmp_path / "checkpoints/00000004").glob("part-*of3.safetensors"))) == 3
    ranks = parallel.start("cpu", 60)
    net, optimizer = made(ranks)
    trained(net, optimizer, ranks, range(4))
    assert before is not None
    assert close(wholes(net, optimizer, ranks), before, 1e-5)


def test_ranks_talk(pool: Pool) -> None:
    for told, total in pool.values(3, flags):
        assert told == ((True, False), "of 0", [0, 1, 2])
        assert total == [3.0, 3.0]


def test_a_rank_that_differs_is_named(pool: Pool) -> None:
    for kind, name, message, _ in pool.run(3, differing):
        assert (kind, name) == ("error", "InputError")
        assert message.startswith("rank 1 (")
        assert '{"digest": "b"}' in message
        assert '{"digest": "a"}' in message
        assert '"same"' not in message


def test_a_rank_that_never_starts_is_named(pool: Pool) -> None:
    results = pool.run(3, waiting, without=[2])
    for kind, name, message, _ in (results[0], results[1]):
        assert (kind, name) == ("error", "InternalError")
        assert "no answer of rank 2 (of 3 ranks)" in message or "the store of the run" in message
    assert "no answer of rank 2" in results[0][2]


def test_without_rank_0_the_store_does_not_answer(pool: Pool) -> None:
    _, name, message, _ = pool.run(2, waiting, without=[0])[1]
    assert name == "InternalError"
    assert "store of the run does not answer" in message
    assert "in 2 s" in message


def test_a_rank_that_does_not_come_is_named(pool: Pool) -> None:
    results = pool.run(3, late)
    for rank in (0, 2):
        assert results[rank][1] == "InternalError", results[rank]
    assert "no answer of rank 1 (" in results[0][2]
    assert "of 3 ranks" in results[0][2]


def test_a_full_disk_of_one_rank_stops_all(pool: Pool, tmp_path: Path) -> None:
    for message, step in pool.values(2, unwritable, str(tmp_path / "checkpoints")):
        assert "no space for a checkpoint" in message
        assert "12,345 bytes free" in message
        assert step == 1


def test_the_next_checkpoint_is_not_deleted_with_the_last(pool: Pool, tmp_path: Path) -> None:
    assert pool.values(2, pruning_late, str(tmp_path / "checkpoints")) == [3, 3]


# The stage


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.data(tmp_path_factory.mktemp("data") / "sampled", rows=60, epochs=2)


def rows_of(seen: Path, last: int = 1_000_000) -> Counter[str]:
    """Rows of the steps up to one, with the number of times that each was trained on."""
    lines = [line.split(" ", 1) for path in seen.parent.glob(f"{seen.name}*") for line in path.read_text().splitlines()]
    return Counter(row for number, row in lines if int(number) <= last)


def steps_of(seen: Path) -> list[str]:
    """The step and the row of each that was trained on, sorted."""
    return sorted(line for path in seen.parent.glob(f"{seen.name}*") for line in path.read_text().splitlines())


def test_two_then_three_then_one_process_train_on_each_row_once(pool: Pool, sampled: Path, tmp_path: Path) -> None:
    """A signal to any rank stops all of them after a checkpoint; another number of ranks goes on from there."""
    (digest, lines, _, ledger), _ = pool.values(
        2, staged, str(tmp_path / "whole"), str(sampled), str(tmp_path / "all"), 0, 0
    )
    everything = rows_of(tmp_path / "all")
    assert sum(everything.values()) == 120 == ledger["rows_in"]
    # The same number of ranks: the same bits.
    (again, relined, *_), _ = pool.values(
        2, staged, str(tmp_path / "again"), str(sampled), str(tmp_path / "again.rows"), 0, 0
    )
    assert (again, relined) == (digest, lines)
    root, moving = str(tmp_path / "moved"), str(tmp_path / "moved.rows")
    for size, at in ((2, 2), (3, 5)):
        for result in pool.run(size, staged, root, str(sampled), moving, at, signal.SIGTERM):
            assert result[:3] == ("error", "SystemExit", str(STOPPED)), result
    ((_, moved, events, same),) = pool.values(1, staged, root, str(sampled), moving, 0, 0)
    assert events == ["begun", "stopped", "resumed", "stopped", "resumed", "finished"]
    assert rows_of(Path(moving)) == everything
    assert same == ledger
    assert [line["step"] for line in moved] == [line["step"] for line in lines]
    # Any number of processes trains on the same rows step by step: what differs is the order of sums.
    alone = str(tmp_path / "alone.rows")
    ((_, single, *_),) = pool.values(1, staged, str(tmp_path / "alone"), str(sampled), alone, 0, 0)
    for seen in (tmp_path / "moved.rows", tmp_path / "alone.rows"):
        assert steps_of(seen) == steps_of(tmp_path / "all")
    for others in (moved, single):
        for name in ("tokens", "labels", "flops"):
            assert [line[name] for line in others] == [line[name] for line in lines]
        for name in ("loss", "grad_norm"):
            assert [line[name] for line in others] == pytest.approx([line[name] for line in lines], rel=1e-5)


def test_a_killed_rank_ends_all_and_the_run_goes_on(pool: Pool, sampled: Path, tmp_path: Path) -> None:
    size = 3
    (digest, lines, *_), *_ = pool.values(
        size, staged, str(tmp_path / "whole"), str(sampled), str(tmp_path / "all"), 0, 0
    )
    root, seen = str(tmp_path / "killed"), str(tmp_path / "seen")
    results = pool.run(size, staged, root, str(sampled), seen, 4, signal.SIGKILL, leaves=True)
    assert results[-1] == ("died", -signal.SIGKILL)
    for kind, name, message, _ in results[:-1]:
        assert (kind, name) == ("error", "InternalError")
        assert message.startswith("step 4: ranks did not come; got no answer of rank ")
        assert "rank 2 (" in message
        assert "(of 3 ranks); see the log of the named ranks; the same command goes on" in message
    # Rank 0 may wait for rank 1, which has noticed first and ended.
    assert sum("no answer of rank 2 (" in message for _, _, message, _ in results[:-1]) >= 1
    (again, relined, events, _), *_ = pool.values(size, staged, root, str(sampled), seen, 0, 0)
    assert (again, relined) == (digest, lines)
    assert events == ["begun", "resumed", "finished"]
