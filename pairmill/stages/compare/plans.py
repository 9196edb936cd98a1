"""Plans to compare: what each has, what differs, and the runs that they are compared by. From manifests alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest, seed_from
from pairmill.engine.options import list_item
from pairmill.engine.source_names import source_of
from pairmill.errors import UsageError
from pairmill.formats import drawn_rows
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.formats.results.sample import SampleResult, tokenizer_digest
from pairmill.formats.sample_plan import HELD_OUT, read_plan
from pairmill.log import event
from pairmill.stages.compare.config import CompareConfig
from pairmill.training.settings import BatchSettings

DEFAULT_SHARE: Final = 0.9
"""Of the smallest plan: redrawn with another seed it may have a little less, and a last batch is not always full."""


@dataclass(frozen=True)
class Amount:
    """What is drawn of a source over all epochs.

    Attributes:
        rows: drawn.
        unique: rows of the source that are drawn at least once.
        tokens: that a net reads: all of a row but its last.
        responses: response tokens.
    """

    rows: int
    unique: int
    tokens: int
    responses: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(ours + theirs for ours, theirs in zip(self.values, other.values, strict=True)))

    @property
    def values(self) -> tuple[int, int, int, int]:
        return self.rows, self.unique, self.tokens, self.responses


NOTHING: Final = Amount(0, 0, 0, 0)


@dataclass(frozen=True)
class Plan:
    """A plan of sample.

    Attributes:
        name: in this comparison.
        manifest: of it.
        sources: what is drawn of each.
    """

    name: str
    uri: str
    manifest: Manifest
    sources: Mapping[str, Amount]

    @classmethod
    def open(cls, name: str, given: str) -> Plan:
        """Open a plan.

        Raises:
            InputError: it is not a plan.
            UsageError: its rows are held out.
        """
        uri, manifest = read_plan(given, "plans", name)
        if any(ref.role == HELD_OUT for ref in manifest.inputs):
            raise UsageError("its rows are held out", where=f"plans: {name}={uri}", expected="a plan to train on")
        drawn = SampleResult.from_manifest(manifest)
        of_task = drawn.source_of_task
        sources: dict[str, Amount] = {}
        for task, item in drawn.stats.items():
            source = of_task.get(task) or source_of(task)
            tokens = item["cov_itoks"] + item["cov_rtoks"] - item["cov_rows"]
            amount = Amount(item["cov_rows"], item["unique_rows"], tokens, item["cov_rtoks"])
            sources[source] = sources.get(source, NOTHING) + amount
        return cls(name, uri, manifest, dict(sorted(sources.items())))

    @property
    def whole(self) -> Amount:
        """All sources."""
        total = NOTHING
        for item in self.sources.values():
            total += item
        return total

    @property
    def tokenizer(self) -> str:
        """Its digest; empty if it is not known."""
        return tokenizer_digest(self.manifest)

    def to_json(self) -> dict[str, Any]:
        """Return what the report shows."""
        names = ("rows", "unique_rows", "tokens", "response_tokens")
        whole = self.whole
        return {
            "name": self.name,
            "fingerprint": self.manifest.fingerprint,
            "tokenizer": self.tokenizer,
            "epochs": self.manifest.options["epochs"],
            "seed": self.manifest.options["seed"],
            **dict(zip(names, whole.values, strict=True)),
            "sources": {
                source: {
                    **dict(zip(names, item.values, strict=True)),
                    "response_share": item.responses / whole.responses if whole.responses else 0.0,
                }
                for source, item in self.sources.items()
            },
        }


def read_all(config: CompareConfig) -> list[Plan]:
    """Open the plans, the base first."""
    return [Plan.open(name, place) for name, place in config.named.items()]


def common(plans: Sequence[Plan]) -> list[str]:
    """Return the sources that all plans have, sorted.

    Raises:
        UsageError: there is none.
    """
    result = set(plans[0].sources).intersection(*(plan.sources for plan in plans))
    if not result:
        got = "; ".join(f"{plan.name}: {', '.join(plan.sources)}" for plan in plans)
        raise UsageError("the plans have no source in common", where="plans", got=got, expected="one or more")
    return sorted(result)


@dataclass(frozen=True)
class Budget:
    """What every run reads.

    Attributes:
        counted: which tokens are counted: response, or all.
        tokens: of that kind.
        read: by plan, all tokens that a run reads (``training.tokens``).
    """

    counted: str
    tokens: int
    read: Mapping[str, int]

    @classmethod
    def of_plans(cls, config: CompareConfig, plans: Sequence[Plan]) -> Budget:
        """Return the budget that is asked for.

        Raises:
            UsageError: it is more than a plan has.
        """
        counted = "responses" if config.budget_of == "response" else "tokens"
        there = {plan.name: int(getattr(plan.whole, counted)) for plan in plans}
        least = min(there, key=lambda name: there[name])
        tokens = config.budget or int(DEFAULT_SHARE * there[least])
        for name, most in there.items():
            if tokens > most:
                raise UsageError(
                    "more than the plan has",
                    where="budget",
                    got=f"{tokens:,} {config.budget_of} tokens",
                    expected=f"at most {there[least]:,}, of plan {least}" if name == least else f"at most {most:,}",
                    hint="sample more epochs, or lower it",
                )
        read = {plan.name: -(-tokens * plan.whole.tokens // there[plan.name]) for plan in plans}
        return cls(config.budget_of, tokens, read)


def held_out_of(config: CompareConfig, plans: Sequence[Plan]) -> dict[str, str]:
    """By plan, the held-out rows that its runs are evaluated on: those with its tokenizer.

    Raises:
        UsageError: the plans have two tokenizers, and there are not held-out rows for each.
    """
    places = [storage.normalise(item, "held_out") for item in config.held_out]
    if len(places) < 2 and len({plan.tokenizer for plan in plans}) < 2:
        return dict.fromkeys((plan.name for plan in plans), places[0] if places else "")
    by_tokenizer: dict[str, str] = {}
    for place in places:
        manifest = manifests.read(place)
        by_tokenizer[tokenizer_digest(manifest) if manifest is not None else ""] = place
    for plan in plans:
        if places and plan.tokenizer not in by_tokenizer:
            raise UsageError(
                "no held-out rows with the tokenizer of a plan",
                where="held_out",
                got=f"plan {plan.name} has tokenizer {plan.tokenizer or 'unknown'}",
                expected=f"a held-out plan for each tokenizer; there are {', '.join(by_tokenizer)}",
                hint="sample held_out=true of each line, and give both: they are compared by bits a byte",
            )
    return {plan.name: by_tokenizer.get(plan.tokenizer, "") for plan in plans}


def refuse_training_rows(config: CompareConfig) -> None:
    """Raise InputError if held-out rows are of tasks that a plan draws from: a run draws others of their rows."""
    plans = [DrawnRows.of_sample(place, "plans", [config.root]) for place in config.named.values()]
    any_rows = [replace(item, starts=None) for item in plans if item is not None]
    for place in config.held_out:
        held_out = DrawnRows.of_sample(place, "held_out", [config.root])
        drawn_rows.refuse_training_rows(held_out, any_rows, f"held_out={place}")


def draw_of(plan: Plan, seed: int) -> int:
    """Return the seed of a draw. Plans of one seed get one seed, so that what they have in common keeps its order."""
    return seed_from("compare draw", plan.manifest.options["seed"], seed, digits=12)


def warn_short(plans: Sequence[Plan], budget: Budget, batch: BatchSettings) -> None:
    """Warn of plans of which a run may find too few tokens: what the last batches of epochs leave out is not read."""
    for plan in plans:
        epochs = int(plan.manifest.options["epochs"])
        left = {"drop": epochs, "carry": 1, "keep": 0}[batch.tail] * batch.tokens
        if budget.read[plan.name] > plan.whole.tokens - left:
            event(
                f"compare: a run reads {budget.read[plan.name]:,} tokens of the {plan.whole.tokens:,} of plan "
                f"{plan.name}, whose last batches may leave out {left:,}: then it is refused. Lower budget= or "
                "batch.tokens, or set batch.tail=carry",
                level=logging.WARNING,
                plan=plan.name,
            )


def settings_of(config: CompareConfig, plan: Plan, budget: Budget, seed: int) -> list[str]:
    """Return settings of a training, in place of those of its file."""
    length = {"seed": seed, "tokens": budget.read[plan.name], "epochs": 0, "steps": 0}
    return [*config.set, *(f"training.{name}={value}" for name, value in length.items())]


def runs(config: CompareConfig, plans: Sequence[Plan], budget: Budget) -> list[dict[str, str]]:
    """Return the runs to make, seed by seed: plan, seed, what is drawn again and held out, and the training's
    settings."""
    apart = held_out_of(config, plans)
    return [
        {
            "plan": plan.name,
            "seed": str(seed),
            "again": f"{plan.uri}@{draw_of(plan, seed)}",
            "held_out": apart[plan.name],
            "set": ",".join(map(list_item, settings_of(config, plan, budget, seed))),
        }
        for seed in range(config.first_seed, config.first_seed + config.seeds)
        for plan in plans
    ]
