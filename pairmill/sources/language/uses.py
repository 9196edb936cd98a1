"""Records without an answer to learn: prompts with a ground truth, and a better and a worse answer (docs/sources.md).

What becomes of them is said in the description, never guessed: ``answer:`` makes the answer of a template, ``use:
prompts`` and ``use: pairs`` make results of their own (:mod:`pairmill.formats.uses`), ``pairs: chosen_as_answer`` makes
rows of the better answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

from pairmill.chats.message import ChatFault, Message, compact_json, normal_message
from pairmill.chats.reasoning import Reasoning
from pairmill.chats.targets import LAST
from pairmill.chats.tools import parse_calls_in, parse_calls_of, parse_tools
from pairmill.engine.inputs import PAIRS, PROMPTS, USES
from pairmill.errors import UsageError
from pairmill.formats.row import Row
from pairmill.formats.rows import WideRow
from pairmill.sources.language.chats import Chats
from pairmill.sources.language.description import Description
from pairmill.sources.language.filters import printed
from pairmill.sources.language.paths import MISSING, First, Path, Step
from pairmill.sources.language.reading import ASSISTANT, CALL, SYSTEM, TOOL, USER
from pairmill.sources.language.template import Template
from pairmill.sources.parsed import ANSWER_LINE, ANSWERS, CHOSEN_AS_ANSWER, Drop, Malformed, MalformedRecord, Note, Part

_MARK = "{answer}"
_GROUND_TRUTHS = (Path.parse("ground_truth"), Path.parse("reward_model.ground_truth"))
_PROMPT_COLUMNS = ("data_source", "dataset", "ability", "reward_model", "extra_info", "constraint")
_MESSAGES = Path.parse("messages")

_PROMPTS = ("prompt_messages", "prompt", "question", "instruction", "messages")
_CHOSEN = ("chosen_completion_messages", "chosen", "chosen_response", "tool_call_accepted")
_REJECTED = ("rejected_completion_messages", "rejected", "rejected_response", "tool_call_rejected")
_RESULTS = ("tool_result_accepted", "tool_result_rejected")
_SIDES, _VOTES, _SYSTEM = ("conversation_a", "conversation_b"), ("vote", "winner"), ("system", "system_prompt")
_IDS, _FAMILIES, _LANGUAGES = ("id", "prompt_id", "question_id"), ("task_family", "category"), ("language", "lang")
_METADATA = (
    *("metadata", "dataset", "score_chosen", "score_rejected", "chosen_score", "rejected_score", "chosen_rating"),
    *("rejected_rating", "chosen_model", "rejected_model", "model_a", "model_b", *_VOTES),
)
_PAIR_COLUMNS = (
    *(*_PROMPTS, *_CHOSEN, *_REJECTED, *_RESULTS, *_SIDES, *_VOTES, *_SYSTEM, *_IDS, *_FAMILIES, *_LANGUAGES),
    *("tools", *_METADATA),
)
_BOTH_GOOD = "vote_both_good"
_MEANT = {
    **dict.fromkeys(("a", "a_better", "a_is_better", "model_a", "chatbot_a", "conversation_a"), "a"),
    **dict.fromkeys(("b", "b_better", "b_is_better", "model_b", "chatbot_b", "conversation_b"), "b"),
    **dict.fromkeys(("both_good", "bothgood", "tie_bothgood", "tie_both_good"), _BOTH_GOOD),
    **dict.fromkeys(("both_bad", "bothbad", "tie_bothbad", "tie_both_bad"), "vote_both_bad"),
    **dict.fromkeys(("tie", "draw", "equal", "same"), "vote_tie"),
}

SIGNS = ("ground_truth", "reward_model", "chosen", "rejected", "conversation_a")
"""Columns of records that have no answer as they are."""
_NO_ROWS = ("text", "response", "template", "answers", "attributes", "format", "output")


class _Unfit(Exception):
    """A record that gives nothing, and why."""

    def __init__(self, why: Drop | str) -> None:
        super().__init__()
        self.why = Drop(why) if isinstance(why, str) else why


def use_in(file: Description, chats: Chats | None, instruction: Template | None, *, strip: bool) -> Use | None:
    """Return what becomes of records, where a description says that it is something of its own.

    Raises:
        UsageError: it cannot be had with the other entries.
    """
    use, answer = file.choice("use", *USES), _Answer.from_description(file)
    as_answer = file.choice("pairs", CHOSEN_AS_ANSWER)
    if use and as_answer:
        raise file.wrong("pairs", "use: is there too", expected="one of them; describe the files twice to have both")
    for key in _NO_ROWS if use else ():
        if key in file:
            raise file.wrong(key, f"use: {use} makes no rows", expected=f"no {key}:")
    if answer is not None and (as_answer or use == PAIRS or (chats is None and not use)):
        hint = "" if as_answer or use else f"write \"response: '{{{answer.path.text}}}'\" with any words around it"
        raise file.wrong("answer", "needs turns: and records without an answer", hint=hint)
    if use == PROMPTS:
        if chats is None and instruction is None:
            raise file.wrong(
                "use", "nothing says what the prompt is", expected="turns: prompt, or instruction: question"
            )
        if answer is not None and answer.template != _MARK:
            raise file.wrong("answer", "a prompt keeps its ground truth as it is", expected="answer: {path: …}")
        return _Prompts(chats, instruction, answer.path if answer else None, file.text("name"), strip)
    if chats is None:
        return None
    if use or as_answer:
        turns = chats.turns if "turns" in file else None
        return _Pairs(chats, turns, instruction, file.text("name"), as_rows=bool(as_answer))
    return _Answered(chats, answer) if answer is not None else None


@dataclass(frozen=True)
class _Answer:
    """Where the ground truth is, and the text around it: ``{answer}`` is replaced, every other character is itself."""

    path: Path
    template: str = _MARK

    @classmethod
    def from_description(cls, file: Description) -> Self | None:
        values = {}
        for name, value, place in file.mapping("answer", ANSWER_LINE):
            if name not in ("path", "template") or not isinstance(value, str):
                raise UsageError("not an answer", where=place, got=repr(value)[:100], expected=ANSWER_LINE)
            values[name] = value
        if not values:
            return None
        template = values.get("template", _MARK)
        if _MARK not in template:
            raise file.wrong("answer", f"the template has no {_MARK}", got=repr(template), expected=ANSWER_LINE)
        try:
            return cls(Path.parse(values.get("path", "")), template)
        except UsageError as error:
            raise file.wrong("answer", error.what, got=error.got, expected=ANSWER_LINE, hint=error.hint) from error

    def text_of(self, record: Any) -> str:
        text = printed(_there(record, self.path))
        if text is None:
            raise MalformedRecord(f"{self.path.text}_is_no_text")
        return self.template.replace(_MARK, text) if text.strip() else ""


@dataclass(frozen=True)
class _Answered:
    """Chats that end with a question, whose answer is a text around the ground truth."""

    chats: Chats
    answer: _Answer
    folder: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.answer.path.column,)

    def meaning(self) -> list[Any]:
        return ["answer", self.answer.path.text, self.answer.template]

    def parts(self, record: Any) -> list[Part]:
        messages = _listed(self.chats.turns.find(record))
        if not messages or isinstance(self.chats.role_of(messages[-1]), Drop):
            return self.chats.rows(record)  # it says what is wrong
        if self.chats.role_of(messages[-1]) in (ASSISTANT, CALL):
            return [*self.chats.rows(record), Note("answer_not_added", 1)]
        message: dict[str, Any] = {}
        role = next(name for name, meaning in self.chats.roles.items() if meaning == ASSISTANT)
        for keys, value in ((self.chats.role, role), (self.chats.content, self.answer.text_of(record))):
            _put(message, next((key for key in keys if key in messages[-1]), keys[0]), value)
        return self.chats.rows(_replaced(record, self.chats.turns.steps, [*messages, message]))


@dataclass(frozen=True)
class _Prompts:
    """Prompts with their ground truth."""

    chats: Chats | None
    instruction: Template | None
    answer: Path | None
    source: str
    strip: bool
    folder: str = PROMPTS

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(path.column for path in self._truths) + _PROMPT_COLUMNS

    @property
    def _truths(self) -> tuple[Path, ...]:
        return (self.answer,) if self.answer else _GROUND_TRUTHS

    def meaning(self) -> list[Any]:
        return [self.folder, [path.text for path in self._truths]]

    def parts(self, record: Any) -> list[Part]:
        try:
            return [self._row(record)]
        except _Unfit as error:
            return [error.why]
        except UnicodeEncodeError:
            return [Malformed("unpaired_surrogate")]

    def _row(self, record: Any) -> WideRow:
        if self.chats is not None:
            messages = _Messages(self.chats).read(_required(record, self.chats.turns))
        elif self.instruction is not None:
            text = self.instruction.render(record)
            messages = [normal_message(USER, text.strip() if self.strip else text)]
        if any(message["role"] == TOOL or "tool_calls" in message for message in messages):
            raise _Unfit("prompt_with_calls")
        if not messages or messages[-1]["role"] != USER:
            raise _Unfit("prompt_ends_with_an_answer" if messages else "no_messages")
        text = _text_of(messages)
        extra, reward = (value if isinstance(value := record.get(key), Mapping) else {} for key in _WITHIN)
        index = extra.get("index")
        more = {key: value for key, value in extra.items() if key not in ("index", "split")}
        if record.get("constraint") is not None:
            more["constraint"] = record["constraint"]
        truth = self._truth_of(record)
        columns = {
            "data_source": _first_text(record, ("data_source", "dataset")) or self.source,
            "prompt": [{key: message[key] for key in ("role", "content")} for message in messages],
            "ability": _first_text(record, ("ability",)),
            "reward_model": {"style": _first_text(reward, ("style",)) or "rule", "ground_truth": truth},
            "extra_info": {
                "index": index if type(index) is int and abs(index) < 1 << 63 else None,
                "split": _first_text(extra, ("split",)),
                "source": self.source,
                "prompt_characters": len(text),
                "more": _json(more) if more else None,
            },
        }
        return _wide(Row("", text, truth), columns)

    def _truth_of(self, record: Any) -> str:
        path = next((path for path in self._truths if path.find(record) not in (MISSING, None)), self._truths[0])
        value = _there(record, path)
        text = printed(value)
        return _json(value) if text is None else text


_WITHIN = ("extra_info", "reward_model")


class _Choice(NamedTuple):
    """A prompt, the better answer to it, and the worse one."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


