"""The options of exact deduplication: the part ``exact`` of curate_config.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pairmill.errors import UsageError
from pairmill.stages.curate.rules import Mode


@dataclass(frozen=True, kw_only=True)
class ExactSettings:
    """Rows with equal texts.

    Args:
        mode: drop, report or off; off beats the three below.
        form: compare with white space and Unicode made equal, or raw.
        pair: rows with equal instruction and response: the best-ranked one stays.
        instruction: rows with an equal instruction.
        response: rows with an equal response: refusals, boilerplate.
        max_responses_per_instruction: keep this many rows of one instruction, in place of instruction: above; null = no
            limit.
        max_instructions_per_response: keep this many rows of one response, in place of response: above; null = no
            limit.
    """

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "pair", "instruction", "response")

    mode: Mode = "drop"
    form: Literal["light", "raw"] = "light"
    pair: Mode = "drop"
    instruction: Mode = "report"
    response: Mode = "report"
    max_responses_per_instruction: int | None = None
    max_instructions_per_response: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_responses_per_instruction", "max_instructions_per_response"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("out of range", where=name, got=str(value), expected="1 or more, or null")

    def cap(self, name: str) -> int | None:
        """How many rows of one text of a field are kept; None = no limit."""
        return self.max_responses_per_instruction if name == "instruction" else self.max_instructions_per_response
