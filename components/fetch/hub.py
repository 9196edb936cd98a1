"""The Hugging Face Hub, through its own client: which commit, which files, which bytes.

The client asks and authenticates; the bytes come through :mod:`components.fetch.web`, because ``hf_hub_download`` of
huggingface_hub 1.33 begins a file anew after a kill, does not retry a 5xx or a reset, and checks no digest
(docs/decisions/0006-bytes-of-the-hub.md). ``HF_ENDPOINT`` and ``HF_TOKEN`` are the client's own.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from components.clean.origin import HubRows
from components.fetch import web
from pairmill.errors import InputError, PairmillError, StorageError
from pairmill.log import event

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_PART_BYTES = 128 << 20
_GROUP_BYTES = 16 << 20
_BATCH_ROWS = 1000


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set at a commit: path, bytes, git's digest of it, and its sha256 where it is a large file."""

    path: str
    size: int
    blob: str
    sha256: str = ""


def commit_of(repo: str, revision: str, source: str) -> str:
    """The commit (40 hexadecimal digits) that a branch or tag names now. ``source`` is for messages.

    Raises:
        InputError: no such data set or revision, or it may not be read.
        StorageError: the Hub does not answer.
    """
    found = _asked(repo, source, lambda api: api.dataset_info(repo, revision=revision).sha)
    if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{40}", found):
        raise InputError("the Hub names no commit", where=f"{repo} {revision}", got=repr(found))
    return found


def files(repo: str, commit: str, source: str) -> dict[str, RemoteFile]:
    """Every file at a commit by path. Raises as ``commit_of``."""

    def ask(api: Any) -> dict[str, RemoteFile]:
        tree = api.list_repo_tree(repo, recursive=True, revision=commit, repo_type="dataset")
        return {
            item.path: RemoteFile(item.path, item.size, item.blob_id, item.lfs.sha256 if item.lfs else "")
            for item in tree
            if hasattr(item, "size")  # a folder has none
        }

    return _asked(repo, source, ask)


def download(repo: str, commit: str, file: RemoteFile, source: str, target: Path, note: Path) -> str:
    """Fetch a file to ``target``, whole and of the digest that the Hub lists; returns its sha256.

    What is there already is not fetched again (see :func:`components.fetch.web.download`).

    Raises:
        InputError: the data set is gated or gone, or other bytes came, twice.
        StorageError: the Hub does not answer.
    """
    from huggingface_hub import hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils._headers import build_hf_headers

    url = hf_hub_url(repo, file.path, repo_type="dataset", revision=commit)
    where = f"{repo} {file.path}"

    def refuse(response: Any) -> None:
        try:
            response.read()
            hf_raise_for_status(response)
        except Exception as error:
            raise _translated(error, where, repo, source) from error

    wrong = ""
    for _ in range(2):
        web.download(url, target, note, size=file.size, headers=build_hf_headers(), refuse=refuse)
        sha256, wrong = _checked(file, target)
        if not wrong:
            return sha256
        event(f"fetch: {where}: {wrong}; fetching it once more")
        target.unlink()
    raise InputError(
        "other bytes came than the Hub lists",
        where=f"{where} at {commit}",
        got=wrong,
        hint="a proxy or mirror may have damaged them; run the same command later",
    )


def _checked(file: RemoteFile, local: Path) -> tuple[str, str]:
    """The sha256 of what came, and what is wrong with it."""
    size = local.stat().st_size
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with local.open("rb") as content:
        while data := content.read(1 << 20):
            for digest in (sha256,) if file.sha256 else (sha256, sha1, git):
                digest.update(data)
    found = sha256.hexdigest()
    if size != file.size:
        return found, f"{size} bytes, expected {file.size}"
    if file.sha256:
        return found, "" if found == file.sha256 else f"sha256 {found}, expected {file.sha256}"
    # Small files have git's digest, of a head and the content; mirrors behind HF_ENDPOINT state the content's alone.
    known = {git.hexdigest(), sha1.hexdigest(), found}
    return found, "" if file.blob in known else f"git digest {git.hexdigest()}, expected {file.blob}"


