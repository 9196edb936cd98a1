"""The clean stage: raw records → rows, every record accounted for."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from components.clean.config import CleanConfig
from components.clean.readers import read
from components.clean.source import Drop, Malformed, Source
from components.clean.sources import SOURCES
from pairmill import inputs, rows, storage
from pairmill.errors import InputError, UsageError
from pairmill.log import event
from pairmill.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.report import Bars, Report, Table
from pairmill.rows import BATCH_BYTES, BATCH_ROWS, Row
from pairmill.stage import Plan, Shard, ShardRecord, Stage, Writer

_FOLDERS = ("data/", "data_clustered/")
_EXAMPLES = 10


@dataclass(frozen=True)
class _Work:
    source: str
    output: str
    files: tuple[tuple[str, str], ...]
    """(path below raw, URI) in the order of the output's rows."""


class Clean(Stage[CleanConfig]):
    """One shard makes one output file."""

    name: ClassVar[str] = "clean"
    version: ClassVar[int] = 1
    config = CleanConfig

    def plan(self, config: CleanConfig) -> Plan:
        raw = storage.normalise(config.raw, "raw")
        shards: list[Shard] = []
        digests: list[list[str | int]] = []
        for source in _chosen(config.sources, raw):
            folder = storage.join(raw, source.name)
            store = storage.store_for(folder)
            sizes = {entry.path: entry.size for entry in store.list(folder)}
            card = (
                store.read(storage.join(folder, "README.md")).decode("utf-8", "replace") if "README.md" in sizes else ""
            )
            outputs = [output for output in source.outputs(sorted(sizes), card) if output.files]
            if not outputs:
                raise InputError(
                    f"no file of {source.name}",
                    where=folder,
                    got=", ".join(sorted(sizes)[:5]) or "an empty folder",
                    expected=f"the files that components/clean/sources/{source.name}.py names",
                )
            digests.append([source.name, source.version])
            taken = [output.path for output in outputs]
            for path in {path for path in taken if taken.count(path) > 1}:
                raise InputError(f"two raw files make one output, {path}", where=folder, hint="rename or remove one")
            for output in outputs:
                files = tuple((f"{source.name}/{path}", storage.join(folder, path)) for path in output.files)
                identity: list[list[str | int]] = [[path, store.digest(uri)] for path, uri in files]
                key = content_key(
                    self.name, self.version, source.name, source.version, config.profile, output.path, identity
                )
                size = sum(sizes[path] for path in output.files)
                shards.append(Shard(output.path, key, _Work(source.name, output.path, files), size))
                digests += identity
        return Plan(shards, [InputRef("raw", content_key(digests)[:16])])

    def process(
        self, config: CleanConfig, plan_context: Any, shard: Shard, out: Writer
    ) -> tuple[Ledger, dict[str, Any]]:
        work: _Work = shard.payload
        source = SOURCES[work.source]
        ledger = Ledger()
        rejects = 0
        examples: list[str] = []
        data_io = config.profile == "data_io"
        with ExitStack() as stack:
            local = stack.enter_context(out.create(work.output, task=_task(work.output)))
            writer: rows.JsonlWriter | rows.ParquetWriter = rows.writer_for(
                work.output, local, null_type_if_empty=data_io
            )
            stack.enter_context(writer)
            reject_file: Any = None
            batch: list[Row] = []
            size = 0
            for path, uri in work.files:
                for place, record in read(uri, config.profile):
                    ledger.rows_in += 1
                    parsed = record if isinstance(record, Malformed) else source.parse(record, config.profile)
                    parts = [parsed] if isinstance(parsed, Row | Drop) else parsed
                    new = [part for part in parts if isinstance(part, Row)]
                    drops = [part for part in parts if isinstance(part, Drop)]
                    if any(_unwritable(row) for row in new):
                        new, drops = [], [Malformed("unpaired_surrogate")]
                    if new:
                        ledger.rows_kept += 1
                        ledger.rows_out += len(new)
                        for drop in drops:
                            ledger.note(f"{drop.reason} (one answer left out)")
                    else:
                        ledger.drop(drops[0].reason)
                    if drops and isinstance(drops[0], Malformed):
                        rejects += 1
                        if len(examples) < _EXAMPLES:
                            examples.append(f"{path} {place}: {drops[0].reason}")
                        if reject_file is None:
                            local = stack.enter_context(out.create(f"rejects/{work.output}.jsonl"))
                            reject_file = stack.enter_context(local.open("w", encoding="utf-8"))
                        reject_file.write(_reject_line(path, place, drops[0].reason, record))
                    for row in new:
                        batch.append(row)
                        size += len(row.instruction) + len(row.response)
                    if size >= BATCH_BYTES or len(batch) >= BATCH_ROWS:
                        writer.write(batch)
                        batch, size = [], 0
            writer.write(batch)
        return ledger, {"source": work.source, "rejects": rejects, "examples": examples}

    def accept(self, config: CleanConfig, plan: Plan, records: list[ShardRecord]) -> None:
        allowed = 0.0 if config.profile == "data_io" else config.max_reject_fraction
        for source, ledger in _by_source(records).items():
            mine = [record.data for record in records if record.data["source"] == source]
            rejects = sum(data["rejects"] for data in mine)
            if rejects > allowed * ledger.rows_in:
                examples = [example for data in mine for example in data["examples"]][:_EXAMPLES]
                raise InputError(
                    f"{rejects} of {ledger.rows_in} records of {source} are malformed, more than {allowed:g} of them",
                    where=self.name,
                    got="; ".join(examples) + ("; …" if rejects > len(examples) else ""),
                    hint="mend the raw data"
                    + ("" if config.profile == "data_io" else ", or raise max_reject_fraction= to go on without them"),
                )
            if ledger.rows_in == 0 and config.profile == "pairmill":
                raise InputError(f"the files of {source} hold no record", where=self.name, hint="check the raw data")

    def finish(
        self, config: CleanConfig, plan: Plan, records: list[ShardRecord], shards: str, out: Writer
    ) -> dict[str, Any]:
        super().finish(config, plan, records, shards, out)
        sources = {name: ledger.__dict__ for name, ledger in _by_source(records).items()}
        return {"sources": sources, "rejects": sum(record.data["rejects"] for record in records)}

    def report(self, manifest: Manifest) -> Report:
        sources = {name: Ledger(**raw) for name, raw in manifest.data["sources"].items()}
        ledger = manifest.ledger
        reasons = [
            (name, reason, count)
            for name, one in sources.items()
            for reason, count in sorted({**one.dropped, **one.notes}.items())
        ]
        header = ("Source", "Records in", "Kept", "Dropped", "Rows out")
        return Report(
            "clean",
            {
                "Records in": ledger.rows_in,
                "Kept": ledger.rows_kept,
                "Dropped": ledger.rows_in - ledger.rows_kept,
                "Malformed": manifest.data["rejects"],
                "Rows out": ledger.rows_out,
                "Fingerprint": manifest.fingerprint,
            },
            [
                Table(
                    "Sources",
                    header,
                    [
                        (name, one.rows_in, one.rows_kept, one.rows_in - one.rows_kept, one.rows_out)
                        for name, one in sources.items()
                    ],
                    "Every record that came in is kept or dropped for a reason.",
                ),
                Bars("Rows out by source", [(name, one.rows_out) for name, one in sources.items()], "rows"),
                Table("What was dropped or left out", ("Source", "Reason", "Records"), reasons),
                Table("Files", ("File", "Rows"), [(name, one.rows_out) for name, one in manifest.shards.items()]),
            ],
        )


