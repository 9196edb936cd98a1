"""What keeps a result from being published: each reason by a name, by which it can be allowed all the same."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pairmill import storage
from pairmill.engine import policing
from pairmill.engine.policing import Subject
from pairmill.errors import PairmillError
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.net import hub, hub_push
from pairmill.policy.enforce import Enforcer
from pairmill.policy.licences import UNKNOWN, normalise
from pairmill.publish.tree import Item, Tree, is_held_out

REASONS: Final = ("licence", "gated", "held_out", "path", "language")
"""By name; what a policy does not allow has none, since the policy is where that is allowed."""
_TEXTS: Final = (".json", ".yaml", ".md", ".html", ".txt", ".csv")
_LONGEST: Final = 64 << 20
_PATH: Final = re.compile(
    rb"(?:file://|(?<![\w.:/<-]))/(?:home|Users|root|mnt|scratch|lustre|gpfs|work|workspace|private|tmp|var/tmp|dev/shm)"
    rb"/[\w.@+-]+[^\s\"'<>,;)\\]*"
)
"""A place of a machine; what is below / alone may be part of a text."""
_LANGUAGE: Final = re.compile("[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_WORDS: Final = ("multilingual", "code")
"""What the Hub takes beside codes of ISO 639."""
_HUB: Final = re.compile(r"hub(?: rows)?:([\w.-]+/[\w.-]+)")
_SHOWN: Final = 5


@dataclass(frozen=True)
class Refusal:
    """A reason.

    Args:
        name: of :data:`REASONS`, or ``policy``, or ``others``.
        what: is wrong, and where.
        hint: what to do.
    """

    name: str
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}; {self.hint}"


def refusals(tree: Tree, enforcer: Enforcer | None, allowed: Collection[str]) -> list[Refusal]:
    """Return what keeps a result from being published, but for the reasons that are allowed."""
    checks = (*_licences(tree), *_held_out(tree), *_paths(tree), *_languages(tree))
    if "gated" not in allowed:
        checks = (*checks, *_gates(tree))
    return [*(item for item in checks if item.name not in allowed), *_policy(tree, enforcer)]


def _licences(tree: Tree) -> Iterator[Refusal]:
    unknown = [item.name for item in tree.sets if normalise(item.licence) in UNKNOWN]
    if unknown:
        hint = "write licence: into the description of the source, or allow=licence"
        yield Refusal("licence", f"no licence is known of {_some(unknown)}", hint)


def _gates(tree: Tree) -> Iterator[Refusal]:
    for item in tree.sets:
        match = _HUB.match(str(item.facts.get("origin", "")))
        if match is None:
            continue
        try:
            gate = hub_push.gate_of(hub.Repository(match[1], "dataset", ""))
        except PairmillError as error:
            gate = f"not known ({error.what})"
        if gate:
            what = f"{match[1]}, the origin of {item.name}, is gated: {gate}"
            yield Refusal("gated", what, "its terms may forbid to give it on; if they do not, allow=gated")


def _held_out(tree: Tree) -> Iterator[Refusal]:
    count = sum(is_held_out(item.path) for item in tree.items)
    if count:
        yield Refusal("held_out", f"{count:,} files of held-out rows", "without=held_out leaves them out")


def _paths(tree: Tree) -> Iterator[Refusal]:
    seen = [f"{item.path} has {path}" for item in tree.items if (path := path_in(item))]
    if seen:
        hint = "they are of a machine and break on others: make the result again without them, or allow=path"
        yield Refusal("path", f"absolute paths: {_some(seen)}", hint)


def path_in(item: Item) -> str:
    """Return the first place of a machine that a text names; empty = it names none."""
    if not item.uri or not item.path.endswith(_TEXTS) or item.path.endswith(TOKENIZER) or item.size > _LONGEST:
        return ""
    match = _PATH.search(storage.store_for(item.uri).read(item.uri))
    return match[0].decode(errors="replace") if match else ""


def languages_of(told: object) -> list[str]:
    """Return the tags of a source's languages, given as a list or as text with commas."""
    parts = told if isinstance(told, list) else str(told or "").split(",")
    return [tag for part in parts if (tag := str(part).strip())]


def _languages(tree: Tree) -> Iterator[Refusal]:
    wrong = [
        f"{tag} of {item.name}"
        for item in tree.sets
        for tag in languages_of(item.facts.get("language"))
        if tag not in _WORDS and not _LANGUAGE.fullmatch(tag)
    ]
    if wrong:
        hint = f"write a code of ISO 639, as en or dan, or {' or '.join(_WORDS)}"
        yield Refusal("language", f"not a language tag: {_some(wrong)}", hint)


def _policy(tree: Tree, enforcer: Enforcer | None) -> Iterator[Refusal]:
    if enforcer is None:
        return
    tasks = {file.task: file.digest for file in tree.manifest.files if file.task}
    subjects = [Subject.from_task(task, [digest], tree.opened.uri) for task, digest in tasks.items()]
    subjects += [] if subjects else [Subject.from_task(it.name)._replace(licence=it.licence) for it in tree.sets]
    for subject in subjects:
        verdict = enforcer.judge(subject)
        if not verdict.is_allowed:
            yield Refusal("policy", f"{subject.name}: {verdict}", "leave it out of the result, or change the policy")
    removals = {name for subject in subjects for name in enforcer.entries_on(subject.source)}
    if removals - {*tree.manifest.data.get(policing.KEY, {}).get(policing.REMOVALS, ())}:
        what = "records of its sources are taken out, and it was made before"
        yield Refusal("policy", what, "make it again with this policy=")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
