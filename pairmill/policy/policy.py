"""A policy: ordered clauses on names and contents, and what licences decide; read from ``policy.yaml``, strictly.

The first clause that matches decides. The stricter of it and of the licence counts, unless the clause has the reason
``licence``: then somebody has looked at the licence, and it is settled.
"""

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, Self

from pairmill import storage
from pairmill.engine.policing import Subject
from pairmill.errors import StorageError, UsageError
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import Part, SettingsFile
from pairmill.policy import removals
from pairmill.policy.licences import STRICTNESS, Decision, Licences
from pairmill.policy.removals import Removal
from pairmill.rules.match import KEYS as WHO
from pairmill.rules.match import Matcher, Selector

REASONS: Final = ("gdpr", "robots", "licence", "quality", "eval", "agreement")
_NONE: Final = -1


@dataclass(frozen=True)
class Verdict:
    """What a policy says of a subject, and which line of it says so.

    Args:
        decision: what may become of it.
        reason: of :data:`REASONS`; ``default`` if no clause says anything.
        where: file and clause, or the licence.
        why, evidence, date: of the clause.
    """

    decision: Decision
    reason: str
    where: str
    why: str = ""
    evidence: str = ""
    date: str = ""

    @property
    def is_allowed(self) -> bool:
        """Whether it may be trained on."""
        return self.decision == "allow"

    def __str__(self) -> str:
        dated = f", {self.date}" if self.date else ""
        return f"{self.decision} ({self.reason}{dated}): {self.why or self.where}"


@dataclass(frozen=True)
class Clause(Checked):
    """What is written of some subjects beside who they are."""

    decision: Literal["allow", "deny", "hold", "eval_only"] = setting(help="what may become of them")
    reason: Literal["gdpr", "robots", "licence", "quality", "eval", "agreement"] = setting(help="the kind of reason")
    why: str = setting(help="the reason, in a sentence", filled=True)
    date: Any = setting(help="when it was decided, as 2026-08-01")
    evidence: str = setting("", help="where it can be looked up")
    contents: list[str] = setting([], help="digests of files, whatever they are called")

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.date) is not datetime.date:  # YAML reads 2026-08-01 as one; a time of a day is another type
            raise UsageError("not a date", where="date", got=repr(self.date), expected="a day, as date: 2026-08-01")


