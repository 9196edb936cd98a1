"""Nets: initial weights, who learns from what, gradients of the embedding, precision."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pairmill.nets import rope
from pairmill.nets.attention import sees
from pairmill.nets.batch import Packed
from pairmill.nets.builder import build
from pairmill.nets.initial import draw, initialise
from pairmill.nets.net import Net
from pairmill.nets.settings import NETS, ModelSettings, Override
from pairmill.nets.shape import calls, reaches_embedding, stacks

VOCABULARY = 32
SMALL: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_width": 16}


def small(net: str, **values: Any) -> ModelSettings:
    return ModelSettings.for_net(net, **{**SMALL, **values})  # type: ignore[arg-type]


def started(model: ModelSettings, seed: int = 1) -> Net:
    net = build(model, VOCABULARY, 64)
    initialise(net, seed)
    return net


def batch(lengths: tuple[int, ...] = (7, 1, 9), prefixes: tuple[int, ...] = (4, 1, 3), padding: int = 3) -> Packed:
    generator, starts = torch.Generator().manual_seed(3), [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    slots = starts[-1] + padding
    positions = torch.cat([torch.arange(length) for length in (*lengths, padding)])
    inputs, labels = (torch.randint(1, VOCABULARY, (slots,), generator=generator) for _ in range(2))
    inputs[starts[-1] :], labels[starts[-1] :] = 0, -100
    return Packed(inputs, positions, labels, tuple(starts), prefixes)


def run(net: Net, packed: Packed, model: ModelSettings, steps: int | None = None) -> Tensor:
    return net(packed, sees(packed, causal=model.causal), steps)


def loss(net: Net, packed: Packed, model: ModelSettings, steps: int | None = None) -> Tensor:
    at = packed.labelled()
    return functional.cross_entropy(net.logits(run(net, packed, model, steps)[at]), packed.labels[at])


# Initial weights


def test_a_weight_follows_from_the_seed_and_its_name_alone() -> None:
    deep, shallow = started(small("transformer", layers=4)), started(small("transformer"))
    names = dict(shallow.named_parameters())
    same = [name for name, tensor in deep.named_parameters() if name in names and torch.equal(tensor, names[name])]
    assert same == list(names)
    assert len({tensor.flatten()[0].item() for tensor in deep.parameters()}) == len(list(deep.parameters()))
    other = dict(started(small("transformer"), seed=2).named_parameters())
    assert not any(torch.equal(tensor, other[name]) for name, tensor in names.items())


def test_building_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    for net in NETS:
        started(small(net))
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_do_not_change_with_versions() -> None:
    drawn = draw(1, "lm_head.weight", torch.Size((4, 8)), wrapped=True)
    right = torch.tensor([-0.7809, -1.3567, -0.0286, -1.2776, 0.0218, 0.1434, 1.2513, 1.7973])
    torch.testing.assert_close(drawn[0], right, rtol=0, atol=1e-4)


def test_a_rank_keeps_its_rows_of_the_whole_tensor() -> None:
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    model = small("hrm")
    whole = started(model).state_dict()
    init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    try:
        mesh = init_device_mesh("cpu", (3,))
        with torch.device("meta"):
            net = build(model, VOCABULARY, 64)
        for block in net.blocks():
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh).to_empty(device="cpu")
        initialise(net, seed=1)
        state = net.state_dict()
    finally:
        destroy_process_group()
    sharded = {name for name, tensor in state.items() if hasattr(tensor, "to_local")}
    assert sharded == {name for name, _ in net.named_parameters()}
    for name, tensor in state.items():
        mine, right = (tensor.to_local(), whole[name].chunk(3)[1]) if name in sharded else (tensor, whole[name])
        assert torch.equal(mine, right), name


def test_weights_may_be_of_another_type_and_the_first_state_is_always_bfloat16() -> None:
    net = build(small("hrm"), VOCABULARY, 64)
    initialise(net, seed=1, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in net.parameters()} == {torch.bfloat16}
    full = started(small("hrm"))
    assert {parameter.dtype for parameter in full.parameters()} == {torch.float32}
    assert full.get_buffer("model.zL_init").dtype == net.get_buffer("model.zL_init").dtype == torch.bfloat16
    assert torch.equal(net.lm_head.weight, full.lm_head.weight.to(torch.bfloat16))


def test_llama_begins_with_a_plain_normal_and_ones() -> None:
    net = build(ModelSettings.for_net("llama", layers=2, width=64, heads=2, qk_norm=True), 4096, 64)
    initialise(net, seed=1)
    drawn = net.state_dict()
    assert float(drawn["token_embedding.embedding.weight"].std()) == pytest.approx(0.02, rel=0.01)
    assert float(drawn["token_embedding.embedding.weight"].abs().max()) > 3.5 * 0.02
    assert float(drawn["layers.0.mlp.down_proj.weight"].std()) == pytest.approx(0.01, rel=0.05)
    assert torch.equal(drawn["layers.1.attention.k_norm.weight"], torch.ones(32))


# Which gradients there are


@pytest.mark.parametrize("net", NETS)
def test_by_default_the_embedding_learns_at_every_step(net: str) -> None:
    model = small(net)
    made = started(model)
    loss(made, batch(), model, model.bp_min if net == "hrm" else None).backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


RECURRENT = {
    "hrm": [{}, {"H_cycles": 1}, {"H_cycles": 3, "L_cycles": 1}],
    "trm": [{"H_bp_steps": 1}, {}, {"H_cycles": 3, "H_bp_steps": 2}, {"H_cycles": 1, "H_bp_steps": 1, "L_bp_steps": 0}],
    "trm_match_recurrence": [{}],
    "rins": [{}, {"L_bp_cycles": 0}],
    "ut": [{}, {"bp_cycles": 1}],
}


@pytest.mark.parametrize(("net", "values"), [(net, values) for net, every in RECURRENT.items() for values in every])
def test_whether_the_embedding_has_a_gradient_is_known_before(net: str, values: dict[str, int]) -> None:
    model = small(net, **values)
    found = {}
    for steps in range(1, 7) if net == "hrm" else (None,):
        made = started(model)
        value = loss(made, batch(), model, steps)
        value.backward()
        gradient = next(tensor for name, tensor in made.named_parameters() if "embed_tokens" in name).grad
        assert (gradient is not None) == reaches_embedding(model, steps), steps
        found[steps] = float(value.detach())
    assert len(set(found.values())) == 1  # the loss does not depend on what is differentiated


@pytest.mark.parametrize("net", NETS)
def test_attention_is_called_for_each_block_and_call_in_the_same_order(net: str) -> None:
    model, packed = small(net), batch()
    made, attend, shapes = started(model), sees(packed), []

    def counted(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        shapes.append(tuple(query.shape))
        return attend(query, key, value)

    with torch.no_grad():
        made(packed, counted)
    layers = {letter: stack.layers for letter, stack in stacks(model).items()}
    assert len(shapes) == sum(many * layers[letter] for letter, many in calls(model).items())


# Who learns from what


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("attention", ["prefixlm", "causal"])
def test_a_slot_depends_on_what_it_sees_and_on_nothing_else(net: str, attention: str) -> None:
    model, packed = small(net, attention=attention), batch()
    made = started(model)
    with torch.no_grad():
        before = made.logits(run(made, packed, model))
        for changed in range(packed.slots):
            inputs = packed.inputs.clone()
            inputs[changed] = (inputs[changed] + 1) % VOCABULARY
            after = made.logits(run(made, replace(packed, inputs=inputs), model))
            differ = ((after - before).abs().amax(1) > 1e-6).nonzero().flatten().tolist()
            right = [changed] if changed >= packed.tokens else []
            for start, end, prefix in zip(packed.starts, packed.starts[1:], packed.prefixes, strict=False):
                if start <= changed < end:
                    first = start if attention == "prefixlm" and changed < start + prefix else changed
                    right = list(range(first, end))
            assert differ == right, changed


def test_slots_after_the_last_row_have_no_part_in_any_gradient() -> None:
    model, packed = small("hrm"), batch()
    made = started(model)
    loss(made, packed, model, 5).backward()
    embedding = made.embed_tokens.embedding_weight.grad
    assert not (packed.inputs[: packed.tokens] == 0).any()
    assert not embedding[0].any()
    assert embedding[packed.inputs[0]].any()


@pytest.mark.parametrize("net", ["hrm", "llama"])
def test_a_rank_without_a_row_has_gradients_of_nothing(net: str) -> None:
    model, empty = small(net), batch((), (), padding=4)
    made = started(model)
    at = empty.labelled()
    functional.cross_entropy(made.logits(run(made, empty, model, 5)[at]), empty.labels[at], reduction="sum").backward()
    assert all(not parameter.grad.any() for parameter in made.parameters())


# Batches


def test_a_batch_of_the_loader_is_packed_as_it_is() -> None:
    tensors = {
        "inputs": torch.tensor([5, 6, 7, 8, 0, 0], dtype=torch.int32),
        "labels": torch.tensor([-100, 7, -100, 9, -100, -100], dtype=torch.int32),
        "position_ids": torch.tensor([0, 1, 0, 1, 0, 0], dtype=torch.int32),
        "prefix_lens": torch.tensor([1, 2, 0, 0, 0, 0], dtype=torch.int32),
        "cu_seqlens": torch.tensor([0, 2, 4, 0, 0, 0], dtype=torch.int32),
    }
    packed = Packed.from_rows(tensors, {"numseqs": 2})
    assert (packed.starts, packed.prefixes, packed.rows, packed.tokens, packed.slots) == ((0, 2, 4), (1, 2), 2, 4, 6)
    assert packed.labelled().tolist() == [1, 3]
    assert {packed.inputs.dtype, packed.labels.dtype, packed.positions.dtype} == {torch.int64}
    assert packed.to("cpu").starts == packed.starts


def test_a_document_of_a_window_is_a_row_and_positions_run_over_the_window() -> None:
    ids = torch.arange(8).view(2, 4)
    packed = Packed.from_windows(ids, ids + 1, torch.tensor([[0, 0, 1, 1], [1, 1, 1, 2]]))
    assert packed.starts == (0, 2, 4, 7, 8)
    assert packed.prefixes == (0, 0, 0, 0)
    assert packed.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert Packed.from_windows(ids, ids + 1).starts == (0, 4, 8)


# Precision


def test_angles_are_float32_where_the_net_is_not() -> None:
    positions, generator = torch.arange(3000, 3004), torch.Generator().manual_seed(1)
    x = torch.randn(4, 2, 16, generator=generator).to(torch.bfloat16)
    cos, sin = rope.angles(positions, 16, 10_000.0)
    assert cos.dtype == sin.dtype == torch.float32
    right = rope.rotate(x.float(), cos, sin).to(torch.bfloat16)
    assert torch.equal(rope.rotate(x, cos, sin), right)


@pytest.mark.parametrize("net", NETS)
def test_a_net_in_bfloat16_gives_float32_logits_near_those_of_float32(net: str) -> None:
    model, packed = small(net), batch()
    full, half = started(model), build(model, VOCABULARY, 64)
    initialise(half, seed=1, dtype=torch.bfloat16)
    with torch.no_grad():
        right = full.logits(run(full, packed, model))
        y = run(half, packed, model)
        logits = half.logits(y)
    assert (y.dtype, logits.dtype) == (torch.bfloat16, torch.float32)
    assert float((logits - right).norm() / right.norm()) < 0.05


def test_blocks_of_the_h_stack_may_differ() -> None:
    model = small("hrm", layers=4, H_override=Override(layers=1, heads=4, norm="post", expansion=2.0, rope_base=500.0))
    shapes = stacks(model)
    assert (shapes["L"].layers, shapes["L"].heads, shapes["L"].norm, shapes["L"].feed) == (2, 2, "pre", 16)
    assert (shapes["H"].layers, shapes["H"].heads, shapes["H"].norm, shapes["H"].feed) == (1, 4, "post", 256)
    made = started(model)
    assert len(made.blocks()) == 3
    assert sum(parameter.numel() for parameter in made.parameters()) == 2 * VOCABULARY * 16 + sum(
        shape.layers * shape.block_parameters for shape in shapes.values()
    )
    loss(made, batch(), model, 3).backward()


def test_a_compiled_net_is_not_compiled_again_for_other_rows() -> None:
    from torch._dynamo.testing import CompileCounter

    model, counter = small("transformer", layers=1), CompileCounter()
    made = started(model)
    compiled = torch.compile(made, backend=counter)
    found = []
    for packed in (batch(), batch((9, 8), (3, 3)), batch((5, 5, 5), (2, 2, 2), padding=5)):
        with torch.no_grad():
            assert torch.equal(compiled(packed, sees(packed)), run(made, packed, model))
        found.append(counter.frame_count)
    assert found[0] == found[2] > 0
