"""Declarations and calls: every shape seen becomes the same form, and each mended shape is counted."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pairmill.chats.message import ChatFault
from pairmill.chats.tools import calls_in_text, named_tools, parse_calls_in, parse_calls_of, parse_tools, tools_in_text
from tests.support.helpers import draws

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "It's <b>.", "parameters": SCHEMA},
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}},
}
BARE = [WEATHER["function"], CLOCK["function"]]
BOTH = [WEATHER, CLOCK]

DECLARATIONS: dict[str, tuple[Any, set[str]]] = {
    "OpenAI's": (BOTH, set()),
    "as JSON": (json.dumps(BOTH), {"mended_tools_as_text"}),
    "as Python": (repr(BOTH), {"mended_tools_as_python"}),
    "each as JSON": ([json.dumps(item) for item in BOTH], {"mended_tools_as_text"}),
    "objects one a line": ("\n".join(map(json.dumps, BOTH)), {"mended_tools_as_text"}),
    "functions alone": (BARE, {"mended_bare_tool"}),
    "as Anthropic has them": (
        [{("input_schema" if key == "parameters" else key): item for key, item in tool.items()} for tool in BARE],
        {"mended_bare_tool"},
    ),
    "parameters missing": (
        [WEATHER, {"type": "function", "function": {"name": "clock"}}],
        {"mended_parameters_missing"},
    ),
    "parameters null": (
        [WEATHER, {"name": "clock", "parameters": None}],
        {"mended_bare_tool", "mended_parameters_missing"},
    ),
    "parameters as text": (
        [{"type": "function", "function": {**item, "parameters": json.dumps(item["parameters"])}} for item in BARE],
        {"mended_parameters_as_text"},
    ),
    "by name": (
        {item["name"]: {key: item[key] for key in item if key != "name"} for item in BARE},
        {"mended_tools_by_name", "mended_bare_tool"},
    ),
}


@pytest.mark.parametrize("shape", DECLARATIONS)
def test_declarations_of_each_shape_are_openai_s(shape: str) -> None:
    value, mended = DECLARATIONS[shape]
    notes: Counter[str] = Counter()
    assert parse_tools(value, notes) == BOTH
    assert set(notes) == mended


def test_one_tool_alone_and_bare_parameters_are_mended() -> None:
    notes: Counter[str] = Counter()
    assert parse_tools(WEATHER, notes) == parse_tools(BARE[0], notes) == [WEATHER]
    (tool,) = parse_tools([{"name": "f", "parameters": {"a": {"type": "int"}}}], notes)
    assert tool["function"]["parameters"] == {"type": "object", "properties": {"a": {"type": "int"}}}
    assert notes["mended_single_tool"] == 2
    assert notes["mended_parameters_bare"] == 1
    assert (
        parse_tools(None, notes)
        == parse_tools(" ", notes)
        == parse_tools("[]", notes)
        == parse_tools("null", notes)
        == []
    )
    assert list(named_tools([WEATHER, CLOCK, WEATHER])) == ["weather", "clock"]


def test_a_declaration_in_the_one_form_stays_as_it_is() -> None:
    tool = {"function": {"parameters": SCHEMA, "strict": True, "name": "weather"}, "type": "function", "x": 1}
    (made,) = parse_tools([tool], Counter())
    assert json.dumps(made) == json.dumps(tool)


@pytest.mark.parametrize(
    ("text", "rest", "note"),
    [
        (f"Be kind.\n<tools>{json.dumps(BOTH)}</tools>\nGo.", "Be kind.\nGo.", "mended_tools_in_xml"),
        (f"Signatures in <tools></tools>:\n<tools>\n{json.dumps(WEATHER)}\n{json.dumps(CLOCK)}\n</tools>",
         "Signatures in <tools></tools>:", "mended_tools_in_xml"),
        (f"<functions>{json.dumps(BARE)}</functions>", "", "mended_tools_in_xml"),
        (f"<functions>{BARE!r}</functions>", "", "mended_tools_in_xml"),
        (f"Use them -\n{json.dumps(BARE[0])}\n\n{json.dumps(BARE[1])}", "Use them", "mended_tools_after_dash"),
        (f"Well - yes - {BARE!r}", "Well - yes", "mended_tools_after_dash"),
    ],
)  # fmt: skip
def test_declarations_within_a_system_text_are_taken_out(text: str, rest: str, note: str) -> None:
    notes: Counter[str] = Counter()
    assert tools_in_text(text, notes) == (BOTH, rest)
    assert notes[note] == 1


@pytest.mark.parametrize(
    "text", ["", "a - b", "a - {b}", "<tools>", "<tools>none</tools>", "x - [1]", "<tools>" * 9999]
)
def test_a_system_text_without_declarations_stays(text: str) -> None:
    notes: Counter[str] = Counter()
    assert tools_in_text(text, notes) == ([], text)
    assert not notes


def call_of(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def python_line(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={item!r}' for key, item in arguments.items())})"


Given = list[tuple[str, dict[str, Any]]]
CALLS: dict[str, tuple[Callable[[Given], Any], set[str]]] = {
    "OpenAI's with objects": (lambda calls: {"tool_calls": [call_of(*call) for call in calls]}, set()),
    "OpenAI's with JSON": (
        lambda calls: {"tool_calls": [call_of(name, json.dumps(given)) for name, given in calls]},
        {"mended_arguments_as_json"},
    ),
    "JSON within JSON": (
        lambda calls: {"tool_calls": [call_of(name, json.dumps(json.dumps(given))) for name, given in calls]},
        {"mended_arguments_as_json", "mended_arguments_as_json_twice"},
    ),
    "arguments as Python": (
        lambda calls: {"tool_calls": [call_of(name, repr({**given, "x": "it's"})) for name, given in calls]},
        {"mended_arguments_as_python"},
    ),
    "name and arguments": (
        lambda calls: {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]},
        {"mended_bare_call"},
    ),
    "the function is a name": (
        lambda calls: {"tool_calls": [{"function": name, "arguments": given} for name, given in calls]},
        {"mended_function_is_name"},
    ),
    "parameters beside the name": (
        lambda calls: {"tool_calls": [{"function": name, "parameters": json.dumps(given)} for name, given in calls]},
        {"mended_function_is_name", "mended_arguments_in_parameters", "mended_arguments_as_json"},
    ),
    "all of them as JSON": (
        lambda calls: {"tool_calls": json.dumps([call_of(*call) for call in calls])},
        {"mended_calls_as_json"},
    ),
    "function_calls as Python lines": (
        lambda calls: {"function_calls": "\n".join(python_line(*call) for call in calls)},
        {"mended_function_calls", "mended_python_calls"},
    ),
    "function_calls as a Python list": (
        lambda calls: {"function_calls": f"[{', '.join(python_line(*call) for call in calls)}]"},
        {"mended_function_calls", "mended_python_calls"},
    ),
    "function_calls as JSON lines": (
        lambda calls: {"function_calls": "\n".join(json.dumps(call_of(*call)["function"]) for call in calls)},
        {"mended_function_calls", "mended_calls_as_json", "mended_bare_call"},
    ),
    "Python lines in a list": (
        lambda calls: {"tool_calls": [python_line(*call) for call in calls]},
        {"mended_python_calls"},
    ),
}  # fmt: skip


def drawn_calls(draw: random.Random) -> Given:
    words = ["Århus", "it's", '"q"', "a\nb", "\\", "", "<tag>", "{", "日本"]
    values: list[Callable[[], Any]] = [
        lambda: draw.choice(words),
        lambda: draw.randrange(-9, 99),
        lambda: draw.random(),
        lambda: True,
        lambda: None,
    ]
    values += [lambda: [draw.choice(words), 1], lambda: {"a": draw.choice(words)}]
    return [
        (
            draw.choice(["weather", "clock", "get.time", "look_up"]),
            {f"k{n}": draw.choice(values)() for n in range(1, 4)},
        )
        for _ in range(draw.randrange(1, 4))
    ]


@pytest.mark.parametrize("shape", CALLS)
def test_calls_of_each_shape_are_openai_s(shape: str) -> None:
    write, mended = CALLS[shape]
    draw = random.Random(f"calls of {shape}")
    for _ in range(200):
        given, notes = drawn_calls(draw), Counter[str]()
        more = {"x": "it's"} if shape == "arguments as Python" else {}
        expected = [call_of(name, {**arguments, **more}) for name, arguments in given]
        assert parse_calls_of(write(given), {}, notes) == expected
        assert set(notes) == mended


def test_older_shapes_of_one_call() -> None:
    notes: Counter[str] = Counter()
    expected = [call_of("weather", {"city": "X"})]
    assert parse_calls_of({"function_call": {"name": "weather", "arguments": '{"city": "X"}'}}, {}, notes) == expected
    assert parse_calls_in('weather {"city": "X"}', {}, notes) == expected
    assert parse_calls_in("weather('X')", named_tools(BOTH), notes) == expected
    assert parse_calls_in({"name": "weather", "input": {"city": "X"}}, {}, notes) == expected
    assert parse_calls_of({"tool_calls": None, "function_call": {}, "function_calls": ""}, {}, notes) == []
    assert notes["mended_name_and_json"] == notes["mended_python_calls"] == notes["mended_function_call"] == 1
    assert parse_calls_in([{"id": "a", **expected[0]}], {}, notes) == [{"id": "a", **expected[0]}]


def test_calls_at_the_end_of_a_text_are_taken_out() -> None:
    one, two = call_of("weather", {"city": "X"}), call_of("clock", {})
    block = '<tool_call>\n{"name": "weather", "arguments": {"city": "X"}}\n</tool_call>'
    notes: Counter[str] = Counter()
    other = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>\n'
    assert calls_in_text(f"Let me see.\n{block}\n{other}", {}, notes) == ("Let me see.", [one, two])
    assert calls_in_text("<function_calls>weather(city='X')\nclock()</function_calls>", {}, notes) == ("", [one, two])
    assert notes["mended_calls_in_xml"] == 2
    for text in ("No call.", f"{block} and then", ""):
        assert calls_in_text(text, {}, Counter()) == (text, [])
    with pytest.raises(ChatFault, match="call_unparsed"):
        calls_in_text("<tool_call>weather", {}, Counter())


NO_CALLS: list[Any] = [5, True, [5], [[]], [{}], [{"name": 5}], "what is it?", "f(g)", [{"function": {}}]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "call_unparsed") for value in NO_CALLS),
        *(
            ([call_of("f", given)], "arguments_unparsed")
            for given in ("{", "[1]", 5, [1], "text", '{"a": NaN}', float("inf"))
        ),
        ([call_of("f", {"a": float("nan")})], "arguments_unparsed"),
        ("f(a=1e999)", "arguments_unparsed"),
        ("[" * 100_000, "call_unparsed"),
    ],
)
def test_calls_that_cannot_be_read_are_faults(value: Any, reason: str) -> None:
    with pytest.raises(ChatFault) as error:
        parse_calls_in(value, {}, Counter())
    assert error.value.reason == reason
    assert len(error.value.got) < 400


def hostile(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(9 if depth > 4 else 12)
    if kind < 9:
        leaf = [None, 5, True, "", "text", float("nan"), "{", '[{"name": 5}]', b"x"]
        return leaf[kind]
    if kind == 9:
        return [hostile(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = [
        "name",
        "function",
        "arguments",
        "parameters",
        "type",
        "id",
        "tool_calls",
        "function_call",
        "function_calls",
    ]
    return {draw.choice(keys): hostile(draw, depth + 1) for _ in range(draw.randrange(5))}


def test_whatever_is_given_is_read_or_is_a_fault() -> None:
    draw = random.Random(8)
    reasons: Counter[str] = Counter()
    for _ in range(draws(20_000)):
        value = hostile(draw)
        for parse in (parse_tools, lambda item, notes: parse_calls_in(item, {}, notes)):
            try:
                parse(value, Counter())
                reasons["read"] += 1
            except ChatFault as error:
                reasons[error.reason] += 1
        if isinstance(value, dict):
            try:
                json.dumps(parse_calls_of(value, {}, Counter()))
            except ChatFault as error:
                reasons[error.reason] += 1
    assert set(reasons) == {"read", "tools_unparsed", "call_unparsed", "arguments_unparsed"}
