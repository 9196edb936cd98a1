"""The stage as rank 0 of a run: it plans, trains with the other ranks, and ends them."""

from pairmill.errors import StageFailure
from pairmill.extras import require
from pairmill.interface import stagecli
from pairmill.interface.cli import Outcome
from pairmill.stages.train import launch
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train


def run(config: TrainConfig) -> Outcome:
    """Run the stage as rank 0."""
    require("train", "torch", "safetensors", where="train")
    group = launch.Group(config)
    failed = True
    try:
        outcome = stagecli.run(Train(group), config)
        failed = False
    except StageFailure as failure:  # its one shard is all there is
        raise failure.failures[0][1] from None
    except SystemExit:  # stopped by a signal: all ranks are
        failed = False
        raise
    finally:
        group.end(failed=failed)
    return outcome
