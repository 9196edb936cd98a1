"""Any finished folder, opened: what kind of result it is, its manifest, its rows as Arrow and its tokens as NumPy.

Nothing is read before it is asked for: the manifest of 16,000 tasks alone takes a second to parse.
"""

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT, task_name, use_of
from pairmill.engine.links import list_folder
from pairmill.engine.listing import read_head
from pairmill.engine.manifest import InputRef, Manifest
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.token_listing import NAME as LISTING
from pairmill.formats.token_listing import read_listing
from pairmill.formats.tokens import INDEX, INFO, Array, Dataset

Kind = Literal[
    "fetched",
    "rows",
    "tokenizer",
    "tokenized",
    "mixture",
    "plan",
    "sampled",
    "net",
    "evaluation",
    "comparison",
    "search",
    "exported",
]
"""``plan``: which rows each epoch has; ``sampled``: the arrays of one, as a trainer maps them."""
KINDS: Final[Mapping[str, Kind]] = {
    "fetch": "fetched",
    "clean": "rows",
    "take_out": "rows",
    "curate": "rows",
    "select": "rows",
    "train_tokenizer": "tokenizer",
    "tokenize": "tokenized",
    "union": "tokenized",
    "mix": "mixture",
    "sample": "plan",
    "train": "net",
    "evaluate": "evaluation",
    "compare": "comparison",
    "search": "search",
    "export": "exported",
}
"""Kind of the result by the stage that finished it."""
METADATA: Final = "metadata.json"
_MARKS: Final[Mapping[str, Kind]] = {
    METADATA: "sampled",
    INFO: "tokenized",
    "mixture.json": "mixture",
    "tokenizer.json": "tokenizer",
}
"""A file that folders of others have, by which they are known; the first that is there counts."""
ROWS: Final = (".parquet", ".jsonl")
_INDEX: Final = "/inst_len.npy"
_TASK: Final = re.compile(rb'"path": ("(?:[^"\\]|\\.)*/inst_len\.npy")')
_NAMES_SHOWN: Final = 10


