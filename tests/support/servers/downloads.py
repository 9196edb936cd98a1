"""Real HTTP servers on loopback for tests of what downloads: a Hugging Face Hub, and plain files.

``Hub`` speaks the part of the Hub's API that huggingface_hub 1.33 and datasets 5.2 use for data sets and models;
``Files`` serves archives with Range and If-Range. Both can be told to fail, and write down every request:

    with Hub() as hub:
        commit = hub.add("org/name", {"data/train.parquet": content})
        hub.fail("/cdn/*/train.parquet", 429, retry_after=1, times=1)
        …  # a child with hub.environment(tmp_path), which huggingface_hub reads when it is imported
        assert [request.status for request in hub.seen("/cdn/*")] == [429, 200]
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

Framing = Literal["length", "chunked", "close"]
Kind = Literal["dataset", "model"]

_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
_PIECE = 1 << 16


@dataclass
class Request:
    """One request as it came and what became of it; ``status`` is 0 until it is answered."""

    server: str  # "hub", "cdn" or "files"
    method: str
    path: str  # without the query, percent-decoded
    query: str
    headers: dict[str, str]  # names in lower case
    at: float = field(default_factory=time.monotonic)
    status: int = 0
    sent: int = 0  # bytes of the body given to the socket

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    def matches(self, pattern: str) -> bool:
        """Whether a glob is the whole path, or the whole path with its query."""
        return fnmatchcase(self.path, pattern) or fnmatchcase(f"{self.path}?{self.query}", pattern)


@dataclass
class _Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    start: int = 0  # where in the file the body begins
    framing: Framing = "length"


class _Refusal(Exception):
    """An answer other than success, in the Hub's form."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        body = json.dumps({"error": message}).encode()
        named = {"X-Error-Code": code} if code else {}
        told = {"Content-Type": "application/json", "X-Error-Message": message.encode("ascii", "replace").decode()}
        self.reply = _Reply(status, {**told, **named, **(headers or {})}, body)


@dataclass
class _Fault:
    kind: str
    pattern: str
    method: str | None
    times: int | None
    skip: int
    amount: float = 0  # of bytes, of seconds or of bytes a second, as the kind has it
    after: int | None = None
    reset: bool = False
    reply: _Reply | None = None


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One port; its threads end with it, because it ends their connections."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, owner: "_Server", name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self.name = name
        self.port: int = self.server_address[1]
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name=f"{name}-{self.port}")
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            self.owner.errors.append(error)

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        # A client keeps its connection open for the next request: the thread that reads it would wait for ever.
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "pairmill-tests"
    disable_nagle_algorithm = True  # head and body are two writes: Nagle made each answer wait 40 ms
    server: _Listener

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        owner = self.server.owner
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.server.name, self.command, unquote(url.path), url.query, headers)
        owner.requests.append(request)
        try:
            body = self._body(headers)
            stall = owner._take("stall", request, lambda fault: fault.after is None)
            if stall and owner._closing.wait(stall.amount):
                self.close_connection = True
                return
            fail = owner._take("fail", request)
            self._send(request, fail.reply if fail and fail.reply else self._answer(url.path, request, body))
        except ConnectionError:  # the client has left, which it may
            self.close_connection = True

    do_HEAD = do_POST = do_PUT = do_GET

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        try:
            return self.server.owner._answer(path, request, body)
        except _Refusal as refusal:
            return refusal.reply
        except Exception as error:
            self.server.owner.errors.append(error)
            return _Reply(500, body=repr(error).encode())

    def _send(self, request: Request, reply: _Reply) -> None:
        owner = self.server.owner
        body = reply.body
        cut = stall = throttle = None
        if request.method == "GET" and reply.status in (200, 206):
            if truncate := owner._take("truncate", request, lambda fault: fault.amount < len(body)):
                body = body[: int(truncate.amount)]
            if corrupt := owner._take("corrupt", request, lambda fault: _corrupted(fault, reply, body) is not None):
                place = _corrupted(corrupt, reply, body) or 0
                body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
            cut = owner._take("cut", request, lambda fault: fault.amount < len(body))
            stall = owner._take("stall", request, lambda fault: fault.after is not None and fault.after < len(body))
            throttle = owner._take("throttle", request)
        request.status = reply.status
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.framing == "length":
            self.send_header("Content-Length", str(len(body)))
        elif reply.framing == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if request.method == "HEAD":
            return

        end = int(cut.amount) if cut else len(body)
        pause = stall.after if stall else None
        step = max(1, int(throttle.amount / 20)) if throttle else _PIECE
        position = 0
        while position < end:
            if position == pause and stall and owner._closing.wait(stall.amount):
                self.close_connection = True
                return
            stop = min(position + step, end, pause if pause is not None and position < pause else end)
            piece = body[position:stop]
            request.sent += len(piece)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if reply.framing == "chunked" else piece)
            if throttle and owner._closing.wait(len(piece) / throttle.amount):
                self.close_connection = True
                return
            position = stop
        if cut:
            self.close_connection = True
            if cut.reset:
                # An RST throws away what is still under way; shutdown() would send a FIN before it.
                time.sleep(0.05)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())
        elif reply.framing == "chunked":
            self.wfile.write(b"0\r\n\r\n")


