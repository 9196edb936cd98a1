"""Several processes train one net: torchrun's environment, FSDP2, and what all ranks agree on.

FSDP2 (``torch.distributed.fsdp.fully_shard``) cuts every tensor into rows, one range of them for each rank. A single
process that computes in float32 has no process group and calls no collective.

Ranks meet by keys in torch's store, not by collectives: a key that is absent names the rank that did not come.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from pairmill.errors import InputError, InternalError
from pairmill.nets.device import choose_device

LIMIT_S: Final = 600.0
"""Seconds that the ranks wait for each other."""
_PATIENCE_S: Final = 86_400.0
_ANSWER_S: Final = 5.0
"""Seconds that ranks have to answer after a failed collective. All of them notice it within milliseconds."""


@dataclass
class Ranks:
    """The processes of a run, and this one's place among them.

    Every method that all ranks call waits for the others for ``limit_s`` seconds. Then it raises an InternalError that
    names the ranks that did not come.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
        device: of this process.
        limit_s: seconds.
        on_machine: number of processes on this machine.
        saves: number of checkpoints begun; their keys in the store.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    limit_s: float = LIMIT_S
    on_machine: int = 1
    saves: int = 0
    _store: Any = None
    _met: int = 0
    _doing: str = ""
    _names: list[str] = field(default_factory=list)

    def gather(self, what: str, value: object = None) -> list[Any]:
        """Return the JSON-like values of all ranks, in their order. All ranks call it."""
        if self.size == 1:
            return [value]
        self._met += 1
        result = [json.loads(data) for data in self.exchange(self._store, str(self._met), what, [what, value])]
        for rank, (theirs, _) in enumerate(result):
            if theirs != what:
                raise InternalError(
                    "ranks do different things", where=self.name(rank), got=repr(theirs), expected=repr(what)
                )
        return [value for _, value in result]

    def exchange(self, store: Any, key: str, what: str, value: object) -> list[bytes]:
        """Do what ``gather`` does, by keys of the caller's own; a thread has a store of its own (``store``)."""
        keys = [f"{key}/{rank}" for rank in range(self.size)]
        try:
            store.set(keys[self.rank], json.dumps(value))
            store.wait(keys, timedelta(seconds=self.limit_s))
            return [bytes(store.get(item)) for item in keys]
        except RuntimeError as error:
            raise self._absent(store, keys, what) from error

    def store(self) -> Any:
        """Return a connection for a thread of its own; a blocking call would otherwise stall the others."""
        return self._store.clone()

    def agree(self, what: str, value: object) -> None:
        """Raise InputError that names the ranks whose JSON-like value differs from rank 0's. All ranks call it."""
        values = self.gather(what, value)
        others = [rank for rank, item in enumerate(values) if item != values[0]]
        if others:
            raise InputError(
                f"ranks do not agree on {what}",
                where=", ".join(map(self.name, others)),
                got=_short(values[others[0]], values[0]),
                expected=f"{_short(values[0], values[others[0]])}, as on rank 0",
                hint="start all ranks with the same options and the same data",
            )

    def share(self, what: str, value: object = None) -> Any:
        """Return rank 0's JSON-like value. All ranks call it; the values of the others are not read.

        Rank 0 does not wait. The others wait as long as its store answers: it may have much to do first.
        """
        if self.size == 1:
            return value
        self._met += 1
        key = f"{self._met}/shared"
        try:
            if self.rank == 0:
                self._store.set(key, json.dumps(value))
            else:
                self._store.wait([key], timedelta(seconds=_PATIENCE_S))
            return json.loads(self._store.get(key))
        except RuntimeError as error:
            raise self._absent(self._store, [key], what) from error

    def meet(self, what: str) -> None:
        """Return when all ranks have called it."""
        self.gather(what)

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Tell for each flag whether it is true on any rank: one all-reduce of a few bytes. All ranks call it."""
        if self.size == 1:
            return flags
        told = torch.tensor(flags, dtype=torch.int32)
        with self.together("what any rank says"):
            dist.all_reduce(told, dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in told)

    def try_sum(self) -> None:
        """Add something up with all ranks, as a look whether they reach each other. All ranks call it."""
        with self.together("the sum of check"):
            self.sum(torch.ones(1, device=self.device)).cpu()

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all ranks in place, and return it. All ranks call it."""
        if self.size > 1:
            with self.together("a sum"):
                dist.all_reduce(tensor)
        return tensor

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """Turn a failed collective inside (FSDP's too) into an InternalError that names the ranks that did not come.

        Of one inside another, the outer says what was done.
        """
        before, self._doing = self._doing, self._doing or what
        try:
            yield
        except RuntimeError as error:
            # gloo has no class of its own: its errors have the path of its source.
            if self.size == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            keys = [f"lost/{rank}" for rank in range(self.size)]
            with suppress(RuntimeError):
                self._store.set(keys[self.rank], "")
                self._store.wait(keys, timedelta(seconds=min(self.limit_s, _ANSWER_S)))
            raise self._absent(self._store, keys, self._doing, str(error)) from error
        finally:
            self._doing = before

    def name(self, rank: int) -> str:
        """Name a rank for messages: with its machine and process."""
        return self._names[rank] if self._names else f"rank {rank}"

    def close(self) -> None:
        """End the process group. Rank 0, whose store the others may still read, waits for them for a moment."""
        if self.size > 1:
            keys = [f"closed/{rank}" for rank in range(self.size)]
            with suppress(RuntimeError):
                self._store.set(keys[self.rank], "")
                if self.rank == 0:
                    self._store.wait(keys, timedelta(seconds=min(self.limit_s, _ANSWER_S)))
        if dist.is_initialized():
            dist.destroy_process_group()

    def _absent(self, store: Any, keys: list[str], what: str, got: str = "") -> InternalError:
        hint = "see the log of the named ranks; the same command goes on from the last checkpoint"
        try:
            absent = [rank for rank, key in enumerate(keys) if not store.check([key])]
        except RuntimeError:
            return InternalError("the store of the run is gone", where=what, got=f"{self.name(0)} has ended", hint=hint)
        if not absent:
            return InternalError("ranks do not reach each other", where=what, got=got or "no answer in time", hint=hint)
        return InternalError(
            "ranks did not come",
            where=what,
            got=f"no answer of {', '.join(map(self.name, absent))} (of {self.size} ranks)",
            hint=hint,
        )


