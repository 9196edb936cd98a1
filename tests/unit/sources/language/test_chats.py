"""Chats in YAML sources: every answer is a row or is skipped for a reason, in each shape that people have."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.chats import targets
from pairmill.chats.structure import CHECKS
from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.engine.vanished import sentences
from pairmill.errors import InputError, UsageError
from pairmill.formats.rows import Row
from pairmill.sources.language import chats, mapped
from pairmill.sources.language.chat_options import FAULTS
from pairmill.sources.language.chats import (
    BAD_INDEX,
    BAD_WEIGHT,
    BAD_WEIGHTS,
    CALLS_NOT_RENDERED,
    MEANINGS,
    NOT_RENDERED,
    ROLES,
    Turn,
    plain,
)
from pairmill.sources.parsed import ANSWERS, Drop, Malformed, Note, parts_of
from pairmill.sources.source import Context, Source, checked, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of
from tests.support.data.descriptions import Load, loader
from tests.support.helpers import REPOSITORY, draws

EXAMPLES = REPOSITORY / "examples" / "sources"
CHAT = {"name": "mine", "hub": "org/mine", "condition": "direct", "turns": "messages"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a YAML file of chats with these keys; None leaves one out."""
    return loader(tmp_path, CHAT)


def parse(source: Source, record: Any) -> list[Any]:
    return list(parts_of(parse_record(source, record, Context("pairmill"))))


def said(*turns: tuple[str, Any], role: str = "role", content: str = "content") -> list[dict[str, Any]]:
    return [{role: who, content: what} for who, what in turns]


