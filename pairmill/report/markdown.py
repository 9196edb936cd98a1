"""Text that means itself in Markdown: names of tasks and files, and words of rows, are given by others."""

import re

# What has no glyph is drawn as a picture of itself; half a surrogate pair could not even be written.
VISIBLE = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
)
"""For ``str.translate``: characters that a terminal or a page would act on or refuse."""

# A bar ends a cell, the others change what follows. An underscore inside a word does not, nor does an ampersand that
# begins no character reference, or a less-than sign before a percentage: such texts stay as they are.
_MEANT = re.compile(r"[\\|`*~\[]|<(?![\d.]+%)|(?<!\w)_+|&(?=#|\w+;)")


def plain(text: str) -> str:
    """Return a text as one line of Markdown that shows it and does nothing else, in a cell of a table too."""
    line = text.translate(VISIBLE).replace("\n", " ").replace("\t", " ")
    return _MEANT.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), line)
