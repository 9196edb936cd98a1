"""Options of the select stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.formats import settings_file
from pairmill.rowstage import RowConfig
from pairmill.stages.select.settings import Settings


@dataclass(kw_only=True)
class SelectConfig(RowConfig):
    """Choose the rows worth training on, by target texts, by attributes, or by both."""

    select_config: str = option(
        settings_file.DEFAULT,
        help="which rows are chosen, as a YAML file; default = what is built in, as in configs/select_config.yaml",
        changes_bytes=False,  # the plan says it by content
    )
    seed: int = option(0, help="of all draws: another seed draws other rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rows and not self.tokenized:
            raise UsageError("required option missing", where="rows", expected="rows=…")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError("out of range", where="seed", got=str(self.seed), expected="0 to 2**64 - 1")

    @cached_property
    def settings(self) -> Settings:
        """What the file says; read once."""
        return Settings.load(self.select_config)

    @property
    def is_off(self) -> bool:
        return self.profile == "data_io" or self.settings.method == "off"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "settings"}
