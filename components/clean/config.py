"""Options of the clean stage."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.errors import UsageError
from pairmill.stage import StageConfig, option


@dataclass(kw_only=True)
class CleanConfig(StageConfig):
    """Turn raw instruction data sets into rows {condition, instruction, response}."""

    raw: str = option(help="folder or URI that holds one folder of raw files per source", changes_bytes=False)
    sources: list[str] = option(
        ["all"], help="sources to clean, by name; all = every known source that has a folder below raw"
    )
    max_reject_fraction: float = option(
        0.001, help="malformed rows of a source that are put aside, as a fraction; more fail the stage (data_io: any)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.max_reject_fraction <= 1:
            raise UsageError(
                "out of range", where="max_reject_fraction", got=str(self.max_reject_fraction), expected="0 to 1"
            )
        if not self.sources:
            raise UsageError("is empty", where="sources", expected="all, or names joined by commas")
