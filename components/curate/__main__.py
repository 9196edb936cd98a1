"""``python -m components.curate``, and its commands ``explain``, ``show``, ``settings`` and ``train_classifier``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.curate.core import Curate
from components.curate.explain import ExplainConfig, explain
from components.curate.settings import Settings
from components.curate.show import ShowConfig, show
from components.curate.train_classifier import TrainConfig, train
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import main, settings_command

COMMANDS = {
    "explain": Command(ExplainConfig, explain),
    "show": Command(ShowConfig, show),
    "settings": settings_command(Settings),
    "train_classifier": Command(TrainConfig, train),
}

if __name__ == "__main__":
    raise SystemExit(main(Curate(), COMMANDS))
