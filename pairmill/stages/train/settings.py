"""``settings``: the file of settings with the defaults of a profile, a net and a size."""

from dataclasses import dataclass

from pairmill.engine.options import option
from pairmill.nets.settings import NetName, SizeName
from pairmill.training.profiles import ProfileName
from pairmill.training.settings import default_file


@dataclass(kw_only=True)
class SettingsConfig:
    """Print configs/train_config.yaml with all defaults, a comment on each line."""

    profile: ProfileName = option("pairmill", help="whose defaults: pairmill, or a reference's")
    net: NetName = option("transformer", help="the net")
    size: SizeName = option("none", help="a published size")


def write_settings(config: SettingsConfig) -> str:
    """Return the file as YAML."""
    return default_file(config.profile, config.net, config.size)
