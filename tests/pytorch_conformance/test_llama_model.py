"""llama: logits as KempnerForge's, over whole windows and with documents kept apart; its recorded steps of training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pairmill.nets.attention import sees
from pairmill.nets.batch import GlobalBatch, Microbatch, Packed
from pairmill.nets.builder import build
from pairmill.nets.net import Net
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.step import Stepper
from pairmill.training.optimizers.optimizer import make
from pairmill.training.settings import OptimizerSettings, ScheduleSettings, TrainSettings
from tests.pytorch_conformance.published import of_kempner

LOGITS, LOSSES, FINAL = 1e-5, 2e-5, 1e-5


@pytest.fixture
def said(train: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((train / "llama/model.json").read_text())
    return found


@pytest.fixture
def tensors(train: Path) -> dict[str, Tensor]:
    return load_file(train / "llama/model.safetensors")


def started(said: dict[str, Any], tensors: dict[str, Tensor]) -> Net:
    net = build(of_kempner(said["config"]), said["config"]["vocab_size"], said["config"]["max_seq_len"])
    assert list(net.state_dict()) == said["names"]
    net.load_state_dict({name[5:]: tensor.float() for name, tensor in tensors.items() if name.startswith("init.")})
    return net


@pytest.mark.parametrize("documents", [False, True])
def test_logits_are_those_recorded(said: dict[str, Any], tensors: dict[str, Tensor], documents: bool) -> None:
    net, tokens = started(said, tensors), tensors["tokens"][0]
    batch = Packed.from_windows(tokens[:, :-1], tokens[:, 1:], tensors["doc_ids"] if documents else None)
    assert (batch.rows > len(tokens)) == documents
    with torch.no_grad():
        logits = net.logits(net(batch, sees(batch)))
    recorded = tensors["logits_with_doc_ids" if documents else "logits"]
    most = float(recorded.abs().max())
    torch.testing.assert_close(logits.view(recorded.shape), recorded, rtol=0, atol=LOGITS * most)


def test_the_recorded_steps_of_training(said: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    net, of, schedule = started(said, tensors), said["optimizer"], said["schedule"]
    optimizer_settings = OptimizerSettings(
        name=of["name"],
        lr=of["lr"],
        betas=of["betas"],
        eps=of["eps"],
        weight_decay=of["weight_decay"],
        decay="matrices",
        clip=said["grad_clip_norm"],
    )
    settings = TrainSettings(
        profile="kempner",
        model=of_kempner(said["config"]),
        optimizer=optimizer_settings,
        schedule=ScheduleSettings(
            shape=schedule["name"], warmup_steps=schedule["warmup_steps"], min_ratio=schedule["min_lr_ratio"]
        ),
    )
    optimizer = make(optimizer_settings, net.named_parameters())
    stepper = Stepper(
        net,
        optimizer,
        settings,
        total=schedule["max_steps"],
        ranks=parallel.start("cpu"),
        path="rows",
        sources=("all",),
        vocab_size=said["config"]["vocab_size"],
    )
    assert said["steps"]
    for step in said["steps"]:
        tokens = tensors["tokens"][(step["step"] - 1) % len(tensors["tokens"])]
        packed = Packed.from_windows(tokens[:, :-1], tokens[:, 1:])
        micro = Microbatch(packed, torch.zeros(packed.slots, dtype=torch.int64))
        batch = GlobalBatch((micro,), step["step"] - 1, "0", 0, 1.0, packed.rows, packed.tokens, packed.slots)
        found = stepper.step(step["step"], batch)
        where = f"step {step['step']}"
        assert found.lr == pytest.approx(step["lr_used"], rel=1e-12, abs=1e-15), where
        assert found.loss[0] / found.loss[1] == pytest.approx(step["loss"], rel=LOSSES), where
        assert found.grad_norm == pytest.approx(step["grad_norm_before_clip"], rel=LOSSES), where
    final = {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("final.")}
    assert final
    for name, tensor in final.items():
        torch.testing.assert_close(net.get_parameter(name).detach(), tensor, rtol=0, atol=FINAL)
