"""``pairmill sample``, and its commands ``preview``, ``inspect``, ``verify``, ``wait``, ``serve`` and ``prepare``."""

import os
from collections.abc import Sequence
from typing import Final

# A sample multiplies no matrices, and numpy's threads for that wait for work by turning: a tenth of a start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pairmill.interface import cli
from pairmill.interface.cli import Command
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.folder import NAME

_HERE: Final = "pairmill.stages.sample"
RUN: Final = f"{_HERE}.run:run"
COMMANDS: Final = {
    name: Command(f"{_HERE}.{config}", f"{_HERE}.{function}")
    for name, config, function in (
        ("preview", "preview.config:PreviewConfig", "preview.command:preview"),
        ("inspect", "inspect.config:InspectConfig", "inspect.command:inspect"),
        ("inventory", "inventory.config:InventoryConfig", "inventory.command:inventory"),
        ("map", "mapped.config:MapConfig", "mapped.command:map_folder"),
        ("exposure", "exposure.config:ExposureConfig", "exposure.command:exposure"),
        ("verify", "node.verify:VerifyConfig", "node.verify:verify"),
        ("wait", "node.wait:WaitConfig", "node.wait:wait"),
        ("serve", "node.serve:ServeConfig", "node.serve:serve"),
        ("prepare", "node.prepare:PrepareConfig", "node.prepare:prepare"),
    )
}
"""What the program does when its first argument is one of these words."""


def main(arguments: Sequence[str]) -> int:
    """Run the stage or one of its commands; return the exit code."""
    return cli.main(NAME, SampleConfig, RUN, arguments, COMMANDS)
