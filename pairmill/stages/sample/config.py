"""Options of the sample stage: those of the reference's sampler, and those of a node that carries out a plan."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.links import LinkRule
from pairmill.engine.options import (
    PolicyRule,
    Profile,
    fail_on_option,
    links_option,
    option,
    policy_on_option,
    policy_option,
    tasks_option,
)
from pairmill.errors import UsageError
from pairmill.rules import DEFAULT_FILE
from pairmill.stages.sample.node.config import FINGERPRINT, NodeConfig

_APART = "-holdout"


@dataclass(kw_only=True)
class SampleConfig(NodeConfig, any_of=("tokenized_path", "plan", "again", "compose", "extend")):
    """Draw stratified epochs of a tokenized folder into a folder that a trainer maps."""

    prefix_config_path: str = option(
        DEFAULT_FILE, help="how much of each task is taken; not read with a plan", changes_bytes=False
    )
    rows: list[str] = option(
        [],
        help="the rows that were tokenized, joined by commas; only attributes beside them are read, for rules with "
        "keep_together, and with select_rows of a folder that select made",
        changes_bytes=False,  # the plan's inputs say it
    )
    mixture: str = option(
        "",
        help="result of mix to carry out: folder, or mixture.json; it says epochs and rows of each task (with extend, "
        "from from_epoch on), and of the rules only long_context applies; empty = as the rules say; not read with a "
        "plan or held_out=true",
        changes_bytes=False,  # the plan's inputs say it
    )
    again: str = option(
        "",
        help="draw this plan again with another seed, as <plan>@<seed>: its rules, mixture and other options are the "
        "plan's; empty = a plan of these options",
        changes_bytes=False,  # the new plan is the one that its options and inputs say
        excludes=("mixture", "plan", "held_out"),
        hint="the plan that is drawn again decides this",
    )
    base: str = option(
        "",
        help="plan that tasks are added to: its own keep their rows and are not read; empty = all tasks are drawn",
        changes_bytes=False,  # the plan's inputs say it
        excludes=("again", "mixture", "plan", "held_out"),
        hint="plan all tasks without base=",
    )
    extend: str = option(
        "",
        help="plan that goes on: its epochs keep their rows, and each task goes on where it was; epochs= says how many "
        "there are then, and rules and tokenized_path may say more from from_epoch on; empty = a plan of its own",
        changes_bytes=False,  # the plan's inputs say it
        excludes=("again", "base", "plan", "held_out"),
        hint="plan without extend=",
    )
    from_epoch: int = option(
        0,
        help="with extend, the first epoch that is drawn anew; 0 = the first that the plan does not have",
        changes_bytes=False,  # the plan's inputs say it
        needs="extend",
        at_least=0,
    )
    after: str = option(
        "",
        help="what a model read before this plan, as <plan>:<epoch> or <plan>:<epoch>:<row>: rows that it saw less "
        "come first, and passes_total of a rule counts what it saw; empty = nothing",
        changes_bytes=False,  # the plan's inputs say it
        excludes=("base", "extend", "plan", "held_out"),
        hint="a plan that goes on after another is drawn as a whole",
    )
    compose: list[str] = option(
        [],
        help="epochs of plans to put together into a plan of one epoch, as <plan>:<epoch>,<plan>:<epoch>; their rows, "
        "shuffled; options and rules are those of the plans; empty = the rules say what is drawn",
        changes_bytes=False,  # the plan's inputs say it
        excludes=("again", "base", "extend", "mixture", "plan", "held_out"),
        hint="the plans that are put together decide this",
    )
    seed: int = option(0, help="seed of every random draw", at_least=0)
    epochs: int = option(10, help="number of epochs; not read with a mixture", at_least=1)
    held_out: bool = option(
        False,
        help="sample the held-out rows instead, each once; of the rules only long_context applies; "
        "output_path then ends with -holdout",
        changes_bytes=False,  # the plan's inputs say it
    )
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context", at_least=1)
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included", at_least=0)
    profile: Profile = option("pairmill", help="pairmill, or data_io for the reference's bytes, defects included")
    unmatched: Literal["take", "leave", "refuse"] = option(
        "take",
        help="tasks that no rule matches: take them with a warning, unless unmatched: of the rule file says another "
        "thing, leave them out, or refuse them",
        changes_bytes=False,  # the plan's inputs say it
    )
    tasks: str = tasks_option()
    fail_on: list[str] = fail_on_option()
    links: LinkRule = links_option()
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out:
            self.epochs = 1
            self.output_path = held_out_path(self.output_path)
        if self.mixture and self.profile == "data_io" and not self.held_out:
            raise UsageError(
                "the reference has no mixtures",
                where="mixture",
                got=f"{self.mixture} with profile=data_io",
                hint="leave one of them out; pairmill mix export writes rules that data_io's sampler reads",
            )


def held_out_path(path: str) -> str:
    """Return where held-out rows are written: beside the rows for training."""
    folder = path.rstrip("/").removesuffix(f"/{FINGERPRINT}")
    if not folder or folder.endswith(_APART):
        return path
    return folder + _APART + path.rstrip("/")[len(folder) :]
