"""A model that a server runs, asked by OpenAI's completions protocol (``POST <url>/completions``).

Only the name that the user gives, and the revision, say which model it is: the protocol has no digest.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from components.evaluate.models.model import Asked, Model, Text
from components.evaluate.settings import Generation, Server
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError, StorageError, UsageError, did_you_mean
from pairmill.net import http
from pairmill.retry import Again

if TYPE_CHECKING:
    import httpx

_SHOWN = 200
_AGAIN = "check that the server runs, then run the same command: finished pieces are not asked again"
_given_up: set[str] = set()
"""URLs of servers that did not answer in time: the pieces after that one wait no longer."""


@dataclass(frozen=True)
class ServedModel(Model):
    """Args: url: without ``/completions``; server: how it is asked."""

    kind: ClassVar[str] = "server"

    url: str = ""
    server: Server = field(default_factory=Server)

    @classmethod
    def open(cls, given: str, server: Server) -> Self:
        """Ask the server for the name of its model, unless the settings name one; so a finished result needs no server.

        Raises:
            UsageError: the URL has a password in it.
            InputError: the server has several models, or none.
            StorageError: it does not answer.
        """
        url = given.rstrip("/")
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query:
            expected = f"a URL without them, and the key in the variable {server.key_variable}"
            raise UsageError("the URL has a name, a password or a query", where="model", got="it", expected=expected)
        name = server.model
        if not name:
            found = _Client(url, server).models()
            if len(found) != 1:
                raise InputError(
                    "the server has several models" if found else "the server has no model",
                    where=f"{url}/models",
                    got=", ".join(found[:10]),
                    expected="set=server.model=<one of them>" if found else "a model",
                )
            name = found[0]
        made = Server(**{**vars(server), "model": name})
        return cls(content_key("evaluate server", name, server.revision), given, url, made)

    def said(self) -> dict[str, Any]:
        revision = {"revision": self.server.revision} if self.server.revision else {}
        return {**super().said(), "name": self.server.model, **revision}

    def answers(self, asked: Sequence[Asked], generation: Generation) -> list[list[Text]]:
        client = _Client(self.url, self.server)
        client.check()
        # One request for each text: its seed follows from the question, and a lost answer is asked for alone.
        todo = [(one, sample) for one in asked for sample in range(generation.samples)]
        stop = threading.Event()
        failed: list[BaseException] = []

        def work(item: tuple[Asked, int]) -> Text:
            try:
                return client.text(*item, generation, stop)
            except BaseException as error:
                failed.append(error)
                stop.set()
                raise

        with ThreadPoolExecutor(min(self.server.at_once, len(todo) or 1)) as pool:
            jobs = [pool.submit(work, item) for item in todo]
            for job in jobs:
                try:
                    job.result()
                except BaseException as error:
                    stop.set()
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise (failed[0] if failed else error) from None  # the others were stopped by the first
        many = generation.samples
        texts = [job.result() for job in jobs]
        return [texts[at : at + many] for at in range(0, len(texts), many)]


class _Client:
    """Requests to a server.

    Args:
        url: without ``/completions``.
        server: how it is asked.
    """

    def __init__(self, url: str, server: Server) -> None:
        key = os.environ.get(server.key_variable, "")
        self._url, self._server = url, server
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def models(self) -> list[str]:
        """Names of its models; none if it does not say them."""
        said = self._request("GET", "/models", None)
        entries = said.get("data", []) if isinstance(said, dict) else []
        return [str(one["id"]) for one in entries if isinstance(one, dict) and "id" in one]

    def check(self) -> None:
        """Raise InputError if the server says its models, and this one is not among them."""
        try:
            found = self.models()
        except InputError as error:
            if "404" in error.got or "405" in error.got:  # it does not say them
                return
            raise
        name = self._server.model
        if found and name not in found:
            hint = did_you_mean(name, found, "set=server.model= names one of them")
            expected = ", ".join(found[:10])
            raise InputError(
                "the server has no such model", where=f"{self._url}/models", got=name, expected=expected, hint=hint
            )

    def text(self, asked: Asked, sample: int, generation: Generation, stop: threading.Event) -> Text:
        """One text."""
        seed = int(content_key(generation.seed, asked.digest, sample)[:7], 16)
        body = {
            "model": self._server.model,
            "prompt": asked.prompt,
            "max_tokens": generation.max_tokens,
            "temperature": generation.temperature,
            "seed": seed,
        }
        try:
            said = self._request("POST", "/completions", body, stop)
        except _TooLong:
            return Text("", 0, stopped=False, too_long=True)
        try:
            choice = said["choices"][0]
            text, reason = choice["text"], choice.get("finish_reason")
            tokens = (said.get("usage") or {}).get("completion_tokens", -1)
            if not isinstance(text, str) or not isinstance(tokens, int):
                raise TypeError(type(text).__name__)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise InputError(
                "not an answer of the completions protocol",
                where=f"{self._url}/completions",
                got=str(said)[:_SHOWN],
                expected='{"choices": [{"text": …}]}',
                hint="give the URL that ends before /completions, as http://host:8000/v1",
            ) from error
        return Text(text, tokens, stopped=reason == "stop")

    def _request(self, method: str, path: str, body: Any, stop: threading.Event | None = None) -> Any:
        url = f"{self._url}{path}"

        def once() -> Any:
            if stop is not None and stop.is_set():
                raise StorageError("stopped, as another question of the piece failed", where=url)
            response = _connection(self._server.seconds).request(method, url, json=body, headers=self._headers)
            if response.status_code == 400 and "context" in response.text.lower():
                raise _TooLong
            http.checked(response, url, self._refuse, "check the URL, which ends as in http://host:8000/v1")
            try:
                return response.json()
            except ValueError as error:
                raise Again(f"not JSON: {response.text[:_SHOWN]!r}") from error

        try:
            said = self._at_once(once, url) if self._url in _given_up else http.asked(url, once)
        except StorageError as error:
            _given_up.add(self._url)
            _connection.cache_clear()  # a server that comes back knows none of the old connections
            raise StorageError(error.what, where=error.where, got=error.got, hint=_AGAIN) from error
        _given_up.discard(self._url)
        return said

    def _at_once(self, once: Any, url: str) -> Any:
        """A single try of a server that was given up."""
        import httpx

        try:
            return once()
        except (httpx.TransportError, Again) as error:
            raise StorageError("the server still does not answer", where=url, got=str(error)) from error

    def _refuse(self, response: httpx.Response) -> None:
        where, said = str(response.url), response.text[:_SHOWN]
        if response.status_code in (401, 403):
            hint = f"put the key into the environment variable {self._server.key_variable}"
            raise InputError(
                "the server wants another key", where=where, got=f"status {response.status_code}", hint=hint
            )
        if response.status_code == 404 and "model" in said.lower():
            hint = "set=server.model= names one of the server's"
            raise InputError("the server has no such model", where=where, got=self._server.model, hint=hint)
        if response.status_code != 404:
            raise InputError("the server refused a question", where=where, got=f"status {response.status_code}: {said}")


class _TooLong(Exception):
    """The prompt leaves no room in the context."""


@lru_cache(maxsize=1)
def _connection(seconds: float) -> httpx.Client:
    """The connections of this process, which its threads share."""
    made = http.client()
    made.timeout = seconds
    return made