S, U, A, T = "system", "user", "assistant", "tool"
TWO = said((U, "One?"), (A, "1"), (U, "Two?"), (A, "2"))
SECOND = "User:\nOne?\n\nAssistant:\n1\n\nUser:\nTwo?"
CALL = [{"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]
WITH_TOOL = [
    *said((U, "1+1?")),
    {"role": A, "content": None, "tool_calls": CALL},
    {"role": T, "content": "2", "tool_call_id": "x"},
    *said((A, "It is 2.")),
]
TOOLS = 'User:\n1+1?\n\nTool call:\nadd {"a": 1}\n\nTool:\n2'

# What people have: the keys of the YAML file, a record, its rows (instruction, response), and what is skipped or noted.
SHAPES: dict[str, tuple[dict[str, str], Any, list[tuple[str, str]], dict[str, int]]] = {
    "OpenAI, one turn": ({}, {"messages": said((U, " Hi "), (A, "Hello\n"))}, [("Hi", "Hello")], {}),
    "OpenAI, two turns": ({}, {"messages": TWO}, [("One?", "1"), (SECOND, "2")], {}),
    "the last answer": ({"answers": "last"}, {"messages": TWO}, [(SECOND, "2")], {"not_the_last_answer": 1}),
    "OpenAI with a system prompt": (
        {},
        {"messages": said((S, "Be brief."), (U, "Hi"), (A, "Hello"))},
        [("System:\nBe brief.\n\nUser:\nHi", "Hello")],
        {},
    ),
    "a developer's prompt without text": (
        {},
        {"messages": said(("developer", ""), (U, "Hi"), (A, "Hello"))},
        [("Hi", "Hello")],
        {"empty_system_prompt": 1},
    ),
    "ShareGPT": (
        {"turns": "conversations"},
        {"conversations": said(("human", "Hi"), ("gpt", "Hello"), role="from", content="value")},
        [("Hi", "Hello")],
        {},
    ),
    "ShareGPT with a system prompt": (
        {"turns": "conversations"},
        {"conversations": said((S, "S"), ("human", "Hi"), ("chatgpt", "Yo"), role="from", content="value")},
        [("System:\nS\n\nUser:\nHi", "Yo")],
        {},
    ),
    "ShareGPT with a function": (
        {"turns": "conversations"},
        {
            "conversations": said(
                *(("human", "1+1?"), ("function_call", 'add {"a": 1}'), ("observation", "2"), ("gpt", "It is 2.")),
                role="from",
                content="value",
            )
        },
        [(TOOLS, "It is 2.")],
        {"tool_call_only": 1},
    ),
    "OpenAI with a tool": ({}, {"messages": WITH_TOOL}, [(TOOLS, "It is 2.")], {"tool_call_only": 1}),
    "a text beside a call": (
        {},
        {
            "messages": [
                *said((U, "1+1?")),
                {"role": A, "content": "Let me see.", "tool_calls": CALL},
                *said((T, "2"), (A, "2")),
            ]
        },
        [
            ("1+1?", "Let me see."),
            ('User:\n1+1?\n\nAssistant:\nLet me see.\n\nTool call:\nadd {"a": 1}\n\nTool:\n2', "2"),
        ],
        {},
    ),
    "contents in parts": (
        {},
        {"messages": said((U, [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]), (A, ["C"]))},
        [("A\nB", "C")],
        {},
    ),
    "an image": (
        {},
        {"messages": [*TWO, *said((U, [{"type": "image_url", "image_url": {}}]), (A, "3"), (U, "?"), (A, "4"))]},
        [("One?", "1"), (SECOND, "2")],
        {"content_beyond_text": 2},
    ),
    "two questions in a row": (
        {},
        {"messages": [*TWO, *said((U, "Three?"), (U, "Four?"), (A, "4"))]},
        [("One?", "1"), (SECOND, "2")],
        {"question_without_answer": 1},
    ),
    "two answers in a row": (
        {},
        {"messages": said((U, "One?"), (A, "1"), (A, "2"), (U, "Three?"), (A, "3"))},
        [("One?", "1")],
        {"answer_without_question": 2},
    ),
    "a greeting first": (
        {},
        {"messages": said((A, "Welcome."), (U, "Hi"), (A, "Hello"))},
        [("Assistant:\nWelcome.\n\nUser:\nHi", "Hello")],
        {"answer_without_question": 1},
    ),
    "an empty answer": (
        {},
        {"messages": said((U, "One?"), (A, "1"), (U, "Two?"), (A, " "), (U, "Three?"), (A, "3"))},
        [("One?", "1")],
        {"empty_answer": 2},
    ),
    "an empty question": (
        {},
        {"messages": said((U, "One?"), (A, "1"), (U, None), (A, "2"))},
        [("One?", "1")],
        {"empty_question": 1},
    ),
    "a question at the end": (
        {},
        {"messages": [*TWO, *said((U, "Three?"))]},
        [("One?", "1"), (SECOND, "2")],
        {"unanswered_question": 1},
    ),
    "a late system prompt": (
        {},
        {"messages": [*TWO, *said((S, "Now rhyme."), (U, "Three?"), (A, "3"))]},
        [("One?", "1"), (SECOND, "2")],
        {"late_system_prompt": 1},
    ),
    "only a system prompt": ({}, {"messages": said((S, "Be kind."))}, [], {"no_answer": 1}),
    "no message": ({}, {"messages": []}, [], {"no_messages": 1}),
    "an unknown role after an answer": (
        {},
        {"messages": [*said((U, "One?"), (A, "1"), ("narrator", "Later.")), *TWO]},
        [("One?", "1")],
        {"unknown_role": 2},
    ),
    "a role of one's own": (
        {"roles": "{Narrator: user}"},
        {"messages": said(("narrator", "Later."), (A, "Yes."))},
        [("Later.", "Yes.")],
        {},
    ),
    "below an object, with other names": (
        {"turns": "chat.turns", "role": "author.role", "content": "content.parts"},
        {
            "chat": {
                "turns": [
                    {"author": {"role": "user"}, "content": {"parts": ["Hi"]}},
                    {"author": {"role": "assistant"}, "content": {"parts": ["Hello"]}},
                ]
            }
        },
        [("Hi", "Hello")],
        {},
    ),
    "JSON in a text": ({}, {"messages": json.dumps(TWO)}, [("One?", "1"), (SECOND, "2")], {}),
    "roles in upper case": (
        {},
        {"messages": said(("USER", "Hi"), ("Assistant ", "Hello"))},
        [("Hi", "Hello")],
        {},
    ),
    "a result of no tool": (
        {},
        {"messages": [*TWO, *said((T, "?"), (A, "3"))]},
        [("One?", "1"), (SECOND, "2")],
        {"tool_without_call": 1},
    ),
    "white space that stays": (
        {"strip": "false"},
        {"messages": said((U, " Hi "), (A, "Hello\n"))},
        [(" Hi ", "Hello\n")],
        {},
    ),
}
NOTED = {"unanswered_question", "empty_system_prompt", "no_answer", "no_messages"}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_answer_of_a_shape_is_a_row_or_is_skipped_for_a_reason(load: Load, shape: str) -> None:
    keys, record, rows, others = SHAPES[shape]
    source = load(**keys)
    parts = parse(source, record)
    assert [part for part in parts if isinstance(part, Row)] == [Row("direct", *texts) for texts in rows]
    (answers,) = (part.times for part in parts if isinstance(part, Note) and part.what == ANSWERS)
    counted: dict[str, int] = {}
    for part in parts:
        if isinstance(part, Drop):
            counted[part.reason] = counted.get(part.reason, 0) + 1
        elif isinstance(part, Note) and part.what != ANSWERS:
            counted[part.what] = part.times
    assert counted == others
    assert answers == len(rows) + sum(count for reason, count in others.items() if reason not in NOTED)
    if rows:
        # The question that all rows of a record share, whatever is put before it.
        found = [Row("direct", *texts) for texts in rows]
        assert source.first_question(record, found).strip() == first_of(record)


def first_of(record: Any) -> str:
    said = json.dumps(record)
    firsts = ("1+1?", "One?", "Later.")
    return "A\nB" if '"A"' in said else min((one for one in firsts if one in said), key=said.index, default="Hi")


def test_a_chat_of_one_turn_makes_the_row_that_paths_make(load: Load) -> None:
    record = {"messages": said((U, " Why?\nSystem: no. \n"), (A, "So."))}
    by_paths = load(turns=None, instruction="messages[role=user].content", response="messages[role=assistant].content")
    assert parse(load(), record)[0] == parse(by_paths, record)[0] == Row("direct", "Why?\nSystem: no.", "So.")


# --- malformed records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "reason", "found", "write"),
    [
        ({}, "missing_messages", "an object with nothing", ""),
        ({"messages": None}, "null_messages", "null", ""),
        ({"messages": 5}, "messages_is_no_list", "a number", ""),
        ({"messages": "Hi"}, "messages_is_no_list", "a text", ""),
        ({"messages": "[" * 100_000}, "messages_is_no_list", "a text", ""),
        ({"conversations": TWO}, "missing_messages", "an object with conversations", "turns: conversations"),
        ({"chat": {"id": 1, "turns": TWO}}, "missing_messages", "an object with chat", "turns: chat.turns"),
        ({"messages": {"list": TWO}}, "messages_is_no_list", "an object with list", "turns: messages.list"),
        ({"messages": ["Hi", "Hello"]}, "message_is_no_object", "a text", ""),
        (
            {"messages": said((U, "Hi"), (A, "Yo"), role="speaker")},
            "missing_role",
            "an object with speaker, content",
            "role: speaker",
        ),
        ({"messages": said((5, "Hi"))}, "role_is_no_text", "an object with role, content", ""),
        (
            {"messages": said(("narrator", "Hi"), (A, "Yo"))},
            "unknown_role",
            "the role 'narrator'",
            "roles: {narrator: user}",
        ),
        (
            {"messages": said(("my bot", "Hi"), (A, "Yo"))},
            "unknown_role",
            "the role 'my bot'",
            'roles: {"my bot": assistant}',
        ),
        (
            {"messages": said((U, "Hi"), (A, "Yo"), content="words")},
            "missing_content",
            "an object with role, words",
            "content: words",
        ),
        ({"messages": said((U, {"text": "Hi"}))}, "content_is_no_text", "an object with text", "content: content.text"),
        ({"messages": said((U, 5), (A, "Yo"))}, "content_is_no_text", "a number", ""),
        ([], "not_an_object", "a list of 0", ""),
    ],
)
def test_a_malformed_chat_comes_with_what_was_found_and_the_line_to_write(
    load: Load, record: Any, reason: str, found: str, write: str
) -> None:
    source = load()
    first = parse(source, record)[0]
    assert first == Malformed(reason)
    assert source.explain(record, first) == (found, write)
    if write:
        # What is said to be written is a line that reads the record further.
        key, _, value = write.partition(": ")
        assert parse(load(**{key: value}), record)[0] != first


# --- the plain template ---------------------------------------------------------------------------------------------


def read_back(text: str) -> list[tuple[str, str]]:
    """The turns of an instruction, by the page that describes it."""
    marks = r"System|User|Assistant|Tool call|Tool"
    if not re.match(rf"({marks}):(\n|\Z)", text):
        return [("User", re.sub(rf"\A\\(?=\\*({marks}):$)", "", text, flags=re.MULTILINE))]
    parts = re.split(rf"^({marks}):\n", text, flags=re.MULTILINE)[1:]
    turns = list(zip(parts[::2], parts[1::2], strict=True))
    bodies = [one.removesuffix("\n\n") if number < len(turns) - 1 else one for number, (_, one) in enumerate(turns)]
    return [
        (mark, re.sub(rf"^\\(?=\\*({marks}):$)", "", body, flags=re.MULTILINE))
        for (mark, _), body in zip(turns, bodies, strict=True)
    ]


def test_every_history_can_be_read_back() -> None:
    draw = random.Random(7)
    pieces = ["User:", "Assistant:", "Tool:", "Tool call:", "System:", "\\", "\n", "\n\n", "Hi", " ", "é", "User"]
    seen = 0
    for _ in range(3000):
        count = draw.choice([1, 1, 2, 3, 5])
        roles = [draw.choice(["user", "assistant", "tool", "system"]) for _ in range(count)]
        texts = ["".join(draw.choice(pieces) for _ in range(draw.randrange(1, 9))) for _ in range(count)]
        text = plain([Turn(role, one, "", {}) for role, one in zip(roles, texts, strict=True)])
        assert read_back(text) == [(role.capitalize(), one) for role, one in zip(roles, texts, strict=True)]
        seen += "\\User:" in text
    assert seen > 100


def test_the_page_s_example_is_what_is_written() -> None:
    page = (REPOSITORY / "docs" / "sources.md").read_text()
    turns = [(S, "Be brief."), (U, "What is 2 + 2?"), (A, "4"), (U, "And 3 + 3?")]
    text = plain([Turn(role, one, "", {}) for role, one in turns])
    assert "\n".join(f"    {line}".rstrip() for line in text.splitlines()) in page


def test_the_page_lists_every_role_and_reason() -> None:
    page = (REPOSITORY / "docs" / "sources.md").read_text()
    table = page.split("<!-- roles -->")[1].split("<!-- /roles -->")[0]
    listed = {
        name: meaning
        for row in table.splitlines()
        for meaning in re.findall(r"^\| `(\w+)` \|", row)
        for name in re.findall(r"`([^`]+)`", row.split("|")[2])
    }
    assert listed == ROLES
    assert set(listed.values()) == set(MEANINGS)
    language, folder = REPOSITORY / "pairmill" / "sources" / "language", REPOSITORY / "pairmill" / "chats"
    code = "".join((language / name).read_text() for name in ("chats.py", "reading.py"))
    reasons = set(re.findall(r'(?:Drop|Malformed|Note|ChatFault)\("(\w+)"', code))
    # What is mended and noted on the way; the page has the former without their prefix.
    counted = re.findall(
        r'(?:notes|counts)\[\s*"(?:mended_)?(\w+)"', code + "".join(path.read_text() for path in folder.glob("*.py"))
    )
    assert len(counted) > 25
    own = {*NOT_RENDERED, CALLS_NOT_RENDERED, BAD_WEIGHT, BAD_WEIGHTS, BAD_INDEX}
    reasons |= {*counted, *CHECKS, *targets.REASONS, *FAULTS, *own} - {"arguments_as_json_twice"}
    assert len(reasons) > 15
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()


def test_the_instructions_of_a_chat_do_not_grow_without_end(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "MAX_CHARACTERS", 10_000)
    record = {"messages": said(*[((U, A)[n % 2], "x" * 90) for n in range(200)])}
    source = load()
    vars(source._chats)["_plain"] = None
    parts = parse(source, record)
    rows = [part for part in parts if isinstance(part, Row)]
    assert 5 < len(rows) < 20
    assert sum(len(row.instruction or "") for row in rows) <= 10_000
    assert parts.count(Drop("chat_too_long")) == 100 - len(rows)


# --- the description ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"instruction": "question"},
            "line 4, turns: .*a document or a chat.*turns: messages' without instruction:",
        ),
        ({"text": "body"}, "line 5, text: .*got text: and turns:.*'text: body' without turns:"),
        ({"turns": None, "text": "body", "role": "from"}, "line 5, role: needs turns:; write 'turns: messages'"),
        ({"turns": None, "template": "plain"}, "required key missing|needs turns:"),
        ({"turns": "my messages"}, "line 4, turns: not a valid path"),
        ({"turns": "5"}, "line 4, turns: not a text"),
        ({"answers": "some"}, "line 5, answers: unknown value; got 'some'; expected all or last or first"),
        ({"roles": "user"}, "line 5, roles: not a mapping; got 'user'; expected what roles mean, as {narrator: user}"),
        ({"roles": r'{"nar\ud800rator": user}'}, "line 5, roles: the text has an unpaired surrogate"),
        ({"roles": "{narrator: usr}"}, "line 5, roles: narrator: unknown role; got 'usr'.*did you mean 'user'"),
        ({"roles": "{narrator: 5}"}, "line 5, roles: narrator: unknown role; got 5"),
        ({"role": "a b"}, "line 5, role: not a valid path"),
        ({"condition": None}, "required key missing.*expected condition"),
        ({"template": "chatm"}, "line 5, template: not a template; got 'chatm'; expected llama3, chatml, .*'chatml'"),
        ({"template": "missing.jinja"}, "line 5, template: no such file.*missing.jinja"),
        ({"template": "../../../etc/passwd.txt"}, "line 5, template: the path is outside the folders"),
        ({"template": "/etc/x.jinja"}, "line 5, template: the path is outside the folders"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_line_to_write(
    load: Load, keys: dict[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load(**keys)


def test_another_meaning_is_another_version(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text("{{ messages }}")
    changes: list[dict[str, str]] = [
        {},
        {"turns": "conversations"},
        {"role": "from"},
        {"content": "value"},
        {"answers": "last"},
        {"roles": "{narrator: user}"},
        {"template": "'{{ messages|length }}'"},
        {"template": "a.jinja"},
        {"strip": "false"},
    ]
    versions = [load(**change).version for change in changes]
    assert len(set(versions)) == len(changes)
    assert load(template="plain", answers="all").version == versions[0]
    assert load(template="'{{ messages }}'").version == versions[7]
    (tmp_path / "a.jinja").write_text("{{ messages|length }}")
    assert load(template="a.jinja").version == versions[6]


def test_the_run_s_answers_take_the_place_of_the_source_s(load: Load) -> None:
    source = load()
    assert source.answering("") is source
    assert source.answering("all") is source
    last = source.answering("last")
    assert (last.answers, last.version) == ("last", load(answers="last").version)
    assert (source.answers, last.answering("all").version) == ("all", source.version)
    assert [part for part in parse(last, {"messages": TWO}) if isinstance(part, Row)] == [Row("direct", SECOND, "2")]
    pairs = load(turns=None, instruction="question", response="answer")
    assert pairs.answering("last") is pairs
    with pytest.raises(UsageError, match=r"turns: unknown value; got 'some'; expected all, last or first"):
        CleanConfig(root="x", turns="some")


# --- the whole stage ------------------------------------------------------------------------------------------------


Cleaned = Callable[..., Manifest]


@pytest.fixture
def clean(tmp_path: Path) -> Cleaned:
    """Cleans records by a YAML file of chats with these keys."""

    def cleaned(records: list[Any], options: dict[str, Any] | None = None, **keys: str) -> Manifest:
        (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
        (tmp_path / "pairs.jsonl").write_text('{"q": "Why?", "a": "So."}\n')
        values = CHAT | {"files": "a.jsonl"} | keys
        del values["hub"]
        (tmp_path / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        pairs = "name: pairs\nfiles: pairs.jsonl\ncondition: cot\ninstruction: q\nresponse: a\n"
        (tmp_path / "pairs.yaml").write_text(pairs)
        config = CleanConfig(
            root=str(tmp_path / "root"),
            sources=[str(tmp_path / f"{name}.yaml") for name in ("mine", "pairs")],
            workers=1,
            **(options or {}),
        )
        return runner.run(Clean(), config).manifest

    return cleaned


def test_answers_are_rows_or_skipped_in_the_manifest_and_the_report(clean: Cleaned) -> None:
    records = [
        record
        for keys, record, _, _ in SHAPES.values()
        if not keys and isinstance(record, dict) and isinstance(record["messages"], list)
    ]
    records.append({"messages": said((U, "\ud800"), (A, "1"), (U, "Two?"), (A, "2"))})
    manifest = clean([*records, {"messages": None}], {"max_reject_fraction": 0.9})
    sums = manifest.data["sources"]["mine"]["answers"]
    assert sums["found"] == sums["rows"] + sum(sums["skipped"].values())
    assert sums["found"] > 30
    assert sums["skipped"]["unpaired_surrogate"] == 2
    ledger = manifest.data["sources"]["mine"]["ledger"]
    assert sums["rows"] == ledger["rows_out"]
    assert ledger["notes"]["empty_answer (one answer left out)"] == 2
    assert ledger["notes"]["unanswered_question"] == 1
    assert ANSWERS not in ledger["notes"]
    assert ledger["dropped"]["no_answer"] == ledger["dropped"]["no_messages"] == 1
    assert "answers" not in manifest.data["sources"]["pairs"]
    page = report_of(manifest).html()
    assert "Answers of chats" in page
    assert "2 empty_answer" in page


def test_what_a_chat_says_beside_its_texts_is_counted_and_told(clean: Cleaned) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    one = said((U, "Two?"), (A, "2"), (U, "Three?"), (A, "3"))
    one[1] |= {"reasoning_content": "One and one.", "weight": 0}
    one[3] |= {"reasoning": "", "weight": 1}
    two = [
        *said((U, "Four?")),
        call,
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "4", "weight": 0.0},
    ]
    two[3]["thinking"] = "The tool said it."
    records = [
        {"messages": one},
        {"messages": two, "tools": [{"type": "function"}]},
        {"messages": TWO, "tools": "[]"},
        {"messages": said((U, "Only asked?")), "tools": [1]},
        {"messages": said((U, "Five?"), (A, "5")), "tools": '[{"name": "f"}]'},
    ]
    manifest = clean(records)
    mine = manifest.data["sources"]["mine"]
    notes = {name: count for name, count in mine["ledger"]["notes"].items() if "answer" not in name}
    assert notes == {"reasoning_left_out": 2, "tools_left_out": 2, "weight_0_taught": 2}
    assert mine["answers"]["skipped"]["tool_call_only"] == 1
    (told,) = [line for line in report_of(manifest).look_at if line.startswith("mine: ")]
    assert "2 messages with reasoning" in told
    assert "2 records that declare tools" in told
    assert "1 turns that call a tool" in told
    assert "2 answers of weight 0" in told


def test_a_source_of_prompts_alone_is_told_with_its_count(clean: Cleaned) -> None:
    records = [{"messages": said((U, f"What is {n}?"))} for n in range(50)]
    with pytest.raises(
        InputError, match="no record of mine gives a row; got records with ground_truth, dropped as 50 no_a"
    ):
        clean([record | {"ground_truth": "1"} for record in records])
    manifest = clean(records)
    (told,) = sentences(manifest)
    assert told.startswith(
        "Half or more of the rows or tokens is gone of mine (50 → 0 rows; no answer; answer:, use: pro"
    )
    assert "; as mine/" in told


def test_a_part_of_an_odd_kind_is_no_defect(load: Load) -> None:
    odd: list[Any] = [{"type": {}, "text": "x"}, {"type": [], "text": "x"}, {"type": None, "text": "x"}]
    for part in odd:
        found = parse(load(), {"messages": said((U, [part]), (A, "1"))})
        assert Drop("content_beyond_text") in found


def test_tools_in_a_column_of_their_own_are_counted(tmp_path: Path) -> None:
    columns = {"messages": [TWO, TWO], "tools": ["[1]", None], "other": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    keys = CHAT | {"files": "a.parquet"}
    del keys["hub"]
    (tmp_path / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    manifest = runner.run(Clean(), config).manifest
    assert manifest.ledger.notes["tools_left_out"] == 1


def test_the_option_redoes_the_shards_of_chats_alone(clean: Cleaned) -> None:
    records = [{"messages": TWO}]
    manifests = [clean(records, options) for options in ({}, {"turns": "all"}, {"turns": "last"})]
    assert [one.ledger.rows_out for one in manifests] == [3, 3, 2]
    assert manifests[0].fingerprint != manifests[2].fingerprint
    assert manifests[2].options["turns"] == "last"
    files = [{file.path: file.digest for file in one.files} for one in manifests]
    assert files[0]["data/mine.jsonl"] == files[1]["data/mine.jsonl"] != files[2]["data/mine.jsonl"]
    (kept,) = {one["data/pairs.jsonl"] for one in files}
    assert kept


def test_a_list_that_no_record_has_is_an_error_with_the_line_to_write(clean: Cleaned) -> None:
    with pytest.raises(InputError, match=r"no record of mine has 'mesages'.*did you mean 'messages'"):
        clean([{"messages": TWO}] * 3, turns="mesages")
    with pytest.raises(InputError, match=r"role: who\n.*missing_role \(found an object with who, content, 3 such\)"):
        clean([{"messages": said((U, "Hi"), (A, "Yo"), role="who")}] * 3)


# --- examples -------------------------------------------------------------------------------------------------------


def test_the_examples_make_rows() -> None:
    sharegpt, openai = (mapped.load(str(EXAMPLES / f"{name}.yaml")) for name in ("sharegpt", "openai_messages"))
    hello = said(("human", "Hi"), ("gpt", "Hello"), role="from", content="value")
    assert parse(sharegpt, {"conversations": hello})[0] == Row("noisy,direct", "Hi", "Hello")
    turns = [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in ((U, "One?"), (A, "1"), (U, "Two?"))]
    rows = [part for part in parse(openai, {"messages": TWO}) if isinstance(part, Row)]
    assert rows == [Row("direct", "".join(turns) + "<|im_start|>assistant\n", "2<|im_end|>\n")]


def test_any_record_of_messages_adds_up(load: Load) -> None:
    """Whatever is in a list of messages: answers = rows + skipped, and the rows are texts."""
    draw = random.Random(20261122)
    sources = [
        load(),
        load(answers="last"),
        load(template='"{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}"'),
    ]
    contents = [
        "Hi",
        "",
        " ",
        None,
        5,
        True,
        ["a"],
        [{"type": "text", "text": "b"}],
        [{"type": "image"}],
        {"text": "x"},
    ]
    kinds: dict[str, int] = {}
    for _ in range(draws(1500)):
        messages: list[Any] = []
        for number in range(draw.randrange(8)):
            role = (
                (U, A)[number % 2]
                if draw.random() < 0.8
                else draw.choice([S, U, A, T, "gpt", "who", None, 5, "tool_call"])
            )
            message: Any = {"role": role, "content": draw.choice(contents) if draw.random() < 0.3 else "text"}
            if draw.random() < 0.05:
                message["tool_calls"] = draw.choice([CALL, [], "x", [5], None])
            messages.append(message if draw.random() < 0.98 else draw.choice([None, "x", [], {}]))
        for source in sources:
            record = {"messages": messages}
            parsed = parse_record(source, record, Context("pairmill"))
            parts = parts_of(parsed)
            (answers,) = (part.times for part in parts if isinstance(part, Note) and part.what == ANSWERS)
            rows, drops = checked(parsed, "pairmill")
            assert len(rows) + len(drops) == max(answers, 1 if not rows else 0)
            for drop in drops:
                kinds[drop.reason] = kinds.get(drop.reason, 0) + 1
                if isinstance(drop, Malformed):
                    assert isinstance(source.explain(record, drop).found, str)
            assert all(isinstance(text, str) for _, row in rows for text in row)
    assert len(kinds) > 14


def test_simple_chats_are_read_at_once_as_message_by_message(load: Load) -> None:
    quick, slow = load(), load()
    vars(slow._chats)["_plain"] = None
    draw = random.Random(7)
    texts = ["one", " two\n", "ünï", "", " ", "User:", "a\nAssistant:\nb", None, ["x"], 5]
    odd: list[Any] = [
        {"weight": 0},
        {"tools": "[{}]"},
        {"tool_calls": CALL},
        {"thinking": "x"},
        {"content": None},
        {"id": 1},
    ]
    odd += [{"role": role} for role in (S, "developer", T, "tool_call", "Human", "who", None, [U])]
    simple = 0
    for _ in range(draws(1500)):
        messages: list[Any] = said((S, "You help.")) if draw.random() < 0.2 else []
        for number in range(draw.randrange(7)):
            text = draw.choice(texts[:3] if draw.random() < 0.9 else texts)
            more = draw.choice(odd) if draw.random() < 0.08 else {}
            messages.append({"role": (U, A)[number % 2], "content": text, **more})
        if draw.random() < 0.05:
            messages.append(draw.choice([None, "x", [], {}]))
        record = {"messages": messages, **({"tools": draw.choice(["[]", [CALL]])} if draw.random() < 0.05 else {})}
        assert parse(quick, record) == parse(slow, record)
        assert parse(quick, {**record, "messages": json.dumps(messages)}) == parse(slow, record)
        simple += quick._chats._plain.chat_rows(record) is not None
    assert draws(400) < simple < draws(1300)


def test_long_histories_are_measured_message_by_message(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chats, "MAX_CHARACTERS", 60)
    record = {"messages": said(*((U, "One?"), (A, "1")) * 3)}
    slow = load()
    vars(slow._chats)["_plain"] = None
    assert [item for item in parse(slow, record) if isinstance(item, Drop)] == [Drop("chat_too_long")]
    # In runs a chat has less than an eighth of the limit.
    for size, is_plain in ((1 << 10, True), (1 << 20, False)):
        long = {"messages": said(*((U, "One?"), (A, "x" * size)) * 4)}
        assert (load()._chats._plain.chat_rows(long) is not None) == is_plain
