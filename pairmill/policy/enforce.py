"""Enforces a policy on what a stage finds: by name, by licence, and by content under any earlier name.

A stale copy of a denied file is known by its digest: manifests below the project's root name the files that fetch,
clean, curate and select made, and by which names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.engine.options import PolicyRule
from pairmill.engine.policing import KEY, REMOVALS, REMOVED, Subject
from pairmill.errors import InputError
from pairmill.formats.results.raw import RawResult
from pairmill.formats.source_facts import Facts
from pairmill.log import event
from pairmill.policy.licences import STRICTNESS
from pairmill.policy.policy import Policy, Verdict
from pairmill.policy.removals import Place, Removal

_NAMED: Final = 5
_MADE: Final = ("clean", "take_out", "curate", "select")
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
        removals: names of the entries on single records of sources that were asked for.
        removed: rows that were taken out before a stage read them, by task.
    """

    policy: Policy
    rule: PolicyRule = "refuse"
    root: str = ""
    verdicts: dict[str, tuple[Subject, Verdict]] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    facts: Facts = field(default_factory=Facts)
    removals: set[str] = field(default_factory=set)
    removed: dict[str, int] = field(default_factory=dict)

    def judge(self, subject: Subject) -> Verdict:
        """Return the verdict on a subject: the strictest by its names and by those that its contents went by."""
        if subject.place:
            facts = self.facts
            licence = subject.licence or facts.about(subject.place, subject.name).get("licence", "")
            # Of a renamed task the manifest has the name before.
            known = (facts.contents(subject.place, name) for name in (subject.name, *subject.names))
            contents = subject.contents or next(filter(None, known), ())
            subject = subject._replace(licence=licence, contents=contents)
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

    def removed_records(self, file: str, digest: str) -> frozenset[Place]:
        """Return the places of records that are taken out of a raw file.

        Raises:
            InputError: the records were named in a file of other bytes.
        """
        of_file = [removal for removal in self._removals_of(file.partition("/")[0]) if removal.places_in(file)]
        known = {removal.raw.get(file, "") for removal in of_file}
        if of_file and not known & {"", digest}:
            raise InputError(
                "records are taken out of this file, and its bytes are not those in which they were named",
                where=f"{file}, entry {of_file[-1].name} of {self.policy.where}",
                got=digest,
                expected=" or ".join(sorted(known)),
                hint="list the lines that all of these records have in this file, and run pairmill remove with it",
            )
        places = (item.places_in(file) for item in of_file if item.raw.get(file, "") in {"", digest})
        return frozenset().union(*places)

    def removed_rows(self, subject: Subject) -> Sequence[int]:
        """Return the ordinals, in the row file of a task, of rows that are taken out.

        Raises:
            InputError: nobody looked for the rows in this file.
        """
        result: set[int] = set()
        contents = subject.contents or (self.facts.contents(subject.place, subject.name) if subject.place else ())
        for removal in self._removals_of(subject.source):
            if any(digest in removal.files for digest in contents):
                result.update(*(removal.files.get(digest, ()) for digest in contents))
            elif removal.name not in self._obeyed_in(subject.place):
                raise InputError(
                    f"rows of {subject.source} are taken out, and nobody looked for them here",
                    where=f"{subject.name} in {subject.place}",
                    got="a result of after the removal, which was made without its policy, or is of another project",
                    expected=f"what a run with policy={self.policy.where} made",
                    hint="make it again from clean with this policy=, or run pairmill remove again, which looks into "
                    "all results below root=",
                )
        return sorted(result)

    def entries_on(self, source: str) -> Sequence[str]:
        """Return the names of the entries on single records of a source."""
        return [removal.name for removal in self._removals_of(source)]

    @property
    def takes_out_records(self) -> bool:
        """Whether there are entries on single records."""
        return bool(self.policy.removals)

    def note_removed(self, rows: Mapping[str, int]) -> None:
        """Note how many rows of each task were taken out before a stage read it."""
        self.removed.update(rows)

    def _removals_of(self, source: str) -> Iterator[Removal]:
        for removal in self.policy.removals:
            if source in removal.sources:
                self.removals.add(removal.name)
                yield removal

    def _obeyed_in(self, place: str) -> Sequence[str]:
        """Return the names of the entries that a finished folder was made under."""
        home = self.facts.home(place) if place else ""
        manifest = manifests.read(home) if home else None
        recorded = manifest.data.get(KEY, {}) if manifest is not None else {}
        return recorded.get(REMOVALS, [])  # type: ignore[no-any-return]

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
        taken_out: dict[str, Any] = {REMOVALS: sorted(self.removals)} if self.removals else {}
        if self.removed:
            taken_out[REMOVED] = dict(sorted(self.removed.items()))
        return {"decisions": ordered, "left_out": sorted(self.left), **taken_out}

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
                    yield Subject.from_task(file.task)._replace(licence=licence), file


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
