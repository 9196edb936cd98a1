"""Exact deduplication by several rules: each decision names a row that stays, as a plain reading of docs/curation.md
decides in rank order.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from pairmill.engine import shuffle
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.stages.curate import exact, exact_by_rank, exact_files
from tests.support import tools
from tests.support.stages import curating
from tests.support.tokenizers import strings

RULES = ("pair", "instruction", "response")
FILES = {"data/a.jsonl": 30, "data/b.jsonl": 20, "holdout/data/h.jsonl": 6}
ALONE = {"near": "off", "heuristics": "off"}


class Row(NamedTuple):
    """A row and where it is."""

    task: str
    ordinal: int
    texts: tuple[str, str, str]

    @property
    def name(self) -> tuple[str, int]:
        return self.task, self.ordinal


class Finding(NamedTuple):
    """A decision."""

    row: tuple[str, int]
    rule: str
    action: str
    other: tuple[str, int]


def decide(rows: list[Row], said: dict[str, Any], before: list[Row]) -> list[Finding]:
    """The decisions on rows; those ``before``, of an index, stay."""
    caps = {"instruction": "max_responses_per_instruction", "response": "max_instructions_per_response"}
    longest = said["prefer"] == "longest_response"
    kept: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    found = []

    def order(row: Row) -> tuple[bool, int, str, int]:
        held_out = row.task.startswith(HELD_OUT)
        return not held_out, -len(row.texts[2].split()) if longest else 0, row.task, row.ordinal

    for row in [*before, *sorted(rows, key=order)]:
        fixed = row in before or row.task.startswith(HELD_OUT)
        own = said["exact"] | next(
            (one["exact"] for one in said["overrides"] if row.task.startswith(one["prefix"])), {}
        )
        keys = {"pair": row.texts[1:], "instruction": row.texts[1:2], "response": row.texts[2:]}
        stays = True
        for rule in RULES:
            cap = own.get(caps.get(rule, ""))
            act = "cap" if cap else own.get(rule, "report" if rule != "pair" else "drop")
            others = kept[rule, *keys[rule]]
            if not fixed and act != "off" and own["mode"] != "off" and len(others) >= (cap or 1):
                found.append(Finding(row.name, rule, act if own["mode"] == "drop" else "report", others[0]))
                if act != "report":
                    stays = False
                    break
        for rule in RULES if stays else ():
            # Of held-out rows a cap counts none.
            if rule == "pair" or not row.task.startswith(HELD_OUT):
                kept[rule, *keys[rule]].append(row.name)
    return found


def settings_of(draw: random.Random) -> dict[str, Any]:
    """Settings with which a field removes rows."""
    own: dict[str, Any] = {
        "mode": draw.choice(["drop", "drop", "report"]),
        "pair": draw.choice(["drop", "drop", "report", "off"]),
        "instruction": draw.choice(["drop", "drop", "report", "off"]),
        "response": draw.choice(["drop", "report"]),
    }
    if draw.random() < 0.3:
        own["max_instructions_per_response"] = draw.choice([1, 2])
    if draw.random() < 0.3:
        own["max_responses_per_instruction"] = draw.choice([1, 2])
    if own["response"] == own["instruction"] == "report":
        own["instruction"] = "drop"
    changed = draw.choice([{"instruction": "report"}, {"pair": "report"}, {"mode": "off"}, {"mode": "report"}])
    return {
        **ALONE,
        "prefer": draw.choice(["rank", "rank", "longest_response"]),
        "exact": own,
        "overrides": [{"prefix": "b", "exact": changed}] if draw.random() < 0.4 else [],
    }


def drawn(draw: random.Random, files: dict[str, int]) -> dict[str, list[tuple[str, str, str]]]:
    """Rows of few questions and answers; longer answers have more words."""
    questions = [f"q{number}" for number in range(draw.choice([4, 8, 20]))]
    answers = [f"a{number}" + " word" * (number % 3) for number in range(draw.choice([4, 8, 20]))]
    return {
        path: [*(("", draw.choice(questions), draw.choice(answers)) for _ in range(count - 1)), ("", path, path)]
        for path, count in files.items()
    }


def folder_of(folder: Path, files: dict[str, list[tuple[str, str, str]]]) -> Path:
    """A finished folder of another stage; what is below holdout/ is held out."""
    curating.write(folder, files)
    digests = tools.digests(folder)
    tasks = {path: path.replace("data/", "") for path in files}
    listed = [File(path, (folder / path).stat().st_size, digests[path], task) for path, task in tasks.items()]
    counts = {path: len(some) for path, some in files.items() if path.startswith(HELD_OUT)}
    total = sum(map(len, files.values()))
    ledger = Ledger(total, total, total - sum(counts.values()))
    Manifest("clean", 1, "0" * 16, {}, [InputRef("raw", "0")], ledger, listed, data={"held_out": counts}).finish(
        str(folder)
    )
    return folder


def rows_of(files: dict[str, list[tuple[str, str, str]]]) -> list[Row]:
    """All rows with their places."""
    return [Row(path.replace("data/", ""), at, texts) for path, some in files.items() for at, texts in enumerate(some)]


def findings(folder: Path, rows: list[Row]) -> list[Finding]:
    """The decisions of exact deduplication in a finished folder."""
    return [
        Finding((task, one["ordinal"]), one["rule"], one["action"], (one["other_task"], one["other_ordinal"]))
        for task in sorted({row.task for row in rows})
        for one in curating.decisions(folder, "exact", task)
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranges of keys and blocks of links."""
    monkeypatch.setattr(exact_files, "_PARTITION_BYTES", 512)
    monkeypatch.setattr(shuffle, "fans", lambda *_: [2])
    monkeypatch.setattr(exact, "_TASKS_PER_SPLIT", 1)
    monkeypatch.setattr(exact_by_rank, "_HELD", 0)
    monkeypatch.setattr(exact_by_rank, "_LEAST_BLOCK", 5 * exact_by_rank.LINK.itemsize)


