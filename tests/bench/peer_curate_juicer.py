"""data-juicer's metrics, called directly: a peer of curate's heuristics.

    python peer_curate_juicer.py ROWS

Its filters are loaded from their own files, with their base class and model loader replaced: importing the package
asks for image and video libraries. Prints {seconds, rows, megabytes}.
"""

import importlib
import importlib.util
import json
import sys
import time
import types
from pathlib import Path

import pyarrow.parquet as pq

FILTERS = {
    "alphanumeric_filter": "AlphanumericFilter",
    "average_line_length_filter": "AverageLineLengthFilter",
    "character_repetition_filter": "CharacterRepetitionFilter",
    "maximum_line_length_filter": "MaximumLineLengthFilter",
    "special_characters_filter": "SpecialCharactersFilter",
    "text_length_filter": "TextLengthFilter",
    "word_repetition_filter": "WordRepetitionFilter",
    "words_num_filter": "WordsNumFilter",
}


class Registry:
    """Registers nothing."""

    def register_module(self, name: str):
        return lambda kind: kind


class Filter:
    """What the filters need of theirs."""

    text_key = "text"

    def __init__(self, *_: object, **__: object) -> None: ...


def stub(name: str, folder: Path | None = None, **members: object) -> None:
    """Put a module in place of one of data-juicer's; with a folder its own submodules are found."""
    module = types.ModuleType(name)
    vars(module).update(members)
    if folder is not None:
        module.__path__ = [str(folder)]
    sys.modules[name] = module


def main() -> None:
    spec = importlib.util.find_spec("data_juicer")
    assert spec is not None
    assert spec.submodule_search_locations
    top = Path(spec.submodule_search_locations[0])
    stub("data_juicer", top)
    stub("data_juicer.utils", top / "utils")
    stub("data_juicer.utils.model_utils", get_model=lambda key: None, prepare_model=None)
    stub("data_juicer.ops", top / "ops")
    stub("data_juicer.ops.filter", top / "ops" / "filter")
    stub("data_juicer.ops.base_op", OPERATORS=Registry(), Filter=Filter)
    stub("data_juicer.ops.op_fusion", INTER_WORDS=Registry(), INTER_LINES=Registry())
    filters = [
        getattr(importlib.import_module(f"data_juicer.ops.filter.{module}"), name)() for module, name in FILTERS.items()
    ]
    fields = importlib.import_module("data_juicer.utils.constant").Fields
    table = pq.read_table(Path(sys.argv[1]), columns=["instruction", "response"]).to_pydict()
    texts = [*table["instruction"], *table["response"]]
    start = time.process_time()
    for at in range(0, len(texts), 1_000):
        some = texts[at : at + 1_000]
        samples = {"text": some, fields.stats: [{} for _ in some], fields.context: [{} for _ in some]}
        for one in filters:
            # Words and lines are shared between filters, as its fusion of operators does.
            shares = "context" in one.compute_stats_batched.__code__.co_varnames
            one.compute_stats_batched(samples, **({"context": True} if shares else {}))
    took = time.process_time() - start
    assert len(samples[fields.stats][0]) == len(FILTERS), samples[fields.stats][0]
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(json.dumps({"seconds": took, "rows": len(texts) // 2, "megabytes": size}))


main()