@dataclass(frozen=True)
class Policy:
    """A policy file.

    Args:
        where: its URI.
        clauses: in order, with what each matches.
        default: the decision where no clause matches.
        licences: what licences decide.
        removals: single records that are taken out.
    """

    where: str
    clauses: Sequence[tuple[Selector, Clause]]
    default: Literal["allow", "deny", "hold"] = "allow"
    licences: Licences = field(default_factory=Licences)
    removals: Sequence[Removal] = ()

    @classmethod
    def load(cls, place: str, option: str = "policy") -> Self:
        """Read a policy file.

        Raises:
            UsageError: it is not there or not valid, or the file of removals that it names is; a clause lacks its why
                or date, or an earlier one hides it.
        """
        file = SettingsFile.load(place, option, "clauses")
        if file.top is None:
            raise UsageError("the policy is empty", where=file.uri, expected="clauses: […], licences: {…}, default: …")
        top: _Top = file.top.onto(_Top, leave={"clauses"})
        if (licences := file.top.entries().get("licences")) and not top.licences.are_given:
            hint = "what is in neither list is unknown, so without lists every source would be"
            raise licences.wrong("names no licence", expected="allow: [MIT, CC0-1.0], or deny: ['*-NC*']", hint=hint)
        clauses = [_clause(part) for part in file.items("clauses")]
        # Beside the policy, so that both can be moved together.
        folder = storage.parent_of(file.uri)
        try:
            place = storage.join(folder, top.removals) if top.removals else ""
        except StorageError as error:
            raise file.top.entries()["removals"].wrong("not beside the policy", expected="removals.jsonl") from error
        removed = removals.load(place) if place else []
        policy = cls(file.uri, clauses, top.default, top.licences, removed)
        policy._refuse_hidden()
        return policy

    def place_of(self, number: int) -> str:
        """Return where a clause is, for messages."""
        return f"{self.where} clause {number + 1}"

    def decide(self, subject: Subject) -> Verdict:
        """Return what the policy says of a subject."""
        first = self._first(subject)
        verdict = Verdict(self.default, "default", f"{self.where} default: {self.default}")
        if first != _NONE:
            clause = self.clauses[first][1]
            where = self.place_of(first)
            verdict = Verdict(clause.decision, clause.reason, where, clause.why, clause.evidence, str(clause.date))
            if clause.reason == "licence":
                return verdict
        if subject.licence is None or not self.licences.are_given:
            return verdict
        decision = self.licences.decide(subject.licence)
        if STRICTNESS.index(decision) <= STRICTNESS.index(verdict.decision):
            return verdict
        licence = f"the licence is {subject.licence or 'not stated'}"
        return Verdict(decision, "licence", f"{self.where} licences", licence)

    def is_open(self, source: str) -> bool:
        """Return whether clauses may decide on what is below a source in more than one way."""
        subject = Subject(source)
        first = self._first(subject)
        last = first if first != _NONE and not self.clauses[first][0].without else len(self.clauses)
        decision = self.clauses[first][1].decision if first != _NONE else self.default
        below = (f"{source}/", f"{source}__")
        return any(
            clause.decision != decision and _may_match(selector, below)
            for selector, clause in self.clauses[:last]
            if (selector, clause) != self.clauses[first]
        )

    def _first(self, subject: Subject) -> int:
        names = (subject.name, *subject.names)
        but = {number for name in names for number in self._without.numbers(name)}
        numbers = {number for name in names for number in self._who.numbers(name)} - but
        for digest in subject.contents:
            numbers |= self._contents.get(digest, set())
        return min(numbers, default=_NONE)

    @cached_property
    def _who(self) -> Matcher:
        return Matcher([replace(selector, without=()) for selector, _ in self.clauses])

    @cached_property
    def _without(self) -> Matcher:
        return Matcher([Selector(globs=selector.without) for selector, _ in self.clauses])

    @cached_property
    def _contents(self) -> Mapping[str, set[int]]:
        result: dict[str, set[int]] = {}
        for number, (_, clause) in enumerate(self.clauses):
            for digest in clause.contents:
                result.setdefault(digest, set()).add(number)
        return result

    def _refuse_hidden(self) -> None:
        selectors = [selector for selector, _ in self.clauses]
        for number, earlier in Matcher(selectors).hidden():
            if not self.clauses[number][1].contents:
                raise UsageError(
                    f"the clause for {selectors[number].label} can never apply",
                    where=self.place_of(number),
                    got=f"clause {earlier + 1}, for {selectors[earlier].label}, before it",
                    hint="the first match wins: put the narrower clause first",
                )


@dataclass(frozen=True)
class _Top:
    default: Literal["allow", "deny", "hold"] = "allow"
    licences: Licences = field(default_factory=Licences)
    removals: str = setting("", help="the file of single records that are taken out, beside the policy")


def _clause(part: Part) -> tuple[Selector, Clause]:
    entries = part.entries()
    clause: Clause = part.onto(Clause, leave={*WHO, "prefixes"})
    who = {key: item.plain() for key, item in entries.items() if key in {*WHO, "prefixes"}}
    if not who and clause.contents:
        return Selector(), clause
    return Selector.parse(who, part.where), clause


def _may_match(selector: Selector, below: Iterable[str]) -> bool:
    """Return whether a selector may match a name that begins with one of some texts."""
    heads = [*selector.prefixes, *(re.split(r"[*?[{]", glob, maxsplit=1)[0] for glob in selector.globs)]
    heads += [""] * bool(selector.regex)
    return any(head.startswith(text) or text.startswith(head) for head in heads for text in below)
