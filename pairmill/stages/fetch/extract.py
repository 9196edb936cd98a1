"""The beginning of a raw file, in the format that the file has: the first records, and nothing else is read."""

import bz2
import csv
import gzip
import io
import json
import lzma
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine.content import Borrowed, Content, pinned
from pairmill.errors import InputError
from pairmill.formats import compressed, jsonstream
from pairmill.formats.limits import BATCH_BYTES, RECORD_BYTES
from pairmill.formats.slices import FileSlice
from pairmill.log import event
from pairmill.net import drive, http, hub
from pairmill.sources.files.card import COMPRESSED, suffix_of
from pairmill.sources.files.dialect import UTF8, is_ascii
from pairmill.sources.files.recode import Recoded
from pairmill.sources.source import Source

_BUFFER = 1 << 16
# Arrow reads a column's pages through a buffer of this size, so a small page costs that much.
_PAGE_BUFFER = 1 << 18
_BATCH_ROWS = 1024


class _Whole(Exception):
    """The file cannot be cut between records."""


@dataclass(frozen=True)
class Place:
    """A file that can be read in parts, and where it is.

    Args:
        path: of the published file, below its source.
        source: name of its source, for messages.
        repo: of a file of the Hub, its data set; with ``commit`` and ``file``.
        url: of a file over https; with ``version``.
        uri: of a file in storage; with ``stamp``.
        content: of a file in storage, its digest if that is known without reading it; else the stamp.
    """

    path: str
    source: str
    repo: hub.Repository | None = None
    commit: str = ""
    file: hub.RemoteFile | None = None
    url: str = ""
    version: str = ""
    uri: str = ""
    stamp: str = ""
    content: str = ""

    def identify(self) -> object:
        """Return what names the bytes: the Hub's digests, the version of an address, or the content."""
        return [self.path, self.file, self.url, self.version, self.content]

    @property
    def where(self) -> str:
        """The file, for messages."""
        return self.url or self.uri or f"{self.repo and self.repo.name} {self.path}"

    @property
    def hint(self) -> str:
        """What to do if the file is another one now."""
        return f"update={self.source} takes what is published now; raw= what you have"

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Yield the file, seekable. Of a remote one only what is read is asked for.

        Raises:
            NoRanges: while it is read: the server sends files as a whole only.
        """
        if self.uri:
            with pinned(self.uri, Content(stamp=self.stamp)) as file:
                yield file
            return
        raw: http.Ranged
        if self.repo is not None and self.file is not None:
            raw = hub.opened(self.repo, self.commit, self.file)
        else:
            address = drive.address_of(self.url)
            raw = http.Ranged(address.url, expected=self.version, headers=address.headers, hint=self.hint)
        with raw, io.BufferedReader(raw, _BUFFER) as buffered:
            yield buffered

    def fetched(self, folder: Path) -> Path:
        """Download the whole file to a folder of this machine, where a download goes on that was interrupted."""
        local, note = folder / "whole", folder / "version"
        if self.repo is not None and self.file is not None:
            hub.download(self.repo, self.commit, self.file, local, note)
        else:
            expected = http.UNTOLD if self.version.startswith(http.UNTOLD) else self.version
            drive.download(self.url, local, note, expected=expected, hint=self.hint)
        return local


def extract(place: Place, limit: int, target: Path, scratch: Path, source: Source) -> int:
    """Write the first records of a file to ``target``, in the file's own format; return their number.

    A file that cannot be cut between records is copied as it is, and its records are counted up to ``limit``.

    Args:
        place: the file.
        limit: how many records are wanted, at least 1.
        target: local file to make.
        scratch: local folder of this shard, for a file that has to be downloaded as a whole.
        source: reads the file.

    Raises:
        InputError: the file is damaged, or no longer what was locked.
        StorageError: it cannot be read.
    """
    kind = suffix_of(place.path)
    cut = {".parquet": _parquet, ".jsonl": _lines, ".csv": _csv, ".tsv": _csv, ".json": _json}.get(kind)
    if kind == ".txt" and source.lines_per_record > 1:
        cut = _lines
    if source.whole_files or (kind != ".parquet" and not is_ascii(source.dialect.encoding_in(place.path))):
        cut = None
    if source.dialect.is_lenient and kind in (".jsonl", ".json"):
        cut = None
    with suppress(_Whole):
        try:
            if cut is not None:
                with place.opened() as file:
                    return cut(place, file, limit, target, source)
        except http.NoRanges:
            event(f"fetch: {place.where}: the server sends no parts of files; downloading all of it")
            assert cut is not None
            with place.fetched(scratch).open("rb") as file:
                return cut(place, file, limit, target, source)
    if not source.whole_files:
        event(f"fetch: {place.where} is not cut between records; the extract has all of it")
    with place.opened() if place.uri else place.fetched(scratch).open("rb") as file, target.open("wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    piece = FileSlice(place.path, str(target), size=target.stat().st_size)
    return sum(1 for _ in islice(source.read(piece, "pairmill"), limit))


def _parquet(place: Place, file: BinaryIO, limit: int, target: Path, _: Source) -> int:

    written = 0
    try:
        parquet = pq.ParquetFile(file, buffer_size=_PAGE_BUFFER, pre_buffer=False)
        with pq.ParquetWriter(target, parquet.schema_arrow) as writer:
            for group in range(parquet.metadata.num_row_groups):
                meta = parquet.metadata.row_group(group)
                left = limit - written
                if not left:
                    break
                per_row = max(1, meta.total_byte_size // max(1, meta.num_rows))
                size = max(1, min(left, _BATCH_ROWS, BATCH_BYTES // per_row))
                batches = parquet.iter_batches(size, row_groups=[group], use_threads=False)
                for table in tables(batches, left):
                    writer.write_table(table)
                    written += len(table)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            "not a readable Parquet file", where=place.where, got=str(error).splitlines()[0], hint=place.hint
        ) from error
    return written


def tables(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield the first ``most`` rows of some batches, in tables large enough to be row groups."""

    held: list[Any] = []
    while most > 0 and (batch := next(batches, None)) is not None:
        held.append(batch.slice(0, most))
        most -= len(held[-1])
        if sum(item.nbytes for item in held) >= BATCH_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _lines(place: Place, file: BinaryIO, limit: int, target: Path, source: Source) -> int:
    """Lines as they are; those of white space alone do not count."""
    count, lines_per_record = 0, max(1, source.lines_per_record)
    with _texts(place, file, target) as (lines, out):
        while count < limit * lines_per_record and (line := _line(lines)):
            out.write(line)
            count += bool(line.strip())
    return -(-count // lines_per_record)


def _csv(place: Place, file: BinaryIO, limit: int, target: Path, source: Source) -> int:
    """Yield the header, if there is one, and records; a quoted field may have line ends."""
    csv.field_size_limit(RECORD_BYTES)
    dialect = source.dialect
    if not dialect.quote.isascii():
        raise _Whole
    between = dialect.between(suffix_of(place.path))
    count = 0 if dialect.header else -1
    with _texts(place, file, target) as (lines, out):
        read: list[bytes] = []

        def texts() -> Iterator[str]:
            while line := _line(lines):
                read.append(line)
                yield line.decode("latin-1")  # what the grammar knows is ASCII

        quoting: Any = csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE
        reader = csv.reader(texts(), strict=True, delimiter=between, quoting=quoting, quotechar=dialect.quote or None)
        try:
            while count < limit:
                fields = next(reader, None)
                if fields is None:
                    break
                count += bool(fields)
                out.writelines(read)
                read.clear()
        except csv.Error as error:
            raise _Whole from error
    return max(count, 0)


def _json(place: Place, file: BinaryIO, limit: int, target: Path, source: Source) -> int:
    """Return the elements of an array, or of the list within an object; of JSON Lines under that name the lines."""
    suffix = PurePosixPath(place.path).suffix
    packed = suffix in COMPRESSED
    records, encoding = source.dialect.records, source.dialect.encoding_in(place.path)

    @contextmanager
    def opened() -> Iterator[Any]:
        file.seek(0)
        kept: Any = Borrowed(file)
        with compressed.damage(place.where), ExitStack() as stack:
            content: Any = stack.enter_context(compressed.decompressed(kept, suffix)) if packed else kept
            if encoding != UTF8:
                content = io.BufferedReader(Recoded(content, FileSlice(place.path, place.where), encoding), _BUFFER)
            yield content

    with opened() as content:
        head = content.read(_BUFFER).lstrip()[:1]
    if records is None and head != b"[":
        file.seek(0)
        if not packed:
            _require_lines(file)
        return _lines(place, file, limit, target, source)
    before, after = "[", "\n]\n"
    keys = records.keys if records else ()
    for key in reversed(keys):
        before, after = f"{{{json.dumps(key)}: {before}", after.rstrip() + "}\n"
    by_name = records is not None and records.values
    if by_name:
        before, after = before[:-1] + "{", after.replace("]", "}", 1)
    count = 0
    with opened() as content, _written(suffix, target) as out:
        values: Any = (
            jsonstream.within(place.where, keys, values=by_name, file=content)
            if records
            else jsonstream.array(place.where, file=content)
        )
        with closing(values) as elements:
            out.write(before.encode())
            try:
                for count, element in enumerate(islice(elements, limit), 1):
                    name = f'"{count}": ' if by_name else ""
                    out.write(f"{',' * (count > 1)}\n{name}{json.dumps(element)}".encode())
            except jsonstream.NotThere as error:
                raise _Whole from error  # who reads it says what helps
            out.write(after.encode())
    return count


@contextmanager
def _written(suffix: str, target: Path) -> Iterator[Any]:
    """Yield a file to write with the compression that its suffix says."""
    with target.open("wb") as out:
        if suffix in COMPRESSED:
            with _packed(suffix, out) as packer:
                yield packer
        else:
            yield out


def _require_lines(file: BinaryIO) -> None:
    """Raise _Whole unless the first line is a JSON value: an object may be the whole file."""
    line = file.readline(RECORD_BYTES)
    while line.isspace():
        line = file.readline(RECORD_BYTES)
    file.seek(0)
    try:
        json.loads(line or b"0")
    except (ValueError, RecursionError) as error:
        raise _Whole from error


def _line(lines: IO[bytes]) -> bytes:
    line = lines.readline(RECORD_BYTES + 1)
    if len(line) > RECORD_BYTES:
        raise _Whole
    return line


@contextmanager
def _texts(place: Place, file: BinaryIO, target: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield a file of lines to read, and one to write with the same compression."""
    suffix = PurePosixPath(place.path).suffix
    with ExitStack() as stack:
        stack.enter_context(compressed.damage(place.where))
        out: IO[bytes] = stack.enter_context(target.open("wb"))
        if suffix not in COMPRESSED:
            yield file, out
            return
        with _packed(suffix, out) as packer:
            kept: Any = Borrowed(file)
            content = stack.enter_context(compressed.decompressed(kept, suffix))
            yield content, packer


def _packed(suffix: str, out: IO[bytes]) -> Any:

    kinds: dict[str, Callable[[], Any]] = {
        ".gz": lambda: gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0),
        ".bz2": lambda: bz2.BZ2File(out, "wb"),
        ".xz": lambda: lzma.LZMAFile(out, "wb"),  # noqa: SIM115
        ".zst": lambda: pa.CompressedOutputStream(pa.PythonFile(out, "w"), "zstd"),
    }
    return kinds[suffix]()
