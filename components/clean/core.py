"""The clean stage: raw records → rows, every record accounted for.

A shard is a piece of a source's raw files. Where a shard alone makes an output it writes it; where several shards, or
several labels, share outputs, shards write segments and a second round of shards puts them together
(:mod:`components.clean.merge`).
"""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

from components.clean import merge
from components.clean.config import CleanConfig, build_options
from components.clean.report import report_of
from components.clean.sink import SEGMENTS, Sink
from pairmill import storage
from pairmill.engine.content import Content
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import Plan, Shard, ShardRecord, Stage, Writer
from pairmill.errors import InputError, InternalError, UsageError
from pairmill.formats.rows import Row
from pairmill.log import event
from pairmill.report.model import Report
from sources import raw
from sources.card import suffix_of
from sources.missing_paths import Watch, refuse_missed
from sources.origin import Given, HubRows
from sources.raw import RawFolder
from sources.readers import count
from sources.registry import chosen, is_file
from sources.slices import PIECE_BYTES, Piece, grouped, pieces_of
from sources.source import (
    WITHHELD,
    Context,
    Finding,
    Malformed,
    Note,
    Source,
    Unit,
    checked,
    parts_of,
    whole,
)

_REASONS = 10
_FILES_NAMED = 3
_SAMPLES = 3
_SAMPLE_TEXT = 600
_FILES_PER_SHARD = 4096


@dataclass(frozen=True)
class _Work:
    """Pieces of one unit, in order; ``withheld`` are counted and dropped."""

    source: str
    output: str
    tag: str
    pieces: tuple[Piece, ...]
    withheld: tuple[Piece, ...]
    segmented: bool
    rejects: str
    labels: tuple[str, ...]


@dataclass
class _Tally:
    """What a shard says of its rows: lengths in characters by power of two, and a few rows to look at."""

    instruction_bits: list[int] = field(default_factory=lambda: [0] * 40)
    response_bits: list[int] = field(default_factory=lambda: [0] * 40)
    samples: list[dict[str, str]] = field(default_factory=list)
    _next_sample: int = 1

    def add(self, number: int, row: Row) -> int:
        """Count the ``number``-th row; returns its characters."""
        instruction, response = len(row.instruction or ""), len(row.response or "")
        self.instruction_bits[instruction.bit_length()] += 1
        self.response_bits[response.bit_length()] += 1
        if number == self._next_sample:
            # Rows 1, 4, 13, 40, …: spread over a file of any length without a draw per row, odd and even in turn.
            self._next_sample = 3 * self._next_sample + 1
            self.samples.append({name: (text or "")[:_SAMPLE_TEXT] for name, text in row._asdict().items()})
            del self.samples[:-_SAMPLES]
        return instruction + response


