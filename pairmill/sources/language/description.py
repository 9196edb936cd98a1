"""A YAML file that describes a source, checked key by key (docs/sources.md).

Every mistake is a UsageError with the line that it is on.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote

import yaml

from pairmill import storage
from pairmill.engine.expect import Expectation
from pairmill.errors import UsageError, did_you_mean
from pairmill.formats.file_slice import DATABASES, WORKBOOKS
from pairmill.sources.files.card import COMPRESSED, CONVERT, READABLE, suffix_of
from pairmill.sources.files.card import TEXTS as _LINES
from pairmill.sources.files.databases import checked_address, checked_query
from pairmill.sources.files.dialect import LENIENT, TABLES, UTF8, Dialect, Records, delimiter_of, encoding_of, quote_of
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Database, Folder, Hub, HubRows, Origin, Web, is_within

T = TypeVar("T")

REQUIRED = ("name", "condition", "instruction", "response")
"""Required of pairs. ``text`` (documents) and ``turns`` (chats) take the place of the last two."""
CHAT_KEYS = (
    *("role", "content", "answers", "roles", "template", "template_variables", "boundary"),
    *("tools", "targets", "on_fault", "reasoning", "target_index", "weights", "max_targets_per_chat", "stride"),
)
"""Keys that need ``turns``."""
KEYS = (
    *("name", "hub", "files", "url", "condition", "instruction", "response", "where", "strip", "format", "output"),
    *("config", "split", "revision", "via", "licence", "citation", "language", "attributes", "limit", "expect"),
    *("text", "each", "turns", *CHAT_KEYS, "answer", "use", "pairs"),
    *("long_prompt", "long_answer", "window", "cut_ok"),
    *("delimiter", "quote", "header", "encoding", "records", "json", "query", "sheet", "database", "tags"),
)
"""All keys. Beside the required ones a file has ``hub``, ``files`` or both."""

_READ_FOR = {
    "delimiter": TABLES,
    "quote": TABLES,
    "header": (*TABLES, *WORKBOOKS),
    "sheet": WORKBOOKS,
    "query": DATABASES,
    "records": (".json",),
    "json": (".jsonl", ".json"),
}
_MAX_BYTES = 64 << 10
_MAX_BESIDE_BYTES = 16 << 20
_MAX_NAME_CHARACTERS = 100
_EVERY_DATA_FILE = ("**/*.parquet", *(f"**/*{ending}{packed}" for ending in _LINES for packed in ("", *COMPRESSED)))


class _Entry(NamedTuple):
    value: Any
    line: int
    node: yaml.Node


class Description:
    """The entries of a YAML file.

    Args:
        uri: where the file is.
        data: its content.
        raw: a further folder or URI that ``files`` may be in, beside the file's own folder; empty = none. None: the
            caller knows where the files are, so the file's own ``files`` are not checked.
    """

    def __init__(self, uri: str, data: bytes, raw: str | None) -> None:
        self.uri, self._entries, self._raw = uri, _entries(uri, data), raw
        self._shared: tuple[str, list[str]] = "", []
        self._refuse_mixed()
        required: Sequence[str] = REQUIRED
        if "text" in self or "use" in self:
            required = REQUIRED[:1]
        elif "turns" in self or self.is_preference:
            required = REQUIRED[:2]
        missing = [key for key in required if key not in self._entries]
        if missing:
            got = ", ".join(self._entries)
            hint = "of documents write text:, of chats turns:" if missing[-2:] == ["instruction", "response"] else ""
            raise UsageError("required key missing", where=uri, got=got, expected=", ".join(missing), hint=hint)

    def _refuse_mixed(self) -> None:
        """Raise UsageError for keys that do not go together: a record is a pair, a document or a chat."""
        kinds = {"text": "text", "turns": "turns", "instruction": "pair", "response": "pair"}
        there = [key for key in kinds if key in self._entries]
        if len({kinds[key] for key in there}) > 1:
            value = self._entries[there[0]].value
            line = f"{there[0]}: {value if isinstance(value, str) else '…'}"
            raise self.wrong(
                there[0],
                "a record is a pair, a document or a chat",
                got=" and ".join(f"{key}:" for key in there),
                expected="instruction: and response:, or text:, or turns:",
                hint=f"write {line!r} without {' and '.join(f'{key}:' for key in there[1:])}",
            )
        for key in _READ_FOR if self.whole_files else ():
            if key in self._entries:
                raise self.wrong(key, "each: file reads no records of a file", expected=f"each: record, or no {key}:")
        for key in CHAT_KEYS:
            if key in self._entries and "turns" not in self._entries and not self.is_preference:
                raise self.wrong(key, "needs turns:", hint="write 'turns: messages', the path of the list of messages")

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @classmethod
    def read(cls, given: str, raw: str | None) -> Self:
        """Return the description at a path or URI."""
        uri = storage.normalise(given, "sources")
        store = storage.store_for(uri)
        if not store.exists(uri):
            expected = "a YAML file, see docs/sources.md"
            raise UsageError("no such file", where=f"sources={given}", got=uri, expected=expected)
        size = store.size(uri)
        if size > _MAX_BYTES:
            raise UsageError("the file is too large", where=uri, got=f"{size} bytes", expected=f"at most {_MAX_BYTES}")
        return cls(uri, store.read(uri), raw)

    def wrong(self, key: str, what: str, *, got: str = "", expected: str = "", hint: str = "") -> UsageError:
        """Return the error to raise for an entry."""
        return UsageError(what, where=self.place(key), got=got, expected=expected, hint=hint)

    def place(self, key: str) -> str:
        """Return where an entry is."""
        return f"{self.uri} line {self._entries[key].line}, {key}"

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        return self._text(key, self._entries[key].value, "a text") if key in self._entries else default

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return a text or a list of texts."""
        if key not in self._entries:
            return default
        value = self._entries[key].value
        expected = "a text or a list of texts"
        result = [self._text(key, item, expected) for item in (value if isinstance(value, list) else [value])]
        if not result or len(set(result)) < len(result):
            raise self.wrong(key, "the same text occurs twice" if result else "the list is empty", expected=expected)
        return tuple(result)

    def _text(self, key: str, value: Any, expected: str) -> str:
        if not isinstance(value, str):
            hint = "put it in quotes" if key in {"instruction", "response", "condition", "where"} else ""
            if isinstance(value, bool | int | float):
                hint = f"quote a text that looks like one: '{value}'"
            raise self.wrong(key, "not a text", got=_shown(value), expected=expected, hint=hint)
        if not value.strip() and (not value or key != "delimiter"):
            raise self.wrong(key, "the text is empty", expected=expected)
        return value

    def mapping(self, key: str, expected: str) -> list[tuple[str, Any, str]]:
        """Name, value and place of each item of a mapping; none without the key."""
        if key not in self._entries:
            return []
        entry = self._entries[key]
        if not isinstance(entry.node, yaml.MappingNode) or not entry.node.value:
            raise self.wrong(key, "not a mapping", got=_shown(entry.value), expected=expected)
        result: dict[str, tuple[str, Any, str]] = {}
        for name_node, node in entry.node.value:
            name = str(name_node.value) if isinstance(name_node, yaml.ScalarNode) else "…"
            place = f"{self.uri} line {name_node.start_mark.line + 1}, {key}: {name}"
            if name in result:
                raise UsageError("the name occurs twice", where=place, expected="one value")
            result[name] = name, yaml.SafeLoader("").construct_document(node), place
        return list(result.values())

    def is_mapping(self, key: str) -> bool:
        """Return whether there is an entry, and it is a mapping."""
        return key in self._entries and isinstance(self._entries[key].node, yaml.MappingNode)

    def flag(self, key: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self._entries[key].value if key in self._entries else default
        if not isinstance(value, bool):
            raise self.wrong(key, "not a boolean", got=_shown(value), expected="true or false")
        return value

    def number(self, key: str) -> int:
        """Return a number of at least 1; 0 without the key."""
        if key not in self._entries:
            return 0
        value = self._entries[key].value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            hint = f"leave out {key}: to read everything" if value == 0 else ""
            raise self.wrong(key, "not a number of at least 1", got=_shown(value), expected=f"{key}: 1000", hint=hint)
        return value

    def expectation(self, key: str, measures: Sequence[str]) -> Expectation | None:
        """Return what is expected of some measures; None without the key."""
        if key not in self._entries:
            return None
        return Expectation.parse(self._entries[key].value, self.place(key), measures)

    def choice(self, key: str, *values: str) -> str:
        """Return one of some texts; empty without the key."""
        result = self.text(key)
        if result and result not in values:
            raise self.wrong(key, "unknown value", got=repr(result), expected=" or ".join(values))
        return result

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """Return a text as ``parse`` reads it; its errors get the place of the entry."""
        try:
            return parse(self.text(key))
        except UsageError as error:
            raise error.moved(self.place(key)) from error

    def name(self, built_in: Collection[str] = ()) -> str:
        """Return the name of the source, which is none of those that are built in."""
        name = self.text("name")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or len(name) > _MAX_NAME_CHARACTERS:
            expected = f"at most {_MAX_NAME_CHARACTERS} of a-z 0-9 _ -, beginning with a letter or digit"
            raise self.wrong("name", "not a valid name of a source", got=repr(name), expected=expected)
        if name in built_in or name == "all":
            raise self.wrong("name", "a built-in source has this name", got=name, expected="another name")
        return name

    def output(self, name: str) -> str:
        """Return the path of the output."""
        kind = self.choice("format", "jsonl", "parquet")
        if "use" in self:
            return f"{self.text('use')}/{name}.parquet"
        if "output" not in self._entries:
            return f"data_clustered/{name}/all.parquet" if kind == "parquet" else f"data/{name}.jsonl"
        path = self.text("output")
        parts = path.split("/")
        safe = all(part and safe_name(part) == part and part[0] not in ". " for part in parts)
        if not safe or len(parts) < 2 or parts[0] not in {"data", "data_clustered"}:
            expected = "a path below data/ or data_clustered/ of A-Z a-z 0-9 _ - . and space"
            raise self.wrong("output", "not a valid path of an output", got=repr(path), expected=expected)
        if not re.search(r"[^/]\.(jsonl|parquet)$", path):
            raise self.wrong("output", "unknown format", got=repr(path), expected=".jsonl or .parquet at the end")
        if kind:
            raise self.wrong("format", "output: already says the format", expected="format: or output:, not both")
        return path

    def origin(self, config: str, splits: tuple[str, ...]) -> tuple[Origin, tuple[str, ...]]:
        """Return where the files are, and the patterns of those to read, if they are named instead of a split."""
        via = self.choice("via", "datasets")
        patterns = self.texts("files")
        repo, url = self.text("hub"), self.text("url")
        if "database" in self:
            return self._database(), ()
        if url and not repo and not re.match("https?://[^/]", url):
            raise self.wrong("url", "not an address", got=repr(url), expected="https://…")
        if url and repo:
            raise self.wrong("url", "hub: already says where the data is", expected="url: or hub:, not both")
        if self.whole_files and not patterns:
            hint = "write \"files: '**/*.txt'\""
            raise self.wrong("each", "files: has to say which files are records", expected="files:", hint=hint)
        for key in ("config", "split", "via", "revision"):
            if key in self._entries and (not repo or (patterns and key != "revision")):
                hint = "files: says which files are read" if repo else ""
                raise self.wrong(key, "only allowed with hub: and without files:" if repo else "needs hub:", hint=hint)
        for pattern in () if self.whole_files else patterns:
            self._refuse_unreadable(pattern)
        if url:
            self._refuse_outside(patterns, "archive")
            return Web(url, patterns), patterns
        if not repo:
            if not patterns:
                expected = "hub: owner/name, files: patterns, url: or database: an address"
                raise UsageError("the description does not say where the data is", where=self.uri, expected=expected)
            folder, below = self._folder(patterns)
            local = storage.scheme(folder) == "file" and self._raw is not None
            return Folder(folder, below, self._within(folder, patterns) if local else ()), below
        if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", repo, re.ASCII):
            hint = "leave out https://huggingface.co/datasets/" if "://" in repo else ""
            raise self.wrong("hub", "not a valid name of a data set", got=repr(repo), expected="owner/name", hint=hint)
        revision = self.text("revision", "main")
        if via:
            return HubRows(repo, splits, config or "default", revision), ()
        self._refuse_outside(patterns, "data set")
        return Hub(repo, patterns or _EVERY_DATA_FILE, revision), patterns

    def _database(self) -> Database:
        for key in ("hub", "url", "files", "each"):
            if key in self:
                raise self.wrong(key, "database: already says where the data is", expected=f"database: or {key}:")
        if "query" not in self:
            hint = "write 'query: SELECT question, answer FROM pairs ORDER BY id'"
            raise self.wrong("database", "nothing says which rows", expected="query:", hint=hint)
        return Database(self.parsed("database", checked_address), self.parsed("query", checked_query))

    def dialect(self, patterns: Sequence[str]) -> Dialect:
        """Return how the text files are written; ``patterns``: of the files, if they are named.

        Raises:
            UsageError: a value is not valid, or is about files that are not read.
        """
        kinds = {suffix_of(pattern.rsplit("/", 1)[-1]) for pattern in patterns}
        for key, suffixes in _READ_FOR.items():
            if key in self and kinds and not kinds & set(suffixes):
                got, expected = ", ".join(sorted(kinds)), " or ".join(suffixes)
                raise self.wrong(key, f"only allowed where files: names {expected}", got=got, expected=expected)
        if "encoding" in self and kinds and not self.whole_files and not kinds & set(_LINES):
            what = "Parquet files have no encoding" if kinds == {".parquet"} else "such files have no encoding"
            raise self.wrong("encoding", what, got=", ".join(sorted(kinds)), expected="no encoding:")
        if kinds & set(DATABASES) and "query" not in self and not self.whole_files:
            hint = "write 'query: SELECT * FROM <table> ORDER BY rowid'; pairmill init writes it"
            raise self.wrong("files", "nothing says which rows of the database", expected="query:", hint=hint)
        by_file = self.is_mapping("encoding")
        made = Dialect(
            encoding=self.parsed("encoding", encoding_of) if "encoding" in self and not by_file else UTF8,
            encodings=tuple(self._encodings()) if by_file else (),
            delimiter=self.parsed("delimiter", delimiter_of) if "delimiter" in self else "",
            quote=self.parsed("quote", quote_of) if "quote" in self else '"',
            header=self.texts("header"),
            records=self.parsed("records", Records.parse) if "records" in self else None,
            is_lenient=self.choice("json", LENIENT) == LENIENT,
            query=self.parsed("query", checked_query) if "query" in self else "",
            sheet=self.text("sheet"),
        )
        if "quote" in self and made.quote in {made.between(suffix) for suffix in kinds & set(TABLES) or TABLES}:
            raise self.wrong(
                "quote", "the quote is also the delimiter", got=repr(made.quote), expected="two characters"
            )
        return made

    def _encodings(self) -> Iterator[tuple[str, str]]:
        expected = "encodings by patterns of files, as {'old-*.csv': cp1252}"
        for pattern, value, place in self.mapping("encoding", expected):
            if not isinstance(value, str):
                raise UsageError("not an encoding", where=place, got=repr(value)[:100], expected=expected)
            try:
                yield self._below(pattern), encoding_of(value)
            except UsageError as error:
                raise error.moved(place) from error

    def _refuse_outside(self, patterns: Sequence[str], what: str) -> None:
        for pattern in patterns:
            if "://" in pattern or {"", ".", ".."} & set(pattern.split("/")):
                expected = f"a pattern of files within the {what}"
                raise self.wrong("files", f"the path is outside the {what}", got=repr(pattern), expected=expected)

    def beside(self, key: str, path: str) -> bytes:
        """Return the content of a small file that an entry names: relative to the description, absolute, or a URI.

        Like ``files``, it may be of this machine only below the description's own folder or ``raw``.
        """
        root, parts = self._place(path, key)
        try:
            uri = storage.normalise("/".join([root, *parts]), key)
        except UsageError as error:
            raise error.moved(self.place(key)) from error
        if storage.scheme(uri) == "file":
            self._within(uri, [path], key)
        store = storage.store_for(uri)
        if not store.exists(uri):
            raise self.wrong(key, "no such file", got=uri, expected="a file beside the YAML file")
        size = store.size(uri)
        if size > _MAX_BESIDE_BYTES:
            raise self.wrong(key, "the file is too large", got=f"{size} bytes", expected=f"at most {_MAX_BESIDE_BYTES}")
        return store.read(uri)

    def _refuse_unreadable(self, pattern: str) -> None:
        name = pattern.rsplit("/", 1)[-1]
        packed = name.endswith(COMPRESSED)
        if suffix_of(name) not in (_LINES if packed else READABLE):
            expected = f"{', '.join(READABLE)} at the end; {', '.join(_LINES)} also with {', '.join(COMPRESSED)}"
            hint = "write 'each: file' if each file is a document" if "text" in self else ""
            hint = CONVERT.get(suffix_of(name), hint)
            raise self.wrong(
                "files", "no reader for this kind of file", got=repr(pattern), expected=expected, hint=hint
            )

    @property
    def is_preference(self) -> bool:
        """Whether each record is a better and a worse answer."""
        return "pairs" in self or ("use" in self and self._entries["use"].value == "pairs")

    @property
    def whole_files(self) -> bool:
        """Whether each file is one record."""
        return self.choice("each", "record", "file") == "file"

    def _within(self, folder: str, patterns: Sequence[str], key: str = "files") -> tuple[str, ...]:
        """Return the folders of this machine that may be read.

        What a description names becomes rows. So its author must not be able to name any file of the machine that reads
        it: it could be a file of secrets.
        """
        if storage.scheme(self.uri) != "file":
            raise self.wrong(
                key,
                "a description in a bucket may not name files of the machine that reads it",
                got=", ".join(patterns),
                expected="paths relative to the YAML file, or URIs of a bucket",
                hint="put the files beside the YAML file, or both on the machine",
            )
        tops = [storage.local_path(self.uri).parent]
        if self._raw and storage.scheme(self._raw) == "file":
            tops.append(storage.local_path(self._raw))
        # Nothing would be outside of a folder that holds everything.
        within = tuple(real for real in map(os.path.realpath, tops) if real != os.sep)
        real = os.path.realpath(storage.local_path(folder))
        if self.whole_files and key == "files":
            self._refuse_hidden(real, within)
        if not is_within(real, within):
            raise self.wrong(
                key,
                "the path is outside the folders that a description may read",
                got=f"{', '.join(patterns)}, in {real}",
                expected=f"files below {' or '.join(within) or 'a folder'}",
                hint="put the data below the YAML file's own folder, or give its folder as raw=",
            )
        return within

    def _refuse_hidden(self, real: str, within: Sequence[str]) -> None:
        """Raise if a path is in a hidden folder: a file of any kind may be a key or a password."""
        below = [real[len(top) :] for top in within if is_within(real, (top,))]
        if below and all("/." in f"/{path}" for path in below):
            expected = "files whose names, and folders', do not begin with a dot"
            raise self.wrong("files", "each: file reads no hidden folder", got=real, expected=expected)

    def _folder(self, patterns: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the deepest folder that all files are below, and their patterns below it."""
        places = [self._place(pattern) for pattern in patterns]
        root = places[0][0]
        fixed = [list(takewhile(lambda part: not _is_pattern(part), parts[:-1])) for _, parts in places]
        shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*fixed, strict=False))]
        if len({item for item, _ in places}) > 1 or (not shared and storage.scheme(root) == "file"):
            expected = "files below one folder, which is not the top of the file system"
            raise self.wrong("files", "the files are not below one folder", got=", ".join(patterns), expected=expected)
        self._shared = root, shared
        escaped = root and storage.scheme(root) == "file"
        try:
            folder = storage.normalise("/".join([root, *(map(quote, shared) if escaped else shared)]), "files")
        except UsageError as error:
            raise error.moved(self.place("files")) from error
        return folder, tuple("/".join(parts[len(shared) :]) for _, parts in places)

    def _below(self, pattern: str) -> str:
        """Return a pattern of some of the files, written as in ``files``, as one of their paths below the raw
        folder."""
        root, shared = self._shared
        if "/" not in pattern or not shared:
            return pattern
        try:
            own_root, parts = self._place(pattern)
        except UsageError:
            return pattern
        return "/".join(parts[len(shared) :]) if (own_root, parts[: len(shared)]) == (root, shared) else pattern

    def _place(self, pattern: str, key: str = "files") -> tuple[str, list[str]]:
        """Return a pattern as the beginning of its URI (empty for a plain path) and the parts of its path."""
        root, parts = _root_and_parts(pattern)
        if not root and not pattern.startswith("/"):
            root, folder = _root_and_parts(storage.parent_of(self.uri))
            parts = [*folder, *parts]
        result: list[str] = []
        for part in parts:
            if part == "..":
                if not result or _is_pattern(result[-1]):
                    raise self.wrong(key, "the path has too many ..", got=repr(pattern), expected="fewer of them")
                result.pop()
            elif part not in {"", "."}:
                result.append(part)
        return root, result


def _is_pattern(part: str) -> bool:
    return "*" in part or "?" in part


def _root_and_parts(uri: str) -> tuple[str, list[str]]:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return "", uri.split("/")
    place, *parts = rest.split("/")
    return f"{scheme}://{place}", [unquote(part) if scheme.lower() == "file" else part for part in parts]


def _shown(value: Any) -> str:
    # Lists are not printed: with aliases a short file makes a list without end.
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value)) or repr(value)


def _scalars(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """Yield every text of a node, the names of mappings too, with its line from 1 on."""
    left, seen = [node], {id(node)}  # an alias is the node itself: a few of them can stand for billions
    while left:
        node = left.pop()
        if isinstance(node, yaml.ScalarNode):
            yield str(node.value), node.start_mark.line + 1
        elif isinstance(node, yaml.CollectionNode):
            items: list[yaml.Node] = [*chain(*node.value)] if isinstance(node, yaml.MappingNode) else node.value
            new = [item for item in items if id(item) not in seen]
            seen.update(map(id, new))
            left += new


def _entries(uri: str, data: bytes) -> dict[str, _Entry]:
    """Return the top-level entries of a YAML file by key."""
    entries: dict[str, _Entry] = {}
    try:
        loader = yaml.SafeLoader(data)
        top = loader.get_single_node()
        if not isinstance(top, yaml.MappingNode):
            got = "nothing" if top is None else type(top).__name__.removesuffix("Node").lower()
            raise UsageError("the file is not a mapping", where=uri, got=got, expected=f"{REQUIRED[0]}: …")
        for key, value in top.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "…"
            if name not in KEYS:
                hint = did_you_mean(name, KEYS)
                where = f"{uri} line {line}"
                raise UsageError(f"unknown key {name!r}", where=where, expected=", ".join(KEYS), hint=hint)
            if name in entries:
                where = f"{uri} lines {entries[name].line} and {line}, {name}"
                raise UsageError("the key occurs twice", where=where, expected="one value")
            for text, at in _scalars(value):
                if text.encode("utf-8", "replace").decode() != text:
                    where = f"{uri} line {at}, {name}"
                    raise UsageError("the text has an unpaired surrogate", where=where, got=ascii(text))
            entries[name] = _Entry(loader.construct_document(value), line, value)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        hint = "quote a text that has ': ' or ' #' in it, or begins with a quote, bracket or brace"
        raise UsageError("not valid YAML", where=f"{uri}{place}", got=reason, hint=hint) from error
    return entries
