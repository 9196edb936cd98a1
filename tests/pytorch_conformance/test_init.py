"""Initial weights: their spread, extremes and tails are those of the reference, for every rule."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import stacks
from tests.pytorch_conformance.recorded import TRAIN

CASES = json.loads((TRAIN / "init_statistics.json").read_text()) if TRAIN.is_dir() else []


def test_there_are_cases(train: Path) -> None:
    assert CASES
    assert all(said["params"] for said in CASES)


@pytest.mark.parametrize("said", CASES, ids=lambda said: f"{said['init_type']}-{said['init_std']}")
def test_statistics_are_those_recorded(said: dict[str, Any]) -> None:
    model = ModelSettings.for_net(
        "hrm",
        layers=said["n_layers"],
        width=said["hidden_size"],
        heads=1,  # no initial weight follows from it
        half_layers=said["half_layers"],
        init=said["init_type"],
        init_std=said["init_std"] or 0.0,
    )
    net = build(model, said["vocab_size"], 64)
    initialise(net, seed=1)
    assert 1 / stacks(model)["H"].std == pytest.approx(said["embedding_scale"], rel=1e-12)
    for kind, expected in said["params"].items():
        drawn = torch.cat([tensor.detach().flatten() for name, tensor in net.named_parameters() if kind in name])
        assert len(drawn) == expected["count"]
        std = float(drawn.std())
        assert std == pytest.approx(expected["std"], rel=0.01), kind
        assert abs(float(drawn.mean())) < 5 * std / math.sqrt(len(drawn)), kind
        assert float(drawn.abs().max()) / std == pytest.approx(3.0443, rel=0.01), kind
        beyond = float((drawn.abs() > 2 * std).float().mean())
        assert beyond == pytest.approx(0.0460, abs=0.002), kind
    state: Tensor = net.get_buffer("model.zL_init")
    assert str(state.dtype) == said["zL_init"]["dtype"]
    # Few numbers: of n of them the deviation is known to 1 / sqrt(2 n), as is the recorded one.
    assert float(state.float().std()) == pytest.approx(1, rel=4.5 / math.sqrt(2 * len(state)))
