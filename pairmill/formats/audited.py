"""The rows of an audit, ``rows.jsonl``: a line for each row of the sample, as a JSON object.

``text`` is the digest of the row's instruction and response in its row file, by which it is found again among rows;
``faults`` what the checks found, by name; ``verdict`` what a judge said, if it was asked.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pairmill.digest import digest_bytes

NAME: Final = "rows.jsonl"
KEEP: Final = "keep"
"""Of a verdict: whether the row may stay; a boolean."""


def digest_of_text(instruction: str | None, response: str | None) -> str:
    """Return the digest of a row's text."""
    return digest_bytes(f"{instruction or ''}\0{response or ''}".encode())[:32]


def read_audited(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file.

    Raises:
        ValueError: it is not one.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                verdict = row.get("verdict")
                if verdict is not None and type(verdict[KEEP]) is not bool:
                    raise TypeError(f"{KEEP} is not a boolean")
                if not isinstance(row["text"], str) or not isinstance(row["faults"], dict):
                    raise TypeError("text or faults are not what they should be")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"line {number}: {error!r}") from error
            yield row
