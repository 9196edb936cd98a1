"""A proxy before an object store that lets requests fail, by a plan that a seed makes the same each time.

    faults = [Fault("status", 0.1, status=503), Fault("lost", 0.05, on="PUT *")]
    with FaultProxy(server, seed=1, faults=faults) as proxy:
        …                              # a process with proxy.environment() in its environment
    assert proxy.injected["lost"]

Whether a request fails is drawn from the seed, its method and target, and how often they were asked before, so it does
not depend on the order in which threads ask. But targets hold what differs from run to run (the ids of uploads), so
the first time comes at the latest when 1.5 times as many requests were asked as the rate says.
"""

import collections
import contextlib
import http.client
import json
import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

from tests.support.objectstores.servers import Server

Kind = Literal["latency", "status", "drop", "reset", "lost", "cut", "truncate", "corrupt", "stale"]
_PIECE = 1 << 16
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


@dataclass(frozen=True)
class Fault:
    """What may become of a request.

    ``latency``: it waits up to ``seconds``; ``status``: it is answered so and goes no further; ``drop`` and ``reset``:
    its connection ends before it went further; ``lost``: the store does it, and the connection ends in place of the
    answer; ``cut`` and ``truncate``: of the answer's body a part comes, then a reset or the end; ``corrupt``: one byte
    of what is sent to the store is another; ``stale``: a listing lacks what was written in the last ``seconds``.
    """

    kind: Kind
    rate: float = 1.0
    on: str = "*"  # a glob of "<method> <target>", as in "GET /bucket/key*"
    times: int | None = None  # at most so many
    burst: int = 1  # so many requests in a row, whatever they ask, once one is drawn
    status: int = 503
    code: str = ""  # of an S3 server's error
    retry_after: str = ""
    seconds: float = 0.05


EVERYTHING = (
    Fault("latency", 0.1),
    Fault("status", 0.03, burst=3),
    Fault("status", 0.02, status=429, retry_after="1"),
    Fault("status", 0.01, status=500),
    Fault("drop", 0.02),
    Fault("reset", 0.02),
    Fault("lost", 0.03),
    Fault("cut", 0.05),
    Fault("truncate", 0.05),
    Fault("stale", 0.3, seconds=2.0),
)
"""What a bad day brings, all of it passing."""


@dataclass(frozen=True)
class Request:
    """One request as it came, the status that the store answered (0: it was not asked), and what was done to it."""

    method: str
    target: str
    headers: dict[str, str]
    status: int
    faults: tuple[Kind, ...]


Drawn = dict[Kind, tuple[Fault, float]]
"""What becomes of a request: faults by kind, each with a number in [0, 1) that says how much of it."""


