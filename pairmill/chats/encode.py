"""Encodes rendered rows: control tokens that the template wrote get their ids, and texts of messages never do.

Prompt and whole give the ids that the tokenizers library gives for them with special tokens recognised and none added.
A chat none of whose texts could become part of a control token is encoded as it is. Any other is rendered again with a
mark in its texts wherever a token could begin or end, so that a token with a part of a message in it is not recognised.
Those that are recognised get an alias each, the marks are removed, and a tokenizer with these aliases in place of its
control tokens encodes the text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import arrow_compute as pc
from pairmill.chats.account import TemplateFailed
from pairmill.chats.control import ControlTokens, aliased, recognising
from pairmill.chats.render import APART, PREFIX_MISMATCH, Chat, PrefixMismatch, render
from pairmill.chats.template import ChatTemplate
from pairmill.encoder import Encoded, Encoder

IDS_MISMATCH: Final = "prefix_mismatch_ids"
SPELLED: Final = "control_token_in_text"
TOO_SHORT: Final = "too_few_response_tokens"
NO_PROMPT: Final = "no_prompt_token"
"""Why a rendered row has no arrays."""

_WHOLE_TOKENS: Final = re.compile(r'"ignore_merges"\s*:\s*true')
_MARKS: Final = range(0xE000, 0xF8FF)
_TAIL: Final = 256
"""Characters of a prompt's end in which its last control token is looked for."""
# What cuts inside a text or changes letters: then two parts of a message can become neighbours, and make a token.
_CUTS: Final = re.compile(
    r"\b(?:r?split|splitlines|r?partition|replace|remove(?:prefix|suffix)|lower|upper|title|capitalize|casefold"
    r"|swapcase|reverse)\b|strip\s*\(\s*[^)\s]|\[[^\]{}]*:[^\]{}]*\]"
)
_SLICED_LISTS: Final = re.compile(r"\b\w*(?:messages|tools)\w*\s*\[[^\]{}]*:[^\]{}]*\]")


class EncodedRow(NamedTuple):
    """The ids of a row, uint32 [n].

    Args:
        ids: prompt and response.
        prompt: how many of them are the prompt's.
        apart: whether prompt and rest were encoded apart, because the ids of the whole do not begin with the prompt's.
    """

    ids: NDArray[np.uint32]
    prompt: int
    apart: bool = False


