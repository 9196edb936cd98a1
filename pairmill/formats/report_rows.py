"""A few rows of tokens as text, for reports: prompt and target, control tokens in double brackets."""

from collections.abc import Iterator
from typing import Final

from pairmill.formats.characters import TokenTexts
from pairmill.formats.opened import RangedTokens
from pairmill.formats.tokens import INDEX, Dataset

MOST: Final = 6
"""Rows of a report."""
_HEAD, _TAIL = 320, 120
"""Characters of a text that are kept: its beginning, and its end."""
_IDS = 2 * (_HEAD + _TAIL)
"""Ids that are decoded of a text, half from each end: a row may have a million."""
NAME: Final = "row"
"""Key of the row's name; the texts are beside it."""


class ReportRows:
    """Decodes rows.

    Args:
        tokenizer: a tokenizer.json.
        where: of it, for messages.
    """

    def __init__(self, tokenizer: bytes, where: str) -> None:
        self._texts = TokenTexts(tokenizer, where)

    def first(self, dataset: Dataset, name: str) -> Iterator[dict[str, str]]:
        """Yield the first row of a data set; nothing of an empty one."""
        arrays = {array: RangedTokens([dataset.array(array)]) for array in INDEX}
        if len(arrays["inst_len"]):
            known = dataset.ordinals()
            spans = [int(arrays[array][0:1][0]) for array in INDEX]
            yield self.row(dataset, spans, f"{name}:{0 if known is None else known[0]}")

    def row(self, dataset: Dataset, spans: list[int], name: str) -> dict[str, str]:
        """Return the row whose instruction and response have these starts and lengths, in the order of ``INDEX``."""
        tokens = RangedTokens([dataset.array()])
        start, length, answer, size = spans
        return {
            NAME: name,
            f"prompt, {length:,} tokens": self._text(tokens, start, length),
            f"target, {size:,} tokens": self._text(tokens, answer, size),
        }

    def _text(self, tokens: RangedTokens, start: int, length: int) -> str:
        if length <= _IDS:
            text = self._texts.text(tokens[start : start + length].tolist())
            return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} … {text[-_TAIL:]}"
        ends = (tokens[start : start + _IDS // 2], tokens[start + length - _IDS // 2 : start + length])
        head, tail = (self._texts.text(part.tolist()) for part in ends)
        return f"{head[:_HEAD]} … {tail[-_TAIL:]}"
