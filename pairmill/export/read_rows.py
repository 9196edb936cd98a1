"""Rows of text as tables: messages, prompts and completions, and the columns that trainers read of both."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pairmill import storage
from pairmill.chats.render import Chat, chat_from_pair
from pairmill.engine import inputs
from pairmill.engine.inputs import HELD_OUT as HELD_OUT_TASKS
from pairmill.engine.inputs import PAIRS, PROMPTS, InputFile
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.export.parts import HELD_OUT, TRAIN, Counts, Exported, Part
from pairmill.export.read_tokens import stems
from pairmill.formats import row_files, rows
from pairmill.formats.opened import OpenResult
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.source_facts import Facts
from pairmill.formats.uses import COLUMNS

_TURNS: Final = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

Shaped = Mapping[str, Any]
Shape = Callable[[str, Chat], Shaped]


def _messages(condition: str, chat: Chat) -> Shaped:
    return {"messages": chat.messages, "tools": chat.tools, "condition": condition}


def _turns(condition: str, chat: Chat) -> Shaped:
    return {"prompt": chat.messages[:-1], "completion": chat.messages[-1:], "tools": chat.tools, "condition": condition}


_SCHEMAS: Final = {
    "messages": pa.schema([("messages", _TURNS), ("condition", pa.string())]),
    "turns": pa.schema([("prompt", _TURNS), ("completion", _TURNS), ("condition", pa.string())]),
    "pair": pa.schema([("prompt", pa.string()), ("completion", pa.string()), ("condition", pa.string())]),
}
_SHAPES: Final[Mapping[str, Shape]] = {"messages": _messages, "turns": _turns}


def from_rows(uri: str, option: str, columns: str) -> Exported:
    """Open rows as tables.

    Args:
        uri: a finished folder, or any folder of row files.
        option: that named it.
        columns: ``messages``, ``turns`` (messages of the prompt and of the completion) or ``pair`` (their texts).

    Raises:
        InputError: no rows, or a folder is unfinished or damaged.
    """
    given = row_files.discover([uri], option, held_out=True)
    beside = row_files.beside_each(given.files) if given.templates else {}
    chats = {file.uri: beside.get(file.uri, {}).get("source") for file in given.files if file.task in given.templates}
    if lacking := [name for name, file in chats.items() if file is None and columns != "pair"]:
        hint = "columns=pair writes the rendered texts"
        raise InputError("the messages of rendered rows are not beside them", where=lacking[0], hint=hint)
    names = stems([file.task for file in given.files])
    parts = [
        Part(
            split=HELD_OUT if file.task.startswith(HELD_OUT_TASKS) else TRAIN,
            name=names[file.task],
            source=source_of(file.task),
            identity=[file.identify(), columns],
            rows=_count(file) or 0,
            read=_RowsOf(file, columns, chats.get(file.uri)),
        )
        for file in given.files
    ]
    is_chats = columns != "pair" and any(chats.values())
    ref = given.refs[0]
    facts = Facts().of_tasks((file.uri, file.task) for file in given.files)
    schema = _SCHEMAS[columns]
    return Exported("rows", ref.fingerprint, ref.stage, parts, schema=schema, chats=is_chats, facts=facts)


def _count(file: InputFile) -> int | None:
    return rows.count(file.uri) if file.kind == "parquet" else None


@dataclass(frozen=True)
class _RowsOf:
    file: InputFile
    columns: str
    chats: InputFile | None

    def __call__(self, counts: Counts) -> Iterator[pa.RecordBatch | list[Shaped]]:
        """Yield tables; of rows with tools, lists of objects."""
        schema = _SCHEMAS[self.columns]
        chats = self._read_chats() if self.chats is not None else None
        for batch in rows.read(self.file.uri, content=self.file.content):
            rows.refuse_nulls(batch, self.file.uri)
            counts.rows_in += len(batch)
            if self.columns == "pair":
                arrays = [batch.instruction, batch.response, batch.condition]
                yield pa.RecordBatch.from_arrays([array.cast(pa.string()) for array in arrays], schema=schema)
                continue
            shape = _SHAPES[self.columns]
            columns = (getattr(batch, name).to_pylist() for name in rows.FIELDS)
            shaped = []
            for condition, instruction, response in zip(*columns, strict=True):
                if chats is not None:
                    shaped.append(shape(condition, Chat.from_json(next(chats))))
                elif instruction:
                    shaped.append(shape(condition, chat_from_pair("", instruction, response)))
            counts.leave_out("document", len(batch) - len(shaped))
            yield shaped if chats is not None else pa.RecordBatch.from_pylist(shaped, schema=schema)

    def _read_chats(self) -> Iterator[str]:
        assert self.chats is not None
        with open_parquet(self.chats.uri, self.chats.content) as file:
            for batch in parquet_batches(self.chats.uri, file, ["chat"]):
                yield from batch.column(0).to_pylist()


# Prompts and pairs


def uses_in(opened: OpenResult) -> dict[str, str]:
    """Return where a result has prompts, and where pairs: beside its rows, or in place of them."""
    manifest = opened.manifest
    below = {inputs.use_of(file.path) for file in manifest.files} if manifest is not None else set()
    result = {use: storage.join(opened.uri, use) for use in (PROMPTS, PAIRS) if use in below}
    first = next((uri for uri in opened.files.values() if uri.endswith(".parquet")), "")
    if first and not result:
        with open_parquet(first) as file:
            names = file.schema_arrow.names
        result = {use: opened.uri for use, columns in COLUMNS.items() if names == [*columns]}
    return result


def from_use(place: str, use: str, trainer: str) -> Exported:
    """Open prompts with a ground truth, or pairs of a better and a worse answer, as ``verl`` or ``trl`` read them."""
    given = inputs.discover([place], ("parquet",), "rows")
    names = stems([file.task for file in given.files])
    parts = [
        Part(
            split=TRAIN,
            name=names[file.task],
            source=source_of(file.task),
            identity=[file.identify(), use, trainer],
            rows=rows.count(file.uri),
            read=_UseOf(file, use, trainer),
        )
        for file in given.files
    ]
    ref = given.refs[0]
    schema = _use_schema(use, trainer)
    facts = Facts().of_tasks((file.uri, file.task) for file in given.files)
    return Exported(use, ref.fingerprint, ref.stage, parts, schema=schema, chats=use == PAIRS, facts=facts)


def _use_schema(use: str, trainer: str) -> pa.Schema:
    columns = COLUMNS[use]
    if trainer == "verl":
        return pa.schema([(name, columns[name]) for name in columns if name not in rows.FIELDS])
    if use == PROMPTS:
        texts = ("ground_truth", "data_source", "ability")
        return pa.schema([("prompt", columns["prompt"]), *((name, pa.string()) for name in texts)])
    return pa.schema([(name, _TURNS) for name in ("prompt", "chosen", "rejected")])


@dataclass(frozen=True)
class _UseOf:
    file: InputFile
    use: str
    trainer: str

    def __call__(self, counts: Counts) -> Iterator[pa.RecordBatch | list[Shaped]]:
        """Yield tables of prompts, and lists of objects of pairs."""
        schema = _use_schema(self.use, self.trainer)
        with open_parquet(self.file.uri, self.file.content) as file:
            for batch in parquet_batches(self.file.uri, file, None):
                counts.rows_in += len(batch)
                if self.use == PAIRS:
                    yield [_preference(row) for row in batch.to_pylist()]
                elif self.trainer == "verl":
                    yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
                else:
                    truth = batch.column("reward_model").field("ground_truth")
                    others = [batch.column(name) for name in ("data_source", "ability")]
                    yield pa.RecordBatch.from_arrays([batch.column("prompt"), truth, *others], schema=schema)


def _preference(row: Mapping[str, Any]) -> Shaped:
    names = {"prompt": "prompt_messages", "chosen": "chosen_completion_messages"}
    names["rejected"] = "rejected_completion_messages"
    result = {name: [_message(item) for item in row[column]] for name, column in names.items()}
    return {**result, "tools": json.loads(row["tools"])} if row["tools"] else result


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without what it lacks; its calls of tools as objects."""
    message = {name: value for name, value in item.items() if value is not None}
    return {**message, "tool_calls": json.loads(message["tool_calls"])} if "tool_calls" in message else message
