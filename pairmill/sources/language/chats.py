"""Chats: each answer of a list of messages becomes a row whose instruction is everything that was said before it.

Every answer (a turn of the assistant) is a row or is skipped for a reason. The first fault ends a chat: what follows
it would answer a history that did not take place. The rows before it are kept. docs/sources.md lists the reasons.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pairmill._native import RowForm
from pairmill.chats import render
from pairmill.chats.account import TOKENS, TemplateFailed
from pairmill.chats.message import ChatFault
from pairmill.chats.reasoning import CONDITION, FIELDS, Reasoning
from pairmill.chats.render import Chat
from pairmill.chats.structure import CHECKS, OLD_MARKS, Structure
from pairmill.chats.targets import BOTH, Answer, Targets
from pairmill.chats.template import MAX_HISTORY, ChatTemplate
from pairmill.chats.tools import Tool, parse_tools
from pairmill.formats.row import RenderedRow, Row
from pairmill.sources.language.missing_paths import kind_of
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.language.reading import ASSISTANT, CALL, SYSTEM, TOOL, USER, Reading, RenderedReading, Turn
from pairmill.sources.parsed import ANSWERS, ChatCounts, Drop, Finding, Malformed, MalformedRecord, Note, Part, shown

MEANINGS = (SYSTEM, USER, ASSISTANT, TOOL, CALL)
PLAIN = "plain"

END_CHAT, DROP_CHAT, KEEP_CHAT = "end_chat", "drop_chat", "keep"

_NAMES = {
    SYSTEM: ("system", "developer", "system_prompt", "context"),
    USER: ("user", "human", "prompter", "question", "customer", "instruction"),
    ASSISTANT: ("assistant", "gpt", "chatgpt", "bing", "bard", "claude", "model", "ai", "bot", "chatbot", "answer"),
    TOOL: (
        *("tool", "function", "observation", "tool_response", "function_response", "function-response", "ipython"),
        "environment",
    ),
    CALL: ("tool_call", "function_call", "function-call"),
}
ROLES = {name: meaning for meaning, names in _NAMES.items() for name in names}
"""The roles that are known without ``roles:``, in lower case."""

REASONING, TOOLS, WEIGHT_0 = "reasoning_left_out", "tools_left_out", "weight_0_taught"
"""Notes of what a chat says beside the texts of its turns: messages with reasoning in a field of its own, records that
declare tools, and answers that make rows although their weight is 0."""
NOT_RENDERED = ("reasoning_not_rendered", "tools_not_rendered")
"""Notes of what a chat has and its template did not write: rows with reasoning, chats with tools."""
CALLS_NOT_RENDERED = "calls_not_rendered"
"""The reason of an answer whose calls its template did not write: a row would teach to call nothing."""

_MARKS = {SYSTEM: "System:", USER: "User:", ASSISTANT: "Assistant:", TOOL: "Tool:", CALL: "Tool call:"}
_MARK = re.compile(rf"^(?=\\*(?:{'|'.join(_MARKS.values())})$)", re.MULTILINE)
_MEANING = "what rows leave out is counted"
_RENDERED = "prompt and the rest of the whole, of messages in one form"
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_SEEN = 40
"""Characters of reasoning that are looked for in what a template wrote."""
BAD_WEIGHT, BAD_WEIGHTS, BAD_INDEX = "weight_is_not_0_or_1", "weights_do_not_fit_messages", "target_index_is_no_answer"

_EVERY_ANSWER = Targets()
_BESIDE = frozenset({"weight", "tools", "tool_calls", "function_call", *FIELDS})
"""Fields of a message that say more than its text."""

MAX_CHARACTERS = 1 << 25
"""Characters of all instructions of one chat: without a limit they grow with the square of its turns."""


@dataclass(frozen=True)
class ChatOptions:
    """See docs/sources.md, Chats.

    Args:
        targets: which answers are learned.
        tools: path of the declarations, in the record or in a message; None = where they usually are.
        reasoning: what becomes of it; None = nothing is said.
        on_fault: by reason what becomes of the chat; the empty reason is every other one.
        target_index: path of the places of the only messages that may be targets.
        weights: path of the weights: a list in the record, or a field of each message.
    """

    targets: Targets = Targets()
    tools: Path | None = None
    reasoning: Reasoning | None = None
    on_fault: Mapping[str, str] = field(default_factory=dict)
    target_index: Path | None = None
    weights: Path | None = None

    def fate(self, reason: str) -> str:
        """Return what becomes of a chat with a fault: end_chat, drop_chat or keep."""
        return self.on_fault.get(reason) or self.on_fault.get("", END_CHAT)

    @property
    def kept(self) -> frozenset[str]:
        """The checks whose failing ends nothing."""
        return frozenset(reason for reason in CHECKS if self.fate(reason) == KEEP_CHAT)

    def meaning(self) -> list[Any]:
        """Return what rows follow from; empty where nothing is said, ``answers`` aside."""
        targets, reasoning = self.targets, self.reasoning
        entries: dict[str, Any] = {
            "targets": targets.kinds if targets.kinds != BOTH else None,
            "stride": targets.stride if targets.stride > 1 else None,
            "most": targets.most or None,
            "reasoning": [reasoning.fields, reasoning.marks, reasoning.use, reasoning.tag] if reasoning else None,
            "on_fault": dict(self.on_fault) or None,
            **{
                key: path.text if path else None
                for key, path in (("tools", self.tools), ("index", self.target_index), ("weights", self.weights))
            },
        }
        meant = {key: value for key, value in entries.items() if value is not None}
        return [meant] if meant else []


@dataclass(frozen=True)
class Chats:
    """How messages are found in a record, and how they become rows.

    Args:
        turns: path of the list of messages.
        role: keys or paths of the role within a message: the first that has a value counts.
        content: the same of the text.
        roles: what roles mean, in lower case.
        template: what renders a history; None = :func:`plain`.
        strip: whether white space around the texts of messages is removed.
        boundary: how tokenize encodes prompt and answer of rendered rows; empty = as its option says.
        options: which answers make rows, and what becomes of tools, reasoning and faults.
    """

    turns: Path
    role: tuple[str | Path, ...]
    content: tuple[str | Path, ...]
    roles: dict[str, str] = field(default_factory=dict)
    template: ChatTemplate | None = None
    strip: bool = True
    boundary: str = ""
    options: ChatOptions = ChatOptions()

    @property
    def answers(self) -> str:
        """Which answers make rows: all, the last or the first."""
        return self.options.targets.answers

    # What is compiled cannot be pickled.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_plain"}

    @cached_property
    def _plain(self) -> RowForm | None:
        return self.row_form("")

    @cached_property
    def _checks(self) -> tuple[frozenset[str], list[str]]:
        """The checks whose failing ends nothing, and the marks that no text may have."""
        texts = [self.template.text, *(token for _, token in self.template.tokens)] if self.template else []
        return self.options.kept, [mark for mark in OLD_MARKS if mark not in "\n".join(texts)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a record that it reads if they are there."""
        paths = (self.options.tools, self.options.weights, self.options.target_index)
        return (*(path.column for path in paths if path), *(("tools",) if self.template else ()))

    def meaning(self) -> list[Any]:
        """Return what its rows follow from, beside the record."""
        paths = [[key if isinstance(key, str) else key.text for key in keys] for keys in (self.role, self.content)]
        form = [_RENDERED, self.rendering()] if self.template else PLAIN
        return [self.turns.text, paths, self.roles, self.answers, form, _MEANING, *self.options.meaning()]

    def rendering(self) -> dict[str, Any]:
        """Return what tokenize has to know of the rows; empty if no template renders them."""
        return {**self.template.to_data(), "boundary": self.boundary} if self.template else {}

    def answering(self, answers: str) -> Chats:
        """Return the same with other ``answers``."""
        return replace(self, options=replace(self.options, targets=replace(self.options.targets, answers=answers)))

    def row_form(self, condition: str) -> RowForm | None:
        """Return the form of chats whose questions and answers take turns; None if the source asks for more."""
        keys = [key for key in (*self.role, *self.content) if isinstance(key, str)]
        apart = len({*keys, *_BESIDE}) == len(self.role) + len(self.content) + len(_BESIDE)
        asked = self.template is not None or not self.strip or self.options != ChatOptions()
        if asked or not apart or len(self.turns.steps) > 1 or self.turns.column == "tools":
            return None
        role, content = ([str(key) for key in keys] for keys in (self.role, self.content))
        return RowForm.chat(condition, self.turns.column, role, content, self.roles, (["tools"], [*_BESIDE]))

    def rows(self, record: Any) -> list[Part]:
        """Return the rows of a record, and a drop for each answer that makes none.

        The condition of a row is empty, or the tag that its reasoning gives it.

        Raises:
            MalformedRecord: there is no list of messages, or its weights or target index cannot be used.
            UsageError: the template does what none may do.
        """
        messages = self._messages(record)
        if self._plain is not None and (plain_rows := self._plain_rows(self._plain, record, messages)) is not None:
            return plain_rows
        read = self._read(record, messages)
        index = self._index(record, messages, read)
        if not read.answers:
            return [read.fault or Drop("no_answer" if messages else "no_messages"), Note(ANSWERS, 0)]
        if read.fault is not None and self.options.fate(read.fault.reason) == DROP_CHAT:
            # As was asked, where the chat has answers that could be rows.
            asked = any(isinstance(item, Answer) for item in read.answers)
            read.answers = [Drop(read.fault.reason) if asked else read.fault] * len(read.answers)
        result = self._made(read, self._chosen(read.answers, index))
        taught = [
            (item, made)
            for item, made in zip(read.answers, result, strict=True)
            if isinstance(made, Row) and isinstance(item, Answer)
        ]
        notes = [*read.notes, *(Note(what, times) for what, times in sorted(read.counts.items()))]
        if taught:
            notes += self._left_out(record, messages, read, taught)
        if read.fault is not None and read.fault not in result:
            # No answer follows, so nothing else says that the chat ends early.
            notes.append(Note(read.fault.reason, 1))
        elif read.is_unanswered:
            notes.append(Note("unanswered_question", 1))
        return [*_main_first(result), *notes, _counts(read, taught), Note(ANSWERS, len(read.answers))]

    def _plain_rows(self, form: RowForm, record: dict[str, Any], messages: list[Any]) -> list[Part] | None:
        """Return what :meth:`rows` makes of questions and answers that take turns; None of any other chat."""
        field = self.turns.column
        made = form.chat_rows(record if record.get(field) is messages else {**record, field: messages})
        if made is None:
            return None
        texts, sums, is_unanswered = made
        notes = [Note("unanswered_question", 1)] if is_unanswered else []
        return [*(Row("", *pair) for pair in texts), *notes, ChatCounts(0, "", {}, *sums), Note(ANSWERS, len(texts))]

    def _read(self, record: Any, messages: Sequence[Any]) -> Reading:
        """Return the messages as turns, in the template's form if there is one."""
        weights = self._weights(record, messages)
        read: Reading
        if self.template is None:
            read = Reading(self, weights, self.options.reasoning)
        else:
            counts: Counter[str] = Counter()
            structure = Structure([], counts, *self._checks)
            reasoning = self.options.reasoning or Reasoning(marks=None)
            read = RenderedReading(
                self, weights, reasoning, structure=structure, counts=counts, asked=self.options.on_fault
            )
            try:
                read.declare(self._tools(record, messages, counts))
            except ChatFault as error:
                read.fault = read.end(error)
        for place, message in enumerate(messages):
            read.take(place, message)
        return read

    def _tools(self, record: Any, messages: Sequence[Any], notes: Counter[str]) -> list[Tool]:
        """Return the declarations of a record: at the path, or beside or within the messages.

        Raises:
            ChatFault: they cannot be read.
        """
        path = self.options.tools or Path("tools", ("tools",))
        places = [record, *messages]
        if self.options.tools is None:
            places.insert(1, Path("", self.turns.steps[:-1]).find(record))
        for place in places:
            value = path.find(place)
            if value is not MISSING and _is_there(value):
                return parse_tools(value, notes)
        for message in messages if self.options.tools is None else ():
            if self.role_of(message) == SYSTEM and _is_there(value := message.get("functions")):
                notes["mended_functions_of_a_message"] += 1
                return parse_tools(value, notes)
        if self.options.tools is not None:
            notes["tools_missing"] += 1
        return []

    def _weights(self, record: Any, messages: Sequence[Any]) -> list[int]:
        """Return the weight of each message, 0 or 1; empty where the source names none."""
        path = self.options.weights
        if path is None:
            return []
        value = path.find(record)
        if value is MISSING or value is None:
            value = [path.find(message) for message in messages]
        if not isinstance(value, list) or len(value) != len(messages):
            raise MalformedRecord(BAD_WEIGHTS)
        if not all(item in (0, 1, None) or item is MISSING for item in value):
            raise MalformedRecord(BAD_WEIGHT)
        return [int(item in (1, None) or item is MISSING) for item in value]

    def _index(self, record: Any, messages: Sequence[Any], read: Reading) -> set[int] | None:
        """Return the places of the only messages that may be targets; None where any may."""
        path = self.options.target_index
        if path is None:
            return None
        value = path.find(record)
        if value is MISSING:
            raise MalformedRecord(f"missing_{path.text}")
        places: set[int] = set()
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(item, float) and item.is_integer():
                item = int(item)
            if not isinstance(item, int) or isinstance(item, bool):
                raise MalformedRecord(BAD_INDEX)
            places.add(item + len(messages) if item < 0 else item)
        if not places <= read.answer_places:
            raise MalformedRecord(BAD_INDEX)
        return places

    def _chosen(self, answers: Sequence[Answer | Drop], index: Collection[int] | None) -> list[Answer | Drop]:
        """Return the answers with a drop in the place of each that is not a target."""
        if index is None and self.options.weights is None and self.options.targets == _EVERY_ANSWER:
            return list(answers)
        reasons = iter(self.options.targets.reasons([item for item in answers if isinstance(item, Answer)], index))
        chosen: list[Answer | Drop] = []
        for item in answers:
            reason = next(reasons) if isinstance(item, Answer) else ""
            chosen.append(Drop(reason) if reason else item)
        return chosen

    def _left_out(
        self, record: Any, messages: Sequence[Any], read: Reading, taught: Sequence[tuple[Answer, Row]]
    ) -> list[Note]:
        """Return what the record says beside the texts of its turns, and no row shows."""
        counts: dict[str, int] = {}
        if self.options.weights is None:
            counts[WEIGHT_0] = sum(_weighs_nothing(messages[answer.messages[0]]) for answer, _ in taught)
        if isinstance(read, RenderedReading):
            first = taught[0][1].instruction or ""
            written = not read.tools or any(tool["function"]["name"] in first for tool in read.tools)
            hidden = (_thoughts_of(read.history[answer.place]) not in (row.response or "") for answer, row in taught)
            counts |= dict(zip(NOT_RENDERED, (sum(hidden), int(not written)), strict=True))
        else:
            beside = [record, Path("", self.turns.steps[:-1]).find(record), *messages]
            if self.options.reasoning is None:
                counts[REASONING] = sum(map(_has_reasoning, read.history))
            counts[TOOLS] = int(any(_is_there(item.get("tools")) for item in beside if isinstance(item, dict)))
        return [Note(what, count) for what, count in counts.items() if count]

    def _made(self, read: Reading, answers: Sequence[Answer | Drop]) -> list[Row | Drop]:
        """Return the rows of the answers."""
        blocks = _Blocks(read.history)
        reasoning = self.options.reasoning
        result: list[Row | Drop] = []
        left = MAX_CHARACTERS
        fault: Drop | None = None
        for item in answers:
            if isinstance(item, Drop):
                result.append(item)
                continue
            if fault is not None:
                result.append(fault)
                continue
            made: Row | Drop
            turn = read.history[item.place]
            thoughts = turn.message.get("reasoning_content") if reasoning else ""
            tag = reasoning.tag if reasoning and reasoning.use == CONDITION and thoughts else ""
            if isinstance(read, RenderedReading) and self.template is not None:
                made = self._by_template(self.template, read, item.place, tag, left)
            elif isinstance(instruction := blocks.before(item.place, left), Drop):
                made = instruction
            else:
                text = reasoning.marked(thoughts, turn.text) if reasoning and thoughts else turn.text
                made = Row(tag, instruction, text)
            if isinstance(made, Row):
                left -= len(made.instruction or "")
            elif made.reason not in (render.PREFIX_MISMATCH, CALLS_NOT_RENDERED):  # they are of this answer alone
                fault = made
            result.append(made)
        return result

    @staticmethod
    def _by_template(template: ChatTemplate, read: RenderedReading, place: int, tag: str, most: int) -> Row | Drop:
        """Return the row of the answer at a place in the history."""
        if read.size_before(place) > min(most, MAX_HISTORY):
            return Drop("chat_too_long")
        chat = Chat([turn.message for turn in read.history[: place + 1]], read.tools or None)
        try:
            prompt, rest = render.render(template, chat)
        except TemplateFailed:
            return Malformed("template_failed")
        except render.PrefixMismatch:
            return Drop(render.PREFIX_MISMATCH)
        calls = read.history[place].message.get("tool_calls", ())
        if not all(call["function"]["name"] in rest for call in calls):
            return Drop(CALLS_NOT_RENDERED)
        return RenderedRow(tag, prompt, rest, chat.to_json())

    def _messages(self, record: Any) -> list[Any]:
        value = self.turns.find(record)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise MalformedRecord(f"{self.turns.text}_is_no_list") from None
        if isinstance(value, list):
            return value
        if value is MISSING:
            raise MalformedRecord(f"missing_{self.turns.text}")
        raise MalformedRecord(f"null_{self.turns.text}" if value is None else f"{self.turns.text}_is_no_list")

    def role_of(self, message: Any) -> str | Drop:
        """Return what the role of a message means, or why that is not known."""
        if not isinstance(message, dict):
            return Malformed("message_is_no_object")
        value = _value(message, self.role)
        if isinstance(value, str):
            return self.roles.get(value) or self.roles.get(value.strip().lower()) or Malformed("unknown_role")
        if value is MISSING or value is None:
            return Malformed("missing_role")
        return Malformed("role_is_no_text")

    def content_of(self, message: dict[str, Any]) -> Any:
        """Return what a message says as the record has it: MISSING without a content."""
        return _value(message, self.content)

    def text_of(self, content: Any) -> str | Drop:
        """Return a content as a text, or why it is none."""
        if isinstance(content, list):
            content = _joined(content)
        if content is None or content is MISSING:
            return ""
        if not isinstance(content, str):
            return content if isinstance(content, Drop) else Malformed("content_is_no_text")
        return content.strip() if self.strip else content if not content.isspace() else ""

    def turn_of(self, role: str, message: dict[str, Any]) -> Turn | Drop:
        """Return a message as a turn, or why it is none."""
        content = _value(message, self.content)
        calls = _calls(message) if role == ASSISTANT else ""
        if type(content) is str and self.strip:  # most of them: this is the inner loop
            text: str | Drop = content.strip()
        elif content is MISSING and not calls:
            return Malformed("missing_content")
        else:
            text = self.text_of(content)
        if isinstance(text, Drop):
            return text
        return Turn(ASSISTANT, "", text, message) if role == CALL else Turn(role, text, calls, message)

    def first_question(self, record: Any) -> str:
        """Return the text of the first user's turn; empty if there is none."""
        try:
            for message in self._messages(record):
                if self.role_of(message) == USER:
                    turn = self.turn_of(USER, message)
                    return "" if isinstance(turn, Drop) else turn.text
        except MalformedRecord:
            pass
        return ""

    def explain(self, record: Any, why: Malformed) -> Finding:
        """Return what is wrong with a malformed record, and the line that reads it, if there is one."""
        try:
            messages = self._messages(record)
        except MalformedRecord:
            value = self.turns.find(record)
            near = next(_lists_of_messages(record), "")
            result = kind_of(record if value is MISSING else value)
            return Finding(result, f"turns: {near}" if near else "")
        if why.reason in (BAD_WEIGHT, BAD_WEIGHTS, BAD_INDEX):
            return self._explain_targets(record, messages, why)
        for message in messages:
            role = self.role_of(message)
            turn = role if isinstance(role, Drop) else self.turn_of(role, message)
            if isinstance(turn, Drop) and turn == why:
                return self._explain_message(message, why)
        read = self._read(record, messages)
        if read.fault == why and read.problem.got:
            return Finding(read.problem.got, read.problem.write or f"on_fault: {{{why.reason}: {DROP_CHAT}}}")
        if why.reason == "template_failed" and self.template is not None:
            failure = self._failure(read)
            lacking = re.search(r"'(\w+)' is undefined", failure)
            write = f"template_variables: {{{lacking[1]}: …}}" if lacking else ""
            write = "template: tokenizer_config.json" if lacking and lacking[1] in TOKENS else write
            return Finding(failure, write)
        return Finding(shown(record))

    def _explain_message(self, message: Any, why: Malformed) -> Finding:
        if not isinstance(message, dict):
            return Finding(kind_of(message))
        texts = {key: value for key, value in message.items() if isinstance(value, str)}
        if why.reason in {"missing_role", "role_is_no_text"}:
            near = next((key for key, value in texts.items() if value.strip().lower() in self.roles), "")
            return Finding(kind_of(message), f"role: {near}" if near else "")
        if why.reason == "unknown_role":
            role = str(_value(message, self.role))
            written = role if re.fullmatch(r"[A-Za-z][\w-]*", role) else json.dumps(role, ensure_ascii=False)
            return Finding(f"the role {shown(role)}", f"roles: {{{written}: {_likely(role)}}}")
        if why.reason == "missing_content":
            roles = {key for key in self.role if isinstance(key, str)}
            near = max((key for key in texts if key not in roles), key=lambda key: len(texts[key]), default="")
            return Finding(kind_of(message), f"content: {near}" if near else "")
        value = _value(message, self.content)
        inside = next((key for key in ("text", "value", "content") if isinstance(value, dict) and key in value), "")
        written = next((key for key in self.content if isinstance(key, str) and key in message), "")
        return Finding(kind_of(value), f"content: {written}.{inside}" if inside and written else "")

    def _explain_targets(self, record: Any, messages: Sequence[Any], why: Malformed) -> Finding:
        """Return which weight or target index cannot be used."""
        path = self.options.target_index if why.reason == BAD_INDEX else self.options.weights
        assert path is not None
        value = path.find(record)
        if why.reason == BAD_INDEX:
            return Finding(f"{shown(value)} with {len(messages)} messages, which is not the place of an answer")
        if why.reason == BAD_WEIGHTS:
            return Finding(f"{kind_of(value)} beside {len(messages)} messages")
        values = value if isinstance(value, list) else [path.find(message) for message in messages]
        odd = next(item for item in values if item not in (0, 1, None) and item is not MISSING)
        return Finding(f"the weight {shown(odd)}: rows have no loss weight, so a message is learned (1) or not (0)")

    def _failure(self, read: Reading) -> str:
        """Return what the template said of the first history that it refuses."""
        assert self.template is not None
        tools = read.tools if isinstance(read, RenderedReading) else []
        for item in read.answers:
            if isinstance(item, Answer):
                try:
                    render.render(self.template, Chat([turn.message for turn in read.history[: item.place + 1]], tools))
                except TemplateFailed as error:
                    return f"the template said: {error}"
                except render.PrefixMismatch:
                    pass
        return ""


