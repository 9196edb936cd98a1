"""A model that a server runs, asked by OpenAI's protocol (``POST <url>/completions``, or ``/chat/completions``).

Only the name that the user gives, and the revision, say which model it is: the protocol has no digest. A server with
another tokenizer, one that cuts prompts or answers, and one without a parser of tool calls are each named, and have no
score: their figures would pass for those of the model.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pairmill.encoder import Encoder
from pairmill.engine.manifest import seed_from
from pairmill.errors import InputError, StorageError, UsageError, did_you_mean
from pairmill.evaluation.settings import Generation, Server
from pairmill.formats import tokenizer_file
from pairmill.log import event
from pairmill.net import http
from pairmill.retry import Again
from pairmill.stages.evaluate.models import protocol
from pairmill.stages.evaluate.models.model import Model, Prompt, Text
from pairmill.stages.evaluate.models.protocol import Refusal

if TYPE_CHECKING:
    import httpx

_VERSION: Final = 2
"""Of what an answer of a server counts as."""
_REFUSED: Final = (400, 422)
"""Statuses of a request that a server understood, and does not take."""
_STOPS: Final = 4
"""That OpenAI's protocol allows. Answers are cut before the others here."""
_LISTED: Final = 1000
"""Models among which the nearest name is looked for."""
_AGAIN: Final = "check that the server runs, then run the same command: finished pieces are not asked again"
_checked: set[tuple[str, str, str]] = set()
"""URLs of servers, each with a model that it has, and the tokenizer that it was compared with."""
_PROBES: Final = ("The answer is 42.", "  x = [1, 2]\n\tif a != b:", "Ærøskøbing, 東京, Ω ≈ 3.14159")
_READ: Final = 0.9
"""The share of a prompt's tokens that a server has to have read: it may find special tokens in the text."""
_given_up: set[str] = set()
"""URLs of servers that did not answer in time: the pieces after that one wait no longer."""


