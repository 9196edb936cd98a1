"""The fetch stage: raw data at locked revisions, whole, with digests, licences and where it came from.

Raw data is in ``<root>/raw/<source>/<revision>/``, finished by a manifest of its own. The stage's folder is an index
of it, which the clean stage reads. Files that are there already, under ``raw=``, are digested and indexed in place.

With a limit it is an extract, in ``<root>/raw/<source>/<revision>-first-<N>/``, whose files have names of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from components.fetch import archive, lock, scratch
from components.fetch.bring import (
    Archive,
    Brought,
    FetchFiles,
    FirstRows,
    HubFile,
    HubSplit,
    data_set,
    first_records,
    web_name,
)
from components.fetch.config import KINDS, SHARES, FetchConfig
from components.fetch.extract import Place
from components.fetch.given import FILES, GivenData, places
from components.fetch.lock import Pin
from components.fetch.report import report_of
from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, File, InputRef, Ledger, Manifest, canonical, content_key
from pairmill.engine.options import Profile, WorkerSlice, later_shares, list_item
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, UsageError
from pairmill.log import event
from pairmill.net import drive, http, hub
from pairmill.report.model import Report
from sources import raw
from sources.card import CARD, CARD_BYTES
from sources.extracts import described, least
from sources.origin import Git, Given, Hub, HubRows, Manual, Web
from sources.patterns import matching
from sources.raw import FETCH, RawFolder
from sources.registry import chosen
from sources.source import Source

_RAW = "raw"


@dataclass(frozen=True)
class PlannedSource:
    """What is known of a source before anything is downloaded.

    Args:
        source: its declaration.
        identity: digest of what its raw folder will contain; empty if its files are given.
        pin: what it is locked to; None if its files are given.
        revision: a commit, or the sha256 of an archive; empty until the archive is downloaded. Of an extract of files
            without a commit, a digest of what is known of them.
        given: the files that exist already, under ``raw=`` or where the source says.
        limit: of an extract, how many records; 0 = the published files.
        known: of an extract of given files, what an earlier fetch knew of them.
    """

    source: Source
    identity: str
    pin: Pin | None = None
    revision: str = ""
    given: RawFolder | None = None
    limit: int = 0
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Its folder below the root."""
        if isinstance(self.source, GivenData):
            return self.source.folder(self.revision)
        folder = self.revision if len(self.revision) == 40 else self.revision[:16]
        return f"{_RAW}/{self.source.name}/{folder}" + (f"-first-{self.limit}" if self.limit else "")

    @property
    def ref(self) -> InputRef:
        """Its files by content, wherever they are; an archive that is not downloaded yet by its server's version."""
        if self.given is not None:
            content: list[object] = [[path, self.given.digests[path]] for path in self.given.sizes]
        else:
            content = [self.revision or (self.pin and self.pin.revision), _declared(self.source)]
            content += [self.limit] if self.limit else []
        return InputRef(self.source.name, content_key(content)[:16])

    @property
    def about(self) -> dict[str, str]:
        """What manifests say about it."""
        revision = f"sha256 {self.revision}" if len(self.revision) == 64 else self.revision
        if self.limit and len(self.revision) != 40:
            revision = f"version {self.pin.revision}" if self.pin else ""  # only a part of the bytes was read
        return {
            "origin": describe(self.source),
            "revision": revision or "as given",
            **self.known,
            **(self.given.about if self.given is not None else {}),  # what an earlier fetch knew
            **({"extract": described(self.limit)} if self.limit else {}),
            "licence": (self.pin.licence if self.pin else "") or self.source.licence,
            "citation": self.source.citation,
        }


@dataclass(frozen=True, kw_only=True)
class FetchPlan(StagePlan[FetchConfig]):
    """What is fetched.

    Args:
        shards: only of what is missing, so the fingerprint follows from inputs and ``says`` alone.
        sources: all of them, and finished data.
        root: URI of the project folder.
        passed_on: option and URI of finished data that is where it is.
    """

    shards: list[FetchFiles]
    sources: list[PlannedSource]
    root: str
    passed_on: list[list[str]]

    def described(self, sources: list[PlannedSource]) -> Self:
        """The plan with what its manifest will say about these sources; their order is not content."""
        ordered = sorted(sources, key=lambda one: one.source.name)
        said: object = {one.source.name: one.about for one in ordered}
        said = [said, self.passed_on] if self.passed_on else said
        return replace(self, sources=sources, inputs=[one.ref for one in ordered], says=said)