@dataclass(frozen=True)
class _Pairs:
    """A better and a worse answer: of each record a pair, or a row of the better one."""

    chats: Chats
    turns: Path | None
    instruction: Template | None
    source: str
    as_rows: bool

    @property
    def folder(self) -> str:
        return "" if self.as_rows else PAIRS

    @property
    def columns(self) -> tuple[str, ...]:
        return _PAIR_COLUMNS

    def meaning(self) -> list[Any]:
        return [PAIRS, self.as_rows, self.turns.text if self.turns else ""]

    def parts(self, record: Any) -> list[Part]:
        read = _Messages(self.chats)
        try:
            choices = [_split(*sides, needs_two=not self.as_rows) for sides in self._sides(record, read)]
            tools = self._tools(record, read)
            if not self.as_rows:
                return [self._pair(record, choices[0], tools), *read.notes()]
        except _Unfit as error:
            return [error.why, *([Note(ANSWERS, 0)] if self.as_rows else [])]
        except ChatFault as error:
            return [Drop(error.reason), *([Note(ANSWERS, 0)] if self.as_rows else [])]
        except UnicodeEncodeError:
            return [Malformed("unpaired_surrogate")]
        chats = replace(self.chats, turns=_MESSAGES, role=("role",), content=("content",)).answering(LAST)
        result: list[Part] = []
        for choice in choices:
            beside = {"tools": tools} if tools else {}
            result += chats.rows({"messages": [*choice.prompt, *choice.chosen], **beside})
        answers = sum(part.times for part in result if isinstance(part, Note) and part.what == ANSWERS)
        others = [part for part in result if not (isinstance(part, Note) and part.what == ANSWERS)]
        return [*others, Note(ANSWERS, answers), *read.notes()]

    def _sides(
        self, record: Any, read: _Messages
    ) -> Iterator[tuple[list[Message], list[Message], list[Message], bool]]:
        """Yield the prompt beside the answers, and both: a whole chat each if the last says so."""
        prompt = self._prompt(record, read)
        if record.get(_SIDES[0]) is not None:
            first, second = (read.read(record.get(name), name) for name in _SIDES)
            vote = _meant(record)
            if vote == _BOTH_GOOD and self.as_rows:
                yield prompt, first, [], True
                yield prompt, second, [], True
            elif vote in ("a", "b"):
                yield (prompt, first, second, True) if vote == "a" else (prompt, second, first, True)
            else:
                raise _Unfit(vote)
            return
        names = [next((name for name in some if record.get(name) is not None), "") for some in (_CHOSEN, _REJECTED)]
        if not names[0] or not (names[1] or self.as_rows):
            raise _Unfit("no_rejected" if names[0] else "no_chosen")
        chosen, rejected = (
            _completion(record, name, result, read) if name else []
            for name, result in zip(names, _RESULTS, strict=True)
        )
        is_whole = bool(chosen) and chosen[0]["role"] != ASSISTANT
        yield prompt, chosen, rejected, is_whole

    def _prompt(self, record: Any, read: _Messages) -> list[Message]:
        """Return what is beside the answers."""
        if self.instruction is not None:
            return [normal_message(USER, self.instruction.render(record).strip())]
        name = next((name for name in _PROMPTS if record.get(name) is not None), "")
        value = _required(record, self.turns) if self.turns else record.get(name)
        if value is None:
            return []
        system = _first_text(record, _SYSTEM)
        before = [normal_message(SYSTEM, system)] if system else []
        if isinstance(value, str) and _listed(value) is None:
            return [*before, normal_message(USER, value.strip())] if value.strip() else []
        messages = read.read(value, name)
        return messages if messages and messages[0]["role"] == SYSTEM else [*before, *messages]

    @staticmethod
    def _tools(record: Any, read: _Messages) -> list[Any]:
        return parse_tools(record.get("tools"), read.counts)

    def _pair(self, record: Any, choice: _Choice, tools: list[Any]) -> WideRow:
        number = next((record[name] for name in _IDS if isinstance(record.get(name), str | int)), None)
        metadata = {name: record[name] for name in _METADATA if record.get(name) is not None}
        columns = {
            "id": str(number) if number is not None else _digest(choice),
            "source": self.source,
            "task_family": _first_text(record, _FAMILIES),
            "language": _first_text(record, _LANGUAGES),
            "prompt_messages": [_flat(message) for message in choice.prompt],
            "tools": compact_json(tools) if tools else None,
            "chosen_completion_messages": [_flat(message) for message in choice.chosen],
            "rejected_completion_messages": [_flat(message) for message in choice.rejected],
            "metadata": _json(metadata) if metadata else None,
        }
        return _wide(Row("", _text_of(choice.prompt), _text_of(choice.chosen)), columns)


