"""Options of the tokenize stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pairmill.engine.options import StageConfig, option
from pairmill.errors import UsageError


@dataclass(kw_only=True)
class TokenizeConfig(StageConfig):
    """Encode rows into per-task token arrays."""

    shared_rounds: ClassVar[tuple[int, ...]] = (1, 2)

    rows: list[str] = option(help="folders or URIs of rows (.jsonl, .parquet), joined by commas", changes_bytes=False)
    tokenizer: str = option(
        help="a tokenizer.json, a folder or URI that holds one, or hf://owner/name@revision of the Hub",
        changes_bytes=False,
    )
    tokenized: str = option(
        "", help="tokenized folder that exists: passed on, and nothing is encoded", changes_bytes=False
    )
    boq: str = option("<|im_start|>", help="token before a question")
    eoq: str = option("<|im_end|>", help="token after a question")
    eoa: str = option("<|box_end|>", help="token after an answer")
    conditions: list[str] = option(
        ["direct=<|object_ref_start|>", "cot=<|object_ref_end|>", "noisy=<|quad_start|>", "synth=<|quad_end|>"],
        help="tag=token for each condition tag, joined by commas",
    )
    # Named in the manifest only if set: folders made without them keep their names and bytes.
    windows: bool = option(
        False, help="also write flat token files, windows/<task>.npy, that Windows reads", changes_bytes=False
    )
    eod: str = option(
        "", help="with windows=true: token after a document, in place of eoa; empty = eoa", changes_bytes=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = {"boq": self.boq, "eoq": self.eoq, "eoa": self.eoa}
        tokens |= {f"conditions: {tag}": token for tag, token in self.condition_tokens().items()}
        if self.eod and not self.windows:
            raise UsageError("only flat files have it", where="eod", got=self.eod, expected="windows=true with it")
        if self.windows and self.profile == "data_io":
            raise UsageError(
                "the reference writes no flat files",
                where="windows",
                got="profile=data_io",
                expected="profile=pairmill",
            )
        for where, token in tokens.items():
            if not token:
                raise UsageError("is empty", where=where, expected="a token of the tokenizer")

    @property
    def end_of_document(self) -> str:
        """The token that ends a document in flat files."""
        return self.eod or self.eoa

    def window_options(self) -> dict[str, object]:
        """What keys and manifest say about flat files; nothing if there are none."""
        return {"windows": True, "eod": self.end_of_document} if self.windows else {}

    def condition_tokens(self) -> dict[str, str]:
        """Token by condition tag; of two values for one tag the later wins, as in the reference."""
        found: dict[str, str] = {}
        for item in self.conditions:
            tag, separator, token = item.partition("=")
            if not separator:
                raise UsageError("not a condition", where="conditions", got=repr(item), expected="tag=token")
            found[tag] = token
        return found
