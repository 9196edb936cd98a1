"""The report of the fetch stage."""

from __future__ import annotations

from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.report.charts import Bars
from pairmill.report.model import Report, Table, describe_names


def report_of(manifest: Manifest) -> Report:
    """The report of a finished folder."""
    # A manifest that was read again has its keys sorted; its report has to be the same.
    sources: dict[str, dict[str, Any]] = dict(sorted(manifest.data["sources"].items()))
    given: dict[str, dict[str, Any]] = dict(sorted(manifest.data.get("given", {}).items()))
    count, size = (sum(one[what] for one in [*sources.values(), *given.values()]) for what in ("files", "bytes"))
    unlocked = [name for name, one in sources.items() if one["revision"] == "as given"]
    look_at = []
    if unlocked:
        look_at.append(f"No revision is known of {describe_names(unlocked)}: the files were given, not fetched.")
    return Report(
        "fetch",
        {"Sources": len(sources), "Files": count, "Bytes": size, "Fingerprint": manifest.fingerprint},
        [
            Table(
                "Sources",
                ("Source", "Origin", "Revision", "Files", "Bytes", "Licence"),
                [
                    (name, one["origin"], one["revision"], one["files"], one["bytes"], one["licence"])
                    for name, one in sources.items()
                ],
            ),
            *(
                [
                    Table(
                        "Finished data",
                        ("Given as", "Revision", "Files", "Bytes", "Licence"),
                        [
                            (name, *(one[what] for what in ("revision", "files", "bytes", "licence")))
                            for name, one in given.items()
                        ],
                    )
                ]
                if given
                else []
            ),
            Bars(
                "Bytes by source",
                sorted(((name, one["bytes"]) for name, one in sources.items()), key=lambda bar: -bar[1]),
                "bytes",
            ),
            Table("To cite", ("Source", "Citation"), [(name, one["citation"]) for name, one in sources.items()]),
        ],
        verdict=f"{len(sources):,} sources{f' and {len(given)} places of finished data' if given else ''} are there: "
        f"{count:,} files, {size:,} bytes.",
        look_at=look_at,
    )