class Fetch(Stage[FetchConfig, FetchPlan]):
    """Downloads, resumes and indexes raw data."""

    name: ClassVar[str] = FETCH
    counts_rows: ClassVar[bool] = False
    version: ClassVar[int] = 2
    history: ClassVar[dict[int, str]] = {
        2: "one was kept when a source read through datasets had other columns to read, or another licence or citation",
    }
    config = FetchConfig

    def __init__(self) -> None:
        self._given: list[tuple[str, str, bool]] = []
        """What later stages are given: option, URI, and whether the files are there only once the stage has run."""
        self._found: dict[str, str] = {}

    def parameters(self, config: FetchConfig) -> dict[str, str | list[str]]:
        counts = {1: config.split, 2: later_shares(config.split)}
        # A stage that has nothing to do needs no pods to share it.
        shares = {
            name: WorkerSlice.all(1 if stage in config.idle() else counts[number])
            for name, (stage, number) in SHARES.items()
        }
        return {**{f"given_{name}": self._passed_on(name) for name in KINDS}, **shares}

    def printed(self, config: FetchConfig, folder: str) -> list[str]:
        """The folder, if anything is to be cleaned, and a line for each option that gives finished data."""
        return [*([folder] if config.sources else []), *filter(None, map(self._passed_on, KINDS))]

    def _passed_on(self, option: str) -> str:
        """What later stages are given by this option, once the stage has run."""
        if option in self._found:
            return self._found[option]
        uris = [uri for name, uri, _ in self._given if name == option]
        distant = {uri for _, uri, later in self._given if later}
        found = [one for uri in uris for one in (places(option, uri, check=False) if uri in distant else [uri])]
        self._found[option] = ",".join(map(list_item, found)) if option == "rows" else "".join(found)
        return self._found[option]

    def plan(self, config: FetchConfig) -> FetchPlan:
        given = storage.normalise(config.raw, "raw") if config.raw else ""
        lock_of(config)  # a place that no storage serves is refused, needed or not
        there = raw.folders(given) if given else set()
        sources = chosen(config.sources, there if given else None, f"raw={given}", given) if config.sources else []
        asked = config.addresses()
        distant = [GivenData(name, one) for name, items in asked.items() for _, one in items if one]
        _refuse_manual(sources, there, "all" in config.sources)
        have = [source for source in sources if source.name in there or isinstance(source.origin, Given)]
        missing = [source for source in sources if source not in have]
        movable = {"all", *(source.name for source in missing), *(one.option for one in distant)}
        unknown = [name for name in config.update if name not in movable]
        if unknown:
            known = {source.name for source in have}
            what = "is taken from raw=, not from a lock" if unknown[0] in known else "not one of sources="
            raise UsageError(what, where="update", got=unknown[0])
        found = [self._plan_given(source, given if source.name in there else "", config) for source in have]
        if missing or distant:
            found += self._plan_locked([*missing, *distant], config)
        planned = {one.source.name: one for one, _ in found}
        self._given, self._found = [], {}
        for name, items in asked.items():
            for item, address in items:
                if address is not None:
                    self._given.append((name, place_of(planned[f"{name}={address.text}"], config.root), True))
                else:
                    self._given += [(name, uri, False) for uri in places(name, storage.normalise(item, name))]
        for one, _ in found if config.verify else ():
            if one.pin is None and one.given is None:
                _raw_manifest(one, config.root, verify=True)
        order = [*sources, *distant]
        found.sort(key=lambda pair: order.index(pair[0].source))
        plan = FetchPlan(
            inputs=[],
            build_context=lambda: config,
            options={"sources": sorted(source.name for source in sources)},  # a YAML file's path is a place
            shards=[shard for _, shards in found for shard in shards],
            sources=[],
            root=config.root,
            passed_on=[[name, uri] for name, uri, later in self._given if not later],
        )
        return plan.described([one for one, _ in found])

    def rounds(
        self, config: FetchConfig, plan: FetchPlan
    ) -> Generator[Sequence[Shard[FetchConfig]], list[ShardRecord], FetchPlan]:
        records = yield plan.shards
        digests = {one.source: one.sha256 for one in (record.read(Brought) for record in records)}
        return plan.described(
            [
                one if one.revision or one.given is not None else replace(one, revision=digests[one.source.name])
                for one in plan.sources
            ]
        )

    def fingerprint(self, config: FetchConfig, plan: FetchPlan, shards: Sequence[Shard[Any]]) -> str:
        return super().fingerprint(config, plan, [])

    def is_intact(self, config: FetchConfig, plan: FetchPlan, folder: str) -> bool:
        gone = [
            one.source.name for one in plan.sources if one.given is None and _raw_manifest(one, config.root) is None
        ]
        if gone:
            event(f"fetch: raw data of {', '.join(gone)} is missing or changed; fetching it again")
        # Equal files at two places are the same data, and the index names one place.
        moved = [one.source.name for one in plan.sources if one.given and not _indexed(folder, one)]
        if moved:
            event(f"fetch: the index names another place for the files of {', '.join(moved)}; making it again")
        return not gone and not moved

    def _plan_given(self, source: Source, given: str, config: FetchConfig) -> tuple[PlannedSource, list[FetchFiles]]:
        origin = source.origin
        if given:
            folder = raw.folder_of(source, given)
        else:
            assert isinstance(origin, Given)
            folder = raw.given(source, origin)
        limit = least(config.limit, source.limit)
        if limit and not (folder.extract and folder.extract.limit <= limit) and not _lone_archive(source, folder):
            return self._plan_extract(source, folder, limit, config)
        card = folder.card()
        paths = folder.listed()
        # Other options of the source than the default ones may read more of what it declares.
        wanted = set(matching(getattr(origin, "files", ()) or getattr(origin, "unpack", ()), paths))
        profiles: tuple[Profile, ...] = ("pairmill", "data_io")
        for profile in profiles:
            for unit in source.units(paths, card, profile, source.options()):
                wanted |= {*unit.files, *unit.withheld}
        if wanted:
            wanted = (wanted | {CARD}) & folder.sizes.keys()
            folder.digest(sorted(wanted))
            folder.sizes = {path: folder.sizes[path] for path in sorted(wanted)}
            return PlannedSource(source, "", given=folder), []
        archives = [path for path in paths if path.endswith(archive.NAMES)]
        patterns, strip = _members(source)
        if len(archives) != 1 or not patterns:
            raise InputError(
                f"no file of {source.name}",
                where=folder.uri,
                got=", ".join(paths[:5]),
                expected=", ".join(patterns or getattr(source.origin, "files", ()))
                or "the files that its source names",
            )
        uri = storage.join(folder.uri, *archives[0].split("/"))
        folder.digest(archives)
        sha256 = folder.digests[archives[0]]
        named = self._named(source, archives[0], [sha256, patterns, strip], folder.sizes[archives[0]])
        shard = Archive(*named, patterns, strip, uri=uri, sha256=sha256)
        one = PlannedSource(source, content_key(sha256, patterns)[:16], revision=sha256)
        if limit:
            named = self._named(source, archives[0], [sha256, patterns, strip, *_of_extract(source, limit)])
            shard = Archive(*named, patterns, strip, uri=uri, sha256=sha256, limit=limit, reads=source)
            one = PlannedSource(source, content_key(sha256, patterns, limit)[:16], revision=sha256, limit=limit)
        return one, [shard]

    def _plan_extract(
        self, source: Source, folder: RawFolder, limit: int, config: FetchConfig
    ) -> tuple[PlannedSource, list[FetchFiles]]:
        """An extract of files that are there. They are not digested: that would read all of them."""
        stamps = {entry.path: entry.stamp for entry in storage.store_for(folder.uri).list(folder.uri)}
        places = {}
        for path in sorted(folder.sizes):
            uri = folder.uri_of(path)
            stamp = stamps.get(folder.place(path)) or storage.store_for(uri).stamp(uri)
            places[path] = Place(path, source.name, uri=uri, stamp=stamp)
        # A digest that a manifest has says more than a stamp: it is the same wherever the files are.
        known = [[path, folder.digests.get(path) or place.stamp] for path, place in places.items()]
        revision = content_key(folder.about.get("revision", ""), known)
        identity = content_key(revision, *_of_extract(source, limit))[:16]
        one = PlannedSource(source, identity, revision=revision, limit=limit, known=folder.about)
        if _raw_manifest(one, config.root, verify=config.verify) is not None:
            return one, []
        named = self._named(source, described(limit), [identity], max(sum(folder.sizes.values()), 1))
        return one, [first_records(*named[:3], source, folder.card(), places, limit, folder.listed())]

    def _plan_locked(
        self, sources: Sequence[Source], config: FetchConfig
    ) -> list[tuple[PlannedSource, list[FetchFiles]]]:
        uri = lock_of(config)
        found = []
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
                identity = content_key(pin.origin, pin.revision, *_declared(source))[:16]
                one = PlannedSource(source, identity, pin, pin.revision if pin.of_commit else pin.sha256)
                if limit:
                    revision = pin.revision if pin.of_commit else content_key(pin.origin, pin.revision)
                    identity = content_key(identity, *_of_extract(source, limit))[:16]
                    one = PlannedSource(source, identity, pin, revision, limit=limit)
                there = bool(one.revision) and _raw_manifest(one, config.root, verify=config.verify) is not None
                found.append((one, [] if there else self._shards(source, pin, limit)))
            # Before the first byte is fetched: a run that is killed goes on with the same revisions.
            if new:
                lock.write(uri, new)
                event(f"fetch: {uri} now holds the revisions of {', '.join(new)}")
        return found

    def _shards(self, source: Source, pin: Pin, limit: int) -> list[FetchFiles]:
        """The shards that fetch a source."""
        origin = source.origin
        of_extract = _of_extract(source, limit) if limit else []
        if isinstance(origin, HubRows):
            fields = (*source.fields, *source.optional)
            if limit:
                named = self._named(source, described(limit), [pin.revision, *_declared(source), *of_extract])
                return [FirstRows(*named, origin, pin.revision, fields, limit)]
            return [
                HubSplit(
                    *self._named(source, f"split {split}", [pin.revision, split, *_declared(source)]),
                    origin,
                    pin.revision,
                    split,
                    fields,
                )
                for split in origin.splits
            ]
        if isinstance(origin, Hub):
            finished = source if isinstance(source, GivenData) else None
            repository = finished.repository if finished else data_set(origin.repo, source.name)
            files = hub.files(repository, pin.revision)
            wanted = tuple(finished.chosen(sorted(files))) if finished else matching(origin.files, sorted(files))
            if not wanted:
                raise InputError(
                    f"no file of {source.name} at this revision",
                    where=f"{origin.repo} {pin.revision}",
                    got=", ".join(sorted(files)[:5]),
                    expected=", ".join(origin.files),
                )
            card = [CARD] if CARD in files else []
            if limit:
                repo = data_set(origin.repo, source.name)
                every = {path: files[path] for path in dict.fromkeys((*wanted, *card))}
                places = {
                    path: Place(path, source.name, repo=repo, commit=pin.revision, file=file)
                    for path, file in every.items()
                }
                known = [asdict(file) for file in every.values()]
                named = self._named(source, described(limit), [pin.revision, known, *_declared(source), *of_extract])
                return [first_records(*named[:3], source, _card_of(places), places, limit)]
            return [
                HubFile(
                    *self._named(source, path, asdict(file), max(file.size, 1)),
                    repository,
                    pin.revision,
                    file,
                    finished,
                    finished is not None and not any(path.endswith(MANIFEST) for path in wanted),
                )
                for path, file in ((path, files[path]) for path in dict.fromkeys((*wanted, *card)))
            ]
        patterns, strip = _members(source)
        if isinstance(origin, Git):
            url, version = f"{origin.repository}/archive/{pin.revision}.tar.gz", ""
        else:
            assert isinstance(origin, Web)
            url, version = origin.url, pin.revision
            if limit and not patterns:
                name = web_name(url, source.name)
                named = self._named(source, described(limit), [pin.origin, pin.revision, *of_extract])
                places = {name: Place(name, source.name, url=url, version=version)}
                return [first_records(*named[:3], source, "", places, limit)]
        named = self._named(source, url, [pin.origin, pin.revision, patterns, strip, *of_extract])
        if isinstance(source, GivenData):  # the digest in its pin is that of the tokenizer
            return [Archive(*named, patterns, strip, url=url, prefix=f"{FILES}/")]
        reads = source if limit else None
        work = Archive(*named, patterns, strip, url=url, version=version, sha256=pin.sha256, limit=limit, reads=reads)
        return [work]

    def _named(self, source: Source, name: str, identity: object, size: int = 1) -> tuple[str, str, int, str]:
        """Name, key, size and source of a shard."""
        return f"{source.name} {name}", content_key(self.name, self.version, source.name, identity), size, source.name

    def parts(self, plan: FetchPlan, rounds: Rounds) -> dict[str, Ledger]:
        """By source, including files that existed already."""
        found = {}
        for one in plan.sources:
            files = _files(one, plan.root, _of_source(one, rounds[0]))
            measures = {"files": len(files), "raw_bytes": sum(file.size for file in files)}
            found[one.source.name] = Ledger(measures=measures)
        return found

    def ledger(self, plan: FetchPlan, rounds: Rounds) -> Ledger:
        return Ledger.sum(self.parts(plan, rounds).values())

    def finish(self, config: FetchConfig, plan: FetchPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        scratch.clear(config.root, [shard.key for shard in plan.shards])
        index, given = {}, {}
        for one in plan.sources:
            records = _of_source(one, rounds[0])
            if isinstance(one.source, GivenData):
                given[one.source.name] = _finish_given(one, config.root, records)
            else:
                index[one.source.name] = self._publish(one, config.root, records, out)
        seen = {
            one.source.name: one
            for one in plan.sources
            if one.pin and not one.pin.of_commit and not one.pin.sha256 and not one.limit
        }
        if seen:
            _lock_digests(lock_of(config), seen)
        _lock_tokenizer(lock_of(config), plan, config.root)
        return {
            "sources": index,
            **({"given": given} if given else {}),
            **({"passed_on": plan.passed_on} if plan.passed_on else {}),
        }

    def _publish(self, one: PlannedSource, root: str, records: list[ShardRecord], out: Writer) -> dict[str, Any]:
        """Finish the raw folder of a source and index it; return what the manifest says about it."""
        source, about = one.source, one.about
        entry: dict[str, Any] = {"uri": "", "path": "", "about": about}
        if one.given is not None:
            entry["uri"] = one.given.uri
            files = _files(one, root, records)
            extract = asdict(one.given.extract) if one.given.extract else None
        else:
            entry["path"] = one.path
            finished = _finish_raw(one, root, about, records)
            files, extract = finished.files, finished.data.get("extract")
        entry["files"] = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files]
        said = {}
        if extract is not None:
            entry["extract"] = extract
            said = {what: extract[what] for what in ("limit", "records")}
        out.write(f"sources/{source.name}.json", canonical(entry))
        return {**about, **said, "files": len(files), "bytes": sum(file.size for file in files)}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        sources = manifest.data["sources"].values()
        every = [*sources, *manifest.data.get("given", {}).values()]
        sums = {what: sum(one[what] for one in every) for what in ("files", "bytes")}
        return {"sources": len(sources), **sums}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def describe(source: Source) -> str:
    """A source's origin as one text: what a lock entry is for."""
    origin = source.origin
    if isinstance(source, GivenData):
        return source.address.locked
    if isinstance(origin, Hub):
        return f"hub:{origin.repo}@{origin.revision}"
    if isinstance(origin, HubRows):
        return f"hub rows:{origin.repo}/{origin.config}@{origin.revision}"
    if isinstance(origin, Git):
        return f"git:{origin.repository}@{origin.revision}"
    if isinstance(origin, Web):
        return origin.url
    return origin.page if isinstance(origin, Manual) else "given"


