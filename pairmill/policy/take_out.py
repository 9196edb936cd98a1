"""Rows of before a removal: a folder of the same rows without those that a policy takes out, for a stage to read."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final

import numpy as np

from pairmill import storage
from pairmill.engine import policing, runner
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT, InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.engine.options import StageConfig, option
from pairmill.engine.policing import REMOVED, Subject
from pairmill.engine.runner import Together
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.formats import attributes, kept_rows, row_files, rows
from pairmill.formats.kept_rows import Attributes
from pairmill.formats.parquet import number_row_groups
from pairmill.formats.row_files import ORIGIN
from pairmill.log import event
from pairmill.report.model import Report, Table, describe_rows

NAME: Final = "take_out"


@dataclass(kw_only=True)
class TakeOutConfig(StageConfig):
    """Write rows without those that a policy takes out."""

    rows: list[str] = option([], help="folders or URIs of rows", changes_bytes=False, takes="rows")


@dataclass(frozen=True)
class TakeOutRows(Shard[object], reads=()):
    """Writes a row file, and the attributes beside it, without some rows; of a file that keeps all only ``origin``.

    Args:
        file: the rows.
        path: of the file in the finished folder.
        beside: files of attributes of the rows, by operation.
        ordinals: of the rows that go, ascending.
        longest: bytes of the longest row.
        expansion: the most bytes of rows for each byte of the file.
    """

    work = "take rows out"

    file: InputFile
    path: str
    beside: Mapping[str, InputFile]
    ordinals: tuple[int, ...]
    longest: int = field(metadata=unkeyed("a longer row fails the shard"))
    expansion: int = field(metadata=unkeyed("a file that expands more fails the shard"))

    def random_access(self) -> Mapping[str, Content]:
        return self.file.random_access

    def beside_path(self, operation: str) -> str:
        """Return the path of a file of attributes in the finished folder."""
        top = HELD_OUT if self.file.task.startswith(HELD_OUT) else ""
        return top + attributes.path_of(self.file.task.removeprefix(top), operation)

    def run(self, context: object, out: Writer) -> ShardResult:
        if self.ordinals:
            count, groups = self._write_rows(out)
        else:
            groups = kept_rows.row_groups(self.file, self.longest)
            count = sum(groups)
        kept = np.delete(np.arange(count, dtype=np.int64), self.ordinals)
        for name, file in self.beside.items() if self.ordinals else ():
            with out.create(self.beside_path(name)) as local:
                source = Attributes([(file.uri, file.content)])
                kept_rows.cut(source, kept, range(count), groups, local, where=file.uri)
        if ORIGIN not in self.beside:
            with out.create(self.beside_path(ORIGIN)) as local:
                kept_rows.write_origin(kept, groups, local)
        ledger = Ledger(count, len(kept), len(kept))
        if count > len(kept):
            ledger.drop(REMOVED, count - len(kept))
        if self.file.task.startswith(HELD_OUT):
            ledger.rows_out = 0
            ledger.note("for_evaluation", len(kept))
        return ShardResult(ledger)

    def _write_rows(self, out: Writer) -> tuple[int, list[int]]:
        """Write the rows that stay; return how many were read, and the rows of each row group."""
        part = row_files.slice_whole(self.file, self.longest, self.expansion)
        batches = rows.read(part.uri, part, content=part.content, longest=part.longest)
        with out.create(self.path, task=self.file.task) as local:
            with local.open("wb") as opened:
                removed = np.array(self.ordinals, np.uint32)
                count, groups = kept_rows.write(self.file, batches, removed, self.path, opened, longest=self.longest)
            if groups and self.path.endswith(".parquet"):
                number_row_groups(local)
        return count, groups


@dataclass(frozen=True, kw_only=True)
class TakeOutPlan(StagePlan[None]):
    """Args: shards: one for each file; passed_on: what the input says of its rows to the stages after it."""

    shards: Sequence[TakeOutRows]
    passed_on: Mapping[str, Any]


class TakeOut(Stage[TakeOutConfig, TakeOutPlan]):
    """One round; files of which no row goes are linked as they are. It has no version: its code is in its keys."""

    name: ClassVar[str] = NAME
    watched: ClassVar[bool] = False
    round_count: ClassVar[int] = 1
    is_command: ClassVar[bool] = False
    config = TakeOutConfig

    def plan(self, config: TakeOutConfig) -> TakeOutPlan:
        inputs = row_files.discover(config.rows, "rows", verify=config.verify, held_out=True, with_removed=True)
        tops = [storage.normalise(uri, "rows") for uri in config.rows]
        beside = row_files.beside_each(inputs.files)
        shards = [
            TakeOutRows(
                file,
                row_files.path_below(file, tops),
                beside.get(file.uri, {}),
                tuple(policing.removed_rows(Subject.from_task(file.task, [file.digest], storage.parent_of(file.uri)))),
                config.max_record_bytes,
                config.max_expansion,
                name=file.task,
                size=file.size,
            )
            for file in inputs.files
        ]
        return TakeOutPlan(
            inputs=inputs.refs,
            rows_expected=inputs.rows,
            build_context=lambda: None,
            shards=shards,
            passed_on=inputs.passed_on(),
        )

    def rounds(
        self, config: TakeOutConfig, plan: TakeOutPlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        yield plan.shards

    def finish(self, config: TakeOutConfig, plan: TakeOutPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        held_out = {}
        for shard, record in zip(plan.shards, rounds[0], strict=True):
            for file in record.files:
                out.link(record.folder, file)
            beside = {shard.beside_path(name): each for name, each in shard.beside.items()}
            for path, each in {shard.path: shard.file, **beside}.items() if not shard.ordinals else ():
                out.put(each.uri, File(path, each.size, each.digest, each.task))
            if shard.file.task.startswith(HELD_OUT):
                held_out[shard.path] = record.ledger.rows_kept
        return {**({"held_out": held_out} if held_out else {}), **plan.passed_on}

    def report(self, manifest: Manifest) -> Report:
        table = [(name, each.rows_in, each.rows_kept) for name, each in sorted(manifest.shards.items())]
        return Report(
            self.name,
            {"Rows in": manifest.ledger.rows_in, "Kept": manifest.ledger.rows_kept},
            [Table("Tasks", ("Task", "Rows in", "Kept"), table)],
            verdict=describe_rows(manifest.ledger),
        )


def without_removed(stage: str, config: Any, together: Together | None) -> Any:
    """Return the options of a stage that reads rows, with rows that lack what the policy in force takes out.

    A folder that has such rows is written without them first, below ``<root>/take_out``; any other is read as it is.

    Raises:
        PairmillError: a folder was not searched for the rows, or it cannot be read or written.
    """
    takes = {item.metadata.get("takes") for item in fields(config) if item.name == "rows"}
    if "rows" not in takes:
        return config
    names = {item.name for item in fields(TakeOutConfig)} & {item.name for item in fields(config)}
    same = {name: getattr(config, name) for name in names} | {"share": "", "finish": False, "fail_on": []}
    result, removed = [], Counter[str]()
    for place in config.rows:
        own = TakeOutConfig(**{**same, "rows": [place], "profile": "pairmill"})
        if not any(shard.ordinals for shard in TakeOut().plan(own).shards):
            result.append(place)
            continue
        made = runner.run(TakeOut(), own, together)
        counts = {name: each.dropped[REMOVED] for name, each in made.manifest.shards.items() if each.dropped}
        removed.update(counts)
        event(f"{stage}: {sum(counts.values()):,} rows are taken out of {place}; {made.uri} is read", uri=made.uri)
        result.append(made.uri)
    policing.note_removed(removed)
    return replace(config, rows=result)
