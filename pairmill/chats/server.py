"""The ids that a server makes of a chat, asked by ``POST /tokenize``.

Servers of OpenAI's protocol have it beside it: vLLM takes messages or a prompt (entrypoints/serve/tokenize/protocol.py
of vllm-project/vllm), SGLang a prompt, llama.cpp a text that its ``/apply-template`` makes (tools/server/README.md).
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pairmill.errors import InputError
from pairmill.net import http

KEY: Final = "OPENAI_API_KEY"
"""The variable of the environment that may hold the server's key."""
_NOT_TAKEN: Final = (400, 404, 405, 422)


class TokenizingServer:
    """Asks a server for the ids of prompts.

    Args:
        url: of the server, with or without ``/v1`` at its end.
        model: its name there; empty = the server's only one.
    """

    def __init__(self, url: str, model: str = "") -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._model = {"model": model} if model else {}
        key = os.environ.get(KEY, "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = http.client()

    def ids(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], variables: Mapping[str, Any], prompt: str
    ) -> tuple[list[int], str]:
        """Return the ids of a prompt with the beginning of the next answer, and what of it the server rendered.

        Args:
            messages: of the prompt, in OpenAI's form.
            tools: their declarations.
            variables: of the template.
            prompt: the rendered text, for a server that takes no messages.

        Raises:
            InputError: the server has no ``/tokenize``, or refuses the prompt.
            StorageError: it does not answer.
        """
        chat: dict[str, Any] = {"messages": [_sent(item) for item in messages], "add_generation_prompt": True}
        if tools:
            chat["tools"] = list(tools)
        if variables:
            chat["chat_template_kwargs"] = dict(variables)
        answer = self._post("/tokenize", {**self._model, **chat})
        if answer and answer.get("tokens"):
            return _tokens(answer), "messages"
        answer = self._post("/apply-template", {**self._model, **chat})
        what = "text"
        if answer and isinstance(answer.get("prompt"), str):
            prompt, what = answer["prompt"], "messages"
        forms = {"prompt": prompt, "add_special_tokens": False}, {"content": prompt, "parse_special": True}
        for form in forms:
            answer = self._post("/tokenize", {**self._model, **form, "add_special": False})
            if answer and answer.get("tokens"):
                return _tokens(answer), what
        raise InputError(
            "the server makes no ids of a prompt",
            where=f"{self._url}/tokenize",
            got=json.dumps(answer)[:200],
            expected='{"tokens": [...]}',
            hint="name a server of vLLM, SGLang or llama.cpp, as check_server=http://host:8000",
        )

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer; None if the server does not take such a request."""
        url = f"{self._url}{path}"

        def ask() -> dict[str, Any] | None:
            response = self._client.post(url, json=body, headers=self._headers)
            if response.status_code in _NOT_TAKEN:
                return None
            http.checked(response, url, hint=f"a key is taken from the variable {KEY}")
            try:
                answer = response.json()
            except ValueError:
                return None
            return answer if isinstance(answer, dict) else None

        return http.request(url, ask)


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    """Return the ids of an answer; llama.cpp may give each as an object."""
    return [int(item["id"] if isinstance(item, dict) else item) for item in answer["tokens"]]


def _sent(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as it is sent: arguments of calls are JSON texts on the wire."""
    made = dict(message)
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
            for call in calls
        ]
    return made