def _declared(source: Source) -> list[object]:
    """The parts of a source's declaration that decide which files are fetched, and whether they are accepted."""
    if isinstance(source.origin, HubRows):
        # Columns of mixed types are refused if they are read, and let pass if not.
        return [asdict(source.origin), sorted({*source.fields, *source.optional})]
    return [asdict(source.origin)]


def _of_extract(source: Source, limit: int) -> list[object]:
    """What decides which records are the first, beside the files."""
    return [limit, source.version, source.lines_per_record]


def _lone_archive(source: Source, folder: RawFolder) -> bool:
    """Whether a source's given files are an archive that has to be unpacked first."""
    patterns, _ = _members(source)
    return bool(patterns) and not matching(patterns, sorted(folder.sizes))


def _card_of(places: Mapping[str, Place]) -> str:
    """The head of a data set's card."""
    if CARD not in places:
        return ""
    with places[CARD].opened() as file:
        return file.read(CARD_BYTES).decode("utf-8", "replace")


def lock_of(config: FetchConfig) -> str:
    """URI of the lock file."""
    return storage.normalise(config.lock, "lock") if config.lock else storage.join(config.root, "sources.lock.yaml")


def _of_source(one: PlannedSource, records: Sequence[ShardRecord]) -> list[ShardRecord]:
    return [record for record in records if record.read(Brought).source == one.source.name]


