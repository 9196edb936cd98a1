"""``pairmill fetch``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.fetch.config import FetchConfig

main = partial(cli.main, "fetch", FetchConfig, "pairmill.stages.fetch.core:Fetch")
