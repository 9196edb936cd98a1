"""Chats: each answer of a list of messages becomes a row whose instruction is everything that was said before it.

Every answer (a turn of the assistant) is a row or is skipped for a reason. The first fault ends a chat: what follows
it would answer a history that did not take place. The rows before it are kept. docs/sources.md lists the reasons.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pairmill.chats import render
from pairmill.chats.render import BOUNDARIES, Chat
from pairmill.chats.template import MAX_HISTORY, TOKENS, TemplateFailed, load
from pairmill.errors import UsageError, did_you_mean
from pairmill.formats.rows import RenderedRow, Row
from pairmill.sources.language.missing_paths import kind_of
from pairmill.sources.language.paths import MISSING, Path
from pairmill.sources.parsed import ANSWERS, Drop, Finding, Malformed, MalformedRecord, Note, Part, shown

if TYPE_CHECKING:
    from pairmill.chats.template import ChatTemplate
    from pairmill.sources.language.description import Description

SYSTEM, USER, ASSISTANT, TOOL, CALL = "system", "user", "assistant", "tool", "tool_call"
"""What a role means. A tool call is a turn of the assistant that calls a tool and says nothing."""
MEANINGS = (SYSTEM, USER, ASSISTANT, TOOL, CALL)
ALL, LAST = "all", "last"
PLAIN = "plain"

_NAMES = {
    SYSTEM: ("system", "developer", "system_prompt", "context"),
    USER: ("user", "human", "prompter", "question", "customer", "instruction"),
    ASSISTANT: ("assistant", "gpt", "chatgpt", "bing", "bard", "claude", "model", "ai", "bot", "chatbot", "answer"),
    TOOL: ("tool", "function", "observation", "tool_response", "function_response", "function-response", "ipython"),
    CALL: ("tool_call", "function_call", "function-call"),
}
ROLES = {name: meaning for meaning, names in _NAMES.items() for name in names}
"""The roles that are known without ``roles:``, in lower case."""

REASONING, TOOLS, WEIGHT_0 = "reasoning_left_out", "tools_left_out", "weight_0_taught"
"""Notes of what a chat says beside the texts of its turns: messages with reasoning in a field of its own, records that
declare tools, and answers that make rows although their weight is 0."""
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")

_MARKS = {SYSTEM: "System:", USER: "User:", ASSISTANT: "Assistant:", TOOL: "Tool:", CALL: "Tool call:"}
_MARK = re.compile(rf"^(?=\\*(?:{'|'.join(_MARKS.values())})$)", re.MULTILINE)
_MEANING = "what rows leave out is counted"
_RENDERED = "prompt and the rest of the whole"
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})

MAX_CHARACTERS = 1 << 25
"""Characters of all instructions of one chat: without a limit they grow with the square of its turns."""

# What a chat waits for.
_START, _ASKED, _CALLED, _TOLD, _ANSWERED = range(5)


class Turn(NamedTuple):
    """A message. ``calls`` are the calls of tools that are made beside its text; ``message`` is it as it was."""

    role: str
    text: str
    calls: str
    message: dict[str, Any]


@dataclass(frozen=True)
class Chats:
    """How messages are found in a record, and how they become rows.

    Args:
        turns: path of the list of messages.
        role: keys or paths of the role within a message: the first that has a value counts.
        content: the same of the text.
        roles: what roles mean, in lower case.
        answers: which answers make rows, ``all`` or ``last``.
        template: what renders a history; None = :func:`plain`.
        strip: whether white space around the texts of messages is removed.
        boundary: how tokenize encodes prompt and answer of rendered rows; empty = as its option says.
    """

    turns: Path
    role: tuple[str | Path, ...]
    content: tuple[str | Path, ...]
    roles: dict[str, str] = field(default_factory=dict)
    answers: str = ALL
    template: ChatTemplate | None = None
    strip: bool = True
    boundary: str = ""

    @classmethod
    def of(cls, file: Description, *, strip: bool) -> Chats | None:
        """Return the chats that a description describes, if it does.

        Raises:
            UsageError: an entry is not valid.
        """
        if "turns" not in file:
            return None
        roles = {}
        for name, meaning, place in file.mapping("roles", "what roles mean, as {narrator: user}"):
            if meaning not in MEANINGS:
                hint = did_you_mean(str(meaning), MEANINGS)
                expected = ", ".join(MEANINGS)
                raise UsageError("unknown role", where=place, got=shown(meaning), expected=expected, hint=hint)
            roles[name.strip().lower()] = meaning
        template = None
        if file.text("template", PLAIN) != PLAIN:
            template = _template(file)
        for key in ("template_variables", "boundary"):
            if key in file and template is None:
                raise file.wrong(key, "needs a template:", hint="write 'template: chatml', or the path of one")
        return cls(
            file.parsed("turns", Path.parse),
            (_key(file.parsed("role", Path.parse)),) if "role" in file else ("role", "from"),
            (_key(file.parsed("content", Path.parse)),) if "content" in file else ("content", "value"),
            ROLES | roles,
            answers=file.choice("answers", ALL, LAST) or ALL,
            template=template,
            strip=strip,
            boundary=file.choice("boundary", *BOUNDARIES),
        )

    def meaning(self) -> list[Any]:
        """Return what its rows follow from, beside the record."""
        paths = [[key if isinstance(key, str) else key.text for key in keys] for keys in (self.role, self.content)]
        said = [_RENDERED, self.template.to_data()] if self.template else PLAIN
        return [self.turns.text, paths, self.roles, self.answers, said, _MEANING]

    def rendering(self) -> dict[str, Any]:
        """Return what tokenize has to know of the rows; empty if no template renders them."""
        return {**self.template.to_data(), "boundary": self.boundary} if self.template else {}

    def answering(self, answers: str) -> Chats:
        """Return the same with other ``answers``."""
        return replace(self, answers=answers)

    def rows(self, record: Any) -> list[Part]:
        """Return the rows of a record, without a condition, and a drop for each answer that makes none.

        Raises:
            MalformedRecord: there is no list of messages.
            UsageError: the template does what none may do.
        """
        messages = self._messages(record)
        read = _Reading(self)
        for place, message in enumerate(messages):
            read.take(place, message)
        if not read.answers:
            return [read.fault or Drop("no_answer" if messages else "no_messages"), Note(ANSWERS, 0)]
        result = self._rendered(read.history, read.answers)
        if any(isinstance(item, Row) for item in result):
            read.notes += self._left_out(record, messages, read, result)
        if read.fault is not None and read.fault not in result:
            # No answer follows, so nothing else says that the chat ends early.
            read.notes.append(Note(read.fault.reason, 1))
        elif read.fault is None and read.state in (_ASKED, _TOLD):
            read.notes.append(Note("unanswered_question", 1))
        return [*_main_first(result), *read.notes, Note(ANSWERS, len(read.answers))]

    def _left_out(
        self, record: Any, messages: Sequence[Any], read: _Reading, found: Sequence[Row | Drop]
    ) -> list[Note]:
        """Return what the record says beside the texts of its turns, and no row shows."""
        beside = [record, Path("", self.turns.steps[:-1]).find(record), *messages]
        taught = [item for item, made in zip(read.answers, found, strict=True) if isinstance(made, Row)]
        counts = {
            REASONING: sum(map(_has_reasoning, read.history)),
            TOOLS: int(any(isinstance(item, dict) and _is_there(item.get("tools")) for item in beside)),
            WEIGHT_0: sum(_weighs_nothing(read.history[item]) for item in taught if isinstance(item, int)),
        }
        return [Note(what, count) for what, count in counts.items() if count]

    def _rendered(self, history: Sequence[Turn], answers: list[int | Drop]) -> list[Row | Drop]:
        """Return the rows of the answers."""
        last = max((item for item in answers if isinstance(item, int)), default=-1)
        blocks = _Blocks(history)
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
            if self.answers == LAST and item != last:
                result.append(Drop("not_the_last_answer"))
                continue
            made: Row | Drop
            if self.template is not None:
                made = self._by_template(self.template, history[: item + 1], left)
            elif isinstance(instruction := blocks.before(item, left), Drop):
                made = instruction
            else:
                made = Row("", instruction, history[item].text)
            if isinstance(made, Row):
                left -= len(made.instruction or "")
            elif made.reason != render.PREFIX_MISMATCH:  # it is of this answer alone
                fault = made
            result.append(made)
        return result

    @staticmethod
    def _by_template(template: ChatTemplate, turns: Sequence[Turn], most: int) -> Row | Drop:
        """Return the row of the last of some turns."""
        if sum(len(turn.text) + len(turn.calls) for turn in turns[:-1]) > min(most, MAX_HISTORY):
            return Drop("chat_too_long")
        chat = Chat([_message(turn) for turn in turns])
        try:
            prompt, rest = render.render(template, chat)
        except TemplateFailed:
            return Malformed("template_failed")
        except render.PrefixMismatch:
            return Drop(render.PREFIX_MISMATCH)
        return RenderedRow("", prompt, rest, chat.to_json())

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

    def turn_of(self, role: str, message: dict[str, Any]) -> Turn | Drop:
        """Return a message as a turn, or why it is none."""
        value = _value(message, self.content)
        calls = _calls(message) if role == ASSISTANT else ""
        if value is MISSING and not calls:
            return Malformed("missing_content")
        if isinstance(value, list):
            value = _joined(value)
        if value is None or value is MISSING:
            value = ""
        if not isinstance(value, str):
            return value if isinstance(value, Drop) else Malformed("content_is_no_text")
        text = value.strip() if self.strip else value if not value.isspace() else ""
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
        for message in messages:
            role = self.role_of(message)
            turn = role if isinstance(role, Drop) else self.turn_of(role, message)
            if isinstance(turn, Drop) and turn == why:
                return self._explain_message(message, why)
        if why.reason == "template_failed" and self.template is not None:
            failure = self._failure(record)
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

    def _failure(self, record: Any) -> str:
        """Return what the template said of the first history that it refuses."""
        assert self.template is not None
        history: list[Turn] = []
        for message in self._messages(record):
            role = self.role_of(message)
            turn = role if isinstance(role, Drop) else self.turn_of(role, message)
            if isinstance(turn, Drop):
                break
            if turn.role == ASSISTANT and turn.text and any(item.role == USER for item in history):
                try:
                    self.template.render([_message(item) for item in history])
                except TemplateFailed as error:
                    return f"the template said: {error}"
            if turn.text or turn.calls:
                history.append(turn)
        return ""


class _Reading:
    """The messages of a chat as turns, up to the first fault."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self.history: list[Turn] = []
        self.answers: list[int | Drop] = []
        """Of each answer its place in the history, or why it makes no row."""
        self.notes: list[Note] = []
        self.fault: Drop | None = None
        self.state = _START

    def take(self, place: int, message: Any) -> None:
        """Read the message at a place."""
        role = self._chats.role_of(message)
        is_answer = role in (ASSISTANT, CALL)
        if self.fault is None:
            turn = role if isinstance(role, Drop) else self._chats.turn_of(role, message)
            if isinstance(turn, Drop):
                self.fault = turn
            else:
                self.fault = self._answer(turn) if is_answer else self._other(place, turn)
        if self.fault is not None and is_answer:
            self.answers.append(self.fault)

    def _answer(self, turn: Turn) -> Drop | None:
        if not turn.text and not turn.calls:
            return Drop("empty_answer")
        if turn.text and self.state == _ANSWERED:
            return Drop("answer_without_question")
        if not turn.text:
            self.answers.append(Drop("tool_call_only"))
        elif self.state == _START:
            self.answers.append(Drop("answer_without_question"))
        else:
            self.answers.append(len(self.history))
        self.history.append(turn)
        if self.state != _START:
            self.state = _CALLED if turn.calls else _ANSWERED
        return None

    def _other(self, place: int, turn: Turn) -> Drop | None:
        if turn.role == USER:
            if not turn.text:
                return Drop("empty_question")
            if self.state in (_ASKED, _TOLD):
                return Drop("question_without_answer")
            self.state = _ASKED
        elif turn.role == TOOL:
            if self.state in (_START, _ANSWERED):
                return Drop("tool_without_call")
            self.state = _TOLD
        elif place:
            return Drop("late_system_prompt")
        elif not turn.text:
            self.notes.append(Note("empty_system_prompt", 1))
            return None
        self.history.append(turn)
        return None


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
            said = [f"{_MARKS[turn.role]}\n{_escaped(turn.text)}"] * bool(turn.text or not turn.calls)
            called = [f"{_MARKS[CALL]}\n{_escaped(turn.calls)}"] * bool(turn.calls)
            self._blocks.append("\n\n".join([*said, *called]))
            self._ends.append((self._ends[-1] + 2 if self._ends else 0) + len(self._blocks[-1]))


