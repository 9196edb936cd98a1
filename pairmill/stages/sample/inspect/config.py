"""Options of ``inspect``."""

from dataclasses import dataclass
from typing import Literal

from pairmill.engine.options import option


@dataclass(kw_only=True)
class InspectConfig:
    """Preview training on a sampled folder: steps, slots used, rows left over, balance of the ranks."""

    path: str = option(help="sampled folder, or folder of a node")
    ranks: int = option(8, help="data-parallel ranks of the training")
    batch_tokens: int = option(
        196_608, help="tokens of a global batch, padding included; global_batch_size of HRM-Text"
    )
    packing: Literal["ranks", "whole"] = option(
        "ranks",
        help="rows of a global batch: what fits into the ranks' slots, as in HRM-Text, or (whole) into batch_tokens",
    )
    balance: Literal["lpt", "quadratic", "quadratic_work"] = option(
        "lpt", help="how rows are shared out to ranks: by tokens as HRM-Text does, by length², by attention work"
    )
    tail: Literal["drop", "keep", "carry"] = option(
        "drop", help="what happens to an epoch's last batch; HRM-Text drops it"
    )
    long_rows: Literal["refuse", "skip"] = option("refuse", help="what to do with rows longer than a rank's slots")
    one_token_rows: Literal["keep", "skip"] = option("keep", help="what to do with rows whose response is one token")
    state: str = option(
        "",
        help="file or URI of a saved position: count what is left from there. A loader's state, the _RECORD.json of a "
        "checkpoint of train, or checkpoint_state_<tag>.json of a trainer derived from HRM-Text",
    )
    accumulate: int = option(
        1, help="micro-batches of an optimizer step; then batch_tokens is of one of them, and steps are counted alone"
    )
    report: str = option("", help="file or URI for a page with charts, as report.html; empty = none")
