"""Metrics of rows, their rules, and personal data."""

import numpy as np
import pyarrow as pa
import pytest

from pairmill.errors import UsageError
from pairmill.formats import rows
from pairmill.formats.attributes import schema_of
from pairmill.stages.curate.operation import Rule
from pairmill.stages.curate.scores.heuristics import METRICS, PAIR, PROFILES, HeuristicsScorer, HeuristicsSettings
from pairmill.stages.curate.settings import Settings


def batch(*pairs: tuple[str | None, str | None]) -> rows.Batch:
    instruction, response = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    return rows.Batch(0, pa.array([""] * len(pairs)), instruction, response)


def scored(settings: HeuristicsSettings, given: rows.Batch) -> dict[str, pa.Array]:
    (scorer,) = settings.scorers("")
    with scorer.opened() as score:
        columns = score(given).columns
    return dict(zip(scorer.types(), pa.table(columns, schema_of(scorer.types())).columns, strict=True))


def first_failing(rules: list[Rule], columns: dict[str, pa.Array], count: int) -> list[int]:
    """The index of the first rule that each row breaks, or -1."""
    broken = [rule.broken_by(columns[rule.attribute], columns[rule.when[0]] if rule.when else None) for rule in rules]
    return [next((at for at, rows_ in enumerate(broken) if rows_[row]), -1) for row in range(count)]


def failing(settings: HeuristicsSettings, *pairs: tuple[str, str]) -> list[str]:
    """Of each row the name of the first rule that it breaks, or nothing."""
    made = settings.rules()
    columns = {name: column.combine_chunks() for name, column in scored(settings, batch(*pairs)).items()}
    first = first_failing(made, columns, len(pairs))
    return ["" if at < 0 else made[at].name for at in first]


def test_all_metrics_of_both_fields_and_of_the_pair_are_attributes() -> None:
    columns = scored(HeuristicsSettings(), batch(("one two", "three"), ("same", " same")))
    assert {f"{prefix}{name}" for prefix in ("i_", "r_") for name in METRICS} | set(PAIR) <= set(columns)
    assert columns["i_words"].to_pylist() == [2, 1]
    assert columns["r_chars"].to_pylist() == [5, 5]
    assert columns["j_words"].to_pylist() == [3, 2]
    assert columns["p_same"].to_pylist() == [0, 1]


def test_an_empty_text_has_no_metrics_and_breaks_no_rule() -> None:
    settings = HeuristicsSettings(profile="gopher")
    columns = scored(settings, batch(("", "some words"), ("question", ""), (None, None)))
    assert columns["i_words"].to_pylist() == [None, 1, None]
    assert columns["r_words"].to_pylist() == [2, None, None]
    assert columns["p_same"].to_pylist() == [None, None, None]
    assert columns["j_words"].to_pylist() == [2, 1, None]
    assert failing(settings, ("", "some words"), ("question", "")) == ["r_words_min", ""]


def test_texts_are_joined_by_a_line_feed_unless_one_is_empty() -> None:
    found = _columns("j_chars", "j_newline_word_ratio", given=batch(("ab", "c"), ("", "c"), ("ab", "")))
    assert found == {"j_chars": [4, 1, 2], "j_newline_word_ratio": [0.5, 0.0, 0.0]}


def _columns(*names: str, given: rows.Batch) -> dict[str, list[float]]:
    scorer = HeuristicsScorer(names)
    with scorer.opened() as score:
        return {name: column.to_pylist() for name, column in zip(names, score(given).columns, strict=True)}


def test_a_slice_of_a_batch_has_its_own_values() -> None:
    whole = batch(("a", "b"), ("", "c d"), ("e f g", "h"))
    part = rows.Batch(1, *(column.slice(1) for column in (whole.condition, whole.instruction, whole.response)))
    assert _columns("i_words", "r_words", "p_same", given=part) == {
        "i_words": [None, 3],
        "r_words": [2, 1],
        "p_same": [None, 0],
    }


def test_a_value_on_a_bound_is_kept() -> None:
    rule = Rule("r", "x", min=1, max=2)
    assert rule.broken_by(pa.array([0.9, 1, 2, 2.1, None])).tolist() == [True, False, False, True, False]


