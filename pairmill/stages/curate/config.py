"""Options of the curate stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pairmill.engine.options import RowConfig, option
from pairmill.formats import settings_file

if TYPE_CHECKING:
    from pairmill.stages.curate.settings import Settings


@dataclass(kw_only=True)
class CurateConfig(RowConfig, any_of=("rows", "tokenized")):
    """Find and remove duplicates, leaks of benchmarks and poor rows."""

    curate_config: str = option(
        settings_file.DEFAULT,
        help="what each operation does, as a YAML file; default = what is built in, as in configs/curate_config.yaml",
        changes_bytes=False,  # the plan says it by content
    )
    index: str = option(
        "",
        help="finished folder of an earlier run with an index/: its rows rank before all of these, and stay",
        changes_bytes=False,
    )
    write_index: bool = option(False, help="write index/ for the index= of a later run", changes_bytes=False)
    raw: str = option(
        "",
        help="what fetch printed: where the withheld splits of our own sources are that decontaminate.withheld names",
        changes_bytes=False,
    )

    @property
    def is_off(self) -> bool:
        return self.profile == "data_io" or self.settings.is_idle

    @cached_property
    def settings(self) -> Settings:
        """What the file says; read once."""
        # The operations need Arrow, and the help does without.
        from pairmill.stages.curate.settings import Settings

        return Settings.load(self.curate_config)
