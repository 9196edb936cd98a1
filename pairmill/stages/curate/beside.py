"""Two rows side by side in a terminal."""

import io
import shutil
import sys
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pairmill.redact import escaped_json
from pairmill.report.differences import Span, compare, shorten
from pairmill.report.markdown import VISIBLE
from pairmill.report.pairs import Pair

_WIDTH = 120
"""Of what is not a terminal."""
_STYLES = {"differs": "bold underline", "gap": "dim", "same": ""}


def render(pair: Pair) -> str:
    """Return the texts of a pair in two columns, of a single row in one; on a terminal, words that differ are marked.

    Control characters are drawn, so that no text of a row can change the terminal.
    """
    table = Table.grid(padding=(0, 3, 0, 0), expand=True)
    for _ in range(2 if pair.right else 1):
        table.add_column(ratio=1, overflow="fold")
    others = pair.fields or [field for field, _, _ in pair.texts]
    for (field, left, right), other in zip(pair.texts, others, strict=False):
        names, texts = [(pair.left, field)], [shorten(left)]
        if pair.right:
            names, texts = [*names, (pair.right, other)], [*compare(left, right)]
        table.add_row(*(Text(visible(f"{name} · {what}"), "dim") for name, what in names))
        table.add_row(*map(_text, texts))
        table.add_row("")
    return written(table)


def _text(spans: Sequence[Span]) -> Text:
    text = Text()
    for span in spans:
        text.append(visible(span.text), _STYLES[span.kind])
    return text if spans else Text("(empty)", "dim")


def visible(text: str) -> str:
    """Return a text without characters that a terminal acts on; line feeds and tabs stay."""
    return escaped_json(text.translate(VISIBLE))


def written(what: RenderableType) -> str:
    """Return what a terminal of this width would show; without styles if stdout is none."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDTH, 50)).columns if terminal else _WIDTH
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, highlight=False, markup=False, emoji=False
    )
    with console.capture() as capture:
        console.print(what)
    return (
        "".join(f"{line.rstrip()}\n" for line in capture.get().rstrip().splitlines()) if not terminal else capture.get()
    )
