"""JSON values one after another: where they end, what is refused, and where an error is said to be."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import InputError
from pairmill.formats import jsonstream
from pairmill.formats.jsonstream import Pairs


@pytest.fixture(params=[1 << 20, 64, 7, 1], ids=lambda size: f"chunks of {size}")
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every test that asks for this runs with values that lie across the borders of chunks."""
    monkeypatch.setattr(jsonstream, "_CHUNK", request.param)
    return int(request.param)


def put(tmp_path: Path, data: bytes | str) -> str:
    path = tmp_path / "x.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def plain(value: Any) -> Any:
    if isinstance(value, Pairs):
        return {key: plain(item) for key, item in value}
    return [plain(item) for item in value] if isinstance(value, list) else value


def objects(tmp_path: Path, data: bytes | str) -> list[Any]:
    return [plain(value) for value in jsonstream.objects(put(tmp_path, data))]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        (" \n\t\r\n ", []),
        ("{}", [{}]),
        ('{"a":1}{"a":2}{"a":3}', [{"a": 1}, {"a": 2}, {"a": 3}]),
        ('{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        ('{"a":1}\r\n\r\n\t{"a":\n2\n}\n\n\n', [{"a": 1}, {"a": 2}]),
        ('[1][2]"x""y"null true', [[1], [2], "x", "y", None, True]),
        ('["c","i","r"]\n["c","i","r"]', [["c", "i", "r"]] * 2),
        ('{\n "a" : [\n  1 ,\n  {\n   "b" : "x y"\n  }\n ]\n}\n5\n', [{"a": [1, {"b": "x y"}]}, 5]),
        ('{"é":"日😀\\u00e9"}', [{"é": "日😀é"}]),
        ("12\n34\n", [12, 34]),
    ],
)
def test_values_are_found_whatever_lies_between_them(
    tmp_path: Path, chunk: int, data: str, expected: list[Any]
) -> None:
    assert objects(tmp_path, data) == expected


def test_any_values_with_any_white_space_come_back(tmp_path: Path, chunk: int) -> None:
    draw = random.Random(chunk)

    def value(depth: int) -> Any:
        kind = draw.randrange(7 if depth else 5)
        if kind < 3:
            return "".join(draw.choices('a{}[]",:\\\n é😀', k=draw.randrange(12)))
        if kind < 5:
            return draw.choice([0, -1.5, 1e30, True, None])
        if kind == 5:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        return {f"k{number}": value(depth - 1) for number in range(draw.randrange(4))}

    values = [{"v": value(4)} for _ in range(150)]
    text = "".join(
        json.dumps(item, indent=draw.choice([None, 0, 2]), ensure_ascii=draw.random() < 0.5)
        + draw.choice(["", "\n", " \r\n"])
        for item in values
    )
    assert objects(tmp_path, text) == values


def test_a_duplicate_key_is_handed_on(tmp_path: Path, chunk: int) -> None:
    (value,) = jsonstream.objects(put(tmp_path, '{"a":1,"b":2,"a":3}'))
    assert value == [("a", 1), ("b", 2), ("a", 3)]
    assert isinstance(value, Pairs)


def test_an_unpaired_surrogate_is_handed_on_as_one(tmp_path: Path) -> None:
    assert objects(tmp_path, '"\\ud800"') == ["\ud800"]


LINES = '{"a":1}\n{"a":\n2}\n'  # rows 1 and 2 on lines 1 to 3


@pytest.mark.parametrize(
    ("bad", "place", "said"),
    [
        ("NaN", "row 3 (line 4)", "NaN is not JSON"),
        ('{"a":Infinity}', "row 3 (line 4)", "Infinity is not JSON"),
        ('\n{"a":[-Infinity]}', "row 3 (line 5)", "-Infinity is not JSON"),
        ("{'a':1}", "row 3 (line 4)", "Expecting property name"),
        ('{"a":1', "row 3 (line 4)", "Expecting ',' delimiter"),
        ('{"a":\n\n"x', "row 3 (line 6)", "Unterminated string"),
        ('{"a":"line\nfeed"}', "row 3 (line 4)", "Invalid control character"),
        ('{"a":1}}', "row 4 (line 4)", "Expecting value"),
        ('{"a":1},{"a":2}', "row 4 (line 4)", "Expecting value"),
        ("\ufeff{}", "row 3 (line 4)", "Expecting value"),
        ("nul", "row 3 (line 4)", "Expecting value"),
        ("{} x\n{}", "row 4 (line 4)", "Expecting value"),
        ("1" * 5000, "row 3 (line 4)", "digits"),
        ('{"a" 1}', "row 3 (line 4)", "Expecting ':' delimiter"),
        ('"\\x"', "row 3 (line 4)", "escape"),
    ],
)
def test_what_is_no_json_is_refused_with_row_and_line(
    tmp_path: Path, chunk: int, bad: str, place: str, said: str
) -> None:
    uri = put(tmp_path, LINES + bad)
    with pytest.raises(InputError) as caught:
        list(jsonstream.objects(uri))
    assert f"{uri} {place}: not valid JSON" in str(caught.value)
    assert said in str(caught.value)


