"""The report of the fetch stage."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.formats.results.raw import FetchResult
from pairmill.report.charts import Bars
from pairmill.report.model import Report, Table, describe_names


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder."""
    # A manifest that was read again has its keys sorted; its report has to be the same.
    result = FetchResult.from_manifest(manifest)
    sources, given = dict(sorted(result.sources.items())), dict(sorted(result.given.items()))
    count, size = (sum(item[what] for item in [*sources.values(), *given.values()]) for what in ("files", "bytes"))
    unlocked = any(item["revision"] == "as given" for item in sources.values())
    look_at = []
    parts = [f"{name} ({item['extract']})" for name, item in sources.items() if "extract" in item]
    if parts:
        look_at.append(f"Not the published files, but extracts of them: {describe_names(parts)}.")
    return Report(
        "fetch",
        {"Sources": len(sources), "Files": count, "Bytes": size, "Fingerprint": manifest.fingerprint},
        [
            Table(
                "Sources",
                ("Source", "Origin", "Revision", "Files", "Bytes", "Licence"),
                [
                    (name, item["origin"], item["revision"], item["files"], item["bytes"], item["licence"])
                    for name, item in sources.items()
                ],
                "Files that were given, not fetched, have no known revision." if unlocked else "",
            ),
            *_finished(given, result.passed_on),
            Bars(
                "Bytes by source",
                sorted(((name, item["bytes"]) for name, item in sources.items()), key=lambda bar: -bar[1]),
                "bytes",
            ),
            Table("To cite", ("Source", "Citation"), [(name, item["citation"]) for name, item in sources.items()]),
        ],
        verdict=_verdict(len(sources), len(given), len(result.passed_on), f"{count:,} files, {size:,} bytes"),
        look_at=look_at,
    )


def _finished(given: dict[str, dict[str, Any]], passed_on: Sequence[Sequence[str]]) -> list[Table]:
    """Finished data that was fetched, and what is passed on from where it is."""
    if not given and not passed_on:
        return []
    columns = ("revision", "files", "bytes", "licence")
    rows = [(name, *(item[column] for column in columns)) for name, item in given.items()]
    rows += [(f"{option}={uri}", "as it is", "–", "–", "") for option, uri in passed_on]
    return [Table("Finished data", ("Given as", "Revision", "Files", "Bytes", "Licence"), rows)]


def _verdict(sources: int, given: int, passed_on: int, sums: str) -> str:
    parts = [f"{sources:,} sources"] if sources or not given + passed_on else []
    parts += [f"{given + passed_on:,} places of finished data"] if given + passed_on else []
    return (
        f"{' and '.join(parts)} are there: {sums} were fetched or digested."
        if given + passed_on
        else (f"{parts[0]} are there: {sums}.")
    )
