"""``pairmill train``, and its commands ``generate``, ``export``, ``check`` and ``settings``."""

import atexit
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass

from pairmill.engine.candidates import with_left_out
from pairmill.engine.options import option
from pairmill.errors import StageFailure
from pairmill.extras import require
from pairmill.interface import cli, stagecli
from pairmill.interface.cli import Command, Outcome
from pairmill.interface.parent import end_with_parent
from pairmill.nets.settings import NetName, SizeName
from pairmill.stages.train import launch
from pairmill.stages.train.check import CheckConfig, check
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train, follow
from pairmill.stages.train.export.command import ExportConfig, export
from pairmill.stages.train.generate import GenerateConfig, generate
from pairmill.training.profiles import ProfileName
from pairmill.training.settings import default_file


@dataclass(kw_only=True)
class SettingsConfig:
    """Print configs/train_config.yaml with all defaults, a comment on each line."""

    profile: ProfileName = option("pairmill", help="whose defaults: pairmill, or a reference's")
    net: NetName = option("transformer", help="the net")
    size: SizeName = option("none", help="a published size")


COMMANDS = {
    "generate": Command(GenerateConfig, generate),
    "export": Command(ExportConfig, export),
    "check": Command(CheckConfig, check),
    "settings": Command(SettingsConfig, lambda asked: default_file(asked.profile, asked.net, asked.size)),
}


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


def main(arguments: Sequence[str]) -> int:
    """Be the stage, or one of its commands, or another rank than 0 of a run; return the exit code."""
    # Threads of torch that wait for each other spin: beside other programs on two cores a step took nine times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    atexit.register(gc.unfreeze)
    end_with_parent()
    if launch.rank() and arguments[:1] and arguments[0] not in COMMANDS:
        return cli.program(
            "train",
            TrainConfig,
            arguments,
            lambda: follow(cli.build(TrainConfig, with_left_out("train", TrainConfig, cli.split(arguments)))),
        )
    return cli.main("train", TrainConfig, run, arguments, COMMANDS)
