"""A rule file's own words: what they are read as, and which of them are refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from pairmill.errors import UsageError
from pairmill.rules.book import Rules
from pairmill.rules.clause import Budget, LengthClass, Scale
from pairmill.rules.rule import Rule


def read(text: str) -> Rules:
    return Rules.from_items(yaml.safe_load(text), "pairmill", "r.yaml")


def test_the_words_of_a_group_are_read() -> None:
    rules = read(
        "- {match: 'da__*', group: danish, max_rows: 5e4, max_tokens: 1.2e9, count: response, repeat: 2}\n"
        "- {prefix: opus__, group: danish, weight: 0.5}\n"
        "- {prefix: anchor__, share: 33% of epoch, within: sqrt, passes: 1, weights: {'*_low': 0.25}}\n"
        "- {prefix: en__, tokens: 0.25 of danish}\n"
        "- {prefix: fr__, tokens: 50% of anchor__}\n"
        "- {prefix: de__, tokens: 1_000, within: unimax}\n"
        "- {prefix: sv__, fraction: 0.25}\n"
        "- {prefix: no__, passes: 2.5}\n"
        "- {prefix: old__}\n"
    )
    groups = {group.name: group for group in rules.groups}
    assert [*groups] == ["danish", "anchor__", "en__", "fr__", "de__", "sv__", "no__", "old__"]
    danish = groups["danish"]
    assert (danish.max_rows, danish.max_tokens, danish.count, danish.clauses) == (
        50_000,
        1_200_000_000,
        "response",
        (0, 1),
    )
    anchor = groups["anchor__"]
    assert (anchor.share, anchor.within, anchor.passes, anchor.weights) == (0.33, "sqrt", 1, {"*_low": 0.25})
    assert [groups[name].tokens for name in ("en__", "fr__", "de__")] == [
        Budget(fraction=0.25, group="danish"),
        Budget(fraction=0.5, group="anchor__"),
        Budget(tokens=1_000),
    ]
    assert (groups["sv__"].fraction, groups["no__"].passes) == (0.25, 2.5)
    assert [clause.weight for clause in rules.clauses[:3]] == [1.0, 0.5, 1.0]
    assert [rules.group_of(task) for task in ("opus__1", "old__1", "new__1")] == ["danish", None, None]
    assert rules.match("da__x")[0] == Rule(repeat=2)
    assert not groups["old__"].bounded
    assert rules.needs_solving


def test_the_words_of_a_task_are_read() -> None:
    rules = read(
        "- {prefix: a, max_per_file: 5e3, per_task: {max_tokens: 1e6, count: response}}\n"
        "- {prefix: b, per_task: {max_tokens: 1e6, fraction: 0.5}}\n"
        "- {prefix: c, skip: true}\n"
        "- {prefix: d, select_rows: gs://x/y, keep_together: chat.id}\n"
        "- {prefix: e, lengths: [{upto: 512, share: 30%, no_repeat: true}, {upto: 2048, share: 50%}, {}]}\n"
    )
    assert rules.match("a")[0] == Rule(5_000, max_response_tokens_per_file=1_000_000)
    assert (rules.clauses[1].max_tokens, rules.clauses[1].fraction) == (1_000_000, 0.5)
    assert rules.match("c")[0].is_off()
    assert (rules.clauses[3].select_rows, rules.clauses[3].keep_together) == ("gs://x/y", "chat.id")
    assert rules.clauses[4].lengths == (
        LengthClass(512, 0.3, True),
        LengthClass(2048, 0.5),
        LengthClass(None, pytest.approx(0.2)),
    )
    assert [clause.needs_solving for clause in rules.clauses] == [False, True, False, True, True]


def test_old_words_alone_need_no_solving_and_a_mapping_of_them_is_the_same_file() -> None:
    old = read("- {prefix: a, max_per_file: 5}\n- {prefix: b, repeat: 2}")
    new = read("rules: [{prefix: a, max_per_file: 5}, {prefix: b, repeat: 2}]\nunmatched: leave\nexpect: {tasks: 2}")
    assert not old.needs_solving
    assert new.digest() == old.digest()
    assert new.on_unmatched("take") == "leave"
    assert new.on_unmatched("refuse") == "refuse"
    assert old.on_unmatched("take") == ""


def test_what_is_at_the_top_is_for_all_rules() -> None:
    rules = read(
        "defaults: {long_context: drop, repeat: 2, max_per_file: 100}\n"
        "scale: {to: 2e9, count: response, keep: [repeat, gold]}\n"
        "rules: [{prefix: a, max_per_file: null}, {prefix: b, group: gold, max_rows: 5, repeat: 1}, {prefix: d}]"
    )
    assert rules.match("a")[0] == Rule(None, "drop", 2)
    assert rules.match("b")[0] == Rule(None, "drop", 1)
    assert rules.match("d")[0] == Rule(100, "drop", 2)
    assert rules.match("c")[0] == Rule(100, "drop", 2)
    assert rules.top.scale == Scale("r.yaml", 2_000_000_000, "response", ("repeat", "gold"))
    assert rules.of_long_rows("holdout/").match("holdout/c")[0] == Rule(long_context="drop")
    plain = read("rules: [{prefix: a, max_per_file: null}, {prefix: b, group: gold, max_rows: 5, repeat: 1}]")
    assert plain.digest() != rules.digest()


BAD = [
    ("{prefix: x, max_rows: -1}", "max_rows is not a count; got -1; .*write max_rows: 50_000"),
    ("{prefix: x, max_rows: 1.5}", "max_rows is not a count"),
    ("{prefix: x, max_tokens: many}", "max_tokens is not a count; got 'many'.*write max_tokens: 1.2e9"),
    ("{prefix: x, fraction: 1.5}", "fraction is not valid; got 1.5; expected a number of 0 or more, up to 1"),
    ("{prefix: x, passes: 0}", "passes is not valid; got 0; expected a number above 0"),
    ("{prefix: x, share: 0.33}", "share is not a share; got 0.33; expected a number with %.*write share: 33% of epoch"),
    ("{prefix: x, share: 120%}", "share is not a share; got '120%'"),
    ("{prefix: x, tokens: 0.25 of epoch}", "tokens is a share of the epoch.*write share: 25% of epoch"),
    ("{prefix: x, tokens: 0.25 of x}", "tokens is not valid"),
    ("{prefix: x, max_rows: 5, within: squrt}", "within is not valid; got 'squrt'; .*did you mean 'sqrt'"),
    ("{prefix: x, within: sqrt}", "within, and nothing to share out; expected with it max_rows: 50_000"),
    ("{prefix: x, weights: {a: 1}}", "weights, and nothing to share out"),
    ("{prefix: x, max_rows: 5, weights: [a]}", "weights is not a mapping"),
    ("{prefix: x, max_rows: 5, weights: {'a[': 1}}", r"a set without its \]"),
    ("{prefix: x, max_rows: 5, weights: {2024: 1}}", "weights is not a mapping"),
    ("{prefix: x, max_rows: 5, weight: 0}", "weight is not valid; got 0"),
    ("{prefix: x, max_rows: 5, count: response}", "count says which tokens count, and nothing counts them"),
    ("{prefix: x, share: 5%, tokens: 5}", "share and tokens both say how much an epoch has of the group"),
    ("{prefix: x, share: 5%, max_rows: 5}", "share and max_rows both say.*a limit of each task is below per_task:"),
    ("{prefix: x, fraction: 0.5, passes: 2}", "fraction and passes both say"),
    ("{prefix: x, skip: true, max_rows: 5}", "skip leaves its tasks out, and max_rows says how much"),
    ("{prefix: x, skip: yes please}", "skip is not valid; got 'yes please'; expected true or false"),
    ("{prefix: x, per_task: 5}", "per_task is not a mapping; got 5; expected per_task: {max_rows, "),
    ("{prefix: x, per_task: {rows: 5}}", "unknown key 'rows' in per_task.*did you mean 'max_rows'"),
    ("{prefix: x, max_per_file: 5, per_task: {max_rows: 6}}", "two keys say the same limit"),
    ("{prefix: x, per_task: {max_rows: x}}", "per_task.max_rows is not a count"),
    ("{prefix: x, group: ''}", "group is not a text"),
    ("{prefix: x, group: ok}", "the group 'ok' has the name of another rule's tasks"),
    ("{prefix: x, group: g, max_rows: 1}, {prefix: y, group: g, fraction: 0.5}",
     "rule 3: two rules say how much an epoch has of the group 'g'; got max_rows in rule 2 and fraction in rule 3"),
    ("{match: 'ok*'}", "the rule for 'match ok\\*' can never apply; got 'ok' before it"),
    ("{match: a*b}, {match: [a*b]}", "the rule for 'match a\\*b' can never apply; got rule 2 for the same tasks"),
    ("{prefix: x, lengths: []}", "lengths is not a list of classes"),
    ("{prefix: x, lengths: [{share: 30%}, {share: 70%}]}", "the classes do not ascend; got no upto"),
    ("{prefix: x, lengths: [{upto: 5, share: 30%}, {upto: 5}]}", "do not ascend; got upto: 5 after upto: 5"),
    ("{prefix: x, lengths: [{upto: 5, share: 30%}, {share: 60%}]}", "do not add up to 100 %; got 90.0"),
    ("{prefix: x, lengths: [{upto: 5, share: 100%}, {}]}", "do not add up to 100 %; got 100.0.*nothing for the last"),
    ("{prefix: x, lengths: [{upto: 5}, {share: 60%}]}", r"lengths\[1\] has no share"),
    ("{prefix: x, lengths: [{upto: 5, share: 0.3}, {}]}", r"lengths\[1\].share is not a share; .*write share: 30%"),
    ("{prefix: x, selection_indices_path: a.npy}", "unknown key 'selection_indices_path'.*write select_rows: <path>"),
    ("{prefix: x, select_rows: 5}", "select_rows is not a text; got 5"),
    ("{prefix: x, expect: {rows: '>x'}}", "expect: not a rows"),
]  # fmt: skip


@pytest.mark.parametrize(("items", "said"), BAD)
def test_a_wrong_word_is_refused_with_the_rule_and_what_to_write(items: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"r.yaml rule [23]: .*{said}" if "rule 3" not in said else said) as caught:
        read(f"[{{prefix: ok}}, {items}]")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{rule: []}", "unknown key 'rule'; expected rules, defaults, .*did you mean 'rules'"),
        ("{prefix: a}", "not a list of rules; got dict; expected - prefix: …, or rules: with such a list"),
        ("{unmatched: take}", "not a list of rules; got dict"),
        ("{rules: false}", "not a list of rules; got bool"),
        ("[{prefx: a}]", "the rule has no prefix; .*did you mean 'prefix'"),
        ("{rules: {a: 1}}", "not a list of rules; got dict"),
        ("{rules: [], unmached: take}", "unknown key 'unmached'.*did you mean 'unmatched'"),
        ("{rules: [], skip_unmatched: true}", "unknown key 'skip_unmatched'.*write unmatched: leave"),
        ("{rules: [], unmatched: drop}", "unmatched is not valid; got 'drop'; expected take, leave or refuse"),
        ("{rules: [], defaults: {max_rows: 5}}", "unknown key 'max_rows' in defaults"),
        ("{rules: [], defaults: {repeat: -1}}", "defaults.repeat is not a count"),
        ("{rules: [], scale: {}}", "scale says no number of tokens; expected scale: {to: 2e9}"),
        ("{rules: [], scale: {to: 0}}", "scale.to is not a count; got 0; .*write to: 2e9"),
        ("{rules: [], scale: {to: 5, keep: repeat}}", "scale.keep is not a list"),
        ("{rules: [{prefix: gold__}], scale: {to: 5, keep: [gold_]}}", "no group of the name 'gold_'.*did you mean"),
        ("{rules: [], expect: {share: 5%}}", "expect: unknown measure 'share'"),
    ],
)  # fmt: skip
def test_a_wrong_word_at_the_top_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(text)


@pytest.mark.parametrize("key", ["match", "group", "max_rows", "share", "skip", "lengths"])
def test_the_reference_is_given_no_word_that_it_would_take_no_notice_of(key: str) -> None:
    items: Any = [{"prefix": "x", key: 5}]
    with pytest.raises(UsageError, match=f"rule 1: data_io's sampler does not know {key}.*profile=pairmill"):
        Rules.from_items(items, "data_io", "r.yaml")


def test_a_rule_whose_tasks_others_take_is_idle_with_their_name() -> None:
    rules = read("- {match: '*cot*'}\n- {match: ['flan__cot*', 'x*cot']}\n- {re: 'flan__[0-9]'}")
    idle = rules.idle(["flan__cot_a", "flan__x"])
    assert [(item.label, item.hidden_by) for item in idle] == [
        ("match flan__cot*, x*cot", "match *cot*"),
        ("re flan__[0-9]", ""),
    ]
    assert rules.matching("flan__cot_a") == ["match *cot*", "match flan__cot*, x*cot"]


def test_a_rule_goes_through_a_manifest_unchanged() -> None:
    for rule in (Rule(), Rule(5, "drop", 3, 7), Rule(rows=(3, 4))):
        assert Rule.from_manifest(rule.to_manifest()) == rule
    assert "rows" not in Rule().to_manifest()
    assert [Rule(rows=(0, 0)).is_off(), Rule(rows=(0, 1)).is_off(), Rule(repeat=0).is_off()] == [True, False, True]
