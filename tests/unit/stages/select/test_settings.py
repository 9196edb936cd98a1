"""select_config.yaml: the shipped file, and what it refuses."""

from __future__ import annotations

import math

import pytest

from pairmill.errors import UsageError
from pairmill.stages.select.rankings import Budget, Ranking, rankings_of
from pairmill.stages.select.settings import SELECTORS, Selector, Settings
from tests.support.helpers import REPOSITORY

TARGET = "dsir: {targets: [{name: a, rows: a.jsonl}]}\n"
SCORE = "attributes: {score: [{attribute: x.y}]}\n"
WHERE = "attributes: {where: [{attribute: x.y, max: 1}]}\n"


def test_the_shipped_file_says_the_defaults_and_is_off() -> None:
    shipped = (REPOSITORY / "configs/select_config.yaml").read_text(encoding="utf-8")
    assert shipped == Settings.default_file(), "run: pairmill select settings > configs/select_config.yaml"
    assert Settings.parse(shipped) == Settings()
    assert Settings().method == "off"


def test_every_line_of_the_shipped_file_has_a_comment() -> None:
    before, keys = "", 0
    for line in (REPOSITORY / "configs/select_config.yaml").read_text(encoding="utf-8").splitlines():
        if line and not line.lstrip().startswith("#"):
            keys += 1
            assert "#" in line or before.lstrip().startswith("#"), line
        before = line
    assert keys >= 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (f"method: dsir\n{TARGET}", "give one of rows, tokens and share"),
        (f"method: dsir\nrows: 1\nshare: 0.5\n{TARGET}", "line 3, share: give one of rows, tokens and share"),
        (f"method: dsir\nrows: 0\n{TARGET}", "rows: out of range; got 0"),
        (f"method: dsir\ntokens: -1\n{TARGET}", "tokens: out of range"),
        (f"method: dsir\nshare: 1.5\n{TARGET}", "share: out of range; got 1.5"),
        ("method: dsir\nrows: 1", "dsir.targets: no target is given; got method: dsir"),
        (f"method: dsir\nrows: 1\n{TARGET}{WHERE}", "bounds are not read with this method"),
        (f"method: filter_then_dsir\nrows: 1\n{TARGET}", "no bound is given"),
        ("method: target_by_attribute\nrows: 1", "no bound is given"),
        (f"method: target_by_attribute\nrows: 1\n{TARGET}{WHERE}", "targets are not read with this method"),
        ("method: attributes\nrows: 1", "nothing is scored"),
        (f"method: hybrid\nrows: 1\n{TARGET}", "nothing is scored"),
        (
            f"method: hybrid\nrows: 1\n{SCORE}dsir: {{targets: [{{name: a, rows: a}}, {{name: b, rows: b}}]}}",
            "hybrid has one target",
        ),
        (f"method: hybrid\nrows: 1\n{TARGET}{SCORE}hybrid: {{lambda: 1.1}}", "hybrid.lambda: out of range"),
        ("dsir: {targets: [{name: a, rows: a}, {name: a, rows: b}]}", "dsir.targets[2].name: occurs twice; got 'a'"),
        (
            "dsir: {targets: [{name: a b, rows: a}]}",
            "name: not a valid value; got 'a b'; expected letters, digits, _, - and .",
        ),
        ("dsir: {targets: [{name: a, rows: ''}]}", "dsir.targets[1].rows: is empty"),
        ("dsir: {targets: [{name: a, rows: b, share: 0}]}", "share: out of range"),
        ("dsir: {ngrams: 0}", "dsir.ngrams: out of range"),
        ("dsir: {buckets: 1}", "dsir.buckets: out of range"),
        ("dsir: {laplace: -1}", "dsir.laplace: out of range"),
        ("dsir: {fit_share: 0}", "dsir.fit_share: out of range"),
        ("dsir: {fields: []}", "dsir.fields: is empty"),
        ("dsir: {fields: [response, response]}", "dsir.fields[2]: occurs twice; got 'response'"),
        ("dsir: {hash: md5}", "unknown value; got 'md5'"),
        (
            "attributes: {score: [{attribute: words}]}",
            "attribute: not a valid value; got 'words'; expected <operation>.<column>",
        ),
        ("attributes: {where: [{attribute: x.y}]}", "min, max, in is required"),
        (
            "attributes: {where: [{attribute: x.y, min: 2, max: 1}]}",
            "min: out of range; got 2; expected at most 1 (max)",
        ),
        ("attributes: {quota: {method: weights}}", "method and weights do not fit together"),
        ("attributes: {quota: {weights: {a: 1}}}", "method and weights do not fit together"),
        ("attributes: {tau: 0}", "attributes.tau: out of range"),
        ("methods: dsir", "unknown key 'methods'"),
    ],
)
def test_a_mistake_is_said_with_its_place(settings: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"select_config\.yaml") as caught:
        Settings.parse(settings)
    assert message in str(caught.value), caught.value


def test_lambda_one_needs_no_score() -> None:
    assert (
        Settings.parse(f"method: hybrid\nrows: 1\n{TARGET}hybrid: {{lambda: 1}}").selector.reason
        == "not_selected_hybrid"
    )


def test_places_are_not_content() -> None:
    item = Settings.parse("dsir: {targets: [{name: a, rows: s3://one/t.jsonl}]}").to_manifest()
    other = Settings.parse("dsir: {targets: [{name: a, rows: /two/t.jsonl}]}").to_manifest()
    assert item == other


def test_shares_of_targets_are_of_the_budget() -> None:
    settings = "method: dsir\nrows: 10\ndsir: {targets: [{name: a, rows: a, share: 3}, {name: b, rows: b}]}"
    assert rankings_of(Settings.parse(settings)) == (Ranking("a", 0.75, "a"), Ranking("b", 0.25, "b"))


@pytest.mark.parametrize(("share", "count", "rows"), [(0.29, 100, 29), (0.1, 1000, 100), (0.001, 10, 1), (1.0, 7, 7)])
def test_a_share_is_the_number_that_is_written(share: float, count: int, rows: int) -> None:
    assert math.floor(0.29 * 100) == 28
    assert Budget.from_settings(Settings(method="attributes", share=share, attributes=_scored()), count) == Budget(
        rows=rows
    )


def _scored() -> object:
    return Settings.parse(SCORE).attributes


def test_a_selector_without_targets_and_score_has_one_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELECTORS, "plain", Selector())
    settings = Settings(rows=1)
    object.__setattr__(settings, "method", "plain")
    assert rankings_of(settings) == (Ranking("plain", 1.0, ""),)
