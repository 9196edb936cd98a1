"""Options of the tokenize stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pairmill.engine.options import StageConfig, option
from pairmill.errors import UsageError


@dataclass(kw_only=True)
class TokenizeConfig(StageConfig):
    """Encode rows into per-task token arrays."""

    shared_rounds: ClassVar[tuple[int, ...]] = (1, 2)

    rows: list[str] = option(help="folders or URIs of rows (.jsonl, .parquet), joined by commas", changes_bytes=False)
    tokenizer: str = option(
        help="a tokenizer.json, a folder or URI that holds one, or owner/name@revision of the Hub", changes_bytes=False
    )
    boq: str = option("<|im_start|>", help="token before a question")
    eoq: str = option("<|im_end|>", help="token after a question")
    eoa: str = option("<|box_end|>", help="token after an answer")
    conditions: list[str] = option(
        ["direct=<|object_ref_start|>", "cot=<|object_ref_end|>", "noisy=<|quad_start|>", "synth=<|quad_end|>"],
        help="tag=token for each condition tag, joined by commas",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = {"boq": self.boq, "eoq": self.eoq, "eoa": self.eoa}
        tokens |= {f"conditions: {tag}": token for tag, token in self.condition_tokens().items()}
        for where, token in tokens.items():
            if not token:
                raise UsageError("is empty", where=where, expected="a token of the tokenizer")

    def condition_tokens(self) -> dict[str, str]:
        """Token by condition tag; of two values for one tag the later wins, as in the reference."""
        found: dict[str, str] = {}
        for item in self.conditions:
            tag, separator, token = item.partition("=")
            if not separator:
                raise UsageError("not a condition", where="conditions", got=repr(item), expected="tag=token")
            found[tag] = token
        return found

    def with_conditions(self, tokens: Mapping[str, str]) -> TokenizeConfig:
        """The options with further tags and their tokens; the same object if there is none.

        A tag that the option names keeps its token.

        Raises:
            UsageError: a token is already that of another tag, or a delimiter.
        """
        known = self.condition_tokens()
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
