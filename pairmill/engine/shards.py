"""The cache of shards: ``<root>/<stage>/shards/<key>/<attempt>/…``, and ``<key>/_RECORD.json`` written last.

An object appears whole or not at all, and each writer has a folder of its own, which the record names. So a run can be
killed at any instant, and two runs can do the same work at once, even if they make other bytes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.content import broken
from pairmill.engine.listing import RECORD as RECORD
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.engine.stage import Shard, ShardRecord, X
from pairmill.engine.writer import ATTEMPT, AttemptWriter, FinishWriter
from pairmill.errors import InputError, InternalError, PairmillError, from_os_error

_ATTEMPT = re.compile(f"[0-9a-f]{{{ATTEMPT}}}")
# Records looked for at once in an object store.
_AT_ONCE = 32


@dataclass
class Todo:
    """The shards of a round.

    Attributes:
        planned: all of them, in the order of the plan.
        done: records of the finished ones by name.
        left: the others, largest first.
        changed: whether bytes of a finished one had changed. Later rounds may have read them.
    """

    planned: Sequence[Shard[Any]]
    done: dict[str, ShardRecord]
    left: list[Shard[Any]]
    changed: bool = False

    @classmethod
    def look_up(cls, planned: Sequence[Shard[Any]], folder: str, *, verify: bool) -> Todo:
        """Look up the records of these shards in the cache, and delete damaged ones.

        Args:
            planned: shards in the order of the plan.
            folder: URI of the cache.
            verify: compare digests of all files of the shards. Without it sizes are compared, and on a file system
                digests of scratch files: no manifest names those, so later stages could not find a changed one.
        """
        loaded = _load_all(planned, folder, verify)
        done = {item.record.name: item.record for item in loaded if item.record is not None}
        old = [shard.name for shard, item in zip(planned, loaded, strict=True) if item.old]
        if old:
            log.event(
                f"{len(old)} shards run again, {old[0]} first: an older pairmill wrote their records, which have no "
                "digest that would show damage",
                uri=folder,
            )
        left = sorted((shard for shard in planned if shard.name not in done), key=lambda shard: -shard.size)
        return cls(planned, done, left, any(item.changed for item in loaded))

    def records(self) -> list[ShardRecord]:
        """Return the records in the order of the plan, once nothing is left."""
        return [self.done[shard.name] for shard in self.planned]

    def without_broken(self) -> tuple[Todo, list[tuple[str, PairmillError]]]:
        """Split off the shards whose inputs differ from their manifest; return the rest, and the errors by shard.

        It reads each local file once that a shard reads with random access: a file that is read from end to end is
        compared on the way. In a bucket the file would be downloaded twice, and its ETag vouches for it
        (docs/format.md, section 1).
        """
        reads = {shard.name: shard.random_access() for shard in self.left}
        promised = {
            uri: content
            for contents in reads.values()
            for uri, content in contents.items()
            if content.promised and storage.scheme(uri) == "file"
        }
        wrong = broken(promised)
        failures = {name: wrong[uri] for name, contents in reads.items() for uri in contents if uri in wrong}
        return replace(self, left=[item for item in self.left if item.name not in failures]), list(failures.items())


def discard(planned: Sequence[Shard[Any]], folder: str) -> None:
    """Delete the records of these shards, so that they are run again."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(storage.store_for(folder).delete, (storage.join(folder, item.key, RECORD) for item in planned)))


@dataclass(frozen=True)
class _Loaded:
    """What the cache has of a shard.

    Attributes:
        record: None if there is none, or it or its files are damaged.
        old: whether an older pairmill wrote it.
        changed: whether its files have their sizes and other bytes.
    """

    record: ShardRecord | None = None
    old: bool = False
    changed: bool = False


def _load_all(planned: Sequence[Shard[Any]], folder: str, verify: bool) -> list[_Loaded]:
    # Of a bucket three requests each, of 10 ms and more; of a disk perhaps bytes to digest.
    with ThreadPoolExecutor(available_cores() if storage.scheme(folder) == "file" else _AT_ONCE) as pool:
        return list(pool.map(lambda shard: _load(shard.name, shard.key, folder, verify=verify), planned))


def _load(name: str, key: str, cache: str, *, verify: bool) -> _Loaded:
    folder = storage.join(cache, key)
    store, uri = storage.store_for(folder), storage.join(folder, RECORD)
    if not store.exists(uri):
        return _Loaded()
    data = store.read(uri)
    record = _parse(data, name, key, folder)
    folder = folder if record is None else record.folder
    if record is None:
        result = _Loaded(old=_is_old(data))
        wrong = [] if result.old else [f"{RECORD} was changed after it was written"]
    else:
        wrong, changed = manifests.find_damage(folder, record.files), []
        if not wrong:
            local = storage.scheme(folder) == "file"
            read = [file for file in record.files if verify or (local and file.path in record.scratch)]
            wrong = changed = list(manifests.find_changed(folder, read))
        if not wrong:
            return _Loaded(record)
        result = _Loaded(changed=bool(changed))
    if wrong:
        # Files that are missing were often removed on purpose.
        level = logging.WARNING if verify or result.changed or record is None else logging.INFO
        log.event(f"{name}: run again, {wrong[0]} in {folder}", level=level, uri=folder)
    # commit() never overwrites, so a stale record must be deleted before the shard is redone.
    store.delete(uri)
    return result


