"""Sources without code: a YAML file says where records are and what of them makes a row (docs/sources.md)."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from pairmill import storage
from pairmill.engine.manifest import canonical
from pairmill.engine.stage import Profile
from pairmill.errors import InputError, UsageError
from pairmill.formats.rows import Row
from sources.card import COMPRESSED, configs_of, hub_split, matching, suffix_of, unnamed_split
from sources.datasets import SOURCES
from sources.expression import Expression, Failed
from sources.missing_paths import Watched, kind_of, names_at, nearest
from sources.names import safe_name
from sources.origin import Given, Hub, HubRows, Origin
from sources.paths import MISSING, First, Path, Step
from sources.raw import is_within
from sources.source import (
    FURTHER_TURNS,
    Context,
    Drop,
    Finding,
    Malformed,
    Note,
    Parsed,
    Source,
    Unit,
    shown,
)

T = TypeVar("T")

TAGS = ("direct", "cot", "noisy", "synth")
"""The tags that a condition is made of."""

REQUIRED = ("name", "condition", "instruction", "response")
KEYS = (
    "name",
    "hub",
    "files",
    "condition",
    "instruction",
    "response",
    "where",
    "strip",
    "format",
    "output",
    "config",
    "split",
    "revision",
    "via",
    "licence",
    "citation",
)
"""All keys; beside the required ones a file has ``hub``, ``files`` or both."""

# Raised when an unchanged YAML file gives other rows than before.
_MEANING = 2
_LARGEST = 64 << 10
_LONGEST_NAME = 100
_LINES = (".jsonl", ".json", ".csv")
_READABLE = (".parquet", *_LINES)
_EVERY_DATA_FILE = (
    "**/*.parquet",
    *(f"**/*{ending}{packed}" for ending in _LINES for packed in ("", *COMPRESSED)),
)
_UNSTATED = "none stated"
_TEMPLATE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Text:
    """A text made of a record: what stands at a path, or a template's words around what stands at its paths.

    Args:
        written: as it is in the file.
        parts: words and paths, in order.
        template: numbers are taken too, as Python prints them.
    """

    written: str
    parts: tuple[str | Path, ...]
    template: bool

    @classmethod
    def parse(cls, text: str) -> Text:
        """Raises UsageError, without a place, for a wrong path or a brace without its other."""
        if "{" not in text and "}" not in text:
            return cls(text, (Path.parse(text),), template=False)
        parts: list[str | Path] = []
        end = 0
        for found in _TEMPLATE.finditer(text):
            parts.append(text[end : found.start()])
            end = found.end()
            if found.group(1) is not None:
                parts.append(Path.parse(found.group(1)))
            elif len(found.group()) == 2:
                parts.append(found.group()[0])
            else:
                expected = "{path}, or {{ and }} for braces themselves"
                raise UsageError("a brace without its other", got=repr(text), expected=expected)
        made = cls(text, (*parts, text[end:]), template=True)
        if not made.paths:
            raise UsageError("says the same for every record", got=repr(text), expected="a {path} in it")
        return made

    @property
    def paths(self) -> list[Path]:
        """The paths that it reads."""
        return [part for part in self.parts if isinstance(part, Path)]

    def of(self, record: Any) -> str | Malformed:
        """The text, or why there is none."""
        texts = []
        for part in self.parts:
            text = part if isinstance(part, str) else self.at(part, record)
            if isinstance(text, Malformed):
                return text
            texts.append(text)
        return "".join(texts)

    def at(self, path: Path, record: Any) -> str | Malformed:
        """What one of its paths adds to the text, or why there is nothing to add."""
        value = path.find(record)
        if isinstance(value, str):
            return value
        if value is MISSING:
            return Malformed(f"missing_{path.text}")
        if value is None:
            return Malformed(f"null_{path.text}")
        printed = _printed(value) if self.template else None
        return Malformed(f"{path.text}_is_no_text") if printed is None else printed

    def instead(self, path: Path, other: str) -> str:
        """As it would be written with another path, or another text, in the place of one of its paths."""
        return self.written.replace(f"{{{path.text}}}", f"{{{other}}}") if self.template else other


def _printed(value: Any) -> str | None:
    if isinstance(value, float):
        return str(value) if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # Python prints no integer of thousands of digits
            return None
    return None


def load(given: str, raw: str | None = "") -> Source:
    """The source that a YAML file describes.

    Args:
        given: path or URI of the file.
        raw: folder or URI below which ``files`` may be, beside the YAML file's own folder; empty = none. None: it
            is known otherwise where the files are, and what the YAML file says of it is not used.

    Raises:
        UsageError: no such file, no YAML, or anything in it that is not understood.
    """
    uri = storage.normalise(given, "sources")
    store = storage.store_for(uri)
    if not store.exists(uri):
        raise UsageError("no such file", where=f"sources={given}", got=uri, expected="a YAML file, see docs/sources.md")
    size = store.size(uri)
    if size > _LARGEST:
        raise UsageError("is too large", where=uri, got=f"{size} bytes", expected=f"at most {_LARGEST}")
    return Mapped(_File(uri, _entries(uri, store.read(uri)), raw))


@dataclass(frozen=True)
class _Chat:
    """A conversation of which a row takes a request and its answer: both are said by elements of one list."""

    messages: Path
    request: Step
    answer: Step

    @classmethod
    def of(cls, instruction: Text, response: Text) -> _Chat | None:
        """The list that both texts read a field of an element of, if there is one."""
        for asked in instruction.paths:
            for answered in response.paths:
                pairs = zip(asked.steps, answered.steps, strict=False)
                depth = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
                steps = asked.steps[depth : depth + 2], answered.steps[depth : depth + 2]
                if depth and all(len(two) == 2 and not isinstance(two[0], str) for two in steps):
                    messages = Path(asked.up_to(depth), asked.steps[:depth])
                    return cls(messages, steps[0][0], steps[1][0])
        return None

    def further_turns(self, record: Any) -> int:
        """Turns that no row is made of. A turn is a request and its answer."""
        messages = self.messages.find(record)
        if not isinstance(messages, list):
            return 0
        if isinstance(self.answer, First):
            return max(0, sum(map(self.answer.fits, messages)) - 1)
        first, *_, last = sorted(_place_of(step, messages) for step in (self.request, self.answer))
        return first // 2 + (len(messages) - 1 - last) // 2


def _place_of(step: Step, messages: list[Any]) -> int:
    if isinstance(step, First):
        return next(place for place, message in enumerate(messages) if step.fits(message))
    assert isinstance(step, int)
    return step % len(messages)


class Mapped(Source):
    """One row per record that ``where`` wants."""

    def __init__(self, file: _File) -> None:
        name = file.name()
        self._splits = file.texts("split", ("train",))
        self._config = file.text("config")
        origin, self._patterns = file.origin(self._config, self._splits)
        self._condition = file.condition()
        self._instruction = file.parsed("instruction", Text.parse)
        self._response = file.parsed("response", Text.parse)
        self._where = file.parsed("where", Expression) if file.text("where") else None
        self._strip = file.flag("strip", default=True)
        self._output = file.output(name)
        self._chat = _Chat.of(self._instruction, self._response)
        self._texts = {"instruction": self._instruction, "response": self._response}
        if isinstance(self._condition, Text):
            self._texts["condition"] = self._condition
        needed = [path.column for text in self._texts.values() for path in text.paths]
        asked_for = self._where.optional if self._where else ()
        needed += [column for column in (self._where.columns if self._where else ()) if column not in asked_for]
        meaning = [
            [file.text(key) for key in ("condition", "instruction", "response", "where")],
            # Which files, in which order: files themselves are known by their content.
            [self._patterns, self._config, self._splits],
            [self._strip, self._output],
        ]
        # Other sources are classes with one instance and have these as class variables.
        vars(self).update(
            name=name,
            origin=origin,
            licence=file.text("licence", _UNSTATED),
            citation=file.text("citation", _UNSTATED),
            fields=tuple(dict.fromkeys(needed)),
            optional=tuple(column for column in asked_for if column not in needed),
            described_in=file.uri,
            watched=tuple(self._watched(file)),
            # Shards know a source by name and version, so another meaning is another version.
            version=int(hashlib.sha256(canonical([_MEANING, meaning])).hexdigest()[:12], 16),
        )

    def _watched(self, file: _File) -> Iterator[Watched]:
        asked = self._where.asked if self._where else ()
        read = [("where", path) for path in (self._where.paths if self._where else ())]
        read += [(key, path) for key, text in self._texts.items() for path in text.paths]
        known: set[tuple[Step, ...]] = {path.steps for path in asked}
        for key, path in read:
            if path.steps not in known:
                known.add(path.steps)
                below = tuple(one for one in asked if one.steps == path.steps[: len(one.steps)])
                yield Watched(path, file.place(key), below)

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        if self._patterns:
            found = matching(self._patterns, files)
            self._refuse_none(found, files, ", ".join(self._patterns))
        else:
            found = tuple(dict.fromkeys(path for split in self._splits for path in self._split(split, files, card)))
        unreadable = [path for path in found if suffix_of(path) not in _READABLE]
        if unreadable:
            raise InputError(
                "no reader for this kind of file",
                where=f"{self.name}: {unreadable[0]}",
                expected=", ".join(_READABLE),
                hint="name the files to read with files:",
            )
        return [Unit(self._output, found)]

    def parse(self, record: Any, context: Context) -> Parsed:
        if not isinstance(record, dict):
            return Malformed("not_an_object")
        if self._where is not None:
            try:
                if not self._where.holds(record):
                    return Drop("filtered_by_where")
            except Failed:
                return Malformed("where_failed")
        texts = []
        for text in (self._instruction, self._response):
            found = text.of(record)
            if isinstance(found, Malformed):
                return found
            texts.append(found.strip() if self._strip else found)
        condition = self._condition if isinstance(self._condition, str) else self._condition.of(record)
        if isinstance(condition, Malformed):
            return condition
        tags = _tags(condition)
        if _wrong_tag(tags) is not None:
            return Malformed("unknown_condition")
        row = Row(",".join(tags), *texts)
        further = self._chat.further_turns(record) if self._chat else 0
        return (row, Note(FURTHER_TURNS, further)) if further else row

    def explain(self, record: Any, why: Malformed) -> Finding:
        if why.reason == "not_an_object":
            return Finding(kind_of(record))
        if why.reason == "where_failed":
            return self._explain_where(record)
        for key, text in self._texts.items():
            for path in text.paths:
                found = text.at(path, record)
                if isinstance(found, Malformed) and found == why:
                    return self._explain_text(record, key, text, path)
        if why.reason == "unknown_condition" and isinstance(self._condition, Text):
            return Finding(shown(self._condition.of(record)), f"condition: some of {', '.join(TAGS)}")
        return Finding(shown(record))

    def _explain_where(self, record: Any) -> Finding:
        """What does not go together, and the condition that takes texts for the numbers that they say if it helps."""
        assert self._where is not None
        try:
            self._where.holds(record)
        except Failed as error:
            text = " ".join(self._where.text.split())
            for path in self._where.paths:
                if isinstance(path.find(record), str):
                    alone = rf"(?<![\w.'\"(]){re.escape(path.text)}(?![\w.'\"\[(])"
                    text = re.sub(alone, lambda found: f"number({found[0]})", text)
            try:
                Expression(text).holds(record)
            except (Failed, UsageError):
                return Finding(str(error))
            return Finding(str(error), _line("where", text))
        return Finding(shown(record))

    def _explain_text(self, record: Any, key: str, text: Text, path: Path) -> Finding:
        """What is at a path that finds no text, and the line that reads it, if a line can."""
        depth, value = path.reach(record)
        if depth < len(path.steps):
            near = nearest(path, depth, names_at(value, path.steps[depth]))
            if near is not None:
                return Finding(kind_of(value), _line(key, text.instead(path, near.text)))
            return Finding(kind_of(value), _line("where", self._and(f"has({_in_where(path)})")))
        if value is None:
            return Finding("null", _line("where", self._and(f"has({_in_where(path)})")))
        if _printed(value) is not None and not text.template:
            return Finding(f"the number {value}", _line(key, f"{{{path.text}}}"))
        inside = _text_inside(value)
        line = _line(key, text.instead(path, path.text + inside)) if inside else ""
        return Finding(kind_of(value) if isinstance(value, bool | dict | list) else shown(value), line)

    def _and(self, condition: str) -> str:
        return f"{condition} and ({' '.join(self._where.text.split())})" if self._where else condition

    def _split(self, split: str, files: Sequence[str], card: str) -> tuple[str, ...]:
        if isinstance(self.origin, HubRows):
            # By names as hub_split knows them, train_sft-00000 would be a file of train as well.
            found = tuple(path for path in files if re.fullmatch(rf"{re.escape(split)}-[0-9]+\.parquet", path))
        else:
            found = hub_split(files, card, split, self._config_in(card)) or unnamed_split(split, files, card)
        self._refuse_none(found, files, f"files of the split {split!r}")
        return found

    def _config_in(self, card: str) -> str:
        """The configuration to read: the one asked for, or the one that the card makes the default."""
        configs = configs_of(card)
        names = [name for name, _ in configs]
        marked = [name for name, default in configs if default]
        if not self._config and (marked or "default" in names or len(names) <= 1):
            return (marked or [name for name in names if name == "default"] or names or ["default"])[0]
        if names and self._config not in names:
            what = "no such configuration" if self._config else "the data set has several configurations"
            raise InputError(
                what,
                where=self.name,
                got=repr(self._config) if self._config else "",
                expected=f"config: with one of {', '.join(names)}",
            )
        return self._config

    def _refuse_none(self, found: Sequence[str], files: Sequence[str], expected: str) -> None:
        if not found:
            raise InputError(
                f"no file of {self.name}",
                where=self.name,
                got=", ".join(files[:5]) + (", …" if len(files) > 5 else "") or "an empty folder",
                expected=expected,
                hint="name another split:, the config: or the files:" if not self._patterns else "check files:",
            )


def _line(key: str, value: str) -> str:
    """A line of a YAML file; quotes where the value alone would be read as something else."""
    import yaml

    try:
        plain = yaml.safe_load(value) == value
    except yaml.YAMLError:
        plain = False
    return f"{key}: {value if plain else json.dumps(value, ensure_ascii=False)}"


def _in_where(path: Path) -> str:
    """A path as an expression takes it."""
    try:
        read = Expression(f"has({path.text})").asked
    except UsageError:
        read = ()
    return path.text if read and read[0].steps == path.steps else f"path({path.text!r})"


def _text_inside(value: Any) -> str:
    """The steps from a list or an object to the first text in it; empty = there is none near."""
    if isinstance(value, list) and value:
        if isinstance(value[0], str):
            return "[0]"
        roles = (
            f"[{key}=assistant]" for key in ("role", "from") if any(First(key, "assistant").fits(m) for m in value)
        )
        inside = _text_inside(value[0]) if isinstance(value[0], dict) else ""
        if isinstance(value[0], dict):
            inside = next((f".{key}" for key in ("content", "value") if isinstance(value[0].get(key), str)), inside)
        return next(roles, "[0]") + inside if inside else ""
    if isinstance(value, dict):
        return next(
            (f".{key}" for key, one in value.items() if isinstance(one, str) and re.fullmatch(r"[\w-]+", key)), ""
        )
    return ""


def _tags(condition: str) -> list[str]:
    return [tag.strip() for tag in condition.split(",")]


def _wrong_tag(tags: Sequence[str]) -> str | None:
    """The first tag that is unknown or there twice."""
    return next((tag for place, tag in enumerate(tags) if tag not in TAGS or tag in tags[:place]), None)


class _Entry(NamedTuple):
    value: Any
    line: int


class _File:
    """The entries of a YAML file, checked as they are asked for. Everything wrong is a UsageError with its place."""

    def __init__(self, uri: str, entries: dict[str, _Entry], raw: str | None) -> None:
        self.uri, self._entries, self._raw = uri, entries, raw
        missing = [key for key in REQUIRED if key not in entries]
        if missing:
            raise UsageError("required key missing", where=uri, got=", ".join(entries), expected=", ".join(missing))

    def wrong(self, key: str, what: str, *, got: str = "", expected: str = "", hint: str = "") -> UsageError:
        return UsageError(what, where=self.place(key), got=got, expected=expected, hint=hint)

    def place(self, key: str) -> str:
        """Where an entry is."""
        return f"{self.uri} line {self._entries[key].line}, {key}"

    def text(self, key: str, default: str = "") -> str:
        if key not in self._entries:
            return default
        return self._text(key, self._entries[key].value, "a text")

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A text or a list of texts."""
        if key not in self._entries:
            return default
        value = self._entries[key].value
        found = [self._text(key, item, "a text or a list of texts") for item in _listed(value)]
        if not found or len(set(found)) < len(found):
            raise self.wrong(key, "is empty" if not found else "names one twice", expected="a text or a list of texts")
        return tuple(found)

    def _text(self, key: str, value: Any, expected: str) -> str:
        if not isinstance(value, str):
            hint = "put it in quotes" if key in {"instruction", "response", "condition", "where"} else ""
            if isinstance(value, bool | int | float):
                hint = f"a text that looks so stands in quotes: '{value}'"
            raise self.wrong(key, "is no text", got=_shown(value), expected=expected, hint=hint)
        if not value.strip():
            raise self.wrong(key, "is empty", expected=expected)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.wrong(key, "an unpaired surrogate is no text", got=ascii(value)) from error
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        if key not in self._entries:
            return default
        value = self._entries[key].value
        if not isinstance(value, bool):
            raise self.wrong(key, "is neither true nor false", got=_shown(value), expected="true or false")
        return value

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """A text as something else makes of it, whose complaints get their place."""
        try:
            return parse(self.text(key))
        except UsageError as error:
            raise self._placed(key, error) from error

    def _placed(self, key: str, error: UsageError) -> UsageError:
        return self.wrong(key, error.what, got=error.got, expected=error.expected, hint=error.hint)

    def name(self) -> str:
        name = self.text("name")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or len(name) > _LONGEST_NAME:
            expected = f"at most {_LONGEST_NAME} of a-z 0-9 _ -, a letter or digit first"
            raise self.wrong("name", "is no name of a source", got=repr(name), expected=expected)
        if name in SOURCES or name == "all":
            raise self.wrong("name", "is taken by a built-in source", got=name, expected="another name")
        return name

    def condition(self) -> str | Text:
        """The condition of every row, or the template that gives it."""
        text = self.text("condition")
        if "{" in text or "}" in text:
            return self.parsed("condition", Text.parse)
        tags = _tags(text)
        wrong = _wrong_tag(tags)
        if wrong is not None:
            close = difflib.get_close_matches(wrong, TAGS, n=1)
            hint = f"did you mean {close[0]!r}?" if close and wrong not in TAGS else ""
            what = "names a tag twice" if wrong in TAGS else "unknown tag"
            raise self.wrong("condition", what, got=repr(wrong), expected=f"some of {', '.join(TAGS)}", hint=hint)
        return ",".join(tags)

    def output(self, name: str) -> str:
        kind = self._choice("format", ("jsonl", "parquet"))
        if "output" not in self._entries:
            return f"data_clustered/{name}/all.parquet" if kind == "parquet" else f"data/{name}.jsonl"
        path = self.text("output")
        parts = path.split("/")
        safe = all(part and safe_name(part) == part and part[0] not in ". " for part in parts)
        if not safe or len(parts) < 2 or parts[0] not in {"data", "data_clustered"}:
            expected = "a path below data/ or data_clustered/ of A-Z a-z 0-9 _ - . and space"
            raise self.wrong("output", "is no path of an output", got=repr(path), expected=expected)
        if not re.search(r"[^/]\.(jsonl|parquet)$", path):
            raise self.wrong("output", "is no kind of output", got=repr(path), expected=".jsonl or .parquet at its end")
        if kind:
            raise self.wrong("format", "is said by output", expected="one of the two keys")
        return path

    def _choice(self, key: str, values: Sequence[str]) -> str:
        found = self.text(key)
        if found and found not in values:
            raise self.wrong(key, "is unknown", got=repr(found), expected=" or ".join(values))
        return found

    def origin(self, config: str, splits: tuple[str, ...]) -> tuple[Origin, tuple[str, ...]]:
        """Where the files are, and the patterns of those to read if the keys say that rather than a split."""
        via = self._choice("via", ("datasets",))
        patterns = self.texts("files")
        for key in ("config", "split", "via", "revision"):
            if key in self._entries and (not self.text("hub") or (patterns and key != "revision")):
                hint = "files: says which are read" if "hub" in self._entries else ""
                raise self.wrong(key, "goes with hub: alone" if hint else "goes with hub:", hint=hint)
        if "hub" in self._entries:
            repo = self.text("hub")
            revision = self.text("revision", "main")
            if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", repo, re.ASCII):
                hint = "the name alone, without https://huggingface.co/datasets/" if "://" in repo else ""
                raise self.wrong("hub", "is no data set's name", got=repr(repo), expected="owner/name", hint=hint)
            if via:
                return HubRows(repo, splits, config or "default", revision), ()
            for pattern in patterns:
                if "://" in pattern or any(part in {"", ".", ".."} for part in pattern.split("/")):
                    expected = "a pattern of files within the data set"
                    raise self.wrong("files", "leads out of the data set", got=repr(pattern), expected=expected)
                self._refuse_unreadable(pattern)
            return Hub(repo, patterns or _EVERY_DATA_FILE, revision), patterns
        if not patterns:
            expected = "hub: owner/name, or files: patterns"
            raise UsageError("says nowhere where the data is", where=self.uri, expected=expected)
        folder, below = self._folder(patterns)
        within = self._within(folder, patterns) if storage.scheme(folder) == "file" and self._raw is not None else ()
        return Given(folder, below, within), below

    def _within(self, folder: str, patterns: Sequence[str]) -> tuple[str, ...]:
        """The folders of this machine that may be read: whoever writes a YAML file must not choose among all.

        What it names becomes rows, so a file of secrets on the machine that reads it would.
        """
        if storage.scheme(self.uri) != "file":
            raise self.wrong(
                "files",
                "are of the machine that reads them, which a description in a bucket may not name",
                got=", ".join(patterns),
                expected="paths relative to the YAML file, or URIs of a bucket",
                hint="put the files beside the YAML file, or both on the machine",
            )
        tops = [storage.local_path(self.uri).parent]
        if self._raw and storage.scheme(self._raw) == "file":
            tops.append(storage.local_path(self._raw))
        # Of a folder that holds everything nothing would be outside.
        within = tuple(real for real in map(os.path.realpath, tops) if real != os.sep)
        real = os.path.realpath(storage.local_path(folder))
        if not is_within(real, within):
            raise self.wrong(
                "files",
                "lead out of the folders that a description may read",
                got=f"{', '.join(patterns)}, in {real}",
                expected=f"files below {' or '.join(within) or 'a folder'}",
                hint="put the data below the YAML file's own folder, or give the folder that it is in as raw=",
            )
        return within

    def _refuse_unreadable(self, pattern: str) -> None:
        name = pattern.rsplit("/", 1)[-1]
        packed = name.endswith(COMPRESSED)
        if suffix_of(name) not in (_LINES if packed else _READABLE):
            expected = f"{', '.join(_READABLE)} at the end; {', '.join(_LINES)} also with {', '.join(COMPRESSED)}"
            raise self.wrong("files", "no reader for this kind of file", got=repr(pattern), expected=expected)

    def _folder(self, patterns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The deepest folder that all files are below, and their patterns below it."""
        places = [self._place(pattern) for pattern in patterns]
        (root, first), others = places[0], places[1:]
        fixed = [tuple(takewhile(lambda part: not _is_pattern(part), parts[:-1])) for _, parts in places]
        depth = next(
            (at for at, part in enumerate(fixed[0]) if any(one[at : at + 1] != (part,) for one in fixed)), len(fixed[0])
        )
        shared = first[:depth]
        if any(one != root for one, _ in others) or (not shared and storage.scheme(root) == "file"):
            expected = "files below one folder, which is not the top of the file system"
            raise self.wrong("files", "are not below one folder", got=", ".join(patterns), expected=expected)
        escaped = root and storage.scheme(root) == "file"
        uri = "/".join([root, *(quote(part) if escaped else part for part in shared)])
        try:
            folder = storage.normalise(uri, "files")
        except UsageError as error:
            raise self._placed("files", error) from error
        return folder, tuple("/".join(parts[depth:]) for _, parts in places)

    def _place(self, pattern: str) -> tuple[str, list[str]]:
        """A pattern of files as what its URI starts with (empty: a plain path) and the parts of its path."""
        self._refuse_unreadable(pattern)
        root, parts = "", pattern.split("/")
        if "://" in pattern:
            root, parts = _uri_parts(pattern)
        elif not pattern.startswith("/"):
            root, folder = _uri_parts(storage.parent_of(self.uri))
            parts = [*folder, *parts]
        found: list[str] = []
        for part in parts:
            if part == "..":
                if not found or _is_pattern(found[-1]):
                    raise self.wrong("files", "climbs too far", got=repr(pattern), expected="a path without so many ..")
                found.pop()
            elif part not in {"", "."}:
                found.append(part)
        return root, found


def _is_pattern(part: str) -> bool:
    return "*" in part or "?" in part


def _uri_parts(uri: str) -> tuple[str, list[str]]:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return "", uri.split("/")
    place, *parts = rest.split("/")
    return f"{scheme}://{place}", [unquote(part) if scheme.lower() == "file" else part for part in parts]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    # Lists are not printed: with aliases a short file makes a list without end.
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value)) or repr(value)


def _entries(uri: str, data: bytes) -> dict[str, _Entry]:
    """The top-level entries of a YAML file by key."""
    import yaml

    entries: dict[str, _Entry] = {}
    try:
        loader = yaml.SafeLoader(data)
        top = loader.get_single_node()
        if not isinstance(top, yaml.MappingNode):
            got = "nothing" if top is None else type(top).__name__.removesuffix("Node").lower()
            raise UsageError("is not a mapping", where=uri, got=got, expected=f"{REQUIRED[0]}: …")
        for key, value in top.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "…"
            if name not in KEYS:
                close = difflib.get_close_matches(name, KEYS, n=1)
                hint = f"did you mean {close[0]!r}?" if close else ""
                raise UsageError(
                    f"unknown key {name!r}", where=f"{uri} line {line}", expected=", ".join(KEYS), hint=hint
                )
            if name in entries:
                lines = f"lines {entries[name].line} and {line}"
                raise UsageError("is given twice", where=f"{uri} {lines}, {name}", expected="one value")
            entries[name] = _Entry(loader.construct_document(value), line)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        hint = "a text with ': ', ' #', or a quote, bracket or brace at its start stands in quotes"
        raise UsageError("is not YAML", where=f"{uri}{place}", got=reason, hint=hint) from error
    return entries
