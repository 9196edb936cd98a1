"""What the manifest says of a run beside its decisions."""

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import ShardRecord
from pairmill.stages.curate.outcome import _counted


def _count(name: str, *counts: dict[str, int]) -> dict[str, int]:
    data = [{"rows": 1, "counts": item} for item in counts]
    return _counted(name, [ShardRecord("", "", "", ledger=Ledger(), data=item) for item in data])


def test_questions_that_were_not_compared_are_counted_of_all_slices() -> None:
    assert _count("decontaminate", {"hits exam": 2, "unscored": 3}, {}, {"unscored": 4}) == {"unscored": 7}
    assert _count("decontaminate", {"hits exam": 2}) == {}


def test_languages_and_labels_are_counted() -> None:
    assert _count("language", {"language en": 2}, {"language en": 1, "language und": 4}) == {
        "language en": 3,
        "language und": 4,
    }


def test_what_decisions_say_is_not_counted_again() -> None:
    assert _count("pii", {"rows": 1, "EMAIL": 2}) == {}
