"""Options of carrying out a plan on a machine."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option
from pairmill.fields import Checked

OutputFormat = Literal["compact", "data_io", "reference"]
FINGERPRINT = "{fingerprint}"
"""As the last part of ``output_path`` it means the sample's fingerprint; the part before it is the node's folder."""


@dataclass(kw_only=True)
class NodeConfig(Checked, any_of=("output_path", "root")):
    """Carry out a plan: write the arrays that it describes into a folder of this machine."""

    tokenized_path: str = option(
        "",
        help="tokenized folder or URI, several as name=folder,name=folder; empty with a plan = what the plan names "
        "below root, with one those of its folders that are elsewhere",
        changes_bytes=False,
        takes="tokenized",
        unless=("plan", "again", "compose", "extend"),
    )
    output_path: str = option(
        "/dev/shm/sampled",  # noqa: S108 - the trainer's own default place
        help="local folder for the arrays; a last part {fingerprint} means the sample's; empty = plan only",
        changes_bytes=False,
        form=(
            r"((?!\{fingerprint\}).)*(/\{fingerprint\}/*)?",
            "{fingerprint} as the last part alone, as /dev/shm/pairmill/{fingerprint}",
        ),
    )
    root: str = option("", help="project folder or URI for plan and report; empty = none is kept", changes_bytes=False)
    plan: str = option(
        "",
        help="carry out this plan: its folder, or its fingerprint below root; empty = make one from the options",
        changes_bytes=False,
    )
    layout: Literal["auto", "compact", "data_io", "reference"] = option(
        "auto",
        help="compact: sampled tokens only, in the smallest types; data_io: every token, as the reference; "
        "reference: no token, but where rows are in the tokenized folder, which pairmill's loader alone reads; "
        "auto = by profile",
        changes_bytes=False,
    )
    keep: int = option(
        1,
        help="older samples to keep beside the one in output_path=…/{fingerprint}; others are removed",
        changes_bytes=False,
        at_least=0,
    )
    verify: bool = option(
        False,
        help="read earlier results and inputs in full instead of trusting their sizes; damaged results are redone",
        changes_bytes=False,
    )
    workers: int = option(0, help="threads; 0 = one per available core, at most 32", changes_bytes=False, at_least=0)
