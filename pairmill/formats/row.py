"""A row: the texts of an instruction and its response."""

from typing import NamedTuple, Self


class Row(NamedTuple):
    """One instruction/response pair. ``condition`` is one or more tags joined by commas.

    A text is None only where data_io's own output holds a null.
    """

    condition: str
    instruction: str | None
    response: str | None


class RenderedRow(Row):
    """A row whose texts a chat template rendered: the prompt, and the rest of the whole.

    Attributes:
        chat: the messages and tools that were rendered, as :func:`pairmill.chats.render.to_json` writes them.
    """

    chat: str

    def __new__(cls, condition: str, instruction: str, response: str, chat: str) -> Self:
        made = super().__new__(cls, condition, instruction, response)
        made.chat = chat
        return made
