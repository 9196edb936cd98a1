"""The fetch stage: raw data at locked revisions, whole, with digests, licences and where it came from.

Raw data is in ``<root>/raw/<source>/<revision>/``, finished by a manifest of its own. The stage's folder is an index
of it, which the clean stage reads. Files that are there already, under ``raw=``, are digested and indexed in place.

With a limit it is an extract, in ``<root>/raw/<source>/<revision>-first-<N>/``, whose files have names of their own.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from pairmill import storage
from pairmill.digest import SHA256
from pairmill.engine import policing
from pairmill.engine.manifest import Ledger, Manifest, canonical, content_key, fingerprint_from
from pairmill.engine.options import Profile, list_item
from pairmill.engine.policing import Subject
from pairmill.engine.stage import Outputs, Rounds, Shard, ShardRecord, Stage, StagePlan, fingerprint_of
from pairmill.engine.writer import Writer
from pairmill.errors import Attempts, InputError, UsageError
from pairmill.formats.results.raw import FetchResult
from pairmill.log import event
from pairmill.net import drive, http, hub
from pairmill.report.model import Report
from pairmill.sources.files import raw
from pairmill.sources.files.card import CARD
from pairmill.sources.files.extracts import least
from pairmill.sources.files.patterns import matching
from pairmill.sources.files.raw import FETCH, RawFolder
from pairmill.sources.origin import Database, Folder, Git, Hub, HubRows, Manual, Web
from pairmill.sources.registry import chosen
from pairmill.sources.source import UNSTATED, Source
from pairmill.stages.fetch import archive, lock, scratch
from pairmill.stages.fetch.bring import Archive, Brought, FetchFiles, data_set, first_records
from pairmill.stages.fetch.config import KINDS, FetchConfig
from pairmill.stages.fetch.extract import Place
from pairmill.stages.fetch.given import GivenData, places
from pairmill.stages.fetch.lock import Pin
from pairmill.stages.fetch.planned import PlannedSource, declared, describe, members, of_extract
from pairmill.stages.fetch.publish import lock_digests, lock_tokenizer, publish, publish_given
from pairmill.stages.fetch.report import report_of
from pairmill.stages.fetch.work import left_out, shards_of


@dataclass(frozen=True, kw_only=True)
class FetchPlan(StagePlan[FetchConfig]):
    """What is fetched.

    Args:
        shards: only of what is missing, so the fingerprint follows from inputs and ``says`` alone.
        sources: all of them, and finished data.
        passed_on: option and URI of finished data that is where it is.
    """

    shards: list[FetchFiles]
    sources: list[PlannedSource]
    config: FetchConfig
    passed_on: list[list[str]]

    def described(self, sources: list[PlannedSource]) -> Self:
        """Return the plan with what its manifest will say about these sources; their order is not content."""
        ordered = sorted(sources, key=lambda source: source.source.name)
        about: object = {source.source.name: source.about for source in ordered}
        about = [about, self.passed_on] if self.passed_on else about
        plan = replace(self, sources=sources, inputs=[source.ref for source in ordered], says=about, fingerprint="")
        return replace(plan, fingerprint=fingerprint_of(Fetch, self.config, plan, []))


class Fetch(Stage[FetchConfig, FetchPlan]):
    """Downloads, resumes and indexes raw data."""

    name: ClassVar[str] = FETCH
    counts_rows: ClassVar[bool] = False
    version: ClassVar[int] = 5
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "one was kept when a source read through datasets had other columns to read, or another licence or citation",
        3: "damage of records and files of shards could go unseen; the index said where given files are, so equal "
        "files at two places had other bytes",
        4: "the key of a shard follows from all that it reads",
        5: "digests of data are BLAKE3; a manifest says which digest it has of each file; licence and language are "
        "taken from a data set's card",
    }
    config = FetchConfig

    def __init__(self) -> None:
        self._given: list[tuple[str, str, bool]] = []
        """What later stages are given: option, URI, and whether the files are there only once the stage has run."""
        self._found: dict[str, str] = {}

    def outputs(self, config: FetchConfig, manifest: Manifest, folder: str) -> Outputs:
        """Return the folder, and for each option that gives finished data where later stages read it."""
        given = {name: self._passed_on(name) for name in KINDS}
        options = {"root": config.root, **{name: uri for name, uri in given.items() if uri}}
        if given["tokenized"]:
            # The stages after tokenize read it under another name.
            options["tokenized_path"] = given["tokenized"]
        return Outputs(
            folder,
            manifest.ledger.rows_out,
            # The folder, if anything is to be cleaned.
            printed=[*([folder] if config.sources else []), *filter(None, given.values())],
            parameters={f"given_{name}": uri for name, uri in given.items()},
            options=options,
        )

    def _passed_on(self, option: str) -> str:
        """Return what later stages are given by this option, once the stage has run."""
        if option in self._found:
            return self._found[option]
        uris = [uri for name, uri, _ in self._given if name == option]
        distant = {uri for _, uri, later in self._given if later}
        result = [item for uri in uris for item in (places(option, uri, check=False) if uri in distant else [uri])]
        self._found[option] = ",".join(map(list_item, result)) if option == "rows" else "".join(result)
        return self._found[option]

    def plan(self, config: FetchConfig) -> FetchPlan:
        config.look_at_settings()
        given, there, sources = _look(config)
        asked = config.addresses()
        distant = [GivenData(name, each, config.template) for name, items in asked.items() for _, each in items if each]
        have = [source for source in sources if source.name in there or isinstance(source.origin, Folder)]
        missing = [source for source in sources if source not in have]
        movable = {"all", *(source.name for source in missing), *(each.option for each in distant)}
        unknown = [name for name in config.update if name not in movable]
        if unknown:
            known = {source.name for source in have}
            what = "is taken from raw=, not from a lock" if unknown[0] in known else "not one of sources="
            raise UsageError(what, where="update", got=unknown[0])
        result = [self._plan_given(source, given if source.name in there else "", config) for source in have]
        if missing or distant:
            result += self._plan_locked([*missing, *distant], config)
        planned = {each.source.name: each for each, _ in result}
        policing.leave_out(
            (
                Subject(each.source.address.name, (each.source.name,), licence=each.about["licence"], is_whole=True)
                for each, _ in result
                if isinstance(each.source, GivenData) and each.source.option != "tokenizer"
            ),
            ", ".join(f"{name}=" for name in asked),
        )
        self._given, self._found = [], {}
        for name, items in asked.items():
            for item, address in items:
                if address is not None:
                    source = planned[f"{name}={address.text}"]
                    self._given.append((name, source.place(config.root), True))
                    if name == "tokenizer" and source.revision and source.finished(config.root) is not None:
                        # An earlier run fetched it, perhaps for another template.
                        places(name, source.place(config.root), config.template)
                else:
                    uris = places(name, storage.normalise(item, name), config.template)
                    self._given += [(name, uri, False) for uri in uris]
        for each, _ in result if config.verify else ():
            if each.pin is None and each.given is None:
                each.finished(config.root, verify=True)
        order = [*sources, *distant]
        result.sort(key=lambda pair: order.index(pair[0].source))
        plan = FetchPlan(
            inputs=[],
            build_context=lambda: config,
            options={"sources": sorted(source.name for source in sources)},  # a YAML file's path is a place
            shards=[shard for _, shards in result for shard in shards],
            sources=[],
            config=config,
            passed_on=[[name, uri] for name, uri, later in self._given if not later],
        )
        return plan.described([each for each, _ in result])

    def rounds(
        self, config: FetchConfig, plan: FetchPlan
    ) -> Generator[Sequence[Shard[FetchConfig]], list[ShardRecord], FetchPlan]:
        records = yield plan.shards
        digests = {item.source: item.sha256 for item in (record.read(Brought) for record in records)}
        return plan.described(
            [
                item if item.revision or item.given is not None else replace(item, revision=digests[item.source.name])
                for item in plan.sources
            ]
        )

    def is_intact(self, config: FetchConfig, plan: FetchPlan, folder: str) -> bool:
        gone = [item.source.name for item in plan.sources if item.given is None and item.finished(config.root) is None]
        if gone:
            event(f"fetch: raw data of {', '.join(gone)} is missing or changed; fetching it again")
        # Equal files at two places are the same data; stages that run next read them where this run was given them.
        where = _places(plan)
        if not gone and where and raw.places(folder) != where:
            event(f"fetch: the given files of {', '.join(where)} are at another place now")
            _write_places(folder, where)
        return not gone

    def _plan_given(self, source: Source, given: str, config: FetchConfig) -> tuple[PlannedSource, list[FetchFiles]]:
        folder = _folder(source, given)
        limit = least(config.limit, source.limit)
        if limit and not (folder.extract and folder.extract.limit <= limit) and not _lone_archive(source, folder):
            return self._plan_extract(source, folder, limit, config)
        wanted = _files_of(source, folder)
        if wanted:
            wanted = (wanted | {CARD}) & folder.sizes.keys()
            folder.digest(sorted(wanted))
            folder.sizes = {path: folder.sizes[path] for path in sorted(wanted)}
            return PlannedSource(source, "", given=folder), []
        patterns, strip = members(source)
        path = _archive(source, folder)
        uri = storage.join(folder.uri, *path.split("/"))
        # The lock and reports name an archive by what others can check.
        folder.digest([path], like=SHA256)
        sha256 = folder.digests[path]
        shard = Archive(
            source.name,
            sha256,
            patterns,
            strip,
            uri=uri,
            sha256=sha256,
            limit=limit,
            reads=source if limit else None,
            name=f"{source.name} {path}",
            size=folder.sizes[path],
        )
        identity = fingerprint_from(sha256, patterns, *(of_extract(source, limit) if limit else []))
        revision = fingerprint_from(sha256, *of_extract(source, limit)) if limit else sha256
        return PlannedSource(source, identity, revision=revision, limit=limit), [shard]

    def _plan_extract(
        self, source: Source, folder: RawFolder, limit: int, config: FetchConfig
    ) -> tuple[PlannedSource, list[FetchFiles]]:
        """Return an extract of files that are there. They are not digested: that would read all of them."""
        stamps = {entry.path: entry.stamp for entry in storage.store_for(folder.uri).list(folder.uri)}
        places = {}
        for path in sorted(folder.sizes):
            uri = folder.uri_of(path)
            stamp = stamps.get(folder.place(path)) or storage.store_for(uri).stamp(uri)
            # A digest that a manifest has says more than a stamp: it is the same wherever the files are.
            content = folder.digests.get(path) or stamp
            places[path] = Place(path, source.name, uri=uri, stamp=stamp, content=content)
        known = [[path, place.content] for path, place in places.items()]
        revision = content_key(folder.about.get("revision", ""), known, *of_extract(source, limit))
        identity = fingerprint_from(revision)
        item = PlannedSource(source, identity, revision=revision, limit=limit, known=folder.about)
        if item.finished(config.root, verify=config.verify) is not None:
            return item, []
        size = max(sum(folder.sizes.values()), 1)
        return item, [first_records(source, folder.card(), places, limit, folder.listed(), size)]

    def _plan_locked(
        self, sources: Sequence[Source], config: FetchConfig
    ) -> list[tuple[PlannedSource, list[FetchFiles]]]:
        uri = lock_of(config)
        result = []
        with lock.held(uri):
            pins = lock.read(uri)
            new: dict[str, Pin] = {}
            for source in sources:
                name = source.address.locked if isinstance(source, GivenData) else source.name
                option = source.option if isinstance(source, GivenData) else source.name
                old = new.get(name) or pins.get(name)
                moved = name not in new and bool({option, "all"} & set(config.update))
                pin = old if old is not None and not moved else _resolved(source, old)
                if pin.origin != describe(source):
                    raise InputError(
                        f"{source.name} is locked to another origin",
                        where=uri,
                        got=pin.origin,
                        expected=describe(source),
                        hint=f"update={option} locks it again",
                    )
                if pin != old:
                    new[name] = pin
                limit = 0 if isinstance(source, GivenData) else least(config.limit, source.limit)
                without = left_out(source, pin)
                part = [sorted(without)] if without else []
                identity = fingerprint_from(pin.origin, pin.revision, *declared(source), *part)
                item = PlannedSource(source, identity, pin, pin.revision if pin.of_commit else pin.sha256)
                if limit:
                    first = of_extract(source, limit)
                    revision = pin.revision if pin.of_commit else content_key(pin.origin, pin.revision, *first)
                    identity = fingerprint_from(identity, *first)
                    item = PlannedSource(source, identity, pin, revision, limit=limit)
                there = bool(item.revision) and item.finished(config.root, verify=config.verify) is not None
                result.append((item, [] if there else list(shards_of(source, pin, limit, without))))
            # Before the first byte is fetched: a run that is killed goes on with the same revisions.
            if new:
                lock.write(uri, new)
                event(f"fetch: {uri} now holds the revisions of {', '.join(new)}")
        return result

    def parts(self, plan: FetchPlan, rounds: Rounds) -> dict[str, Ledger]:
        """By source, including files that existed already."""
        result = {}
        for item in plan.sources:
            files = item.files(plan.config.root, rounds[0])
            measures = {"files": len(files), "raw_bytes": sum(file.size for file in files)}
            result[item.source.name] = Ledger(measures=measures)
        return result

    def ledger(self, plan: FetchPlan, rounds: Rounds) -> Ledger:
        return Ledger.sum(self.parts(plan, rounds).values())

    def finish(self, config: FetchConfig, plan: FetchPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        scratch.clear(config.root, [record.key for record in rounds[0]])
        if where := _places(plan):
            _write_places(out.folder, where)
        index, given = {}, {}
        for item in plan.sources:
            if isinstance(item.source, GivenData):
                given[item.source.name] = publish_given(item, config.root, self.version, rounds[0])
            else:
                index[item.source.name] = publish(item, config.root, self.version, rounds[0], out)
        seen = {
            item.source.name: item
            for item in plan.sources
            if item.pin and not item.pin.of_commit and not item.pin.sha256 and not item.limit
        }
        if seen:
            lock_digests(lock_of(config), seen)
        lock_tokenizer(lock_of(config), plan.sources, config.root)
        return FetchResult(sources=index, given=given, passed_on=tuple(plan.passed_on)).to_data()

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        result = FetchResult.from_manifest(manifest)
        every = [*result.sources.values(), *result.given.values()]
        sums = {what: sum(item[what] for item in every) for what in ("files", "bytes")}
        return {"sources": len(result.sources), **sums}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def check(config: FetchConfig) -> dict[str, tuple[Source, RawFolder | None]]:
    """Refuse what a run would refuse, as far as that is known without a digest and without a network.

    Returns:
        By name the sources that are asked for, with their raw files if these are there.

    Raises:
        Refusals: for each source without files, and each finished data that is not what its option takes.
    """
    attempts = Attempts()
    result: dict[str, tuple[Source, RawFolder | None]] = {}
    with attempts.each():
        given, there, sources = _look(config)
        for source in sources:
            result[source.name] = source, None
            if source.name in there or isinstance(source.origin, Folder):
                with attempts.each():
                    folder = _folder(source, given if source.name in there else "")
                    result[source.name] = source, folder
                    if not _files_of(source, folder):
                        _archive(source, folder)
    for name, items in config.addresses().items():
        for item, address in items:
            if address is None:
                with attempts.each():
                    places(name, storage.normalise(item, name), config.template)
    attempts.refuse()
    return result


def _look(config: FetchConfig) -> tuple[str, set[str], list[Source]]:
    """Return the URI of ``raw``, the folders in it, and the sources that are asked for."""
    given = storage.normalise(config.raw, "raw") if config.raw else ""
    lock_of(config)  # a place that no storage serves is refused, needed or not
    there = raw.folders(given) if given else set()
    sources = chosen(config.sources, there if given else None, f"raw={given}", given) if config.sources else []
    if given:
        raw.note_unread(given, there, sources)
    sources = _allowed(sources, config)
    _refuse_manual(sources, there, "all" in config.sources)
    return given, there, sources


def _folder(source: Source, given: str) -> RawFolder:
    if given:
        return raw.folder_of(source, given)
    assert isinstance(source.origin, Folder)
    return raw.open_folder(source, source.origin)


def _files_of(source: Source, folder: RawFolder) -> set[str]:
    """Return the paths of the files that a source may read."""
    origin, card, paths = source.origin, folder.card(), folder.listed()
    # Other options of the source than the default ones may read more of what it declares.
    wanted = set(matching(getattr(origin, "files", ()) or getattr(origin, "unpack", ()), paths))
    profiles: tuple[Profile, ...] = ("pairmill", "data_io")
    for profile in profiles:
        for unit in source.units(paths, card, profile, source.options()):
            wanted |= {*unit.files, *unit.withheld}
    return wanted


def _archive(source: Source, folder: RawFolder) -> str:
    """Return the path of the archive that a source's files are in. Raises InputError if there is no single one."""
    paths = folder.listed()
    archives = [path for path in paths if path.endswith(archive.NAMES)]
    patterns, _ = members(source)
    if len(archives) != 1 or not patterns:
        raise InputError(
            f"no file of {source.name}",
            where=folder.uri,
            got=", ".join(paths[:5]),
            expected=", ".join(patterns or getattr(source.origin, "files", ())) or "the files that its source names",
            hint=f"put them there, or leave {source.name} out of sources=",
        )
    return archives[0]