def _may_have_marks(text: str) -> bool:
    # A search for plain texts is twenty times as fast as the pattern, and finds nothing in most texts.
    return "User:" in text or "Assistant:" in text or "System:" in text or "Tool" in text


def _escaped(text: str) -> str:
    return _MARK.sub(r"\\", text) if _may_have_marks(text) else text


def _template(file: Description) -> ChatTemplate:
    variables = {}
    for name, value, place in file.mapping(
        "template_variables", "variables of the template, as {enable_thinking: false}"
    ):
        try:
            variables[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            expected = "what JSON has: a text, a number, true, false, null, a list or a mapping"
            raise UsageError("not a value of JSON", where=place, got=shown(value), expected=expected) from error
    return load(file.text("template"), file.place("template"), lambda path: file.beside("template", path), variables)


def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn as chat templates expect it."""
    beside = {key: turn.message[key] for key in ("tool_calls", "tool_call_id", "name") if turn.message.get(key)}
    text = turn.text or ("" if "tool_calls" in beside else turn.calls)
    return {"role": turn.role, "content": text, **beside}


def _has_reasoning(turn: Turn) -> bool:
    return turn.role == ASSISTANT and any(_is_there(turn.message.get(key)) for key in _REASONING_KEYS)


def _weighs_nothing(turn: Turn) -> bool:
    weight = turn.message.get("weight")
    return isinstance(weight, int | float) and not isinstance(weight, bool) and weight == 0


def _is_there(value: Any) -> bool:
    """Return whether a field has a value; it may be JSON in a text."""
    return value.strip() not in ("", "[]", "{}", "null") if isinstance(value, str) else bool(value)


def _main_first(found: list[Row | Drop]) -> list[Row | Drop]:
    """If no answer makes a row, the most frequent reason first: the record is dropped under it."""
    drops = [one for one in found if isinstance(one, Drop)]
    if len(drops) < len(found) or len(drops) < 2:
        return found
    counts = Counter(drops)
    first = max(drops, key=lambda one: (isinstance(one, Malformed), counts[one]))
    found.remove(first)
    return [first, *found]


def _key(path: Path) -> str | Path:
    return path.column if len(path.steps) == 1 else path


def _value(message: dict[str, Any], keys: tuple[str | Path, ...]) -> Any:
    """Return what is under the first of some keys that has a value: None if it is null, MISSING if none exists."""
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
    listed = message.get("tool_calls") or []
    calls = [*(listed if isinstance(listed, list) else [listed]), *([message.get("function_call")])]
    return "\n".join(_call(call) for call in calls if call)


def _call(call: Any) -> str:
    inner = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        return _json(call)
    arguments = inner.get("arguments")
    said = arguments if isinstance(arguments, str) else "" if arguments is None else _json(arguments)
    return f"{inner['name']} {said}".strip()


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
