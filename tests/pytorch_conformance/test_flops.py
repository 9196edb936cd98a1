"""llama: parameters, FLOPs of a token and the share of the peak, as KempnerForge counts them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pairmill.nets import cost
from pairmill.nets.builder import build
from pairmill.nets.shape import stacks
from tests.pytorch_conformance.published import of_kempner
from tests.pytorch_conformance.recorded import TRAIN

CASES = json.loads((TRAIN / "llama/flops.json").read_text()) if TRAIN.is_dir() else []


def test_there_are_cases(train: Path) -> None:
    assert CASES
    assert all(said["flops_per_token"] for said in CASES)


@pytest.mark.parametrize("said", CASES, ids=lambda said: str(said["params_real"]))
def test_counts_are_those_recorded(said: dict[str, Any]) -> None:
    model, vocab_size = of_kempner(said["config"]), said["config"]["vocab_size"]
    assert stacks(model)["H"].feed == said["ffn_hidden_dim"]
    assert cost.parameters(model, vocab_size) == said["params_real"]
    with torch.device("meta"):
        net = build(model, vocab_size, said["config"].get("max_seq_len", 64))
    assert sum(parameter.numel() for parameter in net.parameters()) == said["params_real"]
    for length, flops in said["flops_per_token"].items():
        assert cost.flops_per_token(model, vocab_size, int(length)) == flops
    rate = 1e5 * cost.flops_per_token(model, vocab_size, 2048)
    share = cost.utilisation(rate, "NVIDIA H100 80GB HBM3", 8)
    assert share == pytest.approx(said["mfu_at_1e5_tokens_per_s_on_8_gpus_of_989_tflops"], rel=1e-12)
