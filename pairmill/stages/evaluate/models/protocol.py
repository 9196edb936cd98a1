"""OpenAI's completions protocol as far as it is read: bytes, which are not trusted, as texts and refusals."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pairmill.errors import InputError
from pairmill.retry import Again
from pairmill.stages.evaluate.models.model import Text

if TYPE_CHECKING:
    import httpx

SHOWN: Final = 200
"""Characters of a server's words in a message."""
_LARGEST: Final = 16 << 20
_MOST_TOKENS: Final = 10**9
_LONGEST_NAME: Final = 1000
_DIGITS: Final = 19
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_CODES: Final = ("context_length_exceeded", "exceed_context_size_error")
"""Of OpenAI, vLLM and llama-cpp-python; of llama.cpp's server."""
# The forms in which OpenAI, vLLM, SGLang, llama.cpp, llama-cpp-python, FastChat and text-generation-inference say the
# length of their context, and that of a prompt.
_CONTEXT: Final = re.compile(
    r"context length (?:is|of)(?: only)? (\d+)"
    r"|model's (?:maximum )?context length \((\d+)"
    r"|available context size(?: \((\d+) tokens\))?"
    r"|`inputs` must have less than (\d+) tokens"
    r"|`max_new_tokens` must be <= (\d+)"
    r"|maximum (?:model|allowed) length (?:of )?\(?(\d+)"
)
_PROMPT: Final = re.compile(
    r"\((\d+) in (?:the|your) (?:messages|prompt)"
    r"|(?:messages|prompt) resulted in (\d+) tokens"
    r"|request has (\d+) input tokens"
    r"|contains (?:at least )?(\d+) input tokens"
    r"|passed (\d+) input tokens"
    r"|(\d+) tokens from the input"
    r"|\((\d+) of text input"
    r"|\b[Ii]nput (?:length )?\((\d+)(?: tokens)?\)"
    r"|prompt \(length (\d+)\)"
    r"|request \((\d+) tokens\)"
    r"|Given: (\d+)"
)
_NO_PARSER: Final = re.compile(r"tool[-_ ]?(?:call[-_ ])?parser|enable-auto-tool-choice|--jinja")
_OF_ANSWER: Final = re.compile(r"max_(?:completion_|new_)?tokens")


def read(response: httpx.Response, seconds: float) -> bytes:
    """Return the body of an answer.

    Raises:
        Again: it is not whole after that many seconds.
        InputError: it has more than 16 MiB.
    """
    begun, content = time.monotonic(), bytearray()
    for piece in response.iter_bytes():
        content += piece
        if len(content) > _LARGEST:
            raise InputError("the answer is too large", where=str(response.url), expected=f"at most {_LARGEST:,} bytes")
        if time.monotonic() - begun > seconds:
            raise Again(f"no whole answer in {seconds:g} s")
    return bytes(content)


def parsed(content: bytes) -> Any:
    """Return the JSON of an answer. Raises Again if it is not JSON, or nested too deep."""
    try:
        return json.loads(content, parse_int=lambda digits: int(digits[:_DIGITS]))
    except (ValueError, RecursionError) as error:
        raise Again(f"not JSON: {shown(content)}") from error


def shown(content: bytes) -> str:
    """Return the beginning of an answer, for a message."""
    return repr(content[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN])


def completion(content: bytes, where: str) -> Text:
    """Return the text of an answer; an unpaired surrogate becomes U+FFFD, and a count of tokens that cannot be one -1.

    Raises:
        Again: it is not JSON.
        InputError: it is not an answer of the protocol.
    """
    answer = parsed(content)
    try:
        choice = answer["choices"][0]
        text, reason = choice["text"], choice.get("finish_reason")
        if not isinstance(text, str):
            raise TypeError(type(text).__name__)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            "not an answer of the completions protocol",
            where=where,
            got=shown(content),
            expected='{"choices": [{"text": …}]}',
            hint="give the URL that ends before /completions, as http://host:8000/v1",
        ) from error
    tokens = _count(answer.get("usage"), "completion_tokens")
    return Text(_SURROGATE.sub("\ufffd", text), tokens, stopped=reason == "stop")


def chat(content: bytes, where: str, tools: Sequence[Mapping[str, Any]]) -> tuple[Text, bool]:
    """Return the text of a chat's answer, and whether it has a call in it that the server did not parse.

    Calls that the server parsed are the text, as JSON: ``[{"<function>": {"<parameter>": …}}]``.

    Raises:
        Again: it is not JSON.
        InputError: it is not an answer of the protocol.
    """
    answer = parsed(content)
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        spoken, calls = message.get("content") or "", message.get("tool_calls") or []
        made = [{call["function"]["name"]: _arguments(call["function"]["arguments"])} for call in calls]
        if not isinstance(spoken, str):
            raise TypeError(type(spoken).__name__)
        text = json.dumps(made, ensure_ascii=False) if made else spoken
        reason = "stop" if choice.get("finish_reason") == "tool_calls" else choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            "not an answer of the chat completions protocol",
            where=where,
            got=shown(content),
            expected='{"choices": [{"message": {"content": …}}]}',
            hint="give the URL that ends before /chat/completions, as http://host:8000/v1",
        ) from error
    usage = answer.get("usage")
    result = Text(_SURROGATE.sub("\ufffd", text), _count(usage, "completion_tokens"), stopped=reason == "stop")
    return result, not made and _spells_call(spoken, tools)


def _arguments(given: Any) -> Any:
    """Return the arguments of a call, which are JSON in a text; as they are if they are not."""
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


