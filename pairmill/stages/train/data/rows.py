"""Which rows a step had, as a run logs them and as its report shows them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from pairmill.formats.characters import TokenTexts
from pairmill.loader import Batch, RowPlan
from pairmill.loader.plan import Draw
from pairmill.stages.train.data.inputs import Inputs
from pairmill.stages.train.data.steps import world
from pairmill.training.settings import TrainSettings

_ROWS: Final = 4
_TOKENS: Final = 400


def spans_of(inputs: Inputs, settings: TrainSettings, ranks: int, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the global batch after a position, as spans of epochs.

    Args:
        inputs: of the run.
        ranks: processes.
        before: the loader's state.

    Returns:
        of each epoch ``folder`` (its name), ``epoch``, ``first`` and ``last`` (places of rows in it) and ``rows``;
        nothing of windows and streams, which have no rows.
    """
    parts = [batch.rows for batch in _batches(inputs, settings, ranks, before)]
    rows = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
    return [
        {
            "folder": inputs.plan.names[source],
            "epoch": epoch,
            "first": int(some.min()),
            "last": int(some.max()),
            "rows": len(some),
        }
        for source, epoch in np.unique(rows[:, :2], axis=0).tolist()
        for some in [rows[(rows[:, 0] == source) & (rows[:, 1] == epoch), 2]]
    ]


def texts_of(inputs: Inputs, settings: TrainSettings, ranks: int, before: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the four rows with the longest responses of the global batch after a position.

    Returns:
        of each ``row``, ``prompt`` and ``target``: the first 400 tokens as text; as ids where the data lack their
        tokenizer.
    """
    texts = TokenTexts(inputs.tokenizer, "tokenizer") if inputs.tokenizer is not None else None

    def text(ids: list[int]) -> str:
        if texts is None:
            return " ".join(map(str, ids[:_TOKENS]))
        return "".join(f"⟦{part}⟧" if control else part for part, control in texts.parts(ids[:_TOKENS]))

    result = []
    for batch in _batches(inputs, settings, ranks, before):
        sources = inputs.rows.find(batch.rows).tolist() if inputs.rows is not None else [0] * len(batch.rows)
        ends = batch["cu_seqlens"].tolist()
        for at, (_, epoch, place) in enumerate(batch.rows.tolist()):
            ids = [*batch["inputs"][ends[at] : ends[at + 1]].tolist(), int(batch["labels"][ends[at + 1] - 1])]
            prefix = int(batch["prefix_lens"][at])
            name = f"{epoch}:{place} of {inputs.sources[sources[at]]}"
            result.append((len(ids) - prefix, name, ids[:prefix], ids[prefix:]))
    result.sort(key=lambda item: (-item[0], item[1]))
    return [{"row": name, "prompt": text(prompt), "target": text(target)} for _, name, prompt, target in result[:_ROWS]]


def _batches(inputs: Inputs, settings: TrainSettings, ranks: int, before: Mapping[str, Any]) -> Iterator[Batch]:
    """Yield the share of each rank of a global batch."""
    plan, here = inputs.plan, world(settings, ranks)
    if not isinstance(plan, RowPlan):
        return
    position = plan.position(before)
    while not isinstance(drawn := plan.draw(position, here), Draw):
        if drawn is None:
            return
        position = drawn.after
    memory = np.empty(plan.size(here), np.uint8)
    for rank in range(here.ranks):
        yield plan.fill(drawn, rank, here, memory)
