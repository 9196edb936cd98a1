"""prefix_config.yaml: matching, and what either profile takes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill import log
from pairmill.engine.options import Profile
from pairmill.errors import UsageError
from pairmill.rules import DEFAULT_FILE
from pairmill.rules.book import SHIPPED, IdleRule, Rules
from pairmill.rules.rule import Rule, reference_json
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from tests.support.helpers import REPOSITORY

# The published mix of HRM-Text: prefix, max_per_file, repeat.
PUBLISHED = [
    ("SYNTH__", 20_000, 1),
    ("flan__cot_", None, 1),
    ("flan__", 5_000, 1),
    ("dmmath__", 100_000, 1),
    ("ampsmathematica__", 10_000, 1),
    ("tasksource__", 10_000, 1),
    ("openmathinstruct2__", 2_000_000, 1),
    ("acereason__", 2_000_000, 1),
    ("openthoughts2__", 500_000, 1),
    ("sudoku_extreme__", 1_000_000, 1),
    ("Platypus__", None, 10),
    ("omnimath.jsonl", None, 10),
    ("gsm8k_train.jsonl", None, 10),
    ("math_train.jsonl", None, 10),
    ("webinstruct_verified.jsonl", None, 10),
    ("no_robots.jsonl", None, 10),
]


def rules(*items: Any, profile: Profile = "pairmill") -> Rules:
    return Rules.from_items(list(items), profile, "rules.yaml")


def labels(rules: list[IdleRule]) -> list[str]:
    return [item.label for item in rules]


def load(tmp_path: Path, text: str, profile: Profile = "pairmill") -> Rules:
    (tmp_path / "rules.yaml").write_text(text)
    return Rules.load(str(tmp_path / "rules.yaml"), profile, "prefix_config_path")


def test_the_shipped_rules_are_the_published_ones() -> None:
    raw = yaml.safe_load((REPOSITORY / "prefix_config.yaml").read_text())
    assert [(item["prefix"], item.get("max_per_file"), item.get("repeat", 1)) for item in raw] == PUBLISHED
    assert {key for item in raw for key in item} == {"prefix", "max_per_file", "repeat"}


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_the_shipped_rules_apply_to_the_tasks_they_are_meant_for(profile: Profile) -> None:
    shipped = Rules.load(str(REPOSITORY / "prefix_config.yaml"), profile, "prefix_config_path")
    assert shipped.match("flan__cot_zsopt_data__wiki_dialog.parquet") == (Rule(), True)
    assert shipped.match("flan__niv2_zsopt_data__x.parquet") == (Rule(max_per_file=5_000), False)
    assert shipped.match("gsm8k_train.jsonl") == (Rule(repeat=10), False)
    assert shipped.match("Platypus__scibench.jsonl") == (Rule(repeat=10), False)
    for prefix, cap, repeat in PUBLISHED:
        assert shipped.match(prefix + "x")[0] == Rule(max_per_file=cap, repeat=repeat)
    for name in ("numinamath.jsonl", "platypus__x", "FLAN__x", "xflan__y"):
        assert shipped.match(name) == (Rule(), False)


def test_the_first_match_wins() -> None:
    found = rules({"prefix": "ab", "repeat": 2}, {"prefix": "a", "repeat": 3}, {"prefix": "b"})
    assert found.match("abc") == (Rule(repeat=2), True)
    assert found.match("ac") == (Rule(repeat=3), False)
    assert found.match("c") == (Rule(), False)


def test_of_rules_only_how_long_rows_are_treated_applies_to_held_out_rows() -> None:
    items = [
        {"prefix": "a__cot", "repeat": 3},
        {"prefix": "a__", "long_context": "split", "max_per_file": 5},
        {"prefix": "b", "long_context": "drop"},
    ]
    rules = Rules.from_items(items, "pairmill", "rules.yaml").of_long_rows("holdout/")
    found = {name: rules.match(f"holdout/{name}")[0] for name in ("a__cot.jsonl", "a__x.jsonl", "b.jsonl", "c.jsonl")}
    assert found == {
        "a__cot.jsonl": Rule(),
        "a__x.jsonl": Rule(long_context="split"),
        "b.jsonl": Rule(long_context="drop"),
        "c.jsonl": Rule(),
    }
    fewer = Rules.from_items([{**item, "max_per_file": 1} for item in items], "pairmill", "rules.yaml").of_long_rows(
        "holdout/"
    )
    assert fewer.digest() == rules.digest()


def test_every_key_is_read(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "- prefix: a\n  max_per_file: 20_000\n  repeat: 0\n  long_context: drop\n"
        "  max_response_tokens_per_file: 1_000\n"
        "- prefix: b\n  max_per_file: null\n  max_response_tokens_per_file: ~\n"
        "  long_context: truncate\n",
    )
    assert found.match("a")[0] == Rule(20_000, "drop", 0, 1_000)
    assert found.match("b")[0] == Rule()


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"prefix": "x", "max_per_fle": 5}, "unknown key 'max_per_fle'.*did you mean 'max_per_file'?"),
        ({"prefix": "x", "weight": 5}, "weight, and nothing to share out"),
        ({"prefix": "x", 5: 5}, "unknown key 5"),
        ({"max_per_file": 5}, "the rule has no prefix"),
        ({"prefix": None}, "prefix is not a text; got None"),
        ({"prefix": 5}, "prefix is not a text; got 5"),
        ("x", "the rule has no prefix"),
        (None, "the rule has no prefix"),
        ({"prefix": "x", "max_per_file": -1}, "max_per_file is not a count; got -1"),
        ({"prefix": "x", "max_per_file": 1.5}, "max_per_file is not a count; got 1.5"),
        ({"prefix": "x", "max_per_file": "five"}, "max_per_file is not a count; got 'five'"),
        ({"prefix": "x", "max_per_file": True}, "max_per_file is not a count; got True"),
        ({"prefix": "x", "max_per_file": [5]}, "max_per_file is not a count"),
        ({"prefix": "x", "repeat": None}, "repeat is not a count; got None"),
        ({"prefix": "x", "repeat": False}, "repeat is not a count"),
        ({"prefix": "x", "repeat": -2}, "repeat is not a count"),
        ({"prefix": "x", "max_response_tokens_per_file": "many"}, "max_response_tokens_per_file is not a count"),
        ({"prefix": "x", "long_context": "cut"}, "long_context is not valid; got 'cut'; expected truncate, drop or sp"),
        ({"prefix": "x", "long_context": None}, "long_context is not valid"),
        ({"prefix": "okay"}, "the rule for 'okay' can never apply; got 'ok' before it"),
        ({"prefix": "ok"}, "the rule for 'ok' can never apply"),
    ],
)
def test_a_wrong_rule_is_refused_at_once_by_its_number(item: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"rules.yaml rule 2: {said}") as caught:
        rules({"prefix": "ok"}, item)
    assert caught.value.exit_code == 2


def test_an_empty_prefix_hides_every_later_rule() -> None:
    assert rules({"prefix": "a"}, {"prefix": ""}).match("b") == (Rule(), False)
    with pytest.raises(UsageError, match="can never apply"):
        rules({"prefix": ""}, {"prefix": "a"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefix: a", "not a list of rules; got dict"),
        ("- [", "not valid YAML"),
        ("- prefix: \x00", "not valid YAML"),
    ],
)
@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_a_file_that_holds_no_rules_is_refused(tmp_path: Path, text: str, said: str, profile: Profile) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path, text, profile)


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_an_empty_list_is_fine(tmp_path: Path, profile: Profile) -> None:
    assert load(tmp_path, "[]", profile).match("x") == (Rule(), False)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"prefix_config_path=.*nothing.yaml: the rule file does not exist"):
        Rules.load(str(tmp_path / "nothing.yaml"), "pairmill", "prefix_config_path")


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_no_file_where_none_was_named_means_no_rules_and_is_said(
    tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log.setup()
    given = TrainTokenizerConfig(root="x", rows=["x"]).prefix_config_path
    found = Rules.load(given, profile, "prefix_config_path")
    assert found.match("x") == (Rule(), False)
    assert found.digest() == load(tmp_path, "[]", profile).digest()
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["severity"] == "WARNING"
    assert "no prefix_config.yaml in the working directory: every task is sampled completely" in line
    (tmp_path / "prefix_config.yaml").write_text("- prefix: x\n  repeat: 2\n")
    assert Rules.load(given, profile, "prefix_config_path").match("x") == (Rule(repeat=2), False)
    for named in ("prefix_confi.yaml", "./none.yaml"):
        with pytest.raises(UsageError, match="the rule file does not exist"):
            Rules.load(named, profile, "prefix_config_path")


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
@pytest.mark.parametrize("text", ["", "\n", "# none yet\n", "---\n", "null\n"])
def test_an_empty_file_holds_no_rules(tmp_path: Path, text: str, profile: Profile) -> None:
    assert load(tmp_path, text, profile).match("x") == (Rule(), False)


# --- data_io --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "value"), [(5.0, 5), ("5", 5), (" 7 ", 7), ("+5", 5), ("-5", -5), (-1, -1), (0, 0), ("0", 0)]
)
def test_data_io_takes_what_is_an_integer_in_disguise(given: Any, value: int) -> None:
    found = rules({"prefix": "x", "max_per_file": given, "repeat": given}, profile="data_io")
    assert found.match("x")[0] == Rule(max_per_file=value, repeat=value)


@pytest.mark.parametrize("given", [1.5, "1.5", "many", "", [5], {}, "--5", "+-5", "-", float("nan"), float("inf")])
def test_data_io_refuses_what_is_no_integer_once_a_task_matches(given: Any) -> None:
    found = rules({"prefix": "x", "max_per_file": given}, profile="data_io")
    assert found.match("y") == (Rule(), False)
    with pytest.raises(UsageError, match="max_per_file is not a count"):
        found.match("x")


def test_data_io_looks_at_a_rule_only_when_a_task_reaches_it() -> None:
    found = rules(
        {"prefix": "a", "unknown": 1, "max_response_tokens_per_file": "ignored"},
        {"prefix": "a"},
        {"max_per_file": 5},
        profile="data_io",
    )
    assert found.match("ab") == (Rule(), True)  # a second match ends the search
    with pytest.raises(UsageError, match="rule 3: the rule has no prefix"):
        found.match("b")


@pytest.mark.parametrize("value", ["cut", "split"])
def test_data_io_refuses_an_unknown_long_context(value: str) -> None:
    with pytest.raises(UsageError, match=f"long_context is not valid; got '{value}'; expected truncate or drop"):
        rules({"prefix": "x", "long_context": value}, profile="data_io").match("x")


def test_a_rule_may_split() -> None:
    assert rules({"prefix": "x", "long_context": "split"}).match("x") == (Rule(long_context="split"), False)


def test_data_io_has_no_token_budget() -> None:
    found = rules({"prefix": "x", "max_response_tokens_per_file": 5}, profile="data_io")
    assert found.match("x")[0].max_response_tokens_per_file is None


def test_a_rule_is_shown_as_the_reference_shows_it() -> None:
    assert reference_json(Rule()) == '{"max_per_file":null,"long_context":"truncate","repeat":1}'
    assert reference_json(Rule(5, "drop", 2, 7)) == '{"max_per_file":5,"long_context":"drop","repeat":2}'


def test_the_digest_follows_the_rules_and_not_how_they_are_written(tmp_path: Path) -> None:
    one = load(tmp_path, "- {prefix: a, max_per_file: 20_000}").digest()
    assert load(tmp_path, "# a remark\n- max_per_file: 20000\n  prefix: 'a'\n").digest() == one
    assert load(tmp_path, "- {prefix: a, max_per_file: 20_001}").digest() != one
    order = load(tmp_path, "- {prefix: ab}\n- {prefix: b}").digest()
    assert load(tmp_path, "- {prefix: b}\n- {prefix: ab}").digest() != order


def test_a_rule_is_idle_unless_it_is_the_first_that_matches_some_task() -> None:
    found = rules({"prefix": "a__b"}, {"prefix": "a__"}, {"prefix": "chta"})
    assert labels(found.idle(["a__b", "chat"])) == ["a__", "chta"]
    assert labels(found.idle(["a__b", "a__c"])) == ["chta"]
    assert labels(found.idle([])) == ["a__b", "a__", "chta"]
    assert [found.label_of(task) for task in ("a__bc", "a__", "A__")] == ["a__b", "a__", None]
    odd = rules("x", {"prefix": 3}, {"prefix": "b", "repeat": "many"}, profile="data_io")
    assert labels(odd.idle(["a"])) == ["b"]


def test_with_a_mixture_only_rules_for_long_rows_can_be_idle() -> None:
    some = [{"prefix": "a", "repeat": 2}, {"prefix": "b", "long_context": "split"}, {"prefix": "c"}]
    found = rules(*some, {"prefix": "d", "long_context": "truncate"})
    assert labels(found.idle(["c"], long_rows=True)) == ["b"]
    assert labels(found.of_long_rows("").idle(["c"], long_rows=True)) == ["b"]
    assert labels(found.of_long_rows("").idle(["b"], long_rows=True)) == []


def test_shipped_rules_are_never_idle_and_are_those_of_the_shipped_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = Rules.load(str(REPOSITORY / DEFAULT_FILE), "pairmill", "prefix_config_path")
    items = yaml.safe_load((REPOSITORY / DEFAULT_FILE).read_text())
    assert [item["prefix"] for item in items] == list(SHIPPED)
    shipped.warn_of_idle(["chat"])
    assert caplog.records == []
    own = load(tmp_path, "- {prefix: flan__}\n- {prefix: chta}")
    assert labels(own.idle(["chat"])) == ["chta"]
