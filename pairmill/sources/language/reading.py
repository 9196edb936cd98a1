"""The messages of a chat, read one after another up to the first fault: their turns, and which of them are answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pairmill.chats.message import ChatFault, compact_json, normal_message
from pairmill.chats.reasoning import Reasoning
from pairmill.chats.structure import CHECKS, Structure
from pairmill.chats.targets import Answer
from pairmill.chats.tools import Tool, calls_in_text, named_tools, parse_calls_in, parse_calls_of, tools_in_text
from pairmill.sources.language.paths import MISSING
from pairmill.sources.parsed import Drop, Malformed, Note

SYSTEM, USER, ASSISTANT, TOOL, CALL = "system", "user", "assistant", "tool", "tool_call"
"""What a role means. A tool call is a turn of the assistant that calls a tool and says nothing."""

# What a chat waits for.
_START, _ASKED, _CALLED, _TOLD, _ANSWERED = range(5)

# Most chats share them: they are not written to.
_NO_FAULT = ChatFault("")
_NONE = Counter[str]()


class Turn(NamedTuple):
    """A message.

    ``calls`` are the calls of tools that are made beside its text. ``message`` is it as the record has it; in a chat
    that a template renders it is what the template gets.
    """

    role: str
    text: str
    calls: str
    message: dict[str, Any]


class Words(Protocol):
    """How the parts of a message are found."""

    def role_of(self, message: Any) -> str | Drop:
        """Return what the role of a message means, or why that is not known."""

    def turn_of(self, role: str, message: dict[str, Any]) -> Turn | Drop:
        """Return a message as a turn, or why it is none."""

    def content_of(self, message: dict[str, Any]) -> Any:
        """Return what a message says as the record has it: MISSING without a content."""

    def text_of(self, content: Any) -> str | Drop:
        """Return a content as a text, or why it is none."""


class Reading:
    """The messages of a chat as turns, up to the first fault.

    Args:
        words: how the parts of a message are found.
        weights: of each message, 0 or 1; empty = all are 1.
        reasoning: what becomes of reasoning: that of an answer is the ``reasoning_content`` of its turn's message. None
            = answers are as they are.
    """

    def __init__(self, words: Words, weights: Sequence[int] = (), reasoning: Reasoning | None = None) -> None:
        self._words, self._weights, self._reasoning = words, weights, reasoning
        self.problem = _NO_FAULT
        """What was wrong, if it is more than a reason."""
        self.counts = _NONE if reasoning is None else Counter[str]()
        """What was found on the way, as notes."""
        self.called = _NONE
        """How often each tool is called."""
        self.history: list[Turn] = []
        self.answers: list[Answer | Drop] = []
        """Of each answer its place in the history, or why it makes no row."""
        self.answer_places: set[int] = set()
        """Places in the record's list of all messages that are answers."""
        self.notes: list[Note] = []
        self.fault: Drop | None = None
        self._state = _START

    @property
    def is_unanswered(self) -> bool:
        """Whether the chat ends with a question, or a tool's result."""
        return self.fault is None and self._state in (_ASKED, _TOLD)

    def take(self, place: int, message: Any) -> None:
        """Read the message at a place."""
        role = self._words.role_of(message)
        is_answer = role in (ASSISTANT, CALL)
        if self.fault is None:
            try:
                self.fault = role if isinstance(role, Drop) else self._take(place, role, message)
            except ChatFault as error:
                self.fault = self.end(error)
        if is_answer:
            self.answer_places.add(place)
            if self.fault is not None:
                self.answers.append(self.fault)

    def end(self, error: ChatFault) -> Drop:
        """Return the drop of a fault."""
        self.problem = error
        return Malformed(error.reason)

    def _take(self, place: int, role: str, message: dict[str, Any]) -> Drop | None:
        turn = self._words.turn_of(role, message)
        if isinstance(turn, Drop):
            return turn
        if role not in (ASSISTANT, CALL):
            return self._other(place, turn)
        if role == ASSISTANT and self._reasoning is not None:
            reasoning, text = self._reasoning.split(message, turn.text, self.counts)
            turn = turn._replace(text=text, message={**message, "reasoning_content": reasoning})
        if not turn.text and not turn.calls:
            return Drop("empty_answer")
        if turn.text and self._state == _ANSWERED:
            return Drop("answer_without_question")
        if not turn.text:
            self.answers.append(Drop("tool_call_only"))
            self._add(turn)
        else:
            self._answer(place, turn)
        return None

    def _answer(self, place: int, turn: Turn) -> None:
        """Add an answer that could be a target."""
        if self._state == _START:
            self.answers.append(Drop("answer_without_question"))
        else:
            weight = self._weights[place] if self._weights else 1
            self.answers.append(Answer(len(self.history), [place], bool(turn.calls), weight))
        self._add(turn)

    def _add(self, turn: Turn) -> None:
        self.history.append(turn)
        if self._state != _START:
            self._state = _CALLED if turn.calls else _ANSWERED

    def _other(self, place: int, turn: Turn) -> Drop | None:
        if turn.role == USER:
            if not turn.text:
                return Drop("empty_question")
            if self._state in (_ASKED, _TOLD):
                return Drop("question_without_answer")
            self._state = _ASKED
        elif turn.role == TOOL:
            if self._state in (_START, _ANSWERED):
                return Drop("tool_without_call")
            self._state = _TOLD
        elif place:
            return Drop("late_system_prompt")
        elif not turn.text:
            self.notes.append(Note("empty_system_prompt", 1))
            return None
        self.history.append(turn)
        return None


