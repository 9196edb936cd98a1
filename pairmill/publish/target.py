"""Where a result is published: a data set of the Hub, or a folder of a bucket or of this machine."""

import io
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pairmill import storage
from pairmill.address import HUB, parse
from pairmill.errors import InputError, UsageError
from pairmill.log import event, progress
from pairmill.net import hub, hub_push
from pairmill.publish.tree import Item, Sums

_AT_ONCE: Final = 256
"""Files of a commit."""
_KEPT: Final = (".gitattributes",)
"""Files of the Hub itself."""


@dataclass(frozen=True)
class Remote:
    """What is at a target: paths that are as they should be, that differ, and that belong to something else."""

    same: frozenset[str]
    differ: frozenset[str]
    others: frozenset[str]


class Target(Protocol):
    """A place to publish to."""

    @property
    def address(self) -> str:
        """Return the address that others read."""

    def compare(self, items: Collection[Item], sums: Mapping[str, Sums]) -> Remote:
        """Compare sizes and digests of what is there with what should be."""

    def put(self, items: Sequence[Item], gone: Collection[str], message: str) -> None:
        """Write files, and remove others."""

    def begin(self) -> None:
        """Create the place, if it is not there."""

    def version(self) -> str:
        """Return what names the present content: the commit; empty of a folder."""


@dataclass(frozen=True)
class HubTarget:
    """A branch of a data set of the Hub."""

    repository: hub.Repository
    revision: str
    private: bool

    @property
    def address(self) -> str:
        """Return the address that fetch reads, without a revision."""
        return f"{HUB}datasets/{self.repository.name}"

    def begin(self) -> None:
        hub_push.create(self.repository, private=self.private)

    def version(self) -> str:
        return hub.commit_of(self.repository, self.revision)

    def compare(self, items: Collection[Item], sums: Mapping[str, Sums]) -> Remote:
        try:
            there = hub.files(self.repository, self.version())
        except InputError as error:
            if "does not exist" not in error.what:
                raise
            there = {}
        same, differ = set[str](), set[str]()
        for item in items:
            mine, its = sums[item.path], there.get(item.path)
            if its is not None:
                # Files that git itself holds have no other digest than git's.
                equal = its.size == item.size and (its.sha256 == mine.sha256 if its.sha256 else its.blob == mine.git)
                (same if equal else differ).add(item.path)
        others = there.keys() - {item.path for item in items} - {*_KEPT}
        return Remote(frozenset(same), frozenset(differ), frozenset(others))

    def put(self, items: Sequence[Item], gone: Collection[str], message: str) -> None:
        with progress("publish", len(items), "files") as bar:
            for start in range(0, max(1, len(items)), _AT_ONCE):
                part = items[start : start + _AT_ONCE]
                contents = {item.path: _content(item) for item in part}
                is_last = start + _AT_ONCE >= len(items)
                hub_push.push(self.repository, self.revision, contents, gone if is_last else (), message)
                bar.advance(len(part), 0, sum(item.size for item in part))


def _content(item: Item) -> hub_push.Content:
    if not item.uri:
        return item.data
    if storage.scheme(item.uri) == "file":
        return str(storage.local_path(item.uri))
    return io.BufferedReader(storage.store_for(item.uri).open(item.uri))  # type: ignore[type-var]


@dataclass(frozen=True)
class StoreTarget:
    """A folder of a bucket, or of this machine."""

    address: str

    def begin(self) -> None:
        """Need nothing."""

    def version(self) -> str:
        return ""

    def _uri(self, path: str) -> str:
        return storage.join(self.address, *path.split("/"))

    def compare(self, items: Collection[Item], sums: Mapping[str, Sums]) -> Remote:
        store = storage.store_for(self.address)
        sizes = {entry.path: entry.size for entry in store.list(self.address)}
        there = [item for item in items if item.path in sizes]
        equal = [item for item in there if sizes[item.path] == item.size]
        wanted = [sums[item.path].digest for item in equal]
        read = store.digests([self._uri(item.path) for item in equal], wanted)
        same = {item.path for item, mine, its in zip(equal, wanted, read, strict=True) if mine == its}
        others = sizes.keys() - {item.path for item in items}
        return Remote(frozenset(same), frozenset(item.path for item in there) - same, frozenset(others))

    def put(self, items: Sequence[Item], gone: Collection[str], message: str) -> None:
        store = storage.store_for(self.address)
        for item in items:
            target = self._uri(item.path)
            if not item.uri:
                store.write(target, item.data)
            elif storage.scheme(item.uri) in ("file", storage.scheme(target)):
                store.copy(item.uri, target)
            else:
                source = storage.store_for(item.uri)
                with store.create(target) as local, source.open(item.uri) as given, local.open("wb") as file:
                    shutil.copyfileobj(given, file, 1 << 20)
        for path in gone:
            store.delete(self._uri(path))


def target_of(to: str, *, private: bool) -> Target:
    """Return the target of an address.

    Raises:
        UsageError: not an address that can be written.
    """
    if not to.startswith(HUB):
        return StoreTarget(storage.normalise(to, "to"))
    short = re.sub(r"^hf://(?!datasets/)", "hf://datasets/", to)
    address = parse(short, "to", ("dataset",))
    if address is None or address.path or re.fullmatch("[0-9a-f]{40}", address.revision):
        hint = "a branch may be named after @; a commit cannot be written to"
        raise UsageError("not a data set to write to", where="to", got=to, expected="hf://<owner>/<name>", hint=hint)
    repository = hub.Repository(address.name, "dataset", "write an existing branch after @, or none")
    event(f"publish: to {address.locked}")
    return HubTarget(repository, address.revision, private)
