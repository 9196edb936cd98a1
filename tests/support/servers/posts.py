"""A server on loopback that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass
class Posts:
    """Answers each POST with ``status``.

    Args:
        status: of the answers; a redirect leads to ``/login``.
    """

    status: int = 200
    values: list[Any] = field(default_factory=list)
    """The JSON values, in order."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """By name in lower case."""
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        posts = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posts.values.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                posts.headers.append({name.lower(): text for name, text in self.headers.items()})
                posts.paths.append(self.path)
                self.send_response(posts.status)
                self.send_header("Location", f"{posts.url}/login")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