def _short(value: object, other: object) -> str:
    """Shorten a value for a message; of dicts, what differs."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {key: item for key, item in value.items() if key not in other or item != other[key]}
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else text[:300] + "…"


def count_devices() -> int:
    """Count the GPUs of this machine."""
    return int(torch.cuda.device_count())


def describe_gpu(device: torch.device) -> tuple[str, int]:
    """Return the name of a GPU, and bytes of its memory."""
    result = torch.cuda.get_device_properties(device)
    return str(result.name), int(result.total_memory)


def start(device: str = "auto", limit_s: float = LIMIT_S) -> Ranks:
    """Join the processes that torchrun started; without its environment this is the only process.

    Args:
        device: cpu, cuda (the process's own: that of its LOCAL_RANK), or auto.
        limit_s: how long ranks wait for each other.

    Raises:
        UsageError: there is no such device.
        InternalError: a rank did not come in time; it is named.
    """
    environment = os.environ
    size, rank = int(environment.get("WORLD_SIZE", "1")), int(environment.get("RANK", "0"))
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    place = choose_device(device, local_rank)
    ranks = Ranks(rank, size, place, limit_s, int(environment.get("LOCAL_WORLD_SIZE", size)))
    if size == 1:
        return ranks
    limit = timedelta(seconds=limit_s)
    host, port = environment.get("MASTER_ADDR", "127.0.0.1"), int(environment.get("MASTER_PORT", "29500"))
    # torchrun has a store already, which outlives a rank 0 that is killed.
    serves = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(host, port, None, serves, limit, wait_for_workers=False)
    except RuntimeError as error:
        raise InternalError(
            "the store of the run does not answer",
            where=f"rank {rank}",
            got=f"nothing from {host}:{port} in {limit_s:g} s",
            hint="rank 0 serves it: see its log; check MASTER_ADDR and MASTER_PORT",
        ) from error
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    ranks._store = dist.PrefixStore(f"pairmill/{attempt}", store)
    me = f"rank {rank} ({socket.gethostname()}, process {os.getpid()})"
    ranks._names = list(map(str, ranks.gather("the start", me)))
    # Small tensors of the CPU go by gloo, whose time limit is ours; gradients and weights of GPUs by NCCL.
    backend = "gloo" if place.type == "cpu" else "cpu:gloo,cuda:nccl"
    with ranks.together("the start"):
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("group", ranks._store),
            rank=rank,
            world_size=size,
            timeout=limit,
            device_id=None if place.type == "cpu" else place,
        )
    return ranks


def shard(net: nn.Module, ranks: Ranks, precision: torch.dtype) -> nn.Module:
    """Cut a net over the ranks, on their devices; return the same net.

    Each block of ``net.blocks()`` is a unit of FSDP2, and so is the rest. Weights are float32, and rank r has rows
    r·⌈n/ranks⌉ and up of each tensor. Forward and backward compute in ``precision``, on whole weights that are gathered
    once a step: recurrent nets call a block many times. Gradients are float32.

    A net on the meta device has memory afterwards, and no values: ``initialise`` or a checkpoint gives them. A single
    process that computes in float32 gets the net as it is.
    """
    if ranks.size > 1 or precision != torch.float32:
        _group_of_one(ranks)
        mesh = init_device_mesh(ranks.device.type, (ranks.size,))
        policy = MixedPrecisionPolicy(
            param_dtype=precision if precision != torch.float32 else None,
            reduce_dtype=torch.float32,
            # Tables of angles stay float32.
            cast_forward_inputs=False,
        )
        for unit in (*net.blocks(), net):
            fully_shard(unit, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
            # The step divides by the labelled tokens of all ranks: here gradients are only added up.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        net.set_manual_backward_finalization(True)
        _gathered(net, stays=True)
    if any(item.is_meta for item in (*net.parameters(), *net.buffers())):
        return net.to_empty(device=ranks.device)
    return net.to(ranks.device)


def _group_of_one(ranks: Ranks) -> None:
    """FSDP2 keeps float32 weights and computes in bfloat16 on one process too; it needs a group for that."""
    if ranks.size == 1 and not dist.is_initialized():
        backend = "gloo" if ranks.device.type == "cpu" else "nccl"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def _gathered(net: Any, *, stays: bool) -> None:
    net.set_requires_gradient_sync(not stays)
    net.set_reshard_after_backward(not stays)


def reduce(net: nn.Module) -> None:
    """Add up the gradients of all ranks, once a step: after the backward pass of its last micro-batch.

    By default FSDP2 does it at each call of a block, and gathers the weights for each again: in hrm with b = 5 two or
    three times a block.
    """
    if isinstance(net, FSDPModule):
        _gathered(net, stays=False)
        net.finalize_backward()
        _gathered(net, stays=True)


def reshard(net: nn.Module) -> None:
    """Forget the gathered weights. To be called where weights change without a step (EMA) after a forward pass."""
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def parameters(net: nn.Module) -> dict[str, Tensor]:
    """Return parameters by name, as the optimizer holds them: sharded, also right after a forward pass."""
    reshard(net)
    return dict(net.named_parameters())


def local(tensor: Tensor) -> tuple[Tensor, int]:
    """Return this rank's rows of a tensor (a view of dimension 0; of a plain one all), and the number of the first."""
    if not isinstance(tensor, DTensor):
        return tensor.detach(), 0
    mesh = tensor.device_mesh
    rows = -(-tensor.shape[0] // mesh.size())
    return tensor.detach().to_local(), min(tensor.shape[0], rows * mesh.get_local_rank())


def whole(tensors: Mapping[str, Tensor], ranks: Ranks) -> Iterator[tuple[str, Tensor]]:
    """Yield whole tensors on the CPU, one at a time, in order; on ranks but 0 empty ones. All ranks call it."""
    for name, tensor in tensors.items():
        full = tensor.detach()
        if isinstance(full, DTensor):
            with ranks.together(f"gathering {name}"):
                full = full.full_tensor()
        yield name, full.cpu() if ranks.rank == 0 else torch.empty(0, dtype=full.dtype)
