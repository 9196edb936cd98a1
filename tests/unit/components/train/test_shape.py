"""Stacks and calls of every net, without torch."""

import pytest

from components.train.settings import ModelSettings, Override
from components.train.shape import SHIPPED, SIZES, calls, reaches_embedding, recorded, recorded_calls, stacks


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_have_heads_of_128(size: str) -> None:
    stack = stacks(ModelSettings.of("transformer", size=size))["H"]
    assert (stack.layers, stack.width, stack.heads) == SIZES[size]
    assert stack.head_width == 128
    assert stack.feed % 256 == 0


def test_halves_and_overrides() -> None:
    model = ModelSettings.of("hrm", layers=8, feed_width=100, H_override=Override(layers=3, expansion=6.5, norm="post"))
    low, high = stacks(model)["L"], stacks(model)["H"]
    assert (low.layers, low.feed, low.norm) == (4, 100, "pre")
    assert (high.layers, high.feed, high.norm) == (3, 768, "post")  # 6.5 · 128 · 2/3 = 555
    assert list(stacks(ModelSettings.of("ut"))) == list(stacks(ModelSettings.of("trm"))) == ["L"]
    assert stacks(ModelSettings.of("rins", layers=8))["H"].layers == 4


def test_the_calls_that_are_differentiated() -> None:
    hrm = ModelSettings.of("hrm")
    found = [tuple(recorded(hrm, steps)) for steps in (1, 2, 3, 4, 5, 8, 99)]
    assert found == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (2, 6), (2, 6)]
    assert recorded(hrm) == recorded(hrm, 2)
    assert calls(hrm) == {"L": 6, "H": 2}
    assert recorded_calls(ModelSettings.of("trm_match_recurrence")) == {"L": 5}
    assert recorded_calls(ModelSettings.of("rins")) == {"L": 4, "H": 1}
    assert recorded_calls(ModelSettings.of("ut", cycles=1)) == {"L": 1}


def test_by_default_every_net_reaches_its_embedding() -> None:
    for net in SHIPPED:
        model = ModelSettings.of(net)
        assert reaches_embedding(model, model.bp_min)
    published = ModelSettings.of("hrm", bp_min=2)
    assert not reaches_embedding(published, published.bp_min)
    assert not reaches_embedding(ModelSettings.of("trm", H_bp_steps=1))
    assert not reaches_embedding(ModelSettings.of("hrm", H_cycles=3), 3)
