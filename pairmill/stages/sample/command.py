"""``pairmill sample``, and its commands ``preview``, ``inspect``, ``verify``, ``wait``, ``serve`` and ``prepare``."""

import os
from collections.abc import Sequence

# A sample multiplies no matrices, and numpy's threads for that wait for work by turning: a tenth of a start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pairmill.interface import cli
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.run import COMMANDS, run


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return cli.main(NAME, SampleConfig, run, arguments, COMMANDS)