def test_values_before_an_error_are_given(tmp_path: Path) -> None:
    stream = jsonstream.objects(put(tmp_path, "1\n2\n}"))
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(InputError, match=r"row 3 \(line 3\)"):
        next(stream)


def test_a_byte_order_mark_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 1 \(line 1\)"):
        objects(tmp_path, b'\xef\xbb\xbf{"a":1}\n')


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf8\x88\x80\x80\x80"])
@pytest.mark.parametrize("line", [1, 2, 3, 40])
def test_what_is_no_utf8_is_refused_with_its_line(tmp_path: Path, chunk: int, line: int, bad: bytes) -> None:
    good = [b'{"a":"\xc3\xa9"}'] * 50
    good[line - 1] = b'{"a":"x' + bad + b'"}'
    with pytest.raises(InputError, match=f"line {line}: not valid UTF-8"):
        list(jsonstream.objects(put(tmp_path, b"\n".join(good))))


def test_deep_nesting_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    for text in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000):
        with pytest.raises(InputError, match=r"row 2 \(line 2\)"):
            objects(tmp_path, "1\n" + text)


def test_memory_follows_the_longest_value_and_not_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonstream, "_CHUNK", 1 << 14)
    uri = put(tmp_path, ('{"a":"' + "x" * 200 + '"}\n') * 20_000)
    tracemalloc.start()
    assert sum(1 for _ in jsonstream.objects(uri)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 19


def test_time_follows_the_length_of_a_value_that_lies_across_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each chunk that is added makes the value be parsed once more: chunks must grow with it.
    monkeypatch.setattr(jsonstream, "_CHUNK", 16)
    parses = 0

    class Counting(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> Any:
            nonlocal parses
            parses += 1
            return super().raw_decode(s, idx)

    monkeypatch.setattr(jsonstream, "_STRICT", Counting())
    (value,) = jsonstream.objects(put(tmp_path, json.dumps(list(range(50_000)), indent=1)))
    assert len(value) == 50_000
    assert parses <= 20


# --- one array ------------------------------------------------------------------------------------------------------


def array(tmp_path: Path, data: bytes | str) -> list[Any]:
    return list(jsonstream.array(put(tmp_path, data)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("[]", []),
        (" [ ] \n", []),
        ("[1]", [1]),
        ('[{"a":1},{"a":2}]', [{"a": 1}, {"a": 2}]),
        ('\n[\n {"a":\n1}\n,\n[2,[3]]\n,"x"]\n', [{"a": 1}, [2, [3]], "x"]),
        ('[{"a":1,"a":2}]', [{"a": 2}]),
        ("[Infinity,1]", [float("inf"), 1]),
        ('["]",","]', ["]", ","]),
    ],
)
def test_the_elements_of_an_array_come_one_by_one(tmp_path: Path, chunk: int, data: str, expected: list[Any]) -> None:
    assert array(tmp_path, data) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "'' instead of '['"),
        ("{}", "'{' instead of '['"),
        ("[", "the array does not end"),
        ("[1", "instead of ',' or ']'"),
        ("[1,", "the array does not end"),
        ("[1,]", "Expecting value"),
        ("[,1]", "Expecting value"),
        ("[1 2]", "'2' instead of ',' or ']'"),
        ("[1] x", "text after the end"),
        ("[1][2]", "text after the end"),
        ('[{"a":1}, {"a":', "Expecting value"),
        ("[[[", "Expecting value"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_array_is_refused(tmp_path: Path, data: str, said: str) -> None:
    with pytest.raises(InputError, match=r"x.json row \d+ \(line 1\): not valid JSON") as caught:
        array(tmp_path, data)
    assert said in str(caught.value)


def test_an_error_in_an_array_names_element_and_line(tmp_path: Path, chunk: int) -> None:
    with pytest.raises(InputError, match=r"row 3 \(line 4\)"):
        array(tmp_path, '[\n{"a":1},\n{"a":2},\n{"a":}]')
    with pytest.raises(InputError, match="line 3: not valid UTF-8"):
        array(tmp_path, b'[\n"a",\n"\xff"]')


@pytest.mark.parametrize(("data", "expected"), [(" \n[1]", True), ("{}", False), ("", False), ('"["', False)])
def test_an_array_is_known_by_its_first_character(tmp_path: Path, data: str, expected: bool) -> None:
    with Path(put(tmp_path, data)).open("rb") as file:
        assert jsonstream.is_array(file) is expected
        assert file.tell() == 0


def test_lines_come_stripped_with_their_numbers_and_empty_ones_left_out(tmp_path: Path) -> None:
    uri = put(tmp_path, b'\n {"a":1} \r\n\n\t\n{"a":2}')
    assert list(jsonstream.lines(uri)) == [(2, b'{"a":1}'), (5, b'{"a":2}')]


def within(tmp_path: Path, data: bytes | str, *keys: str, values: bool = False) -> list[Any]:
    return list(jsonstream.within(put(tmp_path, data), keys, values=values))


@pytest.mark.parametrize(
    ("data", "keys", "expected"),
    [
        ('{"a":[1,{"b":2},"]"]}', ("a",), [1, {"b": 2}, "]"]),
        (' {\n "x" : [[1],{"a":[9]}] , "a" : [ ] }\n', ("a",), []),
        ('{"x":{"a":[1]},"a":{"y":"}","a":[2,3],"z":{"a":4}},"b":-1.5e3}', ("a", "a"), [2, 3]),
        ('{"é\\n":[NaN]}', ("é\n",), ["nan"]),
        ('{"":[""],"a":null}', ("",), [""]),
    ],
)
def test_a_list_is_found_within_an_object(
    tmp_path: Path, chunk: int, data: str, keys: tuple[str, ...], expected: list[Any]
) -> None:
    found = within(tmp_path, data, *keys)
    assert [str(item) if item != item else item for item in found] == expected


def test_the_values_of_an_object_come_one_by_one(tmp_path: Path, chunk: int) -> None:
    data = '{"a":{"x":{"n":1},"y":[2],"x":3},"b":{}}'
    assert within(tmp_path, data, "a", values=True) == [{"n": 1}, [2], 3]
    assert within(tmp_path, data, "b", values=True) == []
    assert within(tmp_path, '{"x":1,"y":2}', values=True) == [1, 2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "not an object at the top of the file; got nothing"),
        ("5", "not an object at the top of the file; got a single value"),
        ("[]", "not an object at the top of the file; got a list"),
        ("{}", "no 'a' at the top of the file"),
        ('{"b":1,"c":2}', "no 'a' at the top of the file; got b, c"),
        ('{"a":{}}', "not a list at a; got an object"),
        ('{"a":"x"}', "not a list at a; got a single value"),
    ],
)
def test_a_list_that_is_not_there_is_said_with_what_is(tmp_path: Path, chunk: int, data: str, said: str) -> None:
    with pytest.raises(jsonstream.NotThere, match=said):
        within(tmp_path, data, "a")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"a":[1]', "'' instead of ',' or '}'"),
        ('{"a":[1', "instead of ',' or ']'"),
        ('{"a":[1,]}', "Expecting value"),
        ('{"a":[],}', "'}' instead of a key"),
        ("{a:[]}", "'a' instead of a key"),
        ('{"a" []}', "'[' instead of ':'"),
        ('{"a":', "the object does not end"),
        ('{"a":[],"a":[]}', "the key 'a' a second time"),
        ('{"a":[]}]', "text after the end of the object"),
        ('{"b":{"c":[1,},"a":[]}', "Expecting value"),
        ('{"b":"\\x","a":[]}', "Invalid"),
    ],
)
def test_an_object_that_is_damaged_is_refused(tmp_path: Path, chunk: int, data: str, said: str) -> None:
    with pytest.raises(InputError, match=r"x.json row \d+ \(line 1\): not valid JSON") as caught:
        within(tmp_path, data, "a")
    assert said in str(caught.value)


def test_an_outline_says_what_the_beginning_of_an_object_has(chunk: int) -> None:
    data = b'{"v": 1, "a": {"rows": [{"q": 1}, {"q": 2}], "n": {}}, "b": {"x": {}, "y": {}}} '
    outline = jsonstream.Outline(data)
    assert outline.end == "end"
    assert outline.names == ["v", "a", "b"]
    assert outline.lists == {("a", "rows"): (2, {"q": 1})}
    assert outline.objects == {(): (3, 2), ("a",): (2, 1), ("b",): (2, 2)}
    assert jsonstream.Outline(data[:40]).lists == {("a", "rows"): (1, {"q": 1})}
    ends = [jsonstream.Outline(data[:stop]).end for stop in range(len(data))]
    assert set(ends[:-1]) == {"cut"}
    assert jsonstream.Outline(data + b"{}").end == "more"
    assert jsonstream.Outline(b'{"a": ], "b": [1, 2, 3, 4]}').end == "broken"
