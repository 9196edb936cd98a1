"""A stage of four rounds, small enough to see through: lines of ``*.txt`` files without those that came before.

Lines are compared by their first letter, as later stages will compare rows by their signatures: each file is cut into
slices (one for each letter), each letter is looked at in all files, one shard decides, and each file is written without
its duplicates. So round 1 drops rows (empty lines) and cuts, round 2 fans in, round 3 is one shard, and round 4 fans
out again and drops rows. Each shard leaves a mark, as in the toy stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.options import RunConfig, option
from pairmill.engine.stage import Rounds, Shard, ShardFile, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.report.model import Report
from tests.support.stages.toy_stage import mark


@dataclass(kw_only=True)
class UniqueConfig(RunConfig):
    """Take each line once."""

    source: str = option(help="folder of text files", changes_bytes=False)
    marks: str = option(help="folder that gets one file per shard run", changes_bytes=False)


def lines_of(uri: str) -> list[str]:
    return storage.store_for(uri).read(uri).decode().splitlines(keepends=True)


@dataclass(frozen=True)
class Marks:
    """Where each shard leaves a mark. The context."""

    folder: str


@dataclass(frozen=True)
class Cut(Shard[Marks]):
    """Round 1: the lines of a file, and a slice of them for each letter that they begin with."""

    path: str = field(metadata=unkeyed("of the mark alone"))
    uri: str = field(metadata=unkeyed("a place"))
    sha256: str

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"cut {self.path}")
        lines = lines_of(self.uri)
        kept = [line for line in lines if line.strip()]
        ledger = Ledger(len(lines), len(kept), len(kept))
        ledger.drop("empty", len(lines) - len(kept))
        slices: dict[str, list[str]] = defaultdict(list)
        for line in kept:
            slices[line[0]].append(line)
        out.write("lines", "".join(kept).encode())
        for letter, some in slices.items():
            with out.create(f"letters/{letter}", scratch=True) as local:
                local.write_text("".join(some))
        return ShardResult(ledger, {"letters": sorted(slices)})


@dataclass(frozen=True)
class FindRepeated(Shard[Marks]):
    """Round 2: the lines of one letter that an earlier file has, by file."""

    letter: str = field(metadata=unkeyed("of the mark alone"))
    slices: tuple[tuple[str, ShardFile], ...]

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"find {self.letter}")
        seen: set[str] = set()
        for name, file in self.slices:
            lines = lines_of(file.uri)
            repeated = [line for line in lines if line in seen]
            seen |= set(lines)
            if repeated:
                out.write(name, "".join(repeated).encode())
        return ShardResult(Ledger())


@dataclass(frozen=True)
class Decide(Shard[Marks]):
    """Round 3: what each file is to be written without."""

    files: tuple[str, ...]
    repeated: tuple[ShardFile, ...]

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, "decide")
        for name in self.files:
            lines = {line for file in self.repeated if file.path == name for line in lines_of(file.uri)}
            out.write(name, "".join(sorted(lines)).encode())
        return ShardResult(Ledger())


@dataclass(frozen=True)
class Write(Shard[Marks]):
    """Round 4: a file without the lines that were decided."""

    task: str
    lines: ShardFile
    without: ShardFile

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"write {self.task}")
        lines, without = lines_of(self.lines.uri), set(lines_of(self.without.uri))
        kept = [line for line in lines if line not in without]
        out.write(self.task, "".join(kept).encode(), task=self.task)
        ledger = Ledger(len(lines), len(kept), len(kept))
        ledger.drop("repeated", len(lines) - len(kept))
        return ShardResult(ledger)


@dataclass(frozen=True, kw_only=True)
class UniquePlan(StagePlan[Marks]):
    """Args: shards: one for each file."""

    shards: list[Cut]


class Unique(Stage[UniqueConfig, UniquePlan]):
    """Cut, find, decide, write."""

    name: ClassVar[str] = "unique"
    version: ClassVar[int] = 1
    config = UniqueConfig

    def plan(self, config: UniqueConfig) -> UniquePlan:
        folder = storage.normalise(config.source, "source")
        store = storage.store_for(folder)
        shards, digests = [], []
        for entry in store.list(folder):
            uri = storage.join(folder, entry.path)
            digests.append([entry.path, store.digest(uri)])
            shards.append(Cut(entry.path, uri, digests[-1][1], name=entry.path, size=entry.size))
        return UniquePlan(
            inputs=[InputRef("source", content_key(digests)[:16])],
            build_context=lambda: Marks(config.marks),
            shards=shards,
        )

    def rounds(
        self, config: UniqueConfig, plan: UniquePlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        cut = yield plan.shards
        letters = sorted({letter for record in cut for letter in record.data["letters"]})
        repeated = yield [self._find(letter, cut) for letter in letters]
        names = tuple(record.name for record in cut)
        files = tuple(record.file(file.path) for record in repeated for file in record.files)
        (decided,) = yield [Decide(names, files, name="decide", size=len(files))]
        yield [Write(record.name, record.file("lines"), decided.file(record.name), name=record.name) for record in cut]

    def _find(self, letter: str, cut: list[ShardRecord]) -> FindRepeated:
        path = f"letters/{letter}"
        slices = tuple(
            (record.name, record.file(path)) for record in cut if any(file.path == path for file in record.files)
        )
        return FindRepeated(letter, slices, name=letter, size=sum(file.size for _, file in slices))

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        cut, *_, written = (Ledger.sum(record.ledger for record in records) for records in rounds)
        return cut.then(written)

    def report(self, manifest: Manifest) -> Report:
        return Report("unique", {"Rows": manifest.ledger.rows_out})
