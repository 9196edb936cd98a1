"""Members of tar and zip archives, by pattern. Names and kinds of members are not trusted."""

import errno
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from pairmill.errors import InputError, StorageError
from pairmill.formats import compressed
from pairmill.sources.files.patterns import matching

NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

Create = Callable[[str], AbstractContextManager[Path]]

_CHUNK = 1 << 20
_SMALL_CHUNK = 1 << 12
_WHAT = "not a complete tar or zip archive"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def unpack(file: BinaryIO, where: str, patterns: Sequence[str], strip: int, create: Create) -> int:
    """Write the members that match; returns how many. The archive is read to its end, wanted or not.

    Args:
        file: a tar (plain, gzip, bzip2, xz) or zip archive; its first bytes tell which.
        where: for messages.
        patterns: see :func:`pairmill.sources.files.card.matching`; tried on the name without the stripped folders.
        strip: leading folders to take off every name.
        create: gives the local file for a name.

    Raises:
        InputError: no archive, a cut or damaged one, one that would write outside its folder, or a member that is
            wanted cannot be had.
        StorageError: a member does not fit.
    """
    head = file.read(6)
    file.seek(0)
    seen: set[str] = set()
    members = _zipped if head.startswith(_ZIP) else _tarred
    with _damage(where):
        for full, size, reader, chunk in members(file, where, lambda name: _wanted(name, where, patterns, strip)):
            name = _name(full, where, strip)
            if name in seen:
                raise InputError("two members have the same name", where=where, got=repr(name))
            seen.add(name)
            member = f"{where} member {full!r}"
            with _damage(where, _in(full)), create(name) as path, path.open("wb") as target:
                _require_room(member, size, path)
                shutil.copyfileobj(reader, target, chunk)
    return len(seen)


def _require_room(member: str, size: int, path: Path) -> None:
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise StorageError(
            "no space left for a member of the archive",
            where=member,
            got=f"{free} bytes free in {path.parent}",
            expected=f"{size} bytes",
            hint="free space or choose another place, then run the same command",
        )


Members = Iterator[tuple[str, int, IO[bytes], int]]
"""Name, bytes as the archive promises them (no more are read), a reader, and how many bytes to ask it for at once."""


def _tarred(file: BinaryIO, where: str, wanted: Callable[[str], bool]) -> Members:
    for member, reader in compressed.tar_members(file):
        if not member.isdir() and wanted(member.name):
            if reader is None:
                raise _no_file(where, member.name)
            yield member.name, member.size, reader, _CHUNK


def _zipped(file: BinaryIO, where: str, wanted: Callable[[str], bool]) -> Members:

    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.filename or member.is_dir() or not wanted(member.filename):
                continue
            if stat.S_IFMT(member.external_attr >> 16) not in {0, stat.S_IFREG}:
                raise _no_file(where, member.filename)
            if member.flag_bits & 1:
                raise InputError("a wanted member is encrypted", where=where, got=repr(member.filename))
            # With other methods zipfile reads that many compressed bytes and decompresses them all at once.
            chunk = _CHUNK if member.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} else _SMALL_CHUNK
            with _damage(where, _in(member.filename)), archive.open(member) as reader:
                yield member.filename, member.file_size, reader, chunk


def _wanted(full: str, where: str, patterns: Sequence[str], strip: int) -> bool:
    name = _name(full, where, strip)
    return bool(name) and bool(matching(patterns, [name]))


def _name(full: str, where: str, strip: int) -> str:
    """Return the member's path below the folder; empty if nothing is left of it."""
    parts = [part for part in full.split("/") if part not in {"", "."}]
    if full.startswith("/") or ".." in parts or "\\" in full or "\0" in full or re.match("[A-Za-z]:", full):
        raise InputError(
            "the archive would write outside its folder",
            where=where,
            got=repr(full),
            hint="the archive is damaged or hostile: nothing of it is used",
        )
    return "/".join(parts[strip:])


def _no_file(where: str, name: str) -> InputError:
    return InputError("a wanted member is a link, a device or a sparse file", where=where, got=repr(name))


def _in(member: str) -> str:
    return f"{_WHAT}, in the member {member!r}"


@contextmanager
def _damage(where: str, what: str = _WHAT) -> Iterator[None]:

    with compressed.damage(where, what):
        try:
            yield
        except (zipfile.BadZipFile, ValueError, struct.error, RuntimeError, LookupError, OverflowError) as error:
            # zipfile's, of places and methods that are none.
            raise compressed.damaged(where, what, error) from error
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # A place before the beginning of the file.
            raise compressed.damaged(where, what, error) from error
