"""The clean stage: raw records → rows, every record accounted for.

A shard is a piece of a source's raw files. If one shard makes an output, it writes the output. If several shards or
labels share outputs, shards write segments, and a second round merges them (:mod:`pairmill.stages.clean.merge`).
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine import chat_templates, conditions, policing, vanished
from pairmill.engine.inputs import HELD_OUT, use_of
from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.options import list_item
from pairmill.engine.policing import Subject
from pairmill.engine.stage import Outputs, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError, UsageError
from pairmill.formats.given import list_of, rows_at
from pairmill.formats.results.raw import CleanResult
from pairmill.formats.slices import FileSlice, Slicing, grouped
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.sources.files import raw
from pairmill.sources.files.extracts import described, least
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.language.attributes import CHAT
from pairmill.sources.origin import Folder, HubRows
from pairmill.sources.registry import chosen, is_file, tags_asked_for
from pairmill.sources.source import Source, Unit
from pairmill.stages.clean import answers, merge, tally
from pairmill.stages.clean.alarms import alarms_of, check_sources
from pairmill.stages.clean.cleaning import SAMPLES, Cleaned, CleanPieces, Sources, by_source
from pairmill.stages.clean.config import REJECT, CleanConfig, build_options
from pairmill.stages.clean.holdout import NOTE, held_out_path
from pairmill.stages.clean.limited import Beginning, first_of
from pairmill.stages.clean.malformed import reasons_of, refuse_malformed
from pairmill.stages.clean.merge import Merged
from pairmill.stages.clean.report import report_of
from pairmill.stages.clean.sink import SCRATCH, task_of

_FILES_PER_SHARD = 4096
_LONG = "on_long_record"
# A slice is enough work to be worth a shard, and little enough that sixteen cores share a gigabyte.
SLICING = Slicing(64 << 20, open_from=128 << 20)


@dataclass(frozen=True, kw_only=True)
class CleanPlan(StagePlan[Sources]):
    """Args: about: what manifests say of each source; conditions: their own tags, as the manifest's data has them."""

    shards: list[CleanPieces]
    about: dict[str, dict[str, Any]]
    conditions: dict[str, Any]


