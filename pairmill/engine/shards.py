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
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.blocks import Blocks
from pairmill.engine.content import broken
from pairmill.engine.listing import RECORD as RECORD
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.records import ATTEMPT, ShardRecord, pack
from pairmill.engine.stage import Shard, X
from pairmill.engine.writer import AttemptWriter, FinishWriter
from pairmill.errors import InputError, InternalError, PairmillError, from_os_error

Outcome: TypeAlias = tuple[Shard[X], ShardRecord | PairmillError]
_ATTEMPT = re.compile(f"[0-9a-f]{{{ATTEMPT}}}")
# Records looked for at once in an object store. A list of all that is there costs as much as a dozen.
_AT_ONCE, _FEW = 32, 12
_STARTS = "0123456789abcdef"
"""The folders of shards are listed by the first digit of their keys, all at once."""


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
    def look_up(
        cls,
        planned: Sequence[Shard[Any]],
        folder: str,
        *,
        verify: bool,
        blocks: Blocks | None = None,
        most: int | None = None,
    ) -> Todo:
        """Look up the records of these shards in the cache, and delete damaged ones.

        Args:
            planned: shards in the order of the plan.
            folder: URI of the cache.
            verify: compare digests of all files of the shards. Without it sizes are compared, and on a file system
                digests of scratch files: no manifest names those, so later stages could not find a changed one.
            blocks: of the round, if it has many shards. What is in none is read one at a time, and added to them.
            most: how many are read one at a time, for a look at what others do: they write the blocks, and the rest is
                taken as not done; None = all.
        """
        whole: dict[str, ShardRecord] = {}
        alone = planned
        if blocks is not None and not verify:
            whole, there = _listed(blocks, planned, folder)
            alone = [shard for shard in planned if shard.name not in whole and shard.key in there][:most]
        elif len(planned) > _FEW and storage.scheme(folder) != "file":
            few = storage.store_for(folder).few_folders(folder)
            if few is not None:
                there = set(few)
                alone = [shard for shard in planned if shard.key in there]
        loaded = _load_all(alone, folder, verify)
        done = whole | {item.record.name: item.record for item in loaded if item.record is not None}
        if blocks is not None and most is None:
            for shard, item in zip(alone, loaded, strict=True):
                if item.record is not None:
                    blocks.add(shard, item.record)
            blocks.flush()
        old = [shard.name for shard, item in zip(alone, loaded, strict=True) if item.old]
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


def _listed(blocks: Blocks, planned: Sequence[Shard[Any]], folder: str) -> tuple[dict[str, ShardRecord], set[str]]:
    """Return the records that blocks have of shards whose files are all there, by name, and the keys of the others that
    have something in the cache."""
    store, local = storage.store_for(folder), storage.scheme(folder) == "file"
    # Shards of equal keys, of different names, are rare: a list for each key would be most of what is held here.
    names: dict[str, str] = {}
    others = [shard for shard in planned if names.setdefault(shard.key, shard.name) != shard.name]
    blocks.refresh()

    def look(start: str) -> tuple[list[ShardRecord], list[str]]:
        whole, alone = [], []
        for key, entries in groupby(store.scan(folder, start), lambda entry: entry.path.partition("/")[0]):
            if key not in names:
                continue
            sizes = {entry.path: entry.size for entry in entries}
            packed = blocks.offered.get(key)
            if packed is not None and f"{key}/{RECORD}" in sizes:
                record = ShardRecord.unpack(packed, names[key], folder)
                below = record.folder[len(folder) + 1 :]
                if all(sizes.get(f"{below}/{file.path}") == file.size for file in record.files) and not (
                    local and any(_changed_scratch(record))
                ):
                    whole.append(record)
                    continue
            alone.append(key)
        return whole, alone

    with ThreadPoolExecutor(len(_STARTS)) as pool:
        looked = list(pool.map(look, _STARTS))
    # A listing may be older than the last write: what a block has and no listing is asked for by name.
    there = {key for _, alone in looked for key in alone} | (blocks.offered.keys() & names.keys())
    records = {record.name: record for whole, _ in looked for record in whole}
    for shard in others:
        if names[shard.key] in records:
            records[shard.name] = ShardRecord.unpack(blocks.offered[shard.key], shard.name, folder)
    return records, there


def _changed_scratch(record: ShardRecord) -> Iterator[str]:
    scratch = set(record.scratch)
    return manifests.find_changed(record.folder, [file for file in record.files if file.path in scratch])


def discard(planned: Sequence[Shard[Any]], folder: str) -> None:
    """Delete the records of these shards, so that they are run again."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(storage.store_for(folder).delete, (storage.join(folder, item.key, RECORD) for item in planned)))


class _Loaded(NamedTuple):
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
    folder = storage.join(cache, key) if key else cache
    store, uri = storage.store_for(folder), storage.join(folder, RECORD)
    if not store.exists(uri):
        return _Loaded()
    data = store.read(uri)
    record = _parse(data, name, key, cache)
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


def _parse(data: bytes, name: str, key: str, cache: str) -> ShardRecord | None:
    """Read a record; None unless it is as it was written. ``cache`` has the folder of the key."""
    if not manifests.is_sealed(data):
        return None
    raw = json.loads(data)
    content = {part: raw[part] for part in ("ledger", "files", "data", "scratch")}
    return ShardRecord.unpack(pack(key, raw["folder"], content), name, cache)


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
    out.begun = shard.begun or {}
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
        record = _parse(data, shard.name, shard.key, folder)
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


class _Finished(NamedTuple):
    """The data of a stage's end: the bytes of its manifest, as text."""

    manifest: str


def commit_finish(out: FinishWriter, stage: str, manifest: Manifest) -> tuple[Manifest, ShardRecord]:
    """Write a manifest and the files that a stage adds to its finished folder as :func:`commit_record` does.

    Returns:
        The manifest that all runs finish the folder with, and the record of those files.
    """
    # A run that was killed may have left one. One that ends now removes its own.
    with suppress(InputError):
        _load(f"{stage}: its end", "", out.home, verify=True)
    ours = manifest.dump().decode()
    data = commit_record(out, {"ledger": asdict(Ledger()), "data": _Finished(ours)._asdict()})
    record = _parse(data, stage, "", out.home)
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
