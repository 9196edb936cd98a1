"""Every example of docs/rules.md is read, and solved for tasks of the shape that the teams have."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.rules.book import Rules
from pairmill.rules.solve import Pool
from pairmill.rules.solve_rules import SolvedRules, solve_rules
from tests.support.data import dfm
from tests.support.helpers import REPOSITORY

EPOCHS = 4
PAGE = (REPOSITORY / "docs" / "rules.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
TASKS = dict(dfm.names(1_600))
NAMES = [*TASKS]


def pool() -> Pool:
    random = np.random.default_rng(0)
    rows = random.integers(1_000, 200_000, len(NAMES))
    prompts = np.array([family.prompt for family in TASKS.values()])
    responses = np.array([family.response for family in TASKS.values()])
    squares = rows * (prompts + responses) ** 2
    return Pool(rows, rows * prompts, rows * responses, squares, rows * responses**2, np.arange(len(NAMES)))


def solved(example: Any) -> tuple[Rules, SolvedRules, Pool]:
    rules, tasks = Rules.from_items(example, "pairmill", "docs/rules.md"), pool()
    base = [rules.match(name)[0] for name in NAMES]
    if rules.top.unmatched == "leave":
        off = Rules.from_items([{"prefix": "", "skip": True}], "pairmill", "").match("")[0]
        base = [off if rules.label_of(name) is None else rule for name, rule in zip(NAMES, base, strict=True)]
    return rules, solve_rules(rules, NAMES, tasks, EPOCHS, base), tasks


def rows_of(rules: Rules, outcome: SolvedRules, group: str) -> float:
    mine = [place for place, name in enumerate(NAMES) if rules.group_of(name) == group]
    assert mine, group
    return float(outcome.rows[mine].sum())


def test_the_page_has_a_first_file_and_three_examples() -> None:
    assert len(EXAMPLES) == 4
    first = Rules.from_items(EXAMPLES[0], "pairmill", "docs/rules.md")
    labels = {name: first.label_of(name) for name in ("flan__t0_1", "flan__t0_zsopt", "x_da1.parquet", "retired__")}
    assert [label and label.split()[0] for label in labels.values()] == ["match", "flan__", "re", "retired__"]


def test_caps_by_group_are_met_exactly() -> None:
    rules, outcome, tasks = solved(EXAMPLES[1])
    wanted = {"flan_factual": 200_000, "flan__": 400_000, "synthetic": 670_000, "opus": 50_000}
    assert {name: round(rows_of(rules, outcome, name)) for name in wanted} == wanted
    mine = [place for place, name in enumerate(NAMES) if rules.group_of(name) == "dynaword"]
    tokens = float(outcome.tokens[mine].sum())
    assert 250e6 - 1_000 * len(mine) < tokens <= 250e6
    place = next(place for place, name in enumerate(NAMES) if name.startswith("Platypus__"))
    assert outcome.rows[place] == 10 * tasks.rows[place]


def test_a_third_of_the_epoch_is_from_the_anchors() -> None:
    rules, outcome, _ = solved(EXAMPLES[2])
    tokens = {group.name: group.tokens for group in outcome.groups}
    assert tokens["anchors"] / outcome.tokens.sum() == pytest.approx(0.33, abs=0.0005)
    assert tokens["opus_da_en__"] / tokens["anchors"] == pytest.approx(0.05, abs=0.0005)
    assert tokens["nemotron_swe__"] == 0
    least = min(outcome.rows[place] for place, name in enumerate(NAMES) if rules.label_of(name) is None)
    assert 0 < least <= 10_000


def test_the_recipe_has_two_billion_tokens_within_a_row_a_task() -> None:
    _, outcome, tasks = solved(EXAMPLES[3])
    assert abs(float(outcome.tokens.sum()) - 2e9) <= float(tasks.mean().sum())
    assert outcome.scale is not None
    assert outcome.scale.floor < 2e9 < outcome.scale.ceiling
