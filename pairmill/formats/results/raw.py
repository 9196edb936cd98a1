"""What fetch and clean promise, and a finished folder of raw data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.engine.results import HeldOutRows, Result, empty, left_out


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FetchResult(Result):
    """What was fetched or digested.

    Attributes:
        sources: origin, revision, licence, citation, files and bytes of each.
        given: the same of finished data, by ``option=address``.
        passed_on: option and URI of finished data that is where it is.
    """

    sources: Mapping[str, dict[str, Any]]
    given: Mapping[str, dict[str, Any]] = left_out({})
    passed_on: Sequence[Sequence[str]] = left_out(())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RawResult(Result):
    """A finished folder of raw data.

    Attributes:
        about: origin, revision, licence and citation.
        fetched: when, in UTC.
        extract: limit, records and published files of an extract; None = the published files.
    """

    about: dict[str, str]
    fetched: str = ""
    extract: Mapping[str, Any] | None = left_out(None)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CleanResult(HeldOutRows):
    """Rows of each output file by path, and what became of each source; ``beside`` are the records of each file of
    prompts or pairs."""

    outputs: Mapping[str, int]
    sources: Mapping[str, dict[str, Any]] = empty()
    beside: Mapping[str, int] = left_out({})
