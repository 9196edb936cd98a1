"""Options of the sample stage: the reference's, and where the report goes."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.errors import UsageError
from pairmill.stage import Profile, option


@dataclass(kw_only=True)
class SampleConfig:
    """Draw stratified epochs of a tokenized folder into a folder that a trainer maps."""

    tokenized_path: str = option(help="tokenized folder or URI", changes_bytes=False)
    output_path: str = option(
        "/dev/shm/sampled",  # noqa: S108 - the trainer's own default place
        help="local folder for the sampled arrays; empty = plan and report only",
        changes_bytes=False,
    )
    prefix_config_path: str = option("prefix_config.yaml", help="how much of each task is taken", changes_bytes=False)
    seed: int = option(0, help="seed of every random draw")
    epochs: int = option(10, help="number of epochs")
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context")
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included")
    root: str = option("", help="project folder or URI for the report; empty = none is kept", changes_bytes=False)
    profile: Profile = option("pairmill", help="pairmill, or data_io for the reference's bytes, defects included")

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("epochs", 1), ("context_size", 1), ("min_resp_length", 0)):
            value = getattr(self, name)
            if not least <= value < 2**63:
                raise UsageError("out of range", where=name, got=str(value), expected=f"an integer of {least} or more")
        if not self.output_path and not self.root:
            raise UsageError("both are empty", where="output_path, root", expected="at least one place to write to")
