"""Findings of personal data."""

import pyarrow as pa

from pairmill.formats import decisions, rows
from pairmill.stages.curate.scores.pii import PiiScorer
from pairmill.stages.curate.settings import Settings


def test_a_finding_names_the_kind_and_where_it_is() -> None:
    given = rows.Batch(
        0,
        pa.array(["", "", ""]),
        pa.array(["é a@example.org 8.8.8.8", "nothing", None]),
        pa.array(["b@example.org", "12345", "+1 555 123 4567"]),
    )
    with PiiScorer().opened() as score:
        scored = score(given)
    assert scored.findings is not None
    assert scored.findings.schema.equals(decisions.SCHEMA)
    assert [(row["ordinal"], row["rule"], row["action"], row["detail"]) for row in scored.findings.to_pylist()] == [
        (0, "EMAIL", "report", "instruction 2 15, response 0 13"),
        (0, "IP", "report", "instruction 16 23"),
        (2, "PHONE", "report", "response 0 15"),
    ]
    assert scored.counts == {"rows": 2, "EMAIL": 2, "IP": 1, "PHONE": 1}


def test_a_batch_without_findings_has_none() -> None:
    plain = pa.array(["a", "b"])
    with PiiScorer().opened() as score:
        scored = score(rows.Batch(0, plain, plain, plain))
    assert (scored.findings, scored.counts) == (None, {})


def test_it_is_off_unless_asked_for() -> None:
    assert Settings.parse("").pii.mode == "off"
    assert Settings.parse("pii: {mode: redact}").pii.mode == "redact"
