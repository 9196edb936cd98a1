"""Tool chats in YAML sources: every shape gives the same rows, and what does not fit is counted under its reason."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.rows import RenderedRow, Row
from pairmill.sources.parsed import ANSWERS, Drop, Malformed, Note, parts_of
from pairmill.sources.source import Context, Source, checked, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of
from tests.support.data.descriptions import Load, loader
from tests.support.helpers import draws

CHATML = (
    "{% if tools %}<|im_start|>tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}"
    "</tool_call>{% endfor %}{% if m.tool_call_id %} of {{ m.tool_call_id }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = {
    "name": "mine",
    "hub": "org/mine",
    "condition": "direct",
    "turns": "messages",
    "template": "a.jinja",
    "tags": "['why=<|why|>']",
}
NAMES = ["weather", "clock", "look_up"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"It's {name}.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
                "required": ["city"],
            },
        },
    }
    for name in NAMES
]
U, A, T, S = "user", "assistant", "tool", "system"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a YAML file of chats that a template with tools renders."""
    (tmp_path / "a.jinja").write_text(CHATML)
    return loader(tmp_path, CHAT)


def parse(source: Source, record: Any) -> list[Any]:
    return list(parts_of(parse_record(source, record, Context("pairmill"))))


def rows_of(source: Source, record: Any) -> list[Row]:
    return [part for part in parse(source, record) if isinstance(part, Row)]


def notes_of(parts: list[Any]) -> dict[str, int]:
    return {part.what: part.times for part in parts if isinstance(part, Note) and part.what != ANSWERS}


def call(name: str = "weather", call_id: str = "", **arguments: Any) -> dict[str, Any]:
    made = {"type": "function", "function": {"name": name, "arguments": arguments or {"city": "X"}}}
    return {"id": call_id, **made} if call_id else made


def calling(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"role": A, "content": text, "tool_calls": list(calls)}


def result(text: Any = "sun", **fields: Any) -> dict[str, Any]:
    return {"role": T, "content": text, **fields}


def said(role: str, text: Any) -> dict[str, Any]:
    return {"role": role, "content": text}


def drawn_chat(draw: random.Random, turns: int = 4) -> list[dict[str, Any]]:
    """A chat in the one form; ids are those that calls without one get."""
    words = ["Århus", "it's", 'say "hi"', "a\nb", "\\ and {", "日本", "<b>"]
    messages = [said(S, "Be brief.")] * draw.randrange(2)
    number = 0
    for _ in range(draw.randrange(1, turns)):
        messages.append(said(U, draw.choice(words)))
        for _ in range(draw.randrange(3)):
            calls = []
            for _ in range(draw.randrange(1, 4)):
                city, days = {"city": draw.choice(words)}, {"days": draw.randrange(9)} if draw.random() < 0.5 else {}
                calls.append(call(draw.choice(NAMES), f"call{number:05d}", **city, **days))
                number += 1
            messages.append(calling(*calls))
            messages += [result(draw.choice(words), tool_call_id=item["id"]) for item in calls]
        messages.append(said(A, draw.choice(words)))
    return messages


