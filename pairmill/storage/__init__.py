"""Objects addressed by URI. No other package knows ``file://``, ``gs://`` and ``s3://``.

A :class:`Store` is a flat space of immutable objects addressed by URI. Every backend passes
``tests/contract/test_storage.py``, which is the definition of its behaviour.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from urllib.parse import quote

from pairmill.errors import InputError, UsageError
from pairmill.storage.base import Entry, Span, Store
from pairmill.storage.local import LocalStore
from pairmill.storage.uris import (
    OBJECT_STORES,
    bucket_and_key,
    is_top,
    join,
    local_path,
    local_text,
    name_of,
    parent_of,
    scheme,
)

__all__ = [
    "OBJECT_STORES",
    "Entry",
    "LocalStore",
    "Span",
    "Store",
    "clear",
    "forget",
    "is_top",
    "join",
    "local_path",
    "local_text",
    "name_of",
    "normalise",
    "parent_of",
    "require",
    "scheme",
    "store_for",
]


@functools.cache
def _store(kind: str) -> Store:
    if kind == "file":
        return LocalStore()
    # Imported here: the clients of object stores take most of a second, and training nodes may not have them.
    module, name = OBJECT_STORES[kind].split(".")
    store: Store = getattr(importlib.import_module(f"{__name__}.{module}"), name)(kind)
    return store


def store_for(uri: str) -> Store:
    """Return the backend of a URI. Raises UsageError for a scheme that no backend serves."""
    kind = scheme(uri)
    if kind != "file" and kind not in OBJECT_STORES:
        raise UsageError(
            "no storage backend for this scheme",
            where=uri,
            got=f"{kind}://",
            expected=", ".join(["a path", "file://", *(f"{name}://" for name in OBJECT_STORES)]),
        )
    return _store(kind)


def forget() -> None:
    """Drop the stores made so far, because the environment has changed."""
    _store.cache_clear()


def normalise(uri: str, option: str) -> str:
    """Normalise a URI: plain paths become absolute, ``~`` is expanded, and a slash at the end is removed.

    Raises:
        UsageError: it is empty, or no backend serves its scheme. The message names ``option``.
    """
    if not uri:
        raise UsageError("is empty", where=option, expected="a path or URI")
    store_for(uri)
    if "://" not in uri:
        return os.path.abspath(os.path.expanduser(uri))
    if scheme(uri) == "file":
        return "file://" + quote(os.path.abspath(local_path(uri)))
    bucket, key = bucket_and_key(uri)
    return "/".join([f"{scheme(uri)}://{bucket}", *filter(None, [key])])


def clear(uri: str) -> None:
    """Delete all objects below a folder, and on a disk the folder."""
    store = store_for(uri)
    for entry in store.list(uri):
        store.delete(join(uri, *entry.path.split("/")))
    if scheme(uri) == "file":
        shutil.rmtree(local_path(uri), ignore_errors=True)


def require(uri: str, what: str, option: str = "") -> None:
    """Raise InputError unless ``uri``, which an option may have named, is an object or a non-empty prefix."""
    store = store_for(uri)
    if not store.exists(uri) and not store.list(uri):
        where = f"{option}={uri}" if option else uri
        raise InputError("is missing or empty", where=where, expected=what, hint="check the path")
