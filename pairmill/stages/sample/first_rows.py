"""The first rows of a plan as text, for its report."""

import numpy as np

from pairmill import storage
from pairmill.engine.stage import ShardRecord
from pairmill.formats.opened import RangedTokens
from pairmill.formats.report_rows import MOST, ReportRows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenizer_file import NAME
from pairmill.formats.tokens import INDEX, Array


def first_rows(folder: Folder, result: SampleResult, plan: ShardRecord) -> list[dict[str, str]]:
    """Return the rows that epoch 0 begins with; none without the tokenizer of the folder.

    Args:
        folder: that the plan was drawn from.
        result: what was drawn.
        plan: the shard with its arrays.
    """
    homes = (storage.join(home, NAME) for home in folder.homes)
    tokenizer = next((uri for uri in homes if storage.store_for(uri).exists(uri)), None)
    if tokenizer is None:
        return []
    arrays = {name: RangedTokens([Array.open(plan.uri(f"{FOLDER}{name}.npy"))]) for name in ("epoch_0", *INDEX)}
    shown = ReportRows(storage.store_for(tokenizer).read(tokenizer), tokenizer)
    tasks = {task.name: task for task in folder.tasks}
    # A plan that adds to another has arrays of what it adds alone: these are its last tasks.
    sources = result.sources[-result.base["parts"][-1] :] if result.base else result.sources
    ends = np.cumsum([item["rows"] for item in sources])
    rows = []
    for place, at in enumerate(arrays["epoch_0"][0:MOST].tolist()):
        name = sources[int(np.searchsorted(ends, at, "right"))]["name"]
        spans = [int(arrays[array][at : at + 1][0]) for array in INDEX]
        rows.append(shown.row(tasks[name], spans, f"{place}{' of those added' if result.base else ''}, of {name}"))
    return rows
