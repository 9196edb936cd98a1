"""How objects are named.

A plain path and a ``file://`` URI name a file. ``gs://bucket/key``, ``s3://bucket/key`` and ``minio://bucket/key``
name an object by its key as it is: there a ``%`` is a character, as it is for gsutil and the aws command line.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pairmill.errors import StorageError, UsageError

OBJECT_STORES = {"gs": "gcs.GcsStore", "s3": "s3.S3Store", "minio": "s3.S3Store"}
"""Schemes whose URIs are ``<scheme>://<bucket>/<key>``, and the module and class below this package for each."""


def scheme(uri: str) -> str:
    """``file`` for plain paths, else the part before ``://`` in lower case."""
    head, separator, _ = uri.partition("://")
    return head.lower() if separator else "file"


def _escaped(uri: str) -> bool:
    # In a plain path and in a key a '%' is a character; in file:// and https:// it starts an escape.
    return "://" in uri and scheme(uri) not in OBJECT_STORES


def local_path(uri: str) -> Path:
    """Return the path of a plain path or ``file://`` URI."""
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    if parts.scheme.lower() != "file" or parts.netloc not in {"", "localhost"}:
        raise UsageError("not a valid local URI", where=uri, expected="a path or file:///…")
    return Path(unquote(parts.path))


def local_text(uri: str) -> str:
    """Return the path of a plain path or ``file://`` URI as text; a ``Path`` takes longer than a look at the file."""
    return uri if "://" not in uri else str(local_path(uri))


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Bucket and key of a URI of an object store; the key of the bucket itself is empty.

    Raises:
        UsageError: there is no bucket, or a part of the path is empty, ``.`` or ``..``.
    """
    bucket, _, key = uri.partition("://")[2].partition("/")
    key = key.removesuffix("/")
    if not bucket or (key and any(part in {"", ".", ".."} for part in key.split("/"))):
        raise UsageError("not a valid URI of an object", where=uri, expected=f"{scheme(uri)}://<bucket>/<path>")
    return bucket, key


def join(uri: str, *parts: str) -> str:
    """``uri`` with relative parts below it.

    Raises:
        StorageError: a part is absolute or leads out of ``uri`` (names in data sets and archives are not trusted).
    """
    for part in parts:
        if part.startswith("/") or any(piece in {"", ".", ".."} for piece in part.split("/")) or "\0" in part:
            raise StorageError("unsafe path", where=uri, got=repr(part), expected="a relative path without '..'")
    safe = [quote(part) if _escaped(uri) else part for part in parts]
    return "/".join([uri.rstrip("/"), *safe])


def name_of(uri: str) -> str:
    """Return the last part of a URI, unescaped."""
    last = uri.rstrip("/").rsplit("/", 1)[-1]
    return unquote(last) if _escaped(uri) else last


def parent_of(uri: str) -> str:
    """Return the URI without its last part."""
    return uri.rstrip("/").rsplit("/", 1)[0]


def is_top(uri: str) -> bool:
    """Return whether the URI is the root of the file system, or a bucket."""
    if scheme(uri) == "file":
        path = local_path(uri)
        return path.parent == path
    return not uri.partition("://")[2].partition("/")[2]
