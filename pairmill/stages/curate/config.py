"""Options of the curate stage."""

from dataclasses import dataclass
from functools import cached_property

from pairmill.engine.options import option
from pairmill.formats import settings_file
from pairmill.rowstage import RowConfig
from pairmill.stages.curate import operations
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
        return self.profile == "data_io" or all(
            operation.is_idle(item.own(operation))
            for item in self.settings.variants
            for operation in operations.OPERATIONS
        )

    @cached_property
    def settings(self) -> Settings:
        """What the file says; read once."""
        return Settings.load(self.curate_config)