def plain(history: Sequence[Turn]) -> str:
    """Return a history as text.

    A single question is its text. Anything else is a block for each turn, with an empty line between two: a line with
    the turn's mark (``System:``, ``User:``, ``Assistant:``, ``Tool call:``, ``Tool:``), then its text. A line of a
    text that could be read as a mark gets a backslash before it, so every history can be read back.
    """
    return _Blocks(history).all()


class _Blocks:
    """The blocks of a history, made once for all of its answers."""

    def __init__(self, history: Sequence[Turn]) -> None:
        self._history = history
        self._blocks: list[str] = []
        self._ends: list[int] = []

    def before(self, place: int, most: int) -> str | Drop:
        """Return the history before a place, if it has at most ``most`` characters."""
        self._extend(place)
        if self._ends[place - 1] > most:
            return Drop("chat_too_long")
        first = self._history[0]
        if place == 1 and first.role == USER:
            mark = _MARK.match(first.text) if _may_have_marks(first.text) else None
            return "\\" * (mark is not None) + first.text
        return "\n\n".join(self._blocks[:place])

    def all(self) -> str:
        """Return all of it."""
        result = self.before(len(self._history), MAX_CHARACTERS) if self._history else ""
        return "" if isinstance(result, Drop) else result

    def _extend(self, place: int) -> None:
        for turn in self._history[len(self._blocks) : place]:
            block = f"{_MARKS[turn.role]}\n{_escaped(turn.text)}"
            if turn.calls:
                block = f"{block}\n\n" * bool(turn.text) + f"{_MARKS[CALL]}\n{_escaped(turn.calls)}"
            self._blocks.append(block)
            self._ends.append((self._ends[-1] + 2 if self._ends else 0) + len(block))


