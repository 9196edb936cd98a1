"""Which tokenizer a folder's tokens are of. Ids of two mean different texts, and no array shows it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError
from pairmill.formats.tokens import INFO
from pairmill.log import event

_METADATA = "metadata.json"
_PATH = "tokenizer_path"


@dataclass(frozen=True)
class Tokenizer:
    """What a folder says of its tokenizer.

    Attributes:
        digest: first 16 digits of the sha256 of its tokenizer.json, where pairmill made the folder; else empty.
        info: what ``tokenizer_info`` holds: size, delimiters, conditions, and a path.
    """

    digest: str
    info: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, manifest: Manifest | None) -> Self | None:
        """Of a tokenized or a sampled folder; None where it says nothing."""
        raw = _object(folder / INFO) or _object(folder / _METADATA).get("tokenizer_info")
        info = raw if isinstance(raw, dict) else {}
        digest = ""
        if manifest is not None:
            refs = [ref.fingerprint for ref in manifest.inputs if ref.role == "tokenizer"]
            digest = refs[0] if refs else str(manifest.data.get("tokenizer", ""))
        return cls(digest, info) if digest or info else None

    @classmethod
    def above(cls, folder: Path) -> Self | None:
        """Of a folder of tokens: what it says itself, or the tokenized folder that it is a task of.

        Raises:
            InputError: pairmill has not finished that folder.
        """
        for place in (folder, folder.parent):
            found = cls.of(place, manifests.read(str(place)))
            if found is not None:
                return found
        return None

    def __str__(self) -> str:
        size = self.info.get("vocab_size")
        said = [f"sha256 {self.digest}" if self.digest else "", f"vocab_size {size}" if size is not None else ""]
        others = {name: value for name, value in self.info.items() if name != "vocab_size"}
        return ", ".join([*filter(None, said), *([json.dumps(others, ensure_ascii=False)] if others else [])])


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def see_one(sources: Sequence[tuple[str, Tokenizer | None]], where: str) -> None:
    """See that sources have one tokenizer, as far as they say.

    Raises:
        InputError: two have not; both are named.
    """
    known = [(name, tokenizer) for name, tokenizer in sources if tokenizer is not None]
    for (one, mine), (other, its) in combinations(known, 2):
        sure = bool(mine.digest and its.digest)
        common = [] if sure else sorted((mine.info.keys() & its.info.keys()) - {_PATH})
        differ = [name for name in common if mine.info[name] != its.info[name]]
        if differ or (sure and mine.digest != its.digest):
            raise InputError(
                "are of two tokenizers, so one id means two texts",
                where=where,
                got=f"{one}: {mine}; {other}: {its}",
                expected="one tokenizer" + "; they differ in " * bool(differ) + ", ".join(differ),
                hint="tokenize all data with one tokenizer",
            )
        paths = mine.info.get(_PATH), its.info.get(_PATH)
        if not sure and None not in paths and paths[0] != paths[1]:
            event(
                f"{one} and {other} name different tokenizers, {paths[0]} and {paths[1]}, and nothing tells whether "
                "they are the same: ids of two would mean different texts",
                level=logging.WARNING,
            )
