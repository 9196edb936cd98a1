"""The planner in Rust against a plain one in Python, and what no byte of a plan depends on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.digest import digest_bytes
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import rows_of
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import INDEX, INFO, Dataset
from pairmill.rules.rule import Rule
from pairmill.stages.sample import draw as drawing
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import DatasetToDraw, draw_plan, in_plan_order
from pairmill.stages.sample.sampled_rows import DrawnSample
from pairmill.stages.sample.wants import WalkToDraw, Wants

CONFIG = SampleConfig(tokenized_path="unused", output_path="unused", epochs=4, context_size=40, seed=5)
RULES = (
    Rule(),
    Rule(max_per_file=7),
    Rule(max_per_file=30, repeat=2),
    Rule(repeat=3),
    Rule(max_response_tokens_per_file=100),
    Rule(max_response_tokens_per_file=1000, repeat=2),
    Rule(max_per_file=0),
    Rule(rows=(3, 0, 90, 41)),
    Rule(long_context="drop", max_per_file=11),
)
BUCKETS = 256


# --- a plain planner ------------------------------------------------------------------------------------------------


def numbers(*name: object) -> Iterator[int]:
    """The 32-bit numbers of a stream: numpy's Philox, keyed by BLAKE3 over seed and name."""
    digits = digest_bytes("\0".join(map(str, name)).encode()).removeprefix("blake3:")
    key = np.frombuffer(bytes.fromhex(digits)[:16], "<u8")
    random = np.random.Philox(key=key, counter=0)
    while True:
        yield from random.random_raw(32).astype("<u8").view("<u4").tolist()


def below(stream: Iterator[int], count: int) -> int:
    while True:
        wide = next(stream) * count
        if wide % 2**32 >= 2**32 % count:
            return wide >> 32


def shuffled(values: list[int], stream: Iterator[int]) -> list[int]:
    for top in range(len(values), 1, -1):
        place = below(stream, top)
        values[top - 1], values[place] = values[place], values[top - 1]
    return values


def walk(count: int, lengths: Sequence[int], wants: Sequence[tuple[int, int | None]], stream: Any) -> list[list[int]]:
    """The rows of each epoch, of which there are to be so many, or so many that they have so many tokens."""
    order, cursor = list(range(count)), 0
    result = []
    for left, budget in wants:
        whole, taken = 0, list[int]()
        while left > 0 and count and budget != 0:
            cursor %= count
            if cursor == 0 and left >= count and (budget is None or budget > sum(lengths)):
                whole, left = whole + 1, left - count
                budget = None if budget is None else budget - sum(lengths)
                continue
            place = cursor + below(stream, count - cursor)
            order[cursor], order[place] = order[place], order[cursor]
            taken.append(order[cursor])
            budget = None if budget is None else max(0, budget - lengths[order[cursor]])
            cursor, left = cursor + 1, left - 1
        result.append([*range(count)] * whole + taken)
    return result


def plain(tasks: Sequence[tuple[Dataset, str, Rule]], config: SampleConfig) -> list[list[tuple[int, ...]]]:
    """By epoch the rows in their order: number of the task, and its four columns."""
    epochs: list[list[list[tuple[int, ...]]]] = [[[] for _ in range(BUCKETS)] for _ in range(config.epochs)]
    decided = [
        (byte for draw in numbers(config.seed, f"epoch\0{n}") for byte in draw.to_bytes(4, "little"))
        for n in range(config.epochs)
    ]
    for number, (task, key, rule) in enumerate(tasks):
        columns = rows_of(task.name, rule, task.index(), config).columns
        rows = list(zip(*(columns[name].tolist() for name in INDEX), strict=True))
        cap = len(rows) if rule.max_per_file is None else min(rule.max_per_file, len(rows))
        budget = rule.max_response_tokens_per_file
        usual = (cap * rule.repeat, None if budget is None else budget * rule.repeat)
        wants = [usual] * config.epochs if rule.rows is None else [(count, None) for count in rule.rows]
        taken = walk(len(rows), columns["resp_len"].tolist(), wants, numbers(config.seed, f"task\0{key}"))
        for buckets, bytes_, mine in zip(epochs, decided, taken, strict=True):
            for row in mine:
                buckets[next(bytes_)].append((number, *rows[row]))
    return [
        [
            row
            for bucket, mine in enumerate(buckets)
            for row in shuffled(mine, numbers(config.seed, f"epoch\0{epoch}\0{bucket}"))
        ]
        for epoch, buckets in enumerate(epochs)
    ]