def _files(one: PlannedSource, root: str, records: Sequence[ShardRecord]) -> Sequence[File]:
    """The raw files of a source: given ones, those that its shards brought, or those of its finished raw folder."""
    if one.given is not None:
        given = one.given
        return [File(given.place(path), size, given.digests[path]) for path, size in given.sizes.items()]
    if records:
        return [file for record in records for file in record.files]
    finished = _raw_manifest(one, root)
    if finished is None:
        raise InputError(
            f"the raw data of {one.source.name} was removed or changed while fetch ran",
            where=_folder(one, root),
            hint="run the same command again",
        )
    return finished.files


def _resolved(source: Source, old: Pin | None) -> Pin:
    """The pin of what is published now; the old pin, with its digest, if that has not changed."""
    origin, name = source.origin, describe(source)
    if isinstance(source, GivenData) and isinstance(origin, Hub):
        commit = hub.commit_of(source.repository, origin.revision)
        pin = Pin(name, commit, licence=hub.licence_of(source.repository, commit))
    elif isinstance(origin, Hub | HubRows):
        pin = Pin(name, hub.commit_of(data_set(origin.repo, source.name), origin.revision))
    elif isinstance(origin, Git):
        pin = Pin(name, http.commit_of(origin.repository, origin.revision))
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


