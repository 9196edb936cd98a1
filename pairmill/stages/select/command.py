"""``pairmill select``, and its command ``settings``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.select.core import Select
from pairmill.stages.select.settings import Settings

main = partial(stagecli.main, Select(), commands={"settings": settings_command(Settings)})
