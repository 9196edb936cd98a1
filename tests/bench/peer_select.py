"""Fitting and scoring by data-selection, in one process: the peer of select.

    python peer_select.py ROWS TARGET WORK

ROWS and TARGET are files of JSON Lines; instruction and response are joined by a line feed, which makes one text of
both. Prints {seconds, rows, megabytes, first}: CPU seconds of fit and score, and some of the log weights.
"""

import json
import os
import sys

import numpy as np
from data_selection import HashedNgramDSIR


def cpu() -> float:
    """Seconds of this process and of those that it started."""
    return sum(os.times()[:4])


def text(row: dict) -> str:
    """The text of a row."""
    return row["instruction"] + "\n" + row["response"]


def main() -> None:
    rows, target, work = sys.argv[1:]
    dsir = HashedNgramDSIR(
        [rows],
        [target],
        work,
        raw_parse_example_fn=text,
        target_parse_example_fn=text,
        num_proc=1,
        min_example_length=0,
    )
    start = cpu()
    dsir.fit_importance_estimator(num_tokens_to_fit="all")
    dsir.compute_importance_weights()
    took = cpu() - start
    weights = np.concatenate([np.load(path) for path in sorted(dsir.log_importance_weights_dir.glob("*.npy"))])
    with open(rows, encoding="utf-8") as file:
        size = sum(len(text(json.loads(line)).encode()) - 1 for line in file)
    print(
        json.dumps({"seconds": took, "rows": len(weights), "megabytes": size / 1e6, "first": weights[:1000].tolist()})
    )


if __name__ == "__main__":
    main()
