"""Token rows of a tokenized folder, task by task, and of a sample, epoch by epoch in the order of training."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.content import broken
from pairmill.engine.inputs import HELD_OUT as HELD_OUT_TASKS
from pairmill.engine.manifest import Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.export.parts import HELD_OUT, TRAIN, Counts, Exported, Ints, Part, TokenBatch
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.source_facts import Facts
from pairmill.formats.token_listing import read_listing
from pairmill.formats.tokenized import Opening
from pairmill.formats.tokenized_path import find_planned, open_place, open_tokenized, places
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.formats.tokens import INDEX, Array, Dataset
from pairmill.loader.arrays import map_array
from pairmill.loader.folder import TOKENS, SampledFolder

PART_TOKENS: Final = 64 << 20
"""Tokens of a part: 256 MB of ids, which are seconds of work."""
_BATCH_TOKENS: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 15
_MAPPED: Final = 256
"""Files that are mapped at the same time."""

Read = Callable[[int, int], NDArray[Any]]


def safe_name(name: str) -> str:
    """Return a name for files that no glob, shell or Hub reads otherwise; names that differ stay different."""
    result = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).strip(".") or "_"
    if result == name and len(name) <= 120:
        return name
    return f"{result[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def stems(tasks: Collection[str]) -> dict[str, str]:
    """Return the names of files for tasks, without the ending of the row file that a task is called after."""
    short = {task: task.removesuffix(".jsonl").removesuffix(".parquet") for task in tasks}
    counts = Counter(short.values())
    chosen = {task: name if counts[name] == 1 else task for task, name in short.items()}
    return {task: safe_name(name.removeprefix(HELD_OUT_TASKS)) for task, name in chosen.items()}


def _ranges(rows: int, tokens: int, size: int) -> list[tuple[int, int]]:
    """Cut rows into ranges of about ``size`` tokens; none of no row."""
    count = max(1, -(-tokens // size)) if rows else 0
    return [(rows * number // count, rows * (number + 1) // count) for number in range(count)]


# Tokenized folders


def from_tokenized(given: str, option: str, part_tokens: int) -> Exported:
    """Open what an option names as one tokenized folder: finished ones, unions, and those of other programs.

    Raises:
        InputError: a folder is absent, unfinished or damaged, or they do not belong together.
    """
    some = places(given, option)
    folder = (
        open_place(some[0].uri, Opening(option, held_out=None)) if len(some) == 1 else open_tokenized(given, option)
    )
    names = stems([task.name for task in folder.tasks])
    parts = [part for task in folder.tasks for part in _parts_of(task, names[task.name], part_tokens)]
    facts = Facts().of_tasks((task.uri, task.name) for task in folder.tasks)
    tokenizer = _tokenizer_in(folder.homes)
    return Exported("tokens", folder.fingerprint, "tokenize", parts, folder.info, tokenizer, facts=facts)


def _parts_of(task: Dataset, name: str, part_tokens: int) -> Iterator[Part]:
    rows, tokens = task.counts
    verify = cache(partial(_verify, task))
    ranges = _ranges(rows, tokens, part_tokens)
    for number, (start, stop) in enumerate(ranges):
        yield Part(
            split=HELD_OUT if task.name.startswith(HELD_OUT_TASKS) else TRAIN,
            name=name + (f"-{number:05}" if len(ranges) > 1 else ""),
            source=source_of(task.name),
            identity=[task.name, task.key, start, stop],
            rows=stop - start,
            read=_TaskRows(task, start, stop, verify),
        )


def _verify(task: Dataset) -> None:
    """Compare arrays with what a manifest promises; objects of a bucket are never changed there."""
    wanted = {storage.join(task.uri, f"{name}.npy"): task.contents[name] for name in ("tokens", *INDEX)}
    is_local = storage.scheme(task.uri) == "file"
    for error in broken({uri: it for uri, it in wanted.items() if it.promised and is_local}).values():
        raise error


@dataclass(frozen=True)
class _TaskRows:
    task: Dataset
    start: int
    stop: int
    verify: Callable[[], None]

    def __call__(self, counts: Counts) -> Iterator[TokenBatch]:
        """Yield the rows."""
        self.verify()
        tokens, index = self.task.array(), [self.task.array(name) for name in INDEX]
        for first in range(self.start, self.stop, _BATCH_ROWS):
            last = min(first + _BATCH_ROWS, self.stop)
            spans = np.stack([_values(array, first, last).astype(np.int64) for array in index])
            yield from _batches(spans, partial(_values, tokens), tokens.length, self.task.uri, counts)


def _values(array: Array, start: int, stop: int) -> NDArray[Any]:
    size = array.dtype.itemsize
    data = storage.store_for(array.uri).read_range(array.uri, array.offset + start * size, (stop - start) * size)
    return np.frombuffer(data, array.dtype)


def _batches(spans: Ints, read: Read, length: int, where: str, counts: Counts) -> Iterator[TokenBatch]:
    """Yield rows, given by their four index arrays, in batches of bounded tokens."""
    counts.rows_in += spans.shape[1]
    if int(spans.min(initial=0)) < 0 or int((spans[::2] + spans[1::2]).max(initial=0)) > length:
        expected = f"0 to {length:,}"
        raise InputError("a row points outside the tokens", where=where, expected=expected, hint="make it again")
    blocks = np.cumsum(spans[1] + spans[3]) // _BATCH_TOKENS
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
    for first, last in pairwise(cuts):
        if last > first:
            yield _gather(spans[:, first:last], read)


def _gather(spans: Ints, read: Read) -> TokenBatch:
    starts, lengths = spans[::2].T.ravel(), spans[1::2].T.ravel()
    ends = starts + lengths
    # Neighbours are read at once: all rows of a task as tokenize writes it, prompt and answer of any.
    cuts = np.flatnonzero(starts[1:] != ends[:-1])
    firsts, lasts = starts[np.r_[0, cuts + 1]].tolist(), ends[np.r_[cuts, len(ends) - 1]].tolist()
    ids = np.concatenate([read(start, end) for start, end in zip(firsts, lasts, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(spans[1] + spans[3])])
    return TokenBatch(ids, offsets, spans[1])


def _tokenizer_in(homes: Sequence[str]) -> bytes:
    for home in homes:
        uri = storage.join(home, TOKENIZER)
        if storage.store_for(uri).exists(uri):
            return storage.store_for(uri).read(uri)
    return b""


# Samples


@dataclass(frozen=True)
class _TokenFile:
    """Tokens that lie in a file of this machine, from a byte on."""

    path: str
    offset: int
    dtype: str
    tokens: int


class _Files:
    """Files of tokens that one after another are one array."""

    def __init__(self, files: Sequence[_TokenFile]) -> None:
        self._files = files
        self._firsts = np.cumsum([0, *(file.tokens for file in files)])
        self.length = int(self._firsts[-1])
        self._map = lru_cache(_MAPPED)(self._open)

    def _open(self, number: int) -> NDArray[Any]:
        file = self._files[number]
        return np.memmap(file.path, file.dtype, "r", file.offset, (file.tokens,)) if file.tokens else np.empty(0, "u1")

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return tokens that lie in one file, or in neighbours."""
        result = []
        number = int(np.searchsorted(self._firsts, start, side="right")) - 1
        while start < stop:
            first, end = int(self._firsts[number]), min(int(self._firsts[number + 1]), stop)
            result.append(self._map(number)[start - first : end - first])
            start, number = end, number + 1
        return result[0] if len(result) == 1 else np.concatenate([np.empty(0, "u1"), *result])