def _lock_digests(uri: str, seen: Mapping[str, PlannedSource]) -> None:
    """Add to the lock the digests of archives that were seen for the first time."""
    with lock.held(uri):
        pins = lock.read(uri)
        new = {
            name: Pin(one.pin.origin, one.pin.revision, one.revision)
            for name, one in seen.items()
            if one.pin is not None and pins.get(name) == one.pin  # else another run has moved it
        }
        if new:
            lock.write(uri, new)


def _finish_given(one: PlannedSource, root: str, records: Sequence[ShardRecord]) -> dict[str, Any]:
    """Finish the folder of finished data; return what the manifest says about it."""
    files = _finish_raw(one, root, one.about, records).files
    return {**one.about, "path": one.path, "files": len(files), "bytes": sum(file.size for file in files)}


def _lock_tokenizer(uri: str, plan: FetchPlan, root: str) -> None:
    """Compare the tokenizer of a git repository with the digest in the lock, or add the digest to it.

    A forge makes its archive anew, so the archive has no digest that can be locked.
    """
    for one in plan.sources:
        if not isinstance(one.source, GivenData) or not isinstance(one.source.origin, Git) or one.pin is None:
            continue
        found = _raw_manifest(one, root)
        digests = [file.sha256 for file in found.files] if found else []
        if one.pin.sha256 and digests != [one.pin.sha256]:
            raise InputError(
                "the file is not the one that the lock names",
                where=one.source.name,
                got=f"sha256 {', '.join(digests)}",
                expected=f"sha256 {one.pin.sha256}",
                hint="update=tokenizer locks what is published now",
            )
        if not one.pin.sha256 and len(digests) == 1:
            with lock.held(uri):
                name = one.source.address.locked
                if lock.read(uri).get(name) == one.pin:
                    lock.write(uri, {name: replace(one.pin, sha256=digests[0])})


