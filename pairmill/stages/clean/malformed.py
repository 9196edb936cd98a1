"""What a run does about malformed records: it counts them by reason, and stops if sources have too many."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import ShardRecord
from pairmill.errors import InputError
from pairmill.sources.files.dialect import fits
from pairmill.sources.language.missing_paths import refuse_missed
from pairmill.sources.parsed import WITHHELD
from pairmill.sources.quirks import QUIRKS
from pairmill.sources.source import Source
from pairmill.stages.clean.cleaning import Cleaned, by_source
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.signs import no_rows

_REASONS = 4
_FILES_NAMED = 3
_WHERE = "clean"
NOT_UTF8 = "invalid_utf8"


def refuse_malformed(
    config: CleanConfig, sources: Mapping[str, Source], records: list[ShardRecord], files: Mapping[str, Collection[str]]
) -> None:
    """Raise InputError if sources lack what their descriptions read, have too many malformed records, or none at all.

    Args:
        sources: by name.
        records: of all shards.
        files: the paths of each source's files.
    """
    errors = []
    for name, mine in by_source(records).items():
        ledger = Ledger.sum(record.ledger for record, _ in mine)
        try:
            _refuse(config, sources[name], mine, ledger.rows_in, ledger.dropped.get(WITHHELD, 0), files[name])
        except InputError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        texts = [str(error).removeprefix(f"{_WHERE}: ").replace("\n", "\n  ") for error in errors]
        raise InputError(f"{len(errors)} sources are refused" + "".join(f"\n  {item}" for item in texts), where=_WHERE)


def _refuse(
    config: CleanConfig,
    source: Source,
    mine: list[tuple[ShardRecord, Cleaned]],
    there: int,
    withheld: int,
    files: Collection[str],
) -> None:
    dropped = Ledger.sum(record.ledger for record, _ in mine)
    signs = sorted({sign for _, item in mine for sign in item.signs}) if not dropped.rows_kept else []
    try:
        _refuse_faults(config, source, mine, there, withheld, files)
    except InputError as error:
        raise (no_rows(source, signs, dropped.dropped, error) if signs else error) from None
    if signs:
        raise no_rows(source, signs, dropped.dropped, None)


def _refuse_faults(
    config: CleanConfig,
    source: Source,
    mine: list[tuple[ShardRecord, Cleaned]],
    there: int,
    withheld: int,
    files: Collection[str],
) -> None:
    quirks = QUIRKS[config.profile]
    allowed = 0.0 if quirks.refuse_any_malformed else config.max_reject_fraction
    refuse_missed(source.name, source.watched, [item.missed for _, item in mine], there)
    refused = sum(item.refused for _, item in mine)
    looked_at = there - withheld
    if refused > allowed * looked_at:
        raise _too_many(config, source, mine, refused, looked_at, files)
    if there == 0 and not quirks.accept_no_record:
        raise InputError(f"the files of {source.name} contain no record", where=_WHERE, hint="check the raw data")


def _too_many(
    config: CleanConfig,
    source: Source,
    mine: list[tuple[ShardRecord, Cleaned]],
    refused: int,
    looked_at: int,
    files: Collection[str],
) -> InputError:
    reasons = [reason for reason in reasons_of((cleaned for _, cleaned in mine), with_files=True) if reason["refused"]]
    doubt = " or in doubt" if refused > sum(cleaned.rejects for _, cleaned in mine) else ""
    strict = QUIRKS[config.profile].refuse_any_malformed
    more = "" if strict else f", more than {config.max_reject_fraction:g} of them"
    lines = [f"{refused} of {looked_at} records of {source.name} are malformed{doubt}{more}"]
    suggested: dict[str, list[str]] = {}
    for reason in sorted(reasons, key=lambda reason: not reason["write"])[:_REASONS]:
        if reason["reason"] == NOT_UTF8 and source.described_in:
            reason["write"], share = encodings_for(reason["files"], files), 1 - reason["count"] / looked_at
            most = sorted(reason["files"].items(), key=lambda item: (-item[1], item[0]))
            named = [f"{path} ({count:,})" for path, count in most]
            reason["found"] = f"{share:.1%} of the records are UTF-8; others are in {_some(named)}"
        line = f"  write in {source.described_in}: {reason['write']}" if reason["write"] else "  mend the raw data"
        suggested.setdefault(line, []).append(f"    {_describe(reason)}")
    lines += [line for suggestion, evidence in suggested.items() for line in (suggestion, *evidence)]
    if len(reasons) > _REASONS:
        lines.append(f"  and {len(reasons) - _REASONS} reasons more")
    # A refused run publishes nothing: what its shards put aside is in their cache.
    aside = [record.uri(cleaned.reject_file) for record, cleaned in mine if cleaned.rejects]
    rest = f" and {len(aside) - 1} files of other shards" if len(aside) > 1 else ""
    lines.append(f"  each of them is in {aside[0]}{rest}" + ("" if strict else ";"))
    lines += [] if strict else ["  or raise max_reject_fraction= to go on without them"]
    return InputError("\n".join(lines), where=_WHERE)


def encodings_for(wrong: Mapping[str, int], files: Collection[str]) -> str:
    """Return the line that gives files that are not UTF-8 another encoding; ``wrong`` are some of ``files``."""
    if set(wrong) >= set(files):
        return "encoding: cp1252"
    names = sorted(wrong)
    common = f"{_start(names)}*{_start([name[::-1] for name in names])[::-1]}"
    if len(names) > _FILES_NAMED and {path for path in files if fits(common, path)} == set(names):
        names = [common]
    pairs = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: cp1252" for name in names[:_FILES_NAMED])
    rest = len(names) - _FILES_NAMED
    return f"encoding: {{{pairs}}}" + (f", and so of {rest} files more" if rest > 0 else "")


def _start(names: Sequence[str]) -> str:
    """Return what all names begin with."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(min(names), max(names), strict=False))
    return "".join(item for item, _ in alike)


def reasons_of(shards: Iterable[Cleaned], *, with_files: bool = False) -> list[dict[str, Any]]:
    """Why records of some shards are malformed: each reason with its counts and its first record; most come first."""
    result: dict[str, dict[str, Any]] = {}
    for cleaned in shards:
        for reason, tally in cleaned.reasons.items():
            known = result.setdefault(reason, {"reason": reason, **tally, "count": 0, "refused": 0, "files": {}})
            known["count"] += tally["count"]
            known["refused"] += tally["refused"]
            for path, count in tally.get("files", {}).items():  # records of older versions have none
                known["files"][path] = known["files"].get(path, 0) + count
    if not with_files:
        for tally in result.values():
            del tally["files"]
    return sorted(result.values(), key=lambda tally: (-tally["count"], tally["reason"]))


def _describe(reason: dict[str, Any]) -> str:
    example = f"{reason['file']} {reason['place']}: {reason['reason']}"
    result = [f"found {reason['found']}"] * bool(reason["found"]) + [f"{reason['count']:,} such"] * (
        reason["count"] > 1
    )
    return example + (f" ({', '.join(result)})" if result else "")


def _some(names: list[str]) -> str:
    rest = len(names) - _FILES_NAMED
    return ", ".join(names[:_FILES_NAMED]) + (f" and {rest} files more" if rest > 0 else "")