def _corrupted(fault: _Fault, reply: _Reply, body: bytes) -> int | None:
    """Where in this body a fault flips its bit, if it does."""
    place = len(body) // 2 if fault.after is None else fault.after - reply.start
    return place if 0 <= place < len(body) else None


class _Server:
    """Listeners, the log of requests, and the faults.

    A fault holds for the requests whose path (or path with its query) a glob matches, percent-decoded: for the first
    ``times`` of them (None: for all), after ``skip`` others, and for one method only if one is given.
    """

    def __init__(self, *names: str) -> None:
        self.requests: list[Request] = []
        self.errors: list[Exception] = []
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listeners = [_Listener(self, name) for name in names]
        self.url = f"http://127.0.0.1:{self._listeners[0].port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if self.errors and error is None:
            raise self.errors[0]

    def close(self) -> None:
        """Stop listening and end every connection, stalled ones too."""
        self._closing.set()
        for listener in self._listeners:
            listener.stop()

    def seen(self, pattern: str, method: str | None = None) -> list[Request]:
        """The requests so far whose path a glob matches."""
        return [
            request for request in list(self.requests) if request.matches(pattern) and method in (None, request.method)
        ]

    def fail(
        self,
        pattern: str,
        status: int = 500,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        times: int | None = None,
        skip: int = 0,
        method: str | None = None,
    ) -> None:
        """Answer with this status; with a Location among the headers, a redirect."""
        told = {**({"Retry-After": str(retry_after)} if retry_after is not None else {}), **(headers or {})}
        self._faults.append(_Fault("fail", pattern, method, times, skip, reply=_Reply(status, told, body)))

    def cut(self, pattern: str, *, after: int, reset: bool = False, times: int | None = None, skip: int = 0) -> None:
        """Close the connection after so many bytes of a body that is longer; ``reset`` with an RST, not a FIN."""
        self._faults.append(_Fault("cut", pattern, "GET", times, skip, amount=after, reset=reset))

    def stall(
        self,
        pattern: str,
        seconds: float,
        *,
        after: int | None = None,
        times: int | None = None,
        skip: int = 0,
        method: str | None = None,
    ) -> None:
        """Wait before answering, or after so many bytes of the body."""
        self._faults.append(_Fault("stall", pattern, method, times, skip, amount=seconds, after=after))

    def corrupt(self, pattern: str, *, at: int | None = None, times: int | None = None, skip: int = 0) -> None:
        """Flip a bit of the file's byte at an offset, wherever a response holds it; by default of a body's middle."""
        self._faults.append(_Fault("corrupt", pattern, "GET", times, skip, after=at))

    def truncate(self, pattern: str, *, size: int, times: int | None = None, skip: int = 0) -> None:
        """Send only so many bytes of a longer body, with a Content-Length that agrees."""
        self._faults.append(_Fault("truncate", pattern, "GET", times, skip, amount=size))

    def throttle(self, pattern: str, bytes_per_second: float, *, times: int | None = None, skip: int = 0) -> None:
        """Send bodies no faster than this."""
        self._faults.append(_Fault("throttle", pattern, "GET", times, skip, amount=bytes_per_second))

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()

    def _take(self, kind: str, request: Request, fits: Callable[[_Fault], bool] = lambda _: True) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.kind != kind or fault.times == 0 or fault.method not in (None, request.method):
                    continue
                if not request.matches(fault.pattern) or not fits(fault):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        """The answer to a request; ``path`` is as it came, percent-encoded."""
        raise NotImplementedError