# --- the planner ----------------------------------------------------------------------------------------------------


def put(folder: Path, name: str, rows: int, kind: str = "<u8") -> None:
    """Write a task whose content follows from its number of rows."""
    random = np.random.default_rng(rows)
    inst, resp = random.integers(1, 30, rows), random.integers(0, 30, rows)
    ends = np.cumsum(inst + resp)
    (folder / name).mkdir(parents=True)
    np.save(folder / name / "tokens.npy", random.integers(0, 900, int((inst + resp).sum())).astype(np.uint32))
    for column, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
        np.save(folder / name / f"{column}.npy", values.astype(kind))


def opened(folder: Path) -> list[Dataset]:
    (folder / INFO).write_text(json.dumps({"vocab_size": 1000}))
    return open_tokenized(str(folder), "tokenized_path", tolerate_strays=True).tasks


def to_draw(task: Dataset, key: str, rule: Rule, config: SampleConfig, *, files: bool) -> DatasetToDraw:
    digests = [task.contents[name].digest for name in INDEX]
    return DatasetToDraw(
        task.name,
        rule,
        lambda: rows_of(task.name, rule, task.index(), config, numbered=True),
        lambda: Wants.by_rule(rule, config.seed, f"task\0{key}"),
        (task.uri, digests) if files else None,
    )


def rows_in_order(drawn: DrawnSample) -> list[list[tuple[int, ...]]]:
    """By epoch the rows in their order: number of the task, and its four columns."""
    sources = np.repeat(np.arange(len(drawn.datasets)), [item.stats.unique_rows for item in drawn.datasets])
    columns = [np.concatenate([*drawn.plan.rows[name].pieces(7)]).tolist() for name in INDEX]
    rows = list(zip(sources.tolist(), *columns, strict=True))
    return [[rows[place] for piece in epoch.pieces() for place in piece.tolist()] for epoch in drawn.plan.epochs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("tokenized")
    for number, rows in enumerate((40, 1, 0, 300, 25, 60, 33, 90, 41)):
        put(result, f"task{number}", rows, ("<u8", "<i8", "<u4")[number % 3])
    return result


def planned(folder: Path, config: SampleConfig = CONFIG, workers: int = 2, *, files: bool = True) -> DrawnSample:
    rules = {f"task{number}": rule for number, rule in enumerate(RULES)}
    tasks = [to_draw(task, key, rules[task.name], config, files=files) for task, key in in_plan_order(opened(folder))]
    return draw_plan(tasks, config, workers)


def test_a_plan_is_that_of_a_plain_planner(folder: Path) -> None:
    tasks = [(task, key, RULES[int(task.name[4:])]) for task, key in in_plan_order(opened(folder))]
    for seed in (0, 5, 2**70):
        config = replace(CONFIG, seed=seed)
        made = planned(folder, config)
        assert rows_in_order(made) == plain(tasks, config)
        assert all(len(set(row)) == len(row) for row in [[item.name for item in made.datasets]])
        for item in made.datasets:
            item.ledger.reconcile(item.name)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("files", [True, False])
def test_a_plan_does_not_depend_on_threads_memory_or_who_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int, files: bool
) -> None:
    expected = planned(folder)
    for memory, batch in ((1 << 30, 2), (1, 1), (2000, 3)):
        monkeypatch.setattr(drawing, "MEMORY", memory)
        monkeypatch.setattr(drawing, "_BATCH", batch)
        made = planned(folder, CONFIG, workers, files=files)
        assert rows_in_order(made) == rows_in_order(expected)
        assert made.datasets == expected.datasets
        assert (made.lengths, made.cuts) == (expected.lengths, expected.cuts)


def test_files_of_a_plan_are_removed_with_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MEMORY", 1)
    rules = [to_draw(task, key, Rule(), CONFIG, files=True) for task, key in in_plan_order(opened(folder))]
    made = draw_plan(rules, CONFIG, 2, tmp_path / "scratch")
    assert {path.name for path in (tmp_path / "scratch").glob("*/*")} > {"inst_len.npy", "epoch_3.npy"}
    saved = tmp_path / "epoch.npy"
    values = np.concatenate([*made.plan.epochs[3].pieces()])
    made.plan.epochs[3].save(saved)
    assert np.array_equal(np.load(saved), values)
    assert np.array_equal(np.concatenate([*made.plan.epochs[3].pieces()]), values)
    del made
    assert list((tmp_path / "scratch").iterdir()) == []


