"""One optimizer step: forward and backward over the micro-batches of all ranks, and its numbers.

The gradient is that of the mean over all labelled tokens of the global batch, whatever the number of ranks and of
micro-batches. The head runs on labelled positions only.
"""

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pairmill.errors import InputError
from pairmill.loader.batch import IGNORED
from pairmill.nets import attention, cost
from pairmill.nets.attention import Path
from pairmill.nets.batch import GlobalBatch, Microbatch
from pairmill.nets.net import Net
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.update import StepResult
from pairmill.training.optimizers.optimizer import Optimizer, clip
from pairmill.training.schedules import Rate, count_differentiated
from pairmill.training.settings import TrainSettings

_SUMS: Final = 5


class _Loss(NamedTuple):
    """Of a micro-batch: what is differentiated, before it is divided, and sums for people, float64 [5 + 3 sources]."""

    entropy: Tensor
    normaliser: Tensor | None
    sums: Tensor
    labels: int


class Stepper:
    """Makes the steps of a run.

    Args:
        net: initialised, sharded or not.
        optimizer: of its parameters.
        total: steps of the whole run.
        ranks: all processes.
        path: of attention.
        sources: names, by number.
        vocab_size: of the net.
    """

    def __init__(
        self,
        net: Net,
        optimizer: Optimizer,
        settings: TrainSettings,
        *,
        total: int,
        ranks: Ranks,
        path: Path,
        sources: tuple[str, ...],
        vocab_size: int,
    ) -> None:
        self._net, self._optimizer, self._settings, self._total = net, optimizer, settings, total
        self._ranks, self._path, self._sources, self._vocab_size = ranks, path, sources, vocab_size
        self._rate = Rate(settings, total)
        self._causal = settings.model.causal
        # KempnerForge: the mean of the means of micro-batches, and a z-loss over all positions.
        self._mean_of_means = settings.quirk("mean_of_means")
        self._z_everywhere = settings.quirk("z_loss_everywhere")

    def step(self, number: int, batch: GlobalBatch) -> StepResult:
        """Do step ``number``, from 1. All ranks call it. If loss or gradient are not finite, no rank changes a weight.

        Raises:
            InputError: the global batch has no label.
        """
        b = count_differentiated(self._settings.model, number, self._total)
        lr = self._rate.at(number) * batch.lr_scale
        labels = self._labels(number, batch)
        sums = torch.zeros(_SUMS + 3 * len(self._sources), dtype=torch.float64, device=self._ranks.device)
        flops = 0.0
        for micro in batch.micro:
            loss = self._forward(micro, b)
            sums += loss.sums
            self._scalar(loss, labels, len(batch.micro)).backward()
            packed = micro.packed
            flops += cost.flops(self._settings.model, self._vocab_size, packed.starts, packed.prefixes, loss.labels, b)
        parallel.reduce(self._net)
        sums = self._ranks.sum(torch.cat([sums, sums.new_tensor([flops])]))
        optimizer = self._optimizer
        absent = tuple(name for name, parameter in optimizer.parameters.items() if parameter.grad is None)
        norm = float(clip(optimizer.parameters.values(), self._settings.optimizer.clip))
        totals = sums.tolist()
        # All ranks have the same sums and the same norm, so they decide alike.
        finite = math.isfinite(totals[0]) and math.isfinite(norm)
        if finite:
            optimizer.step(lr)
        optimizer.zero_grad()
        return self._result(totals, norm, lr, b, finite, absent)

    def _labels(self, number: int, batch: GlobalBatch) -> int:
        """Count the labels of the global batch."""
        mine = torch.stack([(micro.packed.labels != IGNORED).sum() for micro in batch.micro]).sum()
        labels = int(self._ranks.sum(mine))
        if not labels:
            raise InputError(
                "a global batch has no label",
                where=f"step {number}, epoch {batch.epoch}, {batch.rows} rows",
                expected="a response of at least one token",
                hint="sample with min_resp_length=2 or more, or take more tokens a batch",
            )
        return labels

    def _forward(self, micro: Microbatch, b: int | None) -> _Loss:
        packed = micro.packed
        sees = attention.sees(packed, causal=self._causal, path=self._path)
        y = self._net(packed, sees, b)
        at = packed.labelled()
        z_weight = self._settings.training.z_loss
        if z_weight and self._z_everywhere:
            logits = self._net.logits(y)
            normaliser = logits.logsumexp(-1).square().mean()
            logits = logits.index_select(0, at)
        else:
            logits = self._net.logits(y.index_select(0, at))
            normaliser = logits.logsumexp(-1).square().sum() if z_weight else None
        labels = packed.labels.index_select(0, at)
        entropies = functional.cross_entropy(logits, labels, reduction="none")
        with torch.no_grad():
            sums = self._sums(micro, at, entropies.detach().double(), logits.argmax(-1) == labels)
        return _Loss(entropies.sum(), normaliser, sums, len(at))

    def _scalar(self, loss: _Loss, labels: int, parts: int) -> Tensor:
        """Return what is differentiated. Its gradient is added up over micro-batches and ranks."""
        weight = self._settings.training.z_loss
        if self._mean_of_means:
            mean = loss.entropy / max(1, loss.labels)
            if loss.normaliser is not None:
                mean = mean + weight * loss.normaliser / (1 if self._z_everywhere else max(1, loss.labels))
            return mean / (parts * self._ranks.size)
        return (loss.entropy if loss.normaliser is None else loss.entropy + weight * loss.normaliser) / labels

    def _sums(self, micro: Microbatch, at: Tensor, entropies: Tensor, right: Tensor) -> Tensor:
        """Sum cross entropy, labels, right ones, rows that are all right, rows with a label; and three by source."""
        packed, count = micro.packed, len(self._sources)
        ends = torch.tensor(packed.starts[1:], dtype=torch.int64, device=at.device)
        row = torch.bucketize(at, ends, right=True)
        having = torch.bincount(row, minlength=packed.rows)
        wrong = torch.bincount(row[~right], minlength=packed.rows)
        totals = (
            entropies.sum(),
            entropies.new_tensor(len(at)),
            right.sum(),
            ((having > 0) & (wrong == 0)).sum(),
            (having > 0).sum(),
        )
        source = micro.sources.index_select(0, at)
        by_source = torch.zeros(count, dtype=torch.float64, device=at.device).index_add_(0, source, entropies)
        labels = torch.bincount(source, minlength=count)
        tokens = torch.bincount(micro.sources[: packed.tokens], minlength=count)
        return torch.cat(
            [torch.stack([total.double() for total in totals]), by_source, labels.double(), tokens.double()]
        )

    def _result(
        self, sums: list[float], norm: float, lr: float, b: int | None, finite: bool, absent: tuple[str, ...]
    ) -> StepResult:
        loss, labels, right, exact, rows = sums[:_SUMS]
        count = len(self._sources)
        by = [sums[_SUMS + first * count : _SUMS + (first + 1) * count] for first in range(3)]
        return StepResult(
            loss=(loss, int(labels)),
            accuracy=(int(right), int(labels)),
            exact_accuracy=(int(exact), int(rows)),
            grad_norm=norm,
            lr=lr,
            flops=sums[-1],
            b=b,
            finite=finite,
            absent=absent,
            sources={
                name: (entropy, int(mine), int(tokens))
                for name, entropy, mine, tokens in zip(self._sources, *by, strict=True)
                if tokens
            },
        )
