"""What the manifest says of a run beside its decisions."""

import dataclasses
from typing import Any

from pairmill.stages.curate.outcome import _counted


@dataclasses.dataclass
class _Record:
    data: dict[str, Any]


def _said(name: str, *counts: dict[str, int]) -> dict[str, int]:
    records: Any = [_Record({"counts": one}) for one in counts]
    return _counted(name, records)


def test_questions_that_were_not_compared_are_counted_of_all_slices() -> None:
    assert _said("decontaminate", {"hits exam": 2, "unscored": 3}, {}, {"unscored": 4}) == {"unscored": 7}
    assert _said("decontaminate", {"hits exam": 2}) == {}


def test_languages_and_labels_are_counted() -> None:
    assert _said("language", {"language en": 2}, {"language en": 1, "language und": 4}) == {
        "language en": 3,
        "language und": 4,
    }


def test_what_decisions_say_is_not_counted_again() -> None:
    assert _said("pii", {"rows": 1, "EMAIL": 2}) == {}
