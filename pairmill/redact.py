"""Removes secrets and terminal control characters from texts that are shown.

Names and messages of libraries are not trusted. :mod:`pairmill.log` passes everything through here.
"""

import os
import re

CUT = "…"
"""Replaces a secret."""

_URL = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]*)://([^\s"'<>`]+)""")
# urllib3 logs only the path of a URL: "Max retries exceeded with url: /key?X-Amz-Signature=…".
_PATH = re.compile(r"""(?<![^\s"'(<])(/[^\s?"'<>`]*)\?([A-Za-z_][\w.~%-]*=[^\s"'<>`]*)""")
# For queries that a quote splits from their URL.
_SIGNED = re.compile(
    r"(?i)([?&#](?:x-(?:amz|goog)-[\w-]+|sig|signature|policy|key-pair-id|(?:aws|google)access(?:key)?id|password|secret"
    r"|(?:[a-z]+[_-])?token|(?:client|app)[_-]secret|api[_-]?key)=)[^\s&\"'<>`]+"
)
_AUTHORIZATION = re.compile(r"(?i)(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?:[a-z]+[ ]+)?[^\s\"',}]+")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}\b|(?i:(?<=\bbearer ))[\w.~+/=-]{16,}")
_CLOSING = re.compile(r"[)\]}.,;:]*$")
# In these schemes a question mark is part of the name.
_NAMES = frozenset({"file", "gs", "hf", "minio", "s3"})

_SECRET_VARIABLE = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|SECRET_KEY|ACCESS_KEY|API_KEY)$")
# Shorter values appear in messages by chance.
_SHORTEST = 6

# DEL and C1 control characters, line separators, and overrides of the text direction: JSON does not escape them, and a
# terminal that shows JSON obeys them.
_OBEYED = (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_IN_JSON = {code: f"\\u{code:04x}" for code in _OBEYED}
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in range(0x20) if code != ord("\n")},
    **{code: f"\\x{code:02x}" if code < 0x100 else escape for code, escape in _IN_JSON.items()},
    ord("\t"): "\\t",
    ord("\r"): "\\r",
}
# A line that is not indented would look like a new message.
_CONTINUED = re.compile(r"\n(?!  )")


def scrubbed(text: str) -> str:
    """Remove queries and passwords of URLs, and the values of environment variables that are secrets."""
    for value in _secrets():
        text = text.replace(value, CUT)
    if "?" in text or "://" in text:
        text = _URL.sub(_plain_url, text)
        text = _PATH.sub(_plain_path, text)
    text = _SIGNED.sub(rf"\1{CUT}", text)
    text = _AUTHORIZATION.sub(rf"\1{CUT}", text)
    return _TOKEN.sub(CUT, text)


def escaped(text: str) -> str:
    """Escape control characters and text direction overrides, and indent further lines.

    So no name can move the cursor, overwrite earlier output, or look like another message.
    """
    return _CONTINUED.sub("\n  ", text.translate(_ESCAPES))


def escaped_json(line: str) -> str:
    """Escape in a line of JSON what a terminal would obey; its meaning stays the same."""
    return line.translate(_IN_JSON)


def _secrets() -> list[str]:
    values = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    # Longest first: one may contain another.
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
    """Return the punctuation after a URL."""
    result = _CLOSING.search(query)
    return result[0] if result else ""
