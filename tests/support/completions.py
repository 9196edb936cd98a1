"""A server of OpenAI's completions protocol on loopback, which answers arithmetic, and dies when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Completions:
    """Args: answer: from a request's body to a text; models: their names; dies_after: answers until it stops; broken:
    where the answer is None, what is said is none of the protocol."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str],
        *,
        models: tuple[str, ...] = ("tiny",),
        dies_after: int = 0,
        failing: tuple[int, ...] = (),
        key: str = "",
        broken: bool = False,
        port: int = 0,
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self.failing = list(failing)
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def say(self, status: int, said: object) -> None:
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def wrong_key(self) -> bool:
                return bool(key) and self.headers.get("Authorization") != f"Bearer {key}"

            def do_GET(self) -> None:
                if self.wrong_key():
                    return self.say(401, {})
                return self.say(200, {"data": [{"id": name} for name in models]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    if dies_after and len(outer.asked) >= dies_after:
                        self.close_connection = True
                        self.connection.close()
                        return None
                    if outer.failing:
                        return self.say(outer.failing.pop(), {})
                    outer.asked.append(body)
                text = answer(body)
                if broken and text is None:
                    return self.say(200, {"choices": []})
                choice = {"text": text, "finish_reason": "stop"}
                return self.say(200, {"choices": [choice], "usage": {"completion_tokens": len(text.split())}})

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
