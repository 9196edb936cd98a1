"""Options of the compare stage."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from pairmill.engine.options import RunConfig, option, too_many
from pairmill.errors import UsageError

BudgetOf = Literal["response", "all"]
LONGEST: Final = 40
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(kw_only=True)
class CompareConfig(RunConfig):
    """Compare plans of sample: what differs between them, and which one trains the better net."""

    plans: list[str] = option(
        help="plans of sample, the base first, as <plan> or name=<plan>; joined by commas",
        changes_bytes=False,  # they are inputs, by content
    )
    held_out: list[str] = option(
        [],
        help="held-out plan that all runs are evaluated on; of two tokenizers one for each, joined by commas",
        changes_bytes=False,
    )
    seeds: int = option(
        4, help="runs of each plan: 4, 8, 16 and so on; a seed draws first weights, rows and their order", at_least=0
    )
    first_seed: int = option(0, help="the first seed; others follow it", at_least=0)
    budget: int = option(
        0, help="tokens that every run reads; 0 = nine tenths of what the smallest plan has", at_least=0
    )
    budget_of: BudgetOf = option("response", help="which tokens the budget counts: response, or all")
    set: list[str] = option(
        [], help="settings of every training, in place of the file's, as optimizer.lr=0.001", changes_bytes=False
    )
    train_config: str = option(
        "",
        help="settings of every training, as a YAML file, to check before anything is trained; empty = not checked",
        changes_bytes=False,
    )
    evaluate_config: str = option(
        "", help="settings of every evaluation, to check with those of the trainings", changes_bytes=False
    )
    evaluate_set: list[str] = option([], help="settings in place of that file's", changes_bytes=False)
    benchmarks: list[str] = option([], help="benchmarks of the evaluations, to check their names", changes_bytes=False)
    data: list[str] = option([], help="where data of benchmarks are, to check that they are there", changes_bytes=False)
    max_runs: int = option(0, help="refuse more runs than this; 0 = any number", changes_bytes=False, at_least=0)
    trained: list[str] = option(
        [],
        help="finished runs of train, in the order of the output runs; empty = what differs alone",
        changes_bytes=False,
    )
    evaluated: list[str] = option(
        [], help="their evaluations, in the same order", changes_bytes=False, as_many_as="trained"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.named) < 2:
            raise UsageError("takes two plans or more", where="plans", got=str(len(self.named)), expected="A=…,B=…")
        if 0 < self.max_runs < len(self.named) * self.seeds:
            raise too_many(len(self.named) * self.seeds, self.max_runs, "seeds")
        lengths = [item for item in self.set if re.match(r"training\.(seed|steps|tokens|epochs)\b", item)]
        if lengths:
            hint = "seeds= and budget= decide it for all runs alike"
            raise UsageError("not a setting of a compared run", where="set", got=lengths[0], hint=hint)

    @cached_property
    def named(self) -> dict[str, str]:
        """The plans by name: of one without a name it is a letter."""
        result: dict[str, str] = {}
        for number, item in enumerate(self.plans):
            match = re.fullmatch(r"([\w. -]+)=(.+)", item)
            name, place = (match[1], match[2]) if match else (_LETTERS[number % len(_LETTERS)], item)
            if name in result or len(name) > LONGEST:
                what = "names must be distinct" if name in result else "the name is too long"
                raise UsageError(what, where="plans", got=name, expected=f"at most {LONGEST} characters, once each")
            result[name] = place
        return result
