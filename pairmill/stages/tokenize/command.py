"""``pairmill tokenize``, and its commands ``union`` and ``diff``."""

from collections.abc import Sequence

from pairmill.interface import cli
from pairmill.interface.cli import Command, Outcome
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.unions import DiffConfig, UnionConfig, show_diff, show_union

COMMANDS = {"union": Command(UnionConfig, show_union), "diff": Command(DiffConfig, show_diff)}


def main(arguments: Sequence[str]) -> int:
    """Run the stage, or the command that the first argument names; return the exit code."""
    return cli.main("tokenize", TokenizeConfig, _run, arguments, COMMANDS)


def _run(config: TokenizeConfig) -> Outcome:
    # Imported here: the commands encode nothing, and start in a third of the time.
    from pairmill.interface import stagecli
    from pairmill.stages.tokenize.core import Tokenize

    return stagecli.run(Tokenize(), config)