def _may_have_marks(text: str) -> bool:
    # A search for plain texts is twenty times as fast as the pattern, and finds nothing in most texts.
    return "User:" in text or "Assistant:" in text or "System:" in text or "Tool" in text


def _escaped(text: str) -> str:
    return _MARK.sub(r"\\", text) if _may_have_marks(text) else text


def _thoughts_of(turn: Turn) -> str:
    """Return the beginning of a turn's reasoning."""
    return str(turn.message.get("reasoning_content", ""))[:_SEEN].strip()


def _counts(read: Reading, taught: Sequence[tuple[Answer, Row]]) -> ChatCounts:
    """Return what is summed up over the chats of a source."""
    prompts = [len(row.instruction or "") for _, row in taught]
    total = sum(prompts)
    return ChatCounts(
        calls=sum([answer.calls for answer, _ in taught]),
        ended=read.fault.reason if read.fault else "",
        tools=read.called,
        prompts=total,
        repeated=total - max(prompts) if prompts else 0,
        responses=sum([len(row.response or "") for _, row in taught]),
    )


def _has_reasoning(turn: Turn) -> bool:
    if turn.role != ASSISTANT:
        return False
    return any(key in turn.message and _is_there(turn.message[key]) for key in FIELDS)


def _weighs_nothing(message: Any) -> bool:
    weight = message.get("weight")
    return isinstance(weight, int | float) and not isinstance(weight, bool) and weight == 0


