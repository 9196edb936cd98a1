"""Options of the stages that plan mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pairmill.engine.options import PolicyRule, RunConfig, option, policy_on_option, policy_option, tasks_option
from pairmill.fields import Checked
from pairmill.formats import settings_file
from pairmill.mixture.plan import MOST_EPOCHS
from pairmill.mixture.settings import MixSettings
from pairmill.rules import DEFAULT_FILE


@dataclass(kw_only=True)
class MixtureOptions(Checked):
    """What a mixture is planned of, and what the sampler that executes it is given."""

    tokenized_path: str = option(
        help="tokenized folder or URI; several as name=folder,name=folder", changes_bytes=False, takes="tokenized"
    )
    tasks: str = tasks_option()
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
        DEFAULT_FILE, help="the sampler's rules, of which long_context is read", changes_bytes=False
    )
    epochs: int = option(10, help="number of epochs, unless each phase says its own", at_least=1, at_most=MOST_EPOCHS)
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context", at_least=1)
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included", at_least=0)
    seed: int = option(0, help="seed of the sampler's draws", at_least=0)
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()


@dataclass(kw_only=True)
class MixtureConfig(MixtureOptions, RunConfig):
    """Options of a stage that plans mixtures."""

    @cached_property
    def mix_settings(self) -> MixSettings:
        """Return what mix_config says; read once."""
        return MixSettings.load(self.mix_config)
