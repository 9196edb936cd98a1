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
MEMORY = 128 << 20
"""Bytes that it may take to decompress: ``xz -9`` asks for half of it, and Zstandard has the same limit by itself."""
_HEADER_BYTES = 4 << 20


@contextmanager
def decompressed(file: BinaryIO, suffix: str = "") -> Iterator[IO[bytes]]:
    """The content of a file: gzip, bzip2, xz and Zstandard, any other as it is.

    However far it was compressed, a part of it is in memory at a time, and :data:`MEMORY` at most is used to get at it.

    ``suffix`` (``.gz``, …) says what it is and must be; without it the first bytes tell.
    """
    import gzip

    kinds: dict[str, tuple[bytes, Callable[[BinaryIO], Any]]] = {
        ".gz": (b"\x1f\x8b", gzip.open),
        ".bz2": (b"BZh", _bzip2),
        ".xz": (b"\xfd7zXZ\0", _xz),
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


def _bzip2(file: BinaryIO) -> Any:
    import bz2

    return io.BufferedReader(_Streams(file, bz2.BZ2Decompressor), _CHUNK)


def _xz(file: BinaryIO) -> Any:
    import lzma

    return io.BufferedReader(_Streams(file, lambda: lzma.LZMADecompressor(memlimit=MEMORY)), _CHUNK)


class _Streams(io.RawIOBase):
    """What compressed streams, one behind another, hold.

    The library's own files set no limit to the memory that a header asks for, and take a later stream that is damaged
    for the end.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        self._file, self._make, self._decompressor = file, make, make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            raw = b""
            if self._decompressor.eof:
                # An xz stream may be filled up with zeros.
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
                    raise EOFError("it ends within a compressed stream")
            data: bytes = self._decompressor.decompress(raw, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)


def _zstd(file: BinaryIO) -> Any:
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file), "zstd"), _CHUNK)


class _Header(tarfile.TarInfo):
    """tarfile takes a header that is damaged, cut or missing for the end of the archive, and says nothing.

    Names, links and maps of holes are headers of any length, which it would read into memory.
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
    """What tarfile reads of, no more than it may at a time."""

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
    """Members of a tar archive, compressed or not, in its order, with a reader of those that are regular files.

    A sparse member has none: it can be of any size without a byte in the archive. The archive is read to its end. Use
    within :func:`damage`, the readers too.
    """
    # tarfile can decompress by itself, but would not notice that the compressed data is cut or its checksum wrong.
    with decompressed(file) as stream:
        content: Any = _Content(stream)
        header = type("_HeaderOfOne", (_Header,), {"content": content})
        # Of a larger buffer tarfile would copy the rest at every header and every member.
        with tarfile.open(fileobj=content, mode="r|", tarinfo=header, bufsize=1 << 14) as archive:
            while (member := archive.next()) is not None:
                whole = member.isreg() and not member.issparse()
                yield member, archive.extractfile(member) if whole else None
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
    if "Memory usage limit" in str(error) or "too much memory" in str(error):  # liblzma's words and Zstandard's
        return InputError(
            "needs too much memory to be decompressed",
            where=where,
            got=str(error),
            expected=f"at most {MEMORY} bytes",
            hint="compress it again with a smaller window, as xz -9 and zstd -19 do",
        )
    return InputError(what, where=where, got=str(error), hint="fetch it again")
