"""``pairmill curate``, and its commands ``explain``, ``show``, ``settings`` and ``train_classifier``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import settings_command
from pairmill.stages.curate.core import Curate
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.show import ShowConfig, show
from pairmill.stages.curate.train_classifier import TrainConfig, train

COMMANDS = {
    "explain": Command(ExplainConfig, explain),
    "show": Command(ShowConfig, show),
    "settings": settings_command(Settings),
    "train_classifier": Command(TrainConfig, train),
}

main = partial(stagecli.main, Curate(), commands=COMMANDS)
