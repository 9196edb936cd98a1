"""Row files as they are found: columns, paths in finished folders, slices, and the attributes beside them."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

from pairmill import storage
from pairmill.engine import inputs
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, whole
from pairmill.engine.inputs import HELD_OUT, InputFile, Inputs
from pairmill.engine.manifest import fingerprint_from
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats import attributes, rows
from pairmill.formats.limits import EXPANSION
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.slices import FileSlice, Slicing

SLICING: Final = Slicing(64 << 20, open_from=(16 << 20) + 1, cut_from=128 << 20)
"""A slice is enough work to be worth a shard, and little enough that sixteen cores share a gigabyte."""
ORIGIN: Final = "origin"
"""The operation that a kept row's ordinal in the file that was given first is an attribute of."""


_HEAD = 1 << 20
# Heads of files that are read at once: a store answers each in 10 to 100 ms.
_AT_ONCE = 32
_USUAL = {
    "instruction": ("instruction", "question", "prompt", "input", "problem", "query"),
    "response": ("response", "answer", "output", "completion", "solution"),
}


@dataclass(frozen=True)
class RowFile:
    """A row file that a stage chooses rows of.

    Args:
        file: as it was found.
        path: below the folder that was given, and below the finished one.
        beside: its attributes of the input folder by operation: URI and what the file has to be.
    """

    file: InputFile
    path: str
    beside: Mapping[str, InputFile]

    @property
    def name(self) -> str:
        """The task's name."""
        return self.file.task

    @property
    def held_out(self) -> bool:
        """Whether its rows are for evaluation: they are passed on, and nothing is learned from them."""
        return self.name.startswith(HELD_OUT)

    @property
    def source(self) -> str:
        """The source that it belongs to."""
        return source_of(self.name)


def discover(
    given: Sequence[str],
    option: str,
    *,
    verify: bool = False,
    held_out: bool = False,
    with_removed: bool = False,
    fields: Sequence[str] = rows.FIELDS,
) -> Inputs:
    """Find the row files of places, as :func:`pairmill.engine.inputs.discover`.

    The head of each file that no manifest names is read, so that a file of other columns is told at once, and once.

    Args:
        given: as the user gave them.
        option: its name, for messages.
        verify: digest the files of finished folders now.
        held_out: find the files of held-out rows too.
        with_removed: find files with rows that a policy takes out too.
        fields: the columns that are read.

    Raises:
        InputError: as that function, or a file lacks one of ``fields``.
    """
    result = inputs.discover(
        given, rows.EXTENSIONS, option, verify=verify, held_out=held_out, with_removed=with_removed
    )
    require_all_columns([file.uri for file in result.files if not file.promised], option, fields)
    return result


