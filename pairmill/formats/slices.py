"""Large files in slices, so that one huge file keeps every core busy.

A Parquet file is cut between row groups, an Arrow file between batches, a file of lines between lines. What is
compressed as a whole, or is one JSON array, is read from its beginning: one slice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeVar

from pairmill import storage
from pairmill.digest import Digest
from pairmill.engine.content import pinned
from pairmill.formats import arrow_ipc
from pairmill.formats.file_slice import ARROW, LINES
from pairmill.formats.file_slice import FileSlice as FileSlice
from pairmill.formats.parquet_reader import open_parquet

_BLOCK = 1 << 20
# A line of white space, of ASCII or (what begins with C2, E1, E2, E3) beyond it.
_EMPTY_LINE = re.compile(
    rb"\n(?:[ \t\v\f\x1c-\x1f]|\xc2[\x85\xa0]|\xe1\x9a\x80"
    rb"|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*\n"
)
_LONGEST_EMPTY_LINE = 64


@dataclass(frozen=True)
class Slicing:
    """How files are cut.

    Args:
        size: bytes of a slice or a little more; of Parquet before compression.
        open_from: bytes of a file; a smaller one is one slice, without a look at it.
        cut_from: bytes of a Parquet file before compression; a smaller one is one slice.
    """

    size: int
    open_from: int
    cut_from: int = 0

    def cut(self, file: FileSlice, lines_per_record: int = 0) -> list[FileSlice]:
        """Return the slices of a file, in order.

        Args:
            file: all of it, with its size.
            lines_per_record: of a file of lines; 0 = such a file is not cut.

        Raises:
            InputError: not a Parquet file under that name; or, as Changed, other bytes than ``content`` says.
        """
        if file.size >= self.open_from:
            suffix = PurePosixPath(file.path).suffix
            if suffix == ".parquet":
                return self._row_groups(file)
            if suffix in ARROW:
                return self._batches(file)
            if suffix in LINES and lines_per_record:
                return self._lines(file, lines_per_record)
        return [file]

    def _row_groups(self, file: FileSlice) -> list[FileSlice]:
        result: list[FileSlice] = []
        with open_parquet(file.uri, file.content) as parquet:
            metadata = parquet.metadata
            start = first = count = size = 0
            for group in range(metadata.num_row_groups):
                meta = metadata.row_group(group)
                count += meta.num_rows
                # A dictionary can make of a few bytes many: what is decoded is what takes time.
                size += meta.total_byte_size
                if size >= self.size or group == metadata.num_row_groups - 1:
                    result.append(replace(file, start=start, stop=group + 1, first=first, size=size))
                    start, first, count, size = group + 1, first + count, 0, 0
        return result if result and sum(item.size for item in result) >= self.cut_from else [file]

    def _batches(self, file: FileSlice) -> list[FileSlice]:
        """Cut between batches after every ``size`` bytes, digesting the slices and, as for lines, the file.

        A file with a dictionary among its batches is one slice.
        """
        result: list[FileSlice] = []
        stamped = file.content
        if not stamped.stamp:
            stamped = replace(stamped, stamp=storage.store_for(file.uri).stamp(file.uri))
        total, part = Digest(like=file.content.digest), Digest()
        first = rows = 0
        with pinned(file.uri, stamped) as opened:
            head = arrow_ipc.head_of(file.uri, opened, file.longest)
            opened.seek(0)
            start = place = head.stop
            before = opened.read(head.stop)
            total.update(before)
            for message in arrow_ipc.messages(file.uri, opened, file.longest):
                if message.is_dictionary:
                    return [file]
                if place - start >= self.size:
                    cut = replace(file, start=start, stop=place, first=first, size=place - start, content=stamped)
                    result.append(replace(cut, digest=part.text()))
                    start, first, part = place, rows, Digest()
                part.update(message.data)
                total.update(message.data)
                place, rows = place + len(message.data), rows + message.rows
            if file.content.promised:
                opened.seek(place)
                while block := opened.read(_BLOCK):
                    total.update(block)
        if file.content.promised:
            file.content.require(file.uri, total.text())
        if not result:
            return [file]
        cut = replace(file, start=start, stop=place, first=first, size=place - start, content=stamped)
        return [*result, replace(cut, digest=part.text())]

    def _lines(self, file: FileSlice, step: int) -> list[FileSlice]:
        """Cut between records after every ``size`` bytes; the file is read once, for the numbers of its lines.

        On the way each slice is digested, and the whole file too if only a manifest has said so far what it is.

        A quote or a carriage return can make a line end that is none, or hide one, and an empty line can put the lines
        of a record out of step: such a CSV or text file is one slice.
        """
        result: list[FileSlice] = []
        plain = PurePosixPath(file.path).suffix != ".jsonl"
        start = first = line = place = 0
        tail = b"\n"
        stamped = file.content
        if not stamped.stamp:
            stamped = replace(stamped, stamp=storage.store_for(file.uri).stamp(file.uri))
        total, part = Digest(like=file.content.digest), Digest()

        def up_to(stop: int) -> FileSlice:
            return replace(
                file, start=start, stop=stop, first=first, size=stop - start, content=stamped, digest=part.text()
            )

        with pinned(file.uri, stamped) as opened:
            while block := opened.read(_BLOCK):
                if plain and (b'"' in block or b"\r" in block):
                    return [file]
                if step > 1 and _EMPTY_LINE.search(tail + block):
                    return [file]
                tail = (tail + block)[-_LONGEST_EMPTY_LINE:]
                if file.content.promised:
                    total.update(block)
                seen = taken = 0
                while place + len(block) - start >= self.size:
                    end = block.find(b"\n", seen) + 1
                    if not end:
                        break
                    line += 1
                    seen = end
                    if line % step == 0:
                        part.update(memoryview(block)[taken:end])
                        result.append(up_to(place + end))
                        start, first, taken, part = place + end, line, end, Digest()
                part.update(memoryview(block)[taken:])
                line += block.count(b"\n", seen)
                place += len(block)
        if file.content.promised:
            file.content.require(file.uri, total.text())
        if start < place:
            result.append(up_to(place))
        return result


T = TypeVar("T")


def grouped(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int, most: int) -> Iterator[list[T]]:
    """Consecutive items, as many together as make ``most_bytes`` or ``most``; one alone may be larger."""
    group: list[T] = []
    size = 0
    for item in items:
        if group and (size + size_of(item) > most_bytes or len(group) >= most):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group
