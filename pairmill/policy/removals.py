"""Records that are taken out: entries of a policy on single records, and the rows that were made of them.

They are lines of a file beside the policy, which names it: ``removals: removals.jsonl``. ``pairmill remove`` writes
both (docs/removing.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeAlias

from pairmill import storage
from pairmill.engine.manifest import InputRef
from pairmill.errors import UsageError

NAME: Final = "removals.jsonl"
DEFAULT_POLICY: Final = "policy.yaml"
"""That names it: of a project, below its root, where no other is given."""
Place: TypeAlias = int | str
"""A line or row of a raw file from 1, or the name of an archive's member."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Records that are taken out together.

    Args:
        records: raw file as ``<source>/<path>``, and place, sorted.
        reason, why, date, evidence: as a clause of the policy has them.
        raw: the digest of each of these raw files; empty = not known.
        files: by digest of a row file the ordinals of its rows that are made of the records, ascending: of all files of
            these sources that were looked into, those without such a row too.
    """

    records: Sequence[tuple[str, Place]]
    reason: str
    why: str
    date: str
    evidence: str = ""
    raw: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What identifies the entry: 16 hexadecimal digits that follow from its records and their raw files."""
        return InputRef.from_content("removal", self.records, sorted(self.raw.items())).fingerprint

    @property
    def sources(self) -> frozenset[str]:
        """The sources of the records."""
        return frozenset(file.partition("/")[0] for file, _ in self.records)

    def places_in(self, file: str) -> frozenset[Place]:
        """Return the places of its records in a raw file ``<source>/<path>``."""
        return frozenset(place for name, place in self.records if name == file)

    def with_files(self, files: Mapping[str, Sequence[int]]) -> Self:
        """Return the entry with more files that were looked into."""
        return replace(self, files={**self.files, **files})

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a line. Raises TypeError, ValueError or KeyError if it is not an entry."""
        data: dict[str, Any] = json.loads(line)
        name, records = data.pop("name"), data.pop("records")
        result = cls(records=tuple((file, place) for file, place in records), **data)
        if result.name != name:
            raise ValueError(f"its records are those of {result.name}, not of {name}")
        return result

    def to_json(self) -> str:
        """Return its line."""
        return json.dumps({"name": self.name, **vars(self)}, ensure_ascii=False, sort_keys=True)


def load(uri: str) -> list[Removal]:
    """Read the entries of a file.

    Raises:
        UsageError: it does not exist, or a line is not an entry.
    """
    store = storage.store_for(uri)
    if not store.exists(uri):
        hint = "put it beside the policy again: without it the records come back"
        raise UsageError("the file of removed records does not exist", where=f"removals: {uri}", hint=hint)
    result = []
    for number, line in enumerate(store.read(uri).decode(errors="replace").splitlines(), 1):
        try:
            result.append(Removal.from_json(line))
        except (TypeError, ValueError, KeyError) as error:
            hint = "pairmill remove writes these lines; take the file from a copy"
            raise UsageError(
                "not an entry of removed records", where=f"{uri} line {number}", got=str(error), hint=hint
            ) from error
    return result


def dump(removals: Sequence[Removal]) -> bytes:
    """Return the bytes of the file of these entries."""
    return "".join(f"{item.to_json()}\n" for item in removals).encode()
