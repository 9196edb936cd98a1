"""A step against the plain formula: every position, dense masks, one loss."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from pairmill.nets import attention
from pairmill.nets.batch import GlobalBatch, Microbatch, Packed
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.net import Net
from pairmill.nets.settings import ModelSettings
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.step import Stepper
from pairmill.training.optimizers.optimizer import Optimizer, make
from pairmill.training.settings import TrainSettings

V = 256


def rows(*lengths: tuple[int, int], seed: int = 0, padding: int = 3) -> Microbatch:
    """Rows of these (instruction, response) lengths, of sources 0, 1, 0, …, and some slots of padding."""
    draw = torch.Generator().manual_seed(seed)
    starts, prefixes, labels = [0], [], []
    for instruction, response in lengths:
        starts.append(starts[-1] + instruction + response - 1)
        prefixes.append(instruction)
        labels += [-100] * (instruction - 1) + torch.randint(0, V, (response,), generator=draw).tolist()
    slots = starts[-1] + padding
    sources = torch.tensor([number % 2 for number, (i, r) in enumerate(lengths) for _ in range(i + r - 1)])
    packed = Packed(
        inputs=torch.randint(0, V, (slots,), generator=draw),
        positions=torch.cat([*(torch.arange(i + r - 1) for i, r in lengths), torch.zeros(padding, dtype=torch.int64)]),
        labels=torch.tensor(labels + [-100] * padding),
        starts=tuple(starts),
        prefixes=tuple(prefixes),
    )
    return Microbatch(packed, functional.pad(sources, (0, padding)))


def batch(*micro: Microbatch, lr_scale: float = 1.0) -> GlobalBatch:
    tokens = sum(one.packed.tokens for one in micro)
    return GlobalBatch(micro, 0, "0", 0, lr_scale, sum(one.packed.rows for one in micro), tokens, tokens)


def settings(*more: str) -> TrainSettings:
    given = ["model.layers=1", "model.width=16", "model.heads=2", "schedule.warmup_steps=0", "schedule.shape=constant"]
    return TrainSettings.parse("", [*given, "optimizer.lr=0.01", *more])


def made(wanted: TrainSettings, net: Net | None = None) -> tuple[Net, Optimizer, Stepper]:
    if net is None:
        net = build(wanted.model, V, 32)
        initialise(net, 0)
    optimizer = make(wanted.optimizer, net.named_parameters())
    return (
        net,
        optimizer,
        Stepper(net, optimizer, wanted, total=10, ranks=Ranks(), path="rows", sources=("web", "code"), vocab_size=V),
    )


def entropies(net: Net, micro: Microbatch) -> torch.Tensor:
    """Of every position, [c]; 0 where nothing is labelled."""
    y = net(micro.packed, attention.sees(micro.packed))
    return functional.cross_entropy(net.logits(y), micro.packed.labels, reduction="none")


ALL = ((3, 4), (2, 6), (5, 2), (4, 1), (1, 7))


def gradients(patch: pytest.MonkeyPatch, stepper: Stepper, optimizer: Optimizer, given: GlobalBatch) -> dict[str, Any]:
    """Those that a step hands to the optimizer."""
    found: dict[str, Any] = {}

    def keep(lr: float) -> None:
        found.update({name: one.grad.clone() for name, one in optimizer.parameters.items() if one.grad is not None})
        found["lr"] = lr

    patch.setattr(optimizer, "step", keep)
    found["told"] = stepper.step(1, given)
    return found


def test_the_gradient_is_that_of_the_mean_over_labelled_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = rows(*ALL)
    net, optimizer, stepper = made(settings())
    found = gradients(monkeypatch, stepper, optimizer, batch(micro))
    losses = entropies(net, micro)
    labels = micro.packed.labels != -100
    (losses.sum() / labels.sum()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-6, rtol=1e-4)
    told = found["told"]
    assert told.loss == (pytest.approx(float(losses.detach().sum()), rel=1e-6), int(labels.sum()))
    norm = torch.stack([one.grad.norm() for one in net.parameters() if one.grad is not None]).norm()
    assert told.grad_norm == pytest.approx(float(norm), rel=1e-4)
    assert told.finite
    assert told.absent == ()
    source = micro.sources[: micro.packed.tokens]
    by = {
        name: (
            float(losses.detach()[: len(source)][source == at].sum()),
            int(labels[: len(source)][source == at].sum()),
        )
        for at, name in enumerate(("web", "code"))
    }
    for name, (loss, count) in by.items():
        assert told.sources[name][:2] == (pytest.approx(loss, rel=1e-6), count)
    assert [told.sources[name][2] for name in ("web", "code")] == [int((source == at).sum()) for at in (0, 1)]


def test_accuracies_are_those_of_rows_and_labels() -> None:
    micro = rows((3, 4), (2, 3), (4, 2))
    net, _, stepper = made(settings())
    with torch.no_grad():
        best = net.logits(net(micro.packed, attention.sees(micro.packed))).argmax(-1)
    # The second row is all right, of the first one label, of the third none.
    labels = micro.packed.labels.clone()
    starts = micro.packed.starts
    at = [slot for slot in range(starts[1], starts[2]) if labels[slot] != -100] + [starts[1] - 1]
    labels[at] = best[at]
    rest = [slot for slot in range(micro.packed.tokens) if labels[slot] != -100 and slot not in at]
    labels[rest] = (best[rest] + 1) % V
    told = stepper.step(1, batch(replace(micro, packed=replace(micro.packed, labels=labels))))
    assert told.accuracy == (4, 9)
    assert told.exact_accuracy == (1, 3)


@pytest.mark.parametrize("model", [(), ("model.net=hrm", "model.layers=2")], ids=["transformer", "hrm"])
def test_micro_batches_of_unequal_labels_give_the_same_gradient(
    monkeypatch: pytest.MonkeyPatch, model: tuple[str, ...]
) -> None:
    wanted = settings(*model)
    net, optimizer, stepper = made(wanted)
    whole = gradients(monkeypatch, stepper, optimizer, batch(rows(*ALL, seed=1)))
    packed = rows(*ALL, seed=1)
    parts = cut(packed, 1), cut(packed, 1, 4), cut(packed, 4, 5)
    assert len({int((one.packed.labels != -100).sum()) for one in parts}) == 3
    again = gradients(monkeypatch, stepper, optimizer, batch(*parts))
    for name, _ in net.named_parameters():
        torch.testing.assert_close(again[name], whole[name], atol=1e-6, rtol=1e-4)
    assert again["told"].loss == pytest.approx(whole["told"].loss, rel=1e-6)
    assert again["told"].exact_accuracy == whole["told"].exact_accuracy
    assert again["told"].flops == pytest.approx(whole["told"].flops)


def cut(micro: Microbatch, *rows: int) -> Microbatch:
    """Some rows of a batch, without padding."""
    first, end = rows if len(rows) == 2 else (0, rows[0])
    packed = micro.packed
    low, high = packed.starts[first], packed.starts[end]
    return Microbatch(
        Packed(
            packed.inputs[low:high],
            packed.positions[low:high],
            packed.labels[low:high],
            tuple(start - low for start in packed.starts[first : end + 1]),
            packed.prefixes[first:end],
        ),
        micro.sources[low:high],
    )


def test_the_head_runs_on_labelled_positions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = rows(*ALL)
    net, _, stepper = made(settings())
    seen, logits = [], net.logits
    monkeypatch.setattr(net, "logits", lambda y: (seen.append(len(y)), logits(y))[1])
    stepper.step(1, batch(micro))
    assert seen == [int((micro.packed.labels != -100).sum())]


def test_z_loss_is_over_labelled_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = rows(*ALL)
    net, optimizer, stepper = made(settings("training.z_loss=0.1"))
    found = gradients(monkeypatch, stepper, optimizer, batch(micro))
    labels = micro.packed.labels != -100
    logits = net.logits(net(micro.packed, attention.sees(micro.packed)))
    losses = functional.cross_entropy(logits, micro.packed.labels, reduction="none")
    ((losses.sum() + 0.1 * logits.logsumexp(-1).square()[labels].sum()) / labels.sum()).backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-6, rtol=1e-4)
    assert found["told"].loss[0] == pytest.approx(float(losses.detach().sum()), rel=1e-6)


def test_kempner_takes_the_mean_of_means_and_a_z_loss_of_all_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = settings("profile=kempner", "training.z_loss=0.1", "optimizer.clip=0")
    parts = [cut(rows(*ALL), 1), cut(rows(*ALL), 1, 5)]
    net, optimizer, stepper = made(wanted)
    found = gradients(monkeypatch, stepper, optimizer, batch(*parts))
    total = torch.zeros(())
    for micro in parts:
        logits = net.logits(net(micro.packed, attention.sees(micro.packed, causal=True)))
        mean = functional.cross_entropy(logits, micro.packed.labels)
        total = total + (mean + 0.1 * logits.logsumexp(-1).square().mean()) / 2
    total.backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-6, rtol=1e-4)


def test_clipping_and_the_rate_of_a_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = rows(*ALL)
    _, optimizer, stepper = made(settings("optimizer.clip=0.01"))
    found = gradients(monkeypatch, stepper, optimizer, batch(micro, lr_scale=0.25))
    assert found["lr"] == pytest.approx(0.0025)
    assert found["told"].lr == found["lr"]
    assert found["told"].grad_norm > 0.1
    norm = torch.stack([one.norm() for name, one in found.items() if isinstance(one, torch.Tensor)]).norm()
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_what_is_not_finite_changes_nothing() -> None:
    net, optimizer, stepper = made(settings())
    before = {name: one.detach().clone() for name, one in net.named_parameters()}
    with torch.no_grad():
        net.get_parameter("lm_head.weight")[0, 0] = float("inf")
        before["lm_head.weight"][0, 0] = float("inf")
    told = stepper.step(1, batch(rows(*ALL)))
    assert not told.finite
    assert set(optimizer.steps.values()) == {0}
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_absent_gradients_are_named() -> None:
    model = ModelSettings.for_net("hrm", layers=2, width=16, heads=2, bp_min=2, bp_max=2)
    wanted = replace(settings(), model=model)
    _, _, stepper = made(wanted)
    told = stepper.step(1, batch(rows(*ALL)))
    assert told.absent == ("embed_tokens.embedding_weight",)
    assert told.b == 2
