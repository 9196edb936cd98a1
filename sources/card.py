"""Which files of a Hub data set make a split: what its card says, else what the files' names say."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pairmill.errors import InputError

CARD = "README.md"
"""Name of a data set's card."""
CARD_BYTES = 1 << 20
"""The most of a card that is read. Its front matter has to end before."""
# A stranger wrote it: what it asks for is bounded by these.
_DEPTH = 32
_PATTERN_CHARACTERS = 64 << 10
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset({"", "str", "seq", "map", "int", "float", "bool", "null", "timestamp"})
_SIGNS = frozenset({"**/", "**", "*", "?"})
_NAMED = "mend the card, or name the files with files: in a YAML source (docs/sources.md)"

DATA = (".parquet", ".jsonl", ".json", ".csv", ".txt")
READABLE = DATA[:-1]
"""Files that make records without further code."""
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
    """Files by patterns as on the Hub, in the order of the patterns and sorted within each; none twice.

    The time is that of the patterns' length times the files', whatever the patterns are.
    """
    there = set(files)
    found: list[str] = []
    for pattern in patterns:
        if any(sign in pattern for sign in "*?"):
            found += sorted(filter(_pattern(pattern).matches, files))
        elif pattern in there:
            found.append(pattern)
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
        return [(_name(item), _default(item)) for item in _configs(card)]
    except InputError:
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
    for item in _configs(card):
        if _name(item) != config:
            continue
        listed = item.get("data_files")
        patterns: list[str] = []
        for part in _listed(listed, "data_files", "a text or a list of {split, path}"):
            # A pattern without a split means the training split.
            one = {"split": "train", "path": part} if isinstance(part, str) else part
            if not isinstance(one, dict):
                raise _odd("data_files", one, "a pattern, or {split, path}")
            if _text(one.get("split"), "split") == split:
                path = one.get("path")
                paths = _listed(path, "path", "a text or a list of texts") if path is not None else [None]
                patterns += [_text(found, "path", "a text or a list of texts") for found in paths]
        length = sum(len(pattern) for pattern in patterns if "*" in pattern or "?" in pattern)
        if length > _PATTERN_CHARACTERS:
            raise InputError(
                f"the data set card has too long patterns of the split {split!r}",
                where=CARD,
                got=f"{length} characters",
                expected=f"at most {_PATTERN_CHARACTERS}",
                hint=_NAMED,
            )
        return patterns
    return None


def _configs(card: str) -> list[dict[str, Any]]:
    """What a card lists under ``configs``; nothing without front matter.

    Raises:
        InputError: the front matter is not plain YAML, or holds something else there than a list of mappings.
    """
    listed = _front_matter(card).get("configs")
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise _odd("configs", listed, "a list of mappings")
    for item in listed:
        if not isinstance(item, dict):
            raise _odd("configs", item, "a mapping")
        _name(item)
        _default(item)
    return listed


def _name(item: dict[str, Any]) -> str:
    return _text(item.get("config_name", "default"), "config_name")


def _text(value: Any, key: str, expected: str = "a text") -> str:
    if not isinstance(value, str):
        raise _odd(key, value, expected)
    return value


def _listed(value: Any, key: str, expected: str) -> list[Any]:
    if value is None or isinstance(value, str):
        return [] if value is None else [value]
    if not isinstance(value, list):
        raise _odd(key, value, expected)
    return value


def _default(item: dict[str, Any]) -> bool:
    value = item.get("default")
    if value is None:
        return False
    known = value.lower() if isinstance(value, str) else ""
    if known not in {"true", "yes", "on", "false", "no", "off"}:
        raise _odd("default", value, "true or false")
    return known in {"true", "yes", "on"}


def _odd(key: str, found: Any, expected: str) -> InputError:
    got = {type(None): "nothing", list: "a list", dict: "a mapping"}.get(type(found)) or f"the text {found[:80]!r}"
    return InputError(
        f"the data set card's {key} is not what the Hub's cards have there",
        where=CARD,
        got=got,
        expected=expected,
        hint=_NAMED,
    )