Use: TypeAlias = _Answered | _Prompts | _Pairs
"""Each has ``folder``, which its results are in (empty: they are rows like others), ``columns``, the fields of a record
that are read where they are there, ``meaning``, and ``parts``, which gives what ``parse`` returns, without a condition.
"""


class _Messages:
    """Reads lists of messages in the one form."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self.counts: Counter[str] = Counter()

    def notes(self) -> list[Part]:
        """Return what was mended."""
        return [Note(what, times) for what, times in sorted(self.counts.items())]

    def read(self, value: Any, name: str = "turns") -> list[Message]:
        """Return a list of messages, or one alone. Raises MalformedRecord, _Unfit or ChatFault for anything else."""
        messages = [value] if isinstance(value, Mapping) else _listed(value)
        if messages is None:
            raise MalformedRecord(f"{name}_is_no_list")
        try:
            return [made for message in messages if (made := self._message(message)) is not None]
        except ChatFault as error:
            raise _Unfit(error.reason) from error

    def _message(self, message: Any) -> Message | None:
        role = self._chats.role_of(message)
        if isinstance(role, Drop):
            raise _Unfit(role)
        turn = self._chats.turn_of(role, message)
        if isinstance(turn, Drop):
            raise _Unfit(turn)
        calls: list[Any] = []
        text = turn.text
        if role == CALL:
            calls, role = parse_calls_in(turn.calls, {}, self.counts), ASSISTANT
        elif role == ASSISTANT:
            calls = parse_calls_of(message, {}, self.counts)
        if not text and not calls:
            if role == SYSTEM:
                return None
            if role != TOOL:
                raise _Unfit("empty_answer" if role == ASSISTANT else "empty_question")
        reasoning = Reasoning().field_of(message) if role == ASSISTANT else ""
        call_id = message.get("tool_call_id")
        return normal_message(
            role,
            text,
            reasoning=reasoning,
            calls=calls,
            call_id=call_id if role == TOOL and isinstance(call_id, str) else "",
            name=message.get("name"),
        )


def _completion(record: Any, name: str, result: str, read: _Messages) -> list[Message]:
    """Return an answer: a text, messages, or calls of tools, with what they gave if that is there."""
    value = record[name]
    if name.startswith("tool_call"):
        messages = [normal_message(ASSISTANT, "", calls=parse_calls_in(value, {}, read.counts))]
        text = record.get(result)
        if text is not None:
            messages.append(normal_message(TOOL, text if isinstance(text, str) else _json(text)))
        return messages
    if isinstance(value, str) and _listed(value) is None:
        if not value.strip():
            raise _Unfit("empty_answer")
        return [normal_message(ASSISTANT, value.strip())]
    return read.read(value, name)


def _split(
    prompt: list[Message], chosen: list[Message], rejected: list[Message], is_whole: bool, *, needs_two: bool
) -> _Choice:
    """Return the prompt, and of both answers what comes after it. Raises _Unfit where they are no choice."""
    if is_whole and not needs_two:
        asked = max((place for place, message in enumerate(chosen) if message["role"] in (USER, TOOL)), default=-1)
        prompt, chosen, rejected = chosen[: asked + 1], chosen[asked + 1 :], []
    elif is_whole:
        shared = 0
        while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
            shared += 1
        if shared == len(chosen) == len(rejected):
            raise _Unfit("chosen_is_rejected")
        while shared and chosen[shared - 1]["role"] == ASSISTANT:
            shared -= 1
        prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    if not any(message["role"] == USER for message in prompt):
        raise _Unfit("no_prompt" if not is_whole else "prompts_differ")
    for answer in (chosen, rejected) if needs_two else (chosen,):
        if not answer:
            raise _Unfit("one_continues_the_other")
        if answer[0]["role"] != ASSISTANT:
            raise _Unfit("prompts_differ")
        if answer[-1]["role"] in (USER, SYSTEM):
            raise _Unfit("ends_with_a_question")
    if chosen == rejected:
        raise _Unfit("chosen_is_rejected")
    return _Choice(prompt, chosen, rejected)


def _meant(record: Any) -> str:
    """Return the side that a vote is for, or the reason why it is for none."""
    vote = next((record[name] for name in _VOTES if record.get(name) is not None), None)
    name = re.sub(r"[^a-z]+", "_", vote.lower()).strip("_") if isinstance(vote, str) else ""
    return _MEANT.get(name, "vote_unknown")


def _text_of(messages: Sequence[Message]) -> str:
    """Return messages as a text that duplicates and leaks are looked for in; of one message it is its text."""
    texts = []
    for message in messages:
        calls = [compact_json(call["function"]) for call in message.get("tool_calls", ())]
        texts.append("\n".join(filter(None, [message["content"], *calls])))
    if len(messages) == 1:
        return texts[0]
    blocks = [f"{message['role'].title()}:\n{text}" for message, text in zip(messages, texts, strict=True)]
    return "\n\n".join(blocks)


def _wide(row: Row, columns: Mapping[str, Any]) -> WideRow:
    return WideRow(row, columns, len(json.dumps(columns, ensure_ascii=False).encode()))


def _flat(message: Message) -> dict[str, Any]:
    """Return a message as Parquet has it: its calls are JSON."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": compact_json(calls) if calls else None}


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except (ValueError, TypeError, RecursionError):
        raise MalformedRecord("value_is_no_json") from None


