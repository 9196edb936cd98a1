"""``python -m components.mix``, and its commands ``preview``, ``export`` and ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from dataclasses import dataclass

from components.mix.core import Mix
from components.mix.export import ExportConfig, export
from components.mix.preview import PreviewConfig, preview
from components.mix.settings import default_file
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import main


@dataclass(kw_only=True)
class SettingsConfig:
    """Print mix_config.yaml with all defaults, a comment on each line."""


COMMANDS = {
    "preview": Command(PreviewConfig, preview),
    "export": Command(ExportConfig, export),
    "settings": Command(SettingsConfig, lambda _: default_file()),
}

if __name__ == "__main__":
    raise SystemExit(main(Mix(), COMMANDS))
