"""Every check finds what is planted for it, and nothing in rows that are as they should be."""

from dataclasses import replace

import pytest

from pairmill.audit.checks import CHECKS, faults_of
from pairmill.audit.languages import codes_of, other_language
from pairmill.audit.texts import AuditedRow, TokenText
from pairmill.chats.render import Chat

ENGLISH = (
    "The river is long and it runs from the hills to the sea. Many people have lived by it for years, as the water is "
    "clean and there are fish in it. They say that this was not always so."
)
DANISH = (
    "Floden er lang, og den løber fra bakkerne til havet. Mange mennesker har boet ved den i årevis, for vandet er "
    "rent, og der er fisk i det. De siger, at det ikke altid var sådan, men at der også har været år med is."
)
RUSSIAN = "Река длинная и течёт с холмов к морю. Многие люди жили у неё годами, так как вода чистая."
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}


def text(plain: str, *, ends: bool = False) -> TokenText:
    return TokenText(((plain, False), ("<end>", True)) if ends else ((plain, False),))


def row(prompt: str = "What is it?", answer: str = "A river.", **more: object) -> AuditedRow:
    made = AuditedRow("task.jsonl", 0, text(prompt, ends=True), text(answer, ends=True), (5, 5), ended=True)
    return replace(made, **{"controls": ("<end>",), "languages": ("en",), **more})  # type: ignore[arg-type]


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(*messages: dict[str, object], tools: object = (TOOL,)) -> Chat:
    return Chat([{"role": "user", "content": "find it"}, *messages], tools)  # type: ignore[arg-type]


def answered(*calls: object) -> dict[str, object]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


RESULT: dict[str, object] = {"role": "tool", "content": "here", "tool_call_id": "call00001"}
CALLED = answered(call("find", q="x"))
SHOWN = {"prompt": "you have find", "answer": '<tool_call>{"name": "find", "arguments": {"q": "x"}}</tool_call>'}
OWN = {"template": "<tool_call></tool_call>"}

ORDER = "Put the passages into the right order.\n1. The sea is blue.\n2. The sun comes up.\n3. Birds sing in it."
LETTERS = "Rearrange:\n[A] It was late.\n[B] We went home.\n[C] We had eaten."