def _chosen(names: list[str], raw: str) -> list[Source]:
    if names == ["all"]:
        entries = storage.store_for(raw).list(raw)
        folders = {entry.path.split("/", 1)[0] for entry in entries if "/" in entry.path}
        found = [source for name, source in SOURCES.items() if name in folders]
        if not found:
            raise InputError(
                "no folder of a known source", where=f"raw={raw}", expected=f"one or more of {', '.join(SOURCES)}"
            )
        strangers = sorted(folders - set(SOURCES))
        passed_over = f"; passed over, because no source has that name: {', '.join(strangers)}" if strangers else ""
        event(f"clean: {', '.join(source.name for source in found)}{passed_over}")
        return found
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise UsageError("unknown source", where="sources", got=unknown[0], expected=f"all, or {', '.join(SOURCES)}")
    chosen = [SOURCES[name] for name in dict.fromkeys(names)]
    for source in chosen:
        storage.require(storage.join(raw, source.name), f"the raw files of {source.name}")
    return chosen


def _task(path: str) -> str:
    for folder in _FOLDERS:
        path = path.removeprefix(folder)
    return inputs.task_name(path)


def _unwritable(row: Row) -> bool:
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return True
    return False


def _reject_line(path: str, place: str, reason: str, record: Any) -> str:
    raw = None if isinstance(record, Malformed) else repr(record)[:2000]
    return json.dumps({"file": path, "place": place, "reason": reason, "record": raw}, ensure_ascii=True) + "\n"


def _by_source(records: list[ShardRecord]) -> dict[str, Ledger]:
    found: dict[str, Ledger] = {}
    for record in records:
        found.setdefault(record.data["source"], Ledger()).add(record.ledger)
    return found
