"""Templates of YAML sources: what they take, their filters and optional parts, and what is refused."""

import json
import re
import tracemalloc
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.sources.language import mapped
from pairmill.sources.language.filters import FILTERS, MAX_CHARACTERS
from pairmill.sources.language.template import Template
from pairmill.sources.parsed import MalformedRecord
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from tests.support.helpers import REPOSITORY


def made(template: str, **record: Any) -> str:
    """The text of a record, or the reason why there is none, after ``!``."""
    try:
        return Template.parse(template).render(record)
    except MalformedRecord as error:
        return f"!{error.why.reason}"


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, "true"),
        (False, "false"),
        (Decimal("1.50"), "1.50"),
        (Decimal("-1E+3"), "-1000"),
        (Decimal("1E-9"), "0.000000001"),
        (Decimal("NaN"), None),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29), "2024-02-29T00:00:00"),
        (datetime(2024, 2, 29, 1, 2, 3, 450_000), "2024-02-29T01:02:03.450000"),
        (datetime(2024, 2, 29, 1, tzinfo=EAST), "2024-02-28T23:00:00+00:00"),
        (datetime(2024, 2, 29, 1, tzinfo=UTC), "2024-02-29T01:00:00+00:00"),
        (time(12, 30), "12:30:00"),
        (timedelta(1), None),
    ],
)
def test_what_is_not_a_text_is_printed_in_one_way(value: Any, said: str | None) -> None:
    assert made("<{x}>", x=value) == (f"<{said}>" if said is not None else "!x_is_no_text")
    assert made("x", x=value) == "!x_is_no_text"


