"""Where the items of benchmarks are: files, folders, buckets, the Hub, and what our own sources withhold."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pairmill import address, storage
from pairmill.address import Address
from pairmill.engine import manifest as manifests
from pairmill.engine.content import Content
from pairmill.engine.manifest import InputRef, canonical, fingerprint_from
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.slices import FileSlice
from pairmill.leaks.items import Item, ItemReader, withheld_items
from pairmill.leaks.settings import Benchmark, Decontaminate
from pairmill.log import event
from pairmill.net import hub
from pairmill.net.hub import RemoteFile
from pairmill.sources.datasets import SOURCES
from pairmill.sources.files import raw as raws
from pairmill.sources.files.card import CARD, CARD_BYTES, READABLE, configs_of, hub_split, suffix_of
from pairmill.sources.files.patterns import matching

_OPTION = "decontaminate.benchmarks"
_LOCKS = ("curate", "benchmarks")
_READ = "check uri:, or name the files with files:"


@dataclass(frozen=True)
class BenchmarkFiles:
    """The files of a benchmark, by content.

    Args:
        benchmark: how it is mapped; None: ``name`` is one of our own sources, and these are its withheld files.
        files: in the order of the items.
        tags: of the units that they belong to, for our own sources.
        remote: the same of the Hub.
        repository: ``owner/name`` on the Hub.
        commit: of the repository.
    """

    keyed_as: ClassVar[str] = "Found"

    name: str
    benchmark: Benchmark | None
    files: tuple[FileSlice, ...] = ()
    tags: tuple[str, ...] = ()
    remote: tuple[RemoteFile, ...] = ()
    repository: str = ""
    commit: str = ""

    def identify(self) -> object:
        """Return what a shard is keyed by that reads the items."""
        return [self.name, self.identity]

    @property
    def identity(self) -> list[Any]:
        """All that its items follow from; where the files are is not part of it."""
        contents = [[file.path, file.content.digest] for file in self.files]
        contents += [[file.path, file.sha256 or f"git:{file.blob}"] for file in self.remote]
        if self.benchmark is None:
            return [self.name, SOURCES[self.name].version, contents, list(self.tags)]
        # Names are of the copy; digests and their order are of the content.
        return [self.name, self.benchmark.meaning, [digest for _, digest in contents]]

    @property
    def ref(self) -> InputRef:
        """It as an input of the stage."""
        return InputRef.from_content(f"benchmark {self.name}", self.identity)

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(file.size for file in self.files) + sum(file.size for file in self.remote)

    def items(self) -> Iterator[Item]:
        """Read all items.

        Raises:
            InputError: a record makes no item, or no record makes one.
        """
        with ExitStack() as stack:
            files = self.files
            if self.remote:
                files = self._downloaded(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            count = 0
            for item in self._read(files):
                count += 1
                yield item
        if not count:
            uri = self.benchmark.uri if self.benchmark else f"the source {self.name}"
            paths = [file.path for file in self.files] + [file.path for file in self.remote]
            hint = "check where:" if self.benchmark and self.benchmark.where else "check files:, split: and config:"
            raise InputError(
                f"the benchmark {self.name} has no item",
                where=uri,
                got=f"none in {', '.join(paths[:5])}",
                expected="at least one",
                hint=hint if self.benchmark else f"leave {self.name} out of withheld:",
            )

    def _read(self, files: Sequence[FileSlice]) -> Iterator[Item]:
        if self.benchmark is None:
            for file, tag in zip(files, self.tags, strict=True):
                yield from withheld_items(SOURCES[self.name], file, tag)
            return
        reader = ItemReader(self.benchmark)
        first = 0
        for file in files:
            for item in reader.items(file, first):
                first += 1
                yield item

    def _downloaded(self, folder: Path) -> tuple[FileSlice, ...]:
        result = []
        for number, file in enumerate(self.remote):
            target = folder / f"{number}{''.join(Path(file.path).suffixes[-2:])}"
            digest = hub.download(_data_set(self.repository), self.commit, file, target, folder / f"{number}.note")
            result.append(FileSlice(file.path, str(target), size=file.size, content=Content(digest)))
        return tuple(result)


def find(settings: Decontaminate, *, root: str, raw: str = "", verify: bool = False) -> list[BenchmarkFiles]:
    """Return the files of all benchmarks, by name of the benchmark: their order in the settings is not content.

    Args:
        settings: the operation's.
        root: of the project, below which the commits of data sets on the Hub are kept.
        raw: where the raw files of our own sources are.
        verify: compare files with the manifests that they are named in.

    Raises:
        InputError: a benchmark, or its files, do not exist.
        UsageError: ``withheld`` names an unknown source, or ``raw`` is missing.
    """
    every = [_of_benchmark(benchmark, root) for benchmark in settings.benchmarks]
    every += [_withheld(name, raw, verify) for name in settings.withheld]
    return sorted(every, key=lambda benchmark: benchmark.name)


def _of_benchmark(benchmark: Benchmark, root: str) -> BenchmarkFiles:
    where = f"{_OPTION}: {benchmark.name}, uri"
    at = address.parse(benchmark.uri, where, ("dataset",))
    if at is not None:
        return _of_hub(benchmark, at, root)
    uri = storage.normalise(benchmark.uri, where)
    store = storage.store_for(uri)
    if store.exists(uri):
        place, paths = storage.parent_of(uri), [storage.name_of(uri)]
    else:
        place, paths = uri, _paths_below(uri)
        if not paths:
            owner = benchmark.uri.count("/") == 1 and "://" not in benchmark.uri
            if owner and "@" in benchmark.uri:  # a file or a folder of that name goes first
                of_hub = address.parse(f"hf://datasets/{benchmark.uri}", where, ("dataset",))
                assert of_hub is not None
                return _of_hub(benchmark, of_hub, root)
            raise InputError(
                f"the benchmark {benchmark.name} does not exist",
                where=uri,
                expected="a file or a folder of .jsonl, .json, .csv, .tsv or .parquet files",
                hint=f"on the Hub: uri: hf://datasets/{benchmark.uri}" if owner else "check the path",
            )
        paths = list(_chosen(benchmark, paths, lambda: _card_of(place), uri, every=True))
    _refuse_unreadable(benchmark, paths, uri)
    uris = [storage.join(place, *path.split("/")) for path in paths]
    digests = store.digested(uris)
    files = [
        FileSlice(path, uri, size=item.size, content=Content(item.digest, item.stamp))
        for path, uri, item in zip(paths, uris, digests, strict=True)
    ]
    return BenchmarkFiles(benchmark.name, benchmark, tuple(files))


def _paths_below(uri: str) -> list[str]:
    """Return paths of the files of a folder: of a finished one its rows, of another all that are not hidden."""
    manifest = manifests.read_intact(uri)
    if manifest is not None and any(file.task for file in manifest.files):
        return sorted(file.path for file in manifest.files if file.task)
    paths = sorted(entry.path for entry in storage.store_for(uri).list(uri))
    return [path for path in paths if not any(part.startswith((".", "_")) for part in path.split("/"))]


def _card_of(folder: str) -> str:
    uri = storage.join(folder, CARD)
    store = storage.store_for(uri)
    if not store.exists(uri):
        return ""
    with store.open(uri) as file:
        return file.read(CARD_BYTES).decode("utf-8", "replace")


def _chosen(benchmark: Benchmark, paths: Sequence[str], card: Any, where: str, *, every: bool) -> Sequence[str]:
    """Return the files to read, in order.

    Args:
        benchmark: its files, or its split.
        paths: what there is.
        card: returns the text of the data set's card.
        where: for messages.
        every: take all files if the split has none.
    """
    if benchmark.files:
        taken, expected = matching(benchmark.files, paths), ", ".join(benchmark.files)
    else:
        text = card()
        taken = hub_split(paths, text, benchmark.split, _config_in(benchmark, text, where))
        expected = f"files of the split {benchmark.split!r}"
        if not taken and every and not benchmark.config:
            taken = tuple(path for path in paths if suffix_of(path) in READABLE)
    if not taken:
        got = ", ".join(paths[:5]) + (", …" if len(paths) > 5 else "")
        hint = "check files:" if benchmark.files else "name another split:, the config: or the files:"
        raise InputError(
            f"the benchmark {benchmark.name} has no file", where=where, got=got, expected=expected, hint=hint
        )
    return taken


def _config_in(benchmark: Benchmark, card: str, where: str) -> str:
    """Return the configuration to read: the one that was asked for, or the card's default."""
    configs = configs_of(card)
    names = [name for name, _ in configs]
    marked = [name for name, default in configs if default] + [name for name in names if name == "default"]
    config = benchmark.config or [*marked, *(names if len(names) == 1 else []), ""][0]
    if names and config not in names:
        raise InputError(
            f"no such configuration of the benchmark {benchmark.name}"
            if config
            else f"the benchmark {benchmark.name} has several configurations",
            where=where,
            got=repr(config) if config else "",
            expected=f"config: with one of {', '.join(names)}",
        )
    return config or "default"


