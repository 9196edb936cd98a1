"""Which files of a folder, or of a data set of the Hub, become rows, and the lines of a description that name them."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pairmill import storage
from pairmill.address import Address
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.slices import FileSlice
from pairmill.net import hub
from pairmill.sources.files.card import CARD, CARD_BYTES, CONVERT, READABLE, configs_of, facts_of, hub_split, suffix_of
from pairmill.sources.files.patterns import matching
from pairmill.sources.source import Source
from pairmill.stages.fetch.extract import Place, extract

SAMPLED_RECORDS = 100
"""Of each file that is looked at."""
_FILES, _REMOTE_FILES = 12, 3
_NAMED = 20
# What libraries write beside data, and cards.
_BESIDE = frozenset({CARD, "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
DOCUMENTS = frozenset({".txt", ".md", ".rst", ".tex", ".py", ".js", ".ts", ".java", ".c", ".cpp", ".h", ".rs", ".go"})
"""Files of which each is a document."""


@dataclass(frozen=True)
class RawFiles:
    """Files that become one source.

    Args:
        folder: URI that they are below.
        sizes: bytes by path below it.
        kind: the extension that says how they are read; empty = each is a document.
        lines: entries of the description that say where they are, by key.
        raw: a folder without which the description may not name them; empty = none.
        remarks: what a person should know.
        remote: of a data set of the Hub, where the beginnings of its files are read.
    """

    folder: str
    sizes: Mapping[str, int]
    kind: str
    lines: Mapping[str, str | list[str]]
    raw: str = ""
    remarks: Sequence[str] = ()
    remote: Mapping[str, Place] = field(default_factory=dict)

    def sampled(self) -> list[str]:
        """Return the paths that are looked at: the first, the last, and others evenly between them."""
        paths = sorted(self.sizes)
        most = _REMOTE_FILES if self.remote else _FILES
        places = {round(at * (len(paths) - 1) / (most - 1)) for at in range(most)}
        return [paths[place] for place in sorted(places)]

    def piece(self, path: str, scratch: Path, source: Source) -> FileSlice:
        """Return a file to read the first records of; ``scratch``: for the beginnings of remote ones."""
        if not self.remote:
            return FileSlice(path, storage.join(self.folder, *path.split("/")), size=self.sizes[path])
        local = scratch / path
        if not local.exists():
            local.parent.mkdir(parents=True, exist_ok=True)
            (aside := scratch / "whole").mkdir(exist_ok=True)
            extract(self.remote[path], SAMPLED_RECORDS, local, aside, source)
        return FileSlice(path, str(local), size=local.stat().st_size)


def files_at(given: str, description: str, kind: str) -> RawFiles:
    """Find the files at a path or URI.

    Args:
        given: a file or a folder.
        description: URI of the description that will name them.
        kind: extension of the files to take; empty = of most bytes.

    Raises:
        InputError: nothing is there that can be read.
        UsageError: no storage serves the place.
    """
    uri = storage.normalise(given, "data")
    store = storage.store_for(uri)
    if store.exists(uri):
        folder, sizes = storage.parent_of(uri), {storage.name_of(uri): store.size(uri)}
    else:
        if (manifest := manifests.read(uri)) is not None:
            hint = f"look at it: pairmill show {given}; rows go on as rows=, token folders as tokenized="
            raise InputError("is a result of pairmill", where=uri, got=manifest.stage, expected="raw data", hint=hint)
        folder, sizes = uri, {entry.path: entry.size for entry in store.list(uri)}
        if not sizes:
            storage.require(uri, "a file or a folder of raw data")
    chosen, kind, remarks = _chosen(sizes, uri, kind)
    patterns = _patterns(chosen, sizes, kind)
    raw, prefix = "", folder
    if storage.scheme(folder) == "file":
        prefix = os.path.relpath(storage.local_path(folder), storage.local_path(storage.parent_of(description)))
        if prefix.startswith(".."):
            raw = prefix = str(storage.local_path(folder))
    lines: dict[str, str | list[str]] = {
        "files": patterns if prefix == "." else [f"{prefix}/{pattern}" for pattern in patterns]
    }
    if not kind:
        lines["each"] = "file"
    return RawFiles(folder, {path: sizes[path] for path in chosen}, kind, lines, raw=raw, remarks=remarks)


def files_on_hub(address: Address, kind: str) -> RawFiles:
    """Find the files of a data set of the Hub: those of the training split of its default configuration.

    Raises:
        InputError: the data set does not exist, or has no file that can be read.
        StorageError: the Hub does not answer.
    """
    repository = hub.Repository(address.name, "dataset", "name another revision")
    commit = hub.commit_of(repository, address.revision)
    every = hub.files(repository, commit)
    sizes = {path: file.size for path, file in every.items() if f"{path}/".startswith(f"{address.path}/".lstrip("/"))}
    card = ""
    if CARD in every:
        with hub.opened(repository, commit, every[CARD]) as file:
            card = file.read(CARD_BYTES).decode("utf-8", "replace")
    lines: dict[str, str | list[str]] = {"hub": address.name}
    if address.revision != "main":
        lines["revision"] = address.revision
    remarks: Sequence[str] = ()
    configs = configs_of(card)
    config = next((name for name, marked in configs if marked or name == "default"), configs[0][0] if configs else "")
    chosen: Sequence[str] = () if address.path or kind else hub_split(sorted(sizes), card, "train", config or "default")
    if chosen:
        kind = suffix_of(chosen[0])
        if config not in ("", "default"):
            lines["config"] = config
            others = ", ".join(name for name, _ in configs[:_NAMED] if name != config)
            remarks = [f"other configurations: config: {others}"] if others else []
    else:
        chosen, kind, remarks = _chosen(sizes, f"hf://datasets/{address.name}", kind)
        lines["files"] = _patterns(chosen, sizes, kind)
    if not kind:
        lines["each"] = "file"
    lines |= facts_of(card)
    remote = {path: Place(path, address.name, repo=repository, commit=commit, file=every[path]) for path in chosen}
    return RawFiles("", {path: sizes[path] for path in chosen}, kind, lines, remarks=remarks, remote=remote)


def _chosen(sizes: Mapping[str, int], where: str, wanted: str) -> tuple[list[str], str, list[str]]:
    """Return the files to read, how they are read, and what is left out."""
    seen = [path for path in sorted(sizes) if "/." not in f"/{path}" and PurePosixPath(path).name not in _BESIDE]
    by_kind: Counter[str] = Counter()
    for path in seen:
        by_kind[suffix_of(path)] += sizes[path]
    wanted = wanted and f".{wanted.lstrip('.')}"
    readable = [kind for kind, _ in by_kind.most_common() if kind in READABLE and (not wanted or kind == wanted)]
    if wanted and not readable:
        known = ", ".join(kind.lstrip(".") for kind in by_kind if kind in READABLE)
        raise UsageError("no file of this format", where="format", got=wanted, expected=known or "one that is there")
    if not readable:
        return _documents(seen, by_kind, where)
    kind = readable[0]
    chosen = [path for path in seen if suffix_of(path) == kind]
    remarks = [f"{', '.join(readable[1:])} files are left out: format={kind[1:]} was taken"] if readable[1:] else []
    # The Hub's rule knows fewer extensions.
    named = {f"{path}.txt": path for path in chosen}
    aside = {named[path] for split in ("validation", "test") for path in hub_split([*named], "", split)}
    if aside and len(aside) < len(chosen):
        remarks.append(f"files of other splits are left out: {_shown(sorted(aside))}")
        chosen = [path for path in chosen if path not in aside]
    return chosen, kind, remarks


def _documents(seen: Sequence[str], by_kind: Counter[str], where: str) -> tuple[list[str], str, list[str]]:
    kind = next((kind for kind, _ in by_kind.most_common() if kind in DOCUMENTS), "")
    if kind:
        return [path for path in seen if suffix_of(path) == kind], "", []
    convert = next((CONVERT[kind] for kind, _ in by_kind.most_common() if kind in CONVERT), "")
    raise InputError(
        "no file that can be read",
        where=where,
        got=_shown(seen) or "an empty folder",
        expected=f"{', '.join(READABLE)}, or text files",
        hint=convert or "name the folder of the data itself",
    )


def _patterns(chosen: Sequence[str], every: Mapping[str, int], kind: str) -> list[str]:
    """Return patterns that mean these files, and no others of the folder."""
    paths, shared = sorted(every), os.path.commonprefix(list(chosen))  # noqa: RUF071
    below, start = shared.rpartition("/")[0], shared.rstrip("0123456789")
    endings = dict.fromkeys([kind or PurePosixPath(chosen[0]).suffix, "".join(PurePosixPath(chosen[0]).suffixes[-2:])])
    starts = ("*", f"{below}/*", "**/*", f"{below}/**/*", f"{start}*")
    for pattern in (f"{begin}{ending}" for begin in starts for ending in endings if len(chosen) > 1):
        if not pattern.startswith("/") and set(matching([pattern], paths)) == set(chosen):
            return [pattern]
    return list(chosen)


def _shown(paths: Sequence[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5:,} more" if len(paths) > 5 else "")