class RenderedReading(Reading):
    """The same for a template: messages in OpenAI's form, whose calls, results and reasoning are read and checked.

    Args:
        words: as above.
        weights: as above.
        reasoning: what becomes of reasoning.
        structure: the checks.
        counts: where shapes that are mended, and faults that are kept, are counted.
        asked: faults that the source names, empty = any: a record that they leave without a row is not malformed.
    """

    def __init__(
        self,
        words: Words,
        weights: Sequence[int],
        reasoning: Reasoning,
        *,
        structure: Structure,
        counts: Counter[str],
        asked: Mapping[str, str],
    ) -> None:
        super().__init__(words, weights)
        self.counts = counts
        self.called = Counter[str]()
        self.tools: list[Tool] = []
        self._structure, self._thoughts, self._asked = structure, reasoning, asked
        self._sizes = [0]

    def declare(self, tools: list[Tool]) -> None:
        """Take declarations of tools, in the one form."""
        self.tools = tools
        self._structure.tools = named_tools(tools)

    def size_before(self, place: int) -> int:
        """Return about how many characters the history has before a place."""
        for turn in self.history[len(self._sizes) - 1 : place]:
            size = len(turn.text) + len(turn.calls) + len(turn.message.get("reasoning_content", ""))
            self._sizes.append(self._sizes[-1] + size)
        return self._sizes[place]

    def end(self, error: ChatFault) -> Drop:
        """Return the drop of a fault."""
        self.problem = error
        asked = "" in self._asked or error.reason in self._asked
        return (Drop if error.reason in CHECKS or asked else Malformed)(error.reason)

    def _take(self, place: int, role: str, message: dict[str, Any]) -> Drop | None:
        if role in (ASSISTANT, CALL):
            return self._take_answer(place, role, message)
        if role == TOOL:
            return self._take_results(message)
        self._structure.finish_turn()
        return super()._take(place, role, message)

    def _other(self, place: int, turn: Turn) -> Drop | None:
        text = turn.text
        if turn.role == SYSTEM:
            tools, text = tools_in_text(text, self.counts)
            if tools and not self.tools:
                self.declare(tools)
        self._structure.check_text(text)
        made = normal_message(turn.role, text, name=turn.message.get("name"))
        return super()._other(place, Turn(turn.role, text, "", made))

    def _take_answer(self, place: int, role: str, message: dict[str, Any]) -> Drop | None:
        content = self._words.content_of(message)
        tools, reasoning, text = self._structure.tools, "", ""
        calls = parse_calls_of(message, tools, self.counts)
        if content is MISSING and not calls:
            return Malformed("missing_content")
        if role == CALL:
            calls += parse_calls_in("" if content in (None, MISSING) else content, tools, self.counts)
        else:
            read = self._words.text_of(content)
            if isinstance(read, Drop):
                return read
            reasoning, text = self._thoughts.split(message, read, self.counts)
            if not calls:
                text, calls = calls_in_text(text, tools, self.counts)
        if not text and not calls:
            return Drop("empty_answer")
        if not text and self._continues(place):
            self._continue(place, calls)
            return None
        self._structure.finish_turn()
        if text and self._state == _ANSWERED:
            return Drop("answer_without_question")
        self._structure.check_text(text)
        self._structure.check_text(reasoning)
        made = self._numbered(calls)
        normal = normal_message(ASSISTANT, text, reasoning=reasoning, calls=made, name=message.get("name"))
        self._answer(place, Turn(ASSISTANT, text, compact_json(made) if made else "", normal))
        return None

    def _continues(self, place: int) -> bool:
        """Return whether the message before is an answer too: calls that follow are of the same turn."""
        last = self.answers[-1] if self.answers else None
        return isinstance(last, Answer) and last.messages[-1] == place - 1 and self._state in (_CALLED, _ANSWERED)

    def _continue(self, place: int, calls: list[dict[str, Any]]) -> None:
        last, turn = self.answers.pop(), self.history[-1]
        assert isinstance(last, Answer)
        # If the calls have a fault, the turn as a whole is not an answer.
        made = [*turn.message.get("tool_calls", ()), *self._numbered(calls, more=True)]
        self.counts["mended_calls_joined"] += 1
        self.history[-1] = turn._replace(calls=compact_json(made), message={**turn.message, "tool_calls": made})
        last.messages.append(place)
        last.calls = True
        self.answers.append(last)
        self._state = _CALLED

    def _numbered(self, calls: list[dict[str, Any]], *, more: bool = False) -> list[dict[str, Any]]:
        made = self._structure.take_calls(calls, more=more) if calls else []
        self.called.update(call["function"]["name"] for call in made)
        return made

    def _take_results(self, message: dict[str, Any]) -> Drop | None:
        content = self._words.content_of(message)
        if content is MISSING:
            return Malformed("missing_content")
        for made in self._structure.take_results(message, content, self._result_text):
            self._structure.check_text(made["content"])
            fault = super()._other(1, Turn(TOOL, made["content"], "", made))
            if fault is not None:
                return fault
        return None

    def _result_text(self, content: Any) -> str:
        """Return the result of a tool: a text, or else JSON."""
        text = self._words.text_of(content)
        if not isinstance(text, Drop):
            return text
        try:
            made = compact_json(content)
        except ValueError as error:
            raise ChatFault("content_is_no_text", str(error)) from error
        self.counts["mended_result_as_json"] += 1
        return made