def test_the_first_rule_that_a_row_breaks_owns_it() -> None:
    first, second = Rule("first", "x", max=1), Rule("second", "y", min=5, when=("x", 1))
    columns = {"x": pa.array([2, 1, 0, None]), "y": pa.array([0, 0, 0, 0])}
    assert first_failing([first, second], columns, 4) == [0, 1, -1, -1]
    assert first_failing([], columns, 4) == [-1] * 4


def test_the_default_rules_find_what_they_are_for() -> None:
    assert failing(
        HeuristicsSettings(),
        ("What is 2 + 2?", "4"),
        ("Where?", "https://example.org/a/long/path"),
        ("again", "again "),
        ("word", "x" * 1001),
        ("symbols", "+-*/=+-*/="),
        ("short and repeated", "ha " * 49),
        ("long and repeated", "ha " * 25 + "ho " * 25),
        ("w " * 100_001, "fine"),
    ) == [
        "",
        "r_url_ratio_max",
        "p_same_max",
        "r_max_word_length_max",
        "r_symbol_ratio_max",
        "r_dup_10gram_char_frac_max",
        "r_dup_10gram_char_frac_max",
        "i_words_max",
    ]


def test_repeated_characters_count_from_fifty_words_on() -> None:
    def text(words: int) -> str:
        return " ".join(f"{number:02}abcdefghijklmnopqrstuvwxyz" for number in range(words))

    assert failing(HeuristicsSettings(), ("q", text(49)), ("q", text(50))) == ["", "r_char_rep_ratio_max"]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_asks_only_for_metrics_that_are_made(profile: str) -> None:
    for metrics in ("all", "rules"):
        settings = HeuristicsSettings(profile=profile, metrics=metrics)  # type: ignore[arg-type]
        (scorer,) = settings.scorers("")
        asked = {rule.attribute for rule in settings.rules()}
        assert asked <= set(scorer.types())
        if metrics == "rules":
            asked |= {rule.when[0] for rule in settings.rules() if rule.when}
            assert asked == set(scorer.types())


def test_rules_of_the_file_follow_the_profile_and_replace_those_of_an_equal_name() -> None:
    text = """
heuristics:
  mode: drop
  rules:
  - {metric: url_ratio, max: 0.5}
  - {metric: words, field: joined, min: 3, max: 9, name: length}
  - {metric: digit_ratio, field: instruction, max: 0.9, if: {metric: words, min: 5}}
"""
    made = Settings.parse(text).heuristics.rules()
    assert made[0] == Rule("r_url_ratio_max", "r_url_ratio", max=0.5)
    assert made[-2:] == [
        Rule("length", "j_words", min=3, max=9),
        Rule("i_digit_ratio_max", "i_digit_ratio", max=0.9, when=("i_words", 5)),
    ]


def test_an_override_may_ask_for_further_metrics() -> None:
    text = """
heuristics: {metrics: rules, profile: none}
overrides:
- {prefix: web, heuristics: {mode: drop, profile: seed_web}}
"""
    settings = Settings.parse(text)
    variants = [one.heuristics for one in settings.variants]
    (scorer,) = settings.heuristics.scorers("", variants)
    assert list(scorer.types()) == ["j_words", "j_non_alnum_ratio", "j_digit_ratio", "j_url_ratio"]
    assert [one.profile for one in variants] == ["none", "seed_web"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{metric: url_ration, max: 1}", "unknown value"),
        ("{metric: url_ratio}", "one or more of min, max is required"),
        ("{metric: words, max: 1, if: {metric: wordz, min: 1}}", "unknown value"),
        ("{metric: words, max: 1, name: a b}", "not a valid value"),
        ("{metric: words, max: 1, bound: 2}", "unknown key"),
    ],
)
def test_a_wrong_rule_is_named_with_its_line(rule: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings.parse(f"heuristics:\n  rules:\n  - {rule}\n")
    assert said in caught.value.what
    assert "line 3" in caught.value.where


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="duplicate name 'r_words_max'"):
        Settings.parse("heuristics: {rules: [{metric: words, max: 1}, {metric: words, max: 2}]}")


def test_a_scorer_says_what_its_values_follow_from() -> None:
    (scorer,) = HeuristicsSettings().scorers("")
    assert scorer.identity() == scorer.identity()
    assert np.unique(list(scorer.types().values())).tolist() == ["integer", "number"]
