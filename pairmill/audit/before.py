"""What became of the sources of the plan before: each is there under some name, or is left out for a reason."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairmill.engine.source_names import source_of

UNRESOLVED: Final = "unresolved"
MEANINGS: Final[Mapping[str, str]] = {
    "same": "the same tokens",
    "changed": "the same name, other tokens",
    "renamed": "the same tokens under another name",
    "followed": "named in successors=",
    "not_drawn": "rules draw no row",
    "denied": "left out by a policy",
    UNRESOLVED: "gone, and nothing says why",
}


@dataclass
class PlanTasks:
    """The tasks of a plan.

    Args:
        keys: identity of the tokens of each that rows are drawn of.
        not_drawn: names of the others of its tokenized folder.
        denied: names that a policy leaves out.
    """

    keys: Mapping[str, str]
    not_drawn: Collection[str] = field(default_factory=frozenset)
    denied: Collection[str] = field(default_factory=frozenset)


def resolve(before: PlanTasks, now: PlanTasks, successors: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return by source of the plan before its tasks by what became of them (:data:`MEANINGS`), and where they are."""
    names = {key: name for name, key in sorted(now.keys.items(), reverse=True)}
    sources = {source_of(name) for name in now.keys}
    result: dict[str, dict[str, Any]] = {}
    for name, key in sorted(before.keys.items()):
        source, place = source_of(name), ""
        if now.keys.get(name) == key:
            what = "same"
        elif key in names:
            what, place = "renamed", names[key]
        elif name in now.keys:
            what = "changed"
        elif name in now.denied:
            what = "denied"
        elif name in now.not_drawn:
            what = "not_drawn"
        elif (place := successors.get(source, "")) in sources:
            what = "followed"
        else:
            what, place = UNRESOLVED, ""
        item = result.setdefault(source, {"tasks": Counter(), "places": []})
        item["tasks"][what] += 1
        if place and source_of(place) not in item["places"]:
            item["places"].append(source_of(place))
    return result
