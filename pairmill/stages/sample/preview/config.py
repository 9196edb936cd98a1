"""Options of ``sample preview``."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.links import LinkRule
from pairmill.engine.options import PolicyRule, links_option, option, policy_on_option, policy_option, tasks_option
from pairmill.fields import Checked
from pairmill.rules import DEFAULT_FILE


@dataclass(kw_only=True)
class PreviewConfig(Checked, any_of=("tokenized_path", "extend")):
    """Print what rules would take of each group and task, from the lengths of rows alone; nothing is written."""

    tokenized_path: str = option(
        "", help="tokenized folder or URI, or several as base,new=<folder>; empty with extend = that plan's"
    )
    tasks: str = tasks_option()
    prefix_config_path: str = option(DEFAULT_FILE, help="the rules")
    epochs: int = option(10, help="number of epochs", at_least=1)
    extend: str = option(
        "",
        help="plan that would go on, as sample extend=: what is printed is of the new epochs alone; empty = a new plan",
        excludes=("after",),
        hint="what was read before a plan is read before those that extend it",
    )
    from_epoch: int = option(
        0, help="with extend, the first new epoch; 0 = that after the plan's last", at_least=0, needs="extend"
    )
    after: str = option(
        "", help="what a model read before, as sample after=: it counts for passes_total of rules; empty = nothing"
    )
    context_size: int = option(4097, help="longest row in tokens, one more than the trainer's context", at_least=1)
    min_resp_length: int = option(2, help="shortest response in tokens, its end token included", at_least=0)
    unmatched: Literal["take", "leave", "refuse"] = option("take", help="tasks that no rule matches, as for sample")
    what_if: str = option(
        "", help="values to try, as in what_if='group=flan max_rows=5000,100000,uncapped'; empty = none"
    )
    compare: str = option("", help="a plan, or a file of other rules, to show beside these; empty = none")
    format: Literal["md", "csv", "json"] = option(
        "md", help="md: groups, and up to 50 tasks; csv: a line for each task; json: all of it"
    )
    rows: list[str] = option([], help="the rows that were tokenized, for rules that choose by attributes")
    verify: bool = option(False, help="digest all of the tokenized folder, not only what is read")
    links: LinkRule = links_option()
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()
    root: str = option("", help="project folder: by its manifests a policy knows contents under any name")

    @property
    def profile(self) -> Literal["pairmill"]:
        """Whose filter: the reference's caps are known from its report alone."""
        return "pairmill"
