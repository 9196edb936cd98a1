"""``python -m components.search``, and its command ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from dataclasses import dataclass

from components.search.core import Search
from components.search.settings import default_file
from pairmill.interface.cli import Command
from pairmill.interface.stagecli import main


@dataclass(kw_only=True)
class SettingsConfig:
    """Print search_config.yaml with all defaults, a comment on each line."""


COMMANDS = {"settings": Command(SettingsConfig, lambda _: default_file())}

if __name__ == "__main__":
    raise SystemExit(main(Search(), COMMANDS))