@dataclass(frozen=True)
class _EpochRows:
    """Rows of an epoch of a sample, or of a plan whose tokens are where they are.

    Args:
        tokens: of all rows.
        index: the four index arrays, of the epoch's rows or, with ``order``, of all rows of the plan.
        order: places of the epoch's rows in ``index``.
        firsts: of the rows of each file, where ``index`` counts from the beginning of a file.
        bases: first token of each file.
        start, stop: rows of the epoch.
        where: for messages.
    """

    tokens: _Files
    index: Sequence[NDArray[Any]]
    start: int
    stop: int
    where: str
    order: NDArray[Any] | None = None
    firsts: Ints | None = None
    bases: Ints | None = None

    def __call__(self, counts: Counts) -> Iterator[TokenBatch]:
        """Yield the rows in the order of training."""
        for first in range(self.start, self.stop, _BATCH_ROWS):
            last = min(first + _BATCH_ROWS, self.stop)
            rows = np.arange(first, last) if self.order is None else self.order[first:last].astype(np.int64)
            spans = np.stack([array[rows].astype(np.int64) for array in self.index])
            if self.firsts is not None and self.bases is not None:
                spans[::2] += self.bases[np.searchsorted(self.firsts, rows, side="right") - 1]
            yield from _batches(spans, self.tokens.read, self.tokens.length, self.where, counts)