class Clean(Stage[CleanConfig]):
    """One shard cleans about 64 MiB of one source's raw files."""

    name: ClassVar[str] = "clean"
    feeds_lists: ClassVar[bool] = True
    version: ClassVar[int] = 3
    history: ClassVar[dict[int, str]] = {
        2: "large files are cleaned in pieces now, and put together anew",
        3: "one was kept when a data set's card gave its files to other splits, in another order or at another "
        "revision, when CSV was read otherwise, and when a raw file changed while it was read",
    }
    config = CleanConfig

    def plan(self, config: CleanConfig) -> Plan:
        shards: list[Shard] = []
        refs: list[InputRef] = []
        sources: dict[str, Source] = {}
        about: dict[str, dict[str, Any]] = {}
        makers: dict[str, str] = {}
        # By name: the order in which they were asked for is not content.
        for source, folder in sorted(_chosen(config), key=lambda pair: pair[0].name):
            options = build_options(source.options, source.name, config.options_of(source.name))
            if source.name in config.sources and options != (named := options.when_named()):
                options = named
                event(
                    f"clean: {source.name} is a benchmark's test split; it was named, so it is trained on: "
                    "do not measure a model with it",
                    level=logging.WARNING,
                    source=source.name,
                )
            units = [
                unit
                for unit in source.units(sorted(folder.sizes), folder.card(), config.profile, options)
                if unit.files or unit.withheld
            ]
            if not units:
                raise InputError(
                    f"no file of {source.name}",
                    where=folder.uri,
                    got=", ".join(sorted(folder.sizes)[:5]) or "an empty folder",
                    expected="those that its declaration names (docs/sources.md)",
                    hint="unpack an archive with: python -m components.fetch raw=…",
                )
            for output in (unit.output for unit in units):
                other = makers.setdefault(output, source.name)
                if other != source.name:
                    raise UsageError("two sources make one output", where=output, got=f"{other} and {source.name}")
            outputs = [unit.output for unit in units]
            for path in sorted({path for path in outputs if outputs.count(path) > 1}):
                raise InputError(
                    f"two raw files make one output, {path}", where=folder.uri, hint="rename or remove one"
                )
            folder.digest([path for unit in units for path in (*unit.files, *unit.withheld)], verify=config.verify)
            for unit in units:
                shards += self._shards(config, source, folder, unit)
            sources[source.name] = source
            # Of what an earlier fetch knew, its declaration may have been corrected since.
            about[source.name] = {**folder.about, "licence": source.licence, "citation": source.citation}
            taken = sorted({path for unit in units for path in (*unit.files, *unit.withheld)})
            refs.append(InputRef(source.name, content_key([[path, folder.digests[path]] for path in taken])[:16]))
        options = {"sources": list(sources)}  # by name: a YAML file's path is a place
        return Plan(shards, refs, context=(sources, about), says=about, options=options)

    def _shards(self, config: CleanConfig, source: Source, folder: RawFolder, unit: Unit) -> Iterator[Shard]:
        def pieces(paths: Iterable[str]) -> list[Piece]:
            return [
                piece
                for path in paths
                for piece in pieces_of(
                    path,
                    storage.join(folder.uri, *path.split("/")),
                    folder.sizes[path],
                    source.lines_per_record,
                    folder.content(path),
                    config.max_record_bytes,
                )
            ]

        groups = list(grouped(pieces(unit.files), lambda piece: piece.size, PIECE_BYTES, _FILES_PER_SHARD))
        withheld = tuple(pieces(unit.withheld))
        segmented = len(groups) > 1 or "{}" in unit.output
        name = unit.output.replace("{}", "*")
        for index, group in enumerate(groups or [()]):
            aside = withheld if index == 0 else ()
            part = f"{index:05}" if len(groups) > 1 else ""
            rejects = "rejects/" + "-".join(filter(None, [unit.output.replace("{}", "all"), part])) + ".jsonl"
            work = _Work(
                source.name,
                unit.output if unit.files else "",
                unit.tag,
                tuple(group),
                aside,
                segmented,
                rejects,
                unit.labels,
            )
            identity = [
                [piece.path, folder.digests[piece.path], piece.start, piece.stop, piece.first]
                for piece in (*group, *aside)
            ]
            key = content_key(
                self.name,
                self.version,
                [source.name, source.version, isinstance(source.origin, HubRows)],  # readers look at it
                [config.profile, unicodedata.unidata_version],
                [unit.output, unit.tag, segmented, rejects, len(aside), unit.labels],
                identity,
            )
            size = sum(piece.size for piece in (*group, *aside))
            yield Shard(f"{name} {part}".strip(), key, work, size)

    def scattered(self, shard: Shard) -> Mapping[str, Content]:
        if isinstance(shard.payload, merge.Work):
            return {}
        pieces = (*shard.payload.pieces, *shard.payload.withheld)
        return {piece.uri: piece.content for piece in pieces if suffix_of(piece.path) == ".parquet"}

    def process(
        self, config: CleanConfig, plan_context: Any, shard: Shard, out: Writer
    ) -> tuple[Ledger, dict[str, Any]]:
        if isinstance(shard.payload, merge.Work):
            return merge.process(shard.payload, out)
        work: _Work = shard.payload
        source: Source = plan_context[0][work.source]
        ledger, tally, watch = Ledger(), _Tally(), Watch(source.watched)
        rejects = _Rejects(out, work, source)
        context = Context(config.profile, work.tag)
        for piece in work.withheld:
            ledger.rows_in += count(piece, source, config.profile)
        if ledger.rows_in:
            ledger.drop(WITHHELD, ledger.rows_in)
        data: dict[str, Any] = {"source": work.source, "output": work.output}
        with ExitStack() as stack:
            stack.enter_context(rejects)
            if work.output:
                path, task = (SEGMENTS, "") if work.segmented else (work.output, merge.task_of(work.output))
                sink = stack.enter_context(
                    Sink(
                        stack.enter_context(out.create(path, task=task, scratch=work.segmented)),
                        work.output,
                        source.layout,
                        segmented=work.segmented,
                        null_type_if_empty=context.data_io and not source.layout.large,
                        labels=work.labels,
                    )
                )
                for piece in work.pieces:
                    _clean(source, piece, context, sink, ledger, tally, watch, rejects)
        if work.output:
            # Pairs, because a record's keys are sorted, and the order in which labels were first seen counts.
            data |= (
                {"segments": list(sink.segments.items())}
                if work.segmented
                else {"outputs": {work.output: ledger.rows_out}}
            )
        data |= {
            "rejects": rejects.count,
            "refused": rejects.refused,
            "reject_file": work.rejects,
            "reasons": rejects.reasons,
            "samples": tally.samples,
            "missed": watch.missed(),
        }
        data |= {"instruction_bits": tally.instruction_bits, "response_bits": tally.response_bits}
        return ledger, data

    def accept(self, config: CleanConfig, plan: Plan, records: list[ShardRecord]) -> None:
        allowed = 0.0 if config.profile == "data_io" else config.max_reject_fraction
        sources, _ = plan.context
        for source, ledger in _by_source(records).items():
            mine = [record for record in records if record.data["source"] == source]
            refuse_missed(source, sources[source].watched, [record.data["missed"] for record in mine], ledger.rows_in)
            refused = sum(record.data["refused"] for record in mine)
            looked_at = ledger.rows_in - ledger.dropped.get(WITHHELD, 0)
            if refused > allowed * looked_at:
                raise self._too_many(config, sources[source], mine, refused, looked_at)
            if ledger.rows_in == 0 and config.profile == "pairmill":
                raise InputError(f"the files of {source} hold no record", where=self.name, hint="check the raw data")

    def _too_many(
        self, config: CleanConfig, source: Source, records: list[ShardRecord], refused: int, looked_at: int
    ) -> InputError:
        reasons = [one for one in _reasons(record.data for record in records) if one["refused"]]
        doubt = " or in doubt" if refused > sum(record.data["rejects"] for record in records) else ""
        more = "" if config.profile == "data_io" else f", more than {config.max_reject_fraction:g} of them"
        # A refused run publishes nothing: what its shards put aside is in their cache.
        shards = storage.join(storage.normalise(config.root, "root"), self.folder or self.name, "shards")
        files = [
            storage.join(shards, record.key, record.data["reject_file"]) for record in records if record.data["rejects"]
        ]
        writes = list(dict.fromkeys(one["write"] for one in reasons if one["write"]))
        mend = [f"write in {source.described_in}: {' or '.join(writes[:_REASONS])}"] if writes else []
        mend += ["mend the raw data"] if len(writes) < len(reasons) else []
        mend += [] if config.profile == "data_io" else ["raise max_reject_fraction= to go on without them"]
        return InputError(
            f"{refused} of {looked_at} records of {source.name} are malformed{doubt}{more}",
            where=self.name,
            got="; ".join(map(_said, reasons[:_REASONS])) + ("; …" if len(reasons) > _REASONS else ""),
            hint=f"each of them is in {_named(files)}; " + ", or ".join(mend),
        )

    def gather(self, config: CleanConfig, plan: Plan, records: list[ShardRecord]) -> list[Shard]:
        sources, _ = plan.context
        return merge.shards(records, sources, config.profile, self.version)

    def finish(
        self, config: CleanConfig, plan: Plan, records: list[ShardRecord], shards: str, out: Writer
    ) -> dict[str, Any]:
        for record in records:
            for file in record.files:
                if file.path != SEGMENTS:
                    out.adopt(storage.join(shards, record.key), file)
        cleaned = [record for record in records if "source" in record.data]
        outputs = {path: rows for record in records for path, rows in record.data.get("outputs", {}).items()}
        ledgers = _by_source(cleaned)
        for record in records:
            for name, lost in record.data.get("overwritten", {}).items():
                ledgers[name].rows_out -= lost
        written = sum(ledger.rows_out for ledger in ledgers.values())
        if written != sum(outputs.values()):
            raise InternalError(
                "rows were lost between shards and outputs",
                where=self.name,
                got=f"{sum(outputs.values())} rows in outputs",
                expected=f"{written} rows",
                hint="this is a defect of pairmill, please report it",
            )
        _, about = plan.context
        sources = {}
        for name, ledger in ledgers.items():
            mine = [record.data for record in cleaned if record.data["source"] == name]
            sources[name] = {
                "ledger": ledger.__dict__,
                "rejects": sum(data["rejects"] for data in mine),
                "reject_reasons": _reasons(mine),
                "reject_files": [data["reject_file"] for data in mine if data["rejects"]],
                "instruction_bits": _sums(data["instruction_bits"] for data in mine),
                "response_bits": _sums(data["response_bits"] for data in mine),
                # One of each shard first, so that they come from all over the source.
                "samples": [
                    data["samples"][turn] for turn in range(_SAMPLES) for data in mine if turn < len(data["samples"])
                ][:_SAMPLES],
                "about": about[name],
            }
        return {"sources": sources, "outputs": dict(sorted(outputs.items()))}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        sources = manifest.data["sources"].values()
        malformed = sum(one["rejects"] for one in sources)
        return {"sources": len(sources), "malformed": malformed, "tasks": len(manifest.data["outputs"])}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _clean(
    source: Source,
    piece: Piece,
    context: Context,
    sink: Sink,
    ledger: Ledger,
    tally: _Tally,
    watch: Watch,
    rejects: _Rejects,
) -> None:
    parse, profile, add, measure = source.parse, context.profile, sink.add, tally.add
    look, sought = watch.look, watch.open
    for place, record in source.read(piece, profile):
        ledger.rows_in += 1
        if sought:
            look(record)
        parsed = record if isinstance(record, Malformed) else parse(record, context)
        if type(parsed) is Row and whole(parsed):  # most records: this is the inner loop of the stage
            ledger.rows_kept += 1
            ledger.rows_out += 1
            add("", parsed, measure(ledger.rows_out, parsed))
            continue
        found, drops = checked(parsed, profile)
        if found:
            ledger.rows_kept += 1
            for label, row in found:
                ledger.rows_out += 1
                add(label, row, measure(ledger.rows_out, row))
            for drop in drops:
                ledger.note(f"{drop.reason} (one answer left out)")
            for part in parts_of(parsed):
                if isinstance(part, Note):
                    ledger.note(part.what, part.times)
        else:
            drop = drops[0]
            ledger.drop(drop.reason)
            if isinstance(drop, Malformed):
                rejects.add(piece, place, drop, record)


