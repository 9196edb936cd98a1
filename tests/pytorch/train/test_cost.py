"""What is counted against what torch does."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pairmill.nets import cost
from pairmill.nets.settings import NETS, ModelSettings
from pairmill.nets.shape import calls, recorded_calls, stacks
from tests.pytorch.train.test_nets import VOCABULARY, batch, loss, run, small, started


@pytest.mark.parametrize("net", NETS)
def test_flops_of_matrices_are_those_that_torch_counts(net: str) -> None:
    # All calls are differentiated: where one is not, torch leaves out gradients of constants too.
    everything = {"H_bp_steps": 99, "L_bp_steps": 99, "L_bp_cycles": 99, "bp_cycles": 99}
    model, packed = small(net, **everything), batch(padding=0)
    made, labels = started(model), len(batch().labelled())
    with FlopCounterMode(display=False) as counter:
        loss(made, packed, model, 99).backward()
    matrices = sum(many for name, many in counter.get_flop_counts()["Global"].items() if "scaled_dot" not in str(name))
    assert recorded_calls(model, 99) == calls(model)
    prefixes = packed.prefixes if model.attention == "prefixlm" else (0, 0, 0)
    pairs = cost._pairs(packed.starts, prefixes)
    attention = sum(
        12 * stack.layers * stack.width * calls(model)[letter] * pairs for letter, stack in stacks(model).items()
    )
    assert cost.flops(model, VOCABULARY, packed.starts, packed.prefixes, labels, 99) == matrices + attention


@pytest.mark.parametrize("net", ["transformer", "hrm", "llama"])
def test_what_blocks_keep_for_their_gradients_is_about_what_is_estimated(net: str) -> None:
    model = ModelSettings.for_net(net, layers=2, width=64, heads=2)
    packed, kept = batch((60, 61, 64), (20, 20, 20), padding=0), {}
    made = started(model)
    weights = {parameter.data_ptr() for parameter in made.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (tensor, storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run(made, packed, model, model.bp_max)
    found = sum(size for _, size in kept.values())
    estimated = cost.memory(model, VOCABULARY, packed.slots, 0) - cost.memory(model, VOCABULARY, 0, 0)
    assert found == pytest.approx(estimated, rel=0.2)
