"""``pairmill prune root=…``: what can go, and why; with ``confirm=true`` it goes.

What stays: the newest result of each kind, those of ``keep=``, all trainings, evaluations, comparisons, searches and
fetched data, and whatever a manifest that stays refers to; what was written within the last ``older=`` hours; and
everything that pairmill did not make. What is removed loses its manifest first, and what was made of it before it:
killed at any call, a removal leaves no reference to what is gone and nothing that looks finished and is not.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import BLOCKS, FOLDERS, RECORD, SHARDS, ResultFolder, list_results
from pairmill.engine.manifest import MANIFEST, STARTED
from pairmill.engine.options import option
from pairmill.errors import InputError, StorageError, UsageError, did_you_mean
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.lineage.made_of import Origins
from pairmill.log import event
from pairmill.report.model import Bytes, Table
from pairmill.storage import Entry
from pairmill.storage.base import each

_LASTING: Final = ("fetch", "train", "evaluate", "compare", "search")
"""Stages of whose results and work nothing goes: they took the longest, or others name them by content alone."""
_PRUNED: Final = tuple(folder for folder in FOLDERS if folder not in _LASTING)
_NAMED: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")
_DIGEST: Final = re.compile(rb'"(?:blake3|sha256)": ?"([0-9a-f]{64})"')
_AT_ONCE: Final = 32
_SOON: Final = 5.0
"""Seconds after its manifest in which a run still removes what it has left."""
RESULT, SHARD, UNFINISHED, PARTIAL = "result", "shards of what goes", "unfinished", "partial file"
BLOCK: Final = "records"


@dataclass(kw_only=True)
class PruneConfig(Checked):
    """Print what can go below a root, with the bytes and the reason; confirm=true removes it."""

    root: str = option(help="project folder or URI")
    keep: list[str] = option([], help="fingerprints of results that stay, with all that they were made of")
    older: float = option(24.0, help="hours without a write after which unfinished work is abandoned", at_least=1)
    confirm: bool = option(False, help="remove it; without this nothing is removed")


@dataclass(frozen=True)
class Leaving:
    """A folder that goes, or a partial file.

    Args:
        kind: of what it is.
        place: below the root.
        why: it goes.
        entries: the objects in it, with paths below the root.
        written: when the youngest of them was, in seconds since 1970.
    """

    kind: str
    place: str
    why: str
    entries: Sequence[Entry]
    written: float


@dataclass
class _Stage:
    """The objects of a stage, by the names of its results and of its shards, and the blocks of records."""

    results: dict[str, list[Entry]] = field(default_factory=dict)
    shards: dict[str, list[Entry]] = field(default_factory=dict)
    blocks: list[Entry] = field(default_factory=list)


class Pruning:
    """What can go below a root, looked up when it is made.

    Args:
        keep: fingerprints of results that stay.
        older: seconds without a write after which unfinished work is abandoned.
        now: seconds since 1970.

    Raises:
        UsageError: ``keep`` names a result that is not there.
        InputError: a manifest cannot be read, so that what it refers to is not known.
    """

    def __init__(self, root: str, keep: Sequence[str] = (), older: float = 86_400.0, now: float | None = None) -> None:
        self._root, self._store = root, storage.store_for(root)
        self._before = (time.time() if now is None else now) - older
        self._results = list_results(root)
        self._finished = {item.fingerprint: item for item in self._results if item.finished is not None}
        self._entries = self._store.list(root)
        try:
            self._partials = self._store.leftovers(root)
        except StorageError as error:  # it takes a permission that nothing else needs, and not every store has it
            self._partials = []
            event(f"prune: uploads that were not completed are not looked at: {error}", level=logging.WARNING)
        self._stages = _by_stage(self._entries)
        self._origins = Origins(self._finished.values(), list(self._finished.values()))
        self._texts = self._read([f"{item.folder}/{name}/{MANIFEST}" for name, item in self._finished.items()])
        self._refers = {name: self._references(item) for name, item in self._finished.items()}
        self._busy = {stage for stage in _PRUNED if self._is_busy(stage)}
        stays = self._staying(keep)
        going = [item for item in self._finished.values() if item.fingerprint not in stays]
        self.leaving = [*self._going_results(going), *self._unfinished(), *self._old_partials()]
        self.leaving += self._going_shards(stays)
        self.leaving += self._going_blocks()

    @property
    def _folders(self) -> list[Leaving]:
        """The folders of results that go, what was made of others before those."""
        return [item for item in self.leaving if _is_result(item.place)]

    def text(self, *, removed: bool) -> str:
        """Return what goes as a table, and the bytes that get free."""
        if not self.leaving:
            return "nothing can go\n"
        shards: dict[tuple[str, str, str], list[Leaving]] = {}
        for item in self.leaving:
            whole = _is_result(item.place) or item.kind in {PARTIAL, BLOCK}
            place = item.place if whole else item.place.rpartition("/")[0]
            shards.setdefault((item.kind, place, item.why), []).append(item)
        rows = [
            (place, kind, len(items), Bytes(sum(e.size for item in items for e in item.entries)), why)
            for (kind, place, why), items in shards.items()
        ]
        total = [
            (kind, Bytes(self.freed([item for item in self.leaving if item.kind == kind])))
            for kind in dict.fromkeys(item.kind for item in self.leaving)
        ]
        end = "removed" if removed else "nothing was removed; confirm=true removes it"
        lines = [
            *(f"{kind}: {size}, files with several names in each" for kind, size in total),
            f"in all {Bytes(self.freed(self.leaving))}: {end}",
        ]
        table = Table("What can go", ("Place", "Kind", "Folders", "Bytes", "Why"), rows)
        return table.text() + "\n" + "".join(f"{line}\n" for line in lines)

    def freed(self, items: Iterable[Leaving]) -> int:
        """Return the bytes that get free when all of ``leaving`` goes and these are counted: a file has many names."""
        gone = {entry.path for item in self.leaving for entry in item.entries}
        # In a bucket objects of equal bytes have equal stamps; on a disk a file has one, and several names.
        local = storage.scheme(self._root) == "file"
        stay = {entry.stamp for entry in self._entries if entry.path not in gone} if local else set[str]()
        files = {(local and entry.stamp) or entry.path: entry for item in items for entry in item.entries}
        return sum(entry.size for entry in files.values() if not local or entry.stamp not in stay)

    def remove(self) -> None:
        """Remove it.

        Raises:
            InputError: a result came or went since it was looked up.
        """
        if list_results(self._root) != self._results:
            raise InputError("a result came or went meanwhile", where=f"root={self._root}", hint="run prune again")
        folders = self._folders
        for item in folders:
            uri, paths = self._uri(item.place), {entry.path for entry in item.entries}
            if f"{item.place}/{MANIFEST}" not in paths:
                continue
            if f"{item.place}/{STARTED}" not in paths:
                # Without a manifest it would be a folder of somebody else's rows.
                manifests.begin(uri, item.place.partition("/")[0], storage.name_of(uri))
            self._store.delete(storage.join(uri, MANIFEST))
        last = {f"{item.place}/{STARTED}" for item in folders}
        places = [entry.path for item in folders for entry in item.entries]
        self._delete(path for path in places if path not in last)
        shards = [
            entry.path
            for item in self.leaving
            if item.kind not in {PARTIAL, BLOCK} and not _is_result(item.place)
            for entry in item.entries
        ]
        # While a shard is there that goes, a removal that was killed knows that its blocks go too.
        self._delete(entry.path for item in self.leaving if item.kind == BLOCK for entry in item.entries)
        self._delete(path for path in shards if path.endswith(f"/{RECORD}"))
        self._delete(path for path in shards if not path.endswith(f"/{RECORD}"))
        self._delete(last)
        partial = [entry for item in self.leaving if item.kind == PARTIAL for entry in item.entries]
        if partial:
            self._store.drop_leftovers(self._root, partial)
        if places or shards:
            self._store.drop_empty([self._uri(item.place) for item in self.leaving if item.kind != PARTIAL])

    def _uri(self, place: str) -> str:
        return storage.join(self._root, *place.split("/"))

    def _delete(self, paths: Iterable[str]) -> None:
        each(lambda path, _: self._store.delete(self._uri(path)), list(paths), _AT_ONCE)

    def _read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of small files by path."""
        names = list(paths)
        return dict(zip(names, each(lambda path, _: self._store.read(self._uri(path)), names, _AT_ONCE), strict=True))

    def _references(self, item: ResultFolder) -> set[str]:
        """Return the results that one refers to: those it was made of, and those its manifest names anywhere."""
        named = self._named([self._texts[f"{item.folder}/{item.fingerprint}/{MANIFEST}"]])
        return (named | {parent.fingerprint for parent in self._origins.parents(item)}) - {item.fingerprint}

    def _named(self, texts: Iterable[bytes]) -> set[str]:
        return {match.decode() for text in texts for match in _NAMED.findall(text)} & self._finished.keys()

    def _is_busy(self, stage: str) -> bool:
        """Return whether a stage may be running: work was written since its last result, and not long ago."""
        own = self._stages.get(stage, _Stage())
        done = max(
            (item.finished.timestamp() for item in self._finished.values() if item.folder == stage and item.finished),
            default=0.0,
        )
        works = [entry for entries in own.shards.values() for entry in entries]
        works += [entry for name, entries in own.results.items() if name not in self._finished for entry in entries]
        works += [entry for entry in self._partials if entry.path.startswith(f"{stage}/")]
        last = max((entry.written for entry in works), default=0.0)
        return last > max(self._before, done + _SOON)

    def _staying(self, keep: Sequence[str]) -> set[str]:
        unknown = [name for name in keep if name not in self._finished]
        if unknown:
            hint = did_you_mean(unknown[0], list(self._finished), f"see pairmill status root={self._root}")
            raise UsageError("no such result", where="keep", got=unknown[0], expected="fingerprints", hint=hint)
        stay = set(keep)
        newest = set[tuple[str, bool]]()
        # A stage that runs may read any result of the stages before it.
        read = max((FOLDERS.index(stage) for stage in self._busy), default=-1)
        for item in self._finished.values():  # newest first
            kind = item.folder, self._origins.head(item).is_held_out
            place = FOLDERS.index(item.folder) if item.folder in FOLDERS else len(FOLDERS)
            young = item.finished is not None and item.finished.timestamp() > self._before
            if kind not in newest or item.folder not in _PRUNED or young or place <= read:
                stay.add(item.fingerprint)
            newest.add(kind)
        stay |= self._named_by_others()
        left = list(stay)
        while left:
            fresh = self._refers[left.pop()] - stay
            stay |= fresh
            left += fresh
        return stay

    def _named_by_others(self) -> set[str]:
        """Return the results that manifests name which are of no result: of raw data, of what a run was given."""
        paths = (entry.path for entry in self._entries if entry.path.endswith(f"/{MANIFEST}"))
        return self._named(self._read(path for path in paths if path not in self._texts).values())

    def _going_results(self, going: Sequence[ResultFolder]) -> Iterator[Leaving]:
        """Yield the results that go: those of which others were made after these."""
        left = {item.fingerprint: item for item in going}
        while left:
            read = {name for fingerprint in left for name in self._refers[fingerprint]}
            for name in [name for name in left if name not in read] or list(left):
                item = left.pop(name)
                entries = self._stages[item.folder].results.get(name, [])
                why = "not the newest, and nothing that stays was made of it"
                yield Leaving(
                    RESULT, f"{item.folder}/{name}", why, entries, item.finished.timestamp() if item.finished else 0
                )

    def _unfinished(self) -> Iterator[Leaving]:
        """Yield the folders that were begun, and the shards without a record, of stages that do not run."""
        for stage in _PRUNED:
            own = self._stages.get(stage, _Stage())
            for name, entries in own.results.items() if stage not in self._busy else ():
                paths = {entry.path.rpartition("/")[2] for entry in entries}
                if name not in self._finished and STARTED in paths:
                    yield from self._abandoned(f"{stage}/{name}", entries, "begun and not finished")
            stays = any(item.folder == stage for item in self._finished.values())
            for name, entries in own.shards.items() if stage not in self._busy else ():
                done = any(entry.path == f"{stage}/{SHARDS}/{name}/{RECORD}" for entry in entries)
                if not done or name.startswith("end-"):
                    yield from self._abandoned(f"{stage}/{SHARDS}/{name}", entries, "work that was not ended")
                elif not stays:
                    yield from self._abandoned(f"{stage}/{SHARDS}/{name}", entries, "work of a stage without a result")

    def _abandoned(self, place: str, entries: Sequence[Entry], why: str) -> Iterator[Leaving]:
        last = max(entry.written for entry in entries)
        if 0 < last < self._before:
            yield Leaving(UNFINISHED, place, why, entries, last)

    def _going_shards(self, stays: set[str]) -> list[Leaving]:
        """Return the shards that are not younger than a result that goes, and of which none that stays has a file."""
        until: dict[str, float] = {}
        for item in self._folders:
            stage = item.place.partition("/")[0]
            until[stage] = max(until.get(stage, 0.0), item.written + _SOON)
        known = {item.place for item in self.leaving}
        result = [
            Leaving(SHARD, place, "no result that stays has a file of it", entries, written)
            for stage, last in until.items()
            if stage not in self._busy
            for name, entries in self._stages[stage].shards.items()
            for place in [f"{stage}/{SHARDS}/{name}"]
            for written in [max(entry.written for entry in entries)]
            if place not in known and written < min(last, self._before)
        ]
        lasting = (self._texts[f"{self._finished[name].folder}/{name}/{MANIFEST}"] for name in stays)
        digests = {digest for text in lasting for digest in _DIGEST.findall(text)}
        records = self._read(f"{item.place}/{RECORD}" for item in result)
        return [item for item in result if digests.isdisjoint(_DIGEST.findall(records[f"{item.place}/{RECORD}"]))]

    def _going_blocks(self) -> list[Leaving]:
        """Return the blocks of stages of which shards go or are gone: a run makes them again of records that stay."""
        going = {item.place.partition("/")[0] for item in self.leaving if f"/{SHARDS}/" in item.place}
        return [
            Leaving(BLOCK, f"{stage}/{BLOCKS}", "they have records of shards that go", own.blocks, 0.0)
            for stage, own in self._stages.items()
            if own.blocks and (stage in going or not own.shards)
        ]

    def _old_partials(self) -> Iterator[Leaving]:
        for entry in self._partials:
            if 0 < entry.written < self._before:
                yield Leaving(PARTIAL, entry.path, "its writer was killed", [entry], entry.written)