def test_another_name_and_another_task_change_no_row_of_the_others(folder: Path, tmp_path: Path) -> None:
    def sets(folder: Path) -> dict[Any, list[list[tuple[int, ...]]]]:
        tasks = in_plan_order(opened(folder))
        made = draw_plan([to_draw(*item, Rule(max_per_file=9), CONFIG, files=True) for item in tasks], CONFIG, 2)
        epochs = rows_in_order(made)
        return {
            key: [sorted(row[1:] for row in rows if row[0] == n) for rows in epochs] for n, (_, key) in enumerate(tasks)
        }

    for number, rows in enumerate((40, 300, 60)):
        put(tmp_path / "one", f"task{number}", rows)
        put(tmp_path / "other", f"{'zcb'[number]}__new", rows)
    put(tmp_path / "other", "added", 77)
    put(tmp_path / "other", "twice", 60)
    one, other = sets(tmp_path / "one"), sets(tmp_path / "other")
    assert len(other) == 5
    assert {key: other[key] for key in one} == one


def test_parts_of_a_task_are_drawn_by_themselves(folder: Path) -> None:
    (task,) = [item for item in opened(folder) if item.name == "task3"]
    eligible = rows_of(task.name, Rule(), task.index(), CONFIG, numbered=True)
    assert eligible.origins is not None
    starts = eligible.columns["inst_start"].tolist()
    walks = [
        WalkToDraw("a", np.arange(0, 300, 2, dtype=np.uint32), rows=[5, 0, 500, 1]),
        WalkToDraw("b", np.arange(1, 300, 2, dtype=np.uint32), rows=[9, 0, 2, 8]),
    ]
    for files in (True, False):
        item = to_draw(task, "k", Rule(), CONFIG, files=files)._replace(wants=lambda: Wants(walks))
        drawn = draw_plan([item], CONFIG, 2)
        for number, rows in enumerate(rows_in_order(drawn)):
            origins = eligible.origins[[starts.index(row[1]) for row in rows]]
            assert sum(origins % 2 == 0) == walks[0].rows[number]  # type: ignore[index]
            assert sum(origins % 2 == 1) == walks[1].rows[number]  # type: ignore[index]


def test_damage_is_worded_by_the_general_reader(tmp_path: Path) -> None:
    for name, change, said in (
        ("resp_len", lambda values: values + 1, "a span ends after the last token|tokens.npy has another length"),
        ("inst_start", lambda values: values[:-1], "the index arrays differ in length"),
        ("inst_start", lambda values: values + 2**40, "points outside the tokens"),
        ("inst_len", lambda values: values.astype(float), "not a one-dimensional array of integers"),
    ):
        put(tmp_path / name / said[:9], "t", 20)
        path = tmp_path / name / said[:9] / "t" / f"{name}.npy"
        np.save(path, change(np.load(path)))
        (task,) = opened(path.parent.parent)
        with pytest.raises(InputError, match=said):
            draw_plan([to_draw(task, "k", Rule(), CONFIG, files=True)], CONFIG, 1)
    put(tmp_path / "changed", "t", 20)
    (task,) = opened(tmp_path / "changed")
    path = tmp_path / "changed" / "t" / "inst_start.npy"
    values = np.load(path)
    values[3] = 0
    np.save(path, values)
    with pytest.raises(InputError, match=r"inst_start\.npy"):
        draw_plan([to_draw(task, "k", Rule(), CONFIG, files=True)], CONFIG, 1)


def test_unusual_arrays_are_read_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "usual", "t", 50)
    put(tmp_path / "unusual", "t", 50, ">u8")
    made = []
    for name in ("usual", "unusual"):
        (task,) = opened(tmp_path / name)
        made.append(rows_in_order(draw_plan([to_draw(task, "k", RULES[1], CONFIG, files=True)], CONFIG, 1)))
    assert made[0] == made[1] != [[]] * 4


def test_what_a_killed_run_left_is_removed_by_the_next(folder: Path, tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from pairmill.stages.sample import draw as drawing
from tests.unit.stages.sample.test_planner import CONFIG, Rule, in_plan_order, opened, to_draw
drawing.MEMORY = drawing._BATCH = 1
tasks = [to_draw(*item, Rule(), CONFIG, files=True) for item in in_plan_order(opened(Path(sys.argv[1])))]
made = drawing._Drawing(CONFIG, 2, Path(sys.argv[2]))
for number, _ in enumerate(made.draw(tasks)):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    scratch = tmp_path / "scratch"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script, folder, scratch], check=False)
        assert done.returncode == -signal.SIGKILL
        (left,) = scratch.iterdir()
        assert (left / "places").stat().st_size > 0