def stream(
    origin: HubRows,
    commit: str,
    split: str,
    source: str,
    fields: Sequence[str],
    create: Callable[[str], AbstractContextManager[Path]],
) -> None:
    """Write the rows of a split, as ``datasets`` streams them, to Parquet files ``<split>-00000.parquet`` and so on.

    Args:
        origin: the data set.
        commit: its revision.
        split: what to read.
        source: for messages.
        fields: columns that the source reads; empty = all.
        create: gives the local file for a name.

    Raises:
        InputError: ``datasets`` cannot read it, or a field is no longer what it was: see ``_refuse_mixed``.
        StorageError: the Hub does not answer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = _groups(origin, commit, split, source)
    group = next(groups, None)
    if group is None:
        raise InputError("holds no row", where=f"{origin.repo} {origin.config} {split}")
    schema = group.schema
    _refuse_mixed(schema, fields, f"{origin.repo} {origin.config} {split}")
    part = 0
    while group is not None:
        with create(f"{split}-{part:05}.parquet") as path, pq.ParquetWriter(path, schema) as writer:
            size = 0
            while group is not None and size < _PART_BYTES:
                try:
                    writer.write_table(group.cast(schema))
                except pa.ArrowException as error:
                    raise _unreadable(error, origin, split) from error
                size += group.nbytes
                group = next(groups, None)
        part += 1


def _groups(origin: HubRows, commit: str, split: str, source: str) -> Iterator[pa.Table]:
    """The rows of a split in tables large enough to be row groups."""
    import datasets
    import httpx
    import pyarrow as pa
    from huggingface_hub.errors import HfHubHTTPError

    _limit_waiting()
    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # stderr is for our log
    name = None if origin.config == "default" else origin.config
    waiting: list[pa.Table] = []
    try:
        # Streamed: the library's cache of prepared data sets is never asked, which can serve another folder's rows.
        found = datasets.load_dataset(origin.repo, name=name, split=split, revision=commit, streaming=True)
        for table in found.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            waiting.append(table)
            if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
                yield pa.concat_tables(waiting, promote_options="permissive")
                waiting = []
    except (httpx.TransportError, HfHubHTTPError) as error:
        raise _translated(error, f"{origin.repo} {split}", origin.repo, source) from error
    except Exception as error:
        raise _unreadable(error, origin, split) from error
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")


def _refuse_mixed(schema: pa.Schema, fields: Sequence[str], where: str) -> None:
    # Where JSON has texts and other values in one column, datasets 5.2 makes JSON of them all, texts in quotes.
    import pyarrow as pa

    for column in schema:
        if isinstance(column.type, pa.JsonType) and (not fields or column.name in fields):
            raise InputError(
                "a column has values of several kinds, which datasets makes texts of JSON of",
                where=where,
                got=column.name,
                hint="fetch the files themselves, without via: datasets",
            )


def _unreadable(error: Exception, origin: HubRows, split: str) -> InputError:
    return InputError(
        "datasets cannot read it",
        where=f"{origin.repo} {origin.config} {split}",
        got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        hint="check name, config and split on the Hub; a gated data set needs HF_TOKEN",
    )


@functools.cache
def _limit_waiting() -> None:
    """Give every request of the Hub's client a time limit: lists of files have none, and would wait for ever."""
    import httpx
    from huggingface_hub import logging, set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def limit(request: httpx.Request) -> None:
        request.extensions["timeout"] = httpx.Timeout(web.TIMEOUT).as_dict()

    def client() -> httpx.Client:
        made = default_client_factory()
        made.event_hooks["request"].append(limit)
        return made

    set_client_factory(client)
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # stderr is for our log


def _asked(repo: str, source: str, question: Callable[[Any], T]) -> T:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    _limit_waiting()
    api = HfApi()

    def ask() -> T:
        try:
            return question(api)
        except HfHubHTTPError as error:
            if error.response is not None and error.response.status_code in web.RETRIED:
                raise web.Again(f"status {error.response.status_code}", web.retry_after(error.response)) from error
            raise _translated(error, repo, repo, source) from error
        except (ValueError, KeyError, TypeError, ConnectionError) as error:
            raise _translated(error, repo, repo, source) from error

    return web.retried(f"{api.endpoint}/datasets/{repo}", ask)


def _translated(error: Exception, where: str, repo: str, source: str) -> PairmillError:
    """An exception of the Hub's client as an instruction."""
    from huggingface_hub import errors, get_token

    token = "the account of HF_TOKEN has no access" if get_token() else "no HF_TOKEN is set"
    if isinstance(error, errors.GatedRepoError):
        hint = f"accept its terms on the Hub's page of {repo}, and set HF_TOKEN to a token of that account"
        return InputError("is gated", where=where, got=token, hint=hint)
    if isinstance(error, errors.RepositoryNotFoundError):
        hint = "check the name; a private data set needs the HF_TOKEN of an account that may read it"
        return InputError("no such data set, or a private one", where=where, got=token, hint=hint)
    if isinstance(error, errors.RevisionNotFoundError):
        hint = f"update={source} locks the source to what is published now"
        return InputError("this revision is not published, or no longer", where=where, hint=hint)
    if isinstance(error, errors.EntryNotFoundError):
        return InputError("no such file at this revision", where=where)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return StorageError("the Hub may not be asked", where=where, got="HF_HUB_OFFLINE", hint="unset it")
    if isinstance(error, errors.HFValidationError):
        return InputError("is no name of a data set", where=where, got=str(error), expected="owner/name")
    response = getattr(error, "response", None)
    status = f"status {response.status_code}" if response is not None else " ".join(repr(error).split())[:300]
    if response is not None and response.status_code in {401, 403}:
        return InputError("may not be read", where=where, got=status, hint="check HF_TOKEN")
    return StorageError("the Hub gives no answer", where=where, got=status, hint="run the same command later")