PLANTED: dict[str, list[AuditedRow]] = {
    "empty_prompt": [row(""), row(" … \n"), row("?!")],
    "empty_answer": [row(answer=""), row(answer="\n\n"), row(answer="...")],
    "damaged_text": [row("what\ufffd is it"), row(answer="a\0b"), row(answer="\ufffd")],
    "mojibake": [row(answer="une rÃ©ponse"), row("it doesnâ€™t"), row(answer="100Â°C")],
    "placeholder_left": [row("Translate {{ text }}"), row(answer="Dear [INSERT NAME],"), row("<mask> is a river")],
    "html_left": [row(answer="<p>A river</p>"), row(answer="a&nbsp;b"), row(answer="one<br/>two")],
    "foreign_marks": [row("<|im_start|>user hello"), row(answer="yes [/INST]"), row("<s>[INST] hello")],
    "spelled_control": [row("a <end> of it"), row(answer="so <end>"), row(answer="<end> it is")],
    "tool_contract": [
        row("Reply with <function=name>"),
        row(answer="<invoke name='x'>"),
        row("You are given function signatures within <functions></functions> XML tags"),
    ],
    "malformed_call": [
        row(answer='<tool_call>{"name": "find", "arguments": [1]}</tool_call>', **OWN),
        row(answer='<tool_call>{"name": "find"', **OWN),
        row(answer='<tool_call>{"name": "fi nd", "arguments": {}}</tool_call>', **OWN),
    ],
    "tool_structure": [
        row(**SHOWN, **OWN, chat=chat(CALLED, {"role": "user", "content": "so?"}, CALLED)),
        row(**SHOWN, **OWN, chat=chat(answered(call("find", q=1)))),
        row(**SHOWN, **OWN, chat=chat(CALLED, RESULT, RESULT, CALLED)),
    ],
    "undeclared_tools": [
        row(**SHOWN, **OWN, chat=chat(CALLED, tools=None)),
        row(**SHOWN, **OWN, chat=chat(CALLED, tools=())),
        row(**SHOWN, **OWN, chat=chat(CALLED, RESULT, CALLED, tools=())),
    ],
    "tools_not_rendered": [
        row("no tool", SHOWN["answer"], **OWN, chat=chat(CALLED)),
        row(SHOWN["prompt"], "I would look it up.", chat=chat(CALLED)),
        row("no tool", "It is here.", chat=chat({"role": "assistant", "content": "It is here."})),
    ],
    "cut_answer": [row(lost=1), row(lost=100), row(lost=7, answer="A river")],
    "no_end": [replace(row(), answer=text(answer)) for answer in ("A river.", "yes", "```a```")],
    "unclosed": [row(answer="```python\nprint(1)"), row(answer="so \\boxed{\\frac{1}{2}"), row(answer="<think>it is")],
    "ends_midway": [row(answer=f"{ENGLISH} But some of them said {more}") for more in ("that", "that the,", "it was")],
    "repeated_text": [
        row(answer="again and again\n" * 5),
        row(answer="It is " + "very " * 12 + "long."),
        row(answer="So " + "we go on like " * 10),
    ],
    "copied_answer": [row(f"Read this. {ENGLISH} Now what?", part) for part in (ENGLISH, ENGLISH[4:], ENGLISH[:-4])],
    "order_of_passages": [
        row(ORDER, "2, 1"),
        row(ORDER, "3 > 1 > 1 > 2"),
        row(LETTERS, "C, A, D, B"),
        row(ORDER, "The sun comes up. Birds sing in it."),
        row(LETTERS, "[C] We had eaten.\n[A] It was late.\n[A] It was late.\n[B] We went home."),
    ],
    "many_links": [
        row(answer="https://a.test/x"),
        row(answer=" and ".join(["www.a.test/x"] * 5)),
        row(answer="see https://a.test/a/long/path/to/it"),
    ],
    "refusal": [row(answer=f"{start} so no.") for start in ("As an AI model,", "I am an AI", "I'm just an AI")],
    "language_of_prompt": [row(DANISH), row(RUSSIAN), row("これは長い川についての文章です。人々はそこに住む。")],
    "language_of_answer": [row(answer=DANISH), row(answer=RUSSIAN), row(answer=ENGLISH, languages=("da",))],
}  # fmt: skip
GOOD = [
    row(),
    row(ORDER, "2, 3, 1"),
    row(LETTERS, "C A B"),
    row(LETTERS, "[C] We had eaten.\n[A] It was late.\n[B] We went home."),
    row(ORDER, "The sun comes up. Birds sing in it. The sea is blue."),
    row(ORDER, "First the dawn, then the song, then the water."),
    row("Name three.\n1. a\n2. b\n3. c", "1"),
    row(ENGLISH, f"{ENGLISH} And so it is today."),
    row(DANISH, DANISH + " Ja.", languages=("da",)),
    row(answer=r"So it is \boxed{42}."),
    row(answer="```python\nprint(1)\n```"),
    row(answer="B"),
    row(answer="{not a template} and [1] and a < b && c > d"),
    row(DANISH, RUSSIAN, languages=()),
    row(DANISH, languages=("tlh",)),
    row("", "Text of a document.", tokens=(0, 5)),
    row(**SHOWN, **OWN, chat=chat(CALLED)),
    row(**SHOWN, **OWN, chat=chat(CALLED, RESULT, CALLED)),
    row("you have find", "It is here.", chat=chat({"role": "assistant", "content": "It is here."})),
    replace(row(), answer=TokenText((("A river.", False), ("<end>", True), ("\n", False)))),
    replace(row(), answer=text("no token ends rows here"), ended=False),
]


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_planted_is_found(name: str) -> None:
    assert len(PLANTED[name]) >= 3
    for planted in PLANTED[name]:
        assert name in faults_of(planted, CHECKS), planted


def test_nothing_is_found_in_good_rows() -> None:
    assert PLANTED.keys() == CHECKS.keys()
    for good in GOOD:
        assert faults_of(good, CHECKS) == {}, good
    assert faults_of(PLANTED["refusal"][0], ["empty_answer"]) == {}


def test_languages() -> None:
    assert codes_of("en, da") == ("en", "da")
    assert codes_of("no;pt-BR multilingual") == ("nb", "pt")
    assert codes_of("") == ()
    words = DANISH.lower().split()
    assert other_language(DANISH, words, ("da", "en")) == ""
    assert other_language(DANISH, words, ("nb",)) == ""  # they share most words
    assert other_language(DANISH, words, ("de",)) == "da"
    assert other_language(RUSSIAN, [], ("ru",)) == ""
    assert other_language(RUSSIAN, [], ("en", "xx")) == ""