class FaultProxy:
    """Listens on loopback at ``url`` and hands on to ``upstream``; ``faults`` may be changed at any time."""

    def __init__(self, upstream: Server, *, seed: int = 0, faults: Sequence[Fault] = EVERYTHING) -> None:
        self.upstream, self.seed, self.faults = upstream, seed, tuple(faults)
        self.requests: list[Request] = []
        self.injected: collections.Counter[Kind] = collections.Counter()
        self._lock = threading.Lock()
        self._asked: collections.Counter[str] = collections.Counter()
        self._spent: collections.Counter[Fault] = collections.Counter()
        self._passed: collections.Counter[Fault] = collections.Counter()
        self._bursts: collections.Counter[Fault] = collections.Counter()
        self._written: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def environment(self) -> dict[str, str]:
        """Variables that lead a process to the store through this proxy."""
        return self.upstream.environment(self.url)

    def draw(self, method: str, target: str, body: bytes = b"") -> Drawn:
        """What becomes of this request."""
        asked = f"{method} {target}"
        with self._lock:
            turn = self._asked[asked]
            self._asked[asked] += 1
            drawn: Drawn = {}
            for number, fault in enumerate(self.faults):
                if not fnmatchcase(asked, fault.on) or (fault.times is not None and self._spent[fault] >= fault.times):
                    continue
                if fault.kind == "corrupt" and not body:
                    continue
                self._passed[fault] += 1
                dice = random.Random(f"{self.seed} {number} {turn} {asked}")
                if self._bursts[fault]:
                    self._bursts[fault] -= 1
                elif dice.random() < fault.rate or (not self._spent[fault] and self._passed[fault] * fault.rate >= 1.5):
                    self._bursts[fault] = fault.burst - 1
                else:
                    continue
                self._spent[fault] += 1
                drawn[fault.kind] = fault, dice.random()
            return drawn

    def note(self, request: Request, body: bytes) -> None:
        """Remember a request, and what it wrote."""
        with self._lock:
            self.requests.append(request)
            self.injected.update(request.faults)
            if 200 <= request.status < 300:
                self._written[_written(request, body)] = time.monotonic()

    def stale(self, body: bytes, seconds: float) -> bytes:
        """A listing as it was before what was written in the last seconds."""
        since = time.monotonic() - seconds
        with self._lock:
            new = {key for key, at in self._written.items() if at > since}
        if body.startswith(b"{"):
            listing = json.loads(body)
            listing["items"] = [item for item in listing.get("items", []) if item["name"] not in new]
            return json.dumps(listing).encode()
        items = re.compile(rb"<Contents>(?:(?!</Contents>).)*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
        return items.sub(lambda item: b"" if unquote(item[1].decode()) in new else item[0], body)


def _written(request: Request, body: bytes) -> str:
    """The key that a request made or replaced; ``""`` for none."""
    url = urlsplit(request.target)
    if url.path.startswith("/upload/"):
        name = re.search(rb'"name": *("(?:[^"\\\\]|\\\\.)*")', body[:4096])
        return str(json.loads(name[1])) if name else ""
    if "/rewriteTo/" in url.path:
        return unquote(url.path.rsplit("/o/", 1)[1])
    # A part is no object yet; the completion of its upload makes one.
    if request.method == ("POST" if "uploadId=" in url.query else "PUT"):
        return unquote(url.path).split("/", 2)[-1]
    return ""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    proxy: FaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time, and we leave it at some."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def setup(self) -> None:
        super().setup()
        upstream = urlsplit(self.server.proxy.upstream.url)
        self._upstream = http.client.HTTPConnection(str(upstream.hostname), upstream.port, timeout=60)

    def finish(self) -> None:
        self._upstream.close()
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def do_GET(self) -> None:
        body = self._body()
        drawn = self.server.proxy.draw(self.command, self.path, body)
        if "latency" in drawn:
            fault, share = drawn["latency"]
            time.sleep(share * fault.seconds)
        if "status" in drawn:
            self._note(0, drawn, body)
            self._refuse(drawn["status"][0])
            return
        if "drop" in drawn or "reset" in drawn:
            self._note(0, drawn, body)
            self._end(reset="reset" in drawn)
            return
        if "corrupt" in drawn:
            body = body[:-1] + bytes([body[-1] ^ 1])
        answer = self._ask(body)
        # Before the answer goes: who has it may look at once at what was noted.
        self._note(answer.status, drawn, body)
        if "lost" in drawn:
            answer.read()
            self._end(reset=False)
        else:
            self._answer(answer, drawn)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def _note(self, status: int, drawn: Drawn, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.proxy.note(Request(self.command, self.path, headers, status, tuple(drawn)), body)

    def _answer(self, answer: http.client.HTTPResponse, drawn: Drawn) -> None:
        told = answer.getheader("Content-Length")
        content = None
        if self.command != "HEAD" and "stale" in drawn and answer.status == 200 and _lists(self.path):
            content = self.server.proxy.stale(answer.read(), drawn["stale"][0].seconds)
        elif told is None:
            content = answer.read()
        size = int(told or 0) if content is None else len(content)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            # An upload goes on where its beginning was answered to.
            here = value.replace(self.server.proxy.upstream.url, self.server.proxy.url)
            if name.lower() not in _HOP:
                self.send_header(name, here if name.lower() == "location" else value)
        if answer.status != 204:
            self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "HEAD":
            answer.read()
            return
        end, reset = size, "cut" in drawn
        for kind in ("cut", "truncate"):
            if kind in drawn:
                end = int(size * drawn[kind][1])
        sent = 0
        while sent < end:
            piece = answer.read(min(_PIECE, end - sent)) if content is None else content[sent:end]
            if not piece:
                raise ConnectionError("the store ended its answer")
            self.wfile.write(piece)
            sent += len(piece)
        if end < size:
            self._upstream.close()
            self._end(reset=reset)
        elif content is None:
            answer.read()

    def _refuse(self, fault: Fault) -> None:
        self.send_response_only(fault.status)
        if fault.retry_after:
            self.send_header("Retry-After", fault.retry_after)
        body = f"<Error><Code>{fault.code}</Code><Message>said so</Message></Error>".encode() if fault.code else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        for last in (False, True):
            try:
                self._upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in _HOP:
                        self._upstream.putheader(name, value.encode("latin-1"))
                if body or self.command in {"PUT", "POST"}:
                    self._upstream.putheader("Content-Length", str(len(body)))
                self._upstream.endheaders(body or None)
                return self._upstream.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                # The server closed a connection that was kept: no fault of the plan.
                self._upstream.close()
                if last:
                    raise
        raise AssertionError

    def _end(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Not close(): the files made of it hold it, and what ends it otherwise says goodbye first.
            os.close(self.connection.detach())
        else:
            self.connection.shutdown(socket.SHUT_RDWR)


def _lists(target: str) -> bool:
    return "list-type=2" in target or urlsplit(target).path.endswith("/o")
