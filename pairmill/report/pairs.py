"""Two rows side by side, with the words that differ marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pairmill.report.differences import Span, compare, shorten
from pairmill.report.html import Html, join, tag
from pairmill.report.model import MAX_CELL, Block, Table, cut, heading

_MAX_CHARACTERS = 2_000
"""Of a text that is compared."""


class Pair(NamedTuple):
    """A row, and beside it the row that it is compared with, if any.

    Args:
        left: name of the row.
        right: name of the other row; empty = there is none.
        texts: ``(name of the field, text of the row, text of the other)``.
        caption: what was decided and why, in a few words.
        fields: names of the other's fields, if they have other names.
    """

    left: str
    right: str
    texts: Sequence[tuple[str, str, str]]
    caption: str = ""
    fields: Sequence[str] = ()


@dataclass(frozen=True)
class Pairs(Block):
    """Pairs of rows to read. White space is kept, long texts are shortened where they are equal.

    Args:
        pairs: in the order in which they are shown.
        note: what they have in common.
        names: what the two rows are, for the text.
    """

    title: str
    pairs: Sequence[Pair]
    note: str = ""
    names: tuple[str, str] = ("Row", "Compared with")

    def html(self, level: int) -> Html:
        if not self.pairs:
            return Html()
        return join(heading(self.title, level), tag("p", self.note) if self.note else "", *map(_frame, self.pairs))

    def markdown(self, level: int) -> list[str]:
        """Return a table of the names; the texts are for the page only."""
        if not self.pairs:
            return []
        rows = [(cut(item.left, MAX_CELL), cut(item.right, MAX_CELL) or "–", cut(item.caption)) for item in self.pairs]
        return Table(self.title, (*self.names, "Said"), rows, self.note).markdown(level)


def _frame(pair: Pair) -> Html:
    sides = ["left", "right"] if pair.right else ["left"]
    cells = [tag("p", tag("b", cut(name, MAX_CELL))) for name in (pair.left, pair.right)[: len(sides)]]
    others = pair.fields or [field for field, _, _ in pair.texts]
    for (field, left, right), other in zip(pair.texts, others, strict=False):
        left, right = left[:_MAX_CHARACTERS], right[:_MAX_CHARACTERS]
        result = compare(left, right) if pair.right else (shorten(left),)
        names = (field, other)[: len(result)]
        cells += [tag("div", tag("p", name), _text(spans)) for name, spans in zip(names, result, strict=True)]
    caption = tag("p", cut(pair.caption), class_="tag") if pair.caption else ""
    return tag("div", caption, tag("div", *cells, class_="pair" if pair.right else "texts"), class_="sample")


def _text(spans: Sequence[Span]) -> Html:
    if not spans:
        return tag("p", tag("i", "(empty)"))
    elements = {"differs": "mark", "gap": "i", "same": ""}
    parts = [tag(elements[item.kind], item.text) if elements[item.kind] else item.text for item in spans]
    # A line feed right after <pre> is not part of the text: after ours, the text's own first one stays.
    return tag("pre", "\n", *parts, dir="auto")