def place_of(one: PlannedSource, root: str) -> str:
    """URI of finished data, once it is fetched."""
    assert isinstance(one.source, GivenData)
    return one.source.place(root, one.revision)


def _members(source: Source) -> tuple[tuple[str, ...], int]:
    """The members to unpack of a source's archive, and how many leading folders to strip."""
    if isinstance(source.origin, Git):
        return source.origin.files, 1  # a forge's archive has one folder, named after the commit
    return (source.origin.unpack if isinstance(source.origin, Web) else ()), 0


def _raw_manifest(one: PlannedSource, root: str, *, verify: bool = False) -> Manifest | None:
    """The manifest of a source's raw folder if it is intact and has what the source declares now.

    With ``verify`` any other manifest is deleted, because later checks look at sizes only.
    """
    if not one.revision:
        return None
    folder = _folder(one, root)
    if verify:
        return manifests.load_or_discard(folder, lambda found: found.fingerprint == one.identity, verify=True)
    found = manifests.load_if_intact(folder)
    return found if found is not None and found.fingerprint == one.identity else None


def _indexed(folder: str, one: PlannedSource) -> bool:
    """Whether the index in a finished folder says of given files that they are where they are."""
    assert one.given is not None
    manifest, path = manifests.read(folder), f"sources/{one.source.name}.json"
    data = storage.store_for(folder).read(storage.join(folder, path))
    try:
        # Two runs at once, of two places, may have left the index of the one and the manifest of the other.
        whole = manifest is not None and hashlib.sha256(data).hexdigest() in {file.sha256 for file in manifest.files}
        return whole and json.loads(data)["uri"] == one.given.uri
    except (ValueError, KeyError, TypeError):
        return False


