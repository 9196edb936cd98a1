"""The shards that fetch a source at what it is locked to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pairmill.engine import policing
from pairmill.engine.manifest import MANIFEST
from pairmill.engine.policing import Subject
from pairmill.errors import InputError
from pairmill.net import hub
from pairmill.sources.files.card import CARD, CARD_BYTES
from pairmill.sources.files.extracts import described
from pairmill.sources.files.patterns import matching
from pairmill.sources.origin import Database, Git, Hub, HubRows, Web
from pairmill.sources.source import Source
from pairmill.stages.fetch.bring import (
    Archive,
    FetchFiles,
    FirstRows,
    HubFile,
    HubSplit,
    QueryRows,
    data_set,
    first_records,
    web_name,
)
from pairmill.stages.fetch.extract import Place
from pairmill.stages.fetch.given import FILES, GivenData
from pairmill.stages.fetch.lock import Pin
from pairmill.stages.fetch.planned import members


def left_out(source: Source, pin: Pin) -> frozenset[str]:
    """Return the files of a source on the Hub that a policy in force leaves out, by path.

    Raises:
        InputError: it leaves out all of them.
    """
    origin = source.origin
    if not policing.is_in_force() or not isinstance(origin, Hub) or isinstance(source, GivenData):
        return frozenset()
    paths = matching(origin.files, sorted(hub.files(data_set(origin.repo, source.name), pin.revision)))
    # What benchmarks may read is fetched, and of a source the licence was asked for.
    subjects = {path: Subject(f"{source.name}/{path}", (source.name,), licence=None, evaluation=True) for path in paths}
    names = policing.leave_out(subjects.values(), origin.repo, by_name=False)
    if paths and len(names) == len(paths):
        policing.refuse_nothing(f"sources={source.name}")
    return frozenset(path for path, subject in subjects.items() if subject.name in names)


def shards_of(source: Source, pin: Pin, limit: int, without: frozenset[str] = frozenset()) -> Sequence[FetchFiles]:
    """Make the shards that fetch a source, or with a limit the one that makes an extract of it.

    Args:
        source: what is fetched.
        pin: what it is locked to.
        limit: of an extract, how many records; 0 = the published files.
        without: files that are left out.
    """
    origin = source.origin
    if isinstance(origin, HubRows):
        return _of_rows(source, origin, pin, limit)
    if isinstance(origin, Hub):
        return _of_hub(source, origin, pin, limit, without)
    if isinstance(origin, Database):
        name = f"{source.name} {origin.address}"
        return [QueryRows(source.name, origin, pin.revision, limit, sha256=pin.sha256, name=name, size=1)]
    assert isinstance(origin, Git | Web)
    return [_of_archive(source, origin, pin, limit)]


def _of_rows(source: Source, origin: HubRows, pin: Pin, limit: int) -> Sequence[FetchFiles]:
    name, fields = source.name, (*source.fields, *source.optional)
    if limit:
        return [FirstRows(name, origin, pin.revision, fields, limit, name=f"{name} {described(limit)}")]
    return [
        HubSplit(name, origin, pin.revision, split, fields, name=f"{name} split {split}") for split in origin.splits
    ]


def _of_hub(source: Source, origin: Hub, pin: Pin, limit: int, without: frozenset[str]) -> Sequence[FetchFiles]:
    given = source if isinstance(source, GivenData) else None
    repository = given.repository if given else data_set(origin.repo, source.name)
    files = hub.files(repository, pin.revision)
    result = tuple(given.chosen(sorted(files))) if given else matching(origin.files, sorted(files.keys() - without))
    if not result:
        raise InputError(
            f"no file of {source.name} at this revision",
            where=f"{origin.repo} {pin.revision}",
            got=", ".join(sorted(files)[:5]),
            expected=", ".join(origin.files),
        )
    wanted = {path: files[path] for path in (*result, CARD) if path in files}
    if limit:
        places = {
            path: Place(path, source.name, repo=repository, commit=pin.revision, file=file)
            for path, file in wanted.items()
        }
        return [first_records(source, _card_of(places), places, limit)]
    check = given is not None and not any(path.endswith(MANIFEST) for path in result)
    return [
        HubFile(
            source.name,
            repository,
            pin.revision,
            file,
            given,
            check,
            name=f"{source.name} {path}",
            size=max(file.size, 1),
        )
        for path, file in wanted.items()
    ]


def _of_archive(source: Source, origin: Git | Web, pin: Pin, limit: int) -> FetchFiles:
    patterns, strip = members(source)
    if isinstance(origin, Git):
        url, version = f"{origin.repository}/archive/{pin.revision}.tar.gz", ""
    else:
        url, version = origin.url, pin.revision
        if limit and not patterns:
            file = web_name(url, source.name)
            return first_records(source, "", {file: Place(file, source.name, url=url, version=version)}, limit)
    work = Archive(source.name, pin.revision, patterns, strip, url=url, name=f"{source.name} {url}", size=1)
    if isinstance(source, GivenData):  # the digest in its pin is that of the tokenizer
        return replace(work, prefix=f"{FILES}/")
    return replace(work, version=version, sha256=pin.sha256, limit=limit, reads=source if limit else None)


def _card_of(places: Mapping[str, Place]) -> str:
    """Return the head of a data set's card."""
    if CARD not in places:
        return ""
    with places[CARD].opened() as file:
        return file.read(CARD_BYTES).decode("utf-8", "replace")
