"""What tokenize, a union of tokenized folders, and mix promise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.engine.results import HeldOutRows, Result, left_out
from pairmill.formats.results import Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenizeResult(HeldOutRows):
    """What tokenize says beside counts.

    Attributes:
        vocab_size: number of tokens.
        pieces: by task the shards that a large one is of.
        chat_template: of rendered rows.
        row_files: by task the digest of the row file that it was made of.
        lengths: by source :meth:`pairmill.formats.token_lengths.TokenLengths.describe` of its rows, ``after`` long ones
            were made to fit, and ``before`` where some were.
        rows: a few, as text (:mod:`pairmill.formats.report_rows`).
    """

    vocab_size: int
    pieces: Mapping[str, Sequence[str]] = left_out({})
    chat_template: Mapping[str, Any] = left_out({})
    row_files: Mapping[str, str] = left_out({})
    lengths: Mapping[str, Any] = left_out({})
    rows: Rows = left_out(())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnionResult(Result):
    """Tokenized folders as one: a manifest, and no arrays.

    Attributes:
        folders: name, place and fingerprint of each, and its ``tasks``: by name its own name there. A place that begins
            with a dot is below the project of the union.
        excluded: name, folder and reason of tasks that were left out; duplicates: of those that equal another task,
            which is taken.
        missing: what ``include`` names, and no folder has.
    """

    folders: Rows
    excluded: Rows = left_out(())
    duplicates: Rows = left_out(())
    missing: Sequence[str] = left_out(())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MixResult(Result):
    """The plan in numbers.

    Attributes:
        method: of the settings.
        budget: response tokens of the plan; ``asked`` is what the settings say, or None.
        unfilled: response tokens that the caps leave.
        epochs: of all phases.
        phases: ``PlannedPhase`` each.
        table: ``SourceRow`` of each source, by phase and for all of them.
        compared: whether an earlier mixture is shown beside it; ``gone`` are the sources that only that one has.
        tasks: source, rows and response tokens of each task.
    """

    method: str
    budget: float
    asked: float | None
    unfilled: float
    epochs: int
    phases: Rows
    table: Rows
    compared: bool
    gone: Sequence[str]
    tasks: Mapping[str, Sequence[Any]]
