"""What a source is: which raw files make which output, how they are read, and one pure function per record."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from pairmill.errors import InputError
from pairmill.rows import Row
from pairmill.stage import Profile


@dataclass(frozen=True)
class Drop:
    """A record that gives no row, and why: a short snake_case reason under which it is counted."""

    reason: str


@dataclass(frozen=True)
class Malformed(Drop):
    """A record that is not what its source promises: put aside under ``rejects/``, and too many fail the stage."""


Parsed = Row | Drop | Sequence[Row | Drop]
"""What ``parse`` answers. Of a sequence rows are written; a drop beside a row is noted, drops alone drop the record."""


@dataclass(frozen=True)
class Output:
    """One output file, made of ``files`` (paths below the source's raw folder) in this order."""

    path: str
    files: tuple[str, ...]


class Source(ABC):
    """A data set. One instance, without state; everything about the data set stands in its one file."""

    name: ClassVar[str]
    """Name of the source and of its folder below ``raw``."""
    version: ClassVar[int] = 1
    """Raised when the same raw file gives other rows than before."""

    @abstractmethod
    def outputs(self, files: Sequence[str], card: str) -> list[Output]:
        """Outputs of the raw files (sorted paths). ``card`` is the text of README.md beside them, or empty."""

    @abstractmethod
    def parse(self, record: Any, profile: Profile) -> Parsed:
        """Rows of one raw record, as its reader gives it. Pure; a record of another shape is Malformed."""


def hub_split(files: Sequence[str], card: str, split: str, config: str = "default") -> tuple[str, ...]:
    """Files of a Hub data set's split, in the order of its card: patterns as written, names sorted within each.

    Without a card, files named after the split (``train.jsonl``, ``train-00000-of-00003.parquet``) or in a folder of
    its name are taken; where some of them lie in a folder named after the config, those alone.
    Source of the card format: huggingface.co/docs/hub/datasets-manual-configuration.

    Raises:
        InputError: the split has files of several formats, which would give its rows twice.
    """
    patterns = _card_patterns(card, split, config)
    if patterns is None:
        data = [path for path in files if PurePosixPath(path).suffix in {".parquet", ".jsonl", ".json"}]
        named = re.compile(rf"(^|.*/){re.escape(split)}(/[^/]+|[-_.][^/]*)?\.(parquet|jsonl|json)$")
        found = [path for path in data if named.match(path)]
        found = [path for path in found if config in path.split("/")[:-1]] or found
    else:
        found = [path for pattern in patterns for path in sorted(filter(_glob(pattern).match, files))]
    kinds = {PurePosixPath(path).suffix for path in found}
    if len(kinds) > 1:
        raise InputError(
            f"the split {split!r} is there in several formats",
            got=", ".join(found),
            expected="one",
            hint="keep one of them",
        )
    return tuple(dict.fromkeys(found))


def _card_patterns(card: str, split: str, config: str) -> list[str] | None:
    import yaml

    front = re.match(r"---\n(.*?)\n---(\n|$)", card, re.DOTALL)
    if not front:
        return None
    try:
        front_matter = yaml.safe_load(front.group(1))
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())
        raise InputError("the data set card's front matter is not YAML", where="README.md", got=got) from error
    try:
        return _listed(front_matter.get("configs") or [], split, config)
    except (AttributeError, TypeError, KeyError) as error:
        raise InputError(
            "the data set card's front matter does not list files as the Hub's cards do",
            where="README.md",
            got=repr(error),
        ) from error


def _listed(configs: list[Any], split: str, config: str) -> list[str] | None:
    for item in configs:
        if item.get("config_name", "default") == config:
            listed = item.get("data_files") or []
            patterns: list[str] = []
            for part in [listed] if isinstance(listed, str) else listed:
                # A pattern without a split stands for the training split.
                one = {"split": "train", "path": part} if isinstance(part, str) else part
                if one.get("split") == split:
                    patterns += [one["path"]] if isinstance(one["path"], str) else one["path"]
            return patterns
    return None


def _glob(pattern: str) -> re.Pattern[str]:
    # As on the Hub: * stays within a folder, ** does not, and **/ may match none.
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(pieces.get(part) or re.escape(part) for part in parts) + "$")


def text_of(record: Any, key: str) -> str | Malformed:
    """The text under ``key`` of a record, or why it is none."""
    if not isinstance(record, dict):
        return Malformed("not_an_object")
    value = record.get(key)
    if isinstance(value, str):
        return value
    if value is None:
        return Malformed(f"null_{key}" if key in record else f"missing_{key}")
    return Malformed(f"{key}_is_no_text")
