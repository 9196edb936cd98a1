"""``python -m components.mix``, and its commands ``preview``, ``export`` and ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.mix.core import Mix
from components.mix.export import ExportConfig, export
from components.mix.preview import PreviewConfig, preview
from components.mix.settings import MixSettings
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import main, settings_command

COMMANDS = {
    "preview": Command(PreviewConfig, preview),
    "export": Command(ExportConfig, export),
    "settings": settings_command(MixSettings),
}

if __name__ == "__main__":
    raise SystemExit(main(Mix(), COMMANDS))
