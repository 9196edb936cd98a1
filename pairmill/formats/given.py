"""Finished data that a run is given in place of a stage's result: checked, and never copied.

Rows, a tokenizer or token folders that exist let a run begin later. What is checked here costs a listing and, of rows
that others made, the head of each file: the stages that read them compare every byte.
"""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pairmill import storage
from pairmill.address import refuse
from pairmill.encoder import Encoder
from pairmill.engine import manifest as manifests
from pairmill.engine.stage import GivenResult
from pairmill.errors import InputError, UsageError
from pairmill.formats import rows, tokenizer_file, tokens
from pairmill.formats.row_files import require_all_columns
from pairmill.formats.templates import require_tokens
from pairmill.formats.tokenized import UNION, names_in
from pairmill.formats.tokenized_path import open_tokenized

PUBLISHED = ("data", "data_clustered")
"""The folders of a cleaned data set, ours and the reference's; a task's name is the path below one of them."""
_ASIDE = ("attributes", "holdout", "rejects")
"""Folders beside them in ours, whose files are not rows to train on."""

_ENDINGS = tuple(f".{extension}" for extension in rows.EXTENSIONS)
# Footers of more files would take longer than the second in which a result is passed on.
_COUNTED = 64


class GivenFiles(NamedTuple):
    """What is at a place.

    Args:
        uris: what a later stage reads: the place itself, or the folders of a published data set within it.
        size: bytes of them.
        rows: by a manifest, or by the footers of a few Parquet files; None = not counted.
    """

    uris: tuple[str, ...]
    files: int
    size: int
    rows: int | None = None


def place(given: str, option: str) -> str:
    """Return the URI of a place that a stage other than fetch is given.

    Raises:
        UsageError: it is empty, no storage serves it, or only fetch can read it.
    """
    refuse(given, option)
    return storage.normalise(given, option)


def rows_at(uri: str, *, check: bool = True, count: bool = False, shown: str = "") -> GivenFiles:
    """Find the row files of a file, a folder or a published data set.

    Args:
        check: also read the head of each file that no manifest names.
        count: also count the rows, where that is cheap.
        shown: how messages name the place; empty = its URI.

    Raises:
        InputError: no row file, an unfinished or damaged folder, or a file that lacks a column.
    """
    store = storage.store_for(uri)
    uris: tuple[str, ...]
    if store.exists(uri):
        paths = {uri: store.size(uri)} if uri.endswith(_ENDINGS) else {}
        uris, counted = (uri,), None
    else:
        manifest = manifests.read_intact(uri)
        if manifest is not None:
            named = [file for file in manifest.files if file.task and file.path.endswith(_ENDINGS)]
            if not named:
                raise _no_rows(uri, [file.path for file in manifest.files], shown)
            return GivenFiles((uri,), len(named), sum(file.size for file in named), manifest.ledger.rows_out)
        listed = {entry.path: entry.size for entry in store.list(uri)}
        tops, wanted = row_files(listed)
        if not wanted:
            raise _no_rows(uri, list(listed), shown)
        uris = tuple(storage.join(uri, top) for top in tops) or (uri,)
        paths, counted = {storage.join(uri, *path.split("/")): listed[path] for path in wanted}, None
    if not paths:
        raise _no_rows(uri, [storage.name_of(uri)], shown)
    if check:
        require_all_columns(paths)
    if count and len(paths) <= _COUNTED and all(path.endswith(".parquet") for path in paths):
        counted = sum(map(rows.count, paths))
    return GivenFiles(uris, len(paths), sum(paths.values()), counted)


def passed_on(option: str, given: Sequence[str], *, within: bool = False) -> GivenResult:
    """Return the rows that a stage passes on, and did not make.

    Args:
        option: why it does.
        given: the places of its option ``rows``.
        within: pass on the folders of a published data set within a place; else the places as they were given, so that
            tasks have the names that they have where there is something to do.

    Raises:
        UsageError, InputError: as :func:`list_of` and :func:`rows_at`.
    """
    places = list_of(given, "rows")
    result = [rows_at(uri, check=False, count=True) for uri in places]
    counts = [item.rows for item in result if item.rows is not None]
    return GivenResult(
        option,
        tuple(uri for item in result for uri in item.uris) if within else tuple(places),
        sum(item.files for item in result),
        sum(item.size for item in result),
        sum(counts) if len(counts) == len(result) else None,
    )


