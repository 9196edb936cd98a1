"""llama: the recorded steps of KempnerForge's training with its profile: AdamW, cosine, clipping."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from pairmill.nets.attention import sees
from pairmill.nets.batch import Packed
from pairmill.nets.builder import build
from pairmill.nets.generate.engine import Limits, generate
from pairmill.training.optimizers.optimizer import clip, make
from pairmill.training.schedules import Rate
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.published import of_kempner

LOSS, NORM, FINAL = 2e-5, 1e-5, 1e-5


def test_the_recorded_steps_of_training(train: Path) -> None:
    said = json.loads((train / "llama/model.json").read_text())
    tensors = load_file(train / "llama/model.safetensors")
    schedule = said["schedule"]
    settings = TrainSettings.parse(
        "",
        [
            "profile=kempner",
            *(f"optimizer.{name}={value}" for name, value in said["optimizer"].items()),
            f"optimizer.clip={said['grad_clip_norm']}",
            f"schedule.shape={schedule['name']}",
            f"schedule.warmup_steps={schedule['warmup_steps']}",
            f"schedule.min_ratio={schedule['min_lr_ratio']}",
        ],
    )
    model = of_kempner(said["config"])
    net = build(model, said["config"]["vocab_size"], said["config"]["max_seq_len"])
    net.load_state_dict({name[5:]: tensor.float() for name, tensor in tensors.items() if name.startswith("init.")})
    optimizer, rate = make(settings.optimizer, net.named_parameters()), Rate(settings, schedule["max_steps"])
    assert {name for name, one in net.named_parameters() if one.ndim < 2} == set(said["no_decay"])
    batches = tensors["tokens"]
    assert said["steps"]
    for step in said["steps"]:
        tokens = batches[(step["step"] - 1) % len(batches)]
        batch = Packed.from_windows(tokens[:, :-1], tokens[:, 1:])
        loss = functional.cross_entropy(net.logits(net(batch, sees(batch, causal=True))), batch.labels)
        assert float(loss.detach()) == pytest.approx(step["loss"], rel=LOSS), step["step"]
        loss.backward()
        norm = clip(net.parameters(), settings.optimizer.clip)
        assert float(norm) == pytest.approx(step["grad_norm_before_clip"], rel=NORM), step["step"]
        assert rate.at(step["step"]) == pytest.approx(step["lr_used"], rel=1e-12, abs=1e-18)
        assert rate.at(step["step"] + 1) == pytest.approx(step["lr_after"], rel=1e-12)
        optimizer.step(rate.at(step["step"]))
        optimizer.zero_grad()
    compared = 0
    for name, parameter in net.named_parameters():
        if f"final.{name}" in tensors:
            torch.testing.assert_close(parameter.detach(), tensors[f"final.{name}"], rtol=0, atol=FINAL)
            compared += 1
    assert compared == sum(name.startswith("final.") for name in tensors) > 0
    asked, written = said["greedy"]["prompt"], said["greedy"]["output"]
    limits = Limits(stop=-1, max_tokens=len(written[0]), max_context=said["config"]["max_seq_len"])
    made = generate(net, asked, limits, causal=True)
    assert {one.index: one.ids for one in made} == dict(enumerate(written))