@dataclass(frozen=True)
class ServedModel(Model):
    """Args: url: without ``/completions``; server: how it is asked; tokenizer: path or URI of the tokenizer.json that
    it has to have; empty = any."""

    kind: ClassVar[str] = "server"

    url: str = ""
    server: Server = field(default_factory=Server)
    tokenizer: str = ""

    @classmethod
    def open(cls, given: str, server: Server, tokenizer: str = "") -> Self:
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
            result = _Client(url, server).models()
            if len(result) != 1:
                raise InputError(
                    "the server has several models" if result else "the server has no model",
                    where=f"{url}/models",
                    got=", ".join(result[:10]),
                    expected="set=server.model=<one of them>" if result else "a model",
                )
            name = result[0]
        made = Server(**{**vars(server), "model": name})
        chat = ["chat"] if server.mode == "chat" else []
        return cls(cls.digest_of(_VERSION, name, server.revision, *chat), given, url, made, tokenizer)

    def to_json(self) -> dict[str, Any]:
        revision = {"revision": self.server.revision} if self.server.revision else {}
        return {**super().to_json(), "name": self.server.model, **revision}

    def answers(self, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
        client = _Client(self.url, self.server, self.tokenizer)
        client.check()
        # One request for each text: its seed follows from the question, and a lost answer is asked for alone.
        todo = [(each, sample) for each in asked for sample in range(generation.samples)]
        stop = threading.Event()
        failed: list[BaseException] = []

        def work(item: tuple[Prompt, int]) -> Text:
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
        client.refuse_unparsed(sum(bool(each.tools) for each in asked) * generation.samples)
        many = generation.samples
        texts = [job.result() for job in jobs]
        return [texts[at : at + many] for at in range(0, len(texts), many)]


class _Client:
    """Requests to a server.

    Args:
        url: without ``/completions``.
        server: how it is asked.
        tokenizer: that it has to have.
    """

    def __init__(self, url: str, server: Server, tokenizer: str = "") -> None:
        key = os.environ.get(server.key_variable, "")
        self._url, self._server, self._tokenizer = url, server, tokenizer
        self._encoder = _read_encoder(tokenizer) if tokenizer else None
        self._unparsed: list[str] = []
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def models(self) -> list[str]:
        """Return names of its models; none if it does not say them."""
        answer = self._request("GET", "/models", None)
        if isinstance(answer, Refusal):
            raise answer.error(f"{self._url}/models")
        return protocol.model_names(answer)

    def check(self) -> None:
        """Raise InputError if the server says its models, and this one is not among them, or has another tokenizer.

        A process asks once.
        """
        if (self._url, self._server.model, self._tokenizer) in _checked:
            return
        self._check_name()
        if self._encoder is not None:
            self._check_tokenizer(self._encoder)
        _checked.add((self._url, self._server.model, self._tokenizer))

    def _check_tokenizer(self, encoder: Encoder) -> None:
        url = self._url.removesuffix("/v1")
        for probe in _PROBES:
            # The names of vLLM and SGLang, and of llama.cpp.
            body = {"model": self._server.model, "prompt": probe, "content": probe, "add_special_tokens": False}
            try:
                answer = self._request("POST", "/tokenize", body, url=url)
            except InputError:
                answer = None
            ids = protocol.ids(answer) if isinstance(answer, bytes) else None
            if ids is None:
                text = "evaluate: the server does not show its ids, so its tokenizer is not compared"
                event(text, level=logging.WARNING, url=f"{url}/tokenize")
                return
            ours = encoder.encode([probe]).ids.tolist()
            if ids != ours:
                raise InputError(
                    "the server has another tokenizer, so its answers have no score",
                    where=f"{url}/tokenize",
                    got=f"{ids[:10]} for {probe!r}",
                    expected=str(ours[:10]),
                    hint="serve the folder that export wrote, with the tokenizer.json in it",
                )

    def _check_name(self) -> None:
        try:
            result = self.models()
        except InputError as error:
            if "404" in error.got or "405" in error.got:  # it does not say them
                return
            raise
        name = self._server.model
        if result and name not in result:
            hint = did_you_mean(name, result[:_LISTED], "set=server.model= names one of them")
            expected = ", ".join(result[:10])
            raise InputError(
                "the server has no such model", where=f"{self._url}/models", got=name, expected=expected, hint=hint
            )

    def text(self, asked: Prompt, sample: int, generation: Generation, stop: threading.Event) -> Text:
        """Return one text.

        Raises:
            InputError: the server refuses the question, though its prompt leaves room for an answer.
        """
        seed = seed_from(generation.seed, asked.digest, sample, digits=7)
        messages = list(asked.messages) or [{"role": "user", "content": asked.prompt}]
        chat = self._server.mode == "chat"
        path = "/chat/completions" if chat else "/completions"
        body = {
            "model": self._server.model,
            **({"messages": messages} if chat else {"prompt": asked.prompt}),
            "max_tokens": generation.max_tokens,
            "temperature": generation.temperature,
            "seed": seed,
        }
        if until := (*asked.until, *generation.stop)[:_STOPS]:
            body["stop"] = until
        if asked.tools:
            body["tools"] = list(asked.tools)
        where = f"{self._url}{path}"
        answer = self._request("POST", path, body, stop)
        if not isinstance(answer, Refusal):
            text = protocol.completion(answer, where) if not chat else self._of_chat(answer, where, asked)
            self._refuse_cut(answer, where, asked, generation.max_tokens)
            return text
        too_long = answer.leaves_no_room(generation.max_tokens)
        if too_long is None:
            shortest = self._request("POST", path, {**body, "max_tokens": 1}, stop)
            too_long = isinstance(shortest, Refusal) and shortest.leaves_no_room(1)
        if not too_long:
            raise answer.error(where, generation.max_tokens)
        return Text("", 0, stopped=False, too_long=True)

    def _of_chat(self, answer: bytes, where: str, asked: Prompt) -> Text:
        text, unparsed = protocol.chat(answer, where, asked.tools)
        if unparsed:
            self._unparsed.append(text.text)
        return text

    def _refuse_cut(self, answer: bytes, where: str, asked: Prompt, most: int) -> None:
        """Raise InputError if an answer ended before it was to, or only a part of the prompt was read."""
        told = protocol.usage(answer)
        if told.reason == "length" and 0 <= told.text < most:
            raise InputError(
                "the server cuts answers, so they have no score",
                where=where,
                got=f"the end by length after {told.text:,} tokens",
                expected=f"{most:,} tokens",
                hint=f"let it write longer answers, or set=generation.max_tokens={max(1, told.text)}",
            )
        if self._encoder is not None and told.prompt >= 0 and not asked.messages:
            count = len(self._encoder.encode([asked.prompt]).ids)
            if told.prompt < _READ * count:
                raise InputError(
                    "the server cuts prompts, so its answers have no score",
                    where=where,
                    got=f"{told.prompt:,} tokens of a prompt",
                    expected=f"{count:,} or more",
                    hint="give it a longer context, and no option that truncates prompts",
                )

    def refuse_unparsed(self, count: int) -> None:
        """Raise InputError if calls are in the text of half of ``count`` answers; a server with a parser leaves few."""
        if self._unparsed and 2 * len(self._unparsed) >= count:
            got = f"a call in the text of {len(self._unparsed)} of {count} answers, as {self._unparsed[0][:200]!r}"
            raise protocol.no_tool_parser(self._url, got)

    def _request(
        self, method: str, path: str, body: Any, stop: threading.Event | None = None, url: str = ""
    ) -> bytes | Refusal:
        """Return the body of the answer, or why the request itself is refused."""
        url = f"{url or self._url}{path}"

        def once() -> bytes | Refusal:
            if stop is not None and stop.is_set():
                raise StorageError("stopped, as another question of the piece failed", where=url)
            sent = {"json": body, "headers": self._headers}
            with _connection(self._server.seconds).stream(method, url, **sent) as response:
                content = protocol.read(response, self._server.seconds)
            if response.status_code in _REFUSED:
                return Refusal.from_response(response.status_code, content)
            http.checked(
                response,
                url,
                lambda _: self._refuse(response, content),
                "check the URL, which ends as in http://host:8000/v1",
            )
            protocol.parsed(content)  # what is not JSON may be the page of a proxy, so it is asked for again
            return content

        try:
            answer = self._at_once(once, url) if self._url in _given_up else http.request(url, once)
        except StorageError as error:
            _given_up.add(self._url)
            _connection.cache_clear()  # a server that comes back knows none of the old connections
            raise StorageError(error.what, where=error.where, got=error.got, hint=_AGAIN) from error
        _given_up.discard(self._url)
        return answer

    def _at_once(self, once: Callable[[], bytes | Refusal], url: str) -> bytes | Refusal:
        """Return a single try of a server that was given up."""
        try:
            return http.tried(url, once)
        except Again as error:
            raise StorageError("the server still does not answer", where=url, got=str(error)) from error

    def _refuse(self, response: httpx.Response, content: bytes) -> None:
        where, status = str(response.url), response.status_code
        if status in (401, 403):
            hint = f"put the key into the environment variable {self._server.key_variable}"
            raise InputError("the server wants another key", where=where, got=f"status {status}", hint=hint)
        refusal = Refusal.from_response(status, content)
        if status == 404 and response.request.method == "POST" and "model" in refusal.words.lower():
            hint = "set=server.model= names one of the server's"
            raise InputError("the server has no such model", where=where, got=self._server.model, hint=hint)
        if status != 404:
            raise refusal.error(where)


@lru_cache(maxsize=1)
def _read_encoder(given: str) -> Encoder:
    """Return what encodes as a tokenizer.json does."""
    uri = tokenizer_file.locate(given)
    return Encoder.from_json(tokenizer_file.read(uri).decode(), where=uri)


@lru_cache(maxsize=1)
def _connection(seconds: float) -> httpx.Client:
    """Return the connections of this process, which its threads share."""
    made = http.client()
    made.timeout = seconds
    return made
