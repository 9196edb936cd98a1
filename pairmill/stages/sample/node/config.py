"""Options of carrying out a plan on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option
from pairmill.errors import UsageError

OutputFormat = Literal["compact", "data_io"]
FINGERPRINT = "{fingerprint}"
"""As the last part of ``output_path`` it means the sample's fingerprint; the part before it is the node's folder."""


@dataclass(kw_only=True)
class NodeConfig:
    """Carry out a plan: write the arrays that it describes into a folder of this machine."""

    tokenized_path: str = option(
        "",
        help="tokenized folder or URI; empty with a plan = the folder below root that the plan names",
        changes_bytes=False,
    )
    output_path: str = option(
        "/dev/shm/sampled",  # noqa: S108 - the trainer's own default place
        help="local folder for the arrays; a last part {fingerprint} means the sample's; empty = plan only",
        changes_bytes=False,
    )
    root: str = option("", help="project folder or URI for plan and report; empty = none is kept", changes_bytes=False)
    plan: str = option(
        "",
        help="carry out this plan: its folder, or its fingerprint below root; empty = make one from the options",
        changes_bytes=False,
    )
    layout: Literal["auto", "compact", "data_io"] = option(
        "auto",
        help="compact: sampled tokens only, in the smallest types; data_io: every token, as the reference; "
        "auto = by profile",
        changes_bytes=False,
    )
    keep: int = option(
        1,
        help="older samples to keep beside the one in output_path=…/{fingerprint}; others are removed",
        changes_bytes=False,
    )
    verify: bool = option(
        False,
        help="read earlier results and inputs in full instead of trusting their sizes; damaged results are redone",
        changes_bytes=False,
    )
    workers: int = option(0, help="threads; 0 = one per available core, at most 32", changes_bytes=False)

    def __post_init__(self) -> None:
        require_at_least(self, keep=0, workers=0)
        if not self.output_path and not self.root:
            raise UsageError("both are empty", where="output_path, root", expected="at least one place to write to")
        if FINGERPRINT in self.output_path.rstrip("/").removesuffix(f"/{FINGERPRINT}"):
            raise UsageError(
                f"{FINGERPRINT} may only be the last part of the path",
                where="output_path",
                got=self.output_path,
                expected=f"for example /dev/shm/pairmill/{FINGERPRINT}",
            )


def require_at_least(config: object, **limits: int) -> None:
    """Raise UsageError if an option is below its limit, or is not a 64-bit integer."""
    for name, least in limits.items():
        value = getattr(config, name)
        if not least <= value < 2**63:
            raise UsageError("out of range", where=name, got=str(value), expected=f"an integer of {least} or more")
