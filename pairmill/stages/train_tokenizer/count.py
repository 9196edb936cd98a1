"""The shards of train_tokenizer: counting the words of row files, and merging sorted runs of counts."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.options import Profile
from pairmill.engine.stage import Shard, ShardFile, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import rows
from pairmill.formats.slices import FileSlice
from pairmill.stages.train_tokenizer import runs
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig

WORDS, HELD_OUT = "words", "held_out"
HELD_OUT_OF = 100
"""One row in this many is held out, and of a file of n slices one in n times as many: a few thousand rows."""


@dataclass(frozen=True)
class Sample:
    """The texts (data_io) or rows (pairmill) that are drawn of a file.

    Args:
        seed: of the draw.
        task: of the file, which the draw depends on too.
    """

    limit: int
    seed: int
    task: str


@dataclass(frozen=True)
class CountWords(Shard[TrainTokenizerConfig], reads=("profile", "truncate_len")):
    """Counts the words of one row file, or of some row groups of a large one.

    Args:
        part: what is read.
        one_in: of this many rows one is held out.
        sample: which texts are read; None = all.
    """

    part: FileSlice
    one_in: int
    sample: Sample | None

    @property
    def task(self) -> str:
        """The data set that the file is."""
        return self.part.path

    def random_access(self) -> Mapping[str, Content]:
        return self.part.random_access

    def run(self, context: TrainTokenizerConfig, out: Writer) -> ShardResult:
        ledger = Ledger()
        kept, held = (runs.Counter(out, name) for name in (WORDS, HELD_OUT))
        texts = text_bytes = held_rows = 0
        for batch, chosen in self.sampled(context, ledger):
            aside = held_out(batch.start, len(batch), self.one_in)
            held_rows += int((aside & chosen.any(axis=1)).sum())
            for column, read in ((batch.instruction, chosen[:, 0]), (batch.response, chosen[:, 1])):
                if column.null_count:  # with data_io alone, where they are empty texts
                    read = read & column.is_valid().to_numpy(zero_copy_only=False)
                    column = column.fill_null("")
                texts += int(read.sum())
                text_bytes += kept.add(column, context.truncate_len, read & ~aside)
                text_bytes += held.add(column, context.truncate_len, read & aside)
        kept.close()
        held.close()
        ledger.rows_out = ledger.rows_kept
        ledger.measures = {"texts": texts, "text_bytes": text_bytes, "held_out_rows": held_rows}
        return ShardResult(ledger)

    def sampled(self, config: TrainTokenizerConfig, ledger: Ledger) -> Iterator[tuple[rows.Batch, NDArray[np.bool_]]]:
        """Batches with, shape (rows, 2), whether the question and the answer of a row are read."""
        uri, content = self.part.uri, self.part.content
        chosen: NDArray[np.bool_] | None = None
        if self.sample is not None:
            count = rows.count(uri, content, self.part.longest)
            chosen = chosen_texts(config.profile, self.sample, count)
        for batch in rows.read(uri, self.part, content=content, longest=self.part.longest):
            if config.profile == "pairmill":
                rows.refuse_nulls(batch, uri, ("instruction", "response"))
            stop = batch.start + len(batch)
            both = np.ones((len(batch), 2), np.bool_) if chosen is None else chosen[batch.start : stop]
            read = int(both.any(axis=1).sum())
            ledger.rows_in += len(batch)
            ledger.rows_kept += read
            if read < len(batch):
                ledger.drop("over_file_limit", len(batch) - read)
            yield batch, both


@dataclass(frozen=True)
class MergeRuns(Shard[object], reads=()):
    """Makes one run, ``path``, of several."""

    path: str
    runs: tuple[ShardFile, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        runs.write(out, self.path, runs.merged([file.uri for file in self.runs]))
        return ShardResult(Ledger())


def held_out(start: int, count: int, every: int) -> NDArray[np.bool_]:
    """Return which rows of a batch are held out, bool [count]: one in ``every``, spread evenly, by their index in the
    file."""
    numbers = np.arange(start + 1, start + 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    held: NDArray[np.bool_] = (numbers >> np.uint64(32)) % np.uint64(every) == 0
    return held


def chosen_texts(profile: Profile, sample: Sample, total: int) -> NDArray[np.bool_] | None:
    """Shape (rows, 2): which texts of a file are read; None = all.

    data_io counts texts against the limit and keeps the head of a half-done shuffle; pairmill draws rows uniformly.
    """
    if profile == "data_io":
        if 2 * total <= sample.limit:
            return None
        flat = np.zeros(2 * total, np.bool_)
        flat[_native.data_io_document_sample(sample.seed, sample.task, 2 * total, sample.limit)] = True
        return flat.reshape(total, 2)
    if total <= sample.limit:
        return None
    stream = int.from_bytes(hashlib.sha256(sample.task.encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([sample.seed, stream])))
    mask = np.zeros(total, np.bool_)
    mask[generator.permutation(total)[: sample.limit]] = True
    return np.repeat(mask[:, None], 2, axis=1)