@pytest.mark.usefixtures("small")
def test_each_row_is_decided_by_better_ranked_rows_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for run in range(10):
        # The state of groups is in memory, or in a file.
        monkeypatch.setattr(exact_by_rank, "_MOST_GROUPS", 0 if run % 4 > 1 else 1000)
        draw = random.Random(f"{run} {strings.SEED}")
        said, files = settings_of(draw), drawn(draw, FILES)
        before = drawn(draw, {"old.jsonl": 15}) if run % 2 else {}
        options: dict[str, Any] = {}
        first = []
        if before:
            old = curating.write(tmp_path / f"old {run}", before)
            indexed = curating.curate(tmp_path / f"root {run}", old, yaml.safe_dump(said), write_index=True)
            gone = decide(rows_of(before), said, [])
            dropped = {one.row for one in gone if one.action != "report"} if said["exact"]["mode"] == "drop" else set()
            removed = {one.row for one in gone if removes(one, said)}
            assert len(curating.kept(indexed, "old.jsonl")) == 15 - len(dropped)
            first = [row for row in rows_of(before) if row.name not in removed]
            options["index"] = str(indexed)
        given = folder_of(tmp_path / f"rows {run}", files)
        folder = curating.curate(tmp_path / f"root {run}", given, yaml.safe_dump(said), **options)
        rows = rows_of(files)
        expected = decide(rows, said, first)
        found = findings(folder, rows)
        assert sorted(found) == sorted(expected), (run, said)
        gone_rows = {one.row for one in found if one.action != "report"}
        assert not gone_rows & {one.other for one in found}, (run, said)
        for path, some in files.items():
            left = [texts for at, texts in enumerate(some) if (path.replace("data/", ""), at) not in gone_rows]
            assert curating.kept(folder, path) == left
        counts.update(f"{one.rule} {one.action}" for one in found)
    assert min(counts[f"{rule} drop"] for rule in RULES) > 10, counts
    assert counts["instruction cap"] > 10, counts
    assert counts["response report"] > 10, counts


def removes(one: Finding, said: dict[str, Any]) -> bool:
    """Whether a decision removes its row, or would in mode drop."""
    own = said["exact"]
    cap = {"instruction": "max_responses_per_instruction", "response": "max_instructions_per_response"}.get(
        one.rule, ""
    )
    return bool(own.get(cap)) or own[one.rule] == "drop"


def test_two_fields_that_drop_keep_every_question_that_has_a_row_of_its_own(tmp_path: Path) -> None:
    rows = [("", "q1", "a1"), ("", "q1", "a2"), ("", "q2", "a2"), ("", "q3", "a3")]
    given = curating.write(tmp_path / "rows", {"x.jsonl": rows})
    said = "exact: {instruction: drop, response: drop}\nnear: off\nheuristics: off\n"
    folder = curating.curate(tmp_path / "root", given, said)
    assert curating.kept(folder, "x.jsonl") == [rows[0], *rows[2:]]
    several = curating.curate(tmp_path / "other", given, said, workers=3)
    assert tools.digests(several / "decisions") == tools.digests(folder / "decisions")