@pytest.mark.parametrize(
    ("template", "record", "said"),
    [
        ("{x|lines}", {"x": ["a", 1, True, date(2024, 1, 1), Decimal("0.5")]}, "a\n1\ntrue\n2024-01-01\n0.5"),
        ("{x | commas}", {"x": ["a", "b"]}, "a, b"),
        ("{x|join(' | ')}", {"x": ["a", "b"]}, "a | b"),
        ('{x|join("")}', {"x": ["a", "b"]}, "ab"),
        ("{x|join('\n- ')}", {"x": ["a", "b"]}, "a\n- b"),
        ("{x|letters}", {"x": ["a", "b"]}, "A: a\nB: b"),
        ("{x|letters}", {"x": list(range(27))}, "!x_has_more_than_26"),
        ("{x|bullets}", {"x": ["a", "b"]}, "- a\n- b"),
        ("{x|numbered}", {"x": ["a", "b"]}, "1. a\n2. b"),
        ("{x|lines}.", {"x": []}, "."),
        ("{x.y|lines}", {"x": {"y": ["a"]}}, "a"),
        ("{['a|b']|lines}", {"a|b": ["a"]}, "a"),
        ("{x|lines}", {"x": "a"}, "!x_is_no_list"),
        ("{x|lines}", {"x": ["a", None]}, "!null_in_x"),
        ("{x|lines}", {"x": ["a", {"b": 1}]}, "!x_holds_no_text"),
        ("{x|lines}", {"x": [["a"]]}, "!x_holds_no_text"),
        ("{x|lines}", {"x": None}, "!null_x"),
        ("{x|lines}", {}, "!missing_x"),
        ("{x[*].y|lines}", {"x": [{"y": "a"}, {"y": 1}]}, "a\n1"),
        ("{x.z[*]['y z'][0]|commas}", {"x": {"z": [{"y z": ["a"]}, {"y z": ["b"]}]}}, "a, b"),
        ("{x[*].y|at(k)}", {"x": [{"y": "a"}, {"y": "b"}], "k": "B"}, "b"),
        ("{x[*].y|lines}", {"x": [{"y": "a"}, {"y": None}]}, "!null_in_x"),
        ("{x[*].y|lines}", {"x": [{"y": "a"}, {}]}, "!missing_in_x"),
        ("{x[*].y|lines}", {"x": [{"y": "a"}, 5]}, "!missing_in_x"),
        ("{x[*].y|lines}", {"x": {"y": "a"}}, "!x_is_no_list"),
        ("{x|letter}", {"x": 0}, "A"),
        ("{x|letter}", {"x": "2"}, "C"),
        ("{x|letter}", {"x": "D"}, "D"),
        ("{x|letter}", {"x": 26}, "!x_out_of_range"),
        ("{x|letter}", {"x": -1}, "!x_is_no_index"),
        ("{x|letter}", {"x": True}, "!x_is_no_index"),
        ("{x|letter}", {"x": 1.0}, "B"),
        ("{x|letter}", {"x": 1.5}, "!x_is_no_index"),
        ("{x|letter}", {"x": float("inf")}, "!x_is_no_index"),
        ("{x|at(y)}", {"x": ["a", "b"], "y": 1}, "b"),
        ("{x|at(y)}", {"x": ["a", "b"], "y": "1"}, "b"),
        ("{x|at( y.z )}", {"x": ["a", 7], "y": {"z": "B"}}, "7"),
        ("{x|at(y)}", {"x": ["a", "b"], "y": 2}, "!y_out_of_range"),
        ("{x|at(y)}", {"x": ["a", "b"], "y": "b"}, "!y_is_no_index"),
        ("{x|at(y)}", {"x": ["a", "b"], "y": None}, "!null_y"),
        ("{x|at(y)}", {"x": ["a", "b"]}, "!missing_y"),
        ("{x|at(y)}", {"x": "ab", "y": 0}, "!x_is_no_list"),
        ("{x|yes_no}", {"x": True}, "yes"),
        ("{x|yes_no('Right', 'Wrong')}", {"x": False}, "Wrong"),
        ("{x|yes_no}", {"x": "true"}, "!x_is_no_boolean"),
        ("{x|yes_no}", {"x": 1}, "!x_is_no_boolean"),
        ("{x|date}", {"x": datetime(2024, 2, 29, 1, tzinfo=EAST)}, "2024-02-28"),
        ("{x|date}", {"x": date(2024, 2, 29)}, "2024-02-29"),
        ("{x|date}", {"x": "2024-02-29"}, "!x_is_no_date"),
        ("{x|json}", {"x": {"a": ["é", None, 1.5]}}, '{"a": ["é", null, 1.5]}'),
        ("{x|json}", {"x": [float("nan")]}, "!x_is_no_json"),
        ("{x|json}", {"x": [b"a"]}, "!x_is_no_json"),
    ],
)
def test_a_filter_makes_a_text_or_a_reason(template: str, record: dict[str, Any], said: str) -> None:
    assert made(template, **record) == said