def _places(plan: FetchPlan) -> dict[str, str]:
    """Return where given files are, by source."""
    return {item.source.name: item.given.uri for item in plan.sources if item.given is not None}


def _write_places(folder: str, where: dict[str, str]) -> None:
    storage.store_for(folder).write(storage.join(folder, raw.PLACES), canonical(where))


def _allowed(sources: Sequence[Source], config: FetchConfig) -> list[Source]:
    """Return the sources that a policy lets in: of sources=all the others are left out, one that is named is refused.

    What is for evaluation only may be read by benchmarks, so it is fetched.
    """
    subjects = [Subject(each.name, licence=_licence_of(each), evaluation=True, is_whole=True) for each in sources]
    every = "all" in config.sources
    left_out = policing.leave_out(subjects, f"sources={','.join(config.sources)}", by_name=not every)
    if sources and len(left_out) == len(sources):
        policing.refuse_nothing(f"sources={','.join(config.sources)}")
    return [source for source in sources if source.name not in left_out]


def _licence_of(source: Source) -> str | None:
    """Return the licence that a source declares, or its card on the Hub; None if only its files can say it."""
    if source.licence != UNSTATED or not policing.is_in_force():
        return source.licence
    origin = source.origin
    if isinstance(origin, Hub | HubRows):
        return hub.licence_of(data_set(origin.repo, source.name), origin.revision) or UNSTATED
    return None


