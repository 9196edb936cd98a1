"""Compressed files and tar archives as streams. A cut or damaged file is an error, never an early end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Self

import pyarrow as pa

from pairmill.errors import InputError

_CHUNK = 1 << 20
MEMORY = 128 << 20
"""Memory limit of decompression in bytes: ``xz -9`` needs half of it, and Zstandard has the same limit itself."""
_HEADER_BYTES = 4 << 20


@contextmanager
def decompressed(file: BinaryIO, suffix: str = "") -> Iterator[IO[bytes]]:
    """Provide the content of a gzip, bzip2, xz or Zstandard file; any other file unchanged.

    Decompression takes at most :data:`MEMORY`, for any rate of compression. ``suffix`` (``.gz``, …) is the required
    format; without it the first bytes tell.
    """

    kinds: dict[str, tuple[bytes, Callable[[BinaryIO], Any]]] = {
        ".gz": (b"\x1f\x8b", gzip.open),
        ".bz2": (b"BZh", _bzip2),
        ".xz": (b"\xfd7zXZ\0", _xz),
        ".zst": (b"\x28\xb5\x2f\xfd", _zstd),
    }
    if not suffix:
        head = file.read(6)
        file.seek(0)
        suffix = next((item for item, (magic, _) in kinds.items() if head.startswith(magic)), "")
    if suffix:
        with kinds[suffix][1](file) as content:
            yield content
    else:
        yield file


def _bzip2(file: BinaryIO) -> Any:

    return io.BufferedReader(_Streams(file, bz2.BZ2Decompressor), _CHUNK)


def _xz(file: BinaryIO) -> Any:

    return io.BufferedReader(_Streams(file, lambda: lzma.LZMADecompressor(memlimit=MEMORY)), _CHUNK)


class _Streams(io.RawIOBase):
    """The content of concatenated compressed streams.

    The library's own file classes do not limit the memory that a header asks for, and take a damaged later stream for
    the end.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        self._file, self._make, self._decompressor = file, make, make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            raw = b""
            if self._decompressor.eof:
                # An xz stream may be padded with zeros.
                raw = self._decompressor.unused_data.lstrip(b"\0")
                while not raw:
                    block = self._file.read(_CHUNK)
                    if not block:
                        return 0
                    raw = block.lstrip(b"\0")
                self._decompressor = self._make()
            elif self._decompressor.needs_input:
                raw = self._file.read(_CHUNK)
                if not raw:
                    raise EOFError("ends within a compressed stream")
            data: bytes = self._decompressor.decompress(raw, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)


def _zstd(file: BinaryIO) -> Any:

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), "zstd"), _CHUNK)


class _Header(tarfile.TarInfo):
    """A header that raises where tarfile would silently take a damaged, cut or missing header for the end.

    It also limits headers of names, links and sparse maps, which tarfile reads into memory at any length.
    """

    content: _Content

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            with cls.content.at_most(_HEADER_BYTES):
                return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class _Content:
    """The stream that tarfile reads, with a limit of bytes for a header."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left: int | None = None

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise tarfile.ReadError(f"a header of more than {_HEADER_BYTES} bytes")
        return data

    @contextmanager
    def at_most(self, size: int) -> Iterator[None]:
        outermost, before = self._left is None, self._left
        if outermost:
            self._left = size
        try:
            yield
        finally:
            self._left = None if outermost else before


def tar_members(file: BinaryIO) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the members of a tar archive, compressed or not, with a reader for each regular file.

    A sparse member has no reader: it can have any size without a byte in the archive. The archive is read to its end.
    Use this, and the readers, within :func:`damage`.
    """
    # tarfile can decompress itself, but does not notice a cut or a wrong checksum.
    with decompressed(file) as stream:
        content: Any = _Content(stream)
        header = type("_HeaderOfOne", (_Header,), {"content": content})
        # tarfile copies the rest of its buffer at each header and member, so a larger buffer is slower.
        with tarfile.open(fileobj=content, mode="r|", tarinfo=header, bufsize=1 << 14) as archive:
            while (member := archive.next()) is not None:
                whole = member.isreg() and not member.issparse()
                yield member, archive.extractfile(member) if whole else None
                # tarfile keeps every member.
                archive.members = []  # type: ignore[attr-defined]
        while stream.read(_CHUNK):
            pass


@contextmanager
def damage(where: str, what: str = "is damaged or cut") -> Iterator[None]:
    """Turn errors of readers of compressed files and archives into an InputError."""

    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise damaged(where, what, error) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(where, what, error) from error  # raised by gzip, bz2 and Arrow themselves


def damaged(where: str, what: str, error: Exception) -> InputError:
    """Return the error that ``damage`` raises."""
    if "Memory usage limit" in str(error) or "too much memory" in str(error):  # messages of liblzma and Zstandard
        return InputError(
            "needs too much memory to decompress",
            where=where,
            got=str(error),
            expected=f"at most {MEMORY} bytes",
            hint="compress it again with a smaller window, as xz -9 and zstd -19 do",
        )
    return InputError(what, where=where, got=str(error), hint="fetch it again")
