"""A row as the trainer sees it: prompt and answer as text, with control tokens apart, and what is known beside it."""

import re
from dataclasses import dataclass
from functools import cached_property

from pairmill.chats.render import Chat

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@dataclass(frozen=True)
class TokenText:
    """Some tokens as text.

    Args:
        parts: texts, and whether each is a control token.
    """

    parts: tuple[tuple[str, bool], ...]

    @cached_property
    def plain(self) -> str:
        """The text without control tokens."""
        return "".join(text for text, is_control in self.parts if not is_control)

    @cached_property
    def shown(self) -> str:
        """The text with control tokens in double brackets."""
        return "".join(f"⟦{text}⟧" if is_control else text for text, is_control in self.parts)

    @cached_property
    def words(self) -> list[str]:
        """Its words in lower case, numbers left out."""
        return [word.lower() for word in _WORD.findall(self.plain)]

    @property
    def ends(self) -> bool:
        """Whether its last token is a control token; templates may write white space after it."""
        last = next((part for part in reversed(self.parts) if part[1] or part[0].strip()), ("", False))
        return last[1]


@dataclass(frozen=True)
class AuditedRow:
    """A row of a plan.

    Args:
        task: of the tokenized folder.
        ordinal: of the row in the task's row file, from 0.
        prompt: what is given.
        answer: what is learned.
        tokens: of prompt and answer.
        lost: tokens of the answer that the plan cuts off.
        languages: that the source says it has, as in ``da`` or ``en``; none = it does not say.
        template: the chat template's text; empty = there is none.
        controls: texts of the tokenizer's control tokens.
        ended: whether the folder's rows end with a token of their own.
        chat: that the row was rendered of; None of a pair, or where the rows are not at hand.
    """

    task: str
    ordinal: int
    prompt: TokenText
    answer: TokenText
    tokens: tuple[int, int]
    lost: int = 0
    languages: tuple[str, ...] = ()
    template: str = ""
    controls: tuple[str, ...] = ()
    ended: bool = False
    chat: Chat | None = None
