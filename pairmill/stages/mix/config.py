"""Options of the mix stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pairmill.engine.options import Profile, RunConfig, option
from pairmill.formats import prefixes, settings_file
from pairmill.mixture.plan import MOST_EPOCHS
from pairmill.stages.mix.settings import MixSettings


@dataclass(kw_only=True)
class MixConfig(RunConfig):
    """Plan how many response tokens of each source the training has, epoch by epoch."""

    tokenized_path: str = option(help="tokenized folder or URI", changes_bytes=False)
    rows: list[str] = option(
        [],
        help="the rows that were tokenized, joined by commas; only attributes beside them are read, for buckets",
        changes_bytes=False,
    )
    mix_config: str = option(
        settings_file.DEFAULT,
        help="the method, the budget and the caps, as a YAML file; default = what is built in, as in "
        "configs/mix_config.yaml",
        changes_bytes=False,  # the plan says it by content
    )
    prefix_config_path: str = option(
        prefixes.DEFAULT, help="the sampler's rules, of which long_context is read", changes_bytes=False
    )
    epochs: int = option(10, help="number of epochs, unless each phase says its own", at_least=1, at_most=MOST_EPOCHS)
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context", at_least=1)
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included", at_least=0)
    seed: int = option(0, help="seed of the sampler's draws", at_least=0)
    compare: str = option(
        "", help="an earlier mixture (a folder, file or URI) to show beside this one; empty = none", changes_bytes=False
    )
    profile: Profile = option("pairmill", help="pairmill, or data_io: the reference has no mixtures, so none is made")

    @cached_property
    def settings(self) -> MixSettings:
        """What the file says; read once."""
        return MixSettings.load(self.mix_config)

    @property
    def is_off(self) -> bool:
        return self.profile == "data_io" or self.settings.method == "off"
