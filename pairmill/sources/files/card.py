"""Which files of a Hub data set make a split: what its card says, else what the files' names say."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from pairmill.errors import InputError
from pairmill.formats.file_slice import ARROW, DATABASES, WORKBOOKS
from pairmill.plain_yaml import yaml_library
from pairmill.sources.files.patterns import matching

CARD = "README.md"
"""Name of a data set's card."""
CARD_BYTES = 1 << 20
"""How much of a card is read. Its front matter must end before that."""
# A stranger wrote the card: these limit what it can ask for.
_MAX_DEPTH = 32
_MAX_PATTERN_CHARACTERS = 64 << 10
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset({"", "str", "seq", "map", "int", "float", "bool", "null", "timestamp"})
_MEND = "correct the card, or name the files with files: in a YAML source (docs/sources.md)"

DATA = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt")
TEXTS = DATA[1:-1]
BINARY = (DATA[0], *ARROW, *DATABASES, *WORKBOOKS)
READABLE = (*DATA[:-1], *BINARY[1:])
"""Files that make records without further code. Those that are not among ``DATA`` are read where ``files:`` names them.
"""
_HTML = "pip install trafilatura && trafilatura --input-dir <folder> --output-dir texts"
_WARC = "datatrove: LocalPipelineExecutor([WarcReader('<folder>'), Trafilatura(), JsonlWriter('texts')]).run()"
CONVERT = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), f"use trafilatura before: {_HTML}"),
    ".warc": f"use {_WARC}",
    ".lance": 'write Parquet before: pip install pylance && python -c "import lance, pyarrow.parquet as p; '
    "p.write_table(lance.dataset('<folder>').to_table(), 'data.parquet')\"",
    ".pdf": "extract the texts before, as with pdftotext <file>",
    **dict.fromkeys((".xls", ".ods"), "save it as .xlsx, or as CSV"),
    **dict.fromkeys((".zip", ".tar", ".tgz"), "unpack it before"),
}
"""What makes readable files of others (docs/begin.md)."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")

# Words by which the Hub knows the split of a file or folder without a card.
# Source: huggingface.co/docs/hub/datasets-file-names-and-splits.
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}


def suffix_of(path: str) -> str:
    """Return the extension that says how a file is read, without that of its compression."""
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix


def hub_split(files: Sequence[str], card: str, split: str, config: str = "default") -> tuple[str, ...]:
    """Files of a Hub data set's split, in the order of its card: patterns as written, names sorted within each.

    Without a card, files named after the split (``train.jsonl``, ``train-00000-of-00003.parquet``, ``dev.csv``) or in
    a folder of its name are taken. If some of them are in a folder named after the config, only those are.
    Source of the card format: huggingface.co/docs/hub/datasets-manual-configuration.

    Raises:
        InputError: the split has files in several formats, which would give its rows twice.
    """
    patterns = _card_patterns(card, split, config)
    if patterns is None:
        data = [path for path in files if suffix_of(path) in DATA]
        words = "|".join(_WORDS.get(split, (re.escape(split),)))
        named = re.compile(rf"(^|.*[/_.-])({words})(/[^/]+|[-_.][^/]*)?\.[a-z0-9.]+$")
        result = tuple(path for path in data if named.match(path))
        own = tuple(path for path in result if config in path.split("/")[:-1])
        # Other folders may be other configurations.
        plain = {"data", *_WORDS.get(split, (split,))}
        result = own or tuple(path for path in result if config == "default" or set(path.split("/")[:-1]) <= plain)
    else:
        result = matching(patterns, files)
    if len({suffix_of(path) for path in result}) > 1:
        raise InputError(
            f"the split {split!r} has files in several formats",
            got=", ".join(result),
            expected="one",
            hint="keep one of them",
        )
    return result


def configs_of(card: str) -> list[tuple[str, bool]]:
    """Return the name of every configuration that a card lists, and whether it is marked as the default."""
    try:
        return [(_name(item), _default(item)) for item in _configs(card)]
    except InputError:
        return []  # hub_split says what is wrong with it


def facts_of(card: str) -> dict[str, str]:
    """Return ``licence`` and ``language`` of a card, lists joined by commas; nothing of a card that is not valid."""
    try:
        front = _front_matter(card)
    except InputError:
        return {}
    result = {}
    for name, keys in (("licence", ("license_name", "license")), ("language", ("language",))):
        values: Any = next((value for key in keys if (value := front.get(key))), [])
        texts = [item for item in (values if isinstance(values, list) else [values]) if isinstance(item, str)]
        if texts:
            result[name] = ", ".join(texts)
    return result


def unnamed_split(split: str, files: Sequence[str], card: str) -> tuple[str, ...]:
    """Return all data files, if nothing says which split any of them is: the Hub makes them the training split."""
    named = [item for item in ("train", "validation", "test") if hub_split(files, "", item)]
    if split != "train" or named or configs_of(card):
        return ()
    result = tuple(path for path in files if suffix_of(path) in DATA and path != "dataset_infos.json")
    if len({suffix_of(path) for path in result}) > 1:
        got = ", ".join(result[:5])
        raise InputError("files of several formats", where="train", got=got, hint="name those to read with files:")
    return result


def _card_patterns(card: str, split: str, config: str) -> list[str] | None:
    for item in _configs(card):
        if _name(item) != config:
            continue
        listed = item.get("data_files")
        patterns: list[str] = []
        for part in _listed(listed, "data_files", "a text or a list of {split, path}"):
            # A pattern without a split means the training split.
            each = {"split": "train", "path": part} if isinstance(part, str) else part
            if not isinstance(each, dict):
                raise _odd("data_files", each, "a pattern, or {split, path}")
            if _text(each.get("split"), "split") == split:
                path = each.get("path")
                paths = _listed(path, "path", "a text or a list of texts") if path is not None else [None]
                patterns += [_text(result, "path", "a text or a list of texts") for result in paths]
        length = sum(len(pattern) for pattern in patterns if "*" in pattern or "?" in pattern)
        if length > _MAX_PATTERN_CHARACTERS:
            raise InputError(
                f"the data set card's patterns of the split {split!r} are too long",
                where=CARD,
                got=f"{length} characters",
                expected=f"at most {_MAX_PATTERN_CHARACTERS}",
                hint=_MEND,
            )
        return patterns
    return None


def _configs(card: str) -> list[dict[str, Any]]:
    """Return what a card lists under ``configs``; empty without front matter.

    Raises:
        InputError: the front matter is not plain YAML, or its ``configs`` is not a list of mappings.
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


