"""``pairmill clean``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.clean.config import CleanConfig

main = partial(cli.main, "clean", CleanConfig, "pairmill.stages.clean.core:Clean")