def require_all_columns(uris: Iterable[str], option: str = "", fields: Sequence[str] = rows.FIELDS) -> None:
    """Raise InputError, as :func:`require_columns`, for the first of these files that lacks a column."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(partial(require_columns, option=option, fields=fields), uris):
            pass


def require_columns(
    uri: str, shown: str = "", files: str = "", option: str = "", fields: Sequence[str] = rows.FIELDS
) -> None:
    """Raise InputError unless a row file has the columns of rows; the message has the description to write instead.

    Args:
        shown: how the message names it; empty = its URI.
        files: the line of a description that says where the files are; empty = ``files:`` and the URI.
        option: of the stage that reads the rows; a file that cannot be opened is then told by the shard that reads it.
            Empty = ``rows`` of a pipeline, beside which there is ``sources``.
        fields: the columns that are wanted.
    """
    try:
        names = _columns(uri)
    except InputError:
        if not option:
            raise
        return
    missing = [name for name in fields if names is not None and name not in names]
    if not missing:
        return
    assert names is not None
    lines = [
        "name: my_rows",
        files or f"files: {storage.parent_of(uri)}/*{PurePosixPath(uri).suffix}",
        'condition: "{condition}"' if "condition" in names else "condition: direct",
    ]
    for name, usual in _USUAL.items():
        known = [column for column in usual if column in names]
        lines.append(f"{name}: {known[0] if known else f'<the column with the {name}>'}")
    do = "write sources=my_rows.yaml in place of rows="
    if option:
        do = (
            "run pairmill fetch and then pairmill.stages.clean with sources=my_rows.yaml, "
            f"and give the cleaned folder as {option}"
        )
    raise InputError(
        f"column {missing[0]!r} is missing",
        where=shown or (f"{option}={uri}" if option else uri),
        got=", ".join(names),
        expected=", ".join(fields),
        hint=f"{option or 'rows'} takes finished rows; put this into my_rows.yaml and {do}:"
        + "".join(f"\n  {line}" for line in lines),
    )


def _columns(uri: str) -> list[str] | None:
    """Return the columns of a row file, or the fields of its first row; None if that does not tell them."""
    if uri.endswith(".parquet"):
        with open_parquet(uri) as file:
            return list(file.schema_arrow.names)
    with whole(uri, UNKNOWN) as lines:
        head = lines.read(_HEAD).lstrip().split(b"\n", 1)[0]
    try:
        first = json.loads(head)
    except ValueError:
        return None  # the stage that reads the rows says what is wrong, and in which row
    return list(first) if isinstance(first, dict) else None


def slice_whole(file: InputFile, longest: int, expansion: int = EXPANSION) -> FileSlice:
    """Make the slice that is all of a file; ``longest`` and ``expansion`` as for :func:`cut`."""
    return FileSlice(file.task, file.uri, size=file.size, content=file.content, longest=longest, expansion=expansion)


def cut(file: InputFile, longest: int, expansion: int = EXPANSION) -> list[tuple[FileSlice, tuple[Any, ...], str]]:
    """Return the slices of a row file, each with what its rows follow from (JSON-like) and a name that is unique.

    Args:
        file: as it was found.
        longest: bytes of the longest row.
        expansion: the most bytes of rows for each byte of the file.
    """
    whole = slice_whole(file, longest, expansion)
    slices = [whole]
    # A damaged file is its shard's to name, so that all others are committed.
    with suppress(InputError):
        slices = SLICING.cut(whole)
    if len(slices) == 1:
        return [(slices[0], (file.digest, file.kind), file.task)]
    return [
        (item, (file.digest, file.kind, item.start, item.stop), f"{file.task} {number:05}")
        for number, item in enumerate(slices)
    ]


def path_below(file: InputFile, tops: Sequence[str]) -> str:
    """Return the path of a row file below the folder that was given; of a file that was given itself, its name."""
    for top in tops:
        if file.uri == top:
            return storage.name_of(top)
        if file.uri.startswith(top.rstrip("/") + "/"):
            return file.uri[len(top.rstrip("/")) + 1 :]
    raise AssertionError(f"{file.uri} is below none of {tops}")


def beside_each(files: Iterable[InputFile]) -> dict[str, dict[str, InputFile]]:
    """Return the attributes beside row files, as :func:`beside`, in whichever finished folder above each they are."""
    tops: dict[str, None] = {}
    for file in files:
        folder = file.uri
        for _ in range(inputs.DEPTH):
            folder = storage.parent_of(folder)
            if storage.is_top(folder):
                break
            tops[folder] = None
    return beside(list(tops))


def beside(tops: Sequence[str]) -> dict[str, dict[str, InputFile]]:
    """Return the attributes beside the rows of finished folders, by URI of the row file and operation."""
    result: dict[str, dict[str, InputFile]] = {}
    for top in tops:
        manifest = None if storage.store_for(top).exists(top) else manifests.read(top)
        if manifest is None:
            continue
        by_task: dict[str, dict[str, InputFile]] = {}
        for file in manifest.files:
            path = file.path.removeprefix(HELD_OUT)
            if not file.task and path.startswith(f"{attributes.FOLDER}/"):
                _, operation, name = path.split("/", 2)
                task = file.path[: len(file.path) - len(path)] + name.removesuffix(".parquet")
                uri = storage.join(top, *file.path.split("/"))
                by_task.setdefault(task, {})[operation] = InputFile(uri, "", file.size, file.digest, promised=True)
        for file in manifest.files:
            if file.task in by_task:
                result[storage.join(top, *file.path.split("/"))] = by_task[file.task]
    return result


def attributes_of(
    given: Sequence[str], tasks: Collection[str], *, verify: bool = False
) -> tuple[dict[str, Mapping[str, InputFile]], str]:
    """Find the attributes of the rows of tasks, by task and operation, and what identifies where they are from.

    Args:
        given: ``rows=``, the rows that were tokenized.
        verify: digest the files of finished folders now.

    Raises:
        InputError: as :func:`pairmill.engine.inputs.discover`, or a task is not among the rows.
    """
    # Only what is beside the rows that were tokenized is read: what is taken out of those is asked of the tokens.
    discovered = inputs.discover(given, rows.EXTENSIONS, "rows", verify=verify, with_removed=True)
    files = beside([storage.normalise(uri, "rows") for uri in given])
    by_task = {file.task: files.get(file.uri, {}) for file in discovered.files}
    missing = sorted({*tasks} - by_task.keys())
    if missing:
        raise InputError(
            f"{len(missing):,} tasks are not among the rows",
            where=f"rows={','.join(given)}",
            got=", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else ""),
            expected="the rows that were tokenized",
            hint="give rows= the folder that was tokenized, or leave them out of what reads attributes",
        )
    return {task: by_task[task] for task in tasks}, fingerprint_from([ref.fingerprint for ref in discovered.refs])
