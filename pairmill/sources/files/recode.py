"""Text files of other encodings as UTF-8, while they are read."""

import codecs
import io
from typing import Any, cast

from pairmill.formats.file_slice import FileSlice

_CHUNK = 1 << 18
# An unpaired surrogate, and the byte that it becomes, which UTF-8 does not have there.
_MARK, _BYTE = "\udc80", b"\x80"
_MARKING = "pairmill.mark"


def _marked(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeEncodeError):
        return _BYTE, error.end
    return _MARK, cast(UnicodeDecodeError, error).end


def is_utf8(record: Any, encoding: str) -> bool:
    """Return whether a record that was read in an encoding has texts beyond ASCII, and all of them are UTF-8 in their
    file."""
    result = False
    below = [record]
    while below:
        item = below.pop()
        if isinstance(item, list | tuple | dict):
            below += item.values() if isinstance(item, dict) else item
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode(encoding).decode("utf-8")
            except UnicodeError:
                return False
            result = True
    return result


class Recoded(io.RawIOBase):
    """The bytes of a piece in UTF-8, without a byte order mark. Where a byte is not a character, UTF-8 is broken too.

    Args:
        file: of the whole file, decompressed.
        piece: which bytes of it are read.
        encoding: of the file.
    """

    def __init__(self, file: Any, piece: FileSlice, encoding: str) -> None:
        codecs.register_error(_MARKING, _marked)
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARKING)
        self._left = None if piece.stop is None else piece.stop - piece.start
        self._ready = memoryview(b"")
        self._is_head = piece.start == 0
        self._ended = False
        if piece.start:
            self._file.seek(piece.start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            raw = self._file.read(_CHUNK if self._left is None else min(_CHUNK, self._left))
            if self._left is not None:
                self._left -= len(raw)
            self._ended = not raw
            text = self._decoder.decode(raw, final=self._ended)
            if self._is_head and text:
                text, self._is_head = text.removeprefix("\ufeff"), False
            self._ready = memoryview(text.encode("utf-8", _MARKING))
        count = min(len(self._ready), len(buffer))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
