"""``pairmill trace row=`` and ``record=``: what is printed is held against all rows of a plan, one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import open_result
from pairmill.formats.plan_rows import PlanRows
from pairmill.lineage import trace
from pairmill.lineage.batches import Batching
from pairmill.lineage.records import Origins
from pairmill.lineage.row_trace import trace_record, trace_row
from pairmill.lineage.trace_config import TraceConfig
from pairmill.show.command import show
from pairmill.show.config import ShowConfig
from pairmill.show.lines import plain
from tests.support.data import traced
from tests.support.data.traced import Line

_PASS = re.compile(r"^  epoch (\d+), place ([\d,]+)(?:, step (\d+), rank (\d)|, in no step|): (\S+)$", re.MULTILINE)


@dataclass
class Options:
    row: str = ""
    record: str = ""
    root: str = ""
    policy: str = ""
    text: bool = False
    raw: str = ""
    sources: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return traced.make(tmp_path_factory.mktemp("line"), count=30, epochs=3)


@pytest.fixture(scope="module")
def places(line: Line) -> dict[str, list[tuple[int, int]]]:
    """Epochs and places of every row of the plan, by its name."""
    plan = open_result(str(line.sample))
    rows = PlanRows(plan)
    every = [f"{epoch}:{place}" for epoch in range(plan.epochs) for place in range(rows.length(epoch))]
    text = plain(show(ShowConfig(path=plan.uri, row=every)))
    result: dict[str, list[tuple[int, int]]] = {}
    for epoch, place, name in re.findall(r"^epoch (\d+), place ([\d,]+): (\S+), ", text, re.MULTILINE):
        result.setdefault(name, []).append((int(epoch), int(place.replace(",", ""))))
    assert sum(map(len, result.values())) == len(every)
    return result


def passes(text: str, name: str = "") -> list[tuple[int, int]]:
    result = [(int(epoch), int(place.replace(",", "")), row) for epoch, place, _, _, row in _PASS.findall(text)]
    return [(epoch, place) for epoch, place, row in result if name in ("", row)]


def test_a_row_is_found_wherever_it_is(line: Line, places: dict[str, list[tuple[int, int]]]) -> None:
    plans = {"data": open_result(str(line.sample))}
    origins = Origins.open(str(line.sample))
    names = sorted(places)[:: len(places) // 8]
    for name in names:
        task, _, ordinal = name.rpartition(":")
        text = plain(trace_row(Options(row=name), plans))
        assert passes(text) == places[name]
        (record,) = origins.records(task, np.array([int(ordinal)]))
        assert f"record  {record}  licence" in text
        assert f"select {line.select.name}  {name}\n" in text
        assert re.search(r"heuristics: .*r_words \d+.*\n    select: .*chosen_by attributes", text)
        stepped = plain(trace_row(Options(row=name), plans, Batching(batch_tokens=2048, ranks=2)))
        assert passes(stepped) == places[name]
        assert all(step or "in no step" in stepped for _, _, step, _, _ in _PASS.findall(stepped))
    assert len({name.rpartition(":")[0] for name in names}) == len(traced.SOURCES)


def test_a_record_leads_to_its_rows_in_every_plan(line: Line, places: dict[str, list[tuple[int, int]]]) -> None:
    origins = Origins.open(str(line.sample))
    records = [record for task in ("chats.jsonl", "pairs.jsonl") for record in origins.records(task, np.arange(9))]
    for record in sorted({*records})[::4]:
        rows = [str(row) for row in origins.rows([record])[record]]
        text = plain(trace_record(Options(record=str(record), root=str(line.root)), {}))
        for row in rows:
            assert passes(text, row) == places.get(row, [])
        assert len(passes(text)) == sum(len(places.get(row, [])) for row in rows)
        assert f"plan {line.sample.name}: " in text


def test_a_row_that_was_left_out_says_by_what(line: Line) -> None:
    cleaned = Origins.open(str(line.clean))
    kept, curated = Origins.open(str(line.select)), Origins.open(str(line.curate))
    told = ""
    for record in cleaned.records("pairs.jsonl", np.arange(20)):
        if not kept.rows([record])[record]:
            text = plain(trace_record(Options(record=str(record), root=str(line.root)), {}))
            stage, rule = (
                ("select", "drop by select") if curated.rows([record])[record] else ("curate", "drop by exact")
            )
            assert re.search(rf"{stage} \w+  left out\n    {rule}", text)
            assert not passes(text)
            told += text
    assert "drop by select, rule not_best" in told


def test_texts_are_those_of_the_row_and_of_the_raw_record(line: Line) -> None:
    plans = {"data": open_result(str(line.sample))}
    source = str(line.raw / "chats.yaml")
    text = plain(trace_row(Options(row="chats.jsonl:3", text=True, sources=[source]), plans))
    (record,) = Origins.open(str(line.select)).records("chats.jsonl", np.array([3]))
    raw = (line.raw / record.file).read_text("utf-8").splitlines()[record.line - 1]
    assert f"  in {line.raw / record.file}:\n  {raw}\n" in text
    assert {*traced.marks(text.partition("response\n")[2])} == {*traced.marks(raw)}
    without = plain(trace_row(Options(row="chats.jsonl:3", text=True), plans))
    assert re.search("its text is not at hand: .*raw=.*sources=", without)


def test_a_record_at_the_end_of_a_file_that_gave_no_row_is_told_from_one_that_is_not_there(line: Line) -> None:
    (record,) = Origins.open(str(line.select)).records("chats.jsonl", np.array([3]))
    file = line.raw / record.file
    raw = file.read_text("utf-8")
    last = len(raw.splitlines())
    options = {"root": str(line.root), "sources": [str(line.raw / "chats.yaml")]}
    try:
        file.write_text(raw + "{}\n", "utf-8")
        text = plain(trace_record(Options(record=f"{record.file}:{last + 1}", **options), {}))
        assert "no row was made of it" in text
        assert not passes(text)
        with pytest.raises(InputError, match=f"no source has this record.*{record.file}:{last + 2}"):
            plain(trace_record(Options(record=f"{record.file}:{last + 2}", **options), {}))
    finally:
        file.write_text(raw, "utf-8")


def test_the_command_prints_both_and_names_what_is_missing(line: Line, tmp_path: Path) -> None:
    plan = str(line.sample)
    row = plain(trace.show(TraceConfig(row="chats.jsonl:3", plan=[plan], batch_tokens=2048, ranks=2)))
    expected = trace_row(
        Options(row="chats.jsonl:3"), {"data": open_result(plan)}, Batching(batch_tokens=2048, ranks=2)
    )
    assert row == plain(expected)
    (record,) = Origins.open(str(line.select)).records("chats.jsonl", np.array([3]))
    for options in ({"plan": [plan]}, {"root": str(line.root)}, {"root": str(line.root), "batch_tokens": 2048}):
        text = plain(trace.show(TraceConfig(record=str(record), **options)))
        assert passes(text, "chats.jsonl:3") == passes(row)
        assert (", step " in text) == ("batch_tokens" in options)
    with pytest.raises(UsageError, match=r"no plan is named; expected plan=<plan> or run=<a run of train>$"):
        plain(trace.show(TraceConfig(row="chats.jsonl:3", root=str(line.root))))
    with pytest.raises(UsageError, match=r"no plan is named.*or root=<project> for all its plans"):
        plain(trace.show(TraceConfig(record=str(record))))


def test_what_is_not_there_is_refused(line: Line, tmp_path: Path) -> None:
    plans = {"data": open_result(str(line.sample))}
    with pytest.raises(UsageError, match=r"row: not a row"):
        plain(trace_row(Options(row="chats.jsonl"), plans))
    with pytest.raises(UsageError, match=r"no such task.*did you mean 'chats\.jsonl'"):
        plain(trace_row(Options(row="chat.jsonl:1"), plans))
    with pytest.raises(UsageError, match=r"no such row"):
        plain(trace_row(Options(row="chats.jsonl:9999"), plans))
    with pytest.raises(InputError, match="no finished plan and no rows"):
        plain(trace_record(Options(record="chats/0.jsonl:1", root=str(tmp_path)), {}))
    with pytest.raises(UsageError, match="not a record"):
        plain(trace_record(Options(record="chats", root=str(line.root)), {}))
