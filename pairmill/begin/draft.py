"""What makes rows of records with these fields: the entries of a description, and what a person may change in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pairmill.begin.columns import BOOLEAN, CONTENT_KEYS, MESSAGES, NUMBER, TEXT, TEXTS, Column
from pairmill.errors import InputError
from pairmill.sources.language.chats import ROLES
from pairmill.sources.language.reading import ASSISTANT, USER
from pairmill.sources.parsed import writable

# Names of columns in public data sets, the most certain first.
_CHATS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns", "prompt")
_CHOSEN = ("chosen", "chosen_response", "chosen_completion_messages")
_REJECTED = ("rejected", "rejected_response", "rejected_completion_messages")
_QUESTIONS = (
    "instruction",
    "question",
    "prompt",
    "query",
    "problem",
    "request",
    "user",
    "human",
    "input",
    "source_text",
)
_ANSWERS = (
    *("response", "output", "completion", "solution", "answer", "answers", "reply", "assistant", "target"),
    *("target_text", "generated_solution", "final_answer", "answer_key", "ground_truth", "label", "summary"),
)
_BEFORE = ("system", "system_prompt", "context", "passage")
_AFTER = ("input",)
_CHOICES = ("choices", "options")
_DOCUMENTS = ("text", "content", "body", "document", "article", "code", "markdown")
_TRUTHS = ("ground_truth", "answer", "solution", "label")
_ATTRIBUTES = ("url", "source", "date", "created", "year", "language", "lang", "licence", "license", "category")
_LETTERS = {*"ABCDEFGHIJ", *"0123456789"}


@dataclass
class Draft:
    """The entries of a description.

    Args:
        lines: by key, in the order in which they are written.
        notes: comments on an entry, by its key; others with an empty key.
        warnings: what a person should decide.
    """

    lines: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def note(self, key: str, *lines: str) -> None:
        """Add comments to an entry."""
        self.notes.setdefault(key, []).extend(lines)

    def ask(self, key: str, chosen: str, others: Sequence[str]) -> None:
        """Say that an entry could also have been others."""
        if others:
            self.note(key, *(f"or {key}: {other}" for other in others))
            self.warnings.append(f"{key}: {chosen} was taken; it may also be {', '.join(others)}")


def draft(columns: Sequence[Column], records: int) -> Draft:
    """Return the description of records with these fields.

    Args:
        columns: of :func:`pairmill.begin.columns.columns_of`.
        records: how many were looked at.

    Raises:
        InputError: nothing tells what makes a row.
    """
    result = Draft()
    used = _preferences(result, columns) or _chats(result, columns, records) or _pairs(result, columns)
    used = used or _documents(result, columns) or _unnamed(result, columns)
    if not used:
        seen = "; ".join(f"{column.path} ({column.kind or 'null'}, {column.mean()} characters)" for column in columns)
        raise InputError(
            "nothing tells which columns are a question and its answer",
            where="data",
            got=writable(seen) or "records without fields",
            expected="texts named question and answer, messages, or text",
            hint="these are tokens: pairmill tokenize takes them as they are, tokens=<folder>"
            if any(column.name == "input_ids" for column in columns)
            else "write a YAML file with instruction: and response:, or text: or turns: (docs/sources.md)",
        )
    rest = [column for column in columns if column.name in _ATTRIBUTES and column not in used and column.filled]
    if rest:
        types = {NUMBER: "integer", BOOLEAN: "boolean", TEXTS: "texts"}
        named = ", ".join(
            f"{column.name}: "
            + (f"{{path: {column.path}, type: {types[column.kind]}}}" if column.kind in types else column.path)
            for column in rest
        )
        result.note(
            "", "columns to keep beside the rows, which select and reports can use:", f"attributes: {{{named}}}"
        )
    return result


def _named(columns: Sequence[Column], names: Sequence[str], *kinds: str) -> list[Column]:
    """Return the columns with one of some names, in the order of the names; a name may be part of a longer one."""
    fit = [column for column in columns if column.filled and (not kinds or column.kind in kinds)]
    ranks = {column.steps: _rank(column, names) for column in fit}
    return sorted(
        (column for column in fit if ranks[column.steps] is not None), key=lambda each: ranks[each.steps] or 0
    )


def _rank(column: Column, names: Sequence[str]) -> int | None:
    words = column.name.split("_")
    for rank, name in enumerate(names):
        if column.name == name:
            return rank
    # A nested text of a known field is that field: {"answer": {"text": …}}.
    above = column.steps[-2].lower() if len(column.steps) > 1 and column.name in ("text", "value", "content") else ""
    for rank, name in enumerate(names):
        if above == name or (name in words and words[-1] not in ("id", "type", "count", "length", "score")):
            return len(names) + rank
    return None


def _preferences(result: Draft, columns: Sequence[Column]) -> list[Column]:
    top = [column for column in columns if len(column.steps) == 1]
    chosen, rejected = ([column for column in top if column.name in names] for names in (_CHOSEN, _REJECTED))
    if not chosen or not rejected:
        return []
    result.lines |= {"condition": "direct", "pairs": "chosen_as_answer"}
    result.note("pairs", "the better answers make rows; for preference training in place of it:", "use: pairs")
    return [*chosen, *rejected]


def _chats(result: Draft, columns: Sequence[Column], records: int) -> list[Column]:
    chats = _named(columns, _CHATS, MESSAGES)
    chats += [column for column in columns if column.kind == MESSAGES and column not in chats]
    if not chats:
        return []
    chat = chats[0]
    result.lines |= {"condition": "direct", "turns": chat.path}
    result.ask("turns", chat.path, [column.path for column in chats[1:]])
    meant = {role: ROLES.get(role.strip().lower()) for role in chat.roles}
    told = ", ".join(f"{role or 'no role'} {count:,}" for role, count in chat.roles.most_common())
    result.note("turns", f"messages by role: {told}")
    unknown = [role for role, meaning in meant.items() if meaning is None and role.isprintable() and role.strip()]
    if unknown:
        result.lines["roles"] = dict.fromkeys(unknown, USER)
        result.note("roles", "system, user, assistant or tool: what these roles are is a guess")
        result.warnings.append(f"roles: {', '.join(unknown)} taken for {USER}; correct roles: if that is wrong")
    if not any(key in chat.keys for key in CONTENT_KEYS):
        result.warnings.append(f"content: messages have none of {', '.join(CONTENT_KEYS)}; write content: <path>")
    truths = [column for column in _named(columns, _TRUTHS) if column is not chat]
    if ASSISTANT not in meant.values() and truths:
        result.lines["answer"] = {"path": truths[0].path}
        result.note(
            "answer", "the ground truth is learned; for reinforcement learning in place of answer:", "use: prompts"
        )
    elif ASSISTANT not in meant.values():
        result.lines.pop("condition")
        result.lines["use"] = "prompts"
        result.note("use", "no message is an answer, so the records are prompts and make no rows")
        result.warnings.append("no message is an answer: the records are prompts (use: prompts), which make no rows")
    if chat.signs["reasoning"]:
        result.lines["reasoning"] = "keep"
        result.note("reasoning", f"in {chat.signs['reasoning']:,} of {records:,} chats; or drop, or condition:cot")
    if chat.signs["tools"] or _named(columns, ("tools", "functions")):
        count = chat.signs["tools"]
        result.note(
            "turns",
            f"{count:,} of {records:,} chats call tools. Calls become rows with the chat template of the model alone:",
            "template: tokenizer_config.json",
        )
        result.warnings.append(
            f"{count:,} of {records:,} chats call tools: only answers of text make rows, until template: names the "
            "chat template of the model"
        )
    return [chat]


def _pairs(result: Draft, columns: Sequence[Column]) -> list[Column]:
    questions = _named(columns, _QUESTIONS, TEXT)
    answers = [column for column in _named(columns, _ANSWERS) if column.kind in (TEXT, NUMBER, BOOLEAN, TEXTS)]
    answers = [column for column in answers if column not in questions[:1]]
    if not questions or not answers:
        return []
    question, answer = questions[0], answers[0]
    # Those beside the question may be empty in the records that were looked at.
    named = {column.name: column for column in columns if column.kind in (TEXT, "")}
    before = [named[name] for name in _BEFORE if name in named and named[name] not in (question, answer)]
    after = [named[name] for name in _AFTER if name in named and named[name] not in (question, answer)]
    choices = _named(columns, _CHOICES, TEXTS) or [
        column for column in _named(columns, ("text",), TEXTS) if {*_CHOICES} & {*column.steps[:-1]}
    ]
    result.lines |= {
        "condition": "{condition}" if "condition" in named else "direct",
        "instruction": _instruction(question, before, after, choices[:1]),
        "response": _response(answer, choices),
    }
    if choices and answer.kind == NUMBER:
        result.note(
            "response", f"the number of the right one, from 0; its text: {{{choices[0].path}|at({answer.path})}}"
        )
    rest = [column.path for column in questions[1:] if column not in (answer, *before, *after)]
    result.ask("instruction", result.lines["instruction"], rest)
    result.ask("response", result.lines["response"], [column.path for column in answers[1:] if column not in questions])
    if "condition" not in named:
        result.note("condition", "of direct, cot (steps come before the answer), synth, noisy; joined by commas")
    return [question, answer, *before, *after, *choices[:1]]


def _instruction(question: Column, before: Sequence[Column], after: Sequence[Column], choices: Sequence[Column]) -> str:
    if not (before or after or choices):
        return question.path
    parts = [f"[[{{{column.path}}}\n\n]]" for column in before] + [f"{{{question.path}}}"]
    parts += [f"[[\n\n{{{column.path}}}]]" for column in after]
    return "".join([*parts, *(f"\n{{{column.path}|letters}}" for column in choices)])


def _response(answer: Column, choices: Sequence[Column]) -> str:
    if answer.kind == TEXT:
        return answer.path
    if answer.kind == NUMBER:
        return f"{{{answer.path}|letter}}" if choices else f"{{{answer.path}}}"
    return f"{{{answer.path}|yes_no}}" if answer.kind == BOOLEAN else f"{answer.path}[0]"


def _documents(result: Draft, columns: Sequence[Column]) -> list[Column]:
    texts = _named(columns, _DOCUMENTS, TEXT)
    if not texts:
        alone = [column for column in columns if column.kind == TEXT and column.filled and column.mean() > 200]
        texts = alone if len(alone) == 1 else []
    if not texts:
        return []
    result.lines["text"] = texts[0].path
    result.note("text", "each record is a document: nothing is asked, all of it is learned")
    result.ask("text", texts[0].path, [column.path for column in texts[1:]])
    return texts[:1]


def _unnamed(result: Draft, columns: Sequence[Column]) -> list[Column]:
    """Take two texts with unknown names for a question and its answer, and one for a document."""
    texts = [column for column in columns if column.kind == TEXT and column.filled and not _is_label(column)]
    if len(texts) == 2:
        result.lines |= {"condition": "direct", "instruction": texts[0].path, "response": texts[1].path}
        result.warnings.append(
            f"{texts[0].path} was taken for the question and {texts[1].path} for its answer, for want of names that "
            "say it; change instruction: and response: if that is wrong"
        )
    elif len(texts) == 1:
        result.lines["text"] = texts[0].path
    return texts if len(texts) in (1, 2) else []


def _is_label(column: Column) -> bool:
    """Return whether a text is a number, an id, a date or a class and not something that is said."""
    if all(re.fullmatch(r"[\d.,:+ -]*", value) for value in column.values):
        return bool(column.values)
    named = re.fullmatch(r"(.*_)?(id|uuid|date|time|url|lang|language|category|type|split|source|index)", column.name)
    return bool(named) and not any(" " in value.strip() for value in column.values)
