"""``pairmill mix``, and its commands ``preview``, ``export`` and ``settings``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import settings_command
from pairmill.mixture.settings import MixSettings
from pairmill.stages.mix.core import Mix
from pairmill.stages.mix.export import ExportConfig, export
from pairmill.stages.mix.preview import PreviewConfig, preview

COMMANDS = {
    "preview": Command(PreviewConfig, preview),
    "export": Command(ExportConfig, export),
    "settings": settings_command(MixSettings),
}

main = partial(stagecli.main, Mix(), commands=COMMANDS)