def _folder(one: PlannedSource, root: str) -> str:
    return storage.join(root, *one.path.split("/"))


def _finish_raw(one: PlannedSource, root: str, about: Mapping[str, str], records: Sequence[ShardRecord]) -> Manifest:
    folder = _folder(one, root)
    # The manifest of an older declaration is deleted. Its files stay: older indexes name them.
    existing = manifests.load_or_discard(folder, lambda found: found.fingerprint == one.identity)
    if existing is not None:
        if existing.data["about"] != about:
            # Only the description is new.
            data = {**existing.data, "about": dict(about)}
            storage.store_for(folder).write(storage.join(folder, MANIFEST), replace(existing, data=data).dump())
        return existing
    manifests.begin(folder, _RAW, one.identity)
    out = Writer(folder)
    for record in records:
        for file in record.files:
            out.link(record.folder, file)
    out.flush()
    files = sorted(out.files, key=lambda file: file.path)
    fetched = max(record.read(Brought).fetched for record in records)
    ledger = Ledger.sum(record.ledger for record in records)
    said: dict[str, Any] = {"about": dict(about), "fetched": fetched}
    if one.limit:
        (brought,) = (record.read(Brought) for record in records)
        said["extract"] = {"limit": one.limit, "records": brought.records, "listed": brought.listed}
    made = Manifest(_RAW, Fetch.version, one.identity, {}, [], ledger, files, data=said)
    return manifests.finish(folder, made)


def _refuse_manual(sources: Sequence[Source], there: set[str], every: bool) -> None:
    missing = [one for one in sources if isinstance(one.origin, Manual) and one.name not in there]
    if not missing:
        return
    lines = []
    for one in missing:
        assert isinstance(one.origin, Manual)
        lines.append(f"\n  {one.name}: {one.origin.command}\n    ({one.origin.page})")
    others = ",".join(one.name for one in sources if one not in missing)
    leave = f"sources={others}" if every and others else "sources= without it"
    raise InputError(
        "has to be downloaded by hand" if len(missing) == 1 else f"{len(missing)} have to be downloaded by hand",
        where=", ".join(one.name for one in missing),
        hint=f"put it into <folder>/<source>/ and give raw=<folder>, or go on with {leave}:" + "".join(lines),
    )
