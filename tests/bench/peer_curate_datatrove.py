"""datatrove, as its examples run it, on the rows of curate_rows.py: the peer of curate.

    python peer_curate_datatrove.py COMMAND ROWS WORK WORDS

COMMAND: exact (the first step of exact deduplication), signatures (of texts in memory), near (the four steps of
MinHash), decontaminate (n-grams, with the items of WORK/items.parquet), heuristics (the Gopher and FineWeb filters,
with bounds that no row fails, so that each metric is computed). WORDS: spacy, its tokenizer for English, or blank,
which splits at white space and is faster than any that it has. Prints {seconds, rows, megabytes} of the work without
start-up.

Steps run in its executor with one worker. Instruction and response are one text with a line feed between. Indexing of
n-grams imports lighteval even if the tasks are files; that import is a stub here.
"""

import json
import sys
import time
import types
from pathlib import Path

import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.readers import ParquetReader
from datatrove.utils import word_tokenizers
from loguru import logger

FILES = 4


class Blank(word_tokenizers.WordTokenizer):
    """Words between blanks."""

    def word_tokenize(self, text: str) -> list[str]:
        return text.split()

    def sent_tokenize(self, text: str) -> list[str]:
        return [text]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return [(0, len(text))]


def use_words(words: str) -> None:
    """Replace the tokenizer for English, if another is wanted; steps look it up when they are made."""
    if words == "blank":
        from datatrove.pipeline import decont, dedup, filters
        from datatrove.pipeline.decont import n_grams
        from datatrove.pipeline.dedup import minhash
        from datatrove.pipeline.filters import fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter

        del decont, dedup, filters
        for module in (n_grams, minhash):
            module.load_word_tokenizer = lambda language: Blank()
        for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
            module.split_into_words = lambda text, language: text.split()


def joined(reader: object, data: dict[str, str], path: str, number: int) -> dict[str, object]:
    """The document of a row."""
    return {"text": f"{data['instruction']}\n{data['response']}", "id": f"{path}/{number}", "metadata": {}}


def reader(rows: Path) -> ParquetReader:
    """Reads the rows."""
    return ParquetReader(str(rows), adapter=joined, glob_pattern="*.parquet")


def run(*steps: object, tasks: int) -> None:
    """Run steps with one worker."""
    logs = str(Path(sys.argv[3]) / "logs")  # else they are written to the working directory
    executor = LocalPipelineExecutor(
        pipeline=list(steps), tasks=tasks, workers=1, logging_dir=logs, skip_completed=False
    )
    logger.remove()  # each executor adds a log
    executor.run()


class Clock(PipelineStep):
    """Passes documents on. The executor copies a step with its index before it runs: that is start-up, not counted."""

    name = "clock"
    type = "clock"
    seconds = 0.0
    started: float | None = None

    def run(self, data, rank: int = 0, world_size: int = 1):
        for document in data:
            if self.started is None:
                self.started = time.process_time()
            yield document


class Drain(PipelineStep):
    """Takes the documents."""

    name = "drain"
    type = "drain"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def run(self, data, rank: int = 0, world_size: int = 1):
        for _ in data:
            pass
        Clock.seconds += time.process_time() - (self.clock.started or 0)
        yield from ()


def pair(document: Document) -> str:
    """What exact deduplication compares."""
    return document.text


def exact(rows: Path, work: Path, files: int) -> float:
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig, ExactDedupSignature

    config = ExactDedupConfig(content_getter=pair)
    start = time.process_time()
    run(reader(rows), ExactDedupSignature(str(work / "exact"), config), tasks=files)
    return time.process_time() - start


def signatures(rows: Path, work: Path, files: int) -> float:
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    step = MinhashDedupSignature(str(work / "unused"))
    found = texts(rows)
    step.get_signature(step.get_shingles(found[0]))
    start = time.process_time()
    for text in found:
        shingles = step.get_shingles(text)
        if shingles.size:
            step.get_signature(shingles)
    return time.process_time() - start


