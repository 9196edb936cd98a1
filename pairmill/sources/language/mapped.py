"""Sources without code: a YAML file says where records are and what of them makes a row (docs/sources.md)."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from pairmill._native import RowForm
from pairmill.engine.manifest import canonical
from pairmill.engine.options import Profile
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import RenderedRow, Row
from pairmill.formats.rows import WideRow
from pairmill.formats.templates import TAGS
from pairmill.formats.uses import COLUMNS
from pairmill.sources.files.card import READABLE, configs_of, hub_split, suffix_of, unnamed_split
from pairmill.sources.files.dialect import fits
from pairmill.sources.files.patterns import matching
from pairmill.sources.files.readers import whole_file
from pairmill.sources.language.attributes import CHAT, EXPECTED, Attributes
from pairmill.sources.language.chat_options import read_chats
from pairmill.sources.language.description import Description
from pairmill.sources.language.expression import Expression, Failed
from pairmill.sources.language.filters import Filtered, printed
from pairmill.sources.language.long_options import read_long_rows
from pairmill.sources.language.missing_paths import Watched, kind_of, names_at, nearest
from pairmill.sources.language.paths import MISSING, First, Path, Step
from pairmill.sources.language.tags import condition, own_tags, tags_of, wrong_tag
from pairmill.sources.language.template import Template, Value, paths_of
from pairmill.sources.language.uses import SIGNS, use_in
from pairmill.sources.origin import HubRows
from pairmill.sources.parsed import (
    FURTHER_TURNS,
    Drop,
    Finding,
    Malformed,
    Note,
    Parsed,
    Part,
    Record,
    WrongAttribute,
    shown,
)
from pairmill.sources.source import UNSTATED, Context, OutputFormat, Source, Unit

# Raised when an unchanged YAML file gives other rows than before.
_MEANING = 2
_MEANING_OF_TEMPLATES = "templates take booleans, dates and decimals, and have optional parts"


def load(given: str, raw: str | None = "", built_in: Collection[str] = ()) -> Source:
    """Return the source that the YAML file at a path or URI describes.

    Args:
        given: the path or URI.
        raw: as :class:`Description` takes it.
        built_in: names that it may not have.

    Raises:
        UsageError: there is no such file, or it is not a description of a source.
    """
    return Mapped(Description.read(given, raw), built_in)


class Mapped(Source):
    """One row for each record that ``where`` wants."""

    def __init__(self, file: Description, built_in: Collection[str] = ()) -> None:
        name = file.name(built_in)
        self._splits = file.texts("split", ("train",))
        self._config = file.text("config")
        origin, self._patterns = file.origin(self._config, self._splits)
        dialect, tags = file.dialect(self._patterns), own_tags(file)
        self._known_tags = (*TAGS, *tags)
        self._condition = condition(file, tags)
        self._where = file.parsed("where", Expression) if file.text("where") else None
        self._strip = file.flag("strip", default=True)
        self._chats = read_chats(file, self._known_tags, strip=self._strip)
        keys = [key for key in ("instruction", "response", "text") if key in file]
        self._texts = {key: file.parsed(key, Template.parse) for key in keys}
        self._instruction = self._texts.get("instruction")
        self._response = self._texts.get("response") or self._texts.get("text")
        self._use = use_in(file, self._chats, self._instruction, strip=self._strip)
        self._chat = (
            _Chat.from_templates(self._instruction, self._response) if self._instruction and self._response else None
        )
        if isinstance(self._condition, Template):
            self._texts["condition"] = self._condition
        self._attributes = Attributes(file.mapping("attributes", EXPECTED))
        output = file.output(name)
        needed = [path.column for text in self._texts.values() for path in text.needed]
        optional = [path.column for text in self._texts.values() for path in text.paths if path.column not in needed]
        if self._chats is not None and "turns" in file:
            needed.append(self._chats.turns.column)
            optional += self._chats.columns
        if self._use is not None:
            optional += self._use.columns
        asked = self._where.optional if self._where else ()
        needed += [column for column in (self._where.columns if self._where else ()) if column not in asked]
        optional += [*asked, *self._attributes.columns]
        unnamed = [column for column in needed if dialect.header and column not in dialect.header]
        if unnamed:
            got, hint = ", ".join(dialect.header), did_you_mean(unnamed[0], dialect.header)
            raise file.wrong("header", f"no column {unnamed[0]!r}", got=got, expected=", ".join(needed), hint=hint)
        meaning = [
            [file.text(key) for key in ("condition", "instruction", "response", "where")],
            # Which files, in which order: the files themselves are known by their content.
            [self._patterns, self._config, self._splits],
            [self._strip, output],
            *([self._attributes.meaning] if self._attributes.types else []),
        ]
        if "text" in file:
            meaning.append([file.text("text"), file.whole_files])
        if any(text.braces for text in self._texts.values()):
            meaning.append(_MEANING_OF_TEMPLATES)
        # Entries of their own, so that a description without them keeps its version.
        meaning += [dialect.meaning] if dialect.meaning else []
        meaning += [sorted(tags)] if tags else []
        meaning += [self._use.meaning()] if self._use else []
        # Shards know a source by name and version, so another meaning is another version.
        self._meaning = [_MEANING, meaning]
        rendering = self._chats.rendering() if self._chats else {}
        long_rows = read_long_rows(file, self._chats)
        settings = {"long_rows": long_rows.to_data()} if long_rows else {}
        # Other sources are classes with one instance, which have these as class variables.
        vars(self).update(
            name=name,
            origin=origin,
            output=output,
            licence=file.text("licence", UNSTATED),
            citation=file.text("citation", UNSTATED),
            language=file.text("language"),
            fields=tuple(dict.fromkeys(needed)),
            optional=tuple(dict.fromkeys(column for column in optional if column not in needed)),
            counted=("tools",) if self._chats and not rendering else (),
            dialect=dialect,
            lines_per_record=1 if dialect.is_cut else 0,
            tags=tags,
            described_in=file.uri,
            attributes={**({CHAT: "text"} if rendering else {}), **self._attributes.types},
            rendering={**rendering, **settings},
            limit=file.number("limit"),
            use=self._use.folder if self._use else "",
            signs=() if self._use else SIGNS,
            **({"format": OutputFormat(tuple(COLUMNS[self._use.folder]))} if self._use and self._use.folder else {}),
            expect=file.expectation("expect", ("rows", "share")),
            watched=tuple(self._watched(file)),
            documents="text" in file,
            whole_files=file.whole_files,
        )
        self._set_version()

    def _set_version(self) -> None:
        chats = [self._chats.meaning()] if self._chats else []
        version = int(hashlib.sha256(canonical([*self._meaning, *chats])).hexdigest()[:12], 16)
        vars(self).update(version=version, answers=self._chats.answers if self._chats and not self.use else "")

    def answering(self, answers: str) -> Source:
        if self._chats is None or self.use or answers in ("", self._chats.answers):
            return self
        other = copy.copy(self)
        other._chats = self._chats.answering(answers)
        other._use = self._use and replace(self._use, chats=other._chats)
        other._set_version()
        return other

    def _watched(self, file: Description) -> Iterator[Watched]:
        asked = self._where.asked if self._where else ()
        read = [("where", path) for path in (self._where.paths if self._where else ())]
        read += [(key, path) for key, text in self._texts.items() for path in text.needed]
        if self._chats is not None:
            index = self._chats.options.target_index
            read += [
                *([("turns", self._chats.turns)] if "turns" in file else []),
                *([("target_index", index)] if index else []),
            ]
        known: set[tuple[Step, ...]] = {path.steps for path in asked}
        for key, path in read:
            if path.steps not in known:
                known.add(path.steps)
                below = tuple(item for item in asked if item.steps == path.steps[: len(item.steps)])
                yield Watched(path, file.place(key), below)
        yield from (item for item in self._attributes.watched() if item.path.steps not in known)

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        if self._patterns:
            result = matching(self._patterns, files)
            self._refuse_none(result, files, ", ".join(self._patterns))
        else:
            result = tuple(dict.fromkeys(path for split in self._splits for path in self._split(split, files, card)))
        if self.whole_files:
            # A file of any kind may be a key or a password, and those are hidden.
            result = tuple(path for path in result if "/." not in f"/{path}")
            self._refuse_none(result, files, f"files that are not hidden: {', '.join(self._patterns)}")
            self._refuse_idle_encodings(result)
            return [Unit(self.output, result)]
        unreadable = [path for path in result if suffix_of(path) not in READABLE]
        if unreadable:
            raise InputError(
                "no reader for this kind of file",
                where=f"{self.name}: {unreadable[0]}",
                expected=", ".join(READABLE),
                hint="name the files to read with files:" + (", and write 'each: file'" if self.documents else ""),
            )
        self._refuse_idle_encodings(result)
        return [Unit(self.output, result)]

    def _refuse_idle_encodings(self, paths: Sequence[str]) -> None:
        for pattern, _ in self.dialect.encodings:
            if not any(fits(pattern, path) for path in paths):
                raise InputError(
                    f"no file of {self.name} has the encoding of {pattern!r}",
                    where=f"{self.described_in}, encoding",
                    got=", ".join(paths[:5]) + (", …" if len(paths) > 5 else ""),
                    expected="a pattern of some files: a name such as part-3*.jsonl, or a path as files: has it",
                )

    def _split(self, split: str, files: Sequence[str], card: str) -> tuple[str, ...]:
        if isinstance(self.origin, HubRows):
            # To hub_split, which goes by names, train_sft-00000 would be a file of train as well.
            result = tuple(path for path in files if re.fullmatch(rf"{re.escape(split)}-[0-9]+\.parquet", path))
        else:
            result = hub_split(files, card, split, self._config_in(card)) or unnamed_split(split, files, card)
        self._refuse_none(result, files, f"files of the split {split!r}")
        return result

    def _config_in(self, card: str) -> str:
        """Return the configuration to read: the one that was asked for, or the card's default."""
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

    def _refuse_none(self, paths: Sequence[str], files: Sequence[str], expected: str) -> None:
        if not paths:
            raise InputError(
                f"no file of {self.name}",
                where=self.name,
                got=", ".join(files[:5]) + (", …" if len(files) > 5 else "") or "an empty folder",
                expected=expected,
                hint="name another split:, the config: or the files:" if not self._patterns else "check files:",
            )

    def parse(self, record: Any, context: Context) -> Parsed:
        if not isinstance(record, dict):
            return Malformed("not_an_object")
        if self._where is not None:
            try:
                if not self._where.holds(record):
                    return Drop("filtered_by_where")
            except Failed:
                return Malformed("where_failed")
        if self._use is not None:
            return self._tagged(self._use.parts(record), record)
        turns = self._chats.rows(record) if self._chats is not None else ()
        instruction = self._instruction.render(record) if self._instruction is not None else ""
        response = self._response.render(record) if self._response is not None else ""
        if self._strip:
            instruction, response = instruction.strip(), response.strip()
        if turns:
            return self._tagged(turns, record)
        tags = self._tags_of(record)
        if tags is None:
            return Malformed("unknown_condition")
        row = Row(tags, instruction, response)
        further = self._chat.further_turns(record) if self._chat else 0
        return (row, Note(FURTHER_TURNS, further)) if further else row

    def _tags_of(self, record: Any) -> str | None:
        """Return the condition of a record's rows, None if it has tags that are not known."""
        if isinstance(self._condition, str):
            return self._condition
        tags = tags_of(self._condition.render(record))
        return None if wrong_tag(tags, self._known_tags) is not None else ",".join(tags)

    def _tagged(self, parts: Sequence[Part], record: Any) -> Parsed:
        """Return the same parts with the condition in their rows."""
        tags = self._tags_of(record)
        if tags is None:
            return Malformed("unknown_condition")
        return [_with_condition(part, tags) if isinstance(part, Row) else part for part in parts]

    def row_form(self) -> RowForm | None:
        if not isinstance(self._condition, str) or self._where or self._use or self.attributes or self.whole_files:
            return None
        if self._chats is not None:
            return self._chats.row_form(self._condition) if not self._texts else None
        fields = [text.field if text is not None else None for text in (self._instruction, self._response)]
        if fields[1] is None or (fields[0] is None) != self.documents:
            return None
        return RowForm.pair(self._condition, fields[0], fields[1], self._strip)

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return self._attributes.read(record)

    def first_question(self, record: Any, rows: Sequence[Row]) -> str:
        return (self._chats and self._chats.first_question(record)) or super().first_question(record, rows)

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        return (
            whole_file(piece, self.dialect.encoding_in(piece.path))
            if self.whole_files
            else super().read(piece, profile)
        )

    def explain(self, record: Any, why: Malformed) -> Finding:
        if isinstance(why, WrongAttribute):
            return self._attributes.explain(why)
        if why.reason == "not_an_object":
            return Finding(kind_of(record))
        if why.reason == "where_failed":
            return self._explain_where(record)
        if self._use is not None and self._use.folder:
            return Finding(shown(record))
        if self._chats is not None and why.reason != "unknown_condition":
            result = self._chats.explain(record, why)
            if result.found:
                return result
        for key, text in self._texts.items():
            for value, error in text.wrong(record):
                if error.why == why:
                    return self._explain_text(record, key, text, value)
        if why.reason == "unknown_condition" and isinstance(self._condition, Template):
            return self._explain_condition(self._condition.render(record))
        return Finding(shown(record))

    def explain_unread(self, why: Malformed) -> Finding:
        if why.reason == "invalid_utf8":
            return Finding("bytes that are not UTF-8", "encoding: cp1252")
        if why.mendable:
            return Finding("NULs, a raw control character, or an object that does not end on its line", "json: lenient")
        return super().explain_unread(why)

    def _explain_condition(self, condition: str) -> Finding:
        """Return the tag that is not known, and the line that makes it one."""
        wrong = wrong_tag(tags_of(condition), self._known_tags)
        some = f"condition: some of {', '.join(self._known_tags)}"
        if wrong is None or not re.fullmatch(r"[a-z0-9_-]+", wrong) or wrong in self._known_tags:
            return Finding(shown(condition), some)
        own = [f"{tag}={token}" for tag, token in self.tags.items()] + [f"{wrong}=<|{wrong}|>"]
        return Finding(shown(condition), f"tags: {json.dumps(own)} or {some}")

    def _explain_where(self, record: Any) -> Finding:
        """Return what ``where`` fails on, and, if it helps, the condition that reads numbers from texts."""
        assert self._where is not None
        try:
            self._where.holds(record)
        except Failed as error:
            text = " ".join(self._where.text.split())
            for path in self._where.paths:
                if isinstance(path.find(record), str):
                    alone = rf"(?<![\w.'\"(]){re.escape(path.text)}(?![\w.'\"\[(])"
                    text = re.sub(alone, lambda match: f"number({match[0]})", text)
            try:
                Expression(text).holds(record)
            except (Failed, UsageError):
                return Finding(str(error))
            return Finding(str(error), yaml_line("where", text))
        return Finding(shown(record))

    def _explain_text(self, record: Any, key: str, text: Template, value: Value) -> Finding:
        """Return what is at a path where no text is, and the lines that take or leave out such records, if there are
        some."""
        path = next((item for item in paths_of(value) if item.find(record) in (None, MISSING)), paths_of(value)[0])
        depth, result = path.reach(record)
        optional = [yaml_line(key, line) for line in [text.without(value)] if line]
        if depth < len(path.steps):
            near = nearest(path, depth, names_at(result, path.steps[depth]))
            if near is None:
                return Finding(kind_of(result), _either(*optional, self._only_with(path)))
            return Finding(kind_of(result), yaml_line(key, text.instead(value, near.text)))
        if result is None:
            return Finding("null", _either(*optional, self._only_with(path)))
        if isinstance(value, Filtered):
            return self._explain_filtered(record, key, text, value)
        if isinstance(result, list | dict):
            return Finding(kind_of(result), _either(*(yaml_line(key, line) for line in _taking(text, path, result))))
        written = kind_of(result) if isinstance(result, bool) else shown(result)
        if printed(result) is None or text.braces:
            return Finding(written)
        is_number = isinstance(result, int | float) and not isinstance(result, bool)
        return Finding(f"the number {result}" if is_number else written, yaml_line(key, f"{{{path.text}}}"))

    def _explain_filtered(self, record: Any, key: str, text: Template, value: Filtered) -> Finding:
        """Return what a filter does not take, and the line that does."""
        result = value.find(record)
        if value.name == "json":
            return Finding(kind_of(result))
        odd = [item for item in result if printed(item) is None] if isinstance(result, list) else []
        if odd and odd[0] is MISSING:
            return Finding(f"no {value.inner and value.inner.text} in an element of {kind_of(result)}")
        if odd:
            names = [name for name in odd[0] if isinstance(odd[0][name], str)] if isinstance(odd[0], dict) else []
            name = next((name for name in ("text", "content", "value") if name in names), names[0] if names else "")
            inside = f"{value.path.text}[*].{name}|" + (value.written.partition("|")[2] or "lines")
            line = "" if odd[0] is None else inside if re.fullmatch(r"[\w-]+", name) else f"{value.path.text}|json"
            found_there = f"{kind_of(odd[0])} in {kind_of(result)}"
        elif isinstance(result, list):
            line = "" if value.other else f"{value.path.text}|numbered"
            found_there = f"{shown(value.other.find(record))} for {kind_of(result)}" if value.other else kind_of(result)
        else:
            line = value.path.text + ("" if printed(result) is not None else "|json")
            found_there = kind_of(result) if isinstance(result, bool | dict) else shown(result)
        return Finding(found_there, yaml_line(key, text.instead(value, line)) if line else "")

    def _only_with(self, path: Path) -> str:
        """Return the line that leaves out records without a value at the path."""
        try:
            asked = Expression(f"has({path.text})").asked
        except UsageError:
            asked = ()
        has = f"has({path.text})" if asked and asked[0].steps == path.steps else f"has(path({path.text!r}))"
        return yaml_line("where", f"{has} and ({' '.join(self._where.text.split())})" if self._where else has)


