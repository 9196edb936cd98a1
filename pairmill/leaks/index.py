"""The index of all items of benchmarks: a shard builds it once, and each process maps it into its memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from pairmill._native import LeakIndexBuilder
from pairmill.engine.content import Content
from pairmill.engine.manifest import InputRef, Ledger, content_key
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.slices import grouped
from pairmill.leaks import benchmarks
from pairmill.leaks.benchmarks import BenchmarkFiles
from pairmill.leaks.items import Item
from pairmill.leaks.scorer import LeakScorer
from pairmill.leaks.settings import Decontaminate
from pairmill.log import event

VERSION: Final = 1
"""Raised when the same items give another index or other scores."""

_FILE = "leaks.bin"
_BATCH = 1024
_CHARACTERS = 4 << 20


@dataclass(frozen=True)
class LeakPlan:
    """What the index is built of, as it was when the stage was planned; picklable.

    Args:
        key: of the index: digests of the benchmarks' files, and what of them makes an item. Empty: there is no
            benchmark, and nothing to do.
        refs: the benchmarks by content, for ``StagePlan.inputs``.
        found: their files.
    """

    key: str = ""
    refs: list[InputRef] = field(default_factory=list)
    found: tuple[BenchmarkFiles, ...] = ()

    def identify(self) -> object:
        """Return what a shard is keyed by that reads the benchmarks."""
        return self.key


@dataclass
class BuiltIndex:
    """The data of the shard's record: how many items each benchmark has, and bytes of the index."""

    items: dict[str, int]
    bytes: int


def planned(settings: Decontaminate, *, root: str, raw: str = "", verify: bool = False) -> LeakPlan:
    """Find the files of all benchmarks. Call it in ``Stage.plan``.

    Args:
        settings: the operation's; mode off makes an empty plan.
        root: of the project, where the commits of data sets on the Hub are kept.
        raw: option ``raw`` of the stage, for ``withheld``.
        verify: digest files of finished folders too.

    Raises:
        InputError: a benchmark, or one of its files, does not exist.
        UsageError: a mapping is not valid.
    """
    if settings.mode == "off":
        return LeakPlan()
    result = tuple(benchmarks.find(settings, root=root, raw=raw, verify=verify))
    if not result:
        return LeakPlan()
    key = content_key("curate leaks", VERSION, [[item.name, item.identity] for item in result])
    return LeakPlan(key, [item.ref for item in result], result)


def shards(plan: LeakPlan) -> list[Shard[object]]:
    """Return the shard that builds the index, for a round before rows are scored; none for an empty plan."""
    if not plan.key:
        return []
    return [BuildIndex(plan.found, name="leaks", size=sum(item.size for item in plan.found))]


def scorer(plan: LeakPlan, records: Sequence[ShardRecord]) -> LeakScorer | None:
    """Return what scores rows with the index that these shards built; None for an empty plan."""
    return LeakScorer(records[0].uri(_FILE), plan.key) if plan.key else None


def items(records: Sequence[ShardRecord]) -> dict[str, int]:
    """Return how many items each benchmark has, by name."""
    return {name: many for record in records for name, many in record.read(BuiltIndex).items.items()}


@dataclass(frozen=True)
class BuildIndex(Shard[object], reads=()):
    """Builds the index of some benchmarks."""

    found: tuple[BenchmarkFiles, ...]

    def random_access(self) -> Mapping[str, Content]:
        return {
            uri: content for item in self.found for file in item.files for uri, content in file.random_access.items()
        }

    def run(self, context: object, out: Writer) -> ShardResult:
        builder = LeakIndexBuilder()
        counts: dict[str, int] = {}
        try:
            for item in self.found:
                counts[item.name] = add(builder, item.name, item.items())
            data = builder.finish()
        except OverflowError as error:
            raise InputError(
                "the benchmarks are too large for one index",
                where="decontaminate.benchmarks",
                got=str(error),
                hint="name some of them in this run, and the others in a run on its result",
            ) from error
        with out.create(_FILE, scratch=True) as local:
            data.tofile(local)
        total = sum(counts.values())
        event(f"curate: {total:,} items of {len(counts)} benchmarks, an index of {len(data):,} bytes", items=total)
        return ShardResult(Ledger(), asdict(BuiltIndex(counts, len(data))))


def add(builder: LeakIndexBuilder, benchmark: str, items: Iterable[Item]) -> int:
    """Add the items of a benchmark; return how many there are."""
    many = 0
    for part in grouped(items, lambda item: len(item.question), _CHARACTERS, _BATCH):
        answers = [answer for item in part for answer in item.answers]
        builder.add(
            benchmark,
            _texts([item.name for item in part], benchmark),
            _texts([item.question for item in part], benchmark),
            _texts(answers, benchmark),
            np.array([len(item.answers) for item in part], np.int64),
        )
        many += len(part)
    return many


def _texts(texts: list[str], benchmark: str) -> pa.Array:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError as error:
        wrong = next(text for text in texts if any("\ud800" <= character <= "\udfff" for character in text))
        where, got = f"the benchmark {benchmark}", ascii(wrong[:60])
        raise InputError("an unpaired surrogate is not text", where=where, got=got, hint="correct the file") from error
