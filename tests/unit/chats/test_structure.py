"""Calls, results and declarations fit each other, or it is told how they do not."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from pairmill.chats.message import ChatFault
from pairmill.chats.structure import CHECKS, OLD_MARKS, Structure, schema_mismatch
from tests.support.helpers import draws

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city"],
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]


def call(call_id: Any = None, name: str = "weather", **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments or {"city": "X"}}
    return {"type": "function", "function": function} | ({"id": call_id} if call_id is not None else {})


def result(text: Any = "sun", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": text, **fields}


def take(structure: Structure, message: dict[str, Any]) -> list[dict[str, Any]]:
    return structure.take_results(message, message["content"], lambda value: value if isinstance(value, str) else "?")


def run(
    turns: Sequence[Sequence[dict[str, Any]]], kept: frozenset[str] = frozenset()
) -> tuple[list[Any], Counter[str]]:
    """Returns the messages that calls (lists) and results (dicts with a role) become, and the notes."""
    notes: Counter[str] = Counter()
    structure = Structure(TOOLS, notes, kept)
    made: list[Any] = []
    for turn in turns:
        if "role" in turn[0]:
            made += [message for item in turn for message in take(structure, item)]
        else:
            made += structure.take_calls(turn)
    structure.finish_turn()
    return made, notes


@pytest.mark.parametrize(
    ("turns", "ids", "notes"),
    [
        ([[call("a"), call("b")], [result(tool_call_id="b"), result(tool_call_id="a")]], ["a", "b", "b", "a"], {}),
        ([[call(), call()], [result(), result()]], ["call00000", "call00001"] * 2,
         {"mended_ids_missing": 2, "mended_result_ids_missing": 2}),
        ([[call("call_0")], [result(tool_call_id="call_0")]] * 2, ["call_0"] * 2 + ["call00001"] * 2,
         {"mended_ids_repeated": 1}),
        ([[call(7)], [result(tool_call_id=7)]], ["7", "7"], {}),
        ([[call("a"), call("b", "weather")], [result(name="other"), result()]], ["a", "b", "a", "b"],
         {"mended_result_ids_missing": 2}),
        ([[call("call00001")], [result()], [call()], [result()]], ["call00001"] * 2 + ["call00002"] * 2,
         {"mended_ids_missing": 1, "mended_result_ids_missing": 2}),
    ],
)  # fmt: skip
def test_every_result_has_the_id_of_its_call(turns: Any, ids: list[str], notes: dict[str, int]) -> None:
    made, counted = run(turns)
    assert [item.get("id") or item["tool_call_id"] for item in made] == ids
    assert dict(counted) == notes


@pytest.mark.parametrize(
    "content",
    [
        ["sun", "rain"],
        json.dumps(["sun", "rain"]),
        [{"name": "weather", "content": "sun"}, {"name": "weather", "content": "rain"}],
        json.dumps([{"tool_call_id": "a", "output": "sun"}, {"tool_call_id": "b", "output": "rain"}]),
        [{"tool_call_id": "b", "content": "rain"}, {"tool_call_id": "a", "content": "sun"}],
    ],
)
def test_several_results_in_one_message_are_one_each(content: Any) -> None:
    made, notes = run([[call("a"), call("b")], [result(content)]])
    assert {item["tool_call_id"]: item["content"] for item in made[2:]} == {"a": "sun", "b": "rain"}
    assert notes["mended_results_in_one_message"] == 1


def test_objects_one_a_line_are_results_as_they_are() -> None:
    made, _ = run([[call("a"), call("b")], [result('{"t": 1}\n{"t": 2}')]])
    assert [item["content"] for item in made[2:]] == ['{"t":1}', '{"t":2}']


def test_a_list_that_one_call_returned_stays_its_result() -> None:
    one = [[call("a")], [result('["sun", "rain"]')]]
    two = [[call("a"), call("b")], [result('["x", "y"]', tool_call_id="a"), result("[1, 2, 3]", tool_call_id="b")]]
    assert [item["content"] for item in run(one)[0][1:]] == ['["sun", "rain"]']
    assert [item["content"] for item in run(two)[0][2:]] == ['["x", "y"]', "[1, 2, 3]"]


FAULTS: dict[str, list[Any]] = {
    "tool_ids": [
        [[call("a"), call("a")], [result(), result()]],
        [[call("a")], [result(tool_call_id="b")]],
    ],
    "results_match_calls": [
        [[call("a"), call("b")], [result(tool_call_id="a")]],
        [[call("a")], [result(tool_call_id="a"), result()]],
        [[call("a")], [call("b")], [result()]],
    ],
    "arguments_match_schema": [
        [[call("a", city=5)], [result()]],
        [[call("a", days=1)], [result()]],
        [[call("a", city="X", days=1.5)], [result()]],
        [[call("a", city="X", unit="K")], [result()]],
    ],
    "declared_name": [[[call("a", "wether")], [result()]]],
}


@pytest.mark.parametrize(
    ("reason", "number"), [(reason, n) for reason, some in FAULTS.items() for n in range(len(some))]
)
def test_what_does_not_fit_is_a_fault_or_a_note(reason: str, number: int) -> None:
    turns = FAULTS[reason][number]
    with pytest.raises(ChatFault) as error:
        run(turns)
    assert error.value.reason == reason
    assert error.value.got
    made, notes = run(turns, frozenset(CHECKS))
    assert notes[f"{reason}_kept"] == 1
    json.dumps(made)


def test_a_mark_of_another_template_is_a_fault_or_a_note() -> None:
    for mark in OLD_MARKS:
        with pytest.raises(ChatFault, match="foreign_marks"):
            Structure([], Counter()).check_text(f"so {mark} it")
        notes: Counter[str] = Counter()
        Structure([], notes, frozenset({"foreign_marks"})).check_text(f"so {mark}{mark} it")
        assert notes == {"foreign_marks_kept": 1}
        Structure([], Counter(), marks=[item for item in OLD_MARKS if item != mark]).check_text(mark)


def test_without_declarations_names_and_arguments_are_not_checked() -> None:
    structure = Structure([], Counter())
    assert structure.take_calls([call("a", "any", x=1)])[0]["function"] == {"name": "any", "arguments": {"x": 1}}


def drawn_schema(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    kind = draw.choice(
        ["string", "integer", "number", "boolean", "null", "enum", "any", "array", "object", "union", "either"]
    )
    if depth > 2 and kind in ("array", "object", "union"):
        kind = "string"
    match kind:
        case "enum":
            return {"enum": draw.sample(["a", "b", 1, 2, True, None, 1.5], 3)}
        case "any":
            return {}
        case "array":
            return {"type": "array", "items": drawn_schema(draw, depth + 1)}
        case "object":
            names = draw.sample("abc", draw.randrange(4))
            properties = {name: drawn_schema(draw, depth + 1) for name in names}
            return {
                "type": "object",
                "properties": properties,
                "required": draw.sample(names, draw.randrange(len(names) + 1)),
            }
        case "union":
            return {"anyOf": [drawn_schema(draw, depth + 1) for _ in range(2)]}
        case "either":
            return {"type": draw.sample(["string", "integer", "null", "boolean"], 2)}
    return {"type": kind}


def drawn_value(draw: random.Random, depth: int = 0) -> Any:
    value: Any = draw.choice(["a", "b", 1, 2, 3.0, 1.5, True, False, "", -7])
    if depth < 3 and draw.random() < 0.5:
        if draw.random() < 0.4:
            return [drawn_value(draw, depth + 1) for _ in range(draw.randrange(3))]
        return {name: drawn_value(draw, depth + 1) for name in draw.sample("abcd", draw.randrange(4))}
    return value


def test_types_required_and_enum_are_as_json_schema_says() -> None:
    draw = random.Random(5)
    counts: Counter[bool] = Counter()
    for _ in range(draws(4000)):
        schema, value = drawn_schema(draw), drawn_value(draw)
        valid = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert (schema_mismatch(value, schema, "x") == "") == valid, (schema, value)
        counts[valid] += 1
    assert min(counts.values()) > draws(800)


def test_other_names_of_types_are_known_and_odd_schemas_check_nothing() -> None:
    assert not schema_mismatch({"a": [1]}, {"type": "DICT", "properties": {"a": {"type": "list"}}}, "x")
    assert schema_mismatch("5", {"type": "int"}, "x") == 'x: "5", not integer'
    assert not schema_mismatch(None, {"type": "string", "nullable": True}, "x")
    assert not schema_mismatch({"a": None}, {"properties": {"a": {"type": "string"}}}, "x")
    odd: list[Any] = [None, 5, [], {"type": 5}, {"type": {"a": 1}}, {"enum": 5}, {"required": 5, "properties": 5},
                      {"properties": {"a": 5}}, {"anyOf": []}, {"anyOf": 5}, {"required": [5]}]  # fmt: skip
    for schema in odd:
        assert not schema_mismatch({"a": 1}, schema, "x")


def test_whatever_a_result_holds_is_read_or_is_a_fault() -> None:
    draw = random.Random(6)
    leaves: list[Any] = [
        None,
        5,
        True,
        "",
        "[1, 2]",
        "{}",
        [],
        {},
        [1, 2],
        ["a", "b"],
        [{"type": "text", "text": "a"}] * 2,
    ]
    for _ in range(draws(5000)):
        structure = Structure(TOOLS, Counter(), frozenset(draw.sample(CHECKS, 2)))
        try:
            structure.take_calls([call(draw.choice([None, 5, "a", [], {}, True])) for _ in range(draw.randrange(4))])
            for _ in range(3):
                fields = {key: draw.choice(leaves) for key in draw.sample(["tool_call_id", "name", "id", "call_id"], 2)}
                json.dumps(take(structure, result(draw.choice(leaves), **fields)))
            structure.finish_turn()
        except ChatFault as error:
            assert error.reason in CHECKS  # noqa: PT017
