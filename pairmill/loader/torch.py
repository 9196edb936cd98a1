"""Batches as torch tensors, without a copy; for a training loop, torch's DataLoader and torchdata's StatefulDataLoader.

torch is not a dependency of pairmill: only this module imports it.
"""

import dataclasses
import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, UsageError
from pairmill.loader.batch import Batch
from pairmill.loader.folder import Metadata
from pairmill.loader.loader import Loader
from pairmill.loader.row_plan import RowPlan

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError(
        "pairmill.loader.torch needs torch, which pairmill does not install: pip install torch"
    ) from error

Tensors = dict[str, torch.Tensor]


def pinned(size: int) -> NDArray[np.uint8]:
    """Memory that a GPU reads directly: ``Loader(…, allocate=pinned)``.

    Torch allocates it and tracks the copies from it: after ``tensor.to("cuda", non_blocking=True)`` the tensor need not
    be kept. Without a GPU it is ordinary memory, with a warning, as in torch's DataLoader.

    Raises:
        UsageError: this is a worker process of a DataLoader, which cannot pass on pinned memory.
    """
    if get_worker_info() is not None:
        raise UsageError(
            "not available in a worker process",
            where="allocate=pinned",
            hint="use num_workers=0, as the loader's own threads work ahead; or the DataLoader's pin_memory=True",
        )
    if not torch.cuda.is_available():
        warnings.warn("allocate=pinned: torch found no GPU, memory is not pinned", stacklevel=2)
    return _torch_memory(size, pin=torch.cuda.is_available())


def _torch_memory(size: int, *, pin: bool) -> NDArray[np.uint8]:
    memory: NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8, pin_memory=pin).numpy()
    return memory


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return an array of a batch as a tensor in the same memory, which is not reused while the tensor or a view
    exists."""
    made = torch.from_numpy(array)
    memory = _owner(array)
    if memory is None:
        return made
    # torch tracks copies in the storage that it allocated. from_numpy's is another storage: with it, memory would be
    # written again while a GPU reads it.
    offset = (made.data_ptr() - memory.data_ptr()) // made.element_size()
    return torch.empty(0, dtype=made.dtype).set_(memory.untyped_storage(), offset, made.shape, made.stride())


def _owner(array: Any) -> torch.Tensor | None:
    """Return the tensor that owns an array's memory."""
    while array is not None and not isinstance(array, torch.Tensor):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def tensors(batch: Batch) -> Tensors:
    """Return a batch's arrays as tensors, without a copy."""
    return {name: tensor(array) for name, array in batch.items()}


class BatchDataset(IterableDataset):
    """A loader as a data set of torch: dictionaries of tensors.

    The first iteration is the rest of the epoch, each later one the next epoch. If an iteration is left midway, the
    next one continues it; in a worker, which works ahead, that is an error. Use it directly, or in
    ``DataLoader(dataset, batch_size=None)``: with ``num_workers=0`` (threads of the loader work ahead anyway), or with
    one worker and ``persistent_workers=True``.

    Args:
        loader: of this rank.

    Attributes:
        batch: the last batch that was handed out (:class:`~pairmill.loader.Batch`), without its arrays; None before the
            first one and outside the process that reads.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader
        self.batch: Batch | None = None
        # The worker process that reads (0 = none), shared with all processes forked from this one. A process that knows
        # of another one would hand out batches again, or save a wrong position.
        self._reader = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64)
        self._known = 0
        self._midway = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the epoch.

        Raises:
            UsageError: there are several workers, another process reads already, or a worker was left midway.
            PairmillError: at the batch that cannot be made; at once if everything was handed out before.
        """
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise UsageError(
                "a loader has one reader, and each worker would hand out all batches",
                where="DataLoader: num_workers",
                got=str(worker.num_workers),
                expected="0 or 1",
                hint="use more threads of the loader instead: Loader(…, threads=2)",
            )
        self._check_only_reader("cannot be read from here")
        if worker is not None:
            if self._midway and self._known == os.getpid():
                raise UsageError(
                    "was left midway, and the batches that its worker had made ahead were never handed out",
                    where=type(self).__name__,
                    hint="use num_workers=0; or load_state_dict() to continue from a known position",
                )
            self._reader[0] = self._known = os.getpid()
        self._midway = True
        before = self.loader.position
        for batch in self.loader.epoch():
            self.batch = dataclasses.replace(batch, arrays={})
            yield self.item(batch)
        self._midway = False
        # Not even the end of an epoch was left.
        if self.loader.position == before:
            raise InputError(
                "all batches were handed out",
                where="loader",
                got=f"{before.batches:,} batches of {', '.join(self.loader.plan.names)}",
                hint="train for fewer epochs, or sample more",
            )

    def item(self, batch: Batch) -> Any:
        """Return what an iteration gives for a batch."""
        return tensors(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position (:meth:`Loader.state_dict`): one small JSON object, equal on all ranks.

        Raises:
            UsageError: a worker process reads, and only it knows how far it has come.
        """
        self._check_only_reader("has no position here")
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, accept_other_data: bool = False) -> None:
        """Continue where :meth:`state_dict` was taken (:meth:`Loader.load_state_dict`)."""
        self.loader.load_state_dict(state, accept_other_data=accept_other_data)
        self._reader[0] = self._known = os.getpid() if get_worker_info() is not None else 0
        self._midway = False

    def close(self) -> None:
        """End the loader's threads."""
        self.loader.close()

    def __reduce__(self) -> Any:
        raise UsageError(
            "cannot be pickled for another process",
            where=type(self).__name__,
            hint="use num_workers=0, as the loader's own threads work ahead; or multiprocessing_context='fork'",
        )

    def _check_only_reader(self, what: str) -> None:
        reader = int(self._reader[0])
        if reader != self._known:
            raise UsageError(
                f"{what}: another process reads it or loaded a position",
                where=f"{type(self).__name__} in process {os.getpid()}",
                got=f"worker process {reader}" if reader else "a state loaded in the process that started this worker",
                hint="use num_workers=0, as the loader's own threads work ahead; or one worker with "
                "persistent_workers=True, and torchdata's StatefulDataLoader to save its position",
            )


class PrefixLMDataset(BatchDataset):
    """A loader of rows for HRM-Text's trainer: pairs (tensors, scalars).

    Tensors are :data:`~pairmill.loader.batch.PREFIXLM`, int32 [slots]; scalars :data:`~pairmill.loader.batch.SCALARS`.

    Args:
        loader: of this rank, on a :class:`~pairmill.loader.RowPlan`.
        scalars: converts each scalar for the trainer: ``int``; or ``torch.tensor``, for int64 tensors without a
            dimension.

    Raises:
        UsageError: the loader's plan is not a plan of rows.
    """

    def __init__(self, loader: Loader, *, scalars: Callable[[int], Any] = int) -> None:
        super().__init__(loader)
        if not isinstance(loader.plan, RowPlan):
            raise UsageError(
                "not a loader of rows",
                where="loader",
                got=type(loader.plan).__name__,
                expected="RowPlan",
                hint="use BatchDataset",
            )
        self._plan, self._scalars = loader.plan, scalars

    @property
    def metadata(self) -> Metadata:
        """What the model must know about the data: of the first phase's folder."""
        return self._plan.folders[self._plan.names.index(self._plan.phases[0].source)].metadata

    def item(self, batch: Batch) -> tuple[Tensors, dict[str, Any]]:
        """Tensors and scalars."""
        return tensors(batch), {name: self._scalars(value) for name, value in batch.scalars.items()}
