"""Options of the tokenize stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pairmill.chats.families import FAMILIES
from pairmill.chats.render import BOUNDARIES, WHOLE
from pairmill.engine.options import ReplaceableConfig, option
from pairmill.errors import UsageError
from pairmill.formats.templates import DEFAULT, ROWS, TEMPLATES, template

NONE = "none"
"""The value of ``conditions`` with which tags get no token."""


@dataclass(kw_only=True)
class TokenizeConfig(ReplaceableConfig, any_of=("rows", "tokens", "tokenized")):
    """Encode rows into per-task token arrays."""

    result = "tokenized"

    rows: list[str] = option(
        [],
        help="folders or URIs of rows (.jsonl, .parquet), joined by commas",
        changes_bytes=False,
        takes="rows",
        unless=("tokens", "tokenized"),
    )
    tokens: list[str] = option(
        [],
        help="folders or URIs of token files made elsewhere, beside rows= or in its place: .parquet with input_ids "
        "and labels, .bin with .idx of Megatron-LM",
        changes_bytes=False,
    )
    tokenizer: str = option(
        help="a tokenizer.json, a folder or URI that holds one, or hf://owner/name@revision of the Hub",
        changes_bytes=False,
        takes="tokenizer",
    )
    template: str = option(
        DEFAULT,
        help="how pairs are written: the name of a family, whose chat template renders them and whose tokens are boq, "
        f"eoq, eoa and conditions ({', '.join(TEMPLATES)}); the path of a chat template (.jinja, "
        f"tokenizer_config.json, a folder); {ROWS} = that of the rendered rows",
        changes_bytes=False,
        parse=template,
    )
    boq: str = option("", help="token before a question; empty = the template's")
    eoq: str = option("", help="token after a question; empty = the template's")
    eoa: str = option("", help="token after an answer; empty = the template's")
    conditions: list[str] = option(
        [], help="tag=token for each condition tag, joined by commas; none = tags get no token; empty = the template's"
    )
    # What follows from these is in the shards of rendered rows.
    boundary: str = option(
        WHOLE,
        help="of rendered rows whose source does not say: prefix_of_whole = the ids of the whole begin with the "
        "prompt's, or the row is dropped; apart = such a row's prompt and rest are encoded apart",
        changes_bytes=False,
        choices=BOUNDARIES,
    )
    context_size: int = option(
        4097,
        help="of sources with long_prompt or long_answer: longest row in tokens, as sample has it",
        changes_bytes=False,
        at_least=2,
    )
    min_response_tokens: int = option(
        1, help="tokens that the response of a rendered row has to have", changes_bytes=False, at_least=1
    )
    plain_marks: list[str] = option(
        [],
        help="texts of a chat template that look like control tokens, as <|user|>, and are plain text here",
        changes_bytes=False,
    )
    # Named in the manifest only if set: folders made without them keep their names and bytes.
    windows: bool = option(
        False,
        help="also write flat token files, windows/<task>.npy, that Windows reads",
        changes_bytes=False,
        excludes=("tokenized",),
    )
    eod: str = option(
        "",
        help="with windows=true: token after a document, in place of eoa; empty = eoa",
        changes_bytes=False,
        needs="windows",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Manifest and keys have the tokens, not the template's name: named or written out, they are the same work.
        chosen = template(self.template)
        self.boq, self.eoq, self.eoa = self.boq or chosen.boq, self.eoq or chosen.eoq, self.eoa or chosen.eoa
        named = [f"{tag}={token}" for tag, token in chosen.conditions.items()]
        self.conditions = self.conditions or named or [NONE]
        if self.windows and self.profile == "data_io":
            raise UsageError(
                "the reference writes no flat files",
                where="windows",
                got="profile=data_io",
                expected="profile=pairmill",
            )
        for tag, token in self.condition_tokens().items():
            if not token:
                raise UsageError("is empty", where=f"conditions: {tag}", expected="a token of the tokenizer")
        if self.profile == "data_io" and self.tokens:
            raise UsageError("the reference has no such option", where="tokens", hint="leave out profile=data_io")
        if self.profile == "data_io" and not self.condition_tokens():
            raise UsageError(
                "the reference has a token for each tag", where="conditions", got=NONE, expected="tag=token, …"
            )

    @property
    def chat_template(self) -> str:
        """What renders pairs: a name of :data:`FAMILIES`, ``rows`` or a path; empty = nothing does."""
        if self.profile == "data_io" or self.template == DEFAULT:
            return ""
        if self.template not in TEMPLATES:
            return self.template
        family = TEMPLATES[self.template]
        own = (self.boq, self.eoq, self.eoa) == (family.boq, family.eoq, family.eoa)
        return self.template if own and self.template in FAMILIES else ""

    @property
    def end_of_document(self) -> str:
        """The token that ends a document in flat files."""
        return self.eod or self.eoa

    def window_options(self) -> dict[str, object]:
        """Return what keys and manifest say about flat files; nothing if there are none."""
        return {"windows": True, "eod": self.end_of_document} if self.windows else {}

    def condition_tokens(self) -> dict[str, str]:
        """Return the token of each condition tag; of two values for one tag the later wins, as in the reference.

        Empty if tags get no token.
        """
        if self.conditions == [NONE]:
            return {}
        result: dict[str, str] = {}
        for item in self.conditions:
            tag, separator, token = item.partition("=")
            if not separator:
                raise UsageError("not a condition", where="conditions", got=repr(item), expected="tag=token")
            result[tag] = token
        return result

    def with_conditions(self, tokens: Mapping[str, str]) -> TokenizeConfig:
        """Add further tags and their tokens; return the same object if there is none, or if tags get no token.

        A tag that the option names keeps its token.

        Raises:
            UsageError: a token is already that of another tag, or a delimiter.
        """
        known = self.condition_tokens()
        if not known:
            return self
        further = {tag: token for tag, token in tokens.items() if tag not in known}
        taken = {self.boq: "boq", self.eoq: "eoq", self.eoa: "eoa", **{token: tag for tag, token in known.items()}}
        for tag, token in further.items():
            other = taken.setdefault(token, tag)
            if other != tag:
                raise UsageError(
                    f"the tag {tag!r} has the token of {other}",
                    where="conditions",
                    got=token,
                    expected="a token of its own",
                    hint=f"write another one in the YAML file of the rows, tags: ['{tag}=<|{tag}|>'], "
                    f"and run clean again, or name it here: conditions={','.join(self.conditions)},{tag}=<|{tag}|>",
                )
        if not further:
            return self
        return replace(self, conditions=[*self.conditions, *(f"{tag}={token}" for tag, token in further.items())])
