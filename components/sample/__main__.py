"""``python -m components.sample``, and its commands ``inspect``, ``verify``, ``wait``, ``serve`` and ``prepare``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.sample.commands import COMMANDS
from components.sample.config import SampleConfig
from components.sample.node.folder import NAME
from components.sample.run import run
from pairmill.interface import cli

if __name__ == "__main__":
    raise SystemExit(cli.main(NAME, SampleConfig, run, commands=COMMANDS))
