"""What the defaults of profiles do to a net: which parameters learn from the first step."""

from typing import get_args

import pytest
import torch

from pairmill.nets.batch import GlobalBatch, Microbatch, Packed
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.settings import ModelSettings, NetName
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.step import Stepper
from pairmill.training.optimizers.optimizer import make
from pairmill.training.profiles import ProfileName
from pairmill.training.settings import TrainSettings, defaults


def absent(profile: ProfileName, net: NetName) -> tuple[str, ...]:
    """Parameters of a small net that have no gradient at the first step of a profile."""
    theirs = defaults(profile, net).model
    small = {"layers": 2, "width": 16, "heads": 2, "feed_width": 16}
    model = ModelSettings.for_net(net, **small, bp_min=theirs.bp_min, H_bp_steps=theirs.H_bp_steps)
    made = build(model, 256, 8)
    initialise(made, 1)
    settings = TrainSettings(model=model)
    optimizer = make(settings.optimizer, made.named_parameters())
    stepper = Stepper(
        made, optimizer, settings, total=100, ranks=parallel.start("cpu"), path="rows", sources=("all",), vocab_size=256
    )
    packed = Packed.from_windows(torch.arange(8).view(1, 8), torch.arange(1, 9).view(1, 8))
    micro = Microbatch(packed, torch.zeros(8, dtype=torch.int64))
    return stepper.step(1, GlobalBatch((micro,), 0, "0", 0, 1.0, 1, 8, 8)).absent


@pytest.mark.parametrize("net", get_args(NetName))
def test_every_parameter_learns_from_the_first_step_by_default(net: NetName) -> None:
    assert absent("pairmill", net) == ()
    waits = ("embed_tokens.embedding_weight",) if net in ("hrm", "trm") else ()
    assert absent("hrm_text", net) == waits
