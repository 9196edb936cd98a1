"""The rows of a data set that may be sampled: filtered and cut as the options and the data set's rule say. Pure.

The algorithm is data_io's sampler (docs/format.md section 5); the default profile corrects its defects
(docs/differences.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import Ledger
from pairmill.engine.options import Profile
from pairmill.formats.split import Cutter, SplitRows, split_rows
from pairmill.formats.tokens import BYTES, INDEX, UNKNOWN_BYTES, Ints, narrowest
from pairmill.rules.rule import Rule

REASONS = ("response_too_short", "over_context", "response_too_short_once_cut")
"""Why rows may not be sampled."""
SPLIT = ("split_pieces", "split_tokens", "repeated_tokens")
"""Sums over the rows that were split: pieces, tokens of their responses, tokens of the instructions repeated."""

_EXAMPLES = 2
NEVER = 2**63 - 1
"""A context that no row has."""


class RowOptions(Protocol):
    """What of a stage's options decides which rows may be sampled.

    Attributes:
        context_size: longest row in tokens.
        min_resp_length: shortest response in tokens, its end token included.
        profile: data_io tests the length of a response before it is cut.
    """

    @property
    def context_size(self) -> int: ...

    @property
    def min_resp_length(self) -> int: ...

    @property
    def profile(self) -> Profile: ...


@dataclass
class DatasetRows:
    """The rows of a data set that may be sampled, with what became of the others.

    Attributes:
        columns: the four index arrays, int32 or int64 of shape (rows,); spans point into the data set's ``tokens.npy``.
            With the bytes of responses, if the index had them: UNKNOWN_BYTES where a response was cut.
        ledger: what became of all rows.
        length: tokens of the data set.
        least_context: the smallest context with which a row is left whose response is long enough; NEVER if none is.
        cut: the rows that lost tokens, ascending, int64 [n], and how many each lost, int64 [n].
        origins: for each row, which may be a piece, the number of its row in the data set, ascending; None if each is
            a row of its own and nobody asked for the numbers.
        examples: by ledger reason, the numbers of the first two rows from 1.
        passes: how often each was seen before, uint8 [rows], 255 = as often or more; None = never.
        kept: how often the first epochs of a plan take each, whatever is drawn, uint8 [rows], and how many epochs these
            are; None and 0 = it is drawn.
    """

    name: str
    rule: Rule
    columns: dict[str, NDArray[Any]]
    ledger: Ledger
    length: int
    least_context: int
    cut: tuple[NDArray[np.int64], NDArray[np.int64]]
    origins: NDArray[np.uint32] | None
    examples: dict[str, list[int]]
    passes: NDArray[np.uint8] | None = None
    kept: tuple[NDArray[np.uint8] | None, int] = (None, 0)

    def rows_seen(self, least: int) -> int:
        """Count the data set's rows that were seen this often before; of those that were split, in every piece.

        Rows that the plan's own epochs keep do not count.
        """
        if self.passes is None:
            return 0
        seen = self.passes >= least
        if self.kept[0] is not None:
            seen &= self.kept[0] == 0
        if self.origins is None:
            return int(seen.sum())
        return len(np.unique(self.origins)) - len(np.unique(self.origins[~seen]))

    def __len__(self) -> int:
        return len(self.columns["inst_len"])


def rows_of(
    name: str,
    rule: Rule,
    index: Iterable[Mapping[str, Ints]],
    options: RowOptions,
    cutter: Cutter | None = None,
    *,
    numbered: bool = False,
) -> DatasetRows:
    """Filter, and truncate or split the rows of a data set, given in chunks of its index arrays (int64).

    ``cutter`` is the data set's, if the rule splits rows; with ``numbered`` the result has ``origins`` in any case.
    """
    kept: dict[str, list[NDArray[Any]]] = {column: [] for column in INDEX}
    origins: list[NDArray[np.uint32]] = []
    ledger, cut_rows = Ledger(), [(np.empty(0, np.int64), np.empty(0, np.int64))]
    length, least, count = 0, NEVER, 0
    examples: dict[str, list[int]] = {}
    for chunk in index:
        inst_len, resp_len = chunk["inst_len"], chunk["resp_len"]
        allowed = options.context_size - np.minimum(inst_len, options.context_size)
        if rule.long_context == "truncate":
            fits, cut = allowed >= 1, np.minimum(resp_len, allowed)
        elif rule.long_context == "split":
            fits, cut = allowed >= 1, resp_len
        else:
            fits, cut = resp_len <= allowed, resp_len
        # The reference tests the length before it cuts, so a response cut to one token passes.
        tested = resp_len if options.profile == "data_io" else cut
        short = resp_len < options.min_resp_length
        cut_short = ~short & fits & (tested < options.min_resp_length)
        keep = fits & ~short & ~cut_short
        for reason, marked in zip(REASONS, (short, ~short & ~fits, cut_short), strict=True):
            if marked.any():
                ledger.drop(reason, int(marked.sum()))
                _note(examples, reason, np.flatnonzero(marked)[:_EXAMPLES] + ledger.rows_in)
        if cutter is None:
            taken = {name: values[keep] for name, values in {**chunk, "resp_len": cut}.items()}
            if BYTES in chunk:
                taken[BYTES] = np.where(cut < resp_len, UNKNOWN_BYTES, chunk[BYTES])[keep]
            if numbered:
                origins.append((np.flatnonzero(keep) + ledger.rows_in).astype(np.uint32))
        else:
            made = split_rows(chunk, keep, allowed, options.min_resp_length, cutter)
            _count_split(ledger, chunk, made)
            origins.append((made.rows + ledger.rows_in).astype(np.uint32))
            keep, taken = made.keep, made.columns
            if BYTES in chunk:
                whole = taken["resp_len"] == resp_len[made.rows]
                taken[BYTES] = np.where(whole, chunk[BYTES][made.rows], UNKNOWN_BYTES)
        first = ledger.rows_in
        ledger.rows_in += len(resp_len)
        length += int(inst_len.sum() + resp_len.sum())
        lost = (resp_len - cut)[keep]
        _note(examples, "truncated", np.flatnonzero((cut < resp_len) & keep)[:_EXAMPLES] + first)
        shortened = np.flatnonzero(lost)
        if len(shortened):
            cut_rows.append((shortened + count, lost[shortened].astype(np.int64)))
        count += len(taken["inst_len"])
        needed = inst_len + _least_response(rule, resp_len, options.min_resp_length)
        least = min(least, int(needed[~short].min(initial=NEVER)))
        for column, values in taken.items():
            # The largest number of the data set is unknown yet; that of the chunk is enough to save memory.
            kept.setdefault(column, []).append(values.astype(narrowest(int(values.max(initial=0)))))
    columns = {column: np.concatenate(parts) if parts else np.empty(0, np.int32) for column, parts in kept.items()}
    numbers = None
    if numbered or "split" in ledger.notes:
        numbers = np.concatenate([np.empty(0, np.uint32), *origins])
    places, lost = (np.concatenate(parts) for parts in zip(*cut_rows, strict=True))
    count_cut(ledger, len(lost), int(lost.sum()))
    return DatasetRows(
        name=name,
        rule=rule,
        columns=columns,
        ledger=ledger,
        length=length,
        least_context=least,
        cut=(places, lost),
        origins=numbers,
        examples=examples,
    )


def _note(examples: dict[str, list[int]], reason: str, rows: NDArray[np.int64]) -> None:
    """Add rows, numbered from 0, to the examples of a reason while there is room."""
    if len(rows):
        some = examples.setdefault(reason, [])
        some += (rows[: _EXAMPLES - len(some)] + 1).tolist()


def count_cut(ledger: Ledger, rows: int, tokens: int) -> None:
    """Say in a ledger that rows were cut, and how many tokens they lost, in place of what it says of that."""
    for counts, name, count in ((ledger.notes, "truncated", rows), (ledger.measures, "truncated_tokens", tokens)):
        counts.pop(name, None)
        if count:
            counts[name] = count


def _count_split(ledger: Ledger, chunk: Mapping[str, Ints], made: SplitRows) -> None:
    for reason, count in made.dropped.items():
        ledger.drop(reason, count)
    if not len(made.split):
        return
    ledger.note("split", len(made.split))
    instructions = chunk["inst_len"][made.split]
    sums = (made.pieces.sum(), chunk["resp_len"][made.split].sum(), (instructions * (made.pieces - 1)).sum())
    for name, count in zip(SPLIT, sums, strict=True):
        ledger.measures[name] = ledger.measures.get(name, 0) + int(count)


def _least_response(rule: Rule, resp_len: Ints, least: int) -> Ints | int:
    """Return the tokens that the context must have beside an instruction for the row not to be dropped."""
    if rule.long_context == "truncate":
        return max(1, least)
    if rule.long_context == "split":  # a cut may have to move by three tokens, the rest of a character
        return np.minimum(resp_len, max(1, least) + 3)
    return resp_len
