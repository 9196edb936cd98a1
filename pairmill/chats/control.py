"""The control tokens of a tokenizer: where texts spell them, and tokenizers that recognise them or aliases of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from pairmill.errors import InputError, did_you_mean

_ALIASES: Final = range(0xF0000, 0xFFFFE)
_LOOKS_LIKE_A_TOKEN: Final = re.compile(
    r"<[|｜][^<>|｜\s'\"{}]{1,60}[|｜]>|<\|[a-z_]{1,40}>|<[a-z_]{1,40}\|>|<(?:start|end)_of_[a-z]+>|<[be]os>|</?s>"
)
_PARTS: Final = (slice(1), slice(-1, None), slice(2), slice(-2, None))
_ADDED: Final = re.compile(r'"added_tokens"\s*:\s*')
_SHOWN: Final = 5
_FLAGS: Final = ("single_word", "lstrip", "rstrip")


@dataclass(frozen=True)
class ControlTokens:
    """The added tokens of a tokenizer.

    Args:
        special: the control tokens: those that are special, and marks such as ``<｜User｜>`` that a template writes.
        others: those that are recognised in any text.
        independent: whether the text between two of them is encoded as if it were alone.
    """

    special: tuple[str, ...]
    others: tuple[str, ...]
    independent: bool

    @classmethod
    def from_json(cls, text: str, literals: Sequence[str] = ()) -> ControlTokens:
        """Read a tokenizer.json; ``literals`` are the texts that a template writes."""
        listed = [item for item in _added_tokens(text)[0] if item["content"]]
        marks = {hit for item in literals for hit in _LOOKS_LIKE_A_TOKEN.findall(item)}
        control = [bool(item.get("special")) or item["content"] in marks for item in listed]
        special = tuple(item["content"] for item, chosen in zip(listed, control, strict=True) if chosen)
        others = tuple(item["content"] for item, chosen in zip(listed, control, strict=True) if not chosen)
        plain = not any(item.get(flag) for item in listed for flag in _FLAGS)
        return cls(special, others, plain and not _overlap({*special, *others}))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds added tokens as the library does: the leftmost, and of those the longest."""
        return _any_of({*self.special, *self.others})

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """A private character for each control token."""
        taken = "".join(self.others)
        return dict(zip(self.special, (chr(code) for code in _ALIASES if chr(code) not in taken), strict=False))

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """All that a control token begins with and that is not all of it."""
        return tuple({token[:size] for token in self.special for size in range(1, len(token))})

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """All that a control token ends with and that is not all of it."""
        return tuple({token[-size:] for token in self.special for size in range(1, len(token))})

    @cached_property
    def suspicion(self) -> str:
        """An RE2 expression that is in the JSON of any chat with a text for which :meth:`is_in` is true."""
        tokens = [json.dumps(token, ensure_ascii=False)[1:-1] for token in self.special]
        first, last, two, end = ("|".join(sorted({re.escape(token[part]) for token in tokens})) for part in _PARTS)
        signs = "".join(sorted({re.escape(sign) for token in tokens for sign in token}))
        some = f"[{signs}]{{0,{max(map(len, tokens), default=0)}}}"
        blank = r"(?:\\[nrtfb]|\\u[0-9a-f]{4}|\s|\p{Z})*"
        at_end = f'(?:{first}|(?:{two}){some}){blank}"'
        at_start = f'[:,\\[{{]"{blank}(?:{last}|{some}(?:{end}))'
        return "|".join([*sorted(map(re.escape, tokens)), at_end, at_start])

    @cached_property
    def signs(self) -> list[list[str]]:
        """Of each control token the characters that are neither letters nor digits, as JSON has them.

        A text that lacks one of them has no part of which the token could be made.
        """
        sets = {frozenset(sign for sign in token if not sign.isalnum()) for token in self.special}
        least = [signs for signs in sets if not any(other < signs for other in sets)]
        return [[json.dumps(sign, ensure_ascii=False)[1:-1] for sign in sorted(signs)] for signs in least]

    def is_in(self, text: str) -> bool:
        """Return whether a text has a control token, or could be the beginning or the end of one."""
        if self._finder.search(text) is not None:
            return True
        for item in (text, text.strip()):
            tail, head = item[-self._longest :], item[: self._longest]
            if any(sign in tail for sign in self._firsts) and item.endswith(self.begins):
                return True
            if any(sign in head for sign in self._lasts) and item.startswith(self.ends):
                return True
        return False

    @cached_property
    def _finder(self) -> re.Pattern[str]:
        return _any_of(self.special)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.special), default=1)

    @cached_property
    def _firsts(self) -> list[str]:
        return sorted({token[0] for token in self.special})

    @cached_property
    def _lasts(self) -> list[str]:
        return sorted({token[-1] for token in self.special})

    def stops(self, kept: Sequence[str]) -> re.Pattern[str]:
        """Find where :meth:`mark` puts marks: behind what a token begins with, but not in one of ``kept``."""
        return re.compile(f"{_any_of(kept).pattern}|([{''.join(map(re.escape, self._firsts))}])")

    def mark(self, text: str, mark: str, stops: re.Pattern[str]) -> str:
        """Return a text with marks wherever a control token could begin or end, so that none is spelled."""
        places = {hit.start() + 1 for hit in stops.finditer(text) if hit[1]}
        places |= {hit.start() + 1 for hit in self._finder.finditer(text)}
        made = text
        if places:
            ends = [0, *sorted(places), len(text)]
            made = mark.join(text[start:stop] for start, stop in pairwise(ends))
        bare = made.lstrip()
        if any(sign in bare[: self._longest] for sign in self._lasts) and bare.startswith(self.ends):
            return f"{made[: len(made) - len(bare)]}{mark}{bare}"
        return made


