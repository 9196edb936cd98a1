"""Members of tar and zip archives, by pattern. Names and kinds of members are not trusted."""

from __future__ import annotations

import re
import shutil
import stat
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

from components.clean.card import matching
from pairmill.errors import InputError

NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

Create = Callable[[str], AbstractContextManager[Path]]

_CHUNK = 1 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def unpack(file: BinaryIO, where: str, patterns: Sequence[str], strip: int, create: Create) -> int:
    """Write the members that match; returns how many. The archive is read to its end, wanted or not.

    Args:
        file: a tar (plain, gzip, bzip2, xz) or zip archive; its first bytes tell which.
        where: for messages.
        patterns: see :func:`components.clean.card.matching`; tried on the name without the stripped folders.
        strip: leading folders to take off every name.
        create: gives the local file for a name.

    Raises:
        InputError: no archive, a cut or damaged one, one that would write outside its folder, or a member that is
            wanted cannot be had.
    """
    head = file.read(6)
    file.seek(0)
    seen: set[str] = set()
    members = _zipped if head.startswith(_ZIP) else _tarred
    with _damage(where):
        for full, reader in members(file, head, where, lambda name: _wanted(name, where, patterns, strip)):
            name = _name(full, where, strip)
            if name in seen:
                raise InputError("holds two members of one name", where=where, got=repr(name))
            seen.add(name)
            with create(name) as path, path.open("wb") as target:
                shutil.copyfileobj(reader, target, _CHUNK)
    return len(seen)


Members = Iterator[tuple[str, IO[bytes]]]


class _Header(tarfile.TarInfo):
    """tarfile takes a header that is damaged or cut for the end of the archive, and says nothing."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def _tarred(file: BinaryIO, head: bytes, where: str, wanted: Callable[[str], bool]) -> Members:
    import bz2
    import gzip
    import lzma

    # tarfile can decompress by itself, but would not notice that the compressed data is cut or its checksum wrong.
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
    opener = next((opener for mark, opener in openers.items() if head.startswith(mark)), None)
    stream = opener(file) if opener else file
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, bufsize=_CHUNK) as archive:
        while (member := archive.next()) is not None:
            if not member.isdir() and wanted(member.name):
                reader = archive.extractfile(member) if member.isreg() else None
                if reader is None:
                    raise _no_file(where, member.name)
                yield member.name, reader
            # tarfile remembers every member that it has seen.
            archive.members = []  # type: ignore[attr-defined]
    while stream.read(_CHUNK):
        pass


def _zipped(file: BinaryIO, _head: bytes, where: str, wanted: Callable[[str], bool]) -> Members:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            if stat.S_IFMT(member.external_attr >> 16) not in {0, stat.S_IFREG}:
                raise _no_file(where, member.filename)
            if member.flag_bits & 1:
                raise InputError("a member that is wanted is encrypted", where=where, got=repr(member.filename))
            with archive.open(member) as reader:
                yield member.filename, reader


def _wanted(full: str, where: str, patterns: Sequence[str], strip: int) -> bool:
    name = _name(full, where, strip)
    return bool(name) and bool(matching(patterns, [name]))


def _name(full: str, where: str, strip: int) -> str:
    """The member's path below the folder; empty if nothing is left of it."""
    parts = [part for part in full.split("/") if part not in {"", "."}]
    if full.startswith("/") or ".." in parts or "\\" in full or "\0" in full or re.match("[A-Za-z]:", full):
        raise InputError(
            "the archive would write outside its folder",
            where=where,
            got=repr(full),
            hint="it is damaged or hostile: nothing of it was kept",
        )
    return "/".join(parts[strip:])


def _no_file(where: str, name: str) -> InputError:
    return InputError("a member that is wanted is a link or a device", where=where, got=repr(name))


@contextmanager
def _damage(where: str) -> Iterator[None]:
    import lzma
    import zipfile

    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(where, error) from error
    except (ValueError, struct.error, NotImplementedError) as error:  # zipfile's, of places and methods that are none
        raise _damaged(where, error) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(where, error) from error  # gzip's and bz2's own complaints


def _damaged(where: str, error: Exception) -> InputError:
    return InputError("is no whole tar or zip archive", where=where, got=str(error), hint="fetch it again")
