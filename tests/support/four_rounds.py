"""A stage of four rounds, small enough to see through: lines of ``*.txt`` files without those that came before.

Lines are compared by their first letter, as later stages will compare rows by their signatures: each file is cut into
slices (one for each letter), each letter is looked at in all files, one shard decides, and each file is written without
its duplicates. So round 1 drops rows (empty lines) and cuts, round 2 fans in, round 3 is one shard, and round 4 fans
out again and drops rows. Each shard leaves a mark, as in the toy stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest, content_key
from pairmill.engine.options import RunConfig, option
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.report.model import Report
from tests.support.toy_stage import mark


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

    uri: str

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"cut {self.name}")
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

    slices: tuple[tuple[str, str], ...]

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"find {self.name}")
        seen: set[str] = set()
        for name, uri in self.slices:
            lines = lines_of(uri)
            repeated = [line for line in lines if line in seen]
            seen |= set(lines)
            if repeated:
                out.write(name, "".join(repeated).encode())
        return ShardResult(Ledger())


@dataclass(frozen=True)
class Decide(Shard[Marks]):
    """Round 3: what each file is to be written without."""

    files: tuple[str, ...]
    repeated: tuple[tuple[str, str], ...]

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, "decide")
        for name in self.files:
            lines = {line for of, uri in self.repeated if of == name for line in lines_of(uri)}
            out.write(name, "".join(sorted(lines)).encode())
        return ShardResult(Ledger())


@dataclass(frozen=True)
class Write(Shard[Marks]):
    """Round 4: a file without the lines that were decided."""

    lines: str
    without: str

    def run(self, context: Marks, out: Writer) -> ShardResult:
        mark(context.folder, f"write {self.name}")
        lines, without = lines_of(self.lines), set(lines_of(self.without))
        kept = [line for line in lines if line not in without]
        out.write(self.name, "".join(kept).encode(), task=self.name)
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
            shards.append(Cut(entry.path, content_key("cut", digests[-1][1]), entry.size, uri))
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
        found = yield [self._find(letter, cut) for letter in letters]
        names = [record.name for record in cut]
        repeated = [(file, record) for record in found for file in record.files]
        key = content_key("decide", names, [[file.path, file.sha256] for file, _ in repeated])
        uris = tuple((file.path, record.uri(file.path)) for file, record in repeated)
        (decided,) = yield [Decide("decide", key, len(uris), tuple(names), uris)]
        without = {file.path: file for file in decided.files}
        yield [self._write(record, decided, without[record.name]) for record in cut]

    def _find(self, letter: str, cut: list[ShardRecord]) -> FindRepeated:
        slices = [(one, file) for one in cut for file in one.files if file.path == f"letters/{letter}"]
        key = content_key("find", [[one.name, file.sha256] for one, file in slices])
        uris = tuple((one.name, one.uri(file.path)) for one, file in slices)
        return FindRepeated(letter, key, sum(file.size for _, file in slices), uris)

    def _write(self, record: ShardRecord, decided: ShardRecord, without: File) -> Write:
        (lines,) = (file for file in record.files if file.path == "lines")
        key = content_key("write", record.name, lines.sha256, without.sha256)
        return Write(record.name, key, lines.size, record.uri("lines"), decided.uri(without.path))

    def ledger(self, plan: UniquePlan, rounds: Rounds) -> Ledger:
        cut, *_, written = (Ledger.sum(record.ledger for record in records) for records in rounds)
        return cut.then(written)

    def report(self, manifest: Manifest) -> Report:
        return Report("unique", {"Rows": manifest.ledger.rows_out})
