"""Compressed files and tar archives, read as streams; what is cut or damaged is an error and never an early end."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Self

from pairmill.errors import InputError

_CHUNK = 1 << 20


@contextmanager
def decompressed(file: BinaryIO, suffix: str = "") -> Iterator[IO[bytes]]:
    """The content of a file: gzip, bzip2, xz and Zstandard, any other as it is.

    ``suffix`` (``.gz``, …) says what it is and must be; without it the first bytes tell.
    """
    import bz2
    import gzip
    import lzma

    kinds: dict[str, tuple[bytes, Callable[[BinaryIO], Any]]] = {
        ".gz": (b"\x1f\x8b", gzip.open),
        ".bz2": (b"BZh", bz2.open),
        ".xz": (b"\xfd7zXZ\0", lzma.open),
        ".zst": (b"\x28\xb5\x2f\xfd", _zstd),
    }
    if not suffix:
        head = file.read(6)
        file.seek(0)
        suffix = next((one for one, (magic, _) in kinds.items() if head.startswith(magic)), "")
    if suffix:
        with kinds[suffix][1](file) as content:
            yield content
    else:
        yield file


def _zstd(file: BinaryIO) -> Any:
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), "zstd"), _CHUNK)


class _Header(tarfile.TarInfo):
    """tarfile takes a header that is damaged, cut or missing for the end of the archive, and says nothing."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def tar_members(file: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Members of a tar archive, compressed or not, in its order, with a reader of those that are regular files.

    The archive is read to its end. Use within :func:`damage`, the readers too.
    """
    # tarfile can decompress by itself, but would not notice that the compressed data is cut or its checksum wrong.
    with decompressed(file) as stream:
        plain: Any = stream
        # Of a larger buffer tarfile would copy the rest at every header and every member.
        with tarfile.open(fileobj=plain, mode="r|", tarinfo=_Header, bufsize=1 << 14) as archive:
            while (member := archive.next()) is not None:
                yield member, archive.extractfile(member) if member.isreg() else None
                # tarfile remembers every member that it has seen.
                archive.members = []  # type: ignore[attr-defined]
        while stream.read(_CHUNK):
            pass


@contextmanager
def damage(where: str, what: str = "is damaged or cut") -> Iterator[None]:
    """Raise InputError saying that ``where`` is so for what readers of compressed files and archives raise."""
    import lzma

    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(where, what, error) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(where, what, error) from error  # gzip's, bz2's and Arrow's own complaints


def damaged(where: str, what: str, error: Exception) -> InputError:
    """What ``damage`` raises."""
    return InputError(what, where=where, got=str(error), hint="fetch it again")