class _Rejects:
    """The file of malformed records, made when the first one comes."""

    def __init__(self, out: Writer, work: _Work, source: Source) -> None:
        self._out, self._work, self._source = out, work, source
        self._stack = ExitStack()
        self._file: Any = None
        self.count = self.refused = 0
        self.reasons: dict[str, dict[str, Any]] = {}
        """By reason: how many, for how many they count, and the first one with what was found."""

    def add(self, piece: Piece, place: int | str, why: Malformed, record: Any) -> None:
        """Put a record aside."""
        if self._file is None:
            local = self._stack.enter_context(self._out.create(self._work.rejects))
            self._file = self._stack.enter_context(local.open("w", encoding="utf-8"))
        path = f"{self._work.source}/{piece.path}"
        # Readers count from 0; a person, and whatever shows the file to one, counts from 1.
        row = place + 1 if isinstance(place, int) else None
        where = _writable(f"member {place}" if row is None else f"row {row}")
        unread = isinstance(record, Malformed)
        self.count += 1
        self.refused += why.weight
        if why.reason not in self.reasons:
            finding = Finding("") if unread else self._source.explain(record, why)
            self.reasons[why.reason] = {
                "count": 0,
                "refused": 0,
                "file": path,
                "place": where,
                "found": _writable(finding.found),
                "write": _writable(finding.write),
            }
        self.reasons[why.reason]["count"] += 1
        self.reasons[why.reason]["refused"] += why.weight
        line = {
            "file": path,
            "row": row,
            "place": where,
            "reason": why.reason,
            "record": None if unread else repr(record)[:2000],
        }
        # Escapes keep what is no Unicode writable.
        self._file.write(json.dumps(line, ensure_ascii=True) + "\n")

    def __enter__(self) -> _Rejects:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _chosen(config: CleanConfig) -> list[tuple[Source, RawFolder]]:
    described = all(is_file(item) for item in config.sources)  # YAML files can say where their files are
    if not config.raw:
        sources = chosen(config.sources, set()) if described else []
        folders = [(one, raw.given(one, one.origin)) for one in sources if isinstance(one.origin, Given)]
        if len(folders) < len(config.sources):
            known = {source.name for source, _ in folders}
            needy = [one.name for one in sources if one.name not in known] or config.sources
            raise UsageError(
                "is needed",
                where="raw",
                got=f"nothing, and sources={','.join(needy)}",
                expected="what fetch printed, or a folder with one folder of raw files per source",
                hint="YAML files that have files: and no hub: do without",
            )
        return folders
    uri = storage.normalise(config.raw, "raw")
    fetched = raw.index(uri)
    if fetched is None:
        there = raw.folders(uri)
        sources = chosen(config.sources, set() if described else there, f"raw={uri}", uri)
        return [(source, raw.folder_of(source, uri)) for source in sources]
    sources = chosen(config.sources, set(fetched), f"raw={uri}", None)
    for source in sources:
        if source.name not in fetched:
            got = ", ".join(sorted(fetched))
            raise InputError(f"{source.name} was not fetched", where=f"raw={uri}", got=got, hint="run fetch with it")
    return [(source, fetched[source.name]) for source in sources]