class Clean(Stage[CleanConfig, CleanPlan]):
    """Round 1 cleans raw files, about 64 MiB to a shard; round 2 merges what several shards wrote of one output."""

    name: ClassVar[str] = "clean"
    output_in_list: ClassVar[bool] = True
    version: ClassVar[int] = 8
    round_count: ClassVar[int] = 2
    history: ClassVar[dict[int, str]] = {
        2: "large files are cleaned in pieces now, and put together anew",
        3: "one was kept when a data set's card gave its files to other splits, in another order or at another "
        "revision, when CSV was read otherwise, and when a raw file changed while it was read",
        4: "damage of records and files of shards could go unseen; what chat templates write, and what chats leave "
        "out, is recorded",
        5: "the key of a shard follows from all that it reads",
        6: "rows of chat templates are what a server renders, with the chat beside them; what vanished is recorded",
        7: "digests of data are BLAKE3; a manifest says which digest it has of each file; what a card says of "
        "licence and language is kept",
        8: "which record each row is made of is kept",
    }
    config = CleanConfig

    def outputs(self, config: CleanConfig, manifest: Manifest, folder: str) -> Outputs:
        """Return the rows that were given, and the stage's own: the next stages read both."""
        places = [uri for place in list_of(config.rows, "rows") for uri in rows_at(place, check=False).uris]
        output = ",".join(map(list_item, [*places, folder]))
        return Outputs(output, manifest.ledger.rows_out, printed=[output if config.rows else folder])

    def plan(self, config: CleanConfig) -> CleanPlan:
        shards: list[CleanPieces] = []
        refs: list[InputRef] = []
        sources: dict[str, Source] = {}
        about: dict[str, dict[str, Any]] = {}
        makers: dict[str, str] = {}
        # Sorted: the order in which sources were named is not content.
        chosen_ones = [(source.answering(config.turns), folder) for source, folder in _chosen(config)]
        for source, folder in _allowed(sorted(chosen_ones, key=lambda pair: pair[0].name), config):
            options = build_options(source.options, source.name, config.options_of(source.name))
            if source.name in config.sources and options != (named := options.when_named()):
                options = named
                event(
                    f"clean: {source.name} is a benchmark's test split; it was named, so it is trained on: "
                    "do not measure a model with it",
                    level=logging.WARNING,
                    source=source.name,
                )
            units = source.units(folder.listed(), folder.card(), config.profile, options)
            firsts: Mapping[str, int] = {}
            limit = least(config.limit, source.limit, folder.extract.limit if folder.extract else 0)
            if limit:
                units, firsts = first_of(units, folder, source, config.profile, limit)
                event(f"clean: {described(limit)} of {source.name}", source=source.name, limit=limit)
            units = [unit for unit in units if unit.files or unit.withheld]
            if not units:
                raise InputError(
                    f"no file of {source.name}",
                    where=folder.uri,
                    got=", ".join(sorted(folder.sizes)[:5]) or "an empty folder",
                    expected="those that its declaration names (docs/sources.md)",
                    hint="unpack an archive with: pairmill fetch raw=…",
                )
            for output in (unit.output for unit in units):
                other = makers.setdefault(output, source.name)
                if other != source.name:
                    raise UsageError("two sources have the same output", where=output, got=f"{other} and {source.name}")
            outputs = [unit.output for unit in units]
            for path in sorted({path for path in outputs if outputs.count(path) > 1}):
                raise InputError(
                    f"two raw files have the same output, {path}", where=folder.uri, hint="rename or remove one"
                )
            folder.digest([path for unit in units for path in (*unit.files, *unit.withheld)], verify=config.verify)
            units = _policed(units, source, folder, config)
            if not units:
                continue
            for unit in units:
                shards += self._shards(config, source, folder, unit, firsts)
            sources[source.name] = source
            # The declaration may have been corrected since the fetch.
            about[source.name] = {**folder.about, **source.stated(folder.card()), "citation": source.citation}
            if limit:
                about[source.name]["extract"] = described(limit)
            taken = sorted({path for unit in units for path in (*unit.files, *unit.withheld)})
            refs.append(InputRef.from_content(source.name, [[path, folder.digests[path]] for path in taken]))
        if not shards:
            policing.refuse_nothing(f"sources={','.join(config.sources)}")
        quiet = [name for name, source in sources.items() if source.expect is not None]
        own = conditions.to_data(tags_asked_for(sources.values()))
        return CleanPlan(
            inputs=refs,
            build_context=lambda: Sources(config, sources),
            says=[about, own] if own else about,
            options={
                # Of these half may be lost without an alarm; how much is expected decides nothing.
                **({"expected": quiet} if quiet else {}),
                "sources": list(sources),  # by name: a YAML file's path is a place
                **({"turns": config.turns} if config.turns and any(item.answers for item in sources.values()) else {}),
                **({"holdout": config.holdout} if config.holdout else {}),
                **(
                    {_LONG: REJECT, "max_record_bytes": config.max_record_bytes}
                    if config.on_long_record == REJECT
                    else {}
                ),
            },
            check=partial(check_sources, [*sources.values()]),
            shards=shards,
            about=about,
            conditions=own,
        )

    def _shards(
        self, config: CleanConfig, source: Source, folder: RawFolder, unit: Unit, firsts: Mapping[str, int]
    ) -> Iterator[CleanPieces]:
        def pieces(file: FileSlice) -> Sequence[FileSlice]:
            if firsts.get(file.path):
                return [Beginning(**vars(file), records=firsts[file.path])]
            return [file] if source.whole_files else SLICING.cut(file, source.lines_per_record)

        def slices(paths: Iterable[str]) -> list[FileSlice]:
            files = [
                FileSlice(
                    path,
                    folder.uri_of(path),
                    size=folder.sizes[path],
                    content=folder.content(path),
                    longest=config.max_record_bytes,
                    expansion=config.max_expansion,
                    aside=config.on_long_record == REJECT,
                )
                for path in paths
            ]
            return [piece for file in files for piece in pieces(file)]

        groups = list(grouped(slices(unit.files), lambda file: file.size, SLICING.size, _FILES_PER_SHARD))
        withheld = tuple(slices(unit.withheld))
        hashed = bool(config.holdout) and not source.use
        segmented = len(groups) > 1 or "{}" in unit.output or hashed
        name = unit.output.replace("{}", "*")
        for index, group in enumerate(groups or [()]):
            aside = withheld if index == 0 else ()
            part = f"{index:05}" if len(groups) > 1 else ""
            rejects = "rejects/" + "-".join(filter(None, [unit.output.replace("{}", "all"), part])) + ".jsonl"
            yield CleanPieces(
                source=source.name,
                version=source.version,
                streamed=isinstance(source.origin, HubRows),
                attributes=tuple(source.attributes.items()),
                output=unit.output if unit.files else "",
                tag=unit.tag,
                labels=unit.labels,
                pieces=tuple(group),
                withheld=aside,
                paths=tuple(piece.path for piece in (*group, *aside)),
                segmented=segmented,
                rejects=rejects,
                hashed=hashed,
                removed=_removed(source, folder, {piece.path for piece in group}),
                unicode=unicodedata.unidata_version,
                name=f"{name} {part}".strip(),
                size=sum(piece.size for piece in (*group, *aside)),
            )

    def rounds(
        self, config: CleanConfig, plan: CleanPlan
    ) -> Generator[Sequence[Shard[Sources]], list[ShardRecord], None]:
        cleaned = yield plan.shards
        sources = plan.context.by_name
        files: dict[str, set[str]] = {name: set() for name in sources}
        for shard in plan.shards:
            files[shard.source] |= {piece.path for piece in (*shard.pieces, *shard.withheld)}
        refuse_malformed(config, sources, cleaned, files)
        held_out = config.held_out()
        merged = yield merge.shards(cleaned, sources, config.profile, held_out)
        if held_out is not None and not any(record.read(Merged).held_out for record in merged):
            raise InputError(
                "no row is held out",
                where="holdout",
                got=f"{config.holdout} of {sum(record.ledger.rows_in for record in merged):,} rows",
                expected="at least one row",
                hint="raise holdout=, or leave it out",
            )

    def ledger(self, plan: CleanPlan, rounds: Rounds) -> Ledger:
        cleaned, merged = (Ledger.sum(record.ledger for record in records) for records in rounds)
        # A merge drops rows of records that were kept, so they are notes.
        cleaned.rows_out += merged.rows_out - merged.rows_in
        for reason, count in (*merged.dropped.items(), *merged.notes.items()):
            cleaned.note(reason, count)
        return cleaned

    def finish(self, config: CleanConfig, plan: CleanPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        cleaned, merged = rounds
        by_name = by_source(cleaned)
        merges = [record.read(Merged) for record in merged]
        made = [item.outputs for pairs in by_name.values() for _, item in pairs] + [item.outputs for item in merges]
        outputs = {path: rows for rows_by_path in made for path, rows in rows_by_path.items()}
        beside = {path: rows for path, rows in outputs.items() if use_of(path)}
        outputs = {path: rows for path, rows in outputs.items() if path not in beside}
        for record in (*cleaned, *merged):
            for file in record.files:
                if file.path not in SCRATCH:
                    out.link(record.folder, file)
        ledgers = {name: Ledger.sum(record.ledger for record, _ in pairs) for name, pairs in by_name.items()}
        for merged_one in merges:
            for name, lost in merged_one.overwritten.items():
                ledgers[name].rows_out -= lost
            for name, held in merged_one.held_out_of.items():
                ledgers[name].rows_out -= held
                ledgers[name].note(NOTE, held)
        written = sum(ledger.rows_out for ledger in ledgers.values())
        if written != sum(outputs.values()):
            raise InternalError(
                "rows were lost between shards and outputs",
                where=self.name,
                got=f"{sum(outputs.values())} rows in outputs",
                expected=f"{written} rows",
                hint="this is a defect of pairmill, please report it",
            )
        tasks_of = {
            name: [task_of(path) for _, item in pairs for path in item.outputs] for name, pairs in by_name.items()
        }
        for merged_one in merges:
            for name in merged_one.overwritten:
                tasks_of[name] += map(task_of, merged_one.outputs)
                tasks_of[name] += (held_out_path(task_of(path.removeprefix(HELD_OUT))) for path in merged_one.held_out)
        sources = {}
        for name, ledger in ledgers.items():
            mine = [item for _, item in by_name[name]]
            sources[name] = {
                "tasks": sorted(filter(None, tasks_of[name])),
                "ledger": ledger.__dict__,
                "rejects": sum(item.rejects for item in mine),
                "reject_reasons": reasons_of(mine),
                "reject_files": [item.reject_file for item in mine if item.rejects],
                "instruction_bits": _sums(item.instruction_bits for item in mine),
                "response_bits": _sums(item.response_bits for item in mine),
                # One of each shard first, so that they come from all over the source.
                "samples": [item.samples[turn] for turn in range(SAMPLES) for item in mine if turn < len(item.samples)][
                    :SAMPLES
                ],
                "about": plan.about[name],
            }
            if misread := _misread(mine):
                sources[name]["misread"] = misread
            if of_chats := answers.total((item.answers for item in mine), name):
                sources[name]["answers"] = of_chats
                sources[name]["chats"] = answers.chats_of(item.answers for item in mine)
            declared = plan.context.by_name[name].attributes
            types = {key: kind for key, kind in declared.items() if key != CHAT}
            if types:
                sources[name]["attributes"] = tally.joined(types, [item.said for item in mine])
        rendered = {
            task_of(source.output): source.rendering
            for source in map(plan.context.by_name.get, ledgers)
            if source is not None and source.rendering
        }
        held_out = {path: rows for item in merges for path, rows in item.held_out.items()}
        examples: dict[str, dict[str, list[str]]] = {}
        for item in (item for pairs in by_name.values() for _, item in pairs):
            for reason, places in item.examples.items():
                examples.setdefault(item.source, {}).setdefault(reason, []).extend(places)
        for path, count in beside.items():
            event(f"clean: {count:,} records in {path}, which is beside the rows", path=path, records=count)
        if config.holdout:
            rows, tasks = sum(held_out.values()), len(held_out)
            event(f"clean: {rows:,} rows of {tasks:,} of {len(outputs):,} tasks are held out", held_out=rows)
        outputs, beside, held_out = (dict(sorted(item.items())) for item in (outputs, beside, held_out))
        promised = CleanResult(sources=sources, outputs=outputs, beside=beside, held_out=held_out)
        alarms = alarms_of(sources, examples, plan.options.get("expected", ()))
        return {**promised.to_data(), **plan.conditions, **chat_templates.to_data(rendered), vanished.KEY: alarms}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        result = CleanResult.from_manifest(manifest)
        sources = result.sources.values()
        malformed = sum(item["rejects"] for item in sources)
        return {"sources": len(sources), "malformed": malformed, "tasks": len(result.outputs)}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _chosen(config: CleanConfig) -> list[tuple[Source, RawFolder]]:
    described = all(is_file(item) for item in config.sources)  # YAML files can say where their files are
    if not config.raw:
        sources = chosen(config.sources, set()) if described else []
        folders = [(each, raw.open_folder(each, each.origin)) for each in sources if isinstance(each.origin, Folder)]
        if len(folders) < len(config.sources):
            known = {source.name for source, _ in folders}
            needy = [each.name for each in sources if each.name not in known] or config.sources
            raise UsageError(
                "required",
                where="raw",
                got=f"nothing, and sources={','.join(needy)}",
                expected="what fetch printed, or a folder with one folder of raw files per source",
                hint="only YAML sources that have files: and no hub: need no raw=",
            )
        return folders
    uri = storage.normalise(config.raw, "raw")
    fetched = raw.index(uri)
    if fetched is None:
        there = raw.folders(uri)
        sources = chosen(config.sources, set() if described else there, f"raw={uri}", uri)
        raw.note_unread(uri, there, sources)
        return [(source, raw.folder_of(source, uri)) for source in sources]
    sources = chosen(config.sources, set(fetched), f"raw={uri}", None)
    for source in sources:
        if source.name not in fetched:
            got = ", ".join(sorted(fetched))
            raise InputError(
                f"{source.name} was not fetched",
                where=f"raw={uri}",
                got=got,
                hint=f"run fetch with sources={source.name}",
            )
    raw.note_unread(uri, fetched, sources)
    return [(source, fetched[source.name]) for source in sources]


def _allowed(pairs: list[tuple[Source, RawFolder]], config: CleanConfig) -> list[tuple[Source, RawFolder]]:
    """Return the sources that a policy lets in."""
    left_out = policing.leave_out(
        (
            Subject(
                source.name,
                licence=source.stated(folder.card())["licence"],
                evaluation=bool(config.holdout),
                is_whole=True,
            )
            for source, folder in pairs
        ),
        f"sources={','.join(config.sources)}",
    )
    return [(source, folder) for source, folder in pairs if source.name not in left_out]


def _policed(units: list[Unit], source: Source, folder: RawFolder, config: CleanConfig) -> list[Unit]:
    """Return the units without the files that a policy leaves out; withheld ones are there to measure with."""
    licence = source.stated(folder.card())["licence"]
    subjects = {
        f"{source.name}/{path}": Subject(
            f"{source.name}/{path}",
            () if "{}" in unit.output else (task_of(unit.output),),
            (folder.digests[path],),
            licence,
            evaluation=bool(config.holdout),
        )
        for unit in units
        for path in unit.files
    }
    left_out = policing.leave_out(subjects.values(), folder.uri)
    if not left_out:
        return units
    units = [
        unit._replace(files=tuple(path for path in unit.files if f"{source.name}/{path}" not in left_out))
        for unit in units
    ]
    return [unit for unit in units if unit.files or unit.withheld]


def _removed(source: Source, folder: RawFolder, paths: Iterable[str]) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
    """Return the places of records that a policy takes out, by file; files without any are left out."""
    pairs = ((path, policing.removed_records(f"{source.name}/{path}", folder.digests[path])) for path in sorted(paths))
    return tuple((path, tuple(sorted(places, key=str))) for path, places in pairs if places)


def _misread(shards: Sequence[Cleaned]) -> dict[str, int]:
    """Count by file the records that are UTF-8 and were read in another encoding; most come first."""
    result: Counter[str] = Counter()
    for each in shards:
        result.update(each.misread)
    return dict(sorted(result.items(), key=lambda item: (-item[1], item[0])))


def _sums(columns: Iterable[list[int]]) -> list[int]:
    return [sum(values) for values in zip(*columns, strict=True)]
