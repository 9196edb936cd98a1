"""Exact deduplication as an operation: its settings, and what its rules do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from pairmill.fields import Checked, setting
from pairmill.rowstage import Task
from pairmill.stages.curate.operation import Learned, Mode, Operation, Reasons, TaskFindings

Kind: TypeAlias = Literal["pair", "instruction", "response"]
KINDS: Final[Sequence[Kind]] = ("pair", "instruction", "response")
"""Also the names of the rules."""


@dataclass(frozen=True, kw_only=True)
class ExactSettings(Checked):
    """Rows with equal texts."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "pair", "instruction", "response")

    mode: Mode = setting("drop", help="drop, report or off; off beats the three below")
    form: Literal["light", "raw"] = setting("light", help="compare with white space and Unicode made equal, or raw")
    pair: Mode = setting("drop", help="rows with equal instruction and response: the best-ranked one stays")
    instruction: Mode = setting("report", help="rows with an equal instruction")
    response: Mode = setting("report", help="rows with an equal response: refusals, boilerplate")
    max_responses_per_instruction: int | None = setting(
        None, help="keep this many rows of one instruction, in place of instruction: above; null = no limit", at_least=1
    )
    max_instructions_per_response: int | None = setting(
        None, help="keep this many rows of one response, in place of response: above; null = no limit", at_least=1
    )

    def cap(self, name: str) -> int | None:
        """Return how many rows of one text of a field are kept; None = no limit."""
        return self.max_responses_per_instruction if name == "instruction" else self.max_instructions_per_response


def is_on(settings: ExactSettings, kind: Kind) -> bool:
    """Tell whether rows of a kind are looked for."""
    if settings.mode == "off":
        return False
    return getattr(settings, kind) != "off" or (kind != "pair" and settings.cap(kind) is not None)


def actions(settings: ExactSettings) -> dict[str, str]:
    """Return what each rule does where the operation drops; one that is only reported owns no row and is left out."""
    result: dict[str, str] = {}
    for kind in KINDS:
        if is_on(settings, kind):
            if kind != "pair" and settings.cap(kind) is not None:
                result[kind] = "cap"
            elif getattr(settings, kind) == "drop":
                result[kind] = "drop"
    return result


class _Exact(Operation[ExactSettings]):
    def find(self, own: ExactSettings, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        decisions = learned.decisions[self.name].get(task.name)
        if decisions is None:
            return
        kinds = tuple(kind for kind in KINDS if is_on(own, kind))
        does = actions(own)
        yield TaskFindings(
            self.name,
            does,
            own.mode == "report",
            self.reasons,
            tuple(KINDS),
            decisions=decisions,
            only=kinds,
            reported=tuple(kind for kind in kinds if kind not in does),
        )


EXACT: Final = _Exact(
    name="exact",
    settings=ExactSettings,
    help="equal texts",
    reasons=Reasons("dup_exact"),
    meanings={
        "pair": "instruction and response are equal",
        "instruction": "the instruction is equal",
        "response": "the response is equal",
    },
)