def _is_result(place: str) -> bool:
    stage, _, name = place.partition("/")
    return stage in _PRUNED and manifests.is_fingerprint(name)


def _by_stage(entries: Iterable[Entry]) -> dict[str, _Stage]:
    result: dict[str, _Stage] = {}
    for entry in entries:
        stage, _, rest = entry.path.partition("/")
        name, _, below = rest.partition("/")
        if stage not in _PRUNED or not below:
            continue
        own = result.setdefault(stage, _Stage())
        if manifests.is_fingerprint(name):
            own.results.setdefault(name, []).append(entry)
        elif name == BLOCKS:
            own.blocks.append(entry)
        elif name == SHARDS and "/" in below:
            own.shards.setdefault(below.partition("/")[0], []).append(entry)
    return result


def run(config: PruneConfig) -> str:
    """Say what can go, and with ``confirm`` remove it; return what is printed."""
    root = storage.normalise(config.root, "root")
    if not storage.store_for(root).folders(root):
        raise InputError("nothing of pairmill is here", where=f"root={root}", hint="check the path of the project")
    pruning = Pruning(root, config.keep, config.older * 3600)
    if config.confirm:
        pruning.remove()
    return pruning.text(removed=config.confirm)


main = partial(cli.run_command, "prune", cli.Command(PruneConfig, run))
