"""From a record of a benchmark to an item: its question and its answers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pairmill.errors import InputError, did_you_mean
from pairmill.formats.slices import FileSlice
from pairmill.leaks.settings import Benchmark
from pairmill.sources.choices import choice_letter
from pairmill.sources.language.expression import Expression, Failed
from pairmill.sources.language.filters import printed
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.language.template import Template
from pairmill.sources.origin import Folder
from pairmill.sources.parsed import Drop, Malformed, MalformedRecord, Parsed, shown
from pairmill.sources.source import Context, Source, checked, parse_record

_WITHOUT = "leave such records out with where:, or name another path"
_SHOWN = 20


class Item(NamedTuple):
    """A question that must not be trained on, and what answers it."""

    name: str
    question: str
    answers: list[str]


class ItemReader(Source):
    """Reads the records of a benchmark and makes items of them.

    Args:
        benchmark: how it is mapped.
    """

    licence = ""
    citation = ""

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self._question = Template.parse(benchmark.question)
        self._answers = Template.parse(benchmark.answers) if benchmark.answers else None
        self._choices = Path.parse(benchmark.choices) if benchmark.choices else None
        self._item = Template.parse(benchmark.item) if benchmark.item else None
        self._where = Expression(benchmark.where) if benchmark.where else None
        texts = [text for text in (self._question, self._answers, self._item) if text is not None]
        needed = [path.column for text in texts for path in text.needed]
        needed += [self._choices.column] if self._choices else []
        optional = [path.column for text in texts for path in text.paths]
        if self._where is not None:
            needed += [column for column in self._where.columns if column not in self._where.optional]
            optional += self._where.optional
        # Readers of Parquet and CSV refuse a file without these columns, and name those that it has.
        vars(self).update(
            name=f"benchmark {benchmark.name}",
            origin=Folder(benchmark.uri, ()),
            fields=tuple(dict.fromkeys(needed)),
            optional=tuple(dict.fromkeys(column for column in optional if column not in needed)),
        )

    def parse(self, record: Any, context: Context) -> Parsed:
        raise NotImplementedError("a benchmark has items, no rows")

    def items(self, piece: FileSlice, first: int) -> Iterator[Item]:
        """Yield the items of a file.

        Args:
            piece: of the benchmark.
            first: how many items the files before it have.

        Raises:
            InputError: a record has no question or no answer, or cannot be read.
        """
        number = first
        for place, record in self.read(piece, "pairmill"):
            where = f"{piece.uri} record {place + 1 if isinstance(place, int) else place}"
            if not isinstance(record, dict):
                got = record.reason.replace("_", " ") if isinstance(record, Malformed) else shown(record)
                raise InputError(f"not a record of {self.name}", where=where, got=got, expected="an object")
            try:
                if self._where is not None and not self._where.holds(record):
                    continue
            except Failed as error:
                raise InputError(
                    f"{self.name}: where: fails", where=where, got=str(error), expected=self.benchmark.where
                ) from error
            name = self._text("item", self._item, record, where) if self._item else str(number)
            yield Item(name, self._text("question", self._question, record, where), self._answers_of(record, where))
            number += 1

    def _text(self, key: str, template: Template, record: dict[str, Any], where: str) -> str:
        if not template.braces:
            result = printed(template.paths[0].find(record))
            if result is not None:
                return result
        try:
            return template.render(record)
        except MalformedRecord as error:
            raise self._wrong(key, template.paths, record, where) from error

    def _wrong(self, key: str, paths: list[Path], record: dict[str, Any], where: str) -> InputError:
        path = next((item for item in paths if item.find(record) in (None, MISSING)), paths[0])
        value = path.find(record)
        names = [str(name) for name in record][:_SHOWN]
        got = f"the fields {', '.join(names)}" if value is MISSING else "null" if value is None else shown(value)
        what = f"{self.name}: no {key}" if value in (None, MISSING) else f"{self.name}: the {key} is not text"
        hint = _WITHOUT
        if value is MISSING and path.column not in record:
            hint = did_you_mean(path.column, names, _WITHOUT)
        return InputError(what, where=where, got=got, expected=f"a value at {path.text}", hint=hint)

    def _answers_of(self, record: dict[str, Any], where: str) -> list[str]:
        if self._answers is None:
            return []
        if self._answers.braces:
            return [self._text("answers", self._answers, record, where)]
        path = self._answers.paths[0]
        value = path.find(record)
        if self._choices is not None:
            return self._chosen(self._choices.find(record), value, where)
        if not isinstance(value, list):
            return [self._text("answers", self._answers, record, where)]
        result = [printed(item) for item in value]
        if None in result:
            got = shown(value[result.index(None)])
            raise InputError(
                f"{self.name}: an answer is not text", where=where, got=got, expected=f"texts at {path.text}"
            )
        return [text for text in result if text is not None]

    def _chosen(self, choices: Any, value: Any, where: str) -> list[str]:
        """Return the right choice and its letter."""
        texts = [printed(item) for item in choices] if isinstance(choices, list) else []
        if not texts or None in texts:
            raise InputError(
                f"{self.name}: the choices are not a list of texts",
                where=where,
                got="nothing" if choices is MISSING else shown(choices),
                expected=f"a list at {self.benchmark.choices}",
                hint=_WITHOUT,
            )
        letters = [choice_letter(place) for place in range(len(texts))]
        place = -1
        if isinstance(value, int) and not isinstance(value, bool):
            place = value
        elif value in letters:
            place = letters.index(value)
        elif value in texts:
            place = texts.index(value)
        if not 0 <= place < len(texts):
            raise InputError(
                f"{self.name}: the answer is none of the choices",
                where=where,
                got="nothing" if value is MISSING else shown(value),
                expected=f"a number from 0 to {len(texts) - 1}, a letter from A to {letters[-1]}, or a choice's text",
                hint=_WITHOUT,
            )
        return [str(texts[place]), letters[place]]


def withheld_items(source: Source, piece: FileSlice, tag: str) -> Iterator[Item]:
    """Yield the items of a file of one of our own sources: its rows. Records that give no row are left out, as in
    clean."""
    context = Context("pairmill", tag)
    for place, record in source.joined(source.read(piece, "pairmill"), context):
        parsed = parse_record(source, record, context)
        if isinstance(parsed, Drop):
            continue
        result, _ = checked(parsed, "pairmill", documents=source.documents)
        for turn, (_, row) in enumerate(result):
            name = f"{piece.path}:{place}" + (f":{turn}" if turn else "")
            # A document is its own question.
            pair = (row.instruction, [row.response]) if row.instruction else (row.response, [])
            yield Item(name, pair[0] or "", [text for text in pair[1] if text])
