"""The sample: of each source the rows of a plan whose keys are least, as text, with what the checks find.

A key is made of the digest of a task's tokens and of where the row is in them: it is the same in any plan, on any
machine, with any number of workers. A larger sample has all rows of a smaller one, and the sample of a plan that grew
has those of the plan before as far as they still have the least keys.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.audit.checks import faults_of
from pairmill.audit.forms import form_of, readers_of
from pairmill.audit.shared import NAME as SHARED
from pairmill.audit.shared import choose_lengths, digests_of
from pairmill.audit.texts import AuditedRow, TokenText
from pairmill.chats.render import Chat
from pairmill.engine.manifest import Ledger, seed_from
from pairmill.engine.policing import REMOVED
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import some_rows
from pairmill.formats.audited import NAME, digest_of_text
from pairmill.formats.beside_rows import chats_of
from pairmill.formats.characters import TokenTexts
from pairmill.formats.chat_digests import KEY
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.plan_rows import Ints, PlanRows
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.formats.tokens import INDEX, Dataset

_PIECE: Final = 1 << 20
"""Rows whose keys are made together."""
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class PlanPart:
    """Successive rows of a plan that are of one task.

    Args:
        content: identity of its tokens.
        first: number of the first row in the plan.
        removed: that a policy takes out: where their responses begin in the tokens, and end.
    """

    task: str
    content: str
    first: int
    rows: int
    removed: tuple[tuple[int, int], ...] = ()

    def stay(self, starts: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows no policy takes out, by where their responses begin; bool [rows]."""
        result = np.ones(len(starts), np.bool_)
        for begin, end in self.removed:
            result &= (starts < begin) | (starts >= end)
        return result


@dataclass(frozen=True)
class PlanTexts:
    """The context of all shards: where a plan and what it was made of are; opened once in each process.

    Args:
        plan: URI.
        tokenized: URI of the folder that it was drawn from.
        beside: URIs of finished folders of tokens, each with that of a folder of the rows that they were made of.
    """

    plan: str
    tokenized: str
    beside: tuple[tuple[str, str], ...]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def rows(self) -> PlanRows:
        """The rows of the plan."""
        return PlanRows(open_result(self.plan))

    @cached_property
    def opened(self) -> OpenResult:
        """The tokenized folder."""
        return open_result(self.tokenized)

    @cached_property
    def texts(self) -> TokenTexts:
        """What makes text of ids.

        Raises:
            InputError: the folder has no tokenizer.
        """
        homes = (storage.join(home, TOKENIZER) for home in self.opened.tokenized.homes)
        uri = next((home for home in homes if storage.store_for(home).exists(home)), "")
        if not uri:
            raise InputError(
                "a tokenized folder without its tokenizer",
                where=f"tokenized_path={self.tokenized}",
                expected=TOKENIZER,
                hint=f"copy the {TOKENIZER} that made the tokens into the folder",
            )
        return TokenTexts(storage.store_for(uri).read(uri), uri)

    @cached_property
    def template(self) -> str:
        """The text of the chat template; empty = there is none."""
        return str(self.opened.info().get(KEY, {}).get("text", ""))

    def row_folders(self, task: Dataset) -> list[str]:
        """Return the folders of rows that a task may be made of."""
        return [folder for home, folder in self.beside if task.uri.startswith(f"{home}/")]

    def row_file(self, task: Dataset) -> str:
        """Return the URI of a task's row file; empty = it is not at hand."""
        files = (self._files(folder).get(task.own, "") for folder in self.row_folders(task))
        return next(filter(None, files), "")

    def _files(self, folder: str) -> Mapping[str, str]:
        if folder not in self._opened:
            self._opened[folder] = open_result(folder).files
        return self._opened[folder]

    @cached_property
    def _opened(self) -> dict[str, Mapping[str, str]]:
        return {}


