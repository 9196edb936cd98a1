"""Members of tar and zip archives, by pattern. Names and kinds of members are not trusted."""

from __future__ import annotations

import re
import shutil
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from components.clean.card import matching
from pairmill import compressed
from pairmill.errors import InputError

NAMES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")

Create = Callable[[str], AbstractContextManager[Path]]

_CHUNK = 1 << 20
_WHAT = "is no whole tar or zip archive"
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
        for full, reader in members(file, where, lambda name: _wanted(name, where, patterns, strip)):
            name = _name(full, where, strip)
            if name in seen:
                raise InputError("holds two members of one name", where=where, got=repr(name))
            seen.add(name)
            with create(name) as path, path.open("wb") as target:
                shutil.copyfileobj(reader, target, _CHUNK)
    return len(seen)


Members = Iterator[tuple[str, IO[bytes]]]


def _tarred(file: BinaryIO, where: str, wanted: Callable[[str], bool]) -> Members:
    for member, reader in compressed.tar_members(file):
        if not member.isdir() and wanted(member.name):
            if reader is None:
                raise _no_file(where, member.name)
            yield member.name, reader


def _zipped(file: BinaryIO, where: str, wanted: Callable[[str], bool]) -> Members:
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
            hint="it is damaged or hostile: nothing of it is used",
        )
    return "/".join(parts[strip:])


def _no_file(where: str, name: str) -> InputError:
    return InputError("a member that is wanted is a link or a device", where=where, got=repr(name))


@contextmanager
def _damage(where: str) -> Iterator[None]:
    import zipfile

    with compressed.damage(where, _WHAT):
        try:
            yield
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
            # zipfile's, of places and methods that are none.
            raise compressed.damaged(where, _WHAT, error) from error
