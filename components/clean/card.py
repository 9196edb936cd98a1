"""Which files of a Hub data set make a split: what its card says, else what the files' names say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pairmill.errors import InputError

DATA = (".parquet", ".jsonl", ".json", ".csv", ".txt")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")

# Words by which the Hub knows a split in names of files and folders, where no card says which they are.
# Source: huggingface.co/docs/hub/datasets-file-names-and-splits.
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}


def suffix_of(path: str) -> str:
    """The extension that says how a file is read, without that of its compression."""
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix


def matching(patterns: Sequence[str], files: Sequence[str]) -> tuple[str, ...]:
    """Files by patterns as on the Hub, in the order of the patterns and sorted within each; none twice."""
    found = [path for pattern in patterns for path in sorted(filter(_glob(pattern).match, files))]
    return tuple(dict.fromkeys(found))


def hub_split(files: Sequence[str], card: str, split: str, config: str = "default") -> tuple[str, ...]:
    """Files of a Hub data set's split, in the order of its card: patterns as written, names sorted within each.

    Without a card, files named after the split (``train.jsonl``, ``train-00000-of-00003.parquet``, ``dev.csv``) or in
    a folder of its name are taken; where some of them lie in a folder named after the config, those alone.
    Source of the card format: huggingface.co/docs/hub/datasets-manual-configuration.

    Raises:
        InputError: the split has files of several formats, which would give its rows twice.
    """
    patterns = _card_patterns(card, split, config)
    if patterns is None:
        data = [path for path in files if suffix_of(path) in DATA]
        words = "|".join(_WORDS.get(split, (re.escape(split),)))
        named = re.compile(rf"(^|.*[/_.-])({words})(/[^/]+|[-_.][^/]*)?\.[a-z0-9.]+$")
        found = tuple(path for path in data if named.match(path))
        own = tuple(path for path in found if config in path.split("/")[:-1])
        # Folders that are none of the split's may be other configurations.
        plain = {"data", *_WORDS.get(split, (split,))}
        found = own or tuple(path for path in found if config == "default" or set(path.split("/")[:-1]) <= plain)
    else:
        found = matching(patterns, files)
    if len({suffix_of(path) for path in found}) > 1:
        raise InputError(
            f"the split {split!r} is there in several formats",
            got=", ".join(found),
            expected="one",
            hint="keep one of them",
        )
    return found


def configs_of(card: str) -> list[tuple[str, bool]]:
    """Name of every configuration that a card lists the files of, and whether it is marked as the default."""
    try:
        listed = (_front_matter(card) or {}).get("configs") or []
        return [(str(item.get("config_name", "default")), bool(item.get("default"))) for item in listed]
    except (InputError, AttributeError, TypeError):
        return []  # hub_split says what is wrong with it


def unnamed_split(split: str, files: Sequence[str], card: str) -> tuple[str, ...]:
    """All data files, where nothing says of any of them which split it is: the Hub makes them the training split."""
    named = [one for one in ("train", "validation", "test") if hub_split(files, "", one)]
    if split != "train" or named or configs_of(card):
        return ()
    found = tuple(path for path in files if suffix_of(path) in DATA and path != "dataset_infos.json")
    if len({suffix_of(path) for path in found}) > 1:
        got = ", ".join(found[:5])
        raise InputError("files of several formats", where="train", got=got, hint="name those to read with files:")
    return found


def _card_patterns(card: str, split: str, config: str) -> list[str] | None:
    front_matter = _front_matter(card)
    if front_matter is None:
        return None
    try:
        return _listed(front_matter.get("configs") or [], split, config)
    except (AttributeError, TypeError, KeyError) as error:
        raise InputError(
            "the data set card's front matter does not list files as the Hub's cards do",
            where="README.md",
            got=repr(error),
        ) from error


def _front_matter(card: str) -> Any:
    """The YAML at the head of a card; None if there is none."""
    import yaml

    front = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", card, re.DOTALL)
    if not front:
        return None
    try:
        return yaml.safe_load(front.group(1))
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())
        raise InputError("the data set card's front matter is not YAML", where="README.md", got=got) from error


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
