"""curate_config.yaml: the shipped file, and settings that differ by task."""

from __future__ import annotations

import pickle
import re

import pytest

from pairmill.errors import UsageError
from pairmill.stages.curate.settings import Settings, settings_type
from tests.support.helpers import REPOSITORY


def test_the_shipped_file_says_the_defaults() -> None:
    shipped = (REPOSITORY / "configs/curate_config.yaml").read_text(encoding="utf-8")
    assert shipped == Settings.default_file(), "run: pairmill curate settings > configs/curate_config.yaml"
    assert Settings.parse(shipped) == settings_type()()


def test_every_line_of_the_shipped_file_has_a_comment() -> None:
    lines = (REPOSITORY / "configs/curate_config.yaml").read_text(encoding="utf-8").splitlines()
    before = ""
    keys = 0
    for line in lines:
        if line and not line.lstrip().startswith("#"):
            keys += 1
            assert "#" in line or before.lstrip().startswith("#"), line
        before = line
    assert keys >= 40


def test_the_first_override_that_matches_counts() -> None:
    said = "overrides:\n- {prefix: web__a, near: off}\n- {prefix: web, exact: report, near: {mode: report}}\n"
    settings = Settings.parse(said)
    assert settings.for_task("web__a.jsonl").near.mode == "off"
    assert settings.for_task("web__a.jsonl").exact.mode == "drop"
    assert (settings.for_task("web__b.jsonl").exact.mode, settings.for_task("holdout/web__b").near.mode) == (
        "report",
        "report",
    )
    assert settings.for_task("books.jsonl") == settings.variants[0]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("exakt: off", "unknown key 'exakt'"),
        ("exact: {form: heavy}", "line 1, exact.form: unknown value; got 'heavy'; expected light or raw"),
        ("exact: {max_responses_per_instruction: 0}", "exact.max_responses_per_instruction: out of range; got 0"),
        ("overrides: [{near: off}]", "nothing says which tasks it is for"),
        ("overrides: [{prefix: a, nearr: off}]", "unknown key 'nearr'"),
        ("overrides: [{prefix: a, near: {bands: 3}}]", "this one is the same for all rows"),
        ("overrides: [{prefix: a, exact: away}]", "unknown value; got 'away'"),
        (
            "filter: {rules: [{name: a, attribute: words, max: 1}]}",
            "rules[1].attribute: not a valid value; got 'words'; expected <operation>.<column>",
        ),
        (
            "filter: {rules: [{name: a, attribute: x.words}]}",
            "filter.rules[1]: one or more of min, max, in is required",
        ),
        (
            "filter: {rules: [{name: 'a b', attribute: x.y, max: 1}]}",
            "name: not a valid value; got 'a b'; expected letters, digits, _, - and .",
        ),
        (
            "filter: {rules: [{name: a, attribute: x.y, max: 1}, {name: a, attribute: x.z, max: 1}]}",
            "filter.rules[2].name: occurs twice; got 'a'",
        ),
        ("heuristics: {rules: [{metric: wrods, max: 1}]}", "metric: unknown value; got 'wrods'"),
    ],
)
def test_a_mistake_is_refused(said: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings.parse(said)
    assert message in str(caught.value)


def test_overrides_name_tasks_as_rules_do() -> None:
    settings = Settings.parse(
        "overrides: [{match: [web__*, 'x{1,2}'], not: '*_old', near: off}, {re: '.*[0-9]+', near: report}]"
    )
    names = ("web__a", "holdout/web__a", "web__a_old", "x2", "x3", "x")
    assert [settings.variant_of(name) for name in names] == [1, 1, 0, 1, 2, 0]
    said = settings.to_manifest()["overrides"]
    assert said[0]["match"] == ["web__*", "x{1,2}"]
    assert said[0]["not"] == ["*_old"]
    with pytest.raises(UsageError, match=r"line 1, overrides\[1\]: braces without a comma; got 'a{b}'"):
        Settings.parse("overrides: [{match: 'a{b}', near: off}]")


def test_settings_go_to_other_processes() -> None:
    settings = Settings.parse("overrides: [{prefix: a, near: off}]")
    assert settings.variants
    assert settings.variant_of("ab") == 1
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_what_the_manifest_says_names_no_place() -> None:
    said = Settings.parse(
        "language: {mode: report, model: /home/me/lid.ftz}\noverrides: [{prefix: a, near: off}]"
    ).to_manifest()
    assert said["language"]["model"] == "lid.ftz"
    assert said["overrides"][0]["prefix"] == "a"
    assert said["overrides"][0]["near"]["mode"] == "off"


def test_the_examples_of_the_documentation_are_settings() -> None:
    text = (REPOSITORY / "docs" / "curation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        Settings.parse(block)


@pytest.mark.parametrize("name", ["source", "origin", "near"])
def test_a_classifier_cannot_have_the_name_of_another_folder_of_attributes(name: str) -> None:
    with pytest.raises(UsageError, match="not a valid name"):
        Settings.parse(f"classifiers: [{{name: {name}, kind: logit, model: x.npz}}]")
