"""``python -m components.evaluate``, and its command ``settings``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.evaluate.core import Evaluate
from components.evaluate.settings import EvaluateSettings
from pairmill.interface.stagecli import main, settings_command

COMMANDS = {"settings": settings_command(EvaluateSettings)}

if __name__ == "__main__":
    raise SystemExit(main(Evaluate(), COMMANDS))
