"""What the defaults of profiles do to a net: which parameters learn from the first step."""

from typing import get_args

import pytest
import torch

from pairmill.stages.train import parallel
from pairmill.stages.train.batch import Packed
from pairmill.stages.train.data.feed import GlobalBatch, Microbatch
from pairmill.stages.train.nets import build, initialise
from pairmill.stages.train.optimizers import make
from pairmill.stages.train.settings import ModelSettings, NetName, ProfileName, TrainSettings, defaults
from pairmill.stages.train.step import Stepper


def absent(profile: ProfileName, net: NetName) -> tuple[str, ...]:
    """Parameters of a small net that have no gradient at the first step of a profile."""
    theirs = defaults(profile, net).model
    small = {"layers": 2, "width": 16, "heads": 2, "feed_width": 16}
    model = ModelSettings.of(net, **small, bp_min=theirs.bp_min, H_bp_steps=theirs.H_bp_steps)
    made = build(model, 256, 8)
    initialise(made, 1)
    settings = TrainSettings(model=model)
    optimizer = make(settings.optimizer, made.named_parameters())
    stepper = Stepper(made, optimizer, settings, 100, parallel.start("cpu"), "rows", ("all",), 256)
    packed = Packed.of_windows(torch.arange(8).view(1, 8), torch.arange(1, 9).view(1, 8))
    micro = Microbatch(packed, torch.zeros(8, dtype=torch.int64))
    return stepper.step(1, GlobalBatch((micro,), 0, "0", 0, 1.0, 1, 8, 8, 0.0)).absent


@pytest.mark.parametrize("net", get_args(NetName))
def test_every_parameter_learns_from_the_first_step_by_default(net: NetName) -> None:
    assert absent("pairmill", net) == ()
    waits = ("embed_tokens.embedding_weight",) if net in ("hrm", "trm") else ()
    assert absent("hrm_text", net) == waits
