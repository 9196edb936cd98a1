"""Attributes of records: values by type, and what a YAML file may say of them."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.formats.attributes import TYPES
from pairmill.sources.language import mapped
from pairmill.sources.language.attributes import convert
from pairmill.sources.parsed import WrongAttribute
from pairmill.sources.source import Context, Source

BASE = "name: mine\nfiles: d.jsonl\ncondition: direct\ninstruction: q\nresponse: a\n"
CONTEXT = Context("pairmill")


def described(folder: Path, attributes: str) -> Source:
    path = folder / "mine.yaml"
    path.write_text(BASE + attributes, "utf-8")
    return mapped.load(str(path))


def converted(source: Source, record: Any) -> tuple[Any, ...] | WrongAttribute:
    return convert(source.attributes_of(record, CONTEXT), source.attributes)


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("text", "a b", "a b"),
        ("text", 3, "3"),
        ("text", 2.5, "2.5"),
        ("text", True, "true"),
        ("text", date(2020, 1, 2), "2020-01-02"),
        ("integer", 3, 3),
        ("integer", " -12 ", -12),
        ("integer", 7.0, 7),
        ("integer", Decimal(7), 7),
        ("integer", math.nan, None),
        ("integer", "", None),
        ("number", 3, 3.0),
        ("number", "1.5e3", 1500.0),
        ("number", Decimal("0.25"), 0.25),
        ("number", math.nan, None),
        ("boolean", False, False),
        ("boolean", "True", True),
        ("date", "2019-04-25T12:57:54Z", moment(2019, 4, 25, 12, 57, 54)),
        ("date", "2019-04-25", moment(2019, 4, 25)),
        ("date", "2019-04", moment(2019, 4, 1)),
        ("date", "2019", moment(2019, 1, 1)),
        ("date", " ", None),
        ("date", date(2020, 1, 2), moment(2020, 1, 2)),
        ("date", datetime(2020, 1, 2, 3), moment(2020, 1, 2, 3)),
        ("date", datetime(2020, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), moment(2020, 1, 2, 1)),
        ("texts", ["a", None, 2], ["a", None, "2"]),
        ("texts", "a", ["a"]),
        ("texts", [], []),
        *((kind, None, None) for kind in TYPES),
    ],
)
def test_values_are_converted_where_nothing_is_lost(tmp_path: Path, kind: str, given: Any, expected: Any) -> None:
    source = described(tmp_path, f"attributes: {{x: {{type: {kind}}}}}\n")
    assert converted(source, {"x": given}) == (expected,)


@pytest.mark.parametrize(
    ("kind", "given", "line"),
    [
        ("text", ["a"], "x: {path: x, type: texts}"),
        ("text", {"a": 1}, ""),
        ("text", "\ud800", ""),
        ("integer", "about 3", "x: {path: x, type: text}"),
        ("integer", 2.5, "x: {path: x, type: text}"),
        ("integer", True, "x: {path: x, type: text}"),
        ("integer", 2**63, "x: {path: x, type: text}"),
        ("number", math.inf, "x: {path: x, type: text}"),
        ("boolean", 1, "x: {path: x, type: text}"),
        ("date", "25 April 2019", "x: {path: x, type: text}"),
        ("date", "2019-13", "x: {path: x, type: text}"),
        ("date", 2019, "x: {path: x, type: text}"),
        ("date", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "x: {path: x, type: text}"),
        ("texts", [["a"]], ""),
    ],
)
def test_a_value_of_another_type_makes_the_record_malformed(tmp_path: Path, kind: str, given: Any, line: str) -> None:
    source = described(tmp_path, f"attributes: {{x: {{path: x, type: {kind}}}}}\n")
    found = converted(source, {"x": given})
    assert isinstance(found, WrongAttribute)
    assert found.reason == f"attribute_x_not_{kind}"
    said = source.explain({"x": given}, found)
    assert said.found
    assert said.write == line


def test_a_path_that_leads_nowhere_is_no_value(tmp_path: Path) -> None:
    source = described(tmp_path, "attributes:\n  url: meta.url\n  first: {path: 'tags[0]'}\n  year: {type: integer}\n")
    assert source.attributes == {"url": "text", "first": "text", "year": "integer"}
    assert converted(source, {"meta": {"url": "u"}, "tags": ["t"], "year": 1}) == ("u", "t", 1)
    assert converted(source, {"meta": None, "tags": []}) == (None, None, None)
    assert source.fields == ("q", "a")
    assert source.optional == ("meta", "tags", "year")


def test_attributes_are_part_of_a_source_s_version_and_their_absence_is_not(tmp_path: Path) -> None:
    versions = [
        described(tmp_path, text).version
        for text in ("", "attributes: {x: q}\n", "attributes: {x: {path: q, type: texts}}\n", "attributes: {y: q}\n")
    ]
    assert len(set(versions)) == 4


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("attributes: url\n", 6, "not a mapping; got 'url'; expected name: path"),
        ("attributes: [url]\n", 6, "not a mapping; got a list"),
        ("attributes: {}\n", 6, "not a mapping; got a mapping"),
        ("attributes:\n", 6, "not a mapping; got nothing"),
        ("attributes:\n  url: u\n  url: v\n", 8, "the name occurs twice"),
        ("attributes:\n  a b: u\n", 7, "not a valid name of an attribute; got 'a b'"),
        ("attributes:\n  url: 'a b'\n", 7, "not a valid path"),
        ("attributes:\n  url: 3\n", 7, "not a path; got 3"),
        ("attributes:\n  url: [a]\n", 7, "not a path; got a list of 1"),
        ("attributes:\n  x: 1\n  year: {path: y, kind: integer}\n", 8, "unknown key 'kind'; expected path, type"),
        ("attributes:\n  year: {type: int}\n", 7, "unknown type; got int; expected text, integer, number"),
        ("attributes:\n  year: {typ: text}\n", 7, "did you mean 'type'?"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    if "x: 1" in text:
        text = text.replace("x: 1", "x: q")
    with pytest.raises(UsageError) as raised:
        described(tmp_path, text)
    assert f"mine.yaml line {line}, attributes" in str(raised.value)
    assert said in str(raised.value)
