"""The Hugging Face Hub, through its own client: commits, lists of files, and downloads.

The client authenticates and lists. Bytes come through :mod:`pairmill.net.http`, because ``hf_hub_download`` of
huggingface_hub 1.33 starts a file anew after a kill, does not retry a 5xx or a reset, and checks no digest
(docs/decisions/0006-bytes-of-the-hub.md). ``HF_ENDPOINT`` and ``HF_TOKEN`` are the client's own.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from pairmill.errors import InputError, PairmillError, StorageError
from pairmill.log import event
from pairmill.net import http
from pairmill.retry import TRANSIENT, Again, asked_pause

T = TypeVar("T")


@dataclass(frozen=True)
class Repository:
    """A repository of the Hub.

    Args:
        name: ``owner/name``.
        kind: its type on the Hub.
        moved: next step if a revision does not exist, for messages.
    """

    name: str
    kind: Literal["dataset", "model"]
    moved: str

    @property
    def what(self) -> str:
        """The kind in words."""
        return "data set" if self.kind == "dataset" else self.kind


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at a commit: path, bytes, git's digest, and the sha256 if it is a large file."""

    path: str
    size: int
    blob: str
    sha256: str = ""


def commit_of(repository: Repository, revision: str) -> str:
    """Return the present commit (40 hexadecimal digits) of a branch or tag.

    Raises:
        InputError: the repository or revision does not exist, or may not be read.
        StorageError: the Hub does not answer.
    """

    def ask(api: Any) -> Any:
        return api.repo_info(repository.name, revision=revision, repo_type=repository.kind).sha

    result = ask_hub(repository, ask)
    if not isinstance(result, str) or not re.fullmatch("[0-9a-f]{40}", result):
        raise InputError("the Hub gave no commit", where=f"{repository.name} {revision}", got=repr(result))
    return result


def licence_of(repository: Repository, commit: str) -> str:
    """Return what a repository's card says of its licence; empty if it says nothing. Raises as ``commit_of``."""

    def ask(api: Any) -> Any:
        card = api.repo_info(repository.name, revision=commit, repo_type=repository.kind).card_data
        return card.get("license") if card else ""

    result = ask_hub(repository, ask) or ""
    return ", ".join(map(str, result)) if isinstance(result, list) else str(result)


def files(repository: Repository, commit: str) -> dict[str, RemoteFile]:
    """Return every file at a commit by path. Raises as ``commit_of``."""

    def ask(api: Any) -> dict[str, RemoteFile]:
        tree = api.list_repo_tree(repository.name, recursive=True, revision=commit, repo_type=repository.kind)
        return {
            item.path: RemoteFile(item.path, item.size, item.blob_id, item.lfs.sha256 if item.lfs else "")
            for item in tree
            if hasattr(item, "size")  # a folder has none
        }

    return ask_hub(repository, ask)


def download(repository: Repository, commit: str, file: RemoteFile, target: Path, note: Path) -> str:
    """Download a file to ``target``, check it against the digest that the Hub lists, and return its sha256.

    A download continues after the bytes of an earlier one (see :func:`pairmill.net.http.download`).

    Raises:
        InputError: the repository is gated or gone, or the bytes were wrong, twice.
        StorageError: the Hub does not answer.
    """
    where = f"{repository.name} {file.path}"
    url, headers, refuse = _request(repository, commit, file)
    wrong = ""
    for _ in range(2):
        http.download(url, target, note, size=file.size, headers=headers, refuse=refuse)
        sha256, wrong = _checked(file, target)
        if not wrong:
            return sha256
        event(f"{where}: {wrong}; downloading it again")
        target.unlink()
    raise InputError(
        "the downloaded bytes are not those that the Hub lists",
        where=f"{where} at {commit}",
        got=wrong,
        hint="a proxy or mirror may have damaged them; run the same command later",
    )


def opened(repository: Repository, commit: str, file: RemoteFile) -> http.Ranged:
    """Return a reader of a file that asks for what is read of it. Its bytes cannot be checked against the file's
    digest.

    Raises as ``download``, while it is read.
    """
    url, headers, refuse = _request(repository, commit, file)
    # At a commit a file has one version, which not every server of the Hub names alike.
    return http.Ranged(url, size=file.size, expected=http.UNTOLD, headers=headers, refuse=refuse)


def _request(
    repository: Repository, commit: str, file: RemoteFile
) -> tuple[str, dict[str, str], Callable[[Any], None]]:
    """Return the address of a file, the headers to send, and what raises our error for a refusal."""
    library = client_library()

    def refuse(response: Any) -> None:
        try:
            response.read()
            library.hf_raise_for_status(response)
        except Exception as error:
            raise translated(error, f"{repository.name} {file.path}", repository) from error

    url = library.hf_hub_url(repository.name, file.path, repo_type=repository.kind, revision=commit)
    return url, library.build_hf_headers(), refuse


