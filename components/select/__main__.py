"""``python -m components.select``, and its command ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.select.core import Select
from components.select.settings import Settings
from pairmill.interface.stagecli import main, settings_command

COMMANDS = {"settings": settings_command(Settings)}

if __name__ == "__main__":
    raise SystemExit(main(Select(), COMMANDS))
