"""``pairmill policy check policy=… root=…``: what a policy means for what is there."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pairmill import storage
from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.lineage.policy_check import items_of_folder, items_of_root, tables_of
from pairmill.policy.policy import Policy

_CHECK = "check"


@dataclass(kw_only=True)
class PolicyConfig(Checked, one_of=("root", "tokenized_path", "plan")):
    """Print files, rows, bytes and tokens by decision and reason of a policy; exit code 2 if it is not valid."""

    policy: str = option(help="policy.yaml")
    root: str = option("", help="project folder: raw files and the line that ends last below it")
    tokenized_path: str = option("", help="a tokenized folder, or another folder of rows that pairmill finished")
    plan: str = option("", help="folder of a plan, or of a mixture")
    compare: str = option("", help="another policy.yaml: what it would change")


def check(config: PolicyConfig) -> str:
    """Return the tables as text.

    Raises:
        UsageError: a policy is not valid.
        InputError: there is nothing to decide on.
    """
    policy = Policy.load(config.policy)
    other = Policy.load(config.compare, "compare") if config.compare else None
    if config.root:
        root = storage.normalise(config.root, "root")
        items = items_of_root(root)
    else:
        name = "plan" if config.plan else "tokenized_path"
        uri = storage.normalise(getattr(config, name), name)
        root, items = storage.parent_of(storage.parent_of(uri)), items_of_folder(uri)
    tables = tables_of(items, policy, other, root)
    return "\n".join(f"{table.title}\n{table.text() if table.rows else '  nothing'}" for table in tables) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        if arguments[:1] != [_CHECK] and not {"--help", "-h"} & {*arguments}:
            raise UsageError("unknown command", where="arguments", got=" ".join(arguments[:1]), expected=_CHECK)
        sys.stdout.write(check(cli.build(PolicyConfig, cli.split(arguments[1:]))))

    return cli.program("policy check", PolicyConfig, arguments, work)