def _parse(data: bytes, name: str, key: str, home: str) -> ShardRecord | None:
    """Read a record; None unless it is as it was written."""
    if not manifests.is_sealed(data):
        return None
    raw = json.loads(data)
    files = [File.from_json(item) for item in raw["files"]]
    folder = storage.join(home, raw["folder"]) if raw["folder"] else home
    return ShardRecord(
        name, key, folder, ledger=Ledger(**raw["ledger"]), files=files, data=raw["data"], scratch=raw["scratch"]
    )


def _is_old(data: bytes) -> bool:
    try:
        return set(json.loads(data)) == {"ledger", "files", "data"}
    except (ValueError, TypeError):
        return False


def run_shard(stage: str, shard: Shard[X], context: X, folder: str) -> Callable[[], ShardRecord]:
    """Run a shard. The returned function waits until its files are stored, commits its record and returns that.

    Args:
        stage: name of the stage, for messages.
        shard: what to run.
        context: that of the stage's plan.
        folder: URI of the cache.

    Raises:
        PairmillError: it failed. Exceptions of other kinds become one that names the shard.
    """
    home = storage.join(folder, shard.key)
    out = AttemptWriter(home)
    where = f"{stage}: {shard.name}"
    # What a shard does not know cannot get into its bytes.
    nameless = replace(shard, name=shard.key)
    with _translated(where, out):
        result = nameless.run(context, out)
        result.ledger.reconcile(where)

    def commit() -> ShardRecord:
        with _translated(where, out):
            # Runs that share a shard may call it by different names: the record holds content only.
            data = commit_record(out, {"ledger": asdict(result.ledger), "data": result.data})
        record = _parse(data, shard.name, shard.key, home)
        assert record is not None
        return record

    return commit


def commit_record(out: AttemptWriter, says: Mapping[str, object]) -> bytes:
    """Settle the files, and write the record that names them and has what else it ``says``.

    Returns:
        The bytes of the record. Of several writers the first wins, everybody goes on with what it made, and what the
        others made is removed.
    """
    home, mine = out.home, out.settle()
    files = [file.to_json() for file in out.files]
    ours = manifests.seal(manifests.canonical({**says, "files": files, "scratch": out.scratch, "folder": mine}))
    store = storage.store_for(home)
    stored = store.commit(storage.join(home, RECORD), ours)
    out.close()
    if not manifests.is_sealed(stored):  # damaged meanwhile; the next run makes it again
        return ours
    winner = json.loads(stored)["folder"]
    _clear(home, [name for name in store.folders(home) if name != winner] if stored == ours else {mine} - {"", winner})
    return stored


def forget(home: str) -> None:
    """Remove a record, its files, and what killed writers left beside them."""
    store = storage.store_for(home)
    store.delete(storage.join(home, RECORD))
    store.forget_attempts(home)
    _clear(home, store.folders(home))
    if storage.scheme(home) == "file":
        with suppress(OSError):  # somebody writes there
            storage.local_path(home).rmdir()


def _clear(home: str, names: Iterable[str]) -> None:
    for name in names:
        if _ATTEMPT.fullmatch(name):
            with suppress(InputError):  # its writer removes it too
                storage.clear(storage.join(home, name))


@dataclass(frozen=True)
class _Finished:
    """The data of a stage's end: the bytes of its manifest, as text."""

    manifest: str


def commit_finish(out: FinishWriter, stage: str, manifest: Manifest) -> tuple[Manifest, ShardRecord]:
    """Write a manifest and the files that a stage adds to its finished folder as :func:`commit_record` does.

    Returns:
        The manifest that all runs finish the folder with, and the record of those files.
    """
    cache, key = storage.parent_of(out.home), storage.name_of(out.home)
    # A run that was killed may have left one. One that ends now removes its own.
    with suppress(InputError):
        _load(f"{stage}: its end", key, cache, verify=True)
    ours = manifest.dump().decode()
    data = commit_record(out, {"ledger": asdict(Ledger()), "data": asdict(_Finished(ours))})
    record = _parse(data, stage, key, out.home)
    assert record is not None
    theirs = record.read(_Finished).manifest
    return manifest if theirs == ours else Manifest.load(theirs.encode(), storage.join(out.home, RECORD)), record


@contextmanager
def _translated(where: str, out: AttemptWriter) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        out.close()
        if isinstance(error, PairmillError | KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        if isinstance(error, OSError):
            raise from_os_error(error, f"{where} (in {out.folder})") from error
        if isinstance(error, MemoryError):
            hint = "lower workers= or raise the memory limit"
            raise InternalError("out of memory", where=where, hint=hint) from error
        log.logger().exception("%s failed", where)  # a panic in Rust is not an Exception
        raise InternalError(
            f"unexpected {type(error).__name__}: {error}", where=where, hint="this is a defect of pairmill"
        ) from error
