"""What a run is made of on this rank, how far it is, and the protocol of what is done between its steps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from pairmill.nets.attention import Path
from pairmill.nets.builder import build
from pairmill.nets.checkpoint import Checkpoint
from pairmill.nets.net import Net
from pairmill.nets.trained import DataDigests, Trained
from pairmill.stages.train.run.job import Job
from pairmill.stages.train.run.parallel import Ranks, whole
from pairmill.stages.train.run.update import Counts, Update
from pairmill.training.optimizers.optimizer import Optimizer
from pairmill.training.settings import TrainSettings


@dataclass(kw_only=True)
class RunState:
    """A run on this rank.

    Attributes:
        job: what it is asked to do.
        ranks: all processes.
        resumed: the checkpoint that it goes on from; None = it begins.
        threads: of this process.
        total: steps that the schedule of the learning rate is made for.
        steps: of the whole run.
        precision: of activations.
        path: of attention.
        beta: of the average of the weights; None = no average.
        net: sharded or not.
        optimizer: of its parameters.
        counts: what became of rows.
        step: updates so far.
        position: of the loader, after the last update.
    """

    job: Job
    ranks: Ranks
    resumed: Checkpoint | None
    threads: int
    total: int
    steps: int
    precision: torch.dtype
    path: Path
    beta: float | None
    net: Net
    optimizer: Optimizer
    counts: Counts = field(default_factory=Counts)
    step: int = 0
    position: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> TrainSettings:
        """Settings of the run."""
        return self.job.settings

    @property
    def name(self) -> str:
        """Net and size."""
        model = self.settings.model
        return model.net if model.size == "none" else f"{model.net} {model.size}"

    @property
    def parameters(self) -> int:
        """Number of trained weights."""
        return sum(parameter.numel() for parameter in self.optimizer.parameters.values())

    def describe(self, results: Mapping[str, Any] | None = None) -> Trained:
        """Describe the net as ``config.json`` does."""
        inputs, settings = self.job.inputs, self.settings
        return Trained(
            model=asdict(settings.model),
            vocab_size=inputs.vocab_size,
            positions=inputs.positions,
            tokenizer_info=dict(self.job.tokenizer_info),
            profile=settings.profile,
            ema=self.beta if self.beta is not None or not self.optimizer.averages else 0.0,
            steps=self.step,
            settings=settings.to_manifest(),
            data=DataDigests(inputs.digest, inputs.tokenizer_digest),
            results=dict(results or {}),
        )

    def gather_weights(self) -> dict[str, Tensor]:
        """Return the whole weights and buffers, on the CPU; on ranks but 0 they are empty. All ranks call it."""
        return dict(whole({**self.optimizer.parameters, **dict(self.net.named_buffers())}, self.ranks))

    def build_whole(self, weights: Mapping[str, Tensor]) -> Net:
        """Build a whole net with these weights, on the CPU, that no rank shares."""
        net = build(self.settings.model, self.job.inputs.vocab_size, self.job.inputs.positions)
        net.load_state_dict(weights)
        net.eval().requires_grad_(False)
        return net


class Callback:
    """Something that is done between steps. All ranks have the same callbacks, and call them in the same order."""

    def on_step(self, state: RunState, update: Update) -> None:
        """Act after an update."""

    def on_end(self, state: RunState) -> None:
        """Finish: the last update is done, and its results are written next."""