def _checked(file: RemoteFile, local: Path) -> tuple[str, str]:
    """Return the sha256 of a downloaded file, and what is wrong with it."""
    size = local.stat().st_size
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with local.open("rb") as content:
        while data := content.read(1 << 20):
            for digest in (sha256,) if file.sha256 else (sha256, sha1, git):
                digest.update(data)
    result = sha256.hexdigest()
    if size != file.size:
        return result, f"{size} bytes, expected {file.size}"
    if file.sha256:
        return result, "" if result == file.sha256 else f"sha256 {result}, expected {file.sha256}"
    # Small files have git's digest, over a header and the content; some mirrors give a digest of the content alone.
    known = {git.hexdigest(), sha1.hexdigest(), result}
    return result, "" if file.blob in known else f"git digest {git.hexdigest()}, expected {file.blob}"


@functools.cache
def limit_waiting() -> None:
    """Give every request of the Hub's client a time limit: by default, lists of files have none."""
    library = client_library()

    def limit(request: Any) -> None:
        request.extensions["timeout"] = library.httpx.Timeout(http.TIMEOUT).as_dict()

    def client() -> Any:
        made = library.default_client_factory()
        made.event_hooks["request"].append(limit)
        return made

    library.set_client_factory(client)
    library.logging.set_verbosity_error()  # stderr is for our log


def ask_hub(repository: Repository, question: Callable[[Any], T]) -> T:
    """Ask the Hub's client, again where that helps. Raises as :func:`commit_of`."""
    limit_waiting()
    library = client_library()
    api = library.HfApi()

    def ask() -> T:
        try:
            return question(api)
        except library.errors.HfHubHTTPError as error:
            response = error.response
            if response is not None and response.status_code in TRANSIENT:
                raise Again(f"status {response.status_code}", asked_pause(response.headers)) from error
            raise translated(error, repository.name, repository) from error
        except (ValueError, KeyError, TypeError, ConnectionError) as error:
            raise translated(error, repository.name, repository) from error

    return http.request(f"{api.endpoint}/{repository.kind}s/{repository.name}", ask)


@contextmanager
def open_split(
    repository: Repository, config: str, split: str, revision: str, *, where: str, hint: str
) -> Iterator[Any]:
    """Provide a split of a data set as ``datasets`` streams it. Its cache of prepared data sets is never asked: that
    can serve another folder's rows.

    Raises:
        InputError: ``datasets`` cannot read it; ``where`` and ``hint`` are those of the message.
        StorageError: the Hub does not answer.
    """
    import datasets

    library = client_library()
    limit_waiting()
    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # stderr is for our log
    name = None if config == "default" else config
    try:
        yield datasets.load_dataset(repository.name, name=name, split=split, revision=revision, streaming=True)
    except (library.httpx.TransportError, library.errors.HfHubHTTPError) as error:
        raise translated(error, f"{repository.name} {split}", repository) from error
    except Exception as error:
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise InputError("datasets cannot read it", where=where, got=got, hint=hint) from error


def translated(error: Exception, where: str, repository: Repository) -> PairmillError:
    """Turn an exception of the Hub's client into ours."""
    library = client_library()
    errors = library.errors
    what = repository.what
    token = "the account of HF_TOKEN has no access" if library.get_token() else "HF_TOKEN is not set"
    if isinstance(error, errors.GatedRepoError):
        hint = f"accept its terms on the Hub's page of {repository.name}, and set HF_TOKEN to a token of that account"
        return InputError(f"the {what} is gated", where=where, got=token, hint=hint)
    if isinstance(error, errors.RepositoryNotFoundError):
        hint = f"check the name; a private {what} needs the HF_TOKEN of an account that may read it"
        return InputError(f"the {what} does not exist, or is private", where=where, got=token, hint=hint)
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError("the revision does not exist", where=where, hint=repository.moved)
    if isinstance(error, errors.EntryNotFoundError):
        return InputError("the file does not exist at this revision", where=where)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return StorageError("the Hub's client is offline", where=where, got="HF_HUB_OFFLINE", hint="unset it")
    if isinstance(error, errors.HFValidationError):
        return InputError(f"not a valid name of a {what}", where=where, got=str(error), expected="owner/name")
    response = getattr(error, "response", None)
    status = f"status {response.status_code}" if response is not None else " ".join(repr(error).split())[:300]
    if response is not None and response.status_code in {401, 403}:
        return InputError("access denied", where=where, got=status, hint="check HF_TOKEN")
    return StorageError("the Hub does not answer", where=where, got=status, hint="run the same command later")


def client_library() -> ModuleType:
    """Return the Hub's client, which is imported at the first question."""
    from pairmill.net import hub_library

    return hub_library
