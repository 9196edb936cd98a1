"""Rendered rows: the prompt is what a server renders, and prompt and answer are the whole chat as the template has it.

A row of a chat that a template renders has the prompt P = template(messages without the answer, generation prompt) as
its instruction, and as its response what the whole F = template(messages) has after P. Beside the row is the chat
itself, as JSON: tokenize tells by it which control tokens the template wrote (:mod:`pairmill.chats.encode`).
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from pairmill.chats.template import ChatTemplate

WHOLE: Final = "prefix_of_whole"
"""Prompt and whole are encoded, and the ids of the whole begin with those of the prompt."""
APART: Final = "apart"
"""Where they do not, prompt and rest are encoded apart."""
BOUNDARIES: Final = (WHOLE, APART)
PREFIX_MISMATCH: Final = "prefix_mismatch_template"
"""The reason of a row whose whole does not begin with its prompt: the template changes the history."""


class PrefixMismatch(Exception):
    """The whole does not begin with the prompt."""


class Chat(NamedTuple):
    """What a template renders.

    Args:
        messages: in OpenAI's form; the answer is the last.
        tools: declarations of tools; None = there are none.
    """

    messages: Sequence[dict[str, Any]]
    tools: Sequence[Any] | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote."""
        chat = json.loads(text)
        return cls(chat["messages"], chat.get("tools"))

    def to_json(self) -> str:
        """Return it as one line; characters beyond ASCII are not escaped."""
        data = {"messages": self.messages, **({} if self.tools is None else {"tools": self.tools})}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def render(template: ChatTemplate, chat: Chat) -> tuple[str, str]:
    """Return the prompt, and what the whole has after it.

    Raises:
        PrefixMismatch: the template changes the history.
        TemplateFailed, UsageError: as :meth:`pairmill.chats.template.ChatTemplate.render`.
    """
    prompt = template.render(chat.messages[:-1], chat.tools)
    whole = template.render(chat.messages, chat.tools, generation_prompt=False)
    if not whole.startswith(prompt):
        raise PrefixMismatch
    return prompt, whole[len(prompt) :]


def chat_from_pair(condition: str, instruction: str, response: str) -> Chat:
    """Return a pair as a chat; a condition other than ``direct`` is named by a system message."""
    first = [] if condition in ("", "direct") else [{"role": "system", "content": f"Task condition: {condition}"}]
    turns = [{"role": "user", "content": instruction}, {"role": "assistant", "content": response}]
    return Chat([*first, *turns])
