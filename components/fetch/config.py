"""Options of the fetch stage."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.engine.options import MAX_SHARES, RunConfig, option
from pairmill.errors import UsageError


@dataclass(kw_only=True)
class FetchConfig(RunConfig):
    """Bring raw data to the project, at locked revisions, with digests and licences."""

    workers: int = option(8, help="downloads at the same time; 0 = one per available core", changes_bytes=False)
    sources: list[str] = option(
        ["all"],
        help="sources to fetch, by name or as YAML files that describe one; all = every one that has a folder in raw, "
        "or without raw every known one",
    )
    raw: str = option(
        "",
        help="folder or URI with raw files that you have, one folder per source; they are used as they are",
        changes_bytes=False,
    )
    lock: str = option(
        "",
        help="file with the revision of each source, written at its first fetch; empty = <root>/sources.lock.yaml",
        changes_bytes=False,
    )
    split: int = option(
        1,
        help=f"number of pods that share the work of later stages, at most {MAX_SHARES}; Kubeflow loops over them",
        changes_bytes=False,
    )
    update: list[str] = option(
        [],
        help="sources whose lock is moved to the revision that is published now; all = every one",
        changes_bytes=False,
    )

    limit: int = option(
        0,
        help="fetch an extract instead: the first this many records of each source; 0 = everything",
        changes_bytes=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 0:
            raise UsageError("must not be negative", where="limit", got=str(self.limit), expected="0 for no limit")
        if not 1 <= self.split <= MAX_SHARES:
            raise UsageError("out of range", where="split", got=str(self.split), expected=f"1 to {MAX_SHARES}")
        if not self.sources:
            raise UsageError("is empty", where="sources", expected="all, or names joined by commas")
