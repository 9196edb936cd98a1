"""The light form of texts, draws that depend on a text alone (docs/format.md, Held-out rows), and answers in boxes."""

import re
import unicodedata

import xxhash

_BRACE = re.compile("[{}]")
_IGNORED = dict.fromkeys(map(ord, "\u200b\ufeff\u00ad"))


def light(text: str) -> str:
    """Return the text in Unicode NFC, without zero-width spaces, byte order marks and soft hyphens, and with single
    spaces.

    Case, punctuation and digits stay, so two texts with one light form read the same. Each run of white space, as
    ``str.isspace`` has it, becomes one space; at both ends it goes.

    NFC is that of the running Python (Unicode 14 in 3.11). ``curate`` has Unicode 16 (``_native.curate_unicode()``) and
    composes and reorders a few characters that later versions added; on all others both forms are equal.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_IGNORED)
    return " ".join(text.split())


def hash64(salt: str, text: str, seed: int = 0) -> int:
    """XXH3 (64 bits) of salt, tab and text: a draw that depends on the text alone."""

    return int(xxhash.xxh3_64_intdigest(f"{salt}\t{text}".encode("utf-8", "surrogatepass"), seed))


def boxed(text: str) -> str | None:
    r"""Return what the last ``\boxed``, or else the last ``\fbox``, holds, stripped; None if there is none or it is
    open.

    The braces after it are counted as they are, escaped ones too. Time is linear in the text.
    """
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return None
    depth, opened = 0, -1
    for brace in _BRACE.finditer(text, start):
        if brace.group() == "{":
            depth += 1
            opened = brace.end() if opened < 0 else opened
        else:
            depth -= 1
            if depth == 0 and opened >= 0:
                return text[opened : brace.start()].strip()
    return None