def _digest(choice: _Choice) -> str:
    return hashlib.sha256(compact_json(choice).encode()).hexdigest()[:16]


def _first_text(record: Any, names: Sequence[str]) -> str | None:
    return next((record[name] for name in names if isinstance(record.get(name), str) and record[name].strip()), None)


def _listed(value: Any) -> list[Any] | None:
    """Return a list, also one that is JSON in a text."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def _there(record: Any, path: Path) -> Any:
    value = path.find(record)
    if value is MISSING or value is None:
        raise MalformedRecord(f"{'missing' if value is MISSING else 'null'}_{path.text}")
    return value


def _required(record: Any, turns: Path) -> Any:
    value = _there(record, turns)
    if _listed(value) is None:
        raise MalformedRecord(f"{turns.text}_is_no_list")
    return value


def _put(message: dict[str, Any], key: str | Path, value: Any) -> None:
    *above, last = (key,) if isinstance(key, str) else map(str, key.steps)
    for step in above:
        message = message.setdefault(step, {})
    message[last] = value


def _replaced(record: Any, steps: Sequence[Step], value: Any) -> Any:
    """Return a record with another value at the end of a path that leads somewhere."""
    if not steps:
        return value
    if isinstance(record, dict) and isinstance(steps[0], str):
        return {**record, steps[0]: _replaced(record[steps[0]], steps[1:], value)}
    first = steps[0]
    if isinstance(first, int):
        place = first % len(record)
    else:
        place = next(at for at, item in enumerate(record) if isinstance(first, First) and first.fits(item))
    return [*record[:place], _replaced(record[place], steps[1:], value), *record[place + 1 :]]