def _ranged(request: Request, content: bytes, headers: dict[str, str], framing: Framing = "length") -> _Reply:
    """A file or the part of it that is asked for."""
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.range or "")
    known = {headers.get("ETag"), headers.get("Last-Modified")}
    changed = "if-range" in request.headers and (
        request.headers["if-range"].startswith("W/") or request.headers["if-range"] not in known
    )
    if asked is None or not any(asked.groups()) or changed or request.method != "GET":
        return _Reply(200, headers, content, framing=framing)
    first, last = asked.groups()
    size = len(content)
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= stop:
        return _Reply(416, {"Content-Range": f"bytes */{size}"})
    return _Reply(
        206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}, content[start:stop], start, framing
    )


class Files(_Server):
    """Files as a plain web server has them."""

    def __init__(self) -> None:
        super().__init__("files")
        self._served: dict[str, tuple[bytes, dict[str, str], bool, Framing]] = {}
        self._added = 0

    def add(
        self,
        path: str,
        content: bytes,
        *,
        ranges: bool = True,
        framing: Framing = "length",
        etag: str | bool = True,
        modified: str | bool = True,
    ) -> str:
        """Serve a file, or another content in its place; its URL.

        ``framing`` other than "length" sends no Content-Length: in chunks, or up to the end of the connection.
        ``etag`` and ``modified`` are headers, made from the content and the number of additions, or left out.
        """
        self._added += 1
        tag = f'"{hashlib.md5(content).hexdigest()}"' if etag is True else etag
        date = format_datetime(_EPOCH + timedelta(minutes=self._added), usegmt=True) if modified is True else modified
        headers = {
            "Content-Type": "application/octet-stream",
            **({"ETag": tag} if tag else {}),
            **({"Last-Modified": date} if date else {}),
            **({"Accept-Ranges": "bytes"} if ranges else {}),
        }
        path = "/" + path.lstrip("/")
        self._served[path] = content, headers, ranges, framing
        return self.url + quote(path)

    def remove(self, path: str) -> None:
        """Serve a file no longer."""
        del self._served["/" + path.lstrip("/")]

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        if request.path not in self._served:
            return _Reply(404, {"Content-Type": "text/plain"}, b"Not Found")
        content, headers, ranges, framing = self._served[request.path]
        if not ranges:
            return _Reply(200, headers, content, framing=framing)
        return _ranged(request, content, headers, framing)


# What the Hub's .gitattributes of a new data set gives to LFS, in short.
_LFS_ENDINGS = (".arrow", ".bin", ".bz2", ".gz", ".npy", ".npz", ".parquet", ".tar", ".tgz", ".xz", ".zip", ".zst")
_ACTIONS = {"auth-check", "commits", "paths-info", "refs", "resolve", "revision", "tree"}


def _git(kind: str, content: bytes) -> str:
    """Name of an object in git."""
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


@dataclass(frozen=True)
class _File:
    content: bytes
    oid: str
    sha256: str
    pointer: int  # size of the LFS pointer, 0 for what git holds itself

    @classmethod
    def of(cls, content: bytes, lfs: bool) -> "_File":
        sha256 = hashlib.sha256(content).hexdigest()
        if not lfs:
            return cls(content, _git("blob", content), sha256, 0)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
        return cls(content, _git("blob", pointer), sha256, len(pointer))