class RangedTokens:
    """Tokens of an object in a store, or of several files one after another: slices of it are read when asked for."""

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays = arrays
        self._ends = np.cumsum([array.length for array in arrays])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Return the tokens from ``start`` to ``stop``, which lie in one file."""
        start, stop, _ = part.indices(len(self))
        at = int(np.searchsorted(self._ends, start, "right"))
        if stop <= start or at == len(self._arrays):
            return np.empty(0, np.uint32)
        array = self._arrays[at]
        first = start - int(self._ends[at]) + array.length
        size = array.dtype.itemsize
        data = storage.store_for(array.uri).read_range(array.uri, array.offset + first * size, (stop - start) * size)
        return np.frombuffer(data, array.dtype)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Rows of ids: ``rows[7]`` is the prompt and the response of row 7, ``len(rows)`` how many there are.

    Attributes:
        tokens: of all rows, integers [tokens]; mapped from a file of this machine, otherwise read by slices.
        index: the arrays ``inst_start``, ``inst_len``, ``resp_start``, ``resp_len``, integers [rows].
    """

    tokens: NDArray[Any] | RangedTokens
    index: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.index["inst_len"])

    def __getitem__(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        spans = (
            (int(self.index[f"{part}_start"][row]), int(self.index[f"{part}_len"][row])) for part in ("inst", "resp")
        )
        prompt, response = (self.tokens[start : start + length] for start, length in spans)
        return prompt, response

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {len(self.tokens):,} tokens>"


@dataclass(frozen=True, eq=False)
class OpenResult:
    """A finished folder of any stage, or a folder of others that has the form of one.

    Attributes:
        uri: of the folder, or of a row file.
        kind: of the result.
        stage: that finished it; empty = others made it.
        inputs: that it was made of.
        tokens_at: of a plan, where the tokenized folder is that it was drawn from; empty = below its project.
    """

    uri: str
    kind: Kind
    stage: str = ""
    inputs: tuple[InputRef, ...] = ()
    tokens_at: str = ""

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest; None of a folder that others made."""
        return manifests.read(self.uri) if self.stage else None

    @property
    def path(self) -> Path | None:
        """The folder, where it is on this machine; None of one in a bucket."""
        return storage.local_path(self.uri) if storage.scheme(self.uri) == "file" else None

    @cached_property
    def files(self) -> Mapping[str, str]:
        """URIs of the row files of ``rows``, by task."""
        if storage.store_for(self.uri).exists(self.uri):
            return {storage.name_of(self.uri): self.uri}
        if self.manifest is not None:
            mine = [(file.task, file.path) for file in self.manifest.files if file.task]
        else:
            mine = [(task_name(entry.path), entry.path) for entry in list_folder(self.uri)]
        return {task: storage.join(self.uri, *path.split("/")) for task, path in mine if path.endswith(ROWS)}

    @cached_property
    def tokenized(self) -> Any:
        """The :class:`pairmill.formats.tokenized.Folder`, held-out rows too; of a plan what it was drawn from.

        Raises:
            InputError: it is not there, or damaged.
        """
        reader = importlib.import_module("pairmill.formats.tokenized_path")  # a quarter of the time to the first row
        return reader.open_place(self.tokens_at or self.uri, reader.Opening("path", held_out=None))

    @cached_property
    def datasets(self) -> Mapping[str, Dataset]:
        """Data sets of the tokenized folder by name."""
        return {task.name: task for task in self.tokenized.tasks}

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, sorted; none of a kind that has no tasks."""
        if self.kind == "rows":
            return sorted(self.files)
        if self.kind == "tokenized":
            return sorted(self.datasets)
        if self.kind in ("plan", "sampled") and self.manifest is not None:
            drawn = SampleResult.find(self.manifest)
            return list(dict.fromkeys(item["name"] for item in drawn.sources)) if drawn is not None else []
        return []

    @cached_property
    def epochs(self) -> int:
        """Epochs of a plan or of sampled arrays."""
        if self.kind == "plan" and self.manifest is not None:
            return sum(file.path.startswith("plan/epoch_") for file in self.manifest.files)
        store, count = storage.store_for(self.uri), 0
        while store.exists(storage.join(self.uri, f"epoch_{count}", "inst_start.npy")):
            count += 1
        return count

    def __len__(self) -> int:
        """Return the rows; of a plan or of sampled arrays those of all epochs.

        Raises:
            TypeError: the kind has none.
        """
        if self.kind in ("rows", "tokenized", "plan") and self.manifest is not None:
            return self.manifest.ledger.rows_out
        if self.kind == "rows":
            return sum(len(batch) for batch in self.rows())
        if self.kind == "tokenized":
            return sum(task.counts[0] for task in self.tokenized.tasks)
        if self.kind == "sampled":
            return sum(self._array(f"epoch_{epoch}", "inst_len").length for epoch in range(self.epochs))
        raise TypeError(f"a result of the kind {self.kind!r} has no rows")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        rows = f", {len(self):,} rows" if self.kind in ("rows", "tokenized", "plan", "sampled") else ""
        return f"<{self.kind}{f' of {self.stage}' if self.stage else ''}{rows}: {self.uri}>"

    def rows(self, task: str = "") -> Iterator[Any]:
        """Yield rows with all their columns as Arrow record batches of about 1 MB: of one task, or of all for training.

        Raises:
            UsageError: the result has no row files, or no such task.
            InputError: a file is damaged.
        """
        self._require("rows")
        reader = importlib.import_module("pairmill.formats.row_batches")  # pyarrow, which a trainer may lack
        every = (name for name in sorted(self.files) if not name.startswith(HELD_OUT) and not use_of(name))
        for name in [self._task(task, self.files)] if task else every:
            yield from (batch for _, batch in reader.read_batches(self.files[name]))

    def row_file(self, task: str) -> str:
        """Return the whole name of a task of rows: the ending of its file may be left out.

        Raises:
            UsageError: there is no such task.
        """
        return self._task(task, self.files)

    def tokens(self, task: str = "", epoch: int = 0) -> TokenRows:
        """Return the ids of a task of a tokenized folder, or of an epoch of sampled arrays, without reading them.

        Raises:
            UsageError: the result has no tokens, no such task or no such epoch.
            InputError: an array is absent or damaged.
        """
        self._require("tokenized", "sampled")
        if self.kind == "sampled":
            if not 0 <= epoch < self.epochs:
                expected = f"0 to {self.epochs - 1}"
                raise UsageError("no such epoch", where=f"epoch of {self.uri}", got=str(epoch), expected=expected)
            index = {name: _values(self._array(f"epoch_{epoch}", name)) for name in INDEX}
            return TokenRows(self._sampled_tokens(), index)
        data = self._dataset(task)
        return TokenRows(_mapped(data.array()), {name: _values(data.array(name)) for name in INDEX})

    def ordinals(self, task: str) -> NDArray[np.int64] | None:
        """Return the places in the row file of a tokenized task's rows, int64 [rows]; None if it has all rows."""
        return self._dataset(task).ordinals()

    def task(self, name: str) -> str:
        """Return the whole name of a task with tokens: the ending of a file may be left out.

        Raises:
            UsageError: there is no such task.
        """
        return self._dataset(name).name

    def first_tasks(self) -> Iterator[str]:
        """Yield names of tasks with tokens, sorted; of a folder of tokenize without parsing its manifest."""
        if self.stage != "tokenize":
            yield from self.tasks
            return
        data = storage.store_for(self.uri).read(storage.join(self.uri, manifests.MANIFEST))
        for match in _TASK.finditer(data):
            yield json.loads(match[1]).removesuffix(_INDEX)

    def _dataset(self, task: str) -> Dataset:
        if self.stage == "tokenize" and task and self._has(task):
            return Dataset(task, storage.join(self.uri, *task.split("/")))
        return self.datasets[self._task(task, self.datasets)]

    def _sampled_tokens(self) -> NDArray[Any] | RangedTokens:
        if self.path is not None and (self.path / LISTING).exists():
            listed = read_listing(self.path)
            return RangedTokens(
                [Array(str(item.path), np.dtype(item.dtype), item.tokens, item.offset) for item in listed]
            )
        return _mapped(self._array("tokens"))

    def _array(self, *path: str) -> Array:
        return Array.open(storage.join(self.uri, *path[:-1], f"{path[-1]}.npy"))

    def _has(self, task: str) -> bool:
        uri = storage.join(self.uri, *task.split("/"), "inst_len.npy")
        return storage.store_for(uri).exists(uri)

    def _require(self, *kinds: Kind) -> None:
        if self.kind not in kinds:
            raise UsageError(f"a result without {kinds[0]}", where=self.uri, got=self.kind, expected=" or ".join(kinds))

    def _task(self, task: str, known: Mapping[str, object]) -> str:
        """Return the name of a task; the ending of a file may be left out, and the name of an only one too."""
        names = sorted(known)
        same = [name for name in names if task in (name, name.rpartition(".")[0])] if task else names
        if len(same) != 1:
            shown = ", ".join(names[:_NAMES_SHOWN]) + (" …" if len(names) > _NAMES_SHOWN else "")
            what = "no such task" if task else "no task is named"
            raise UsageError(what, where=self.uri, got=task, expected=shown, hint=did_you_mean(task, names[:1000]))
        return same[0]

    def plan_array(self, name: str) -> NDArray[Any]:
        """Return an array of a plan, integers [rows].

        ``inst_start`` and so on have all rows that are taken, task by task; ``epoch_<k>`` has the places of its rows in
        those, in training order.

        Raises:
            UsageError: the result is not a plan.
            InputError: the array is absent.
        """
        self._require("plan")
        return _values(self._array("plan", name))

    def info(self) -> Mapping[str, Any]:
        """Return ``tokenizer_info.json`` of tokens, or ``metadata.json`` of sampled arrays; else nothing."""
        name = {"tokenized": INFO, "sampled": METADATA}.get(self.kind)
        uri = storage.join(self.uri, name) if name else ""
        data: Mapping[str, Any] = json.loads(storage.store_for(uri).read(uri)) if uri else {}
        return data


def open_result(given: str | Path, option: str = "path") -> OpenResult:
    """Open a finished folder of any stage, one that others made in the form of one, or a single row file.

    Args:
        given: path or URI; also a node's folder that holds samples.
        option: that gave it, for messages.

    Raises:
        InputError: it is nothing of these, or not finished.
    """
    uri = storage.normalise(str(given), option)
    if storage.scheme(uri) == "file":
        uri = storage.normalise(str(folder_of(uri, option)), option)
    store = storage.store_for(uri)
    if manifests.exists(uri):
        head = read_head(uri)
        kind = KINDS.get(head.stage)
        if kind == "plan" and store.exists(storage.join(uri, METADATA)):
            kind = "sampled"
        if kind is not None:
            return OpenResult(uri, kind, head.stage, tuple(head.inputs))
        raise InputError(
            "a result of a stage that is not known here", where=uri, got=head.stage, expected=", ".join(KINDS)
        )
    manifests.refuse_unfinished(uri)
    if uri.endswith(ROWS) and store.exists(uri):
        return OpenResult(uri, "rows")
    for name, mark in _MARKS.items():
        if store.exists(storage.join(uri, name)):
            return OpenResult(uri, mark)
    paths = [entry.path for entry in list_folder(uri)]
    if any(path.endswith(ROWS) for path in paths):
        return OpenResult(uri, "rows")
    below = sorted(path.rpartition("/")[0] for path in paths if path.endswith(f"/{manifests.MANIFEST}"))
    raise InputError(
        "not a finished folder",
        where=f"{option}={uri}",
        got=", ".join(sorted(paths)[:3]) or "nothing",
        expected=f"{manifests.MANIFEST}, row files, or one of {', '.join(_MARKS)}",
        hint=f"name one of the folders in it: {', '.join(below[:3])}" if below else "check the path",
    )


def _mapped(array: Array) -> NDArray[Any] | RangedTokens:
    if storage.scheme(array.uri) != "file":
        return RangedTokens([array])
    return np.memmap(storage.local_path(array.uri), array.dtype, "r", array.offset, (array.length,))


def _values(array: Array) -> NDArray[Any]:
    """Return an index array: mapped on this machine, read from a store."""
    result = _mapped(array)
    return result if isinstance(result, np.ndarray) else result[: array.length]