def _is_there(value: Any) -> bool:
    """Return whether a field has a value; it may be JSON in a text."""
    return value.strip() not in ("", "[]", "{}", "null") if isinstance(value, str) else bool(value)


def _main_first(rows: list[Row | Drop]) -> list[Row | Drop]:
    """If no answer makes a row, the most frequent reason first: the record is dropped under it."""
    drops = [item for item in rows if isinstance(item, Drop)]
    if len(drops) < len(rows) or len(drops) < 2:
        return rows
    counts = Counter(drops)
    first = max(drops, key=lambda drop: (isinstance(drop, Malformed), counts[drop]))
    place = rows.index(first)
    return [first, *rows[:place], *rows[place + 1 :]]


def _value(message: dict[str, Any], keys: tuple[str | Path, ...]) -> Any:
    """Return what is under the first of some keys that has a value: None if it is null, MISSING if none exists."""
    if type(keys[0]) is str and (first := message.get(keys[0])) is not None:  # most of them
        return first
    result: Any = MISSING
    for key in keys:
        value = message.get(key, MISSING) if isinstance(key, str) else key.find(message)
        if value is not MISSING and value is not None:
            return value
        if value is None:
            result = None
    return result


def _joined(parts: list[Any]) -> str | Drop:
    """Return the texts of a content in parts, a line each."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif (
            isinstance(part, dict)
            and isinstance(kind := part.get("type", "text"), str)
            and kind in _TEXT_PARTS
            and isinstance(text := part.get("text"), str)
        ):
            texts.append(text)
        else:
            return Drop("content_beyond_text")
    return "\n".join(texts)


def _calls(message: dict[str, Any]) -> str:
    """Return the calls of tools beside a message's text, one a line: the name, and the arguments as JSON."""
    if "tool_calls" not in message and "function_call" not in message:
        return ""
    listed = message.get("tool_calls") or []
    calls = [*(listed if isinstance(listed, list) else [listed]), *([message.get("function_call")])]
    return "\n".join(_call(call) for call in calls if call)


def _call(call: Any) -> str:
    inner = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return _json(call)
    arguments = inner.get("arguments")
    written = arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    return f"{inner['name']} {written}".strip()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return shown(value)


def _lists_of_messages(record: Any) -> Iterator[str]:
    """Yield the paths of lists in a record that look like messages, the nearest first."""
    if not isinstance(record, dict):
        return
    below = [(str(key), value) for key, value in record.items() if re.fullmatch(r"[\w-]+", str(key))]
    inner = [(f"{key}.{name}", item) for key, value in below if isinstance(value, dict) for name, item in value.items()]
    for path, value in (*below, *inner):
        if isinstance(value, list) and value and all(isinstance(item, dict) and len(item) > 1 for item in value):
            yield path


def _likely(role: str) -> str:
    name = role.lower()
    words = {SYSTEM: ("sys", "context"), TOOL: ("tool", "func", "result"), ASSISTANT: ("bot", "ai", "assist", "model")}
    return next((meaning for meaning, parts in words.items() if any(part in name for part in parts)), USER)
