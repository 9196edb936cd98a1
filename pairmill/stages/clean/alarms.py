"""The alarms of clean: sources of which half of the records or of the answers make no row."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pairmill.engine import vanished
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.policing import REMOVED
from pairmill.engine.vanished import Alarm
from pairmill.formats.results.raw import CleanResult
from pairmill.sources.parsed import WITHHELD
from pairmill.sources.source import Source
from pairmill.stages.clean.holdout import NOTE

_ASKED: Final = (REMOVED, "not_the_last_answer", "not_the_target", "weight_zero")
"""Reasons of records and answers that a policy, or the description of a source, asks for."""


_HINTS: Final = {
    WITHHELD: "named in sources= they are taken",
    "no_answer": "answer:, use: prompts or use: pairs in a YAML source take chats without an answer",
}


def alarms_of(
    sources: Mapping[str, Mapping[str, Any]], examples: Mapping[str, Mapping[str, list[str]]], quiet: Iterable[str]
) -> list[Alarm]:
    """Return the alarms of finished sources.

    Args:
        sources: what the manifest says of each.
        examples: by source and reason, places of records that were dropped.
        quiet: sources that say themselves how much is kept of them.
    """
    result: list[Alarm] = []
    for name in sorted(sources.keys() - set(quiet)):
        item = sources[name]
        answers = item.get("answers", {"found": 0, "rows": 0, "skipped": {}})
        of_answers = Ledger(answers["found"], answers["rows"], answers["rows"], answers["skipped"])
        for ledger in (Ledger(**item["ledger"]), of_answers):
            # Of a benchmark the test split is withheld on purpose, unless that is all there is.
            asked = (*_ASKED, WITHHELD) if ledger.rows_kept else _ASKED
            alarms = vanished.lost(name, ledger, asked=asked, examples=examples.get(name, {}))
            if alarms:
                reason = alarms[0].reason
                result.append(alarms[0]._replace(reason="; ".join(filter(None, [reason, _HINTS.get(reason, "")]))))
                break
    return result


def check_sources(sources: Iterable[Source], manifest: Manifest) -> None:
    """Raise InputError if a source does not give what its ``expect:`` says."""
    made = CleanResult.from_manifest(manifest).sources
    for source in sources:
        if source.expect is not None:
            ledger = Ledger(**made[source.name]["ledger"])
            rows = ledger.rows_out + ledger.notes.get(NOTE, 0)
            share = ledger.rows_kept / ledger.rows_in if ledger.rows_in else 0.0
            source.expect.check(f"the source {source.name}", {"rows": rows, "share": share})