@pytest.mark.parametrize(
    ("template", "record", "said"),
    [
        ("{a}[[\n\n{b}]]", {"a": "x", "b": "y"}, "x\n\ny"),
        ("{a}[[\n\n{b}]]", {"a": "x", "b": ""}, "x"),
        ("{a}[[\n\n{b}]]", {"a": "x", "b": " \n"}, "x"),
        ("{a}[[\n\n{b}]]", {"a": "x", "b": None}, "x"),
        ("{a}[[\n\n{b}]]", {"a": "x"}, "x"),
        ("{a}[[\n\n{b}]]", {"a": "x", "b": {}}, "!b_is_no_text"),
        ("{a}[[ {b}, {c}]]", {"a": "x", "b": "y", "c": "z"}, "x y, z"),
        ("{a}[[ {b}, {c}]]", {"a": "x", "b": "y", "c": ""}, "x"),
        ("{a}[[ ({b.c|commas})]]", {"a": "x", "b": {"c": ["y", "z"]}}, "x (y, z)"),
        ("{a}[[ ({b.c|commas})]]", {"a": "x", "b": {"c": []}}, "x"),
        ("{a}[[ ({b.c|commas})]]", {"a": "x", "b": None}, "x"),
        ("{a}[[ ({b|commas})]]", {"a": "x", "b": [None]}, "!null_in_b"),
        ("{a}[[ {b[0]}]]", {"a": "x", "b": ["y"]}, "x y"),
        ("[[{a}]][[{b}]]", {"b": "y"}, "y"),
        ("[[{a}]][[{b}]]", {}, ""),
        ("[[[[{a}]]]]", {"a": "x"}, "[[x]]"),
        ("[{a}] [ ] {{}}", {"a": "x"}, "[x] [ ] {}"),
        ("{a}[[ [{b}] ]]", {"a": "x", "b": "y"}, "x [y] "),
    ],
)
def test_an_optional_part_is_left_out_where_something_in_it_is_not_there(
    template: str, record: dict[str, Any], said: str
) -> None:
    assert made(template, **record) == said


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{a}[[{b}[[{c}]]]]", "optional part within another"),
        ("{a}[[{b} [[{c}]] ]]", "optional part within another"),
        ("{a}[[{b}", "does not end"),
        ("{a}]]", r"unmatched brackets.*\[\[\[\["),
        ("{a}[[{b}]]]", "unmatched brackets"),
        ("{a}[[words]]", r"without a \{path\}"),
        ("[[{a}]]", "the whole text is one optional part"),
        ("{a|line}", "unknown filter; got 'line'; expected lines, commas.*did you mean 'lines'"),
        ("{a|}", "unknown filter; got ''"),
        ("{a|lines|commas}", "unknown filter"),
        ("{a|join}", r"not what the filter takes; got 'join'; expected \{a\|join\(', '\)\}"),
        ("{a|join(', ', 'x')}", "not what the filter takes"),
        ("{a|join(,)}", "not what the filter takes"),
        ("{a|lines('x')}", "not what the filter takes"),
        ("{a|yes_no('x')}", "not what the filter takes"),
        ("{a|at}", r"not what the filter takes.*\{a\|at\(path\)\}"),
        ("{a|at(not a path)}", "not a valid path"),
        ("{a b|lines}", "not a valid path"),
        ("{a[*]|lines}", "not a valid path"),
        ("{a[*].b}", r"\[\*\] needs a filter; got 'a\[\*\].b'; expected such as \{a\[\*\].b\|lines\}"),
        ("{[*].b|lines}", "not a valid path"),
        ("{a[*].b[*].c|lines}", "not a valid path"),
        ("a|lines", r"not a valid path.*write filters in braces: '\{a\|lines\}'"),
    ],
)
def test_a_template_that_is_not_understood_is_refused(template: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Template.parse(template)


@pytest.mark.parametrize(
    ("template", "name", "said"),
    [
        ("{a}\n\n{b}", "b", "{a}[[\n\n{b}]]"),
        ("{a}\n\n{b}.", "b", "{a}[[\n\n{b}]]."),
        ("{a}\n\n{b}", "a", "[[{a}\n\n]]{b}"),
        ("Q: {a} {{x}} {b|lines}", "b", "Q: {a}[[ {{x}} {b|lines}]]"),
        ("{a}{b}", "b", "{a}[[{b}]]"),
        ("{a}[[ {c}]] {b}", "b", "{a}[[ {c}]][[ {b}]]"),
        ("{a} [{b}]", "b", ""),
        ("{a}", "a", ""),
        ("{a}[[{b}]]", "b", ""),
    ],
)
def test_a_value_can_be_put_into_an_optional_part(template: str, name: str, said: str) -> None:
    found = Template.parse(template)
    (value,) = (one for one in found.values if getattr(one, "path", one).text == name)
    assert found.without(value) == said


def test_columns_that_occur_in_optional_parts_alone_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    keys = "condition: direct\nresponse: '[[{d}]][[{a}]]'\nwhere: not has(c) or e > 1\n"
    path.write_text(f"name: mine\nfiles: a.csv\ninstruction: '{{a}}[[{{b.x|lines}} {{c}}]]'\n{keys}")
    source = mapped.load(str(path))
    assert source.fields == ("a", "e")
    assert source.optional == ("b", "c", "d")
    assert [one.path.text for one in source.watched] == ["e", "a"]


Clean_ = Callable[..., Manifest]


@pytest.fixture
def clean(tmp_path: Path) -> Clean_:
    """Cleans records of one file, whose extension says how they are written, by a YAML file of these keys."""

    def cleaned(records: Any, kind: str = "jsonl", **keys: str) -> Manifest:
        path = tmp_path / f"a.{kind}"
        if kind == "parquet":
            pq.write_table(records, path)
        else:
            path.write_text("".join(json.dumps(one) + "\n" for one in records))
        values = {"name": "mine", "files": f"a.{kind}", "condition": "direct", "instruction": "q", "response": "a"}
        text = "".join(f"{key}: {value}\n" for key, value in (values | keys).items())
        (tmp_path / "mine.yaml").write_text(text)
        sources = [str(tmp_path / "mine.yaml")]
        return runner.run(Clean(), CleanConfig(sources=sources, root=str(tmp_path / "root"), workers=1)).manifest

    return cleaned


def rows(tmp_path: Path, manifest: Manifest) -> list[tuple[str, str]]:
    path = tmp_path / "root" / "clean" / manifest.fingerprint / "data" / "mine.jsonl"
    return [(row["instruction"], row["response"]) for row in map(json.loads, path.read_text().splitlines())]


def test_types_of_parquet_become_texts(clean: Clean_, tmp_path: Path) -> None:
    table = pa.table(
        {
            "q": ["one", "two"],
            "day": pa.array([date(2024, 1, 2), None], pa.date32()),
            "at": pa.array([1_700_000_000_123_456, 0], pa.timestamp("us", "Europe/Berlin")),
            "nano": pa.array([1_700_000_000_000_000_001, 0], pa.timestamp("ns")),
            "price": pa.array([Decimal("10.50"), Decimal("0.00")], pa.decimal128(9, 2)),
            "good": [True, False],
            "choices": [["a", "b"], ["c"]],
            "answer": [1, 0],
        }
    )
    manifest = clean(
        table,
        "parquet",
        instruction=r'"{q}\n{choices|letters}[[\nOn {day}.]][[ {other}]]"',
        response="'{answer|letter} {choices|at(answer)} {good} {good|yes_no} {price} {at} {nano}'",
    )
    assert rows(tmp_path, manifest) == [
        (
            "one\nA: a\nB: b\nOn 2024-01-02.",
            "B b true yes 10.50 2023-11-14T22:13:20.123456+00:00 2023-11-14T22:13:20.000000001",
        ),
        ("two\nA: c", "A c false no 0.00 1970-01-01T00:00:00+00:00 1970-01-01T00:00:00"),
    ]


@pytest.mark.parametrize(
    ("wrong", "keys", "said"),
    [
        ({"a": [1, 2]}, {}, 'found a list of 2, .*mine.yaml: response: "{a|lines}"'),
        ({"a": {"n": 1}}, {}, 'found an object with n, .*: response: "{a|json}"'),
        ({"a": False}, {}, 'found false, .*: response: "{a}"'),
        ({"a": None}, {"response": "'{q} {a}'"}, r'found null, .*: response: "{q}\[\[ {a}\]\]" or where: has\(a\)'),
        ({"b": "a"}, {"response": "'{q} {a}'"}, r'object with q, b, .*: response: "{q}\[\[ {a}\]\]" or where: has'),
        ({"a": "x"}, {"response": "'{a|lines}'"}, "found 'x', .*: response: \"{a}\""),
        ({"a": {"n": 1}}, {"response": "'{a|lines}'"}, 'found an object with n, .*: response: "{a|json}"'),
        ({"a": [{"n": 1}]}, {"response": "'{a|lines}'"}, 'found an object with n in a list of 1, .*"{a|json}"'),
        (
            {"a": [{"k": "1", "text": "x"}]},
            {"response": "'{a|lines}'"},
            r'n object with k, text in, .*"{a\[\*\].text|lines}"',
        ),
        ({"a": [None]}, {"response": "'{a|lines}'"}, "found null in a list of 1, .*mend the raw data"),
        ({"a": [float("nan")]}, {"response": "'{a|json}'"}, "found a list of 1, .*mend the raw data"),
        ({"a": ["x"] * 27}, {"response": "'{a|letters}'"}, 'found a list of 27, .*: response: "{a|numbered}"'),
        ({"a": ["x"], "k": 5}, {"response": "'{a|at(k)}'"}, "found 5 for a list of 1, .*mend the raw data"),
        ({"a": "x", "k": "own"}, {"condition": "'{k}'"}, r"found 'own', .*: tags: \[\"own=<\|own\|>\"\] or condition:"),
    ],
)
def test_a_malformed_record_comes_with_the_line_to_write(
    clean: Clean_, wrong: dict[str, Any], keys: dict[str, str], said: str
) -> None:
    good = {"q": "q", "a": ["x"] if "|l" in keys.get("response", "") or "|at" in str(keys) else "x", "k": "cot"}
    good |= {"k": 0} if "|at" in str(keys) else {}
    with pytest.raises(InputError) as caught:
        clean([good, *[{"q": "q", **wrong}] * 3], **keys)
    found, write = said.split(", .*")
    assert re.search(found, str(caught.value))
    assert re.search(write, str(caught.value))
    assert "3 such" in str(caught.value)
    written = re.search(r"mine\.yaml: (.*)\n", str(caught.value))
    lines = re.split(r" or (?=\w+: )", written[1]) if written else []
    for line in lines:
        key, _, value = line.partition(": ")
        if "some of" not in line:
            kept = clean([{"q": "q", **wrong}] * 3, **{**keys, key: value}).ledger
            assert kept.rows_kept == 3 or kept.dropped == {"filtered_by_where": 3}
    assert bool(lines) != ("mend the raw data" in said)


def test_a_record_with_nothing_in_its_optional_parts_is_dropped_as_empty(clean: Clean_, tmp_path: Path) -> None:
    records = [{"q": "1", "a": "x"}, {"q": "2", "b": "y"}, {"q": "3"}]
    manifest = clean(records, response="'[[{a}]][[{b}]]'")
    assert rows(tmp_path, manifest) == [("1", "x"), ("2", "y")]
    assert manifest.ledger.dropped == {"empty_response": 1}


def test_templates_with_braces_have_a_version_of_their_own(tmp_path: Path) -> None:
    def version(response: str) -> int:
        text = f"name: mine\nfiles: a.csv\ncondition: cot\ninstruction: q\nresponse: {response}\n"
        (tmp_path / "mine.yaml").write_text(text)
        return mapped.load(str(tmp_path / "mine.yaml")).version

    # The first is what this description had before templates took more than texts and numbers.
    assert version("a") == 182516731806775
    assert len({version(one) for one in ("a", "'{a}'", "'{a|json}'", "'{a}[[{b}]]'")}) == 4


@pytest.mark.parametrize(
    ("template", "record"),
    [
        ("{a}" * 400, {"a": "x" * 200_000}),
        ("[[" + "{a}" * 400 + "]]b{b}", {"a": "x" * 200_000, "b": "y"}),
        ("{a|join('" + "-" * 30_000 + "')}", {"a": [""] * 3_000}),
    ],
)
def test_a_text_is_not_made_that_is_much_longer_than_its_record(template: str, record: dict[str, Any]) -> None:
    made = Template.parse(template)
    tracemalloc.start()
    with pytest.raises(MalformedRecord, match="text_too_long"):
        made.render(record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert len(Template.parse("# {a}").render({"a": "x" * (MAX_CHARACTERS + 1)})) == MAX_CHARACTERS + 3


def test_the_documentation_names_every_filter() -> None:
    text = (REPOSITORY / "docs" / "sources.md").read_text()
    firsts = {name for row in text.splitlines() for name in re.findall(r"`([^`]+)`", row) if row.startswith("| `")}
    assert {one.written for one in FILTERS.values()} <= firsts
