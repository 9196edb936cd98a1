"""``mixture.json``: what is written is read again, and what no sampler could execute is refused."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import InputError
from pairmill.mixture.making import CountedSource, WantedPhase, make
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import NAME, Inputs, Mixture, PlannedTask
from pairmill.mixture.reading import load_mixture, read


def counted(task: str, rows: int, length: int = 10, bucket: int | None = None) -> PlannedTask:
    return PlannedTask(task, rows, rows * length, rows * length**2, 0, bucket)


def planned(**options: Any) -> Mixture:
    """Two sources, one of them with two tasks, in two phases."""
    sources = [
        CountedSource("web", (counted("web__a", 101), counted("web__ö", 37, 3))),
        CountedSource("books", (counted("books", 20, 50),)),
    ]
    phases = [
        WantedPhase("first", 0.75, 3, Recipe.parse("unimax", max_epochs=2.0)),
        WantedPhase("last", 0.25, 2, Recipe.parse("code")),
    ]
    made = make(sources, phases, **options)
    return Mixture(
        3, 5, 65, 2, made.budget, made.unfilled, made.phases, made.sources, Inputs("0" * 16, "ab"), ("one", "two")
    )


def test_what_is_written_is_read() -> None:
    plan = planned()
    again = read(plan.dump(), "here")
    assert again == plan
    assert again.dump() == plan.dump()
    assert json.loads(plan.dump())["unit"] == "response_tokens"
    assert {type(task.rows_per_epoch) for source in plan.sources for task in source.tasks} == {int, tuple}


def test_epochs_are_numbered_through_the_phases() -> None:
    plan = planned()
    assert [plan.phase_at(epoch).name for epoch in range(5)] == ["first"] * 3 + ["last"] * 2
    wants = plan.wants()
    assert wants.keys() == {("web__a", None), ("web__ö", None), ("books", None)}
    for source in plan.sources:
        first, end = plan.by_phase and next(one.epochs for one in plan.phases if one.name == source.phase)
        for task in source.tasks:
            assert wants[task.key][first:end] == [task.wanted(epoch) for epoch in range(end - first)]


def test_a_folder_and_a_file(tmp_path: Path) -> None:
    plan = planned()
    (tmp_path / NAME).write_bytes(plan.dump())
    assert load_mixture(str(tmp_path)) == load_mixture(str(tmp_path / NAME)) == plan
    for path in (tmp_path / "none", tmp_path / "none.json"):
        with pytest.raises(InputError, match="none"):
            load_mixture(str(path))


def phase(raw: dict[str, Any], **values: Any) -> None:
    raw["phases"][1].update(values)


def source(raw: dict[str, Any], **values: Any) -> None:
    raw["sources"][0].update(values)


def task(raw: dict[str, Any], **values: Any) -> None:
    raw["sources"][0]["tasks"][0].update(values)


def elsewhere(raw: dict[str, Any]) -> None:
    """In the last phase two sources have each other's tasks."""
    one, other = raw["sources"][-2:]
    one["tasks"], other["tasks"] = other["tasks"], one["tasks"]


def very_long(raw: dict[str, Any]) -> None:
    raw["epochs"] = raw["phases"][1]["epochs"][1] = 10_001
    for source in raw["sources"]:
        for task in source["tasks"]:
            task["rows_per_epoch"] = 1


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw.update(format=2), "another format; got 2; expected 1"),
        (lambda raw: raw.update(unit="tokens"), "another unit"),
        (lambda raw: raw.update(epocs=5), "unknown key 'epocs'.*did you mean 'epochs'"),
        (lambda raw: raw.pop("seed"), "key missing; expected seed"),
        (lambda raw: raw.update(epochs=5.5), "epochs: .*not a valid value"),
        (lambda raw: raw.update(epochs=True), "epochs: .*not a valid value"),
        (lambda raw: raw.update(budget=float("nan")), "budget: .*not a valid value"),
        (lambda raw: raw.update(epochs=6), "do not have all epochs; got 5; expected 6"),
        (lambda raw: raw.update(phases=[]), "do not have all epochs"),
        (lambda raw: phase(raw, epochs=[4, 5]), "does not begin where the last one ends; got 4; expected 3"),
        (lambda raw: phase(raw, epochs=[3, 3]), "not a range"),
        (lambda raw: phase(raw, share=0.5), "do not add up to 1"),
        (lambda raw: source(raw, phase="middle"), "no such phase; got 'middle'; expected first, last"),
        (lambda raw: source(raw, method="best"), "unknown method"),
        (lambda raw: source(raw, share=0.9), "is not that of its tokens"),
        (lambda raw: source(raw, tasks={}), "not a list"),
        (lambda raw: task(raw, rows=-1), "rows: .*not a valid value"),
        (lambda raw: task(raw, rows_per_epoch=[1, 2]), "another length; got 2; expected 3"),
        (lambda raw: task(raw, rows_per_epoch=[1, 2, -1]), "not a count; got -1"),
        (lambda raw: task(raw, rows=0, rows_per_epoch=1), "without rows cannot give any"),
        (lambda raw: task(raw, bucket=2), "no such bucket; got 2; expected 0 to 1"),
        (lambda raw: task(raw, task="web__ö"), "lists a task twice"),
        (lambda raw: task(raw, task="books"), "two sources in phase 'first'.*'web' and 'books'"),
        (lambda raw: elsewhere(raw), "different sources in different phases; got 'books' and 'web'"),
        (lambda raw: very_long(raw), "epochs: .*out of range; got 10,001; expected at most 10,000"),
        (lambda raw: raw["sources"].append({}), r"sources\[5\]: not a valid .*key missing"),
    ],
)
def test_what_no_sampler_could_execute(change: Change, said: str) -> None:
    raw = json.loads(planned().dump())
    change(raw)
    with pytest.raises(InputError, match=said) as caught:
        read(json.dumps(raw).encode(), "there/mixture.json")
    assert str(caught.value).startswith("there/mixture.json")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_not_json(data: bytes) -> None:
    with pytest.raises(InputError, match=r"not a valid mixture\.json"):
        read(data, "there")


def test_twenty_thousand_tasks() -> None:
    """Planned, written and read in ten seconds of one core; it takes half of one, and a minute if it is quadratic."""
    tasks = [counted(f"s{number % 500:03}__{number:06}", 1 + number % 977, 5 + number % 83) for number in range(20_000)]
    by_name: dict[str, list[PlannedTask]] = {}
    for one in tasks:
        by_name.setdefault(one.task[:4], []).append(one)
    sources = [CountedSource(name, tuple(some)) for name, some in sorted(by_name.items())]
    start = time.process_time()
    made = make(sources, [WantedPhase("all", 1.0, 7, Recipe.parse("unimax", max_epochs=3.0))])
    plan = Mixture(0, 7, 65, 2, made.budget, made.unfilled, made.phases, made.sources, Inputs("0"))
    again = read(plan.dump(), "here")
    assert time.process_time() - start < 10
    assert len(plan.tasks) == 20_000
    assert again == plan
