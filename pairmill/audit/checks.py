"""The checks of a row: an entry each. A check returns what is wrong with the row, in a few words, or nothing."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pairmill.audit.languages import other_language
from pairmill.audit.texts import AuditedRow, TokenText
from pairmill.chats.message import ChatFault
from pairmill.chats.structure import OLD_MARKS, Structure
from pairmill.chats.tools import calls_in_text

_DAMAGE: Final = ("\ufffd", "\0")
_MISSING: Final = re.compile(
    r"\[(?:MISSING|INSERT|REDACTED|TODO)\b[^\]\n]{0,40}\]|\{\{\s*[\w.]+\s*\}\}|<mask>|lorem ipsum", re.IGNORECASE
)
_MOJIBAKE: Final = re.compile("Ã[\x80-\xbf\u0152-\u0178]|â€[\x80-\xbf\u0153\u2018-\u2122™œ]|Â[\xa0-\xbf]")
_HTML: Final = re.compile(
    r"</?(?:div|span|br|p|td|tr|li|ul|font|script)\b[^<>]{0,200}>|&(?:nbsp|amp|quot|lt|gt|#\d+);", re.IGNORECASE
)
_URL: Final = re.compile(r"https?://\S+|www\.\S+")
_CONTRACT: Final = re.compile(
    r"<(?:functions|function=[\w.-]+|function|invoke|tool_response|parameter=[\w.-]+)\b|signatures within .{0,40}XML",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_REFUSAL: Final = re.compile(
    r"\b(?:as an AI(?: language)? model|I(?:'m| am) (?:just )?an AI\b|I cannot assist with)", re.IGNORECASE
)
_FENCE: Final = re.compile(r"^\s*```", re.MULTILINE)
_THINK: Final = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_ENDS: Final = tuple(".!?:;…)]}>\"'”’»`*|$。！？」）%")
_SENTENCE: Final = re.compile(r"[.!?。！？](?:\s|$)")
_ORDER_ASKED: Final = re.compile(
    r"\b(?:re-?order|rearrange|unscramble|(?:right|correct|original|logical|chronological) (?:order|sequence)"
    r"|rækkefølge|rekkefølge|Reihenfolge)",
    re.IGNORECASE,
)
_PASSAGE: Final = re.compile(r"^[ \t]*[\[(]?(\d{1,2}|[A-Z])[\]).:]+[ \t]*(\S.*)$", re.MULTILINE)
_LABELS_ALONE: Final = re.compile(r"(?:[\[(]?\b(?:\d{1,2}|[A-Z])\b[\])]?(?:[\s,;.>→-]+|$))+")
_LEAST_PASSAGES: Final = 3
_LEAST_WORDS: Final = 30
_MOST_SAME: Final = 5
"""Equal lines of an answer."""
_MOST_WORDS: Final = 10
"""Equal words, or phrases of up to six words, one after another."""
_LONGEST_PHRASE: Final = 6
_COPIED: Final = 20
_SHOWN: Final = 60
_MANY_URLS: Final = 5

Find = Callable[[AuditedRow], str]


@dataclass(frozen=True)
class Check:
    """A check.

    Args:
        meaning: of a row that it finds, for people.
        find: what is wrong, in a few words; empty = nothing.
    """

    meaning: str
    find: Find


def _of_each(find: Callable[[TokenText], str]) -> Find:
    """Return a check of the prompt and of the answer."""

    def check(row: AuditedRow) -> str:
        wrong = [(name, find(text)) for name, text in (("prompt", row.prompt), ("answer", row.answer))]
        return "; ".join(f"{name}: {what}" for name, what in wrong if what)

    return check


def _matches(pattern: re.Pattern[str]) -> Callable[[TokenText], str]:
    def find(text: TokenText) -> str:
        match = pattern.search(text.plain)
        return repr(match[0][:_SHOWN]) if match else ""

    return find


def _holds(marks: tuple[str, ...]) -> Callable[[TokenText], str]:
    return lambda text: ", ".join(ascii(mark) for mark in marks if mark in text.plain)


def _spelled_control(row: AuditedRow) -> str:
    return _of_each(_holds(row.controls))(row)


def _foreign(row: AuditedRow) -> str:
    return _of_each(_holds(tuple(mark for mark in OLD_MARKS if mark not in row.template)))(row)


def _contract(row: AuditedRow) -> str:
    return "" if _CONTRACT.search(row.template) else _of_each(_matches(_CONTRACT))(row)


def _empty(text: TokenText) -> str:
    return "" if any(map(str.isalnum, text.plain)) else "no letter and no digit"


def _cut(row: AuditedRow) -> str:
    return f"{row.lost:,} tokens lost" if row.lost else ""


def _no_end(row: AuditedRow) -> str:
    return "the last token is a word" if row.ended and not row.lost and not row.answer.ends else ""


def _unclosed(row: AuditedRow) -> str:
    text = row.answer.plain
    if len(_FENCE.findall(text)) % 2:
        return "``` without an end"
    for opened, closed in _THINK:
        if text.count(opened) > text.count(closed):
            return f"{opened} without an end"
    start = text.rfind("\\boxed{")
    return "\\boxed{ without an end" if start >= 0 and text.count("{", start) > text.count("}", start) else ""


def _ends_midway(row: AuditedRow) -> str:
    text = row.answer.plain.rstrip()
    is_prose = len(row.answer.words) >= _LEAST_WORDS and len(_SENTENCE.findall(text)) >= 2
    last = text.rsplit("\n", 1)[-1]
    if not is_prose or text.endswith(_ENDS) or len(last.split()) < 4 or (not text[-1:].isalpha() and text[-1:] != ","):
        return ""
    return repr(text[-_SHOWN:])


def _repeated(row: AuditedRow) -> str:
    lines = Counter(line.strip() for line in row.answer.plain.split("\n") if len(line.strip()) > 8)
    line, count = lines.most_common(1)[0] if lines else ("", 0)
    if count >= _MOST_SAME:
        return f"{count} times {line[:_SHOWN]!r}"
    words = row.answer.words
    for size in range(1, _LONGEST_PHRASE + 1):
        run = 0
        for at in range(size, len(words)):
            run = run + 1 if words[at] == words[at - size] else 0
            if run >= size * (_MOST_WORDS - 1):
                return f"{_MOST_WORDS} times {' '.join(words[at - size + 1 : at + 1])!r}"
    return ""


def _copied(row: AuditedRow) -> str:
    words = row.answer.words
    if len(words) < _COPIED:
        return ""
    return f"{len(words)} words" if f" {' '.join(words)} " in f" {' '.join(row.prompt.words)} " else ""


def _order(row: AuditedRow) -> str:
    """Return which passage an answer lacks, or has twice, where the prompt asks for their order."""
    given = dict(_PASSAGE.findall(row.prompt.plain))
    if len(given) < _LEAST_PASSAGES or not _ORDER_ASKED.search(row.prompt.plain):
        return ""
    text = row.answer.plain.strip()
    if _LABELS_ALONE.fullmatch(text):
        counts = Counter(re.findall(r"\d+|[A-Z]", text))
        if strange := sorted(counts.keys() - given.keys()):
            return f"{strange[0]} is not among the passages"
    else:
        answer = f" {' '.join(row.answer.words)} "
        texts = {label: TokenText(((passage, False),)).words for label, passage in given.items()}
        counts = Counter({label: answer.count(f" {' '.join(words)} ") for label, words in texts.items()})
        # An answer in other words is not one of passages.
        if not all(texts.values()) or 2 * sum(map(bool, counts.values())) < len(given):
            return ""
    wrong = [(label, counts[label]) for label in given if counts[label] != 1]
    return f"passage {wrong[0][0]} comes {wrong[0][1]} times" if wrong and not row.lost else ""


def _urls(row: AuditedRow) -> str:
    text = row.answer.plain
    urls = _URL.findall(text)
    share = sum(map(len, urls)) / max(1, len(text))
    return f"{len(urls)} of them, {share:.0%} of the answer" if len(urls) >= _MANY_URLS or share > 0.5 else ""


def _language(row: AuditedRow, text: TokenText) -> str:
    other = other_language(text.plain, text.words, row.languages)
    return f"{other}, not {' or '.join(row.languages)}" if other else ""


def _call_text(row: AuditedRow) -> str:
    """Return why a call that is spelled in the answer cannot be read."""
    try:
        _, calls = calls_in_text(row.answer.plain, {}, Counter())
    except ChatFault as fault:
        return f"{fault.reason}: {fault.got}"[: 2 * _SHOWN]
    wrong = [name for call in calls if not _NAME.fullmatch(name := str(call["function"]["name"]))]
    return f"the name {wrong[0]!r}" if wrong else ""


def _structure(row: AuditedRow) -> str:
    if row.chat is None:
        return ""
    try:
        structure = Structure(row.chat.tools or [], Counter(), marks=())
        for message in row.chat.messages:
            if message["role"] == "tool":
                structure.take_results(message, message.get("content"), str)
            elif calls := message.get("tool_calls"):
                structure.take_calls(calls)
            elif message is not row.chat.messages[-1] or message["role"] != "assistant":
                structure.finish_turn()
    except ChatFault as fault:
        return f"{fault.reason}: {fault.got}"[: 2 * _SHOWN]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"not a chat of OpenAI's form: {error!r}"[: 2 * _SHOWN]
    return ""


def _undeclared(row: AuditedRow) -> str:
    calls = _calls_of(row.chat.messages) if row.chat is not None and not row.chat.tools else []
    return f"a call of {calls[0]!r}" if calls else ""


def _not_rendered(row: AuditedRow) -> str:
    if row.chat is None:
        return ""
    names = [str(tool.get("function", tool).get("name", "")) for tool in row.chat.tools or [] if isinstance(tool, dict)]
    wrong = [f"{name} is not in the prompt" for name in names if name not in row.prompt.plain]
    calls = _calls_of(row.chat.messages[-1:])
    wrong += [f"the call of {name} is not in the answer" for name in calls if name not in row.answer.plain]
    return wrong[0] if wrong and not row.lost else ""


def _calls_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the calls in some messages."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return [str(call.get("function", {}).get("name", "")) for call in calls]


CHECKS: Final[Mapping[str, Check]] = {
    "empty_prompt": Check(
        "the prompt has neither a letter nor a digit", lambda row: _empty(row.prompt) if row.tokens[0] else ""
    ),
    "empty_answer": Check("the answer has neither a letter nor a digit", lambda row: _empty(row.answer)),
    "damaged_text": Check("a character that could not be decoded (U+FFFD), or NUL", _of_each(_holds(_DAMAGE))),
    "mojibake": Check("UTF-8 that was read as another encoding", _of_each(_matches(_MOJIBAKE))),
    "placeholder_left": Check("a mask, or a field of a template that nobody filled in", _of_each(_matches(_MISSING))),
    "html_left": Check("tags or entities of HTML in an answer", lambda row: _matches(_HTML)(row.answer)),
    "foreign_marks": Check("a mark of another template, as plain text", _foreign),
    "spelled_control": Check("plain text that spells a control token of the tokenizer", _spelled_control),
    "tool_contract": Check("what is left of an old contract about tools in XML", _contract),
    "malformed_call": Check("the text of a call that cannot be read, or a name that is not valid", _call_text),
    "tool_structure": Check("calls, results and declarations that do not fit each other", _structure),
    "undeclared_tools": Check("calls in a chat that declares no tools", _undeclared),
    "tools_not_rendered": Check("declarations or calls of the chat that the row has not", _not_rendered),
    "cut_answer": Check("an answer that is cut for the context", _cut),
    "no_end": Check("an answer without the token that ends it", _no_end),
    "unclosed": Check("a block of code, a box or a thought without an end", _unclosed),
    "ends_midway": Check("prose that ends within a sentence", _ends_midway),
    "repeated_text": Check("the same line or words again and again", _repeated),
    "copied_answer": Check("an answer of 20 words or more that is a part of the prompt", _copied),
    "order_of_passages": Check("an order is asked for, and the answer lacks or repeats a passage", _order),
    "many_links": Check("an answer of links", _urls),
    "refusal": Check("an answer that speaks of itself as a language model", lambda row: _matches(_REFUSAL)(row.answer)),
    "language_of_prompt": Check("another language than the source says", lambda row: _language(row, row.prompt)),
    "language_of_answer": Check("another language than the source says", lambda row: _language(row, row.answer)),
}
"""By name."""


def faults_of(row: AuditedRow, names: Iterable[str]) -> dict[str, str]:
    """Return what the named checks find of a row, by name."""
    return {name: what for name in names if (what := CHECKS[name].find(row))}