@dataclass(frozen=True)
class _Commit:
    oid: str
    parent: "_Commit | None"
    date: str
    files: dict[str, _File]
    folders: dict[str, str]  # oid of every folder; "" is the root

    @classmethod
    def of(cls, files: dict[str, _File], parent: "_Commit | None") -> "_Commit":
        folders = {"": ""}
        for path in files:
            folders.update((path[: match.start()], "") for match in re.finditer("/", path))
        for folder in sorted(folders, key=len, reverse=True):
            rows = [(path, b"100644 ", file.oid) for path, file in files.items() if _parent(path) == folder]
            rows += [(path + "/", b"40000 ", oid) for path, oid in folders.items() if path and _parent(path) == folder]
            folders[folder] = _git(
                "tree",
                b"".join(
                    mode + path.rstrip("/").rpartition("/")[2].encode() + b"\0" + bytes.fromhex(oid)
                    for path, mode, oid in sorted(rows)
                ),
            )
        depth = 0
        ancestor = parent
        while ancestor:
            depth, ancestor = depth + 1, ancestor.parent
        when = _EPOCH + timedelta(days=depth)
        person = f"test <test@localhost> {int(when.timestamp())} +0000"
        lines = [f"tree {folders['']}", *([f"parent {parent.oid}"] if parent else [])]
        lines += [f"author {person}", f"committer {person}", "", "push", ""]
        date = when.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return cls(_git("commit", "\n".join(lines).encode()), parent, date, files, folders)

    def last(self, path: str) -> "_Commit":
        """The commit that last changed a file or folder."""
        if self.parent is None or self.parent.identity(path) != self.identity(path):
            return self
        return self.parent.last(path)

    def identity(self, path: str) -> str | None:
        return self.files[path].oid if path in self.files else self.folders.get(path)


@dataclass
class _Repository:
    name: str
    kind: Kind = "dataset"
    gated: Literal["auto", "manual", False] = False
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    commits: dict[str, _Commit] = field(default_factory=dict)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _truth(query: Mapping[str, list[str]], name: str) -> bool:
    return query.get(name, [""])[-1].lower() in ("1", "true")