class ChatEncoder:
    """Encodes rows that one template rendered.

    Args:
        text: the tokenizer.json.
        where: it is, for messages.
        checked: whether our own encoder of this tokenizer was compared with the library before.
    """

    def __init__(self, text: str, where: str, template: ChatTemplate, *, checked: bool = False) -> None:
        self._text, self._where, self._template, self._checked = text, where, template, checked
        self._tokens = tokens = ControlTokens.from_json(text, template.literals)
        self._encoder = Encoder.from_json(recognising(text), where=where, checked=checked)
        self._alias = re.compile(f"[{''.join(tokens.aliases.values()) or chr(0xFFFFF)}]")
        self._cuts = _CUTS.search(_SLICED_LISTS.sub("", template.text)) is not None
        # The template looks for these in texts. A mark in one would change what it does.
        self._stops = tokens.stops(
            [
                item
                for item in template.literals
                if len(item) > 1 and item not in tokens.begins and not any(token in item for token in tokens.special)
            ]
        )

    def encode(
        self, prompts: Sequence[str], rests: Sequence[str], chats: Sequence[str], boundary: str, least: int
    ) -> Iterator[EncodedRow | str]:
        """Yield the ids of rows; of a row that is to have none, the reason.

        Args:
            prompts: the rendered prompts.
            rests: what the wholes have after them.
            chats: the chats that were rendered, as JSON.
            boundary: see :mod:`pairmill.chats.render`.
            least: tokens that a response has to have.

        Raises:
            UsageError: the template does what none may do.
            InputError: the library fails on a text.
        """
        made: list[EncodedRow | str] = [SPELLED] * len(prompts)
        read: dict[int, Chat] = {}
        suspect = self._suspect(chats, read)
        rows = np.flatnonzero(~suspect).tolist()
        encoded = _encode(self._encoder, self._tokens, [(prompts[row], rests[row]) for row in rows], boundary)
        for row, item in zip(rows, encoded, strict=True):
            made[row] = item
        if suspect.any():
            rows, texts = [], []
            for row in np.flatnonzero(suspect).tolist():
                pair = self._write_aliases(prompts[row], rests[row], read.get(row) or Chat.from_json(chats[row]))
                if pair is not None:
                    rows.append(row)
                    texts.append(pair)
            encoder, tokens, numbers = self._aliased
            for row, item in zip(rows, _encode(encoder, tokens, texts, boundary), strict=True):
                made[row] = item if isinstance(item, str) else item._replace(ids=numbers[item.ids])
        for item in made:
            if isinstance(item, str):
                yield item
            elif not item.prompt:
                yield NO_PROMPT
            else:
                yield item if len(item.ids) - item.prompt >= least else TOO_SHORT

    def encode_chat(self, chat: Chat, boundary: str, least: int) -> EncodedRow | str:
        """Render and encode one chat; return its ids, or why it has none.

        Args:
            chat: the answer is its last message.
            boundary, least: as for :meth:`encode`.

        Raises:
            TemplateFailed: the template refuses the chat.
        """
        try:
            prompt, rest = render(self._template, chat)
        except PrefixMismatch:
            return PREFIX_MISMATCH
        (row,) = self.encode([prompt], [rest], [chat.to_json()], boundary, least)
        return row

    def encode_prompt(self, chat: Chat) -> tuple[list[int], int | None]:
        """Return the ids of a chat's prompt, and that of the first control token behind its answer; None if none is.

        Raises:
            TemplateFailed: the template refuses the chat.
        """
        row = self.encode_chat(chat, APART, 1)
        if isinstance(row, str):
            raise TemplateFailed(row)
        control = {self._encoder.token_to_id(token) for token in self._tokens.special}
        ids = row.ids.tolist()
        return ids[: row.prompt], next((number for number in ids[row.prompt :] if number in control), None)

    def count(self, text: str) -> int:
        """Return the tokens of a rendered text, all of whose control tokens are taken for the template's."""
        return len(self._encoder.encode([text]).ids)

    def _suspect(self, chats: Sequence[str], read: dict[int, Chat]) -> NDArray[np.bool_]:
        """Return whether a text of each chat could become part of a control token; bool [rows].

        Those that have to be looked at are put into ``read``.
        """
        tokens = self._tokens
        if not tokens.special or not chats:
            return np.zeros(len(chats), np.bool_)

        texts = pa.array(chats, pa.large_string())
        result = np.asarray(pc.match_substring_regex(texts, tokens.suspicion), np.bool_)
        if not self._cuts:
            for row in np.flatnonzero(result).tolist():
                read[row] = Chat.from_json(chats[row])
                result[row] = any(map(tokens.is_in, _texts_of(read[row])))
            return result
        for signs in tokens.signs:
            there = np.ones(len(chats), np.bool_)
            for sign in signs:
                there &= np.asarray(pc.match_substring(texts, sign), np.bool_)
            result |= there
        return result

    def _write_aliases(self, prompt: str, rest: str, chat: Chat) -> tuple[str, str] | None:
        """Return prompt and rest with an alias for each control token of the template; None if they cannot be told."""
        whole, tokens = prompt + rest, self._tokens
        texts = "".join(_texts_of(chat))
        mark = next(chr(code) for code in _MARKS if chr(code) not in whole and chr(code) not in texts)
        if self._alias.search(whole) is not None:
            return None
        if any(token in texts for token in tokens.special if len(token) == 1):
            return None  # no mark breaks it
        marked = _map_texts(chat, lambda item: tokens.mark(item, mark, self._stops))
        try:
            rendered = self._template.render(marked.messages, marked.tools, generation_prompt=False)
        except TemplateFailed:
            return None
        if rendered.replace(mark, "") != whole:
            return None
        sides: tuple[list[str], list[str]] = [], []
        done = marks = at = 0
        for hit in tokens.pattern.finditer(rendered):
            alias = tokens.aliases.get(hit[0])
            marks += rendered.count(mark, at, hit.start())
            at = hit.start()
            if alias is None or mark in hit[0]:
                continue
            start = hit.start() - marks
            end = start + len(hit[0])
            if start < len(prompt) < end:
                return None
            if done < len(prompt) <= start:
                sides[0].append(whole[done : len(prompt)])
                done = len(prompt)
            sides[start >= len(prompt)].extend((whole[done:start], alias))
            done = end
        if done < len(prompt):
            sides[0].append(whole[done : len(prompt)])
            done = len(prompt)
        sides[1].append(whole[done:])
        return "".join(sides[0]), "".join(sides[1])

    @cached_property
    def _aliased(self) -> tuple[Encoder, ControlTokens, NDArray[np.uint32]]:
        """The tokenizer with aliases, its tokens, and the id that each of its ids has in the tokenizer itself."""
        aliases = self._tokens.aliases
        # Merges make no added token of the pieces of a text; other models may know it as a piece.
        rename = self._encoder.native is None or _WHOLE_TOKENS.search(self._text) is not None
        text = aliased(self._text, aliases, rename=rename)
        encoder = Encoder.from_json(text, where=self._where, checked=self._checked)
        numbers = np.arange(max(encoder.vocab_size, self._encoder.vocab_size), dtype=np.uint32)
        others = {token: token for token in self._tokens.others}
        for token, alias in {**others, **aliases}.items():
            there, here = encoder.token_to_id(alias), self._encoder.token_to_id(token)
            if there is not None and here is not None:
                numbers[there] = here
        names = ControlTokens(tuple(aliases.values()), self._tokens.others, self._tokens.independent)
        return encoder, names, numbers