def each(change: Callable[[dict[str, Any]], Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with their calls changed, and without ids."""
    made = []
    for message in messages:
        kept = {key: value for key, value in message.items() if key != "tool_call_id"}
        if "tool_calls" in kept:
            kept["tool_calls"] = [change(item["function"]) for item in kept["tool_calls"]]
        made.append(kept)
    return made


def lines(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for message in each(dict, messages):
        calls = message.pop("tool_calls", [])
        written = [
            f"{item['name']}({', '.join(f'{key}={value!r}' for key, value in item['arguments'].items())})"
            for item in calls
        ]
        made.append({**message, **({"content": None, "function_calls": "\n".join(written)} if calls else {})})
    return made


def merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Several results in one message."""
    made: list[dict[str, Any]] = []
    for message in each(lambda item: {"function": item}, messages):
        if message["role"] == T and made[-1]["role"] == T:
            made[-1]["content"].append(message["content"])
        else:
            made.append({**message, "content": [message["content"]]} if message["role"] == T else message)
    for item in made:
        if item["role"] == T and len(item["content"]) == 1:
            item["content"] = item["content"][0]
    return made


def restarted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ids that begin at call_0 in each turn."""
    made, ids = [], {}
    for message in json.loads(json.dumps(messages)):
        for place, item in enumerate(message.get("tool_calls", ())):
            ids[item["id"]] = item["id"] = f"call_{place}"
        if "tool_call_id" in message:
            message["tool_call_id"] = ids[message["tool_call_id"]]
        made.append(message)
    return made


def xml(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for message in each(dict, messages):
        calls = "".join(f"<tool_call>\n{json.dumps(item)}\n</tool_call>\n" for item in message.pop("tool_calls", ()))
        made.append({**message, "content": message["content"] + calls})
    return made


def sharegpt(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls in messages of their own, one after another."""
    made = []
    for message in each(dict, messages):
        calls = message.pop("tool_calls", [])
        made += [{"from": "function_call", "value": json.dumps(item)} for item in calls]
        if not calls:
            role = {U: "human", A: "gpt", T: "observation", S: "system"}[message["role"]]
            made.append({"from": role, "value": message["content"]})
    return made


def with_tools(text: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if messages[0]["role"] == S:
        return [said(S, f"{messages[0]['content']}{text}"), *messages[1:]]
    return [said(S, text), *messages]


SHAPES: dict[str, Callable[[list[dict[str, Any]]], dict[str, Any]]] = {
    "OpenAI's with arguments as JSON": lambda chat: {
        "messages": each(lambda item: {"function": {**item, "arguments": json.dumps(item["arguments"])}}, chat),
        "tools": TOOLS,
    },
    "tools as JSON": lambda chat: {"messages": chat, "tools": json.dumps(TOOLS)},
    "tools as Python": lambda chat: {"messages": chat, "tools": repr(TOOLS)},
    "the function is a name": lambda chat: {
        "messages": each(lambda item: {"function": item["name"], "arguments": item["arguments"]}, chat),
        "tools": TOOLS,
    },
    "the function is a name, with parameters": lambda chat: {
        "messages": each(lambda item: {"function": item["name"], "parameters": item["arguments"]}, chat),
        "tools": [tool["function"] for tool in TOOLS],
    },
    "calls as lines": lambda chat: {"messages": lines(chat), "tools": TOOLS},
    "results of the environment": lambda chat: {
        "messages": [{**item, "role": "environment"} if item["role"] == T else item for item in lines(chat)],
        "tools": TOOLS,
    },
    "several results in one message": lambda chat: {"messages": merged(chat), "tools": TOOLS},
    "ids that begin again": lambda chat: {"messages": restarted(chat), "tools": TOOLS},
    "functions of the system message": lambda chat: {
        "messages": [{**item, "functions": json.dumps(TOOLS)} if item["role"] == S else item for item in chat]
        if chat[0]["role"] == S
        else [{**said(S, ""), "functions": TOOLS}, *chat]
    },
    "tools within the system text": lambda chat: {
        "messages": with_tools(f"\n<tools>{json.dumps(TOOLS)}</tools>", xml(chat))
    },
    "tools after a dash": lambda chat: {"messages": with_tools(f" Use these - {TOOLS!r}", chat)},
    "ShareGPT's": lambda chat: {"messages": sharegpt(chat), "tools": json.dumps(TOOLS)},
}


def rendered(messages: list[dict[str, Any]], tools: Any) -> list[tuple[str, str]]:
    """The plain recipe: prompt and rest of the whole for each answer, by jinja2 alone."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers has it
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(CHATML)
    made = []
    for place, message in enumerate(messages):
        if message["role"] == A:
            prompt = template.render(messages=messages[:place], tools=tools, add_generation_prompt=True)
            whole = template.render(messages=messages[: place + 1], tools=tools, add_generation_prompt=False)
            assert whole.startswith(prompt)
            made.append((prompt, whole[len(prompt) :]))
    return made


def without_dash(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (first, *others) = with_tools(" Use these", messages)
    return [said(S, first["content"].strip()), *others]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_gives_the_rows_of_the_one_form(load: Load, shape: str) -> None:
    draw, source, seen = random.Random(f"shape {shape}"), load(), 0
    for _ in range(draws(40)):
        chat = drawn_chat(draw)
        record = json.loads(json.dumps(SHAPES[shape](chat)))
        expected = chat
        if shape == "tools after a dash":
            expected = without_dash(chat)
        if shape == "ids that begin again":
            expected = json.loads(json.dumps(chat))
            seen_ids: set[str] = set()
            renamed = {}
            for message in expected:
                for place, item in enumerate(message.get("tool_calls", ())):
                    old = item["id"]
                    item["id"] = f"call_{place}" if f"call_{place}" not in seen_ids else f"call{len(seen_ids):05d}"
                    seen_ids.add(item["id"])
                    renamed[old] = item["id"]
                if "tool_call_id" in message:
                    message["tool_call_id"] = renamed[message["tool_call_id"]]
        parts = parse(source, record)
        rows = [part for part in parts if isinstance(part, Row)]
        assert [(row.instruction, row.response) for row in rows] == rendered(expected, TOOLS)
        for row, place in zip(rows, [n for n, item in enumerate(expected) if item["role"] == A], strict=True):
            assert isinstance(row, RenderedRow)
            normal = [
                {key: value for key, value in item.items() if value or key != "tool_calls"}
                for item in expected[: place + 1]
            ]
            assert json.loads(row.chat) == {"messages": normal, "tools": TOOLS}
        seen += any("tool_calls" in item for item in chat)
        (answers,) = (part.times for part in parts if isinstance(part, Note) and part.what == ANSWERS)
        assert answers == len(rows)
    assert seen > draws(20)


# --- faults ---------------------------------------------------------------------------------------------------------


def planted(reason: str, draw: random.Random) -> dict[str, Any]:
    """A chat with two good answers, and then one fault."""
    begin = [said(U, "Hi"), said(A, "Hello"), said(U, "Weather?"), calling(call(call_id="a")), result(tool_call_id="a")]
    more = [said(A, "Sun."), said(U, "Thanks."), said(A, "Sure.")]
    bad: dict[str, list[list[dict[str, Any]]]] = {
        "tool_ids": [
            [said(A, "…"), said(U, "?"), calling(call(call_id="b"), call(call_id="b")), result(), result()],
            [said(A, "…"), said(U, "?"), calling(call(call_id="b")), result(tool_call_id="c")],
        ],
        "results_match_calls": [
            [calling(call(call_id="b"), call(call_id="c")), result(tool_call_id="b")],
            [calling(call(call_id="b")), result(tool_call_id="b"), result()],
        ],
        "arguments_match_schema": [
            [calling(call(city=draw.choice([5, None, ["X"], True]))), result()],
            [calling(call(days=1)), result()],
            [calling(call(city="X", unit="K")), result()],
        ],
        "declared_name": [[calling(call(draw.choice(["wether", "Weather", "clock()"]))), result()]],
        "foreign_marks": [
            [said(A, f"So {mark} it is."), said(U, "?")] for mark in ("[/INST]", "<|endoftext|>", "<tools>")
        ],
        "call_unparsed": [[{"role": A, "content": "", "function_calls": "what is it?"}, result()]],
        "arguments_unparsed": [
            [calling({"function": {"name": "weather", "arguments": text}}), result()]
            for text in ('{"city": ', "[1]", "Århus", '{"city": NaN}')
        ],
    }  # fmt: skip
    fault = draw.choice(bad[reason])
    return {"messages": [*begin, *fault, *more], "tools": TOOLS}


FAULTS = ["tool_ids", "results_match_calls", "arguments_match_schema", "declared_name", "foreign_marks",
          "call_unparsed", "arguments_unparsed"]  # fmt: skip

Cleaned = Callable[..., Manifest]


@pytest.fixture
def clean(tmp_path: Path) -> Cleaned:
    """Cleans records by a YAML file of chats with these keys."""

    def cleaned(records: list[Any], **keys: str | None) -> Manifest:
        (tmp_path / "a.jinja").write_text(CHATML)
        (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
        values = {key: value for key, value in {**CHAT, "hub": None, "files": "a.jsonl", **keys}.items() if value}
        (tmp_path / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
        return runner.run(Clean(), config).manifest

    return cleaned


def test_each_fault_is_counted_as_often_as_it_is_planted(clean: Cleaned) -> None:
    draw, times = random.Random(32), draws(100)
    records = [planted(reason, draw) for reason in FAULTS for _ in range(times)]
    draw.shuffle(records)
    clean_chats = [{"messages": drawn_chat(draw), "tools": TOOLS} for _ in range(50)]
    mine = clean(records + clean_chats).data["sources"]["mine"]
    assert mine["chats"]["ended"] == dict.fromkeys(sorted(FAULTS), times)
    assert mine["chats"]["chats"] == len(records) + 50
    answers = mine["answers"]
    assert answers["found"] == sum(
        message["role"] == A for record in (*records, *clean_chats) for message in record["messages"]
    )
    assert answers["found"] == answers["rows"] + sum(answers["skipped"].values())
    assert answers["rows"] == mine["ledger"]["rows_out"]
    assert set(answers["skipped"]) == set(FAULTS)
    assert mine["ledger"]["dropped"] == {}
    called = Counter(
        item["function"]["name"]
        for chat in clean_chats
        for message in chat["messages"]
        for item in message.get("tool_calls", ())
    )
    assert mine["chats"]["distinct_tools"] == 3
    assert mine["chats"]["top_tools"]["clock"] == called["clock"]
    dropped = clean(records, on_fault="drop_chat").data["sources"]["mine"]
    assert dropped["answers"]["rows"] == 0
    assert dropped["ledger"]["dropped"] == dict.fromkeys(FAULTS, times)
    some = clean(records, on_fault="{declared_name: drop_chat, tool_ids: keep}").data["sources"]["mine"]
    assert some["ledger"]["dropped"] == {"declared_name": times}
    assert some["ledger"]["notes"]["tool_ids_kept"] == times


def test_checks_that_are_kept_lose_no_answer(load: Load) -> None:
    draw = random.Random(33)
    source = load(on_fault="keep")
    for reason in FAULTS[:5]:
        for _ in range(8):
            record = planted(reason, draw)
            parts = parse(source, record)
            assert notes_of(parts)[f"{reason}_kept"] == 1
            assert sum(isinstance(part, Row) for part in parts) == sum(m["role"] == A for m in record["messages"])


@pytest.mark.parametrize(
    ("message", "reason", "found"),
    [
        (calling({"function": {"name": "f", "arguments": "{"}}), "arguments_unparsed", "f: Expecting property name"),
        ({"role": A, "content": "", "function_calls": "is it?"}, "call_unparsed", "is it?: no"),
        ({"role": A, "content": "x", "reasoning": 5}, "reasoning_is_no_text", "int in reasoning"),
    ],
)
def test_what_cannot_be_read_comes_with_what_was_found_and_the_line(
    load: Load, message: dict[str, Any], reason: str, found: str
) -> None:
    record = {"messages": [said(U, "Hi"), message]}
    (first, *_) = parse(load(), record)
    assert first == Malformed(reason)
    finding = load().explain(record, first)
    assert finding.found.startswith(found)
    if reason != "reasoning_is_no_text":
        assert finding.write == f"on_fault: {{{reason}: drop_chat}}"
        assert parse(load(on_fault=finding.write.removeprefix("on_fault: ")), record)[0] == Drop(reason)


def test_declarations_that_cannot_be_read_are_told(load: Load, clean: Cleaned) -> None:
    record = {"messages": [said(U, "Hi"), said(A, "Hello")], "tools": [{"type": "function"}]}
    (first, *_) = parse(load(), record)
    assert first == Malformed("tools_unparsed")
    assert load().explain(record, first).found == 'a tool without a name: {"type": "function"}'
    with pytest.raises(InputError, match=r"on_fault: \{tools_unparsed: drop_chat\}"):
        clean([record] * 3)


# --- targets, weights, reasoning ------------------------------------------------------------------------------------


def test_targets_are_texts_calls_or_both(load: Load) -> None:
    record = {"messages": drawn_chat(random.Random(5), 9), "tools": TOOLS}
    by_kind = {kind: rows_of(load(targets=kind), record) for kind in ("text", "calls", "both")}
    assert len(by_kind["text"]) > 1
    assert len(by_kind["calls"]) > 1
    assert sorted(by_kind["text"] + by_kind["calls"]) == sorted(by_kind["both"]) == sorted(rows_of(load(), record))
    assert all("<tool_call>" in (row.response or "") for row in by_kind["calls"])
    assert not any("<tool_call>" in (row.response or "") for row in by_kind["text"])
    skipped = Counter(part.reason for part in parse(load(targets="text"), record) if isinstance(part, Drop))
    assert skipped == {"not_the_target": len(by_kind["calls"])}


@pytest.mark.parametrize("template", ["a.jinja", "plain"])
def test_weights_and_indexes_are_what_brute_force_takes(load: Load, template: str) -> None:
    draw = random.Random(15)
    everything = load(template=template)
    source = load(template=template, weights="weight", target_index="at")
    listed = load(template=template, weights="weights")
    for _ in range(60):
        messages = [said((U, A)[n % 2], f"{n}?") for n in range(2 * draw.randrange(1, 8))]
        for message in messages:
            message["weight"] = draw.choice([0, 1, 1.0, None, True, False])
        answers = list(range(1, len(messages), 2))
        at: Any = draw.choice([None, draw.sample(answers, draw.randrange(len(answers) + 1)), draw.choice(answers), -1])
        record = {"messages": messages, "at": at, "weights": [message.pop("weight") for message in messages]}
        places = [] if at is None else [item % len(messages) for item in (at if isinstance(at, list) else [at])]
        rows = rows_of(everything, record)
        taught = [place for place in answers if record["weights"][place] in (1, None)]
        assert rows_of(listed, record) == [rows[place // 2] for place in taught]
        for message, weight in zip(messages, record["weights"], strict=True):
            message["weight"] = weight
        parts = parse(source, record)
        expected = [place for place in answers if place in places and place in taught]
        assert [part for part in parts if isinstance(part, Row)] == [rows[place // 2] for place in expected]
        drops = Counter(part.reason for part in parts if isinstance(part, Drop))
        assert drops["weight_zero"] == len(set(places)) - len(expected)
        assert drops["not_the_target"] == len(answers) - len(set(places))
        assert "weight_0_taught" not in notes_of(parts)


@pytest.mark.parametrize(
    ("keys", "fields", "reason", "found"),
    [
        ({"weights": "weight"}, {"weight": 0.5}, "weight_is_not_0_or_1", "the weight 0.5: rows have no loss weight"),
        ({"weights": "weight"}, {"weight": "1"}, "weight_is_not_0_or_1", "the weight '1'"),
        ({"weights": "w"}, {"w": [1]}, "weights_do_not_fit_messages", "a list of 1 beside 2"),
        ({"weights": "w"}, {"w": 5}, "weights_do_not_fit_messages", "a number beside 2"),
        ({"target_index": "i"}, {"i": 0}, "target_index_is_no_answer", "0 with 2 messages"),
        ({"target_index": "i"}, {"i": 7}, "target_index_is_no_answer", "7 with 2"),
        ({"target_index": "i"}, {"i": "1"}, "target_index_is_no_answer", "'1' with"),
        ({"target_index": "i"}, {"i": True}, "target_index_is_no_answer", "True with"),
        ({"target_index": "i"}, {}, "missing_i", ""),
    ],
)
def test_weights_and_indexes_that_cannot_be_used_are_malformed(
    load: Load, keys: dict[str, str], fields: dict[str, Any], reason: str, found: str
) -> None:
    source = load(**keys)
    answer = {**said(A, "!"), **{key: value for key, value in fields.items() if key == "weight"}}
    record = {"messages": [said(U, "?"), answer], **{key: value for key, value in fields.items() if key != "weight"}}
    (first,) = parse(source, record)
    assert first == Malformed(reason)
    assert found in source.explain(record, first).found


def test_first_stride_and_most_bound_a_chat(load: Load) -> None:
    messages = [said((U, A)[n % 2], str(n)) for n in range(40)]
    for template in ("a.jinja", "plain"):
        rows = rows_of(load(template=template), {"messages": messages})
        for keys, expected in (
            ({"answers": "first"}, rows[:1]),
            ({"stride": "6"}, rows[1::6]),
            ({"stride": "6", "max_targets_per_chat": "2"}, [rows[13], rows[19]]),
            ({"max_targets_per_chat": "3"}, rows[-3:]),
        ):
            assert rows_of(load(template=template, **keys), {"messages": messages}) == expected


def test_reasoning_is_kept_dropped_or_a_condition(load: Load) -> None:
    field = [said(U, "2+2?"), {**said(A, "4"), "reasoning_content": "Two and two."}, said(U, "?"), said(A, "5")]
    marks = [said(U, "2+2?"), said(A, "<think>\nTwo and two.\n</think>\n4"), said(U, "?"), said(A, "5")]
    first = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    later = first + "{}4<|im_end|>\n<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    for chat in (field, marks):
        record = {"messages": chat}
        kept = [("", first, "<think>Two and two.</think>\n4<|im_end|>\n"),
                ("", later.format("<think>Two and two.</think>\n"), "5<|im_end|>\n")]  # fmt: skip
        assert [tuple(row) for row in rows_of(load(reasoning="keep"), record)] == [("direct", *row[1:]) for row in kept]
        tags = [row.condition for row in rows_of(load(reasoning="condition:why"), record)]
        assert tags == ["direct,why", "direct"]
        dropped = rows_of(load(reasoning="drop"), record)
        assert [row.response for row in dropped] == ["4<|im_end|>\n", "5<|im_end|>\n"]
        assert dropped[1].instruction == later.format("")
        plain = "User:\n2+2?\n\nAssistant:\n4\n\nUser:\n?"
        for use, answer, tag in (
            ("keep", "<think>\nTwo and two.\n</think>\n\n4", "direct"),
            ("drop", "4", "direct"),
            ("condition:why", "<think>\nTwo and two.\n</think>\n\n4", "direct,why"),
        ):
            parts = parse(load(template="plain", reasoning=use), record)
            assert parts[:2] == [Row(tag, "2+2?", answer), Row("direct", plain, "5")]
            assert "reasoning_left_out" not in notes_of(parts)
    # Nothing is said: fields go to the template, texts stay as they are.
    assert rows_of(load(), {"messages": field}) == rows_of(load(reasoning="keep"), {"messages": field})
    assert rows_of(load(), {"messages": marks})[0].response == "<think>\nTwo and two.\n</think>\n4<|im_end|>\n"


def test_a_tag_that_the_condition_has_is_not_added_again(load: Load) -> None:
    record = {"messages": [said(U, "?"), {**said(A, "4"), "reasoning": "r"}]}
    assert [row.condition for row in rows_of(load(reasoning="condition:cot", condition="cot"), record)] == ["cot"]


def test_what_a_template_does_not_write_is_told(tmp_path: Path, load: Load, clean: Cleaned) -> None:
    (tmp_path / "b.jinja").write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
                                      "{% if add_generation_prompt %}[assistant]{% endif %}")  # fmt: skip
    messages = [said(U, "?"), calling(call()), result(), {**said(A, "4"), "reasoning": "Because."}]
    parts = parse(load(template="b.jinja"), {"messages": messages, "tools": TOOLS})
    assert [part.reason for part in parts if isinstance(part, Drop)] == ["calls_not_rendered"]
    notes = notes_of(parts)
    assert (notes["tools_not_rendered"], notes["reasoning_not_rendered"]) == (1, 1)
    whole = notes_of(parse(load(), {"messages": messages, "tools": TOOLS}))
    assert not {name for name in whole if "rendered" in name}
    manifest = clean([{"messages": messages, "tools": TOOLS}] * 3, template="b.jinja")
    (told,) = [line for line in report_of(manifest).look_at if line.startswith("mine: ")]
    for text in ("3 turns that call a tool whose template", "3 rows whose template", "3 chats whose template"):
        assert text in told
    assert "weather" in report_of(manifest).html()


def test_the_cost_of_repeated_prompts_is_summed_up(clean: Cleaned) -> None:
    chats = [[said((U, A)[n % 2], "x" * 10) for n in range(2 * turns)] for turns in (1, 4)]
    sums = clean([{"messages": chat} for chat in chats], template="plain").data["sources"]["mine"]["chats"]
    blocks = [10, *(len("User:\n\n\nAssistant:\n\n\n") * n + 20 * n + len("User:\n") + 10 for n in (1, 2, 3))]
    assert sums["prompt_characters"] == 10 + sum(blocks)
    assert sums["repeated_characters"] == sum(blocks) - max(blocks)
    assert sums["response_characters"] == 50
    assert (sums["chats"], sums["call_targets"], sums["ended"]) == (2, 0, {})


def test_columns_of_parquet_are_read(tmp_path: Path, load: Load) -> None:
    load()
    chat = [said(U, "?"), calling(call(city="X", days=1)), result(), said(A, "4")]
    texts = [{**item, "tool_calls": json.dumps(item["tool_calls"]) if "tool_calls" in item else None} for item in chat]
    columns = {
        "messages": [texts] * 2,
        "tools": [json.dumps(TOOLS), None],
        "w": [[1, 1, 1, 0], [1, 1, 1, 1]],
        "x": [1, 2],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    keys = {**CHAT, "files": "a.parquet", "weights": "w"}
    del keys["hub"]
    (tmp_path / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    mine = runner.run(Clean(), config).manifest.data["sources"]["mine"]
    assert mine["answers"] | {"chats": 0} == {"found": 4, "rows": 3, "skipped": {"weight_zero": 1}, "chats": 0}
    assert mine["ledger"]["notes"]["mended_tools_as_text"] == 1


def test_nulls_of_columns_are_no_arguments_and_no_parameters(load: Load) -> None:
    def parameters(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": ["city"]}

    city = {"type": "string", "default": None}
    tool = {
        "type": "function",
        "function": {"name": "weather", "parameters": parameters(city={**city, "enum": None}, at=None)},
    }
    chat = [said(U, "?"), calling(call(city="X", at=None, days=None)), result(), said(A, "4")]
    parts = parse(load(), {"messages": chat, "tools": [tool]})
    whole = json.loads(next(part.chat for part in parts if isinstance(part, RenderedRow)))
    assert whole["tools"][0]["function"]["parameters"] == parameters(city=city)
    assert whole["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"city": "X"}
    notes = notes_of(parts)
    assert (notes["mended_null_arguments"], notes["mended_null_parameters"]) == (1, 1)
    # A null for a name that is declared is an argument.
    chat = [said(U, "?"), calling(call(city="X", days=None)), result(), said(A, "4")]
    (row, *_) = rows_of(load(), {"messages": chat, "tools": TOOLS})
    assert isinstance(row, RenderedRow)
    assert '"arguments":{"city":"X","days":null}' in row.chat


def test_tools_are_found_where_the_path_says(load: Load) -> None:
    chat = [{**said(U, "?"), "declared": TOOLS}, calling(call()), result(), said(A, "4")]
    expected = rows_of(load(), {"messages": [said(U, "?"), *chat[1:]], "tools": TOOLS})
    source = load(tools="declared")
    assert rows_of(source, {"messages": chat}) == expected
    assert rows_of(source, {"messages": chat, "declared": TOOLS[:0], "tools": [5]}) == expected
    assert rows_of(load(tools="meta.tools"), {"messages": chat, "meta": {"tools": TOOLS}}) == expected
    assert rows_of(load(turns="chat.messages"), {"chat": {"messages": chat, "tools": TOOLS}}) == expected
    assert notes_of(parse(load(tools="nothing"), {"messages": chat}))["tools_missing"] == 1


# --- the description ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"template": "plain", "tools": "tools"}, "tools: needs a template:"),
        ({"template": None, "targets": "calls"}, "targets: needs a template:"),
        ({"template": "plain", "on_fault": "keep"}, "on_fault: needs a template:"),
        ({"tools": "a b"}, "tools: not a valid path"),
        ({"targets": "call"}, "targets: unknown value; got 'call'; expected text or calls or both"),
        ({"on_fault": "end"}, "on_fault: unknown value; got 'end'; expected end_chat or drop_chat or keep"),
        ({"on_fault": "{tool_id: keep}"}, "tool_id: unknown fault; .*did you mean 'tool_ids'"),
        ({"on_fault": "{tool_ids: kept}"}, "tool_ids: unknown value; got 'kept'.*did you mean 'keep'"),
        (
            {"on_fault": "{call_unparsed: keep}"},
            "got 'keep'; expected end_chat or drop_chat; what cannot be read cannot be kept",
        ),
        ({"on_fault": "{tool_ids: [1]}"}, "tool_ids: unknown value"),
        ({"reasoning": "kept"}, "reasoning: unknown value; got 'kept'"),
        ({"reasoning": "condition"}, "reasoning: unknown value; got 'condition'.*write 'reasoning: condition:cot'"),
        ({"reasoning": "keep:cot"}, "reasoning: unknown value"),
        ({"reasoning": "condition:wy"}, "unknown tag; got 'wy'.*did you mean 'why'"),
        ({"reasoning": "{mark: x}"}, "mark: unknown key 'mark'; .*did you mean 'marks'"),
        ({"reasoning": "{marks: x}"}, "marks: not two marks; got 'x'"),
        ({"reasoning": "{marks: [a]}"}, "marks: not two marks; got a list of 1"),
        ({"reasoning": "{path: [a, 5]}"}, "path: not a path within a message"),
        ({"reasoning": "{path: {a: b}}"}, "path: not a path within a message"),
        ({"reasoning": "{use: 5}"}, "use: not a text; got 5"),
        ({"reasoning": "[a]"}, "reasoning: not a text"),
        ({"weights": "5"}, "weights: not a text"),
        ({"target_index": "a b"}, "target_index: not a valid path"),
        ({"stride": "0"}, "stride: not a number of at least 1"),
        ({"max_targets_per_chat": "many"}, "max_targets_per_chat: not a number of at least 1"),
        ({"turns": None, "instruction": "q", "response": "a", "template": None, "stride": "2"}, "stride: needs turns:"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_line_to_write(
    load: Load, keys: dict[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load(**keys)


def test_another_meaning_is_another_version(load: Load) -> None:
    changes: list[dict[str, str]] = [
        *({}, {"tools": "declared"}, {"targets": "text"}, {"on_fault": "keep"}, {"on_fault": "{tool_ids: keep}"}),
        *({"reasoning": "keep"}, {"reasoning": "drop"}, {"reasoning": "condition:cot"}, {"reasoning": "{path: why}"}),
        *({"target_index": "i"}, {"weights": "w"}, {"stride": "2"}, {"max_targets_per_chat": "2"}),
        {"answers": "first"},
    ]
    versions = [load(**change).version for change in changes]
    assert len(set(versions)) == len(changes)
    assert load(targets="both", stride="1", answers="all").version == versions[0]


# --- hostile values -------------------------------------------------------------------------------------------------


def test_text_that_is_no_unicode_is_malformed_wherever_it_is(clean: Cleaned) -> None:
    call_of_odd = calling({"function": {"name": "f", "arguments": {"\ud800": "\udfff"}}})
    records: list[Any] = [
        {"messages": [{**said(U, "a"), "name": "\ud800"}, said(A, "b")]},
        {"messages": [said(U, "a"), {**said(A, "b"), "reasoning": "\ud800"}]},
        {"messages": [said(U, "a"), said(A, "b")], "tools": [{"name": "x\ud800"}]},
        {"messages": [said(U, "a"), call_of_odd, result(), said(A, "b")]},
        {"messages": [said(U, "a"), {**said(A, ""), "function_calls": r"f(a='\ud800')"}, result(), said(A, "b")]},
    ]
    good = {"messages": [said(U, "a"), said(A, "b")]}
    with pytest.raises(InputError, match=r"(?s)5 of 6 records.*unpaired_surrogate"):
        clean([*records, good])


def test_whatever_is_in_a_record_adds_up(load: Load) -> None:
    """Numbers, nulls, lists and objects in every place: answers = rows + skipped, and nothing else happens."""
    draw = random.Random(20261126)
    sources = [
        load(),
        load(on_fault="keep", reasoning="keep"),
        load(on_fault="drop_chat", reasoning="drop"),
        load(template="plain", reasoning="condition:why", weights="weight"),
        load(tools="declared", weights="weights", target_index="at", stride="2", max_targets_per_chat="1"),
    ]
    odd: list[Any] = [
        *(
            None,
            5,
            0.5,
            True,
            "",
            "x",
            [],
            {},
            [[]],
            [None],
            {"a": None},
            "[1]",
            "{}",
            "f(a=1)",
            [{"name": 5}],
            float("nan"),
        ),
        *("\ud800", 10**400, [[[[5]]]], {"function": {"name": "weather", "arguments": {"city": [None]}}}),
    ]
    keys = [
        *("role", "content", "tool_calls", "tool_call_id", "name", "function_call", "function_calls", "functions"),
        *("reasoning", "reasoning_content", "weight", "tools", "declared"),
    ]
    kinds: Counter[str] = Counter()
    for _ in range(draws(500)):
        record: dict[str, Any] = {
            "messages": drawn_chat(draw),
            "tools": TOOLS,
            "at": -1,
            "weights": None,
            "declared": TOOLS,
        }
        for _ in range(draw.randrange(3)):
            record["messages"] = [dict(item) if isinstance(item, dict) else item for item in record["messages"]]
            place = draw.randrange(len(record["messages"]))
            if draw.random() < 0.05:
                record["messages"][place] = draw.choice(odd)
            elif isinstance(record["messages"][place], dict):
                record["messages"][place][draw.choice(keys)] = draw.choice(odd)
        if draw.random() < 0.2:
            record[draw.choice(["tools", "at", "weights", "declared", "messages"])] = draw.choice(odd)
        for source in sources:
            parsed = parse_record(source, record, Context("pairmill"))
            parts = parts_of(parsed)
            answers = [part.times for part in parts if isinstance(part, Note) and part.what == ANSWERS]
            rows, drops = checked(parsed, "pairmill")
            if answers and not (len(drops) == 1 and drops[0].reason == "unpaired_surrogate"):
                assert len(rows) + len(drops) == max(answers[0], 1 if not rows else 0)
            kinds.update(drop.reason for drop in drops)
            for drop in drops:
                if isinstance(drop, Malformed):
                    assert isinstance(source.explain(record, drop).found, str)
            for _, row in rows:
                if isinstance(row, RenderedRow):
                    json.loads(row.chat)
    assert len(kinds) > 14