def keys_of(content: str, starts: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the keys of rows of a task; uint64 [rows].

    Args:
        content: identity of the task's tokens.
        starts: where the responses of the rows begin, integers [rows].
    """
    mixed = starts.astype(np.uint64) + np.uint64(seed_from("audit", content))
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return mixed ^ (mixed >> np.uint64(31))


@dataclass
class DrawnSource:
    """The data of a shard: of one source, rows and tokens by what was found.

    Attributes:
        rows: that were drawn; tokens: of their responses.
        faulty: rows with a fault; faults: rows by check.
        forms: tokens of responses by form; readers: by benchmark whose scorer reads an answer in them.
        tasks: rows, and rows with a fault, of each task.
    """

    rows: int = 0
    tokens: int = 0
    faulty: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    forms: dict[str, int] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, list[int]] = field(default_factory=dict)

    def add(self, row: AuditedRow, faults: Mapping[str, str], form: str, readers: Sequence[str]) -> None:
        """Count a row."""
        self.rows += 1
        self.tokens += row.tokens[1]
        self.faulty += bool(faults)
        counts = self.tasks.setdefault(row.task, [0, 0])
        counts[0] += 1
        counts[1] += bool(faults)
        for name in faults:
            self.faults[name] = self.faults.get(name, 0) + 1
        self.forms[form] = self.forms.get(form, 0) + row.tokens[1]
        for name in readers:
            self.readers[name] = self.readers.get(name, 0) + row.tokens[1]


@dataclass(frozen=True)
class DrawRows(Shard[PlanTexts], reads=()):
    """Draws the rows of one source and checks them.

    Args:
        source: its name, or that of a task.
        parts: the source's rows in the plan.
        content: identity of the plan.
        most: rows.
        languages: that the source says it has.
        beside: fingerprints of the folders of rows that are at hand.
        prompts: rows whose prompts are compared with those of other sources.
    """

    source: str
    parts: tuple[PlanPart, ...]
    content: str
    most: int
    checks: tuple[str, ...]
    languages: tuple[str, ...]
    beside: tuple[str, ...]
    prompts: int

    def run(self, context: PlanTexts, out: Writer) -> ShardResult:
        data = DrawnSource()
        chosen, staying, lengths = self._choose(context)
        with out.create(NAME, scratch=True) as local, local.open("w", encoding="utf-8") as file:
            for row, text in self._read(context, chosen):
                faults, form = faults_of(row, self.checks), form_of(row.answer.plain)
                readers = readers_of(row.answer.plain)
                data.add(row, faults, form, readers)
                line = {
                    "key": digest_of_text(row.prompt.shown, row.answer.shown),
                    "source": self.source,
                    "task": row.task,
                    "row": row.ordinal,
                    "text": text,
                    "tokens": list(row.tokens),
                    "faults": faults,
                    "form": form,
                    "read_by": readers,
                    "prompt": row.prompt.shown,
                    "answer": row.answer.shown,
                }
                file.write(json.dumps(line, ensure_ascii=True) + "\n")
        with out.create(SHARED, scratch=True) as local, local.open("wb") as file:
            np.save(file, digests_of(self._prompts(context, lengths)))
        whole = sum(part.rows for part in self.parts)
        ledger = Ledger(whole, data.rows, data.rows)
        for reason, count in ((REMOVED, whole - staying), ("not_drawn", staying - data.rows)):
            if count:
                ledger.drop(reason, count)
        return ShardResult(ledger, vars(data))

    def _choose(self, context: PlanTexts) -> tuple[list[tuple[PlanPart, int]], int, NDArray[np.int64]]:
        """Return the rows with the least keys, by key: the part of each, and its number in the plan.

        How many rows stay is the second value, and by length of their prompts in tokens the third, int64 [lengths].
        """
        best: list[tuple[int, str, int, PlanPart, int]] = []
        staying, lengths = 0, np.zeros(0, np.int64)
        for part, numbers, (_, sizes, starts, _) in self._columns(context):
            staying += len(numbers)
            more = np.bincount(sizes, minlength=len(lengths))
            more[: len(lengths)] += lengths
            lengths = more
            keys = keys_of(part.content, starts)
            least: Sequence[int] | NDArray[Any] = range(len(keys))
            if len(keys) > self.most:
                least = np.argpartition(keys, self.most - 1)[: self.most]
            best += [(int(keys[at]), part.task, int(starts[at]), part, int(numbers[at])) for at in least]
            best = sorted(best, key=lambda item: item[:3])[: self.most]
        return [(part, number) for *_, part, number in best], staying, lengths

    def _columns(self, context: PlanTexts) -> Iterator[tuple[PlanPart, NDArray[np.uint32], list[Ints]]]:
        """Yield the numbers of rows that stay, and where their texts are (:data:`INDEX`), a piece at a time."""
        for part in self.parts:
            for first in range(part.first, part.first + part.rows, _PIECE):
                numbers = np.arange(first, min(first + _PIECE, part.first + part.rows), dtype=np.uint32)
                columns = context.rows.columns(numbers)
                stay = part.stay(columns[INDEX.index("resp_start")])
                yield part, numbers[stay], [column[stay] for column in columns]

    def _prompts(self, context: PlanTexts, lengths: NDArray[np.int64]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the tokens of prompts and answers that are compared with those of other sources."""
        chosen = choose_lengths(lengths, self.prompts)
        for part, _, columns in self._columns(context) if chosen.any() else ():
            spans = np.stack(columns, 1)[chosen[columns[1]]].tolist()
            tokens = context.opened.tokens(part.task).tokens
            for start, size, answer, learned in spans:
                some = tokens[start : start + size], tokens[answer : answer + learned]
                yield some[0].astype("<u4").tobytes(), some[1].astype("<u4").tobytes()

    def _read(self, context: PlanTexts, chosen: Sequence[tuple[PlanPart, int]]) -> Iterator[tuple[AuditedRow, str]]:
        """Yield the rows, each with the digest of its text in the row file; empty = that file is not at hand."""
        tokens = {name: context.opened.tokens(name) for name in dict.fromkeys(part.task for part, _ in chosen)}
        columns = context.rows.columns(np.array([number for _, number in chosen], np.uint32))
        spans = np.stack(columns, 1).tolist()
        numbers = [
            int(np.searchsorted(tokens[part.task].index["resp_start"], start, "right")) - 1
            for (part, _), (_, _, start, _) in zip(chosen, spans, strict=True)
        ]
        known = {name: context.opened.ordinals(name) for name in tokens}
        ordinals = [
            number if (places := known[part.task]) is None else int(places[number])
            for (part, _), number in zip(chosen, numbers, strict=True)
        ]
        beside: dict[tuple[str, int], tuple[str, Chat | None]] = {}
        for name in tokens:
            mine = sorted({at for (part, _), at in zip(chosen, ordinals, strict=True) if part.task == name})
            beside |= {(name, at): item for at, item in _beside(context, name, mine).items()}
        controls = tuple(context.texts.control.values())
        ended = bool(context.opened.info().get("eoa"))
        for (part, _), number, ordinal, (start, size, answer, learned) in zip(
            chosen, numbers, ordinals, spans, strict=True
        ):
            rows = tokens[part.task]
            text, chat = beside.get((part.task, ordinal), ("", None))
            ids = rows.tokens[start : start + size], rows.tokens[answer : answer + learned]
            prompt, response = (TokenText(tuple(context.texts.parts(some.tolist()))) for some in ids)
            row = AuditedRow(
                task=part.task,
                ordinal=ordinal,
                prompt=prompt,
                answer=response,
                tokens=(size, learned),
                lost=int(rows.index["resp_len"][number]) - learned,
                languages=self.languages,
                template=context.template,
                controls=controls,
                ended=ended,
                chat=chat,
            )
            yield row, text


def _beside(context: PlanTexts, task: str, ordinals: Sequence[int]) -> dict[int, tuple[str, Chat | None]]:
    """Return by ordinal the digest of a row's text, and its chat; nothing if the rows are not at hand."""
    dataset = context.opened.datasets[task]
    uri = context.row_file(dataset)
    if not uri:
        return {}
    texts = some_rows.read(uri, ordinals)
    chats = list(chats_of(context.row_folders(dataset), dataset.own, ordinals)) or [None] * len(ordinals)
    return {
        at: (digest_of_text(texts[at].instruction, texts[at].response), Chat.from_json(chat) if chat else None)
        for at, chat in zip(ordinals, chats, strict=True)
    }
