"""Checkpoints of a run, saved by all ranks and found by all (:mod:`pairmill.nets.checkpoint` reads one).

Each rank writes its own rows of every tensor into ``part-<rank>of<ranks>.safetensors``, and rank 0 the record, last.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from pairmill import errors, log, storage
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.errors import InputError, InternalError, PairmillError, StorageError
from pairmill.nets import tensor_file
from pairmill.nets.checkpoint import FIRST, Checkpoint, digest_record, read_record
from pairmill.nets.net import Net
from pairmill.nets.tensor_file import Kind
from pairmill.nets.trained import RECORD, STEP
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.parallel import Ranks
from pairmill.training.optimizers.optimizer import Optimizer

_SMALL: Final = 1 << 20
"""Bytes that a checkpoint takes beside its tensors, at most."""


class Checkpoints:
    """The checkpoints below one folder, local or in an object store. All ranks call every method together.

    Args:
        folder: URI.
        ranks: of the run.
        keep: how many are kept.
        asynchronous: tensors are copied, and written while the run goes on.
    """

    def __init__(self, folder: str, ranks: Ranks, *, keep: int = 3, asynchronous: bool = True) -> None:
        self._folder, self._ranks, self._keep, self._asynchronous = folder, ranks, keep, asynchronous
        self._copies: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # Saving

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        says: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Save a step: sharded and plain tensors by name, what the run says, and small files (``tokenizer.json``).

        It returns when the tensors are copied, if ``asynchronous``; the save before it is waited for first. When the
        new one is complete, all but the newest ``keep`` are deleted, and those of later steps, which a run that went
        back has left. States of the random numbers are saved too.

        Raises:
            StorageError: of this save or the one before: no space (with bytes needed and free), no permission.
        """
        self.wait()
        self._ranks.saves += 1
        uri = self._uri(step)
        if self._ranks.rank == 0:
            # A record is never overwritten: without it the folder is not a checkpoint until the new one is whole.
            storage.store_for(uri).delete(storage.join(uri, RECORD))
        kinds = {name: Kind.from_tensor(tensor) for name, tensor in tensors.items()}
        mine, firsts = self._mine(tensors)
        if self._asynchronous:
            mine = self._copied(mine)
        small, key = dict(files or {}), f"saved/{self._ranks.saves}"
        prune = partial(self._prune, step)
        written = _Saving(
            ranks=self._ranks,
            key=key,
            uri=uri,
            tensors=mine,
            firsts=firsts,
            kinds=kinds,
            says=_copy_of(says),
            small=small,
            prune=prune,
        )
        if not self._asynchronous:
            written.run(self._ranks.store() if self._ranks.size > 1 else None)
            return
        # A daemon: a process that ends by an error does not wait for the ranks that are gone.
        self._thread = threading.Thread(target=self._run, args=(written,), name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> bool:
        """Whether a save in the background failed on this rank. Give it to ``ranks.any`` at each step, then wait()."""
        return self._error is not None

    def wait(self) -> None:
        """Wait for the save under way, and raise its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, written: _Saving) -> None:
        try:
            written.run(self._ranks.store() if self._ranks.size > 1 else None)
        except BaseException as error:
            self._error = error

    def _mine(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Return what this rank writes: its rows of sharded tensors, and their first rows; rank 0 all plain ones."""
        mine, firsts = {}, {}
        for name, tensor in tensors.items():
            rows, first = parallel.local(tensor)
            if isinstance(tensor, DTensor):
                firsts[name] = first
            elif self._ranks.rank:
                continue
            mine[name] = rows
        return mine | _random_states(self._ranks), firsts

    def _copied(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors to the CPU, in the memory of the save before."""
        copies = {}
        for name, tensor in tensors.items():
            old = self._copies.get(name)
            if old is None or Kind.from_tensor(old) != Kind.from_tensor(tensor):
                old = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            copies[name] = old.copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize(self._ranks.device)
        self._copies = copies
        return copies

    # Finding

    def newest(self, *, before: int | None = None, verify: bool | None = None) -> Checkpoint | None:
        """Find the newest complete checkpoint (of a step smaller than ``before``), or None.

        Sizes of all files are compared, and with ``verify`` their digests; the ranks share that work. By default local
        files are verified: an object store vouches for its objects. A broken one is logged as a warning, and the one
        before it is taken.
        """
        self.wait()
        if verify is None:
            verify = storage.scheme(self._folder) == "file"
        steps = self._ranks.share("the checkpoints", self._steps() if self._ranks.rank == 0 else None)
        for step in reversed(steps):
            if before is None or step < before:
                uri = self._uri(step)
                data, wrong = self._ranks.share(f"step {step}", read_record(uri) if self._ranks.rank == 0 else None)
                if data is not None:
                    checkpoint = Checkpoint.from_record(uri, json.loads(data))
                    wrong = self._damage(checkpoint, verify)
                    if not wrong:
                        return checkpoint
                if self._ranks.rank == 0 and wrong:
                    log.event(
                        f"train: the checkpoint of step {step:,} is not used: {wrong} ({uri}); the one before is",
                        level=logging.WARNING,
                        uri=uri,
                    )
        return None

    def _steps(self) -> list[int]:
        names = storage.store_for(self._folder).folders(self._folder)
        return sorted(int(name) for name in names if STEP.fullmatch(name))

    def _damage(self, checkpoint: Checkpoint, verify: bool) -> str:
        """Say what is wrong with a checkpoint's files. Each rank looks at some of them."""
        mine = checkpoint.files[self._ranks.rank :: self._ranks.size]
        wrong = manifests.find_damage(checkpoint.folder, mine, verify=verify)
        return "; ".join(text for texts in self._ranks.gather("damage", wrong) for text in texts)

    def load_random_states(self, checkpoint: Checkpoint) -> None:
        """Put back the states of this rank's random numbers, if a rank of this number saved them."""
        name = f"part-{self._ranks.rank}of"
        for path in checkpoint.parts:
            if path.startswith(name):
                with checkpoint.open_part(path) as reader:
                    for key, put in _RANDOM.items():
                        if key in reader.kinds and (key == "rng.cpu" or self._ranks.device.type == "cuda"):
                            put(reader.rows(key))

    # Deleting

    def _prune(self, step: int) -> None:
        """Delete what the run at this step needs no more. A failure is only a warning: nothing is lost by it."""
        try:
            complete = [item for item in self._steps() if item <= step and read_record(self._uri(item))[0] is not None]
            for item in sorted(set(self._steps()) - set(complete[-self._keep :])):
                self._delete(item)
        except PairmillError as error:
            log.event(f"train: older checkpoints are not deleted: {error}", level=logging.WARNING)

    def _delete(self, step: int) -> None:
        uri = self._uri(step)
        # The record first: a folder of which some files are deleted is never taken for a checkpoint.
        storage.store_for(uri).delete(storage.join(uri, RECORD))
        storage.clear(uri)

    def _uri(self, step: int) -> str:
        return storage.join(self._folder, f"{step:08}")


@dataclass(kw_only=True)
class _Saving:
    """One checkpoint being written by this rank; perhaps in a thread, so it calls no collective."""

    ranks: Ranks
    key: str
    uri: str
    tensors: Mapping[str, Tensor]
    firsts: Mapping[str, int]
    kinds: Mapping[str, Kind]
    says: Mapping[str, Any]
    small: Mapping[str, bytes]
    prune: Callable[[], None]

    def run(self, store: Any) -> None:
        """Write this rank's files; when all ranks have, rank 0 writes the record, and all return."""
        mine: list[File] = []
        error: PairmillError | None = None
        try:
            mine = self._write()
        except PairmillError as caught:
            error = caught
        except Exception as caught:
            error = InternalError(f"unexpected {type(caught).__name__}: {caught}", where=self.uri)
            error.__cause__ = caught
        if self.ranks.size == 1:
            if error:
                raise error
            self._commit(mine)
            self.prune()
            return
        self._together(store, mine, error)

    def _together(self, store: Any, mine: list[File], error: PairmillError | None) -> None:
        files: list[File] = []
        mine_json = [None if error is None else _error_to_json(error), [file.to_json() for file in mine]]
        what = f"saving {self.uri}"
        for data in self.ranks.exchange(store, self.key, what, mine_json):
            theirs, written = json.loads(data)
            if theirs and error is None:
                error = _error_from_json(theirs)
            files += [File.from_json(file) for file in written]
        if error is None and self.ranks.rank == 0:
            try:
                self._commit(files)
                # Before the others go on: the folder of their next step would be deleted with those of later steps.
                self.prune()
            except PairmillError as caught:
                error = caught
        # Nobody goes on before the record is there, or everybody knows why it is not.
        mine_json = [None if error is None else _error_to_json(error), []]
        first = json.loads(self.ranks.exchange(store, f"{self.key}/end", what, mine_json)[0])[0]
        if error or first:
            raise error or _error_from_json(first)

    def _write(self) -> list[File]:
        part = f"part-{self.ranks.rank}of{self.ranks.size}.safetensors"
        needed = sum(Kind.from_tensor(tensor).size for tensor in self.tensors.values()) + _SMALL
        self._require_space(needed)
        files = []
        kinds = {name: Kind.from_tensor(tensor) for name, tensor in self.tensors.items()}
        metadata = {"format": "pt", FIRST: json.dumps(self.firsts)}
        uri = storage.join(self.uri, part)
        try:
            with storage.store_for(uri).create(uri, final=True) as path:
                with path.open("wb") as file:
                    digest = tensor_file.write(file, kinds, self.tensors.items(), metadata)
                files.append(File(part, path.stat().st_size, digest))
            for name, data in self.small.items() if self.ranks.rank == 0 else ():
                uri = storage.join(self.uri, name)
                storage.store_for(uri).write(uri, data)
                files.append(File(name, len(data), digest_bytes(data)))
        except OSError as error:
            if error.errno in errors.SPACE:
                raise self._no_space(needed) from error
            raise errors.from_os_error(error, uri) from error
        return files

    def _commit(self, files: Iterable[File]) -> None:
        raw = {
            "files": [file.to_json() for file in files],
            "tensors": {name: kind.to_json() for name, kind in self.kinds.items()},
            "says": self.says,
        }
        uri = storage.join(self.uri, RECORD)
        storage.store_for(uri).commit(uri, manifests.canonical({**raw, "digest": digest_record(raw)}))

    def _require_space(self, needed: int) -> None:
        if storage.scheme(self.uri) == "file" and self._free() < needed * self.ranks.on_machine:
            raise self._no_space(needed)

    def _free(self) -> int:
        folder = storage.local_path(self.uri)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _no_space(self, needed: int) -> StorageError:
        got = f"{self._free():,} bytes free" if storage.scheme(self.uri) == "file" else ""
        return StorageError(
            "no space for a checkpoint",
            where=self.uri,
            got=got,
            expected=f"{needed * self.ranks.on_machine:,} bytes",
            hint="earlier checkpoints are complete; free space or lower checkpoints.keep, then run the same command",
        )


def state_of(net: Net, optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what a checkpoint has of a net and its optimizer: tensors by name, and numbers for ``says["optimizer"]``.

    Names: ``model.<name>`` of parameters and buffers, ``optimizer.<name>.<state>``.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in parallel.parameters(net).items()}
    tensors |= {f"model.{name}": tensor for name, tensor in net.named_buffers()}
    for name, state in optimizer.state.items():
        tensors |= {f"optimizer.{name}.{key}": tensor for key, tensor in state.items()}
    return tensors, optimizer.numbers()


def restore(checkpoints: Checkpoints, checkpoint: Checkpoint, net: Net, optimizer: Optimizer) -> None:
    """Put what ``state_of`` gave back, and the random numbers. All ranks call it."""
    checkpoint.load(state_of(net, optimizer)[0], parallel.local)
    optimizer.set_numbers(checkpoint.says["optimizer"])
    checkpoints.load_random_states(checkpoint)


def _random_states(ranks: Ranks) -> dict[str, Tensor]:
    states = {"rng.cpu": torch.get_rng_state()}
    if ranks.device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(ranks.device)
    return states


_RANDOM: Final[Mapping[str, Callable[[Tensor], None]]] = {
    "rng.cpu": lambda state: torch.set_rng_state(state),
    "rng.cuda": lambda state: torch.cuda.set_rng_state(state),
}


def _copy_of(says: Mapping[str, Any]) -> Any:
    """Copy it as it will be read: the run may change its own while it is written, and JSON makes lists of tuples."""
    return json.loads(json.dumps(says))


def _error_to_json(error: PairmillError) -> list[Any]:
    """Return an error as JSON-like values, for the other ranks."""
    kind = type(error) if type(error) in (StorageError, InputError) else InternalError
    return [kind.__name__, error.what, error.where, error.got, error.expected, error.hint]


def _error_from_json(raw: list[Any]) -> PairmillError:
    kind, what, where, got, expected, hint = raw
    made: PairmillError = getattr(errors, kind)(what, where=where, got=got, expected=expected, hint=hint)
    return made