def near(rows: Path, work: Path, files: int) -> float:
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig()
    signed, paired, grouped, kept = (str(work / name) for name in ("signed", "paired", "grouped", "kept"))
    first = MinhashDedupSignature(signed, config)
    first.get_shingles("Its tokenizer is loaded now.")
    start = time.process_time()
    run(reader(rows), first, tasks=files)
    run(MinhashDedupBuckets(signed, paired, config=config), tasks=config.num_buckets)
    run(MinhashDedupCluster(paired, grouped, config=config), tasks=1)
    run(reader(rows), MinhashDedupFilter(grouped), ParquetWriter(kept), tasks=files)
    took = time.process_time() - start
    print(sum(pq.read_metadata(path).num_rows for path in Path(kept).glob("*.parquet")), "rows kept", file=sys.stderr)
    return took


def decontaminate(rows: Path, work: Path, files: int) -> float:
    stub_lighteval()
    from datatrove.pipeline.decont.n_grams import NGramsDecontFilter, NGramsDecontIndexer

    NGramsDecontIndexer._requires_dependencies = []
    items = ParquetReader(str(work), adapter=item, glob_pattern="items.parquet")
    run(items, NGramsDecontIndexer(str(work / "index")), tasks=1)
    step = NGramsDecontFilter(str(work / "index"))
    step.filter(Document(text="Its tokenizer and its index are loaded now.", id=""))
    clock = Clock()
    run(reader(rows), clock, step, Drain(clock), tasks=files)
    return Clock.seconds


def item(reader: object, data: dict[str, str], path: str, number: int) -> dict[str, object]:
    """The document of an item."""
    return {"text": data["answer"], "id": data["item"], "metadata": {"query": data["question"], "task": "items"}}


def stub_lighteval() -> None:
    """Put a lighteval without tasks in place of the one that is not installed."""

    class Registry:
        def __init__(self, **_: object) -> None: ...

        def get_task_dict(self, names: object) -> dict[str, object]:
            return {}

    class LightevalTask:
        @staticmethod
        def load_datasets(tasks: object) -> None: ...

    for name in ("lighteval", "lighteval.tasks", "lighteval.tasks.lighteval_task", "lighteval.tasks.registry"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["lighteval.tasks.lighteval_task"].LightevalTask = LightevalTask
    sys.modules["lighteval.tasks.registry"].Registry = Registry


def heuristics(rows: Path, work: Path, files: int) -> float:
    from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter

    never = 1e9
    steps = [
        GopherQualityFilter(-1, 10**9, -1, never, never, never, never, -1e-9, -1),
        GopherRepetitionFilter(
            never, never, never, never, tuple((n, never) for n in (2, 3, 4)), tuple((n, never) for n in range(5, 11))
        ),
        FineWebQualityFilter(
            line_punct_thr=-1, short_line_thr=never, char_duplicates_ratio=never, new_line_ratio=never
        ),
    ]
    found = [Document(text=text, id="") for text in fields(rows)]
    for step in steps:
        step.filter(Document(text="Its tokenizer is loaded now.", id=""))
    start = time.process_time()
    for document in found:
        for step in steps:
            assert step.filter(document) is True
    return time.process_time() - start


def texts(rows: Path) -> list[str]:
    """Rows as one text each."""
    table = pq.read_table(rows, columns=["instruction", "response"]).to_pydict()
    return [f"{one}\n{other}" for one, other in zip(table["instruction"], table["response"], strict=True)]


def fields(rows: Path) -> list[str]:
    """Both fields of all rows."""
    table = pq.read_table(rows, columns=["instruction", "response"]).to_pydict()
    return [*table["instruction"], *table["response"]]


def main() -> None:
    command, rows, work, words = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    logger.remove()
    use_words(words)
    paths = sorted(rows.glob("*.parquet"))
    took = globals()[command](rows, work, len(paths))
    count = sum(pq.read_metadata(path).num_rows for path in paths)
    size = sum(len(text.encode()) for text in fields(rows)) / 1e6
    print(json.dumps({"seconds": took, "rows": count, "megabytes": size}))


main()