def _resolved(source: Source, old: Pin | None) -> Pin:
    """Return the pin of what is published now; the old pin, with its digest, if that has not changed."""
    origin, name = source.origin, describe(source)
    if isinstance(source, GivenData) and isinstance(origin, Hub):
        commit = hub.commit_of(source.repository, origin.revision)
        pin = Pin(name, commit, licence=hub.licence_of(source.repository, commit))
    elif isinstance(origin, Hub | HubRows):
        pin = Pin(name, hub.commit_of(data_set(origin.repo, source.name), origin.revision))
    elif isinstance(origin, Git):
        pin = Pin(name, http.commit_of(origin.repository, origin.revision))
    elif isinstance(origin, Database):
        pin = Pin(name, f"asked for at {datetime.now(UTC).isoformat()}")
    else:
        assert isinstance(origin, Web)
        address = drive.address_of(origin.url)
        version = address.version or http.version(origin.url)
        if version == http.UNTOLD:
            # Whether it is what was locked is known when its bytes are there. Until then it is a version of its own, so
            # that it is fetched; what comes is locked by its digest.
            version = f"{version}, asked for at {datetime.now(UTC).isoformat()}"
        pin = Pin(name, version)
    return old if old is not None and (old.origin, old.revision) == (pin.origin, pin.revision) else pin


def _lone_archive(source: Source, folder: RawFolder) -> bool:
    """Return whether a source's given files are an archive that has to be unpacked first."""
    patterns, _ = members(source)
    return bool(patterns) and not matching(patterns, sorted(folder.sizes))


def lock_of(config: FetchConfig) -> str:
    """URI of the lock file."""
    return storage.normalise(config.lock, "lock") if config.lock else storage.join(config.root, "sources.lock.yaml")


def _refuse_manual(sources: Sequence[Source], there: set[str], every: bool) -> None:
    missing = [item for item in sources if isinstance(item.origin, Manual) and item.name not in there]
    if not missing:
        return
    lines = []
    for item in missing:
        assert isinstance(item.origin, Manual)
        lines.append(f"\n  {item.name}: {item.origin.command}\n    ({item.origin.page})")
    others = ",".join(item.name for item in sources if item not in missing)
    leave = f"sources={others}" if every and others else "sources= without it"
    raise InputError(
        "has to be downloaded by hand" if len(missing) == 1 else f"{len(missing)} have to be downloaded by hand",
        where=", ".join(item.name for item in missing),
        hint=f"put it into <folder>/<source>/ and give raw=<folder>, or go on with {leave}:" + "".join(lines),
    )
