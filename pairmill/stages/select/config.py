"""Options of the select stage."""

from dataclasses import dataclass
from functools import cached_property

from pairmill.engine.options import RowConfig, option
from pairmill.formats import settings_file
from pairmill.stages.select.settings import Settings


@dataclass(kw_only=True)
class SelectConfig(RowConfig, any_of=("rows", "tokenized")):
    """Choose the rows worth training on, by target texts, by attributes, or by both."""

    select_config: str = option(
        settings_file.DEFAULT,
        help="which rows are chosen, as a YAML file; default = what is built in, as in configs/select_config.yaml",
        changes_bytes=False,  # the plan says it by content
    )
    seed: int = option(0, help="of all draws: another seed draws other rows", at_least=0)

    @cached_property
    def settings(self) -> Settings:
        """The settings of the file; read once."""
        return Settings.load(self.select_config)

    @property
    def is_off(self) -> bool:
        return self.profile == "data_io" or self.settings.method == "off"
