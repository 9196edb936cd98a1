"""``pairmill stage compare``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.stages.compare.core import Compare

main = partial(stagecli.main, Compare())
