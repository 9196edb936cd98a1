"""What a run does about malformed records: it counts them by reason, and stops if a source has too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.clean.cleaning import Cleaned, by_source
from components.clean.config import CleanConfig
from pairmill.engine.stage import ShardRecord
from pairmill.errors import InputError
from sources.missing_paths import refuse_missed
from sources.quirks import QUIRKS
from sources.source import WITHHELD, Source

_REASONS = 10
_FILES_NAMED = 3


def refuse_malformed(config: CleanConfig, sources: Mapping[str, Source], records: list[ShardRecord]) -> None:
    """Raise InputError if a source lacks what its description reads, has too many malformed records, or none."""
    quirks = QUIRKS[config.profile]
    allowed = 0.0 if quirks.refuse_any_malformed else config.max_reject_fraction
    for name, ledger in by_source(records).items():
        mine = [(record, record.read(Cleaned)) for record in records if record.read(Cleaned).source == name]
        refuse_missed(name, sources[name].watched, [one.missed for _, one in mine], ledger.rows_in)
        refused = sum(one.refused for _, one in mine)
        looked_at = ledger.rows_in - ledger.dropped.get(WITHHELD, 0)
        if refused > allowed * looked_at:
            raise _too_many(config, sources[name], mine, refused, looked_at)
        if ledger.rows_in == 0 and not quirks.accept_no_record:
            raise InputError(f"the files of {name} contain no record", where="clean", hint="check the raw data")


def _too_many(
    config: CleanConfig, source: Source, mine: list[tuple[ShardRecord, Cleaned]], refused: int, looked_at: int
) -> InputError:
    reasons = [one for one in reasons_of(cleaned for _, cleaned in mine) if one["refused"]]
    doubt = " or in doubt" if refused > sum(cleaned.rejects for _, cleaned in mine) else ""
    strict = QUIRKS[config.profile].refuse_any_malformed
    more = "" if strict else f", more than {config.max_reject_fraction:g} of them"
    # A refused run publishes nothing: what its shards put aside is in their cache.
    files = [record.uri(cleaned.reject_file) for record, cleaned in mine if cleaned.rejects]
    writes = list(dict.fromkeys(one["write"] for one in reasons if one["write"]))
    mend = [f"write in {source.described_in}: {' or '.join(writes[:_REASONS])}"] if writes else []
    mend += ["mend the raw data"] if len(writes) < len(reasons) else []
    mend += [] if strict else ["raise max_reject_fraction= to go on without them"]
    return InputError(
        f"{refused} of {looked_at} records of {source.name} are malformed{doubt}{more}",
        where="clean",
        got="; ".join(map(_said, reasons[:_REASONS])) + ("; …" if len(reasons) > _REASONS else ""),
        hint=f"each of them is in {_named(files)}; " + ", or ".join(mend),
    )


def reasons_of(shards: Iterable[Cleaned]) -> list[dict[str, Any]]:
    """Why records of some shards are malformed: each reason with its counts and its first record; most come first."""
    found: dict[str, dict[str, Any]] = {}
    for cleaned in shards:
        for reason, one in cleaned.reasons.items():
            known = found.setdefault(reason, {"reason": reason, **one, "count": 0, "refused": 0})
            known["count"] += one["count"]
            known["refused"] += one["refused"]
    return sorted(found.values(), key=lambda one: (-one["count"], one["reason"]))


def _said(one: dict[str, Any]) -> str:
    example = f"{one['file']} {one['place']}: {one['reason']}"
    found = [f"found {one['found']}"] * bool(one["found"]) + [f"{one['count']:,} such"] * (one["count"] > 1)
    return example + (f" ({', '.join(found)})" if found else "")


def _named(files: list[str]) -> str:
    rest = len(files) - _FILES_NAMED
    return ", ".join(files[:_FILES_NAMED]) + (f" and {rest} files of other shards" if rest > 0 else "")
