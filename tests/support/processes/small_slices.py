"""``python -m tests.support.processes.small_slices …``: ``tokenize`` that cuts files of 40 kB."""

import sys

from pairmill.formats.slices import Slicing
from pairmill.stages.tokenize import command, core

if __name__ == "__main__":
    core.SLICING = Slicing(20_000, 0, 40_000)
    sys.exit(command.main(sys.argv[1:]))
