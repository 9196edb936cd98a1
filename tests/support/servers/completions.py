"""A server of OpenAI's completions protocol on loopback, which answers arithmetic, and dies when it is told to.

It can also answer what no server should: :func:`hostile_reply` draws such an answer.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Reply:
    """An answer to the byte.

    Args:
        body: of it; anything but bytes is sent as JSON.
        headers: beside Content-Length, or in its place.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @classmethod
    def text(cls, text: Any, **choice: Any) -> Self:
        """An answer of the protocol with a text, and these fields of its choice."""
        return cls({"choices": [{"text": text, "finish_reason": "stop", **choice}], "usage": {"completion_tokens": 1}})

    @classmethod
    def chat(cls, text: str | None, calls: Mapping[str, Any] | None = None, **usage: int) -> Self:
        """An answer of the chat protocol: a text, or calls by the name of their function."""
        made = [
            {"type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for name, given in (calls or {}).items()
        ]
        message = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
        choice = {"message": message, "finish_reason": "tool_calls" if made else "stop"}
        return cls({"choices": [choice], "usage": {"completion_tokens": 1, **usage}})

    @classmethod
    def refusal(cls, message: str, status: int = 400, **fields: Any) -> Self:
        """A refusal as OpenAI writes it, with these fields of its error."""
        return cls({"error": {"message": message, "type": "invalid_request_error", **fields}}, status)


class Completions:
    """Args: answer: from a request's body to a text, or to a whole reply; models: their names, or a reply; dies_after:
    answers until it stops; failing: statuses of the first answers; tokenize: from a text to ids; None = not served."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str | Reply],
        *,
        models: tuple[str, ...] | Reply = ("tiny",),
        dies_after: int = 0,
        failing: tuple[int, ...] = (),
        key: str = "",
        port: int = 0,
        tokenize: Callable[[str], list[int]] | None = None,
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

            def say(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for name, value in {"Content-Length": str(len(reply.content)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.content)
                self.close_connection |= bool(reply.headers)

            def wrong_key(self) -> bool:
                return bool(key) and self.headers.get("Authorization") != f"Bearer {key}"

            def do_GET(self) -> None:
                if self.wrong_key():
                    return self.say(Reply({}, 401))
                listed = models if isinstance(models, Reply) else Reply({"data": [{"id": name} for name in models]})
                return self.say(listed)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("/tokenize"):
                    return self.say(Reply({"tokens": tokenize(body["prompt"])}) if tokenize else Reply({}, 404))
                with outer.lock:
                    if dies_after and len(outer.asked) >= dies_after:
                        self.close_connection = True
                        self.connection.close()
                        return None
                    if outer.failing:
                        return self.say(Reply({}, outer.failing.pop()))
                    outer.asked.append(body)
                text = answer(body)
                if isinstance(text, Reply):
                    return self.say(text)
                choice = {"text": text, "finish_reason": "stop"}
                return self.say(Reply({"choices": [choice], "usage": {"completion_tokens": len(text.split())}}))

        class Listener(ThreadingHTTPServer):
            # More than are asked at once: the system resets what finds no place, as it does on a busy machine.
            request_queue_size = 128

        self._server = Listener(("127.0.0.1", port), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


_VALUES: tuple[Any, ...] = (None, True, -1, 1e999, 10**18, [], {}, "", "\ud800", "\0", "x" * 100_000, [[]] * 3)
_WORDS = (
    "This model's maximum context length is 512 tokens. However, your request has 600 input tokens.",
    "max_tokens is too large: 1024. This model's maximum context length is 512 tokens",
    "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "context \ud800",
    f"maximum context length is {'9' * 5000} tokens and your request has {'9' * 5000} input tokens",
)


def hostile_reply(draw: random.Random) -> Reply:
    """An answer that breaks the protocol, or http, in one way of many; now and then one that breaks nothing."""
    good = Reply.text("4").content
    deep = draw.choice((b"[", b'{"choices":')) * draw.choice((900, 100_000))
    cut = draw.randrange(len(good))
    content: bytes = draw.choice(
        (
            b"",
            b"<html>busy</html>",
            deep,
            good.replace(b'"4"', deep + b"]" * 10),
            good[:cut] + bytes([draw.randrange(256)]) + good[cut + 1 :],
            good.replace(b"1}", b"1" + b"0" * draw.choice((18, 400, 5000)) + b"}"),
            good.replace(b'"4"', draw.choice((b'"\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b"NaN"))),
            good.decode().encode(draw.choice(("utf-16", "utf-32", "utf-8-sig"))),
            json.dumps({"choices": draw.choice(_VALUES), "usage": draw.choice(_VALUES)}).encode(),
            Reply.text(draw.choice(_VALUES), finish_reason=draw.choice(_VALUES)).content,
            Reply.refusal(draw.choice(_WORDS), code=draw.choice(_VALUES), n_ctx=draw.choice(_VALUES)).content,
            json.dumps({"error": draw.choice((*_VALUES, *_WORDS))}).encode(),
        )
    )
    headers: Mapping[str, str] = draw.choice(
        (
            *[{}] * 6,
            {"Content-Encoding": "gzip"},
            {"Content-Type": "text/html; charset=zlib"},
            {"Content-Length": str(len(content) + 1)},
            {"Retry-After": draw.choice(("9" * 400, "Mon, 01 Jan 99999999 00:00:00 GMT", "\xb2", "-1"))},
            {"Location": draw.choice(("http://[", "//", "ftp://a/b", "/v1/completions"))},
        )
    )
    statuses = (*[200] * 6, 204, 302, 307, 400, 400, 401, 404, 413, 418, 422, 429, 500, 503)
    return Reply(content, draw.choice(statuses), headers)
