"""``pairmill evaluate``, and its command ``settings``."""

from functools import partial

from pairmill.evaluation.settings import EvaluateSettings
from pairmill.interface import stagecli
from pairmill.interface.stagecli import settings_command
from pairmill.stages.evaluate.core import Evaluate

main = partial(stagecli.main, Evaluate(), commands={"settings": settings_command(EvaluateSettings)})
