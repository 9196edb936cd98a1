"""KempnerForge's loss with its profile: the mean over labels, z-loss over all positions, perplexity."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pairmill.errors import InputError
from pairmill.nets.batch import GlobalBatch, Microbatch, Packed
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.step import Stepper
from pairmill.stages.train.watch.records import perplexity
from pairmill.training.optimizers.optimizer import make
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import TRAIN, cases

(PATH,) = cases("llama", "loss.json")
SAID = json.loads(PATH.read_text())
TENSORS = load_file(TRAIN / "llama/loss.safetensors")
CLOSE = 1e-6


class Fixed(nn.Module):
    """A net that says the recorded logits."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(TENSORS["logits"].flatten(0, 1).clone())

    def forward(self, *_: Any) -> Tensor:
        return self.table

    def logits(self, y: Tensor) -> Tensor:
        return y


def prepared(labels: Tensor, *overrides: str) -> tuple[Stepper, GlobalBatch]:
    settings = TrainSettings.parse("", ["profile=kempner", "schedule.warmup_steps=0", *overrides])
    net: Any = Fixed()
    optimizer = make(settings.optimizer, net.named_parameters())
    stepper = Stepper(
        net, optimizer, settings, total=10, ranks=parallel.start("cpu"), path="rows", sources=("all",), vocab_size=11
    )
    packed = Packed.from_windows(torch.zeros_like(labels), labels)
    micro = Microbatch(packed, torch.zeros(packed.slots, dtype=torch.int64))
    return stepper, GlobalBatch((micro,), 0, "0", 0, 1.0, packed.rows, packed.tokens, packed.slots)


def differentiated(labels: Tensor, *overrides: str) -> float:
    """The scalar whose gradient a step takes."""
    stepper, batch = prepared(labels, *overrides)
    loss = stepper._forward(batch.micro[0], None)
    return float(stepper._scalar(loss, loss.labels, 1).detach())


def test_the_loss_is_the_mean_over_labels() -> None:
    labels = TENSORS["labels"].long()
    stepper, batch = prepared(labels)
    total, count = stepper.step(1, batch).loss
    assert 0 < count == int((labels != -100).sum()) < labels.numel()
    assert total / count == pytest.approx(SAID["cross_entropy"], rel=CLOSE)
    # In parts it is the same number, so nothing of ours follows chunks.
    assert total / count == pytest.approx(SAID["chunked_4"], rel=CLOSE)
    assert differentiated(labels) == pytest.approx(SAID["cross_entropy"], rel=CLOSE)


def test_z_loss_counts_positions_without_a_label_with_the_profile_alone() -> None:
    labels = TENSORS["labels"].long()
    assert SAID["z_loss_counts_ignored_positions"]
    z_loss = differentiated(labels, "training.z_loss=1e-4") - SAID["cross_entropy"]
    assert z_loss == pytest.approx(SAID["z_loss_1e_4"], abs=CLOSE)
    assert differentiated(labels, "training.z_loss=1e-3") == pytest.approx(SAID["composed"], rel=CLOSE)
    ours = differentiated(labels, "profile=pairmill", "model.attention=causal", "training.z_loss=1e-3")
    assert abs(ours - SAID["composed"]) > 1e-4


def test_a_batch_without_a_label_is_an_error_and_not_0() -> None:
    assert SAID["all_ignored"] == 0.0
    stepper, batch = prepared(torch.full((3, 7), -100))
    with pytest.raises(InputError, match="a global batch has no label"):
        stepper.step(1, batch)


def test_perplexities_are_those_recorded() -> None:
    assert perplexity(2.5) == pytest.approx(SAID["perplexity_of_loss_2_5"], rel=1e-12)
    assert perplexity(25) == pytest.approx(SAID["perplexity_of_loss_25"], rel=1e-12)
