"""HTML from nested calls: what is not :class:`Html` already is escaped, so no text of a row can become markup."""

from pairmill.report.markdown import VISIBLE


class Html(str):
    """Text that is HTML already."""


def escape(text: str) -> str:
    """Escape text between tags, as html.escape does, whose module has the names of all characters."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def join(*parts: str) -> Html:
    """Parts one after another; plain text is escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part.translate(VISIBLE)) for part in parts))


def tag(element: str, *inside: str, **attributes: str | float | bool) -> Html:
    """Return an element. ``class_`` gives ``class``, ``text_anchor`` gives ``text-anchor``; empty attributes are left
    out."""
    written = ""
    for name, value in attributes.items():
        if value is True:
            written += f" {name}"
        elif value is not False and value != "":
            text = f"{value:.1f}" if isinstance(value, float) else str(value)
            quoted = escape(text.translate(VISIBLE)).replace('"', "&quot;").replace("'", "&#x27;")
            written += f' {name.rstrip("_").replace("_", "-")}="{quoted}"'
    return Html(f"<{element}{written}>{join(*inside)}</{element}>")
