"""Chat templates of tokenizers: what renders messages as a model was trained on them.

A template is the program of a stranger; :mod:`pairmill.chats.sandbox` runs it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pairmill.chats.account import CONFIG, TOKENS, Refused, TemplateFailed
from pairmill.errors import UsageError

if TYPE_CHECKING:
    from pairmill.chats.sandbox import Compiled

MAX_TEMPLATE = 128 << 10
"""Characters of a template."""
MAX_HISTORY = 1 << 19
"""Characters of a history that a template is given."""
_ENDINGS = (".jinja", ".jinja2", ".j2", ".json", ".txt")
_STATEMENTS = ("{%", "{{", "{#")
_BESIDE = "chat_template.jinja"
EXPECTED = f"plain, a text with {{{{ … }}}} in it, {CONFIG}, or a file ending in {', '.join(_ENDINGS)}"
"""What a description may have as its template."""
RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
"""Variables that a rendering sets itself."""
_HINT = "write 'template: plain', or a template that looks at each message once"

_TRIAL = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "?"},
)


@dataclass(frozen=True)
class ChatTemplate:
    """A template that is known to compile.

    Args:
        text: the template.
        place: where it is named, for messages.
        tokens: special tokens that it knows by name, as bos_token.
        variables: further variables that it gets, as enable_thinking.
    """

    text: str
    place: str = field(compare=False)
    tokens: tuple[tuple[str, str], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def from_data(cls, described: Mapping[str, Any], place: str) -> Self:
        """Return the template that :meth:`to_data` describes."""
        return cls(described["text"], place, tuple(sorted(described["tokens"].items())), described["variables"])

    def to_data(self) -> dict[str, Any]:
        """Return what its renderings follow from, beside the messages; JSON-like."""
        return {"text": self.text, "tokens": dict(self.tokens), "variables": dict(self.variables)}

    @functools.cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over text, tokens and variables."""
        data = json.dumps(self.to_data(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(data.encode()).hexdigest()[:16]

    @property
    def literals(self) -> tuple[str, ...]:
        """The texts that are written in the template and can hold a control token, and its tokens."""
        return (*_compiled(self.text).literals, *(token for _, token in self.tokens))

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, generation_prompt: bool = True
    ) -> str:
        """Return the text of messages, as transformers renders it.

        Args:
            messages: in OpenAI's form.
            tools: declarations of tools in OpenAI's form; None = there are none.
            generation_prompt: whether the text ends with the beginning of the assistant's next turn.

        Raises:
            TemplateFailed: the template refuses these messages.
            UsageError: it does what no template may do, or prints a variable that it does not get.
        """
        known = {**dict(self.tokens), **self.variables, "messages": messages, "tools": tools, "documents": None}
        known["add_generation_prompt"] = generation_prompt
        try:
            return _compiled(self.text).render(known)
        except Refused as error:
            raise self._placed(error) from error

    def check(self) -> None:
        """Compile the template and try it.

        A template that runs away does so at once, before anything is fetched or cleaned. One that fails here may refuse
        these messages and take others.

        Raises:
            UsageError: it cannot be used.
        """
        try:
            _compiled(self.text)
        except Refused as error:
            raise self._placed(error) from error
        with suppress(TemplateFailed):
            self.render([dict(message) for message in _TRIAL])

    def _placed(self, error: Refused) -> UsageError:
        """Return a refusal as an error that says where the template is."""
        return UsageError(error.what, where=self.place, expected=error.expected, hint=error.hint or _HINT)


def is_one(given: str) -> bool:
    """Return whether a text is a template or, by its name, a file with one."""
    return any(sign in given for sign in _STATEMENTS) or given.endswith(_ENDINGS)


def refuse_reserved(variables: Mapping[str, Any], place: str) -> None:
    """Raise UsageError for a variable that each rendering sets itself."""
    for name in variables:
        if name in RESERVED:
            expected = f"a name other than {', '.join(RESERVED)}"
            raise UsageError("the variable is set by each rendering", where=place, got=name, expected=expected)


def load(
    given: str, place: str, read: Callable[[str], bytes], variables: Mapping[str, Any] | None = None
) -> ChatTemplate:
    """Return the template that a description or an option names or holds.

    Args:
        given: a template, or the path of one: :func:`is_one` is true of it.
        place: where it is given, for messages.
        read: returns the bytes of a file that ``given`` names, or one beside it.
        variables: what it gets beside messages and tokens.

    Raises:
        UsageError: no such file, or not a template that can be used.
    """
    tokens: dict[str, str] = {}
    text = given
    if not any(sign in given for sign in _STATEMENTS):
        text = _decoded(place, given, read(given))
        if given.endswith(".json"):
            text, tokens = _read_config(place, given, text, read)
    if len(text) > MAX_TEMPLATE:
        got, expected = f"{len(text)} characters", f"at most {MAX_TEMPLATE}"
        raise UsageError("the template is too long", where=place, got=got, expected=expected)
    refuse_reserved(variables or {}, place)
    template = ChatTemplate(text, place, tuple(sorted(tokens.items())), dict(variables or {}))
    template.check()
    return template


def _decoded(place: str, path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError("the file is not UTF-8", where=place, got=repr(path), expected="a template") from error


def _read_config(place: str, path: str, text: str, read: Callable[[str], bytes]) -> tuple[str, dict[str, str]]:
    """Return the template and the special tokens of a ``tokenizer_config.json``; the template may be in a file beside
    it."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the file is not JSON", where=place, got=repr(path), expected=CONFIG) from error
    config = config if isinstance(config, dict) else {}
    tokens: dict[str, str] = {}
    for name in TOKENS:
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    result = config.get("chat_template")
    if isinstance(result, list):
        named = {item.get("name"): item.get("template") for item in result if isinstance(item, dict)}
        result = named.get("default")
    if result is None:
        beside = path[: -len(path.rsplit("/", 1)[-1])] + _BESIDE
        result = _decoded(place, beside, read(beside))
    if not isinstance(result, str):
        expected = f"a text under chat_template, a list with a default, or {_BESIDE} beside it"
        raise UsageError("the file has no chat template", where=place, got=repr(path), expected=expected)
    # A token that the tokenizer does not have is printed as nothing, as in transformers.
    return result, {**{name: "" for name in TOKENS if name in result}, **tokens}


@functools.lru_cache(maxsize=16)
def _compiled(text: str) -> Compiled:
    # jinja2 is imported when there is a template.
    from pairmill.chats.sandbox import Compiled

    return Compiled(text)