def _with_condition(row: Row, condition: str) -> Row:
    """Return a row with a condition, and the tag that it has already."""
    if type(row) is Row and not row.condition:  # most of them
        return Row(condition, row.instruction, row.response)
    if row.condition and row.condition not in condition.split(","):
        condition = f"{condition},{row.condition}"
    if isinstance(row, WideRow):
        return WideRow(Row(condition, *row[1:]), row.columns, row.size)
    if isinstance(row, RenderedRow):
        return RenderedRow(condition, row.instruction or "", row.response or "", row.chat)
    return Row(condition, row.instruction, row.response)


@dataclass(frozen=True)
class _Chat:
    """A conversation: the request and the answer of a row are fields of elements of one list."""

    messages: Path
    request: Step
    answer: Step

    @classmethod
    def from_templates(cls, instruction: Template, response: Template) -> _Chat | None:
        """Return the conversation that both texts read, if they read one."""
        for asked in instruction.needed:
            for answered in response.needed:
                pairs = zip(asked.steps, answered.steps, strict=False)
                depth = next((at for at, (item, other) in enumerate(pairs) if item != other), 0)
                steps = asked.steps[depth : depth + 2], answered.steps[depth : depth + 2]
                if depth and all(len(two) == 2 and not isinstance(two[0], str) for two in steps):
                    messages = Path(asked.up_to(depth), asked.steps[:depth])
                    return cls(messages, steps[0][0], steps[1][0])
        return None

    def further_turns(self, record: Any) -> int:
        """Return the turns, each a request and its answer, that make no row."""
        messages = self.messages.find(record)
        if not isinstance(messages, list):
            return 0
        if isinstance(self.answer, First):
            return max(0, sum(map(self.answer.fits, messages)) - 1)
        first, last = sorted(_place_of(step, messages) for step in (self.request, self.answer))
        return first // 2 + (len(messages) - 1 - last) // 2


