"""Finds the tokenizer.json of an option: a file, a folder that contains one, or a model of the Hub."""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pairmill import storage
from pairmill.address import parse, refuse
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError
from pairmill.log import event

NAME = "tokenizer.json"

# owner/name, and after @ a commit, branch or tag. Folders are named after it, so no other characters are allowed.
_ID = re.compile(r"(\w[\w.-]*)/(\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")


def locate(given: str, root: str = "") -> str:
    """Return the URI of the tokenizer.json of an option.

    An existing path or URI comes first, as in the reference. Otherwise ``owner/name@revision`` is a model of the Hub,
    whose file is downloaded once to ``<root>/tokenizer/hub/<owner>--<name>/<commit>/tokenizer.json``. The Hub is asked
    each time for a branch, a tag or no revision (``main``), and only the first time for a full commit.

    Args:
        given: a tokenizer.json, a folder or URI that contains one, or ``owner/name`` with or without ``@revision``,
            with or without ``hf://`` before it.
        root: URI of the project folder; empty = the Hub is not asked.

    Raises:
        UsageError: ``given`` is empty, or no backend serves its scheme.
        InputError: there is no tokenizer; a pairmill folder is unfinished or damaged; or the Hub has no such model,
            revision or file, or denies access.
        StorageError: the Hub does not answer, or the file cannot be written.
    """
    address = parse(given, "tokenizer", ("model", "git"))
    if address is not None:
        if address.kind == "git" or address.path:
            refuse(given, "tokenizer", expected="a tokenizer.json, a folder, or hf://owner/name@revision")
        owner, name = address.name.split("/")
        return _of_hub(owner, name, address.revision, root)
    uri = storage.normalise(given, "tokenizer")
    store = storage.store_for(uri)
    if store.exists(uri):
        manifests.refuse_unfinished(storage.parent_of(uri))
        return uri
    manifests.read_intact(uri)
    inside = storage.join(uri, NAME)
    if store.exists(inside):
        return inside
    named = _ID.fullmatch(given)
    if named is None or not root or store.list(uri):
        raise InputError(
            f"no tokenizer: neither a file nor a folder with {NAME}",
            where=f"tokenizer={uri}",
            hint="check the path; a model of the Hub is written tokenizer=hf://owner/name",
        )
    owner, name, revision = named.groups()
    try:
        return _of_hub(owner, name, revision or "main", root)
    except InputError as error:
        raise InputError(
            f"{uri} does not exist, and as a model of the Hub: {error.what}",
            where=f"tokenizer={given}",
            got=error.got,
            expected=error.expected,
            hint=error.hint,
        ) from error


def read(uri: str) -> bytes:
    """Return the bytes of a tokenizer.json.

    Raises:
        Changed: it is in a finished folder, and is not what the manifest says.
    """
    folder = storage.parent_of(uri)
    if storage.is_top(folder):
        return storage.store_for(uri).read(uri)
    return manifests.read_file(folder, manifests.read(folder), storage.name_of(uri))


def ids(tokenizer: bytes, where: str) -> int:
    """Return one more than the largest id of a tokenizer.json.

    Raises:
        InputError: it is not one; ``where`` is named.
    """
    try:
        raw = json.loads(tokenizer)
        vocab = raw["model"]["vocab"]
        numbers = vocab.values() if isinstance(vocab, Mapping) else range(len(vocab))
        added = [item["id"] for item in raw.get("added_tokens") or []]
        return max(map(int, [-1, *numbers, *added])) + 1
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            "not a tokenizer.json", where=where, got=str(error), expected="a file of tokenizers"
        ) from error


def _of_hub(owner: str, name: str, revision: str, root: str) -> str:
    from pairmill.net import hub  # which no file on a disk needs, and most tokenizers are one

    repository = hub.Repository(f"{owner}/{name}", "model", "give an existing commit, branch or tag after @")
    commit = revision
    if not _COMMIT.fullmatch(revision):
        commit = hub.commit_of(repository, revision)
        event(
            f"tokenizer: {revision} of {repository.name} is commit {commit}; "
            f"to keep it, set tokenizer={repository.name}@{commit}",
            commit=commit,
        )
    uri = storage.join(root, "tokenizer", "hub", f"{owner}--{name}", commit, NAME)
    store = storage.store_for(uri)
    if not store.exists(uri):
        files = hub.files(repository, commit)
        if NAME not in files:
            raise InputError(
                f"the model has no file {NAME}",
                got=", ".join(sorted(files)[:8]) or "no file",
                hint="create it with save_pretrained() of a fast tokenizer of transformers, and give that file",
            )
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, NAME)
            hub.download(repository, commit, files[NAME], local, Path(folder, "version"))
            store.write(uri, local.read_bytes())
    return uri
