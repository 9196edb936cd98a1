"""The shards that fetch a source at what it is locked to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from components.fetch.bring import (
    Archive,
    FetchFiles,
    FirstRows,
    HubFile,
    HubSplit,
    data_set,
    first_records,
    web_name,
)
from components.fetch.extract import Place
from components.fetch.given import FILES, GivenData
from components.fetch.lock import Pin
from components.fetch.planned import declared, members, of_extract
from pairmill.engine.manifest import MANIFEST, content_key
from pairmill.errors import InputError
from pairmill.net import hub
from sources.card import CARD, CARD_BYTES
from sources.extracts import described
from sources.origin import Git, Hub, HubRows, Web
from sources.patterns import matching
from sources.raw import FETCH
from sources.source import Source

_Name = tuple[str, str, int, str]
_Named = Callable[..., _Name]


def shards_of(source: Source, pin: Pin, limit: int, stage_version: int) -> list[FetchFiles]:
    """The shards that fetch a source, or with a limit the one that makes an extract of it."""
    origin = source.origin

    def named(name: str, identity: list[object] | dict[str, object], size: int = 1) -> _Name:
        known = [*identity, *of_extract(source, limit)] if limit else identity
        return named_shard(stage_version, source, name, known, size)

    if isinstance(origin, HubRows):
        return _of_rows(source, origin, pin, limit, named)
    if isinstance(origin, Hub):
        return _of_hub(source, origin, pin, limit, named)
    assert isinstance(origin, Git | Web)
    return _of_archive(source, origin, pin, limit, named)


def named_shard(stage_version: int, source: Source, name: str, identity: object, size: int = 1) -> _Name:
    """Name, key, size and source of a shard."""
    return f"{source.name} {name}", content_key(FETCH, stage_version, source.name, identity), size, source.name


def _of_rows(source: Source, origin: HubRows, pin: Pin, limit: int, named: _Named) -> list[FetchFiles]:
    fields = (*source.fields, *source.optional)
    if limit:
        work = named(described(limit), [pin.revision, *declared(source)])
        return [FirstRows(*work, origin, pin.revision, fields, limit)]
    return [
        HubSplit(
            *named(f"split {split}", [pin.revision, split, *declared(source)]), origin, pin.revision, split, fields
        )
        for split in origin.splits
    ]


def _of_hub(source: Source, origin: Hub, pin: Pin, limit: int, named: _Named) -> list[FetchFiles]:
    given = source if isinstance(source, GivenData) else None
    repository = given.repository if given else data_set(origin.repo, source.name)
    files = hub.files(repository, pin.revision)
    found = tuple(given.chosen(sorted(files))) if given else matching(origin.files, sorted(files))
    if not found:
        raise InputError(
            f"no file of {source.name} at this revision",
            where=f"{origin.repo} {pin.revision}",
            got=", ".join(sorted(files)[:5]),
            expected=", ".join(origin.files),
        )
    wanted = {path: files[path] for path in (*found, CARD) if path in files}
    if limit:
        places = {
            path: Place(path, source.name, repo=repository, commit=pin.revision, file=file)
            for path, file in wanted.items()
        }
        known = [asdict(file) for file in wanted.values()]
        name, key, size, _ = named(described(limit), [pin.revision, known, *declared(source)])
        return [first_records(name, key, size, source, _card_of(places), places, limit)]
    check = given is not None and not any(path.endswith(MANIFEST) for path in found)
    return [
        HubFile(*named(path, asdict(file), max(file.size, 1)), repository, pin.revision, file, given, check)
        for path, file in wanted.items()
    ]


def _of_archive(source: Source, origin: Git | Web, pin: Pin, limit: int, named: _Named) -> list[FetchFiles]:
    patterns, strip = members(source)
    if isinstance(origin, Git):
        url, version = f"{origin.repository}/archive/{pin.revision}.tar.gz", ""
    else:
        url, version = origin.url, pin.revision
        if limit and not patterns:
            file = web_name(url, source.name)
            name, key, size, _ = named(described(limit), [pin.origin, pin.revision])
            places = {file: Place(file, source.name, url=url, version=version)}
            return [first_records(name, key, size, source, "", places, limit)]
    work = named(url, [pin.origin, pin.revision, patterns, strip])
    if isinstance(source, GivenData):  # the digest in its pin is that of the tokenizer
        return [Archive(*work, patterns, strip, url=url, prefix=f"{FILES}/")]
    reads = source if limit else None
    return [Archive(*work, patterns, strip, url=url, version=version, sha256=pin.sha256, limit=limit, reads=reads)]


def _card_of(places: Mapping[str, Place]) -> str:
    """The head of a data set's card."""
    if CARD not in places:
        return ""
    with places[CARD].opened() as file:
        return file.read(CARD_BYTES).decode("utf-8", "replace")
