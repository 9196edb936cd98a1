"""Which rows curate keeps, and whose they are in the ledger, is what a plain reading of spec/curation.md says, whatever
the settings.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.text import light
from tests.support.data.leaks import Item
from tests.support.definitions.curate_verdicts import Leaks, Text, verify
from tests.support.stages import curating
from tests.support.tokenizers import strings

RUNS = 40
FILES = {"data/web/a.parquet": 40, "data/gold/b.jsonl": 20, "data/synth.parquet": 40}


@dataclass
class Row:
    """A row and where it is."""

    path: str
    ordinal: int
    condition: str
    instruction: str
    response: str
    gone: str = ""

    @property
    def task(self) -> str:
        return self.path.rsplit(".", 1)[0].replace("/", "__")

    @property
    def texts(self) -> tuple[str, str]:
        return self.instruction, self.response


def texts(draw: random.Random) -> Callable[..., str]:
    return lambda *lengths: " ".join(draw.choices(curating.WORDS, k=draw.choice(lengths)))


def changed(draw: random.Random, text: str) -> str:
    words = text.split(" ")
    words[draw.randrange(len(words))] = draw.choice(curating.WORDS)
    more = [f"  {text}\n", text.upper(), " ".join(words), f"{text} 7", f"please now {text}"]
    return draw.choice([text, text, *more])


def asked(draw: random.Random, exam: Path) -> dict[str, Any]:
    """Settings."""
    exact: dict[str, Any] = {"form": draw.choice(["light", "light", "raw"])}
    exact["pair"] = draw.choice(["drop", "drop", "report", "off"])
    if draw.random() < 0.5:
        exact |= draw.choice([{"max_responses_per_instruction": draw.randint(1, 3)}, {"instruction": "drop"}])
    if draw.random() < 0.3:
        exact["max_instructions_per_response"] = draw.choice([2, 5])
    rules = [
        {"metric": "words", "field": "response", "min": 2, "name": "few"},
        {"metric": "digit_ratio", "field": "instruction", "max": 0.01, "name": "digits"},
    ]
    web = {"prefix": "data__web", "near": draw.choice(["off", "report"]), "heuristics": draw.choice(["off", "drop"])}
    drop_on = [["question_answer", "question"], ["question_answer"], ["question_answer", "question", "short_question"]]
    return {
        "source_priority": draw.choice([[], ["data__gold"], ["data__synth", "data__web"]]),
        "prefer": draw.choice(["rank", "rank", "longest_response"]),
        "same_condition_only": draw.random() < 0.3,
        "report_all": draw.random() < 0.1,
        "exact": exact,
        "near": {
            "mode": draw.choice(["drop", "drop", "report", "off"]),
            "number_guard": draw.choice(["both", "instruction", "off"]),
        },
        "decontaminate": {
            "mode": draw.choice(["drop", "report"]),
            "drop_on": draw.choice(drop_on),
            "benchmarks": [{"name": "exam", "uri": str(exam), "question": "q", "answers": "a", "item": "id"}],
        },
        "heuristics": {"mode": draw.choice(["drop", "report"]), "profile": "none", "rules": rules},
        "overrides": draw.choice([[], [web]]),
    }


class Definition:
    """Decides about all rows by the settings."""

    def __init__(self, rows: list[Row], settings: dict[str, Any], items: list[Item]) -> None:
        self._settings, self._items = settings, items
        priority = settings["source_priority"]

        def rank(row: Row) -> tuple[int, int, str, int]:
            first = next((at for at, one in enumerate(priority) if row.task.startswith(one)), len(priority))
            longest = settings["prefer"] == "longest_response"
            return -len(Text(row.response).tokens) if longest else 0, first, row.task, row.ordinal

        self._rows = sorted(rows, key=rank)

    def decide(self) -> None:
        if self._settings["report_all"]:
            return
        self._exact()
        self._near()
        self._decontaminate()
        for row in self._left():
            if self._mode(row, "heuristics") == "drop":
                if len(row.response.split()) < 2:
                    row.gone = "heuristic:few"
                elif sum(map(str.isdecimal, row.instruction)) > 0.01 * len(row.instruction):
                    row.gone = "heuristic:digits"

    def _left(self) -> list[Row]:
        return [row for row in self._rows if not row.gone]

    def _mode(self, row: Row, operation: str) -> str:
        for one in self._settings["overrides"]:
            if row.task.startswith(one["prefix"]):
                return str(one[operation])
        return str(self._settings[operation]["mode"])

    def _exact(self) -> None:
        said = self._settings["exact"]
        form: Callable[[str], str] = light if said["form"] == "light" else str

        def key(row: Row, *parts: str) -> tuple[str, ...]:
            before = [row.condition] if self._settings["same_condition_only"] else []
            return (*before, *map(form, parts))

        caps = {"instruction": "max_responses_per_instruction", "response": "max_instructions_per_response"}
        fields = {"pair": (0, 1), "instruction": (0,), "response": (1,)}
        kept: Counter[Any] = Counter()
        for row in self._rows:
            keys = {rule: (rule, *key(row, *(row.texts[at] for at in some))) for rule, some in fields.items()}
            for rule, own in keys.items():
                cap = said.get(caps.get(rule, ""))
                if (cap or said.get(rule) == "drop") and kept[own] >= (cap or 1) and not row.gone:
                    row.gone = f"cap_{rule}" if cap else "dup_exact"
            kept.update([] if row.gone else keys.values())

    def _near(self) -> None:
        retained: list[Row] = []
        for row in self._left():
            mode = self._mode(row, "near")
            if mode == "off":
                continue
            others = [
                one for one in retained if not self._settings["same_condition_only"] or one.condition == row.condition
            ]
            if any(verify(row.texts, one.texts, self._settings["near"]["number_guard"]).duplicate for one in others):
                row.gone = "dup_near" if mode == "drop" else ""
            else:
                retained.append(row)

    def _decontaminate(self) -> None:
        said = self._settings["decontaminate"]
        if said["mode"] != "drop":
            return
        leaks = Leaks(self._items)
        for row in self._left():
            verdicts = {leak.verdict for leak in leaks.of(*row.texts).values()}
            worst = [one for one in ("question_answer", "question", "variant", "short_question") if one in verdicts]
            dropping = [one for one in worst if one in said["drop_on"]]
            row.gone = f"contaminated_{dropping[0]}" if dropping else ""


@pytest.mark.parametrize("run", range(RUNS))
def test_rows_stay_or_go_as_the_definition_says(run: int, tmp_path: Path) -> None:
    draw = random.Random(f"{run} {strings.SEED}")
    text = texts(draw)
    some = [(text(2, 18, 30, 40), draw.choice(["yes", "no", text(25), text(40)])) for _ in range(8)]
    items = [Item(f"item {number}", text(3, 8, 20, 40), [text(2)], "exam") for number in range(3)]
    rows = []
    for path, count in FILES.items():
        for ordinal in range(count):
            question, answer = draw.choice(some)
            if draw.random() < 0.08:
                item = draw.choice(items)
                question, answer = item.question, draw.choice([item.answers[0], "none"])
            answer = changed(draw, answer) if draw.random() < 0.4 else answer
            rows.append(Row(path, ordinal, draw.choice(["direct", "cot"]), changed(draw, question), answer))
    exam = tmp_path / "exam.jsonl"
    lines = [json.dumps({"id": item.name, "q": item.question, "a": item.answers}) + "\n" for item in items]
    exam.write_text("".join(lines))
    settings = asked(draw, exam)
    given = {path: [(row.condition, *row.texts) for row in rows if row.path == path] for path in FILES}
    folder = curating.curate(tmp_path / "root", curating.write(tmp_path / "rows", given), yaml.safe_dump(settings))
    Definition(rows, settings, items).decide()
    for path in FILES:
        left = [(row.condition, *row.texts) for row in rows if row.path == path and not row.gone]
        found = curating.kept(folder, path) if (folder / path).exists() else []
        assert found == left, f"{path} with {settings}"
    ledger = curating.manifest(folder).ledger
    assert ledger.dropped == Counter(row.gone for row in rows if row.gone), settings
