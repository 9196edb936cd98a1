"""Options of the mix stage."""

from dataclasses import dataclass

from pairmill.engine.options import Profile, option
from pairmill.mixture.config import MixtureConfig


@dataclass(kw_only=True)
class MixConfig(MixtureConfig):
    """Plan how many response tokens of each source the training has, epoch by epoch."""

    compare: str = option(
        "", help="an earlier mixture (a folder, file or URI) to show beside this one; empty = none", changes_bytes=False
    )
    profile: Profile = option("pairmill", help="pairmill, or data_io: the reference has no mixtures, so none is made")

    @property
    def is_off(self) -> bool:
        return self.profile == "data_io" or self.mix_settings.method == "off"
