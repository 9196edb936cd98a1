"""``pairmill fetch``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.stages.fetch.core import Fetch

main = partial(stagecli.main, Fetch())
