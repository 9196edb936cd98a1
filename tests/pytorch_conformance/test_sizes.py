"""Parameters of every published size and net, counted in two ways; how many blocks a pass calls."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pairmill.nets import cost
from pairmill.nets.builder import build
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import calls, recorded_calls, stacks
from tests.pytorch_conformance.recorded import TRAIN

SIZES = json.loads((TRAIN / "sizes.json").read_text()) if TRAIN.is_dir() else {"configs": [], "block_passes": {}}


def test_there_are_cases(train: Path) -> None:
    assert SIZES["configs"]
    assert SIZES["block_passes"]


@pytest.mark.parametrize(
    "said", SIZES["configs"], ids=lambda said: f"{said['size']}-{said['net']}-{said['vocab_size']}"
)
def test_parameters_are_counted_and_made_as_recorded(said: dict[str, Any]) -> None:
    model = ModelSettings.for_net(said["net"], size=said["size"])
    assert cost.parameters(model, said["vocab_size"]) == said["num_params"]
    made = stacks(model)
    assert sum(stack.layers for stack in made.values()) == said["blocks"]
    for stack in made.values():
        assert stack.block_parameters == said["params_per_block"]
        assert (stack.feed, stack.head_width) == (said["intermediate_size"], said["head_dim"])
        assert 1 / stack.std == pytest.approx(said["embedding_scale"], rel=1e-12)
    with torch.device("meta"):
        net = build(model, said["vocab_size"], 4096)
    assert sum(parameter.numel() for parameter in net.parameters()) == said["num_params"]
    assert len(net.blocks()) == said["blocks"]


@pytest.mark.parametrize("name", SIZES["block_passes"])
def test_calls_of_blocks_are_those_recorded(name: str) -> None:
    said = SIZES["block_passes"][name]
    net, _, steps = name.partition(".bp_steps=")
    # As published, which the profile hrm_text has: trm differentiates one call for H.
    model = ModelSettings.for_net(
        net, layers=said["n_layers_configured"], **({"H_bp_steps": 1} if net == "trm" else {})
    )
    layers = {letter: stack.layers for letter, stack in stacks(model).items()}
    backward = recorded_calls(model, int(steps) if steps else None)
    assert sum(layers[letter] * many for letter, many in calls(model).items()) == said["block_passes_forward"]
    assert sum(layers[letter] * many for letter, many in backward.items()) == said["block_passes_with_gradient"]