def _writable(text: str) -> str:
    """Text with escapes for what is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _reasons(shards: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Why records of some shards are malformed: each reason with its counts and its first record; most come first."""
    found: dict[str, dict[str, Any]] = {}
    for data in shards:
        for reason, one in data["reasons"].items():
            known = found.setdefault(reason, {"reason": reason, **one, "count": 0, "refused": 0})
            known["count"] += one["count"]
            known["refused"] += one["refused"]
    return sorted(found.values(), key=lambda one: (-one["count"], one["reason"]))


def _said(one: dict[str, Any]) -> str:
    example = f"{one['file']} {one['place']}: {one['reason']}"
    found = [f"found {one['found']}"] * bool(one["found"]) + [f"{one['count']:,} such"] * (one["count"] > 1)
    return example + (f" ({', '.join(found)})" if found else "")


def _named(files: list[str]) -> str:
    rest = len(files) - _FILES_NAMED
    return ", ".join(files[:_FILES_NAMED]) + (f" and {rest} files of other shards" if rest > 0 else "")


def _by_source(records: list[ShardRecord]) -> dict[str, Ledger]:
    found: dict[str, Ledger] = {}
    for record in records:
        if "source" in record.data:
            found.setdefault(record.data["source"], Ledger()).add(record.ledger)
    return found


def _sums(columns: Iterable[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*columns, strict=True)]