def _any_of(texts: Sequence[str] | set[str] | tuple[str, ...]) -> re.Pattern[str]:
    ordered = sorted(set(texts), key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, ordered)) or "(?!)")


def _overlap(tokens: set[str]) -> bool:
    """Return whether one token can begin within another, so that it matters where a search begins."""
    begins = {token[:size] for token in tokens for size in range(1, len(token) + 1)}
    return any(
        token[at:end] in tokens or token[at:] in begins
        for token in tokens
        for at in range(1, len(token))
        for end in range(at + 1, len(token) + 1)
    )


def recognising(text: str) -> str:
    """Return a tokenizer.json whose control tokens are recognised in texts."""
    return aliased(text, {}, rename=False)


def aliased(text: str, aliases: Mapping[str, str], *, rename: bool) -> str:
    """Return a tokenizer.json that has aliases in place of control tokens, and recognises those in texts.

    Args:
        text: the tokenizer.json.
        aliases: by token.
        rename: whether the model has them too, so that it makes no control token of a text that spells one.
    """
    listed, start, stop = _added_tokens(text)
    for token in listed:
        if token.get("special") or token["content"] in aliases:
            token |= {"special": False, "normalized": False}
            token["content"] = aliases.get(token["content"], token["content"])
    made = f"{text[:start]}{json.dumps(listed, ensure_ascii=False)}{text[stop:]}" if listed else text
    if rename:
        settings = json.loads(made)
        _rename(settings["model"], aliases)
        made = json.dumps(settings, ensure_ascii=False)
    return made


def _added_tokens(text: str) -> tuple[list[dict[str, Any]], int, int]:
    """Return the added tokens of a tokenizer.json, and where in the text they are; the vocabulary is not parsed."""
    for match in _ADDED.finditer(text):
        listed, stop = json.JSONDecoder().raw_decode(text, match.end())
        # A vocabulary has numbers under its texts.
        if listed is None or isinstance(listed, list):
            return listed or [], match.end(), stop
    return [], len(text), len(text)


def _rename(model: dict[str, Any], aliases: Mapping[str, str]) -> None:
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {aliases.get(token, token): number for token, number in vocab.items()}
    elif isinstance(vocab, list):
        model["vocab"] = [[aliases.get(token, token), *score] for token, *score in vocab]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = aliases.get(model["unk_token"], model["unk_token"])


def known_tokens(tokenizer: str) -> frozenset[str]:
    """Return the added tokens of a tokenizer.json."""
    control = ControlTokens.from_json(tokenizer)
    return frozenset((*control.special, *control.others))


def require_tokens(
    literals: Sequence[str], tokens: Sequence[str], tokenizer: str, uri: str, plain: Sequence[str] = ()
) -> None:
    """Raise InputError if a tokenizer lacks a control token that a template writes.

    Args:
        literals: the texts that are written in the template.
        tokens: the special tokens that it prints by name.
        tokenizer: the tokenizer.json.
        uri: of the tokenizer, for the message.
        plain: marks of the template that are plain text.
    """
    known = known_tokens(tokenizer)
    wanted = dict.fromkeys([*tokens, *(hit for text in literals for hit in _LOOKS_LIKE_A_TOKEN.findall(text))])
    missing = [token for token in wanted if token and token not in known and token not in plain]
    if missing:
        near = [f"{token}: {hint}" for token in missing if (hint := did_you_mean(token, sorted(known)))]
        raise InputError(
            "the tokenizer lacks control tokens of the chat template",
            where=uri,
            got=f"no {', '.join(missing[:_SHOWN])}",
            expected="added tokens of the tokenizer, or plain_marks= with those that are plain text",
            hint="; ".join(
                [*near[:_SHOWN], "train a tokenizer with them as special_tokens=, or write another template"]
            ),
        )
