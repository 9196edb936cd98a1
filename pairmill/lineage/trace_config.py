"""The options of ``pairmill trace``."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option
from pairmill.fields import Checked


@dataclass(kw_only=True)
class TraceConfig(Checked, one_of=("step", "row", "record")):
    """Print the rows of a step of a training with their records, or when a row or a record was trained on."""

    step: int = option(0, help="a step of the training, from 1: print the rows that it had", at_least=0)
    rank: int = option(-1, help="with step: the rows of this process alone, from 0; -1 = of all", at_least=-1)
    row: str = option(
        "",
        help="a row, <task>:<n>, n from 0 as in its row file: print its record, what stages say of it, and each epoch, "
        "place, step and rank that has it",
    )
    record: str = option(
        "",
        help="a raw record, <source>/<path>:<line from 1>, or :<member> of an archive: print the rows that it became, "
        "and the same of them, in the plan or in all below root",
    )
    run: str = option("", help="a finished run of train, which says how it made batches and of which plans")
    plan: list[str] = option(
        [],
        help="the plan that was trained on, <root>/sample/<fingerprint>, or sampled arrays; several as name=path, with "
        "run",
    )
    root: str = option("", help="project folder, if a plan or the folders before it are not below that of run or plan")
    policy: str = option(
        "", help="policy.yaml that says which records are removed; empty = <root>/policy.yaml, if it is there"
    )
    tokenized: str = option("", help="the tokenized folder of the plan, if it is not below the project")
    batch_tokens: int = option(0, help="with plan: slots of a global batch, of all ranks together", at_least=0)
    ranks: int = option(0, help="ranks that shared it; 0 = as the run says, or 1", at_least=0)
    accumulate: int = option(1, help="with plan: global batches of a step of the optimizer", at_least=1)
    packing: Literal["", "ranks", "whole"] = option(
        "", help="with plan: as the loader was told; ranks is its default, and HRM-Text's way; train packs whole"
    )
    balance: Literal["", "lpt", "quadratic", "quadratic_work"] = option(
        "", help="with plan: as the loader was told; default lpt"
    )
    tail: Literal["", "drop", "keep", "carry"] = option("", help="with plan: as the loader was told; default drop")
    long_rows: Literal["", "refuse", "skip"] = option("", help="with plan: as the loader was told; default refuse")
    one_token_rows: Literal["", "keep", "skip"] = option("", help="with plan: as the loader was told; default keep")
    text: bool = option(False, help="also print the texts of the rows")
    raw: str = option(
        "", help="with row, record and text: folder of raw files or of fetch, if it is not below the project"
    )
    sources: list[str] = option(
        [], help="with row, record and text: YAML files of the sources that are described by one"
    )
    n: int = option(40, help="rows to print at most; 0 = all", at_least=0)