def _place_of(step: Step, messages: list[Any]) -> int:
    if isinstance(step, First):
        return next(place for place, message in enumerate(messages) if step.fits(message))
    assert isinstance(step, int)
    return step % len(messages)


def yaml_line(key: str, value: str) -> str:
    """Return a line of a YAML file, with quotes if the value would be read as something else without them."""
    try:
        plain = yaml.safe_load(value) == value
    except yaml.YAMLError:
        plain = False
    return f"{key}: {value if plain else json.dumps(value, ensure_ascii=False)}"


def _either(*lines: str) -> str:
    """Lines of which one is to be written, the best first."""
    return " or ".join(dict.fromkeys(line for line in lines if line))


def _taking(text: Template, path: Path, value: list[Any] | dict[Any, Any]) -> list[str]:
    """Texts with something in the place of a path that takes the list or object there."""
    inside = _text_inside(value)
    result = [text.instead(path, path.text + inside)] if inside else []
    if isinstance(value, list) and all(printed(item) is not None for item in value):
        return [_braced(text, path, "lines"), *result]
    return result or [_braced(text, path, "json")]


def _braced(text: Template, path: Path, name: str) -> str:
    return text.instead(path, f"{path.text}|{name}") if text.braces else f"{{{path.text}|{name}}}"


def _text_inside(value: Any) -> str:
    """Return the steps from a list or an object to the first text in it; empty if none is near."""
    if isinstance(value, list) and value:
        if isinstance(value[0], str):
            return "[0]"
        if not isinstance(value[0], dict):
            return ""
        inside = next((f".{key}" for key in ("content", "value") if isinstance(value[0].get(key), str)), "")
        inside = inside or _text_inside(value[0])
        roles = (
            f"[{key}=assistant]" for key in ("role", "from") if any(First(key, "assistant").fits(m) for m in value)
        )
        return next(roles, "[0]") + inside if inside else ""
    if isinstance(value, dict):
        names = (key for key, item in value.items() if isinstance(item, str) and re.fullmatch(r"[\w-]+", key))
        return next((f".{key}" for key in names), "")
    return ""
