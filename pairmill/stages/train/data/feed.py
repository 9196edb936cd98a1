"""Batches of one rank on its device, from a position to the end of the run."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pairmill.errors import InputError, InternalError
from pairmill.loader import Batch, Loader
from pairmill.loader.batch import DATASET_IDX
from pairmill.loader.torch import pinned
from pairmill.loader.window_plan import WindowPlan
from pairmill.nets.batch import GlobalBatch, Microbatch, make_microbatch
from pairmill.stages.train.data.inputs import Inputs
from pairmill.stages.train.data.steps import check, epochs_of, is_over, total_steps
from pairmill.training.settings import TrainSettings


class Feed:
    """Batches of one rank, from a position to the end that the settings ask for.

    With k parts (``batch.accumulate``) a rank reads what k of ``ranks * k`` ranks would read, and one optimizer step is
    one global batch. Of windows it divides its own batch. Of a batch with fewer rows than parts, a part has none.

    Args:
        rank: from 0.
        device: where batches go; to a GPU from pinned memory.

    Raises:
        UsageError: the ranks cannot share a batch.
        InputError: the data do not suit the ranks.
    """

    def __init__(self, inputs: Inputs, settings: TrainSettings, rank: int, ranks: int, device: torch.device) -> None:
        self._inputs, self._settings, self._ranks, self._device = inputs, settings, ranks, device
        self._epochs = epochs_of(inputs, settings)
        parts = settings.batch.accumulate
        # A stream is read once by a rank, however many parts there are.
        self._divided, parts = (parts, 1) if isinstance(inputs.plan, WindowPlan) else (1, parts)
        check(inputs, settings, ranks)
        self._loaders = [
            Loader(
                inputs.plan,
                batch_tokens=settings.batch.tokens,
                rank=rank * parts + part,
                ranks=ranks * parts,
                prefetch=settings.data.prefetch,
                allocate=pinned if device.type == "cuda" else bytearray,
            )
            for part in range(parts)
        ]

    def total_steps(self) -> int:
        """Count the steps of a run that begins with these ranks (:func:`total_steps`)."""
        return total_steps(self._inputs, self._settings, self._ranks)

    def batches(self) -> Iterator[GlobalBatch]:
        """Yield the batches from here to the end of the run: of the epochs, steps or tokens that are asked for.

        Raises:
            PairmillError: at the batch that cannot be made.
        """
        first = self._loaders[0]
        while not self._is_over():
            before = first.position
            epochs = [loader.epoch() for loader in self._loaders]
            while True:
                parts = [next(epoch, None) for epoch in epochs]
                if parts[0] is None:
                    break
                yield self._global(parts)
                if self._is_over():
                    return
            if first.position == before:  # not even the end of an epoch was left
                return

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position after the batch that was handed out last; the same on all ranks."""
        return self._loaders[0].state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue there, with any number of ranks and parts; :meth:`batches` has to be called again.

        Raises:
            InputError: it was saved with other data.
        """
        for loader in self._loaders:
            loader.load_state_dict(state)

    @property
    def left(self) -> dict[str, int]:
        """Rows that no rank got, by source and epoch, of the epochs that ended here."""
        return {f"{source} {epoch}": rows for (source, epoch), rows in self._loaders[0].left.items()}

    def close(self) -> None:
        """End the threads."""
        for loader in self._loaders:
            loader.close()

    def _is_over(self) -> bool:
        return is_over(self._inputs, self._settings, self._epochs, self._loaders[0].position)

    def _global(self, parts: list[Batch | None]) -> GlobalBatch:
        first = parts[0]
        assert first is not None
        phase = self._inputs.plan.phases[first.phase]
        return GlobalBatch(
            micro=tuple(micro for part in parts for micro in self._micro(part)),
            step=first.step,
            phase=phase.name or str(first.phase),
            epoch=first.epoch,
            lr_scale=first.lr_scale,
            rows=first.global_rows,
            tokens=first.global_tokens,
            slots=self._settings.batch.tokens,
        )

    def _micro(self, part: Batch | None) -> Iterator[Microbatch]:
        if part is None:
            raise InternalError("the parts of a step are not of one length", where="loader")
        highest = int(part.arrays["input_ids" if DATASET_IDX in part.arrays else "inputs"].max())
        if highest >= self._inputs.vocab_size:  # without this an index error, on a GPU one that names nothing
            raise InputError(
                "an id is not in the vocabulary",
                where=f"step {part.step + 1}",
                got=str(highest),
                expected=f"below {self._inputs.vocab_size:,}",
                hint="give the tokenizer of the data, or set data.vocab_size",
            )
        sources = part.rows[:, 0] if self._inputs.rows is None else self._inputs.rows.find(part.rows)
        size = len(sources) // self._divided
        for low in (number * size for number in range(self._divided)):
            divided = (
                {name: item[low : low + size] for name, item in part.items()} if self._divided > 1 else part.arrays
            )
            yield make_microbatch(divided, part.scalars, sources[low : low + size], self._device)
