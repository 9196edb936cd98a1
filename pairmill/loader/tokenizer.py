"""Which tokenizer made a folder's tokens. Ids of two tokenizers mean different texts, and no array shows it."""

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
from pairmill.formats.chat_digests import KEY, refuse_different
from pairmill.formats.results.sample import tokenizer_digest
from pairmill.formats.tokens import INFO
from pairmill.log import event

METADATA = "metadata.json"
_PATH = "tokenizer_path"


@dataclass(frozen=True)
class Tokenizer:
    """What a folder says about its tokenizer.

    Attributes:
        digest: first 16 digits of the sha256 of tokenizer.json if pairmill made the folder, else empty.
        info: ``tokenizer_info``: size, delimiters, conditions, and a path.
    """

    digest: str
    info: dict[str, Any]

    @classmethod
    def from_folder(cls, folder: Path, manifest: Manifest | None) -> Self | None:
        """Return the tokenizer of a tokenized or a sampled folder; None if the folder says nothing."""
        raw = _object(folder / INFO) or _object(folder / METADATA).get("tokenizer_info")
        info = raw if isinstance(raw, dict) else {}
        digest = ""
        if manifest is not None:
            digest = tokenizer_digest(manifest)
        return cls(digest, info) if digest or info else None

    @classmethod
    def above(cls, folder: Path) -> Self | None:
        """Return the tokenizer of a folder of tokens: as it says itself, or as the tokenized folder says that it is a
        task of.

        Raises:
            InputError: pairmill has not finished one of them.
        """
        result = cls.from_folder(folder, manifests.read(str(folder)))
        return result or cls.from_folder(folder.parent, manifests.read(str(folder.parent)))

    def __str__(self) -> str:
        others = dict(self.info)
        size = others.pop("vocab_size", None)
        chat = others.pop(KEY, None)
        if isinstance(chat, dict):
            others[KEY] = chat.get("digest")
        parts = [f"sha256 {self.digest}" if self.digest else "", f"vocab_size {size}" if size is not None else ""]
        return ", ".join(filter(None, [*parts, json.dumps(others, ensure_ascii=False) if others else ""]))


def check_same_tokenizer(sources: Sequence[tuple[str, Tokenizer | None]], where: str) -> None:
    """Raise InputError, which names both, if two sources say that their tokenizers differ."""
    known = [(name, tokenizer) for name, tokenizer in sources if tokenizer is not None]
    refuse_different([(name, tokenizer.info) for name, tokenizer in known], where)
    for (item, first), (other, second) in combinations(known, 2):
        by_digest = bool(first.digest and second.digest)
        common = [] if by_digest else sorted((first.info.keys() & second.info.keys()) - {_PATH, KEY})
        differ = [name for name in common if first.info[name] != second.info[name]]
        if differ or (by_digest and first.digest != second.digest):
            raise InputError(
                "made with different tokenizers, so one id means two texts",
                where=where,
                got=f"{item}: {first}; {other}: {second}",
                expected="one tokenizer" + (f"; they differ in {', '.join(differ)}" if differ else ""),
                hint="tokenize all data with one tokenizer",
            )
        paths = first.info.get(_PATH), second.info.get(_PATH)
        if not by_digest and None not in paths and paths[0] != paths[1]:
            event(
                f"{item} and {other} name different tokenizers, {paths[0]} and {paths[1]}; pairmill cannot tell "
                "whether they are the same. If they are not, one id means two texts",
                level=logging.WARNING,
            )


def _object(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}