def _spells_call(text: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a text calls one of the tools by name, in a form of the common models."""
    names = "|".join(re.escape(str(tool["function"]["name"])) for tool in tools)
    # JSON, as Hermes and Qwen write it; Gemma; Llama; a list of Python calls, which is all that the text is.
    call = rf'"name"\s*:\s*"(?:{names})"|call:(?:{names})\s*{{|<function=(?:{names})|\A\W*(?:{names})\s*\('
    return bool(names) and re.search(call, text) is not None


def _count(usage: Any, name: str) -> int:
    """Return a count of tokens; -1 = not told, or one that cannot be."""
    tokens = usage.get(name) if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 <= tokens <= _MOST_TOKENS else -1


class Usage(NamedTuple):
    """What an answer tells of itself: why it ended, and tokens of prompt and text; -1 = not told."""

    reason: str
    prompt: int
    text: int


def usage(content: bytes) -> Usage:
    """Return what an answer of the protocol tells of itself."""
    answer = parsed(content)
    told = answer.get("usage")
    reason = str(answer["choices"][0].get("finish_reason"))
    return Usage(reason, _count(told, "prompt_tokens"), _count(told, "completion_tokens"))


def ids(content: bytes) -> list[int] | None:
    """Return the ids of an answer of ``/tokenize``; None if it has none."""
    answer = parsed(content)
    made = answer.get("tokens", answer.get("token_ids")) if isinstance(answer, dict) else None
    return made if isinstance(made, list) and all(type(item) is int for item in made) else None


def model_names(content: bytes) -> list[str]:
    """Return the models that an answer lists. Raises Again if it is not JSON."""
    answer = parsed(content)
    entries = answer.get("data") if isinstance(answer, dict) else None
    result = [item.get("id") for item in entries if isinstance(item, dict)] if isinstance(entries, list) else []
    names = [name for name in result if isinstance(name, str) and len(name) <= _LONGEST_NAME]
    return [_SURROGATE.sub("\ufffd", name) for name in names]


@dataclass(frozen=True)
class Refusal:
    """What a server says that refuses a request.

    Attributes:
        status: of http.
        words: its message.
        length: whether prompt and answer are too long together for the model's context.
        context: tokens of that context; None = the words do not say it.
        prompt: tokens of the prompt; None = not said.
        bound: the prompt has ``prompt`` tokens at least: they were not all counted.
    """

    status: int
    words: str
    length: bool = False
    context: int | None = None
    prompt: int | None = None
    bound: bool = False

    @classmethod
    def from_response(cls, status: int, content: bytes) -> Refusal:
        """Read an answer with a status that refuses."""
        try:
            answer = parsed(content)
        except Again:
            answer = None
        fields = answer if isinstance(answer, dict) else {}
        error = fields.get("error", fields)
        fields = error if isinstance(error, dict) else fields
        words = next(
            (item for item in (error, fields.get("message"), fields.get("detail")) if isinstance(item, str)), ""
        )
        words = _SURROGATE.sub("\ufffd", words) or shown(content)
        context, prompt = _CONTEXT.search(words), _PROMPT.search(words)
        if context is None and not any(fields.get(name) == code for name in ("code", "type") for code in _CODES):
            return cls(status, words[: 2 * SHOWN])
        figures = [fields.get("n_ctx", _figure(context)), fields.get("n_prompt_tokens", _figure(prompt))]
        limit, count = (item if type(item) is int else None for item in figures)
        bound = prompt is not None and "at least" in prompt[0]
        return cls(status, words[: 2 * SHOWN], True, limit, count, bound)

    def leaves_no_room(self, max_tokens: int) -> bool | None:
        """Return whether the prompt alone fills the context; None = not told, and told by a request of one token.

        Args:
            max_tokens: of the request that was refused.
        """
        if not self.length:
            return False
        if self.context is not None and self.prompt is not None and (self.prompt >= self.context or not self.bound):
            return self.prompt >= self.context
        if self.context is not None and max_tokens >= self.context > 1:
            return False
        if max_tokens > 1:
            return None
        return self.prompt is None and not _OF_ANSWER.search(self.words)

    def error(self, where: str, max_tokens: int = 0) -> InputError:
        """Return it as an error of pairmill."""
        got = f"status {self.status}: {self.words}"
        if _NO_PARSER.search(self.words):
            return no_tool_parser(where, got)
        if not self.length or not max_tokens:
            hint = "see what the server does not take, in its log or documentation"
            return InputError("the server refused a question", where=where, got=got, hint=hint)
        room = 0 if self.context is None or self.prompt is None else self.context - self.prompt
        fewer = f"{room:,} or fewer" if 0 < room < max_tokens else "fewer"
        return InputError(
            f"the server has no room for an answer of {max_tokens:,} tokens",
            where=where,
            got=got,
            hint=f"set=generation.max_tokens=<{fewer}>, or benchmarks.<name>.max_tokens; or give it a longer context",
        )


def no_tool_parser(where: str, got: str) -> InputError:
    """Return the error of a server that leaves calls of tools in the text."""
    return InputError(
        "the server has no tool parser, so its answers have no score",
        where=where,
        got=got,
        expected="calls as tool_calls of the message",
        hint="start it with one, as vllm serve --enable-auto-tool-choice --tool-call-parser <that of the model>",
    )


def _figure(match: re.Match[str] | None) -> int | None:
    digits = next((group for group in match.groups() if group), "") if match else ""
    return int(digits[:_DIGITS]) if digits else None