def _front_matter(card: str) -> dict[str, Any]:
    """The YAML at the head of a card, every scalar as its text or None; empty if there is none."""
    front = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", card, re.DOTALL)
    if front is None and not (card.startswith(("---\n", "---\r\n")) and len(card) >= CARD_BYTES):
        return {}
    text = front.group(1) if front else card
    if len(text) >= CARD_BYTES:
        raise InputError(f"the data set card's front matter is larger than {CARD_BYTES} bytes", where=CARD, hint=_NAMED)
    found = _plain_yaml(text)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _odd("front matter", found, "a mapping")
    return found


def _plain_yaml(text: str) -> Any:
    """A YAML document of nothing but texts, lists and mappings.

    It is built from the parser's events: what a stranger wrote can neither grow (aliases, merge keys) nor make objects
    (tags, dates, numbers of any length).
    """
    import yaml

    top: list[Any] = []
    # The containers that are open, each with the key that waits for its value.
    opened: list[tuple[Any, list[str]]] = [(top, [])]

    def refuse(what: str, event: Any) -> InputError:
        where = f"{CARD} line {event.start_mark.line + 1}"
        return InputError(f"the data set card's front matter has {what}", where=where, hint=_NAMED)

    def put(value: Any, event: Any) -> None:
        container, waiting = opened[-1]
        if isinstance(container, list):
            container.append(value)
        elif waiting:
            container[waiting.pop()] = value
        elif not isinstance(value, str):
            raise refuse("a key that is not a text", event)
        elif value == "<<":
            raise refuse("a merge key", event)
        else:
            waiting.append(value)

    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise refuse("an anchor or an alias", event)
            if (getattr(event, "tag", None) or _TAG).removeprefix(_TAG) not in _TAGS:
                raise refuse("a tag", event)
            if isinstance(event, yaml.ScalarEvent):
                empty = event.implicit[0] and event.value in {"", "~", "null", "Null", "NULL"}
                as_key = isinstance(opened[-1][0], dict) and not opened[-1][1]
                put(event.value if as_key or not empty else None, event)
            elif isinstance(event, yaml.CollectionStartEvent):
                made: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                put(made, event)
                opened.append((made, []))
                if len(opened) > _DEPTH:
                    raise refuse(f"more than {_DEPTH} levels: it is too deep", event)
            elif isinstance(event, yaml.CollectionEndEvent):
                opened.pop()
            elif isinstance(event, yaml.DocumentStartEvent) and top:
                raise refuse("several YAML documents", event)
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())[:300]
        raise InputError("the data set card's front matter is not YAML", where=CARD, got=got, hint=_NAMED) from error
    return top[0] if top else None


class _Pattern:
    """A pattern with ``*`` (within a folder), ``**`` (across), ``**/`` (any folders, or none) or ``?`` in it.

    Which beginnings of the pattern reach which places of a path is kept as the bits of a number, so that a hundred
    stars cost a hundred steps; a regular expression would try each way to share the path out between them.
    """

    def __init__(self, pattern: str) -> None:
        self._parts = [part for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern) if part]
        self._head = "" if self._parts[0] in _SIGNS else self._parts[0]
        self._tail = "" if self._parts[-1] in _SIGNS else self._parts[-1]

    def matches(self, path: str) -> bool:
        """Whether the whole path is of this pattern."""
        if not path.startswith(self._head) or not path.endswith(self._tail):
            return False
        # Bit n of `at` is the place before character n; bit n of a mask is character n.
        at, every = 1, (2 << len(path)) - 1
        masks: dict[str, int] = {}
        for place, character in enumerate(path):
            masks[character] = masks.get(character, 0) | 1 << place
        slashes = masks.get("/", 0)
        others = every >> 1 & ~slashes
        for part in self._parts:
            onward = every & -(at & -at)
            if part == "**":
                at = onward
            elif part == "**/":
                at |= (slashes & onward) << 1
            elif part == "*":
                # The sum carries each place to the end of its run of characters that are not slashes.
                at |= (at & others) + others ^ others
                at &= every
            elif part == "?":
                at = (at & others) << 1
            else:
                for character in part:
                    at = (at & masks.get(character, 0)) << 1
            if not at:
                return False
        return bool(at >> len(path) & 1)


@functools.lru_cache(maxsize=256)
def _pattern(pattern: str) -> _Pattern:
    return _Pattern(pattern)
