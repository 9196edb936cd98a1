"""Options of the sample stage and of its commands: the reference's, and what a node needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.stage import Profile, option
from pairmill.errors import UsageError
from pairmill.formats import prefixes

Layout = Literal["compact", "data_io"]
FINGERPRINT = "{fingerprint}"
"""As the last part of ``output_path``: the sample's fingerprint. What stands before it is the folder of the node."""


@dataclass(kw_only=True)
class SampleConfig:
    """Draw stratified epochs of a tokenized folder into a folder that a trainer maps."""

    tokenized_path: str = option(
        "", help="tokenized folder or URI; empty with a plan = where root has the one it names", changes_bytes=False
    )
    output_path: str = option(
        "/dev/shm/sampled",  # noqa: S108 - the trainer's own default place
        help="local folder for the arrays; {fingerprint} as its last part stands for the sample's; empty = plan only",
        changes_bytes=False,
    )
    prefix_config_path: str = option(
        prefixes.DEFAULT, help="how much of each task is taken; not read with a plan", changes_bytes=False
    )
    seed: int = option(0, help="seed of every random draw")
    epochs: int = option(10, help="number of epochs")
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context")
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included")
    root: str = option("", help="project folder or URI for plan and report; empty = none is kept", changes_bytes=False)
    plan: str = option(
        "",
        help="carry out this plan: its folder, or its fingerprint below root; empty = make one from the options",
        changes_bytes=False,
    )
    layout: Literal["auto", "compact", "data_io"] = option(
        "auto",
        help="sampled tokens only in the smallest types, or every token as the reference has it; auto = by profile",
        changes_bytes=False,
    )
    keep: int = option(
        1, help="older samples that stay beside the one in output_path=…/{fingerprint}; others go", changes_bytes=False
    )
    verify: bool = option(
        False,
        help="read what was made before and what is read, rather than trust sizes; what is damaged is made again",
        changes_bytes=False,
    )
    workers: int = option(0, help="threads; 0 = one per available core, 32 at most", changes_bytes=False)
    profile: Profile = option("pairmill", help="pairmill, or data_io for the reference's bytes, defects included")

    def __post_init__(self) -> None:
        least_of = {"seed": 0, "epochs": 1, "context_size": 1, "min_resp_length": 0, "keep": 0, "workers": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if not least <= value < 2**63:
                raise UsageError("out of range", where=name, got=str(value), expected=f"an integer of {least} or more")
        if not self.output_path and not self.root:
            raise UsageError("both are empty", where="output_path, root", expected="at least one place to write to")
        if not self.tokenized_path and not self.plan:
            raise UsageError("required option missing", where="tokenized_path", expected="key=value", hint="see --help")
        if FINGERPRINT in self.output_path.rstrip("/").removesuffix(f"/{FINGERPRINT}"):
            raise UsageError(
                f"{FINGERPRINT} stands elsewhere than as the last part",
                where="output_path",
                got=self.output_path,
                expected=f"such as /dev/shm/pairmill/{FINGERPRINT}",
            )

    @classmethod
    def details(cls) -> str:
        """More of ``--help``."""
        return "commands, each with a --help of its own: inspect, verify, wait, serve, prepare"
