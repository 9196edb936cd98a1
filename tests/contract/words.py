"""Words that may not come back: ``python tests/contract/words.py`` counts them in the program and the pages.

A native engineer reads a name once if it is a verb or a noun of the field, and a sentence once if its words are common.
Each word here stopped readers. What is left of it is counted in ``ALLOWED``: a greater count fails, and so does a
smaller one, since then the number is to be lowered.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[2]

ALLOWED: Final = {
    "function of, said or found": 0,
    "of, said, found or one as a variable": 8,  # fields, whose names are in the keys of shards and in their records
    "of, said, found or one as a parameter": 0,
    "class Found, Asked, Given, Made or Done": 0,
    "is no …": 1,
    "stands": 3,
    "whoever": 0,
    "so many": 1,
}
"""How often each word is there."""

_SENTENCES: Final = {
    "is no …": r"(?<!there )(?<!There )(?<!there\n)(?<!There\n)\bis no (?!longer|more\b)",
    "stands": r"\bstands?\b(?! for| in\b|-in\b)",
    "whoever": r"\bwhoever\b",
    "so many": r"\bso many\b",
}
_FUNCTIONS: Final = {"of", "said", "found"}
_VARIABLES: Final = {"of", "said", "found", "one"}
_CLASSES: Final = {"Found", "Asked", "Given", "Made", "Done"}


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the word of each name in a module that is on the list."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.strip("_") in _FUNCTIONS:
            yield "function of, said or found"
        elif isinstance(node, ast.ClassDef) and node.name in _CLASSES:
            yield "class Found, Asked, Given, Made or Done"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VARIABLES:
            yield "of, said, found or one as a variable"
        elif isinstance(node, ast.arg) and node.arg in _VARIABLES:
            yield "of, said, found or one as a parameter"


def counts(top: Path = TOP) -> Counter[str]:
    """Return how often each word is in the program (names and texts) and in the pages (texts)."""
    result: Counter[str] = Counter(dict.fromkeys(ALLOWED, 0))
    pages = [
        top / "README.md",
        top / "CONTRIBUTING.md",
        *(top / "docs").glob("*.md"),
        *(top / "components").rglob("*.md"),
    ]
    for path in [*sorted((top / "pairmill").rglob("*.py")), *pages]:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            result.update(names(ast.parse(text)))
        for word, pattern in _SENTENCES.items():
            result[word] += len(re.findall(pattern, text))
    return result


def main() -> int:
    """Print what differs from the allowances; return 1 if something does."""
    present = counts()
    for word, allowed in ALLOWED.items():
        if present[word] > allowed:
            print(
                f"{word}: {present[word]} times, {allowed} allowed: write it in other words (tests/contract/words.py)"
            )
        elif present[word] < allowed:
            print(f"{word}: {present[word]} times, {allowed} allowed: lower the number in tests/contract/words.py")
    return int(any(present[word] != allowed for word, allowed in ALLOWED.items()))


if __name__ == "__main__":
    sys.exit(main())
