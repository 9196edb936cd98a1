"""Every net of HRM-Text: logits, order of calls, which gradients there are, and the recorded steps of training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from pairmill.nets.attention import sees
from pairmill.nets.batch import GlobalBatch, Microbatch, Packed
from pairmill.nets.block import Stack
from pairmill.nets.builder import build
from pairmill.nets.net import Net
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import recorded_calls
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.step import Stepper
from pairmill.training.optimizers.optimizer import make
from pairmill.training.settings import OptimizerSettings, ScheduleSettings, TrainingSettings, TrainSettings
from tests.pytorch_conformance.published import of_hrm_text
from tests.pytorch_conformance.recorded import cases

LOGITS, LOSS, GRADIENT, NORM = 1e-5, 1e-5, 2e-5, 1e-5
LOSSES, FINAL = 2e-5, 1e-5


class Case:
    """A recorded net."""

    def __init__(self, path: Path) -> None:
        self.said: dict[str, Any] = json.loads(path.read_text())
        self.tensors = load_file(path.with_suffix(".safetensors"))
        self.model: ModelSettings = of_hrm_text(self.said["arch"])

    def net(self) -> Net:
        """With the initial weights."""
        net = build(self.model, self.said["vocab_size"], self.said["max_seq_len"])
        net.load_state_dict(self.part("init."))
        return net

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors by the rest of their names, float32."""
        return {
            name.removeprefix(prefix): tensor.float() if tensor.dtype == torch.float16 else tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }

    def batch(self, number: int) -> Packed:
        """As the loader gives it."""
        return Packed.from_rows(self.part(f"batch{number}."), self.said["scalars"][number])

    def y(self, net: Net, batch: Packed, steps: int | None) -> Tensor:
        """What the head reads."""
        return net(batch, sees(batch, causal=self.model.causal), steps)


