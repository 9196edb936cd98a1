"""``pairmill stage compare``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.compare.config import CompareConfig

main = partial(cli.main, "compare", CompareConfig, "pairmill.stages.compare.core:Compare")
