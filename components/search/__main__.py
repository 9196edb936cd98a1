"""``python -m components.search``, and its command ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.search.core import Search
from components.search.settings import SearchSettings
from pairmill.interface.stagecli import main, settings_command

COMMANDS = {"settings": settings_command(SearchSettings)}

if __name__ == "__main__":
    raise SystemExit(main(Search(), COMMANDS))