def from_sampled(path: str, part_tokens: int) -> Exported:
    """Open a sampled folder of this machine: an epoch is a split.

    Raises:
        InputError: it is absent, unfinished or damaged.
    """
    folder = SampledFolder(path)
    if (folder.path / TOKENS).exists():
        array: Any = map_array(folder.path / TOKENS)
        files = [_TokenFile(str(folder.path / TOKENS), array.offset, array.dtype.str, len(array))]
    else:
        files = [_TokenFile(it.path, it.offset, it.dtype, it.tokens) for it in read_listing(folder.path)]
    tokens, parts, fingerprint = _Files(files), [], folder.digest[:16]
    for number, (epoch, survey) in enumerate(zip(folder.epochs, folder.surveys, strict=True)):
        index = [map_array(epoch.folder / f"{name}.npy") for name in INDEX]
        read = partial(_EpochRows, tokens, index, where=str(epoch.folder))
        ranges = _ranges(epoch.rows, survey.inputs + survey.rows, part_tokens)
        parts += _epoch_parts(number, fingerprint, ranges, read)
    info = json.loads((folder.path / "metadata.json").read_bytes()).get("tokenizer_info", {})
    manifest = manifests.read(str(folder.path))
    drawn = _drawn(SampleResult.find(manifest)) if manifest is not None else {}
    return Exported("tokens", fingerprint, "sample", parts, info, _tokenizer_in([str(folder.path)]), **drawn)


def _drawn(result: SampleResult | None) -> dict[str, Any]:
    """Return the facts of the sources of a sample, and how much was drawn of each."""
    counts: dict[str, dict[str, int]] = {}
    for task, stats in result.stats.items() if result is not None else ():
        mine = counts.setdefault(source_of(task), {"rows": 0, "tokens": 0})
        mine["rows"] += stats["cov_rows"]
        mine["tokens"] += stats["cov_itoks"] + stats["cov_rtoks"]
    return {"facts": result.facts if result is not None else {}, "counts": counts}


def _epoch_parts(
    number: int, fingerprint: str, ranges: Sequence[tuple[int, int]], read: Callable[..., _EpochRows]
) -> list[Part]:
    return [
        Part(
            split=f"epoch_{number}",
            name=f"epoch_{number}" + (f"-{place:05}" if len(ranges) > 1 else ""),
            source="",
            identity=[fingerprint, number, start, stop],
            rows=stop - start,
            read=read(start=start, stop=stop),
        )
        for place, (start, stop) in enumerate(ranges)
    ]


def from_plan(uri: str, manifest: Manifest, part_tokens: int) -> Exported:
    """Open the plan of a sample: its rows are read where tokenize wrote them.

    Raises:
        InputError: the plan or its tokens are not files of this machine, or it adds to another plan.
    """
    if storage.scheme(uri) != "file" or any(ref.role == "base" for ref in manifest.inputs):
        root = storage.parent_of(storage.parent_of(uri))
        hint = f"pairmill sample plan={uri} root={root} output_path=<folder>, and export that"
        raise InputError("rows of this plan are not read in place", where=uri, expected="arrays", hint=hint)
    result, folder = SampleResult.from_manifest(manifest), Path(storage.local_path(uri)) / "plan"
    names = [str(item["name"]) for item in result.sources]
    root = storage.parent_of(storage.parent_of(uri))
    fingerprint = next(ref.fingerprint for ref in manifest.inputs if ref.role in ("tokenized", "held_out"))
    tasks = find_planned("", root, fingerprint, names, digested=False)
    arrays = [task.array() for task in tasks]
    files = [_TokenFile(storage.local_path(it.uri).as_posix(), it.offset, it.dtype.str, it.length) for it in arrays]
    index = [map_array(folder / f"{name}.npy") for name in INDEX]
    firsts = np.cumsum([0, *(int(item["rows"]) for item in result.sources)])[:-1]
    bases = np.cumsum([0, *(array.length for array in arrays)])[:-1]
    parts: list[Part] = []
    total, epochs = manifest.ledger.measures.get("tokens_sampled", 0), manifest.ledger.measures["epochs"]
    for number in range(epochs):
        order = map_array(folder / f"epoch_{number}.npy")
        read = partial(_EpochRows, _Files(files), index, where=uri, order=order, firsts=firsts, bases=bases)
        ranges = _ranges(len(order), total // epochs, part_tokens)
        parts += _epoch_parts(number, manifest.fingerprint, ranges, read)
    info = json.loads(result.tokenizer_info)
    homes = [storage.parent_of(task.uri) for task in tasks[:1]]
    return Exported("tokens", manifest.fingerprint, "sample", parts, info, _tokenizer_in(homes), **_drawn(result))
