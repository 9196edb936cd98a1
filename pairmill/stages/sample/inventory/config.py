"""Options of ``inventory``."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option, policy_option

Key = Literal["source", "group", "language", "licence", "task"]


@dataclass(kw_only=True)
class InventoryConfig:
    """Print the inventory of a plan: rows, tokens, shares and passes, with licences, revisions and decisions."""

    plan: str = option(help="folder of the plan, <root>/sample/<fingerprint>")
    format: Literal["md", "csv", "tex", "json"] = option(
        "md", help="md, csv, tex (one table), or json (with the composition by language and group)"
    )
    group_by: Key = option("source", help="what a line is: a source, a group of rules, a language, a licence, a task")
    policy: str = policy_option()
