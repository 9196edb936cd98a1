"""Attention of HRM-Text: outputs and gradients, prefixlm and causal, rows of every shape.

Here is no GPU. FlexAttention has a slow forward pass for CPUs, which is enough for its mask; torch's varlen_attn has
nothing, so its two passes run on a stand-in that follows its documentation.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.attention import varlen

from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.net import Sees
from tests.pytorch.train import standins
from tests.pytorch_conformance.recorded import TRAIN

WITHIN = 1e-5
CASES = json.loads((TRAIN / "attention.json").read_text()) if TRAIN.is_dir() else []


def sees_of(case: dict[str, Any], path: attention.Path) -> Sees:
    starts = tuple(case["cu_seqlens"][: len(case["prefix_lens"]) + 1])
    nothing = torch.zeros(case["slots"], dtype=torch.int64)
    return attention.sees(
        Packed(nothing, nothing, nothing, starts, tuple(case["prefix_lens"])), causal=case["is_causal"], path=path
    )


def recorded_of(train: Path, case: dict[str, Any]) -> dict[str, Tensor]:
    tensors, name = load_file(train / "attention.safetensors"), f"{case['name']}."
    return {key.removeprefix(name): tensor for key, tensor in tensors.items() if key.startswith(name)}


def test_there_are_cases(train: Path) -> None:
    assert {case["is_causal"] for case in CASES} == {False, True}


@pytest.mark.parametrize("path", ["rows", "varlen"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_outputs_and_gradients_are_those_recorded(
    train: Path, case: dict[str, Any], path: attention.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", standins.varlen_attn)
    recorded = recorded_of(train, case)
    query, key, value = (recorded[one].requires_grad_() for one in "qkv")
    out = sees_of(case, path)(query, key, value)
    out.backward(recorded["dout"])
    found = {"out": out, "dq": query.grad, "dk": key.grad, "dv": value.grad}
    for one, tensor in found.items():
        torch.testing.assert_close(
            tensor, recorded[one], rtol=0, atol=WITHIN, msg=lambda said, one=one: f"{one}: {said}"
        )
        assert not tensor[case["total_seqlen"] :].any()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_flexattention_gives_the_recorded_outputs(
    train: Path, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    monkeypatch.setattr(attention, "_compiled", lambda: (create_block_mask, flex_attention))
    recorded = recorded_of(train, case)
    out = sees_of(case, "flex")(*(recorded[one] for one in "qkv"))
    torch.testing.assert_close(out, recorded["out"], rtol=0, atol=WITHIN)
    assert not out[case["total_seqlen"] :].any()
