"""The alarms of ledgers: from half on, with the first reason, and not for what was asked for."""

import pytest

from pairmill.engine import vanished
from pairmill.engine.expect import Expectation
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import ALARMS
from pairmill.errors import InputError, UsageError


def test_every_kind_can_fail_a_run() -> None:
    assert set(vanished.KINDS) == set(ALARMS)


@pytest.mark.parametrize(
    ("dropped", "asked", "rows"),
    [
        ({"a": 49}, (), None),
        ({"a": 50}, (), [100, 50]),
        ({"a": 30, "b": 40}, (), [100, 30]),
        ({"a": 30, "b": 40}, ("b",), None),
        ({"a": 55, "b": 40}, ("b",), [100, 45]),
    ],
)
def test_a_loss_is_an_alarm_from_half_on(
    dropped: dict[str, int], asked: tuple[str, ...], rows: list[int] | None
) -> None:
    kept = 100 - sum(dropped.values())
    alarms = vanished.lost("x", Ledger(100, kept, kept, dropped), asked=asked, examples={"b": ["x:1", "x:2", "x:3"]})
    assert [item.rows for item in alarms] == ([] if rows is None else [rows])
    if rows == [100, 30]:
        assert (alarms[0].reason, alarms[0].examples) == ("b", ["x:1", "x:2"])


def test_tokens_are_lost_too_and_no_row_is_no_loss() -> None:
    (alarm,) = vanished.lost("x", Ledger(4, 4, 4, notes={"truncated": 2}), tokens=[1000, 400])
    assert (alarm.lost, alarm.reason) == (0.6, "truncated")
    assert str(alarm) == "x (4 rows; 1,000 → 400 tokens; truncated)"
    assert vanished.lost("x", Ledger(), tokens=[0, 0]) == []


def test_a_manifest_keeps_its_table_and_an_old_one_has_none() -> None:
    manifest = Manifest("toy", 1, "0" * 16, {}, [], Ledger(), [], {"flan__a": Ledger(9, 1, 1, {"a": 8})})
    manifest.vanished = vanished.table_of(manifest, None, [("links", "b/")])
    again = Manifest.load(manifest.dump(), "here")
    assert [(item.kind, item.name) for item in vanished.read(again)] == [("vanished", "flan"), ("links", "b/")]
    assert vanished.sentences(again) == [
        "Half or more of the rows or tokens is gone of flan (9 → 1 rows; a).",
        "Links that are left out: b/.",
    ]
    vanished.refuse(again, ["unmatched_rule"])
    with pytest.raises(InputError, match=r"toy: refused by fail_on=links; got Links that are left out: b/\.;"):
        vanished.refuse(again, ["links", "unmatched_rule"])


@pytest.mark.parametrize(
    ("text", "count", "holds"),
    [
        (">0", 1, True),
        (">0", 0, False),
        ("<=5", 5, True),
        ("1.9e9..2.1e9", 2e9, True),
        ("1.9e9..2.1e9", 2.2e9, False),
        (7, 7, True),
        ("1_000", 999, False),
    ],
)
def test_bounds_are_kept_or_refused(text: object, count: float, holds: bool) -> None:
    expected = Expectation.parse({"rows": text}, "rules.yaml rule 1", ("rows", "share"))
    if holds:
        expected.check("the rule", {"rows": count})
        return
    with pytest.raises(InputError, match=f"rules.yaml rule 1: the rule does not give .*expected rows: {text}"):
        expected.check("the rule", {"rows": count})


@pytest.mark.parametrize("raw", [{}, [], "many", {"rows": "3%"}, {"rows": "5..2"}, {"rows": True}, {"rows": "-1"}])
def test_what_is_no_bound_is_refused(raw: object) -> None:
    with pytest.raises(UsageError, match="expect"):
        Expectation.parse(raw, "here", ("rows",))
