"""One tokenized folder: its data sets, opened from the manifest alone, or of a folder that others made by looking.

A manifest promises sizes and digests, which are compared when a file is opened and read, so that nothing is listed or
read before. Without a manifest the index arrays are digested whole; of large ``tokens.npy`` some blocks are, which
:func:`sample_blocks` says, as it would take long to read hundreds of gigabytes for an identity (docs/decisions/0063).
"""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pairmill import storage
from pairmill.digest import Digest, digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.content import Content
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.links import list_folder
from pairmill.engine.manifest import Manifest, fingerprint_from
from pairmill.engine.results import HeldOutRows
from pairmill.errors import InputError
from pairmill.formats.results.tokens import UnionResult
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.formats.tokens import ARRAYS, BYTES, INDEX, INFO, ROWS, Dataset
from pairmill.storage.base import Entry, each

UNION: Final = "union"
"""The stage that the manifest of a union says: a folder that only says which task of which folder is called what."""
_PROMISED: Final = frozenset((*ARRAYS, BYTES, ROWS))
_BLOCK: Final = 64 << 10
SAMPLED: Final = "size, time and four blocks of each tokens.npy"
"""How a folder was identified whose :attr:`Folder.sampled` is true."""
_AT_ONCE: Final = 64
_BLOCKS: Final = 4
"""Of a sampled file: the first, the last, and two between."""


class Folder(NamedTuple):
    """A tokenized folder, or several as one: its data sets sorted by name, and what identifies its content.

    Attributes:
        uri: of the folder; of several, all, joined by commas.
        tasks: sorted by name by code point.
        info: ``tokenizer_info.json``.
        fingerprint: content identity; places have no part in it.
        rows: by the manifest; None for a folder without one.
        tokenizer: first 16 digits of the tokenizer.json's sha256, by the manifest; empty = not known.
        homes: URIs of the folders that the data sets are in.
        sampled: some ``tokens.npy`` were identified by size, time and some blocks alone.
        union: of several, which task is of which folder, by their places here.
    """

    uri: str
    tasks: list[Dataset]
    info: dict[str, Any]
    fingerprint: str
    rows: int | None
    tokenizer: str = ""
    homes: tuple[str, ...] = ()
    sampled: bool = False
    union: UnionResult | None = None

    def tokenizer_file(self) -> str:
        """Return the URI of the tokenizer.json that made the tokens.

        Raises:
            InputError: no folder has one, and where a character ends is not known.
        """
        for home in self.homes:
            uri = storage.join(home, TOKENIZER)
            if storage.store_for(uri).exists(uri):
                return uri
        raise InputError(
            "a rule splits rows, and where a character ends is not known",
            where=f"tokenized_path={self.uri}",
            got=f"no {TOKENIZER}",
            expected="the tokenizer.json that made the tokens",
            hint="copy it into the folder, tokenize again, or use long_context: truncate",
        )


class Opening(NamedTuple):
    """How folders are opened.

    Attributes:
        option: the option that named them, for messages.
        tolerate_strays: skip folders with none of the five arrays; the reference fails on them.
        verify: digest all arrays now: those of a finished folder against its manifest.
        held_out: open the held-out rows instead, whose data sets begin with HELD_OUT; None = both.
    """

    option: str
    tolerate_strays: bool = True
    verify: bool = False
    held_out: bool | None = False

    def wants(self, name: str) -> bool:
        """Return whether a data set of this name is opened."""
        return self.held_out is None or name.startswith(HELD_OUT) == self.held_out


