"""Enforces a policy on what a stage finds: by name, by licence, and by content under any earlier name.

A stale copy of a denied file is known by its digest: manifests below the project's root name the files that fetch,
clean, curate and select made, and by which names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.engine.options import PolicyRule
from pairmill.engine.policing import Subject, enforced
from pairmill.errors import InputError
from pairmill.formats.results import RawResult
from pairmill.formats.source_facts import Facts
from pairmill.log import event
from pairmill.policy.licences import STRICTNESS
from pairmill.policy.policy import Policy, Verdict

_NAMED: Final = 5
_MADE: Final = ("clean", "curate", "select")
"""Stages whose files are rows."""


@dataclass
class Enforcer:
    """A policy in force while a stage plans.

    Args:
        policy: that was read.
        rule: what becomes of what it does not allow.
        root: of the project; empty = there is none, and contents are known by the policy's own digests alone.

    Attributes:
        verdicts: on all that was asked, by name.
        left: names that are left out.
    """

    policy: Policy
    rule: PolicyRule = "refuse"
    root: str = ""
    verdicts: dict[str, tuple[Subject, Verdict]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    facts: Facts = field(default_factory=Facts)

    def judge(self, subject: Subject) -> Verdict:
        """Return the verdict on a subject: the strictest by its names and by those that its contents went by."""
        if subject.place:
            facts = self.facts
            licence = subject.licence or facts.about(subject.place, subject.name).get("licence", "")
            # Of a renamed task the manifest has the name before.
            known = (facts.contents(subject.place, name) for name in (subject.name, *subject.names))
            contents = subject.contents or next(filter(None, known), ())
            subject = replace(subject, licence=licence, contents=contents)
        verdicts = [self.policy.decide(subject)]
        verdicts += [self._known[digest] for digest in subject.contents if digest in self._known]
        return max(verdicts, key=lambda verdict: STRICTNESS.index(verdict.decision))

    def leave_out(self, subjects: Sequence[Subject], where: str, *, by_name: bool) -> frozenset[str]:
        """Return the names that are left out.

        Raises:
            InputError: one is not allowed, and nothing is to be left out.
        """
        wrong: list[tuple[Subject, Verdict]] = []
        for subject in subjects:
            if subject.is_whole and self.policy.is_open(subject.name):
                continue  # its files and tasks are asked
            verdict = self.judge(subject)
            self.verdicts[subject.name] = (subject, verdict)
            if not verdict.is_allowed and not (subject.evaluation and verdict.decision == "eval_only"):
                wrong.append((subject, verdict))
        if wrong and by_name and self.rule == "refuse":
            raise _refusal(wrong, where)
        for subject, verdict in wrong:
            event(f"policy: {subject.name} is left out: {verdict}", task=subject.name, decision=verdict.decision)
        self.left |= {subject.name for subject, _ in wrong}
        return frozenset(subject.name for subject, _ in wrong)

    @property
    def record(self) -> dict[str, Any]:
        """By source its verdicts and how many subjects each is on, and what is left out."""
        decisions: dict[str, list[dict[str, Any]]] = {}
        counted: dict[tuple[str, Verdict], int] = {}
        for subject, verdict in self.verdicts.values():
            key = (subject.source, verdict)
            counted[key] = counted.get(key, 0) + 1
        for (source, verdict), count in counted.items():
            details = {name: value for name, value in vars(verdict).items() if value and name != "where"}
            decisions.setdefault(source, []).append({**details, "subjects": count})
        ordered = {
            name: sorted(items, key=lambda item: sorted(map(str, item.items())))
            for name, items in sorted(decisions.items())
        }
        return {"decisions": ordered, "left_out": sorted(self.left)}

    @cached_property
    def _known(self) -> Mapping[str, Verdict]:
        """The verdicts that are not to allow, by the digest of a file that a manifest below the root names."""
        result: dict[str, Verdict] = {}
        for subject, file in _files_below(self.root, self.facts) if self.root else ():
            verdict = self.policy.decide(subject)
            if not verdict.is_allowed:
                result[file.digest] = replace(
                    verdict, why=f"{verdict.why} (its bytes are those of {subject.name})".strip()
                )
        return result


def in_force(config: Any) -> AbstractContextManager[None]:
    """Put the policy of a stage's options in force, if they name one.

    Raises:
        UsageError: the policy is not valid.
    """
    place = getattr(config, "policy", "")
    if not place:
        return enforced(None)
    root = storage.normalise(config.root, "root") if config.root else ""
    return enforced(Enforcer(Policy.load(place), config.policy_on, root))


def raw_files(root: str) -> Iterator[tuple[Subject, File]]:
    """Yield the raw files that fetch finished below a root."""
    for source in _folders(storage.join(root, "raw")):
        for folder in _folders(source):
            manifest = manifests.read(folder, refuse_begun=False)
            if manifest is not None:
                licence = RawResult.from_manifest(manifest).about.get("licence", "")
                for file in manifest.files:
                    name = f"{file.task}/{file.path}"
                    yield Subject(name, (file.task,), (), licence), file


def _files_below(root: str, facts: Facts) -> Iterator[tuple[Subject, File]]:
    """Yield the raw files and row files that manifests below a root name."""
    yield from raw_files(root)
    for stage in _MADE:
        for folder in _folders(storage.join(root, stage)):
            manifest = (
                manifests.read(folder, refuse_begun=False)
                if manifests.is_fingerprint(storage.name_of(folder))
                else None
            )
            for file in manifest.files if manifest is not None else ():
                if file.task:
                    licence = facts.about(folder, file.task).get("licence", "")
                    yield replace(Subject.from_task(file.task), licence=licence), file


def _folders(uri: str) -> list[str]:
    return [storage.join(uri, name) for name in storage.store_for(uri).folders(uri)]


def _refusal(wrong: Sequence[tuple[Subject, Verdict]], where: str) -> InputError:
    subject, verdict = wrong[0]
    names = ", ".join(item.name for item, _ in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
    word = {"deny": "denies", "hold": "holds", "eval_only": "keeps for evaluation", "allow": "allows"}
    return InputError(
        f"the policy {word[verdict.decision]} {subject.name}",
        where=where,
        got=f"{names}{more}; {verdict.where}: {verdict}",
        expected="only what the policy allows" + (", or held-out rows" * (verdict.decision == "eval_only")),
        hint="leave it out of the input, write policy_on=leave_out, or change the clause",
    )
