"""``pairmill clean``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.stages.clean.core import Clean

main = partial(stagecli.main, Clean())