class Hub(_Server):
    """Data sets and models as the Hugging Face Hub has them, with what LFS holds on a second server, the "cdn".

    The second server is called by another name of the same machine: huggingface_hub compares host names without ports,
    and asks a host of the same name for the headers that only the Hub sends.
    """

    def __init__(self, *, page_size: int = 1000) -> None:
        super().__init__("hub", "cdn")
        self.page_size = page_size
        self.cdn = f"http://localhost:{self._listeners[1].port}"
        self._repositories: dict[str, _Repository] = {}
        self._aliases: dict[str, str] = {}
        self._tokens: dict[str, set[str]] = {}
        self._blobs: dict[str, bytes] = {}

    def environment(self, home: Path, token: str = "") -> dict[str, str]:
        """What a child's environment must hold for huggingface_hub and datasets to talk to this server alone."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_TOKEN": token,
            "HUGGING_FACE_HUB_TOKEN": token,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def add(
        self,
        repository: str,
        files: Mapping[str, bytes],
        *,
        kind: Kind = "dataset",
        lfs: Collection[str] | Callable[[str], bool] | None = None,
        revision: str = "main",
        gated: bool | Literal["auto", "manual"] | None = None,
        private: bool | None = None,
        aliases: Iterable[str] = (),
    ) -> str:
        """Push these files, as all that a branch holds from now on; the new commit, or the old one if nothing changed.

        ``lfs`` are the paths that LFS holds, or says so of a path; by default their ending decides. ``revision`` may
        be a ref as ``refs/convert/parquet``. ``aliases`` are former names. What is None stays as it was.
        """
        taken = self._repositories.setdefault(repository, _Repository(repository, kind))
        if gated is not None:
            taken.gated = "auto" if gated is True else gated
        if private is not None:
            taken.private = private
        self._aliases.update(dict.fromkeys(aliases, repository))
        if lfs is None:
            held: Callable[[str], bool] = lambda path: path.endswith(_LFS_ENDINGS)  # noqa: E731
        else:
            held = lfs if callable(lfs) else lfs.__contains__
        contents = {path: _File.of(bytes(content), held(path)) for path, content in sorted(files.items())}
        self._blobs.update((file.sha256, file.content) for file in contents.values())
        parent = taken.commits.get(taken.refs.get(revision, ""))
        if parent is not None and parent.files == contents:
            return parent.oid
        commit = _Commit.of(contents, parent)
        taken.commits[commit.oid] = commit
        taken.refs[revision] = commit.oid
        return commit.oid

    def tag(self, repository: str, name: str, commit: str) -> None:
        """Give a commit a name, or a branch another commit."""
        taken = self._repositories[repository]
        if name not in taken.refs:
            taken.tags.add(name)
        taken.refs[name] = taken.commits[commit].oid

    def remove(self, repository: str, revision: str | None = None) -> None:
        """Forget a branch, a tag, a commit (and what points to it), or the whole repository."""
        if revision is None:
            del self._repositories[repository]
            return
        taken = self._repositories[repository]
        if revision not in taken.refs:
            del taken.commits[revision]
        for name in [name for name, oid in taken.refs.items() if revision in (name, oid)]:
            del taken.refs[name]
            taken.tags.discard(name)

    def token(self, token: str, *repositories: str) -> str:
        """Make a token known, which may read these gated or private repositories; the token."""
        self._tokens.setdefault(token, set()).update(repositories)
        return token

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        if request.server == "cdn":
            return self._content(request)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self._tokens:
            raise _Refusal(401, "", "Invalid credentials in Authorization header")
        segments = [unquote(segment) for segment in path.split("/")[1:]]
        if segments == ["api", "whoami-v2"] and token:
            return _json({"type": "user", "name": "test", "auth": {"accessToken": {"role": "read"}}})
        kind: Kind = "dataset" if "datasets" in segments[:2] else "model"
        start = 2 if segments[0] == "api" else 1 if kind == "dataset" else 0
        if (segments[0] == "api" and segments[1:2] != [f"{kind}s"]) or len(segments) == start:
            raise _Refusal(404, "", f"Sorry, we can't find the page you are looking for: {path}")
        stop = start + (1 if segments[start + 1 : start + 2] and segments[start + 1] in _ACTIONS else 2)
        name = "/".join(segments[start:stop])
        if name in self._aliases:
            place = "/".join(["", *segments[:start], self._aliases[name], *path.split("/")[stop + 1 :]])
            place += f"?{request.query}" if request.query else ""
            return _Reply(307, {"Location": place}, f"Temporary Redirect. Redirecting to {place}".encode())
        repository = self._repository(kind, name, token)
        match "api" if segments[0] == "api" else "files", segments[stop:]:
            case "api", []:
                return self._info(repository, self._commit(repository, "main"), request)
            case "api", ["revision", revision]:
                return self._info(repository, self._commit(repository, revision), request)
            case "api", ["tree", revision, *inside]:
                return self._tree(self._commit(repository, revision), "/".join(inside), path, request)
            case "api", ["paths-info", revision]:
                return self._paths_info(self._commit(repository, revision), request, body)
            case "api", ["commits", revision]:
                return self._commits(self._commit(repository, revision), path, request)
            case "api", ["refs"]:
                return self._refs(repository)
            case "api", ["auth-check"]:
                self._check_gate(repository, token)
                return _Reply(200)
            case "files", ["resolve", revision, *inside]:
                self._check_gate(repository, token)
                return self._resolve(repository, self._commit(repository, revision), "/".join(inside), request)
        raise _Refusal(404, "", f"Sorry, we can't find the page you are looking for: {path}")

    # --- who may ---

    def _repository(self, kind: Kind, name: str, token: str) -> _Repository:
        found = self._repositories.get(name)
        if found and found.kind == kind and (not found.private or name in self._tokens.get(token, ())):
            return found
        if token:
            raise _Refusal(404, "RepoNotFound", "Repository not found")
        # The Hub does not say here whether a repository exists. It sends no code either, but huggingface_hub knows
        # a bare 401 for a repository that is missing only on https.
        raise _Refusal(401, "RepoNotFound", "Invalid username or password.")

    def _check_gate(self, repository: _Repository, token: str) -> None:
        name = repository.name
        if not repository.gated or name in self._tokens.get(token, ()):
            return
        if token:
            told = f"and you are not in the authorized list. Visit {self.url} to ask for access."
            raise _Refusal(403, "GatedRepo", f"Access to {repository.kind} {name} is restricted {told}")
        told = "You must have access to it and be authenticated to access it. Please log in."
        raise _Refusal(401, "GatedRepo", f"Access to {repository.kind} {name} is restricted. {told}")

    def _commit(self, repository: _Repository, revision: str) -> _Commit:
        oid = repository.refs.get(revision, revision)
        if oid not in repository.commits:
            raise _Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository.commits[oid]

    # --- what it is ---

    def _info(self, repository: _Repository, commit: _Commit, request: Request) -> _Reply:
        query = parse_qs(request.query)
        blobs = _truth(query, "blobs")
        siblings = []
        for path, file in commit.files.items():
            held = {"lfs": {"sha256": file.sha256, "size": len(file.content), "pointerSize": file.pointer}}
            sizes = {"size": len(file.content), "blobId": file.oid, **(held if file.pointer else {})}
            siblings.append({"rfilename": path, **(sizes if blobs else {})})
        info = {
            "_id": hashlib.sha1(repository.name.encode()).hexdigest()[:24],
            "id": repository.name,
            "author": _parent(repository.name),
            "sha": commit.oid,
            "createdAt": _EPOCH.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "lastModified": commit.date,
            "private": repository.private,
            "gated": repository.gated,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "cardData": _card(commit),
            "siblings": siblings,
            "usedStorage": sum(len(file.content) for file in commit.files.values()),
        }
        if wanted := query.get("expand", []) + query.get("expand[]", []):
            info = {name: value for name, value in info.items() if name in ("_id", "id", *wanted)}
        return _json(info)

    def _entry(self, commit: _Commit, path: str, expand: bool) -> dict[str, Any]:
        last = commit.last(path)
        expanded = {"lastCommit": {"id": last.oid, "title": "push", "date": last.date}} if expand else {}
        if path not in commit.files:
            return {"type": "directory", "oid": commit.folders[path], "size": 0, "path": path, **expanded}
        file = commit.files[path]
        size = len(file.content)
        entry = {"type": "file", "oid": file.oid, "size": size, "path": path, **expanded}
        if file.pointer:
            entry["lfs"] = {"oid": file.sha256, "size": size, "pointerSize": file.pointer}
        if expand:
            entry["securityFileStatus"] = {"status": "unscanned", "avScan": None, "pickleImportScan": None}
        return entry

    def _tree(self, commit: _Commit, folder: str, path: str, request: Request) -> _Reply:
        if folder not in commit.folders:
            raise _Refusal(404, "EntryNotFound", f"{folder} does not exist on {commit.oid}")
        query = parse_qs(request.query)
        below = f"{folder}/" if folder else ""
        paths = [*sorted(filter(None, commit.folders)), *commit.files]  # folders first, as the Hub
        paths = [each for each in paths if each.startswith(below)]
        if not _truth(query, "recursive"):
            paths = [each for each in paths if _parent(each) == folder]
        page, headers = self._page(paths, path, query)
        return _json([self._entry(commit, each, _truth(query, "expand")) for each in page], headers)

    def _page(self, rows: list[Any], path: str, query: dict[str, list[str]]) -> tuple[list[Any], dict[str, str]]:
        """The rows of the page that is asked for, and the header that tells the next."""
        size = min(int(query.pop("limit", [str(self.page_size)])[-1]), self.page_size)
        start = int(base64.b64decode(query.pop("cursor", [""])[-1]) or 0)
        if start + size >= len(rows):
            return rows[start:], {}
        kept = [f"{name}={quote(value, safe='')}" for name, values in query.items() for value in values]
        cursor = quote(base64.b64encode(str(start + size).encode()), safe="")
        after = "&".join([*kept, f"limit={size}", f"cursor={cursor}"])
        return rows[start : start + size], {"Link": f'<{self.url}{path}?{after}>; rel="next"'}

    def _paths_info(self, commit: _Commit, request: Request, body: bytes) -> _Reply:
        if request.headers.get("content-type", "").startswith("application/json"):
            asked = json.loads(body)
            paths, expand = asked["paths"], bool(asked.get("expand"))
        else:
            form = parse_qs(body.decode())
            paths, expand = form.get("paths", []), _truth(form, "expand")
        known = [path for path in paths if path in commit.files or path in commit.folders]
        return _json([self._entry(commit, path, expand) for path in known])

    def _commits(self, commit: _Commit, path: str, request: Request) -> _Reply:
        rows = []
        ancestor: _Commit | None = commit
        while ancestor:
            told = {"id": ancestor.oid, "title": "push", "message": "", "date": ancestor.date}
            rows.append({**told, "authors": [{"user": "test"}]})
            ancestor = ancestor.parent
        page, headers = self._page(rows, path, parse_qs(request.query))
        return _json(page, {**headers, "X-Total-Count": str(len(rows))})

    def _refs(self, repository: _Repository) -> _Reply:
        listed: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": [], "pullRequests": []}
        for name, oid in repository.refs.items():
            if name in repository.tags:
                kind, ref, short = "tags", f"refs/tags/{name}", name
            elif name.startswith("refs/convert/"):
                kind, ref, short = "converts", name, name.removeprefix("refs/convert/")
            elif name.startswith("refs/pr/"):
                kind, ref, short = "pullRequests", name, name.removeprefix("refs/pr/")
            else:
                kind, ref, short = "branches", f"refs/heads/{name}", name
            listed[kind].append({"name": short, "ref": ref, "targetCommit": oid})
        return _json(listed)

    # --- what it holds ---

    def _resolve(self, repository: _Repository, commit: _Commit, path: str, request: Request) -> _Reply:
        told = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if path not in commit.files:
            raise _Refusal(404, "EntryNotFound", "Entry not found", told)
        file = commit.files[path]
        if not file.pointer:
            kind = "application/json" if path.endswith(".json") else "text/plain; charset=utf-8"
            return _ranged(request, file.content, {**told, "Content-Type": kind, "ETag": f'"{file.oid}"'})
        place = f"{self.cdn}/cdn/{repository.name}/{file.sha256}/{quote(path)}?Signature={_signature(file.sha256)}"
        told |= {"Location": place, "X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.content))}
        return _Reply(302, {**told, "Content-Type": "text/plain"}, f"Found. Redirecting to {place}".encode())

    def _content(self, request: Request) -> _Reply:
        """What a signed URL of the second server gives."""
        parts = request.path.split("/")
        sha256 = parts[4] if len(parts) > 5 else ""
        if sha256 not in self._blobs or parse_qs(request.query).get("Signature") != [_signature(sha256)]:
            return _Reply(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
        name = quote(parts[-1])
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"inline; filename*=UTF-8''{name}; filename=\"{name}\";",
            "Accept-Ranges": "bytes",
            "ETag": f'"{sha256}"',
            "Last-Modified": format_datetime(_EPOCH, usegmt=True),
        }
        return _ranged(request, self._blobs[sha256], headers)


def _signature(sha256: str) -> str:
    return hashlib.sha256(f"signed {sha256}".encode()).hexdigest()[:16]


def _card(commit: _Commit) -> Any:
    """What the README says at its head, in YAML."""
    if "README.md" not in commit.files:
        return None
    head = re.match(r"---\r?\n(.*?)\r?\n---", commit.files["README.md"].content.decode(), re.DOTALL)
    return yaml.safe_load(head[1]) if head else None


def _json(value: Any, headers: Mapping[str, str] | None = None) -> _Reply:
    return _Reply(
        200, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, json.dumps(value).encode()
    )
