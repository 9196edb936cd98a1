"""The weights that a run begins with, if they are those of an earlier one (fine-tuning). Torch is imported late."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.stages.train.trained import EMA, NAME, TOKENIZER, WEIGHTS, Trained

if TYPE_CHECKING:
    from torch import Tensor

    from pairmill.stages.train.config import Take
    from pairmill.stages.train.data import Inputs
    from pairmill.stages.train.nets import Net
    from pairmill.stages.train.optimizers import Optimizer
    from pairmill.stages.train.parallel import Ranks
    from pairmill.stages.train.settings import TrainSettings

RECORD: Final = "_RECORD.json"
_OPTION: Final = "weights_from"
_SHAPES: Final = (
    "net",
    "layers",
    "width",
    "heads",
    "key_value_heads",
    "expansion",
    "feed_width",
    "half_layers",
    "H_override",
    "qk_norm",
    "tied",
)
"""Settings of the net that its tensors follow from."""


@dataclass(frozen=True)
class Start:
    """Weights of an earlier run, found and checked; no tensor is read yet.

    Attributes:
        uri: of a finished run, or of a checkpoint.
        take: ema, current or all.
        digest: hexadecimal sha256 of what is read.
        trained: what it says of itself.
        step: of a checkpoint; None = a finished run.
    """

    uri: str
    take: Take
    digest: str
    trained: Trained
    step: int | None = None

    @classmethod
    def find(cls, given: str, take: Take) -> Start:
        """A finished run, a checkpoint, or the newest checkpoint of the folder of a run.

        Raises:
            InputError: it is none of these, or unfinished.
            UsageError: it does not have what ``take`` says.
        """
        uri = storage.normalise(given, _OPTION)
        store = storage.store_for(uri)
        if store.exists(storage.join(uri, NAME)):
            return _finished(uri, take)
        for folder in (uri, *_checkpoints(storage.join(uri, "checkpoints")), *_checkpoints(uri)):
            record = storage.join(folder, RECORD)
            if re.fullmatch("[0-9]{8}", storage.name_of(folder)) and store.exists(record):
                data = store.read(record)
                trained = Trained.of(_says(data, record).get("trained"), record)
                if take == "ema" and trained.ema is None:
                    raise _no_average(uri)
                return cls(folder, take, hashlib.sha256(data).hexdigest(), trained, int(storage.name_of(folder)))
        raise InputError(
            "neither a finished run nor a checkpoint",
            where=f"{_OPTION}={uri}",
            expected="the folder that train printed, or a folder of checkpoints",
        )

    def check(self, settings: TrainSettings, inputs: Inputs) -> None:
        """Raise UsageError if the net of these settings has other tensors, InputError if data have other tokens."""
        theirs, mine = self.trained.net, settings.model
        for name in _SHAPES:
            if getattr(theirs, name) != getattr(mine, name):
                raise UsageError(
                    "another net than that of weights_from",
                    where=f"model.{name}",
                    got=str(getattr(mine, name)),
                    expected=str(getattr(theirs, name)),
                )
        tokenizer = storage.join(self.uri, TOKENIZER)
        known = inputs.tokenizer is not None and storage.store_for(tokenizer).exists(tokenizer)
        differs = known and storage.store_for(tokenizer).read(tokenizer) != inputs.tokenizer
        if differs or self.trained.vocab_size != inputs.vocab_size:
            raise InputError(
                "the data have another tokenizer than weights_from",
                where=f"{_OPTION}={self.uri}",
                got=f"a vocabulary of {self.trained.vocab_size:,}, and of {inputs.vocab_size:,} in the data",
                expected="one tokenizer",
                hint="tokenize the data with the tokenizer.json of that run",
            )

    def weights(self, net: Net, ranks: Ranks) -> None:
        """Put the weights into a net, whole or sharded. All ranks call it."""
        from pairmill.stages.train import parallel
        from pairmill.stages.train.checkpoint import Checkpoints

        parameters, buffers = parallel.parameters(net), dict(net.named_buffers())
        if self.step is None:
            averaged = self.take == "ema"
            self._read(WEIGHTS, buffers if averaged else parameters | buffers)
            if averaged:
                self._read(EMA, parameters)
            return
        checkpoints = Checkpoints(self.uri.rpartition("/")[0], ranks)
        found = checkpoints.newest(before=self.step + 1)
        if found is None or found.step != self.step:
            raise InputError("a checkpoint is damaged", where=f"{_OPTION}={self.uri}", hint="take an earlier one")
        name = "optimizer.{}.param_ema" if self.take == "ema" else "model.{}"
        wanted = {name.format(one): tensor for one, tensor in parameters.items()}
        checkpoints.load(found, wanted | {f"model.{one}": tensor for one, tensor in buffers.items()})

    def state(self, net: Net, optimizer: Optimizer, ranks: Ranks) -> None:
        """Put the optimizer's state into it too, if ``take`` is all. All ranks call it."""
        from pairmill.stages.train.checkpoint import Checkpoints, restore

        if self.take == "all" and self.step is not None:
            checkpoints = Checkpoints(self.uri.rpartition("/")[0], ranks)
            found = checkpoints.newest(before=self.step + 1)
            assert found is not None
            restore(checkpoints, found, net, optimizer)

    def _read(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors, each with its rows of the file."""
        import torch
        from safetensors import safe_open

        from pairmill.stages.train import parallel

        with _local(storage.join(self.uri, name)) as path, safe_open(path, "pt") as file, torch.no_grad():
            for key, tensor in tensors.items():
                mine, first = parallel.local(tensor)
                rows = file.get_slice(key)
                mine.copy_(rows[first : first + len(mine)] if mine.ndim else file.get_tensor(key))


def _finished(uri: str, take: Take) -> Start:
    manifests.refuse_unfinished(uri)
    store = storage.store_for(uri)
    if take == "all":
        raise UsageError(
            "a finished run has no optimizer's state",
            where="weights",
            got=take,
            expected="ema or current",
            hint="give weights_from= one of its checkpoints",
        )
    if take == "ema" and not store.exists(storage.join(uri, EMA)):
        raise _no_average(uri)
    trained = Trained.load(store.read(storage.join(uri, NAME)), storage.join(uri, NAME))
    manifest = manifests.read(uri)
    known = {file.path: file.sha256 for file in manifest.files} if manifest is not None else {}
    names = [WEIGHTS, EMA] if take == "ema" else [WEIGHTS]
    digests = [known.get(name) or store.digest(storage.join(uri, name)) for name in names]
    return Start(uri, take, hashlib.sha256(" ".join(digests).encode()).hexdigest(), trained)


def _no_average(uri: str) -> UsageError:
    return UsageError("the run has no average of weights", where="weights", got=f"ema, of {uri}", expected="current")


def _checkpoints(uri: str) -> list[str]:
    """Folders below one, the newest first."""
    return [storage.join(uri, name) for name in sorted(storage.store_for(uri).folders(uri), reverse=True)]


def _says(data: bytes, where: str) -> Mapping[str, object]:
    try:
        found = json.loads(data)["says"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("not the record of a checkpoint", where=where, got=str(error)) from error
    return found if isinstance(found, dict) else {}


@contextmanager
def _local(uri: str) -> Iterator[Path]:
    store = storage.store_for(uri)
    with ExitStack() as stack:
        path = store.file(uri)
        if path is None:
            path = Path(stack.enter_context(TemporaryDirectory()), "file")
            with store.open(uri) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 16 << 20)
        yield path
