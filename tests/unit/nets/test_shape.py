"""Stacks and calls of every net, without torch."""

from dataclasses import replace
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.nets.settings import NETS, SIZES, ModelSettings, Override
from pairmill.nets.shape import calls, reaches_embedding, recorded, recorded_calls, stacks


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_have_heads_of_128(size: str) -> None:
    stack = stacks(ModelSettings.for_net("transformer", size=size))["H"]
    assert (stack.layers, stack.width, stack.heads) == SIZES[size]
    assert stack.head_width == 128
    assert stack.feed % 256 == 0


def test_halves_and_overrides() -> None:
    model = ModelSettings.for_net(
        "hrm", layers=8, feed_width=100, H_override=Override(layers=3, expansion=6.5, norm="post")
    )
    low, high = stacks(model)["L"], stacks(model)["H"]
    assert (low.layers, low.feed, low.norm) == (4, 100, "pre")
    assert (high.layers, high.feed, high.norm) == (3, 768, "post")  # 6.5 · 128 · 2/3 = 555
    assert list(stacks(ModelSettings.for_net("ut"))) == list(stacks(ModelSettings.for_net("trm"))) == ["L"]
    assert stacks(ModelSettings.for_net("rins", layers=8))["H"].layers == 4


def test_a_net_that_is_added_is_halved_only_if_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry of the registry is all that a new net takes: no list of names elsewhere knows it."""
    monkeypatch.setitem(NETS, "once_more", replace(NETS["ut"], defaults={"cycles": 3}))
    monkeypatch.setitem(NETS, "two_more", replace(NETS["rins"], defaults={}))
    new: Any = "once_more"
    with pytest.raises(UsageError, match="half_layers: this net has one stack; got once_more"):
        ModelSettings.for_net(new, layers=8, half_layers=True)
    model = ModelSettings.for_net(new, layers=8)
    assert (stacks(model)["L"].layers, calls(model)) == (8, {"L": 3})
    two: Any = "two_more"
    assert [stack.layers for stack in stacks(ModelSettings.for_net(two, layers=8, half_layers=True)).values()] == [4, 4]


@pytest.mark.parametrize("net", NETS)
def test_a_net_of_two_stacks_may_be_halved_and_one_that_was_published_so_is(net: Any) -> None:
    kind = NETS[net]
    assert kind.halves or (len(kind.stacks) == 1 and "half_layers" not in kind.defaults)
    if kind.halves:
        halved = stacks(ModelSettings.for_net(net, layers=8, half_layers=True))
        assert {stack.layers for stack in halved.values()} == {4}


def test_the_calls_that_are_differentiated() -> None:
    hrm = ModelSettings.for_net("hrm")
    found = [tuple(recorded(hrm, steps)) for steps in (1, 2, 3, 4, 5, 8, 99)]
    assert found == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (2, 6), (2, 6)]
    assert recorded(hrm) == recorded(hrm, 2)
    assert calls(hrm) == {"L": 6, "H": 2}
    assert recorded_calls(ModelSettings.for_net("trm_match_recurrence")) == {"L": 5}
    assert recorded_calls(ModelSettings.for_net("rins")) == {"L": 4, "H": 1}
    assert recorded_calls(ModelSettings.for_net("ut", cycles=1)) == {"L": 1}


def test_by_default_every_net_reaches_its_embedding() -> None:
    nets: tuple[Any, ...] = tuple(NETS)
    for net in nets:
        model = ModelSettings.for_net(net)
        assert reaches_embedding(model, model.bp_min)
    published = ModelSettings.for_net("hrm", bp_min=2)
    assert not reaches_embedding(published, published.bp_min)
    assert not reaches_embedding(ModelSettings.for_net("trm", H_bp_steps=1))
    assert not reaches_embedding(ModelSettings.for_net("hrm", H_cycles=3), 3)
