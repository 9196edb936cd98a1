"""``pairmill stage search``, and its command ``settings``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.search.core import Search
from pairmill.stages.search.settings import SearchSettings

main = partial(stagecli.main, Search(), commands={"settings": settings_command(SearchSettings)})
