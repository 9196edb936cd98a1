"""Optimizers against plain loops, absent gradients, decay, clipping, parts, and sharded parameters."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from pairmill.training.optimizers import OPTIMIZERS
from pairmill.training.optimizers import optimizer as optimizers
from pairmill.training.optimizers.optimizer import clip, make
from pairmill.training.settings import OptimizerSettings

NAMES = tuple(OPTIMIZERS)
SHAPES = {"w": (6, 4), "b": (5,), "long": (48, 4)}


def weights(seed: int = 1) -> dict[str, nn.Parameter]:
    drawn = torch.Generator().manual_seed(seed)
    return {name: nn.Parameter(torch.randn(shape, generator=drawn)) for name, shape in SHAPES.items()}


def trained(settings: OptimizerSettings, steps: int = 4, **options: float) -> dict[str, Tensor]:
    parameters = weights()
    optimizer = make(settings, parameters.items(), **options)
    for step in range(steps):
        for name, gradient in weights(step + 2).items():
            parameters[name].grad = gradient.detach()
        optimizer.step(0.01)
    return {name: parameter.detach() for name, parameter in parameters.items()}


def test_adamw_is_torch_s() -> None:
    settings = OptimizerSettings(name="adamw", decay="matrices")
    parameters = weights()
    groups = [
        {"params": [parameters["w"], parameters["long"]], "weight_decay": 0.1},
        {"params": [parameters["b"]], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    for step in range(4):
        for name, gradient in weights(step + 2).items():
            parameters[name].grad = gradient.detach()
        theirs.step()
    for name, found in trained(settings).items():
        torch.testing.assert_close(found, parameters[name].detach(), rtol=0, atol=1e-6)


def test_adam_atan2_is_its_formula_and_bounded() -> None:
    settings, lr = OptimizerSettings(), 0.01
    weight, m, v = 0.5, 0.0, 0.0
    parameter = nn.Parameter(torch.tensor([[0.5]]))
    optimizer = make(settings, [("w", parameter)])
    for step, gradient in enumerate((1e6, -3.0, 0.0, 2e-30), 1):
        parameter.grad = torch.tensor([[gradient]])
        before = weight
        optimizer.step(lr)
        m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
        weight *= 1 - lr * 0.1
        weight -= lr / (1 - 0.9**step) * math.atan2(m, math.sqrt(v) / math.sqrt(1 - 0.95**step))
        assert float(parameter.detach()) == pytest.approx(weight, abs=1e-6)
        assert abs(weight - before * (1 - lr * 0.1)) <= math.pi / 2 * lr / (1 - 0.9**step)


def test_a_gradient_of_zero_changes_nothing_but_decay() -> None:
    parameter = nn.Parameter(torch.ones(2, 2))
    optimizer = make(OptimizerSettings(weight_decay=0.5), [("w", parameter)])
    parameter.grad = torch.zeros(2, 2)
    optimizer.step(0.1)
    assert torch.equal(parameter.detach(), torch.full((2, 2), 0.95))


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_a_gradient_is_left_out(name: str) -> None:
    parameters = weights()
    optimizer = make(OptimizerSettings(name=name), parameters.items(), 0.5)
    before = {one: tensor.clone() for one, tensor in optimizer.state["w"].items()}
    for step in range(2):
        for other in ("b", "long"):
            parameters[other].grad = weights(step + 2)[other].detach()
        optimizer.step(0.1)
    assert torch.equal(parameters["w"], weights()["w"])
    assert all(torch.equal(optimizer.state["w"][one], tensor) for one, tensor in before.items())
    assert optimizer.steps == {"w": 0, "b": 2, "long": 2}
    assert not torch.equal(parameters["b"], weights()["b"])


def test_what_decays() -> None:
    for decay, kept in (("all", 0.5), ("matrices", 1.0)):
        parameters = {"w": nn.Parameter(torch.ones(2, 2)), "b": nn.Parameter(torch.ones(2))}
        optimizer = make(OptimizerSettings(weight_decay=0.5, decay=decay), parameters.items())
        for parameter in parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step(1.0)
        assert torch.equal(parameters["w"].detach(), torch.full((2, 2), 0.5))
        assert torch.equal(parameters["b"].detach(), torch.full((2,), kept))


def test_without_a_first_moment_there_is_no_state_of_it() -> None:
    optimizer = make(OptimizerSettings(betas=[0.0, 0.95]), weights().items())
    assert {*optimizer.state["w"]} == {"exp_avg_sq"}


@pytest.mark.parametrize("name", NAMES)
def test_parts_change_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = OptimizerSettings(name=name)
    whole = trained(settings)
    monkeypatch.setattr(optimizers, "_AT_ONCE", 20)
    assert all(torch.equal(one, whole[name]) for name, one in trained(settings).items())


@pytest.mark.parametrize("name", NAMES)
def test_state_and_numbers_are_all_that_a_checkpoint_needs(name: str) -> None:
    found = []
    for stop in (None, 2):
        parameters = weights()
        optimizer = make(OptimizerSettings(name=name), parameters.items(), 0.9)
        for step in range(4):
            if step == stop:
                kept, numbers = optimizer.state, optimizer.numbers()
                parameters = {one: nn.Parameter(tensor.detach().clone()) for one, tensor in parameters.items()}
                optimizer = make(OptimizerSettings(name=name), parameters.items(), 0.9)
                for one, state in kept.items():
                    for key, tensor in state.items():
                        optimizer.state[one][key].copy_(tensor)
                optimizer.set_numbers(numbers)
            for one, gradient in weights(step + 2).items():
                parameters[one].grad = gradient.detach()
            optimizer.step(0.01 * (step + 1))
        found.append([*parameters.values(), *(state["param_ema"] for state in optimizer.state.values())])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_clipping_scales_all_gradients_together_and_says_the_norm_before() -> None:
    parameters = weights()
    absent = nn.Parameter(torch.ones(3))
    assert float(clip([absent], 1.0)) == 0
    for name, gradient in weights(2).items():
        parameters[name].grad = gradient.detach().clone()
    norm = math.sqrt(sum(float(one.detach().double().square().sum()) for one in weights(2).values()))
    everything = [*parameters.values(), absent]
    assert float(clip(everything, 0.0)) == pytest.approx(norm, rel=1e-6)
    assert all(torch.equal(parameters[name].grad, one) for name, one in weights(2).items())
    assert float(clip(everything, 2 * norm)) == pytest.approx(norm, rel=1e-6)
    assert all(torch.equal(parameters[name].grad, one) for name, one in weights(2).items())
    assert float(clip(everything, 0.5)) == pytest.approx(norm, rel=1e-6)
    assert float(clip(everything, 0.0)) == pytest.approx(0.5, rel=1e-4)
    parameters["b"].grad = torch.full((5,), float("nan"))
    assert math.isnan(float(clip(everything, 1.0)))


def _rank(rank: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="localhost", RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for name in NAMES:
        settings = OptimizerSettings(name=name)
        plain = {one: nn.Parameter(tensor) for one, tensor in trained(settings, steps=0).items()}
        sharded = {
            one: nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [Shard(0)])) for one, p in plain.items()
        }
        ours, whole = make(settings, sharded.items(), 0.5), make(settings, plain.items(), 0.5)
        for step in range(3):
            for one, gradient in weights(step + 2).items():
                plain[one].grad = gradient.detach().clone()
                sharded[one].grad = distribute_tensor(gradient.detach().clone(), mesh, [Shard(0)])
            norms = clip(sharded.values(), 1.0), clip(plain.values(), 1.0)
            torch.testing.assert_close(*norms, rtol=1e-6, atol=0)
            ours.step(0.01)
            whole.step(0.01)
        for one, parameter in plain.items():
            torch.testing.assert_close(sharded[one].full_tensor(), parameter, rtol=0, atol=1e-5)
            assert ours.state[one]["param_ema"].placements == (Shard(0),)
            mean = ours.state[one]["param_ema"].full_tensor()
            torch.testing.assert_close(mean, whole.state[one]["param_ema"], rtol=0, atol=1e-5)
    dist.destroy_process_group()


def test_sharded_parameters_are_changed_as_whole_ones(tmp_path: Path) -> None:
    torch.multiprocessing.start_processes(_rank, args=(str(tmp_path),), nprocs=2, start_method="fork")
