"""Puts the weights of an earlier run into a net, whole or sharded."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from torch import Tensor

from pairmill import storage
from pairmill.errors import InputError
from pairmill.nets.checkpoint import Checkpoint
from pairmill.nets.net import Net
from pairmill.nets.trained import EMA, WEIGHTS
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.checkpoint import Checkpoints, restore
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.start import OPTION, Start
from pairmill.training.optimizers.optimizer import Optimizer


def load_weights(start: Start, net: Net, ranks: Ranks) -> None:
    """Put the weights into a net. All ranks call it."""
    parameters, buffers = parallel.parameters(net), dict(net.named_buffers())
    if start.step is None:
        averaged = start.take == "ema"
        _read(storage.join(start.uri, WEIGHTS), buffers if averaged else parameters | buffers)
        if averaged:
            _read(storage.join(start.uri, EMA), parameters)
        return
    name = "optimizer.{}.param_ema" if start.take == "ema" else "model.{}"
    wanted = {name.format(key): tensor for key, tensor in parameters.items()}
    wanted |= {f"model.{key}": tensor for key, tensor in buffers.items()}
    _find(start, Checkpoints(start.uri.rpartition("/")[0], ranks)).load(wanted, parallel.local)


def load_optimizer(start: Start, net: Net, optimizer: Optimizer, ranks: Ranks) -> None:
    """Put the optimizer's state into it too, if ``start.take`` is all. All ranks call it."""
    if start.take == "all" and start.step is not None:
        checkpoints = Checkpoints(start.uri.rpartition("/")[0], ranks)
        restore(checkpoints, _find(start, checkpoints), net, optimizer)


def _find(start: Start, checkpoints: Checkpoints) -> Checkpoint:
    assert start.step is not None
    result = checkpoints.newest(before=start.step + 1)
    if result is None or result.step != start.step:
        raise InputError("a checkpoint is damaged", where=f"{OPTION}={start.uri}", hint="take an earlier one")
    return result


def _read(uri: str, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, each with its rows of the file."""
    with _local_file(uri) as path, safe_open(path, "pt") as file, torch.no_grad():
        for key, tensor in tensors.items():
            mine, first = parallel.local(tensor)
            rows = file.get_slice(key)
            mine.copy_(rows[first : first + len(mine)] if mine.ndim else file.get_tensor(key))


@contextmanager
def _local_file(uri: str) -> Iterator[Path]:
    store = storage.store_for(uri)
    with ExitStack() as stack:
        path = store.file(uri)
        if path is None:
            path = Path(stack.enter_context(TemporaryDirectory()), "file")
            with store.open(uri) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 16 << 20)
        yield path