def _encode(
    encoder: Encoder, tokens: ControlTokens, texts: Sequence[tuple[str, str]], boundary: str
) -> list[EncodedRow | str]:
    """Encode prompts and wholes. Of a prompt only what is behind its last control token is encoded twice."""
    cut = [0] * len(texts)
    if encoder.native is not None and tokens.independent:
        cut = [_end_of_last(tokens, prompt) for prompt, _ in texts]
    pairs = list(zip(texts, cut, strict=True))
    wholes = encoder.encode([part for (p, r), at in pairs for part in (p[:at], p[at:] + r)])
    prompts = encoder.encode([p[at:] for (p, _), at in pairs])
    begins, ends = wholes.offsets[1::2], wholes.offsets[2::2]
    differ = _differ(wholes, prompts, begins, ends)
    heads = begins - wholes.offsets[:-1:2]
    sizes = heads + np.diff(prompts.offsets)
    made: list[EncodedRow | str] = [
        EncodedRow(wholes.ids[start:end], size)
        for start, end, size in zip(wholes.offsets[:-1:2].tolist(), ends.tolist(), sizes.tolist(), strict=True)
    ]
    rows = np.flatnonzero(differ).tolist()
    rests = encoder.encode([texts[row][1] for row in rows]) if rows and boundary == APART else None
    for number, row in enumerate(rows):
        made[row] = IDS_MISMATCH
        if rests is not None:
            head = wholes.ids[wholes.offsets[2 * row] : begins[row]]
            parts = (head, _ids(prompts, row), _ids(rests, number))
            made[row] = EncodedRow(np.concatenate(parts), int(sizes[row]), True)
    return made


def _differ(wholes: Encoded, prompts: Encoded, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the ids from ``begins`` to ``ends`` do not begin with those of a prompt; bool [rows]."""
    sizes = np.diff(prompts.offsets)
    result: NDArray[np.bool_] = sizes > ends - begins
    rows = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(len(prompts.ids)) - np.repeat(prompts.offsets[:-1] - begins, sizes)
    inside = places < np.repeat(ends, sizes)
    unequal = wholes.ids[places[inside]] != prompts.ids[inside]
    result[rows[inside][unequal]] = True
    return result


def _ids(encoded: Encoded, row: int) -> NDArray[np.uint32]:
    return encoded.ids[encoded.offsets[row] : encoded.offsets[row + 1]]


def _end_of_last(tokens: ControlTokens, prompt: str) -> int:
    """Return the place behind the last added token near the end of a prompt; 0 if there is none."""
    start = max(len(prompt) - _TAIL, 0)
    ends = [hit.end() for hit in tokens.pattern.finditer(prompt, start)]
    return ends[-1] if ends else 0


def _texts_of(chat: Chat) -> Iterator[str]:
    """Yield all texts of a chat but the roles, which are the template's words."""
    below: list[Any] = [chat.tools, *({**message, "role": None} for message in chat.messages)]
    while below:
        item = below.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            below += item
        elif isinstance(item, dict):
            below += item
            below += item.values()


def _map_texts(chat: Chat, change: Any) -> Chat:
    """Return a chat with all texts but the roles changed."""

    def changed(item: Any) -> Any:
        if isinstance(item, str):
            return change(item)
        if isinstance(item, list):
            return [changed(each) for each in item]
        if isinstance(item, dict):
            return {change(name): changed(each) for name, each in item.items()}
        return item

    messages = [{**changed(message), "role": message["role"]} for message in chat.messages]
    return Chat(messages, changed(chat.tools))