@pytest.fixture(params=cases("models"), ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_states_have_the_names_and_shapes_of_the_reference(case: Case) -> None:
    net = case.net()
    state = net.state_dict()
    assert set(state) == set(case.said["state_dict_keys"])
    assert {name: tensor.dtype for name, tensor in state.items() if tensor.dtype != torch.float32} == {
        name: torch.bfloat16 for name in state if name.endswith("zL_init")
    }
    assert sum(parameter.numel() for parameter in net.parameters()) == case.said["num_params"]


def test_logits_and_the_order_of_calls_are_those_recorded(case: Case) -> None:
    net, batch = case.net(), case.batch(0)
    names = {module: name for name, module in net.named_modules() if isinstance(module, Stack)}
    called: list[tuple[str, Tensor]] = []
    for module in names:
        module.register_forward_hook(lambda module, _, out: called.append(("HL"["L_level" in names[module]], out)))
    with torch.no_grad():
        logits = net.logits(case.y(net, batch, None)[: batch.tokens])
    recorded = case.tensors["logits"]
    torch.testing.assert_close(logits, recorded, rtol=0, atol=LOGITS * float(recorded.abs().max()))
    if "stack_order" in case.said:
        assert "".join(letter for letter, _ in called) == case.said["stack_order"]
        outputs = torch.stack([out[: batch.tokens] for _, out in called])
        torch.testing.assert_close(outputs, case.tensors["stack_outputs"], rtol=0, atol=1e-5)


def loss_of(case: Case, net: Net, batch: Packed, steps: int | None) -> Tensor:
    """Sum of the losses of labelled tokens."""
    at = batch.labelled()
    return functional.cross_entropy(net.logits(case.y(net, batch, steps)[at]), batch.labels[at], reduction="sum")


def test_gradients_are_those_recorded_and_absent_where_none_is(case: Case) -> None:
    batch = case.batch(0)
    assert case.said["backward"]
    for said in case.said["backward"]:
        net, steps = case.net(), said["bp_steps"]
        total, counted = said["metrics"]["loss"]
        loss = loss_of(case, net, batch, steps)
        assert float(loss.detach()) == pytest.approx(total, rel=LOSS)
        (loss / counted).backward()
        assert set(said["grad_norm"]) == {name for name, _ in net.named_parameters()}
        prefix = "grad." if steps is None else f"grad_bp{steps}."
        recorded = case.part(prefix)
        for name, parameter in net.named_parameters():
            norm = said["grad_norm"][name]
            assert (parameter.grad is None) == (norm is None), f"{name}, b = {steps}"
            if norm is not None:
                assert float(parameter.grad.norm()) == pytest.approx(norm, rel=NORM), f"{name}, b = {steps}"
            if name in recorded:
                most = float(recorded[name].abs().max())
                torch.testing.assert_close(parameter.grad, recorded[name], rtol=0, atol=GRADIENT * most)
        assert recorded or steps is not None


def test_the_blocks_that_are_differentiated_are_as_many_as_counted(case: Case) -> None:
    for said in case.said["backward"]:
        net, batch = case.net(), case.batch(0)
        recorded: list[bool] = []

        def record(_: object, __: object, out: Tensor, into: list[bool] = recorded) -> None:
            into.append(out.requires_grad)

        for block in net.blocks():
            block.register_forward_hook(record)
        case.y(net, batch, said["bp_steps"])
        counted = recorded_calls(case.model, said["bp_steps"])
        layers = {
            letter: sum(1 for name, _ in net.named_parameters() if f".{letter}_level." in name and "o_proj" in name)
            for letter in "HL"
        }
        if not any(layers.values()):
            layers = {"H": case.model.layers}
        assert sum(recorded) == sum(counted[letter] * layers[letter] for letter in counted)


def test_the_recorded_steps_of_training(case: Case) -> None:
    said = case.said["train"]
    net, total = case.net(), said["total_steps"]
    ratio = said["bp_warmup_ratio"]
    settings = TrainSettings(
        profile="hrm_text",
        model=case.model if ratio is None else replace(case.model, bp_warmup_ratio=ratio),
        optimizer=OptimizerSettings(
            name="adam_atan2",
            lr=said["lr"],
            betas=said["betas"],
            weight_decay=said["weight_decay"],
            decay="all",
        ),
        schedule=ScheduleSettings(shape="cosine", warmup_steps=said["lr_warmup_steps"], min_ratio=said["lr_min_ratio"]),
        training=TrainingSettings(ema=said["ema"]),
    )
    optimizer = make(settings.optimizer, net.named_parameters(), said["ema"])
    stepper = Stepper(
        net,
        optimizer,
        settings,
        total=total,
        ranks=parallel.start("cpu"),
        path="rows",
        sources=("all",),
        vocab_size=case.said["vocab_size"],
    )
    assert said["steps"]
    for step in said["steps"]:
        packed = case.batch(step["batch"])
        found = stepper.step(step["step"], of_one(packed))
        where = f"step {step['step']}"
        assert found.finite
        assert found.lr == pytest.approx(step["lr"], rel=1e-12), where
        assert found.b == step.get("bp_steps"), where
        assert found.loss[0] / found.loss[1] == pytest.approx(step["loss_divided"], rel=LOSSES), where
        assert found.loss[0] / found.loss[1] == pytest.approx(step["train/loss"], rel=LOSSES), where
        assert found.grad_norm == pytest.approx(step["grad_norm"], rel=LOSSES), where
        assert sorted(found.absent) == sorted(step["no_grad"]), where
        for name in ("accuracy", "exact_accuracy"):
            right, of = getattr(found, name)
            assert right / of == pytest.approx(step[f"train/{name}"], rel=1e-6), f"{where}: {name}"
    assert optimizer.steps == {name: int(many) for name, many in case.said["state_step"].items()}
    final, ema = case.part("final."), case.part("ema.")
    assert final
    assert ema
    for name, parameter in net.named_parameters():
        mean = optimizer.state[name]["param_ema"]
        assert float(parameter.detach().norm()) == pytest.approx(case.said["final_norm"][name], rel=NORM), name
        assert float(mean.norm()) == pytest.approx(case.said["ema_norm"][name], rel=NORM), name
        if name in final:
            torch.testing.assert_close(parameter.detach(), final[name], rtol=0, atol=FINAL)
        if name in ema:
            torch.testing.assert_close(mean, ema[name], rtol=0, atol=FINAL)


def of_one(packed: Packed) -> GlobalBatch:
    """A global batch of one rank and one part."""
    micro = Microbatch(packed, torch.zeros(packed.slots, dtype=torch.int64))
    return GlobalBatch((micro,), 0, "0", 0, 1.0, packed.rows, packed.tokens, packed.slots)
