"""What a net costs, without torch."""

import pytest

from pairmill.nets import cost
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import stacks


def test_the_flops_of_a_batch_follow_the_formula() -> None:
    # tokens · n · (5h² + 3hf)(2F + 4G) + Σ n · h · pairs · (4F + 8G) + 6Vh · labels; F and G of hrm as published, b = 5
    model, vocabulary = ModelSettings.for_net("hrm", size="B"), 65_536
    tokens, pairs = 30, (4 * 4 + 4 * 6 + 21) + (20 * 21) // 2
    n, h, f, forward, backward = 12, 1024, 2816, 4, 2.5
    right = tokens * n * (5 * h * h + 3 * h * f) * (2 * forward + 4 * backward)
    right += n * h * pairs * (4 * forward + 8 * backward) + 6 * vocabulary * h * 7
    assert cost.flops(model, vocabulary, (0, 10, 30), (4, 0), 7, steps=5) == right
    causal = ModelSettings.for_net("hrm", size="B", attention="causal")
    fewer = right - n * h * (61 - 55) * (4 * forward + 8 * backward)
    assert cost.flops(causal, vocabulary, (0, 10, 30), (4, 0), 7, steps=5) == fewer


@pytest.mark.parametrize(
    ("net", "steps", "relative"),
    [
        ("hrm", 2, 2.0),
        ("hrm", 3, 7 / 3),
        ("hrm", 4, 8 / 3),
        ("hrm", 5, 3.0),
        ("trm", None, 8 / 3),
        ("trm_match_recurrence", None, 3.0),
        ("rins", None, 3.0),
        ("ut", None, 8 / 3),
    ],
)
def test_blocks_cost_as_many_times_a_transformer_as_published(net: str, steps: int | None, relative: float) -> None:
    batch = (4096, (0, 900, 1000), (500, 1), 0)
    plain = cost.flops(ModelSettings.for_net("transformer", size="L"), *batch)
    model = ModelSettings.for_net(net, size="L", **({"H_bp_steps": 1} if net == "trm" else {}))
    assert cost.flops(model, *batch, steps) / plain == pytest.approx(relative, rel=1e-12)


def test_a_gpu_is_found_by_its_name() -> None:
    assert cost.peak("NVIDIA H100 PCIe") == 756e12
    assert cost.peak("NVIDIA H100 80GB HBM3") == cost.peak("NVIDIA H200") == 989e12
    assert cost.peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert cost.peak("NVIDIA GeForce RTX 4090") == 330e12
    assert cost.peak("Some CPU") is None
    assert cost.utilisation(989e12, "NVIDIA H100 80GB HBM3", 2) == 0.5
    assert cost.utilisation(1.0, "Some CPU", 1) is None


def test_memory_grows_with_the_slots_and_is_shared_by_ranks() -> None:
    model = ModelSettings.for_net("hrm", size="B")
    weights = cost.parameters(model, 65_536)
    assert cost.memory(model, 65_536, 0, 0) == 20 * weights
    assert cost.memory(model, 65_536, 0, 0, ranks=8, half=True) == 20 * weights // 8 + 2 * weights
    full, half = (cost.memory(model, 65_536, 1000, 0, half=half) for half in (False, True))
    assert (full - 20 * weights) == 2 * (half - 22 * weights)


def test_llama_counts_shared_heads_and_a_tied_head() -> None:
    model = ModelSettings.for_net("llama", layers=2, width=64, heads=4, key_value_heads=2, tied=True, qk_norm=True)
    (stack,) = stacks(model).values()
    assert stack.block_parameters == 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256
    assert cost.parameters(model, 100) == 2 * (stack.block_parameters + 2 * 64 + 2 * 16) + 64 + 100 * 64
