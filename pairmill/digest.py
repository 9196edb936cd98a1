"""Digests of data: BLAKE3 for what pairmill writes, sha256 for what older versions wrote and what others publish.

A digest is a text that says its algorithm: ``blake3:`` and 64 hexadecimal digits, or these digits alone, which are
sha256. Bytes are compared by digesting them again ``like`` the digest that is known
(docs/decisions/0062-digests-of-data.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pairmill._native import Blake3, blake3_files, blake3_joined
from pairmill.cpu import available_cores

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BLAKE3: Final = "blake3:"
SHA256: Final = "sha256"
"""As ``like``: the algorithm of digests that others publish."""


class Digest:
    """A digest of bytes in order, as they pass. The GIL is released meanwhile; threads may take turns.

    Args:
        data: the first bytes.
        like: a digest whose algorithm is used, or ``SHA256``; empty = BLAKE3.
    """

    def __init__(self, data: ReadableBuffer = b"", *, like: str = "") -> None:
        self._blake3 = Blake3() if is_blake3(like) else None
        self._sha256 = hashlib.sha256() if self._blake3 is None else None
        self.update(data)

    def update(self, data: ReadableBuffer) -> None:
        """Add the next bytes, of any contiguous buffer."""
        if self._blake3 is None:
            assert self._sha256 is not None
            self._sha256.update(data)
        elif (view := memoryview(data)).nbytes:
            # Programs that digest nothing start without numpy.
            from numpy import frombuffer

            self._blake3.update(frombuffer(view, "B"))

    def text(self) -> str:
        """Return the digest of all bytes up to here, with its algorithm."""
        if self._blake3 is None:
            assert self._sha256 is not None
            return self._sha256.hexdigest()
        return BLAKE3 + self._blake3.hexdigest()


def is_blake3(digest: str) -> bool:
    """Return whether a digest is of BLAKE3, as those are that nothing is known of (empty)."""
    return not digest or digest.startswith(BLAKE3)


def split(digest: str) -> tuple[str, str]:
    """Return the algorithm's name and the hexadecimal digits of a digest."""
    digits = digest.removeprefix(BLAKE3)
    return (SHA256 if digits == digest else "blake3"), digits


def shown(digest: str) -> str:
    """Return the algorithm and the first digits of a digest, for messages."""
    name, digits = split(digest)
    return f"{name} {digits[:16]}…"


def digest_bytes(data: ReadableBuffer, like: str = "") -> str:
    """Return the digest of bytes, of the algorithm of ``like``."""
    return Digest(data, like=like).text()


def digest_file(path: Path | str, threads: int = 1, *, like: str = "") -> str:
    """Return the digest of a file; several threads read a long one.

    Raises:
        OSError: it cannot be read.
    """
    if is_blake3(like):
        return digest_files([path], threads)[0]
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_joined(path: Path | str, known: Sequence[tuple[int, bytes]], threads: int) -> str:
    """Return the BLAKE3 of a file of which :func:`pairmill._native.copy_digested` has digested some pieces.

    Raises:
        OSError: it cannot be read.
    """
    return BLAKE3 + blake3_joined(os.fspath(path), known, threads)


def digest_files(paths: Sequence[Path | str], threads: int | None = None) -> list[str]:
    """Return the BLAKE3 of files, read by pieces in threads (None: as many as there are cores).

    The digest of a file that became shorter while it was read is empty. Ctrl-C ends it.

    Raises:
        OSError: a file cannot be read.
    """
    digests = blake3_files([os.fspath(path) for path in paths], threads or available_cores())
    return [digits and BLAKE3 + digits for digits in digests]
