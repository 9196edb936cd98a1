"""What of a text may be shown: no secret, and nothing that a terminal obeys.

Names and messages of foreign libraries come from outside. :mod:`pairmill.log` passes everything through here.
"""

from __future__ import annotations

import os
import re

CUT = "…"
"""What is shown in place of a secret."""

_URL = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*)://([^\s"'<>`]+)""")
# urllib3 names a URL by its path alone: "Max retries exceeded with url: /key?X-Amz-Signature=…".
_PATH = re.compile(r"""(?<![^\s"'(<])(/[^\s?"'<>`]*)\?([A-Za-z_][\w.~%-]*=[^\s"'<>`]*)""")
# A quote inside of a query ends what is taken for its URL.
_SIGNED = re.compile(
    r"(?i)([?&#](?:x-(?:amz|goog)-[\w-]+|sig|signature|policy|key-pair-id|(?:aws|google)access(?:key)?id|password|secret"
    r"|(?:[a-z]+[_-])?token|(?:client|app)[_-]secret|api[_-]?key)=)[^\s&\"'<>`]+"
)
_AUTHORIZATION = re.compile(r"(?i)(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?:[a-z]+[ ]+)?[^\s\"',}]+")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}\b|(?i:(?<=\bbearer ))[\w.~+/=-]{16,}")
_CLOSING = re.compile(r"[)\]}.,;:]*$")
# There a question mark is a character of a name.
_NAMES = frozenset({"file", "gs", "hf", "minio", "s3"})

_SECRET_VARIABLE = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|SECRET_KEY|ACCESS_KEY|API_KEY)$")
# A shorter value is a word that messages hold by chance.
_SHORTEST = 6

# DEL and the second half of control characters, ends of lines, and what overrides the direction of writing: JSON lets
# them pass, and a terminal that shows JSON obeys them.
_OBEYED = (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_IN_JSON = {code: f"\\u{code:04x}" for code in _OBEYED}
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in range(0x20) if code != ord("\n")},
    **{code: f"\\x{code:02x}" if code < 0x100 else escape for code, escape in _IN_JSON.items()},
    ord("\t"): "\\t",
    ord("\r"): "\\r",
}
# A line that begins as far right as this is one of a message; further left begins the next message.
_CONTINUED = re.compile(r"\n(?!  )")


def scrubbed(text: str) -> str:
    """The text without queries and passwords of URLs, and without the values of variables that hold secrets."""
    for value in _secrets():
        text = text.replace(value, CUT)
    if "?" in text or "://" in text:
        text = _URL.sub(_plain_url, text)
        text = _PATH.sub(_plain_path, text)
    text = _SIGNED.sub(rf"\1{CUT}", text)
    text = _AUTHORIZATION.sub(rf"\1{CUT}", text)
    return _TOKEN.sub(CUT, text)


def escaped(text: str) -> str:
    """The text for a terminal: control characters and those that reorder a line are spelt out, further lines indented.

    So no name moves the cursor, changes what was said before, or looks like a message of its own.
    """
    return _CONTINUED.sub("\n  ", text.translate(_ESCAPES))


def escaped_json(line: str) -> str:
    """JSON for a terminal: it says the same."""
    return line.translate(_IN_JSON)


def _secrets() -> list[str]:
    values = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    # The longest first: one may be part of another.
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def _plain_url(match: re.Match[str]) -> str:
    scheme, rest = match.groups()
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    user, at, host = rest[:end].rpartition("@")
    named = scheme.lower() in _NAMES
    host = f"{CUT}@{host}" if at and (":" in user or not named) else rest[:end]
    path, mark, query = rest[end:].partition("?")
    if mark and not named:
        path = f"{path}?{CUT}{_closing(query)}"
    elif mark:
        path = f"{path}?{query}"
    return f"{scheme}://{host}{path}"


def _plain_path(match: re.Match[str]) -> str:
    return f"{match[1]}?{CUT}{_closing(match[2])}"


def _closing(query: str) -> str:
    """What behind a URL belongs to the sentence around it."""
    found = _CLOSING.search(query)
    return found[0] if found else ""
