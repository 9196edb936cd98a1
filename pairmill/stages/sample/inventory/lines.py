"""The lines of an inventory: sums over tasks, and what manifests know of their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from pairmill.engine.manifest import Manifest
from pairmill.engine.policing import Subject
from pairmill.engine.source_names import source_of
from pairmill.errors import InternalError
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER
from pairmill.policy.licences import STRICTNESS
from pairmill.stages.sample.node.plan import sizes_of

NO_RULE: Final = "no rule"
"""The group of tasks without a rule."""
_HUB: Final = ("hub:", "hub rows:")
Judgement: TypeAlias = Callable[[Subject], Any]
"""What a policy says of a subject: a verdict with ``decision`` and ``reason``."""


@dataclass
class Counts:
    """Sums over tasks; ``*_sampled`` are over all epochs.

    Args:
        rows, tokens: that the sampler sees, each once.
        rows_sampled, tokens_sampled, responses_sampled: that all epochs have.
        unique_rows, unique_tokens: of these, each once.
    """

    tasks: int = 0
    rows: int = 0
    tokens: int = 0
    rows_sampled: int = 0
    tokens_sampled: int = 0
    responses_sampled: int = 0
    unique_rows: int = 0
    unique_tokens: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of others to these."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @classmethod
    def from_stats(cls, stats: Mapping[str, int]) -> Counts:
        """Return the counts of a task, as the manifest of its plan has them."""
        return cls(
            tasks=1,
            rows=stats["rows"],
            tokens=stats["itoks"] + stats["rtoks"],
            rows_sampled=stats["cov_rows"],
            tokens_sampled=stats["cov_itoks"] + stats["cov_rtoks"],
            responses_sampled=stats["cov_rtoks"],
            unique_rows=stats["unique_rows"],
            unique_tokens=stats["unique_toks"],
        )


class TaskFacts(NamedTuple):
    """What is known of a task beside its counts; empty = it is not known."""

    name: str
    source: str
    group: str
    origin: str = ""
    form: str = ""
    licence: str = ""
    revision: str = ""
    language: str = ""
    decision: str = ""
    reason: str = ""
    source_rows: int | None = None

    @property
    def link(self) -> str:
        """The page of its data set on the Hub, or its address; empty if there is none."""
        for before in _HUB:
            if self.origin.startswith(before):
                repository = self.origin.removeprefix(before).partition("@")[0]
                return f"https://huggingface.co/datasets/{'/'.join(repository.split('/')[:2])}"
        return self.origin if self.origin.startswith("https://") else ""


@dataclass
class Line:
    """A line of the inventory: tasks that have something in common."""

    name: str
    counts: Counts = field(default_factory=Counts)
    facts: list[TaskFacts] = field(default_factory=list)

    def describe(self, what: str) -> str:
        """Return the values of a fact, the strictest of decisions; empty if it is not known."""
        values = sorted({str(value) for item in self.facts if (value := getattr(item, what))})
        if what == "decision" and values:
            return max(values, key=list[str](STRICTNESS).index)
        return ", ".join(values[:3]) + (f" and {len(values) - 3:,} more" if len(values) > 3 else "")

    @property
    def source_rows(self) -> int | None:
        """The records of the sources as they were published; None if they are not known of each."""
        by_source = {item.source: item.source_rows for item in self.facts}
        known = [rows for rows in by_source.values() if rows is not None]
        return sum(known) if known and len(known) == len(by_source) else None


class Inventory(NamedTuple):
    """What is in a plan.

    Args:
        epochs: of the plan.
        tasks: the facts and counts of each task, in the order of the plan.
        total: of all tasks.
        at_zero: rules whose tasks give no row; ``idle_rules`` have no task, and ``without_rule`` are tasks.
        left_out: tasks that the policy left out.
    """

    epochs: int
    tasks: Sequence[tuple[TaskFacts, Counts]]
    total: Counts
    at_zero: Sequence[str] = ()
    idle_rules: Sequence[str] = ()
    without_rule: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @classmethod
    def from_manifest(cls, manifest: Manifest, judge: Judgement | None = None) -> Inventory:
        """Gather the inventory of a plan, and check its sums.

        Args:
            judge: of a policy whose decisions are shown in place of those that the plan records.

        Raises:
            InternalError: the sums are not those of the plan.
        """
        result = SampleResult.from_manifest(manifest)
        rows = [(_facts_of(name, result, judge), Counts.from_stats(stats)) for name, stats in result.stats.items()]
        total = Counts()
        drawn: dict[str, int] = {}
        for item, counts in rows:
            total.add(counts)
            drawn[item.group] = drawn.get(item.group, 0) + counts.rows_sampled
        _check(total, manifest)
        without = [name for name, prefix in result.prefixes.items() if prefix is None]
        return cls(
            epochs=manifest.ledger.measures["epochs"],
            tasks=rows,
            total=total,
            at_zero=sorted(group for group, count in drawn.items() if not count),
            idle_rules=[*result.idle_rules],
            without_rule=without if any(prefix is not None for prefix in result.prefixes.values()) else [],
            left_out=result.policy.get("left_out", []),
        )

    def lines(self, key: str) -> list[Line]:
        """Return a line for each value of a fact, the one with most sampled tokens first; the unknown is the last."""
        get: Callable[[TaskFacts], str] = lambda item: item.name if key == "task" else getattr(item, key)  # noqa: E731
        lines: dict[str, Line] = {}
        for item, counts in self.tasks:
            line = lines.setdefault(get(item), Line(get(item)))
            line.counts.add(counts)
            line.facts.append(item)
        return sorted(lines.values(), key=lambda line: (not line.name, -line.counts.tokens_sampled, line.name))


def _facts_of(name: str, result: SampleResult, judge: Judgement | None) -> TaskFacts:
    source = source_of(name)
    about = result.facts.get(source, {})
    licence = str(about.get("licence", ""))
    if judge is not None:
        verdict = judge(Subject.from_task(name)._replace(licence=licence))
        decision, reason = verdict.decision, verdict.reason
    else:
        recorded = result.policy.get("decisions", {}).get(source, [])
        strictest: Mapping[str, Any] = max(recorded, key=lambda item: STRICTNESS.index(item["decision"]), default={})
        decision, reason = strictest.get("decision", ""), strictest.get("reason", "")
    form = ("converted" if "rows_in" in about else "finished rows") if about else ""
    revision = str(about.get("revision", ""))
    return TaskFacts(
        name=name,
        source=source,
        group=_group_of(name, result),
        origin=str(about.get("origin", "")),
        form=form,
        licence=licence,
        revision="" if revision == "as given" else revision,
        language=str(about.get("language", "")),
        decision=decision,
        reason=reason,
        source_rows=about.get("rows_in"),
    )


def _group_of(name: str, result: SampleResult) -> str:
    label = result.prefixes.get(name)
    return result.group_of_task.get(name) or (NO_RULE if label is None else label or "''")


def _check(total: Counts, manifest: Manifest) -> None:
    """Raise InternalError if the sums over tasks are not the plan's own: its totals, and the lengths of its epochs."""
    measures = manifest.ledger.measures
    wanted = {
        "rows over all epochs": (total.rows_sampled, manifest.ledger.rows_out),
        "tokens over all epochs": (total.tokens_sampled, measures["tokens_sampled"]),
        "response tokens over all epochs": (total.responses_sampled, measures["response_tokens_sampled"]),
        "unique tokens": (total.unique_tokens, measures["unique_tokens"]),
    }
    if any(file.path.startswith(FOLDER) for file in manifest.files):
        wanted["places in the epochs"] = (total.rows_sampled, sum(sizes_of(manifest)[1]))
    for what, (summed, counted) in wanted.items():
        if summed != counted:
            raise InternalError(
                f"the inventory does not add up: {what}",
                where=f"sample {manifest.fingerprint}",
                got=f"{summed:,}, summed over tasks",
                expected=f"{counted:,}, a difference of {summed - counted:+,}",
                hint="this is a defect of pairmill, please report it",
            )
