"""Options of ``exposure``."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option


@dataclass(kw_only=True)
class ExposureConfig:
    """Print how often the rows of each source were seen, over a plan and all plans that it goes on after."""

    plan: str = option(help="folder of the plan that is read last, <root>/sample/<fingerprint>")
    upto: str = option(
        "", help="how far it was read: <epoch>, <epoch>:<row>, or a file with a saved loader state; empty = to its end"
    )
    group_by: Literal["source", "task"] = option("source", help="what a line is: a source, or a task")
    format: Literal["md", "csv", "json"] = option("md", help="md, csv, or json")
    out: str = option(
        "", help="folder for passes.npy, the passes of every row of the tokenized tasks, and tasks.csv; empty = none"
    )
    tokenized_path: str = option("", help="for out=: the tokenized folder; empty = the plan's, below its project")
