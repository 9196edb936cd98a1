"""Prompts as rows of training begin, and texts from token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from pairmill.chats.encode import ChatEncoder
from pairmill.chats.render import chat_from_pair
from pairmill.chats.template import ChatTemplate
from pairmill.encoder import Encoder
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.chat_digests import KEY as CHAT_TEMPLATE


class Prompts:
    """Makes token ids of prompts, and texts of token ids.

    A prompt of a net that was trained on rows is ``boq``, a token for each tag, the text, ``eoq``; an answer ends with
    ``eoa``. If a chat template rendered the rows, it renders the prompt as a question too, and an answer ends with the
    template's own token. That of a net that was trained on flat files of documents is the text alone, and a document
    ends with ``eod``.

    Args:
        tokenizer: the text of a tokenizer.json.
        info: see `Trained.tokenizer_info`.
        find_specials: whether special tokens that are spelled out in a prompt become those tokens. In training they
            never do, and so they do not by default; HRM-Text's generation does it.
        where: names the run in errors.

    Attributes:
        stop: id of the token that ends an answer.
        start: id of the first token of every prompt; None if prompts have none.
        template: the chat template that renders prompts; None without one.

    Raises:
        InputError: not a tokenizer, or it lacks a token that `info` names.
    """

    stop: int
    start: int | None
    template: ChatTemplate | None

    def __init__(
        self, tokenizer: str, info: Mapping[str, Any], *, find_specials: bool = False, where: str = "tokenizer.json"
    ) -> None:
        self._encoder = Encoder.from_json(tokenizer, where=where)
        self._json, self._where, self._find_specials = tokenizer, where, find_specials
        self.conditions: dict[str, int] = {}
        self._end: list[int] = []
        self.template: ChatTemplate | None = None
        if described := info.get(CHAT_TEMPLATE):
            self.template = ChatTemplate.from_data(described, f"the chat template of {where}")
            self._chats = ChatEncoder(tokenizer, where, self.template)
            begin, stop = self._chats.encode_prompt(chat_from_pair("", "Hi", "Hello"))
            self.start = begin[0]
            self.stop = self._id(info["eoa"]) if stop is None else stop
        elif "eoa" in info:
            self.start, self._end, self.stop = self._id(info["boq"]), [self._id(info["eoq"])], self._id(info["eoa"])
            self.conditions = {tag: self._id(token) for tag, token in info.get("condition_mapping", {}).items()}
        elif "eod" in info:
            self.start, self.stop = None, self._id(info["eod"])
        else:
            raise InputError(
                "it is not known which tokens begin and end a text",
                where=where,
                got=", ".join(info) or "nothing",
                expected="boq, eoq and eoa, or eod",
            )

    def id_of(self, token: str) -> int | None:
        """Return the id of a token, or None."""
        return self._encoder.token_to_id(token)

    def token_of(self, number: int) -> str:
        """Return the token of an id."""
        token: str = self._library.id_to_token(number)
        return token

    def layout(self) -> dict[str, Any]:
        """Return what is around the text of a prompt: ids that begin it, an id by tag, ids that end it.

        Of rows that a chat template rendered it is the template's variables.
        """
        if self.template is not None:
            return {"chat": dict(self.template.variables)}
        return {"begin": [] if self.start is None else [self.start], "tags": self.conditions, "end": self._end}

    def _id(self, token: str) -> int:
        number = self.id_of(token)
        if number is None:
            raise InputError(
                "the tokenizer lacks a token", where=self._where, got=repr(token), hint="it is not that of the run"
            )
        return number

    def ids(self, prompt: str, condition: Sequence[str] = ()) -> list[int]:
        """Encode a prompt, whose spaces at both ends are left out.

        Args:
            prompt: the text.
            condition: tags, in the order in which their tokens come.

        Raises:
            UsageError: the net knows no such tag, or the prompt is empty and nothing else comes before the answer.
        """
        if self.template is not None:
            return self._chats.encode_prompt(chat_from_pair(",".join(condition), prompt.strip(), "."))[0]
        for tag in condition:
            if tag not in self.conditions:
                expected = ", ".join(sorted(self.conditions)) or "none: the net was trained on texts without tags"
                hint = did_you_mean(tag, self.conditions)
                raise UsageError("unknown tag", where="condition", got=repr(tag), expected=expected, hint=hint)
        text = self._text_ids(prompt.strip())
        made = [*self.layout()["begin"], *(self.conditions[tag] for tag in condition), *text, *self._end]
        if not made:
            raise UsageError("is empty", where="prompt", expected="a text")
        return made

    def answer_ids(self, text: str) -> list[int]:
        """Encode what an answer begins with.

        After a prompt that a token ends, an answer begins without a space, as in training; else the text goes on.
        """
        made: list[int] = self._encoder.encode([text.strip() if self._end else text]).ids.tolist()
        return made

    def _text_ids(self, text: str) -> list[int]:
        if self._find_specials:
            result: list[int] = self._library.encode(text, add_special_tokens=False).ids
            return result
        made: list[int] = self._encoder.encode([text]).ids.tolist()
        return made

    def text(self, ids: Sequence[int]) -> str:
        """Decode an answer: without a stop token at its end; other special tokens stay."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.stop else list(ids)
        made: str = self._library.decode(kept, skip_special_tokens=False)
        return made

    @property
    def _library(self) -> Any:
        if not hasattr(self, "_tokenizer"):
            self._tokenizer = Tokenizer.from_str(self._json)
        return self._tokenizer