def _refuse_unreadable(benchmark: Benchmark, paths: Sequence[str], where: str) -> None:
    wrong = next((path for path in paths if suffix_of(path) not in READABLE), None)
    if wrong is not None:
        raise InputError(
            f"no reader for a file of the benchmark {benchmark.name}",
            where=where,
            got=wrong,
            expected=", ".join(READABLE),
            hint=_READ,
        )


def _data_set(name: str) -> hub.Repository:
    return hub.Repository(name, "dataset", "write an existing branch, tag or commit after @ in uri:")


def _of_hub(benchmark: Benchmark, at: Address, root: str) -> BenchmarkFiles:
    """Return the files of a data set on the Hub, at the commit that was its revision's when it was asked for first.

    All processes of a run must mean the same commit, and the next run too: the first one commits a note of it.
    """
    asked = [at.text, benchmark.files, benchmark.split, benchmark.config]
    uri = storage.join(root, *_LOCKS, f"{at.slug}-{fingerprint_from(asked)}.json")
    store = storage.store_for(uri)
    if not store.exists(uri):
        store.commit(uri, canonical(_description(benchmark, at)))
    try:
        note = json.loads(store.read(uri))
        files = tuple(RemoteFile(**file) for file in note["files"])
        commit = str(note["commit"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "not a note of a benchmark's commit",
            where=uri,
            got=" ".join(str(error).split())[:200],
            hint="delete it, and the present commit is taken",
        ) from error
    event(f"curate: {benchmark.name} is {at.name} at {commit}; delete {uri} to take the present one", commit=commit)
    return BenchmarkFiles(benchmark.name, benchmark, remote=files, repository=at.name, commit=commit)


def _description(benchmark: Benchmark, at: Address) -> dict[str, Any]:
    repository = _data_set(at.name)
    commit = hub.commit_of(repository, at.revision)
    files = hub.files(repository, commit)
    inside = f"{at.path}/" if at.path else ""
    paths = sorted(path for path in files if path == at.path or path.startswith(inside))

    def card() -> str:
        if CARD not in files:
            return ""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / CARD
            hub.download(repository, commit, files[CARD], target, Path(folder) / "note")
            with target.open("rb") as file:
                return file.read(CARD_BYTES).decode("utf-8", "replace")

    where = f"{at.text} at {commit}"
    if not paths:
        raise InputError(
            f"the benchmark {benchmark.name} has no file",
            where=where,
            got=", ".join(sorted(files)[:5]),
            expected=at.path,
        )
    taken = paths if at.path in files else _chosen(benchmark, paths, card, where, every=False)
    _refuse_unreadable(benchmark, taken, where)
    return {"address": at.text, "commit": commit, "files": [asdict(files[path]) for path in taken]}


def _withheld(name: str, raw: str, verify: bool) -> BenchmarkFiles:
    """Return the files that one of our own sources does not train on."""
    option = "decontaminate.withheld"
    source = SOURCES.get(name)
    if source is None:
        expected = "one of our own sources: " + ", ".join(SOURCES)
        raise UsageError("unknown source", where=option, got=name, expected=expected, hint=did_you_mean(name, SOURCES))
    if not raw:
        raise UsageError(
            "the raw files are not given",
            where=f"{option}: {name}",
            expected="raw=…",
            hint="give raw= what fetch printed",
        )
    place = storage.normalise(raw, "raw")
    known = raws.index(place)
    if known is not None and name not in known:
        raise InputError(
            f"{name} was not fetched",
            where=f"raw={place}",
            got=", ".join(known),
            expected=name,
            hint=f"fetch it with sources={name}, or leave it out of {option}",
        )
    folder = raws.folder_of(source, place) if known is None else known[name]
    units = source.units(folder.listed(), folder.card(), "pairmill", source.options())
    taken = [(path, unit.tag) for unit in units for path in unit.withheld]
    if not taken:
        raise InputError(
            f"{name} withholds no split",
            where=folder.uri,
            got=", ".join(folder.listed()[:5]),
            expected="files that are not trained on",
            hint=f"leave it out of {option}; a benchmark of your own is named under benchmarks:",
        )
    folder.digest([path for path, _ in taken], verify=verify)
    files = tuple(
        FileSlice(path, folder.uri_of(path), size=folder.sizes[path], content=folder.content(path)) for path, _ in taken
    )
    return replace(BenchmarkFiles(name, None), files=files, tags=tuple(tag for _, tag in taken))