def open_folder(uri: str, manifest: Manifest | None, how: Opening) -> Folder:
    """Open one tokenized folder, made by pairmill or by others.

    Args:
        uri: normalised.
        manifest: of the folder, as it was read; None without one.
        how: it is opened.

    Raises:
        InputError: the folder is absent, unfinished or damaged, or has no data set or no held-out rows.
    """
    store, option = storage.store_for(uri), how.option
    # By name: a listing may be older than the latest write.
    if not store.exists(storage.join(uri, INFO)):
        raise InputError(
            f"not a tokenized folder: {INFO} does not exist", where=f"{option}={uri}", hint="check the path"
        )
    try:
        data = manifests.read_file(uri, manifest, INFO)
        info = json.loads(data)
        if not isinstance(info, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise InputError("not a JSON object", where=storage.join(uri, INFO), got=str(error)) from error
    if manifest is None:
        return _open_foreign(uri, info, how)
    if how.verify:
        _refuse_damage(uri, manifest)
    tasks = [task for task in _promised(uri, manifest) if how.wants(task.name)]
    if not tasks:
        raise _nothing_held_out(option, uri) if how.held_out else _no_task(option, uri)
    tokenizer = next((ref.fingerprint for ref in manifest.inputs if ref.role == "tokenizer"), "")
    rows = HeldOutRows.count(manifest) if how.held_out else manifest.ledger.rows_out
    return Folder(uri, tasks, info, manifest.fingerprint, rows, tokenizer=tokenizer, homes=(uri,))


def _promised(uri: str, manifest: Manifest) -> list[Dataset]:
    tasks: dict[str, dict[str, Content]] = {}
    for file in manifest.files:
        array = file.path[len(file.task) + 1 :].removesuffix(".npy")
        if file.task and array in _PROMISED:
            tasks.setdefault(file.task, {})[array] = Content(file.digest, promised=True, size=file.size)
    return [Dataset(name, storage.join(uri, name), contents) for name, contents in sorted(tasks.items())]


def _refuse_damage(uri: str, manifest: Manifest) -> None:
    if wrong := manifests.find_damage(uri, manifest.files, verify=True):
        raise InputError(
            f"{len(wrong)} of its files differ from its manifest",
            where=uri,
            got=wrong[0],
            hint="tokenize again with verify=true",
        )


def _open_foreign(uri: str, info: dict[str, Any], how: Opening) -> Folder:
    # A data set is a folder of the first floor.
    paths = {entry.path: entry for entry in list_folder(uri, lambda link: link.find("/") == len(link) - 1)}
    inner = None
    if how.held_out is not False and HELD_OUT + INFO in paths:
        inner = open_folder(storage.join(uri, HELD_OUT.rstrip("/")), None, how._replace(held_out=False))
        tasks = [replace(item, name=HELD_OUT + item.name) for item in inner.tasks]
        inner = inner._replace(uri=uri, tasks=tasks, homes=(uri,))
    if how.held_out:
        if inner is None:
            raise _nothing_held_out(how.option, uri)
        return inner
    names = names_in(uri, paths, tolerate_strays=how.tolerate_strays)
    if not names:
        raise _no_task(how.option, uri)
    store = storage.store_for(uri)
    arrays = (*(ARRAYS if how.verify else INDEX), BYTES, ROWS)
    read = [path for name in names for array in arrays if (path := f"{name}/{array}.npy") in paths]
    digested = store.digested([storage.join(uri, path) for path in read])
    contents: dict[str, dict[str, Content]] = {}
    for path, item in zip(read, digested, strict=True):
        name, _, file = path.rpartition("/")
        contents.setdefault(name, {})[file.removesuffix(".npy")] = Content(item.digest, item.stamp, size=item.size)
    some = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
    lists = each(
        lambda part, _: [sample_blocks(storage.join(uri, it, "tokens.npy"), paths[f"{it}/tokens.npy"]) for it in part],
        some,
        store.at_once,
    )
    blocks = [item for part in lists for item in part]
    tasks = []
    for name, block in zip(names, blocks, strict=True):
        mine = contents[name]
        mine.setdefault("tokens", Content("" if block.written else block.digest, block.stamp, size=block.size))
        tasks.append(Dataset(name, storage.join(uri, name), mine, block.digest))
    # With the time a large file that was replaced is noticed, whichever bytes differ.
    identity = [
        [task.name, block.written, *((array, task.contents[array].digest) for array in sorted(task.contents)), task.key]
        for task, block in zip(tasks, blocks, strict=True)
    ]
    sampled = not how.verify and any(block.written for block in blocks)
    # Held-out rows have no part in the identity of those for training.
    tasks += inner.tasks if inner is not None else []
    return Folder(uri, tasks, info, fingerprint_from(info, identity), None, homes=(uri,), sampled=sampled)


class Sampled(NamedTuple):
    """A file that was not read whole, or a small one.

    Attributes:
        size: bytes.
        digest: of the size and some blocks, of a small file of all its bytes.
        stamp: see :meth:`pairmill.storage.Store.stamp`.
        written: when, as the store tells it (nanoseconds of a file, version of an object); empty of a small file.
    """

    size: int
    digest: str
    stamp: str
    written: str


def sample_blocks(uri: str, entry: Entry) -> Sampled:
    """Identify a listed file by size and four blocks of 64 KiB, the first, the last and two between; a smaller one
    whole."""
    store, size, stamp = storage.store_for(uri), entry.size, entry.stamp
    if size <= _BLOCK * _BLOCKS:
        return Sampled(size, digest_bytes(store.read(uri)), stamp, "")
    digest = Digest(size.to_bytes(8, "little"))
    for number in range(_BLOCKS):
        digest.update(store.read_range(uri, (size - _BLOCK) * number // (_BLOCKS - 1), _BLOCK))
    # Device and inode, which a file's stamp begins with, are of the place.
    return Sampled(size, digest.text(), stamp, stamp.rpartition(":")[2])


def names_in(uri: str, paths: Collection[str], *, tolerate_strays: bool) -> list[str]:
    """Return the data sets of a tokenized folder with these files, sorted.

    Raises:
        InputError: a data set lacks an array.
    """
    names = []
    if HELD_OUT + INFO in paths:  # a tokenized folder of its own
        paths = {path for path in paths if not path.startswith(HELD_OUT)}
    for name in sorted({path.split("/", 1)[0] for path in paths if "/" in path}):
        files = [f"{name}/{array}.npy" for array in ARRAYS]
        missing = [path for path in files if path not in paths]
        if len(missing) == len(files) and tolerate_strays:
            continue
        if missing:
            raise InputError(
                "arrays of this data set are missing", where=storage.join(uri, name), got=", ".join(missing)
            )
        names.append(name)
    return names


def _no_task(option: str, uri: str) -> InputError:
    return InputError(
        "no data set in the tokenized folder",
        where=f"{option}={uri}",
        expected=f"folders with the arrays {', '.join(ARRAYS)}; links are followed with links=follow",
        hint="check the path, or tokenize again",
    )


def _nothing_held_out(option: str, uri: str) -> InputError:
    return InputError(
        "the tokenized folder has no held-out rows",
        where=f"{option}={uri}",
        expected=f"a folder with {HELD_OUT}",
        hint="clean with holdout=, as in holdout=0.01, and tokenize what that gives",
    )
