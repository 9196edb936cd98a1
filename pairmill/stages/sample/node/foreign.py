"""A sampled folder that has no manifest: whether its arrays and what it says of itself belong together."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill.cpu import available_cores
from pairmill.errors import InputError
from pairmill.loader.folder import TOKENS, SampledFolder
from pairmill.loader.tokenizer import METADATA

_PIECE: Final = 16 << 20
"""Tokens that a thread looks at at once."""
_HINT: Final = "the folder is damaged, or was changed after it was sampled: sample again"


def validate(path: Path) -> None:
    """Look at every row and every token of a folder of data_io's sampler, or of any other.

    Arrays are mapped, and read once in pieces. What is compared: the epochs that are there, the four arrays of each,
    the bounds of each row, rows and tokens of the epochs with each other and with ``total_length``, the longest row
    with ``max_seq_len``, and every id with the vocabulary.

    Raises:
        InputError: something differs.
    """
    folder = SampledFolder(path)
    surveys, metadata = folder.surveys, folder.metadata
    tokens = [survey.inputs + survey.rows for survey in surveys]
    rows = [survey.rows for survey in surveys]
    if len({*rows}) > 1:
        raise _wrong("epochs differ in their rows", path, ", ".join(f"{count:,}" for count in rows), "as many in each")
    # As the reference writes it: the mean of the epochs, ties to even.
    mean = round(sum(tokens) / len(tokens))
    if mean != metadata.total_length:
        raise _wrong(
            "total_length is not the tokens of an epoch", path / METADATA, f"{metadata.total_length:,}", f"{mean:,}"
        )
    longest = max(survey.longest[0] for survey in surveys)
    if longest > metadata.max_seq_len:
        expected = f"at most {metadata.max_seq_len + 1:,}, which is max_seq_len"
        raise _wrong("a row is longer than max_seq_len", path, f"{longest + 1:,} tokens", expected)
    size = int(folder.tokenizer.info["vocab_size"]) if folder.tokenizer else metadata.vocab_size
    if np.iinfo(folder.tokens.dtype).max < size - 1:
        raise _wrong(
            f"{folder.tokens.dtype} does not hold the vocabulary", path / TOKENS, f"{size:,} ids", "a wider type"
        )
    _refuse_ids(folder.tokens, size, path / TOKENS)
    log.event(
        f"{path}: no manifest; {len(rows)} epochs of {rows[0]:,} rows and {mean:,} tokens belong together, and "
        f"{len(folder.tokens):,} ids are below {size:,}",
        folder=str(path),
        epochs=len(rows),
        rows=rows[0],
        tokens=mean,
    )


def _refuse_ids(tokens: NDArray[Any], size: int, where: Path) -> None:
    def look(start: int) -> tuple[int, int, int]:
        piece = tokens[start : start + _PIECE]
        return start, int(piece.min()), int(piece.max())

    with ThreadPoolExecutor(available_cores()) as pool:
        for start, least, most in pool.map(look, range(0, len(tokens), _PIECE)):
            if least < 0 or most >= size:
                piece = tokens[start : start + _PIECE]
                at = int(np.flatnonzero((piece < 0) | (piece >= size))[0])
                raise _wrong(
                    f"token {start + at:,} is not an id of the vocabulary", where, str(piece[at]), f"0 to {size - 1:,}"
                )


def _wrong(what: str, where: Path, got: str, expected: str) -> InputError:
    return InputError(what, where=str(where), got=got, expected=expected, hint=_HINT)
