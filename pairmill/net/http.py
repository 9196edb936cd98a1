"""Downloads over https: resumed after a cut, retried for a bounded time, checked against the server's promises.

Also the commit of a branch on a git forge, from the first reply of git's protocol over http.
Source: git-scm.com/docs/http-protocol, git-scm.com/docs/protocol-common (pkt-line).
"""

from __future__ import annotations

import functools
import io
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pairmill.errors import InputError
from pairmill.log import event
from pairmill.retry import TRANSIENT, Again, asked_pause, retried

if TYPE_CHECKING:
    import ssl

    import httpx
    from _typeshed import WriteableBuffer

    Refuse = Callable[[httpx.Response], None]

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds without a byte after which a request has failed."""
_SAY_SECONDS = 30.0
UNTOLD = "untold"
"""The version of a file if the server gives none: only the bytes tell whether it has changed."""
_MOVED = "check whether it was moved, or pass the files that you have as raw="
# Bytes that a reader of ranges asks for first, and at most at once, when it reads on from where it was.
_AHEAD, _MAX_AHEAD = 64 << 10, 4 << 20


class NoRanges(Exception):
    """The server sends files only as a whole."""


def request(url: str, work: Callable[[], T], got: Callable[[], int] = lambda: 0) -> T:
    """Retry as :func:`pairmill.retry.retried` does, for httpx. Raises InputError if the address is not valid."""
    return retried(url, lambda: tried(url, work), got)


def tried(url: str, work: Callable[[], T]) -> T:
    """Return one try of it.

    Raises:
        Again: the connection broke, or the answer is not encoded as it says.
        InputError: the address is not valid.
    """
    httpx = _library()
    try:
        return work()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
        raise InputError("not a valid address", where=url, got=str(error)) from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        raise Again(str(error) or type(error).__name__) from error


def version(url: str) -> str:
    """Return the server's name of the present version of ``url``; :data:`UNTOLD` if it gives none.

    Raises:
        InputError: it does not exist, or may not be read.
        StorageError: no answer.
    """

    def ask() -> str:
        with client() as asking:
            return version_of(checked(asking.head(url), url))

    return request(url, ask)


def download(
    url: str,
    target: Path,
    note: Path,
    *,
    size: int | None = None,
    expected: str = "",
    headers: Mapping[str, str] | None = None,
    refuse: Refuse | None = None,
    require: Refuse | None = None,
    hint: str = _MOVED,
) -> None:
    """Download ``url`` to ``target``, or continue a download if its bytes are of the same version.

    Args:
        target: local file that grows. Only this process writes it.
        note: local file with the version of ``target``.
        size: bytes, for a file that never changes and so needs no version.
        expected: the wanted version, see :func:`version`; empty = any.
        headers: to send. Credentials in them are not sent to another host after a redirect.
        refuse: raises a more specific error for an answer of status 400 or more.
        require: raises an error for any other answer that is not the file.
        hint: next step if the file does not exist, or has another version.

    Raises:
        InputError: the file does not exist, has another version, or may not be read.
        StorageError: no complete answer.
    """
    target.parent.mkdir(parents=True, exist_ok=True)

    def have() -> int:
        return target.stat().st_size if target.exists() else 0

    def go_on() -> None:
        start = have()
        if start and start == size:
            return
        noted = note.read_text() if note.exists() else ""
        sent = dict(headers or {})
        if start and (size is not None or _strong(noted)):
            sent["Range"] = f"bytes={start}-"
            if size is None:
                sent["If-Range"] = noted
        with client() as asking, asking.stream("GET", url, headers=sent) as response:
            if response.status_code == 416 and _total(response) == start:
                return  # it was complete
            if response.status_code == 416 or (response.status_code == 206 and _first(response) != start):
                target.unlink(missing_ok=True)
                raise Again("the server does not continue the download")
            checked(response, url, refuse, hint)
            if require is not None:
                require(response)
            now = version_of(response)
            if expected and now != expected:
                raise InputError("the published version has changed", where=url, got=now, expected=expected, hint=hint)
            if response.status_code != 206:
                # Not truncated: the file may be a hard link to a result of another run.
                target.unlink(missing_ok=True)
                note.write_text(now)
            with target.open("ab") as file:
                reported_at = time.monotonic()
                total = "?" if _total(response) < 0 else f"{_total(response):,}"
                for data in response.iter_raw():
                    file.write(data)
                    file.flush()
                    if time.monotonic() - reported_at > _SAY_SECONDS:
                        reported_at = time.monotonic()
                        event(f"{url}: {have():,} of {total} bytes")
                os.fsync(file.fileno())
            if have() < _total(response):
                raise Again(f"cut after {have()} of {_total(response)} bytes")

    request(url, go_on, have)


class Ranged(io.RawIOBase):
    """A file over https as a seekable reader, which asks for no more than what is read and a little beyond it.

    What is read in order is asked for in ranges of twice the size each time, up to 4 MiB. Any other place is asked for
    alone.

    Args:
        size: its bytes, if they are known.
        expected: the wanted version, see :func:`version`; empty = the one of the first answer.
        headers: to send. Credentials in them are not sent to another host after a redirect.
        refuse: raises a more specific error for an answer of status 400 or more.
        hint: next step if the file does not exist, or has another version.

    Raises:
        NoRanges: while it is read: the server does not send parts.
        InputError: while it is read: as :func:`download`; the file is not of ``size`` bytes.
        StorageError: while it is read: no complete answer.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int | None = None,
        expected: str = "",
        headers: Mapping[str, str] | None = None,
        refuse: Refuse | None = None,
        hint: str = _MOVED,
    ) -> None:
        self._url, self._size, self._expected = url, size, expected
        self._headers, self._refuse, self._hint = dict(headers or {}), refuse, hint
        self._client = client()
        self._position, self._start, self._block = 0, 0, b""
        self._ahead = _AHEAD

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self.size() if whence == io.SEEK_END else 0)[whence]
        self._position = base + offset
        return self._position

    def size(self) -> int:
        """Return bytes of the file."""
        if self._size is None:
            self._fetch(0, _AHEAD)
            assert self._size is not None
        return self._size

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if not len(view) or self._position >= self.size():
            return 0
        at = self._position - self._start
        if not 0 <= at < len(self._block):
            on = self._position == self._start + len(self._block)
            self._ahead = min(2 * self._ahead, _MAX_AHEAD) if on and self._block else _AHEAD
            self._fetch(self._position, max(len(view), self._ahead if on else 0))
            at = 0
        part = self._block[at : at + len(view)]
        view[: len(part)] = part
        self._position += len(part)
        return len(part)

    def close(self) -> None:
        self._client.close()
        super().close()

    def _fetch(self, start: int, length: int) -> None:
        stop = start + length if self._size is None else min(start + length, self._size)
        self._start, self._block = start, request(self._url, lambda: self._part(start, stop))

    def _part(self, start: int, stop: int) -> bytes:
        sent = {**self._headers, "Range": f"bytes={start}-{stop - 1}"}
        with self._client.stream("GET", self._url, headers=sent) as response:
            if response.status_code == 416 and not start:  # of an empty file no part can be had
                self._size = 0
                return b""
            checked(response, self._url, self._refuse, self._hint)
            if response.status_code != 206:
                raise NoRanges
            now, total = version_of(response), _total(response)
            self._expected = self._expected or now
            if now != self._expected and not self._expected.startswith(UNTOLD):
                what = "the published version has changed"
                raise InputError(what, where=self._url, got=now, expected=self._expected, hint=self._hint)
            if self._size is None and total >= 0:
                self._size = total
            if total != self._size:
                got, expected = f"{total} bytes", f"{self._size} bytes"
                raise InputError("the file has another size", where=self._url, got=got, expected=expected)
            data = response.read()
        if _first(response) != start or len(data) != min(stop, total) - start:
            raise Again(f"sent {len(data)} bytes from {_first(response)}, and not {start} to {min(stop, total)}")
        return data