def instead_of(stage: str, config: Any) -> GivenResult | None:
    """Return what the options of a stage give in place of its result, checked; None if there is work to do.

    Raises:
        UsageError, InputError: as :func:`passed_on`, :func:`tokenizer_at` and :func:`tokenized_at`.
    """
    option = config.given
    if not option and config.is_off:
        option = "profile" if config.profile == "data_io" else f"{stage}_config"
    if not option:
        return None
    if config.result == "rows" and option != "tokenized":
        return passed_on(option, config.rows, within=option == "rows")
    if not config.result:
        # Nothing is handed on: without a mixture the sampler takes what its rules say.
        return GivenResult(option, ("",))
    if option != config.result:
        return GivenResult(option)
    result = tokenizer_at(config.tokenizer) if option == "tokenizer" else tokenized_at(config.tokenized, option)
    return GivenResult(option, result.uris, result.files, result.size, result.rows)


def row_files(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the row files of a folder without a manifest, and the folders that tasks are named below.

    The folders are those of :data:`PUBLISHED` in a data set that has no other rows, and none in any other folder.
    """
    wanted = sorted(path for path in paths if path.endswith(_ENDINGS))
    tops = {path.split("/", 1)[0] if "/" in path else "" for path in wanted}
    named = tops & set(PUBLISHED)
    if not named or tops - named - set(_ASIDE):
        return [], wanted
    return sorted(named), [path for path in wanted if path.split("/", 1)[0] in named]


def _no_rows(uri: str, paths: Sequence[str], shown: str) -> InputError:
    kinds = {PurePosixPath(path).suffix for path in paths}
    hint = "check the path"
    if kinds & {".csv", ".json", ".gz", ".zst", ".tsv", ".txt"}:
        hint = (
            "describe these files with a YAML file (docs/sources.md), and write sources=<file>.yaml in place of rows="
        )
    return InputError(
        f"no {' or '.join(_ENDINGS)} file found",
        where=f"rows={shown or uri}",
        got=", ".join(sorted(paths)[:5]) or "nothing",
        hint=hint,
    )


def tokenizer_at(given: str, shown: str = "", template: str = "") -> GivenFiles:
    """Find a tokenizer.json: the file itself, or one in a folder.

    Args:
        given: the place.
        shown: how messages name it; empty = its URI.
        template: the template whose tokens it must have; empty = any tokenizer will do.

    Raises:
        InputError: there is none, the library does not take it, or it lacks a token of the template.
    """

    uri = place(given, "tokenizer")
    data = tokenizer_file.read(tokenizer_file.locate(uri))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError("not a tokenizer", where=shown or uri, got=str(error), expected="UTF-8 text") from error
    encoder = Encoder.from_json(text, where=shown or uri)
    if template:
        require_tokens(template, lambda token: encoder.token_to_id(token) is not None, shown or uri)
    return GivenFiles((uri,), 1, len(data))


def tokenized_at(given: str, option: str) -> GivenFiles:
    """Find the data sets of a tokenized folder.

    Raises:
        InputError: not one, or unfinished or damaged, or without a data set.
    """
    uri = place(given, option)
    store = storage.store_for(uri)
    manifest = manifests.read_intact(uri)
    if not store.exists(storage.join(uri, tokens.INFO)):
        raise InputError(
            f"not a tokenized folder: {tokens.INFO} does not exist", where=f"{option}={uri}", hint="check the path"
        )
    if manifest is not None and manifest.stage == UNION:
        folder = open_tokenized(uri, option)
        size = sum(content.size for task in folder.tasks for content in task.contents.values())
        return GivenFiles((uri,), len(folder.tasks), size, manifest.ledger.rows_out)
    sizes = {entry.path: entry.size for entry in store.list(uri)}
    names = {*names_in(uri, sizes, tolerate_strays=True)}
    if not names:
        raise InputError("no data set in it", where=f"{option}={uri}", expected="folders with five arrays")
    size = sum(size for path, size in sizes.items() if path.split("/", 1)[0] in names)
    return GivenFiles((uri,), len(names), size, None if manifest is None else manifest.ledger.rows_out)


def list_of(given: Sequence[str], option: str) -> list[str]:
    """Return the places of a list option, each once. Raises UsageError if one is named twice, or as :func:`place`."""
    result: list[str] = []
    for item in given:
        uri = place(item, option)
        if uri in result:
            raise UsageError("given twice", where=option, got=uri, expected="each place once")
        result.append(uri)
    return result
