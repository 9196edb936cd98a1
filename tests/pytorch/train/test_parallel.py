"""One process: no process group, no collective. (Several: test_ranks.py.)"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pairmill.errors import UsageError
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.parallel import Ranks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def blocks(self) -> list[nn.Module]:
        return [self.layer]

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return parallel.start("cpu")


def test_one_process_needs_no_group(alone: Ranks) -> None:
    assert (alone.rank, alone.size, alone.device.type) == (0, 1, "cpu")
    assert alone.any(True, False) == (True, False)
    assert alone.gather("x", {"a": 1}) == [{"a": 1}]
    assert alone.share("x", 3) == 3
    alone.agree("x", object())
    alone.meet("x")
    total = torch.ones(2)
    assert alone.sum(total) is total
    assert not dist.is_initialized()
    alone.close()


def test_one_process_has_the_net_as_it_is(alone: Ranks) -> None:
    net = Net()
    weight = net.layer.weight
    assert parallel.shard(net, alone, torch.float32) is net
    assert net.layer.weight is weight
    assert type(net) is Net
    assert parallel.parameters(net)["layer.weight"] is weight
    net(torch.ones(1, 3)).sum().backward()
    gradient = weight.grad
    parallel.reduce(net)
    assert weight.grad is gradient
    rows, first = parallel.local(weight)
    assert rows.data_ptr() == weight.data_ptr()
    assert first == 0
    ((name, whole),) = parallel.whole({"w": weight}, alone)
    assert name == "w"
    assert torch.equal(whole, weight)
    assert not dist.is_initialized()


def test_a_net_on_the_meta_device_gets_memory(alone: Ranks) -> None:
    with torch.device("meta"):
        net = Net()
    parallel.shard(net, alone, torch.float32)
    assert not any(one.is_meta for one in net.parameters())


def test_errors_that_are_no_collectives_stay_what_they_are(alone: Ranks) -> None:
    for ranks in (alone, Ranks(size=2)):
        with pytest.raises(RuntimeError, match="a defect"), ranks.together("a step"):
            raise RuntimeError("a defect")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu() -> None:
    with pytest.raises(UsageError, match="device=cuda: no such device; got 0 GPUs"):
        parallel.start("cuda")