def commit_of(repository: str, revision: str) -> str:
    """Return the commit that a branch or tag of a public git repository names.

    Raises:
        InputError: the repository, branch or tag does not exist.
        StorageError: no answer.
    """
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    address = f"{repository}.git/info/refs?service=git-upload-pack"

    def refuse(response: httpx.Response) -> None:
        # A forge does not tell a private repository from an absent one.
        if response.status_code in {401, 403, 404}:
            status = f"status {response.status_code}"
            raise InputError("the repository does not exist, or is private", where=repository, got=status, hint=_MOVED)

    def ask() -> bytes:
        with client() as asking:
            return checked(asking.get(address), address, refuse).content

    names = {}
    for line in _packets(request(address, ask), repository):
        match = re.match(rb"([0-9a-f]{40}) ([^\0\n]+)", line)
        if match:
            names[match.group(2).decode("utf-8", "replace")] = match.group(1).decode()
    # The commit of an annotated tag is listed under the tag's name and ^{}.
    for name in (f"refs/tags/{revision}^{{}}", revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
        if name in names:
            return names[name]
    known = sorted(name.removeprefix("refs/heads/") for name in names if name.startswith("refs/heads/"))
    raise InputError(
        "the branch or tag does not exist",
        where=repository,
        got=revision,
        expected=", ".join(known[:8]) or "a repository",
    )


def _packets(data: bytes, where: str) -> Iterator[bytes]:
    place = 0
    try:
        while place < len(data):
            length = int(data[place : place + 4], 16)
            yield data[place + 4 : place + max(length, 4)]
            place += max(length, 4)
    except ValueError as error:
        raise InputError(
            "the answer is not that of a git server", where=where, got=repr(data[place : place + 20])
        ) from error


def client() -> httpx.Client:
    """Return what makes requests: it follows redirects, and asks for bytes as they are stored."""
    # Not compressed: a compressed answer has another length than the file, and cannot be continued.
    headers = {"Accept-Encoding": "identity"}
    made: httpx.Client = _library().Client(
        follow_redirects=True, timeout=TIMEOUT, headers=headers, verify=_certificates()
    )
    return made


@functools.cache
def _certificates() -> ssl.SSLContext:
    made: ssl.SSLContext = _library().create_ssl_context()  # reading them takes longer than a request for a small file
    return made


def _library() -> Any:
    import httpx  # a quarter of a second, which only requests need

    return httpx


def _total(response: httpx.Response) -> int:
    """Return bytes of the whole file; -1 if the server does not tell."""
    headers = response.headers
    if response.status_code in {206, 416}:
        match = re.search(r"/(\d+)$", headers.get("content-range", ""))
        return int(match.group(1)) if match else -1
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else -1


def _first(response: httpx.Response) -> int:
    match = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
    return int(match.group(1)) if match else -1


def version_of(response: httpx.Response) -> str:
    """Return the server's name of the version that an answer is of; :data:`UNTOLD` if it gives none."""
    headers = response.headers
    return headers.get("etag") or headers.get("last-modified") or UNTOLD


def _strong(version: str) -> bool:
    # A weak ETag does not promise equal bytes; a date does.
    return version.startswith('"') or version.endswith(" GMT")


def checked(response: httpx.Response, url: str, refuse: Refuse | None = None, hint: str = _MOVED) -> httpx.Response:
    """Return the answer, if it is a success.

    Raises:
        Again: it may be one later.
        InputError: it will not; or what ``refuse`` raises.
    """
    code = response.status_code
    if code in TRANSIENT:
        raise Again(f"status {code}", asked_pause(response.headers))
    if code >= 400:
        if refuse is not None:
            refuse(response)
        words = {401: "needs a login", 403: "access denied", 404: "does not exist", 410: "no longer exists"}
        raise InputError(words.get(code, "the server refused the request"), where=url, got=f"status {code}", hint=hint)
    return response