def _odd(key: str, value: Any, expected: str) -> InputError:
    got = {type(None): "nothing", list: "a list", dict: "a mapping"}.get(type(value)) or f"the text {value[:80]!r}"
    return InputError(f"the data set card's {key} is not valid", where=CARD, got=got, expected=expected, hint=_MEND)


def _front_matter(card: str) -> dict[str, Any]:
    """Return the YAML at the head of a card, every scalar as its text or None; empty if there is none."""
    front = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", card, re.DOTALL)
    if front is None and not (card.startswith(("---\n", "---\r\n")) and len(card) >= CARD_BYTES):
        return {}
    text = front.group(1) if front else card
    if len(text) >= CARD_BYTES:
        raise InputError(f"the data set card's front matter is larger than {CARD_BYTES} bytes", where=CARD, hint=_MEND)
    result = _plain_yaml(text)
    if result is None:
        return {}
    if not isinstance(result, dict):
        raise _odd("front matter", result, "a mapping")
    return result


def _plain_yaml(text: str) -> Any:
    """Return a YAML document of nothing but texts, lists and mappings.

    What a stranger wrote can neither grow (aliases, merge keys) nor make objects (tags, dates, numbers of any length).
    """
    yaml = yaml_library()

    class Texts(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
        """Reads every scalar as its text, or None."""

        def construct_scalar(self, node: Any) -> Any:
            return None if not node.style and node.value in {"", "~", "null", "Null", "NULL"} else node.value

    depth = documents = 0
    try:
        for event in yaml.parse(text, Loader=Texts):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            problems = {
                "an anchor or an alias": isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None),
                "a tag": (getattr(event, "tag", None) or _TAG).removeprefix(_TAG) not in _TAGS,
                "a merge key": isinstance(event, yaml.ScalarEvent) and event.value == "<<",
                f"more than {_MAX_DEPTH} levels": depth > _MAX_DEPTH,
                "several YAML documents": documents > 1,
            }
            result = next((what for what, there in problems.items() if there), None)
            if result:
                where = f"{CARD} line {event.start_mark.line + 1}" if event.start_mark else CARD
                raise InputError(f"the data set card's front matter has {result}", where=where, hint=_MEND)
        return Texts(text).get_single_data()
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())[:300]
        raise InputError(
            "the data set card's front matter is not valid YAML", where=CARD, got=got, hint=_MEND
        ) from error
