"""What a policy says: the first clause, licences, and every mistake in the file by its line."""

from pathlib import Path
from textwrap import dedent

import pytest

from pairmill.engine.policing import Subject
from pairmill.errors import UsageError
from pairmill.policy.policy import Policy
from pairmill.sources.files.card import facts_of
from tests.support import tools
from tests.support.helpers import REPOSITORY

TOLD = "reason: gdpr, why: users wrote it, date: 2026-08-01"

# Lists of globs to include, to allow in spite of a denial, and to deny: an override beats a denial, and that beats what
# is included. As clauses, of which the first counts, they are written in this order.
LISTS = f"""
default: deny
clauses:
  - {{match: "arena/prompts*", decision: allow, reason: agreement, why: prompts are CC-BY, date: 2026-08-02}}
  - {{match: "flan/app_reviews*", decision: allow, reason: gdpr, why: no names, date: 2026-08-02}}
  - {{match: ["flan/niv2_*persona*", "flan/*reviews*"], decision: deny, {TOLD}}}
  - {{match: "arena*", decision: hold, reason: agreement, why: the providers' terms, date: 2026-07-01}}
  - {{match: [flan*, synth*], decision: allow, reason: quality, why: first list, date: 2026-06-01}}
"""


def load(top: Path, text: str) -> Policy:
    return Policy.load(str(tools.write_text(top / "policy.yaml", text)))


def decision(policy: Policy, task: str, licence: str = "") -> str:
    subject = Subject.from_task(task)
    return policy.decide(Subject(subject.name, subject.names, licence=licence)).decision


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("flan__niv2_persona_chat.parquet", "deny"),
        ("flan__amazon_reviews_multi.parquet", "deny"),
        ("holdout/flan__amazon_reviews_multi.parquet", "deny"),
        ("flan__app_reviews_v2.parquet", "allow"),
        ("flan__cot_gsm8k.parquet", "allow"),
        ("synth.parquet", "allow"),
        ("arena__prompts_2024.jsonl", "allow"),
        ("arena__outputs.jsonl", "hold"),
        ("unheard_of.jsonl", "deny"),
    ],
)
def test_lists_of_include_override_and_deny(tmp_path: Path, task: str, expected: str) -> None:
    assert decision(load(tmp_path, LISTS), task) == expected


def test_a_source_is_asked_file_by_file_where_clauses_tell_its_files_apart(tmp_path: Path) -> None:
    policy = load(tmp_path, LISTS)
    assert [policy.is_open(name) for name in ("flan", "arena", "synth", "unheard_of")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("MIT", "allow"),
        ("cc-by-sa-4.0", "allow"),
        ("CC-BY-NC-4.0", "deny"),
        ("cc-by-nc-sa-4.0", "deny"),
        ("CC-BY-ND-4.0", "deny"),
        ("CC-BY-NC-4.0 OR MIT", "allow"),
        ("MIT AND CC-BY-ND-4.0", "deny"),
        ("apache-2.0, cc-by-nc-4.0", "deny"),
        ("(MIT OR GPL-3.0) AND CC-BY-NC-4.0", "deny"),
        ("MIT (the original: CC-BY-4.0)", "allow"),
        ("none stated", "hold"),
        ("unknown", "hold"),
        ("", "hold"),
        ("GPL-3.0", "hold"),
    ],
)
def test_licences_by_spdx(tmp_path: Path, licence: str, expected: str) -> None:
    text = "licences: {allow: [MIT, apache-2.0, 'CC-BY-*'], deny: ['*-NC*', '*-ND*'], unknown: hold}\n"
    assert decision(load(tmp_path, text), "x", licence) == expected


def test_the_stricter_counts_unless_a_clause_settles_the_licence(tmp_path: Path) -> None:
    told = "why: asked, date: 2026-08-01"
    text = f"""
licences: {{allow: [MIT], deny: ['*-NC*']}}
clauses:
  - {{prefix: settled, decision: allow, reason: licence, {told}}}
  - {{prefix: good, decision: allow, reason: quality, {told}}}
  - {{prefix: bad, decision: deny, reason: quality, {told}}}
"""
    policy = load(tmp_path, text)
    assert [decision(policy, name, "CC-BY-NC-4.0") for name in ("settled", "good", "bad")] == ["allow", "deny", "deny"]
    assert [decision(policy, name, "MIT") for name in ("settled", "good", "bad")] == ["allow", "allow", "deny"]


def test_the_example_of_the_page_says_what_the_page_says(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "policy.md").read_text(encoding="utf-8")
    example = page.partition("    # policy.yaml\n")[2].partition("\n\n    pairmill run")[0]
    policy = load(tmp_path, dedent(example))
    licence = "CC-BY-4.0"
    decisions = [
        decision(policy, name, licence) for name in ("arena__prompts", "arena__x", "wmt19", "reclor", "flan__x", "z")
    ]
    assert decisions == ["allow", "hold", "deny", "eval_only", "allow", "deny"]
    assert decision(policy, "flan__x", "CC-BY-NC-4.0") == "deny"


def test_contents_are_known_under_any_name(tmp_path: Path) -> None:
    policy = load(tmp_path, f"clauses:\n  - {{contents: [blake3:ab], decision: deny, {TOLD}}}\n")
    assert policy.decide(Subject("x", contents=("blake3:ab",))).decision == "deny"
    assert policy.decide(Subject("x", contents=("blake3:cd",))).decision == "allow"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "", "the policy is empty"),
        (
            "- {match: a}",
            "line 1",
            "got a list; expected keys, of which clauses: has the list; write the line clauses:",
        ),
        ("defaults: deny", "line 1", "did you mean 'default'?"),
        ("default: denied", "line 1, default", "unknown value"),
        (f"clauses:\n- {{decision: deny, {TOLD}}}", "line 2", "nothing says which tasks"),
        (f"clauses:\n- {{match: a, prefix: b, decision: deny, {TOLD}}}", "line 2", "match"),
        (f"clauses:\n- {{match: a, decision: refuse, {TOLD}}}", "line 2", "unknown value"),
        ("clauses:\n- {match: a, decision: deny, reason: gdpr, date: 2026-08-01}", "line 2", "expected why"),
        ("clauses:\n- {match: a, decision: deny, reason: gdpr, why: '', date: 2026-08-01}", "line 2", "why"),
        ("clauses:\n- {match: a, decision: deny, reason: gdpr, why: x, date: August}", "line 2", "not a date"),
        ("clauses:\n- {match: a, decision: deny, reason: gdpr, why: x, date: 2026-08-32}", "line 2", ""),
        ("clauses:\n- {match: a, decision: deny, reason: taste, why: x, date: 2026-08-01}", "line 2", "unknown value"),
        ("licences: {allow: [MIT], deny: [mit]}", "line 1", "allowed and denied"),
        ("default: deny\nremovals: ../removals.jsonl", "line 2, removals", "not beside the policy"),
        ("licences: {unknown: deny}", "line 1, licences", "names no licence"),
        (
            f"clauses:\n- {{prefix: a, decision: deny, {TOLD}}}\n- {{prefix: ab, decision: allow, {TOLD}}}",
            "clause 2",
            "can never apply",
        ),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert where in caught.value.where
    assert what in str(caught.value)


def test_cards_say_licence_and_language() -> None:
    card = "---\nlicense: cc-by-4.0\nlanguage:\n- da\n- en\n---\n# x\n"
    assert facts_of(card) == {"licence": "cc-by-4.0", "language": "da, en"}
    assert facts_of("---\nlicense: other\nlicense_name: gemma\n---\n") == {"licence": "gemma"}
    assert facts_of("no front matter") == facts_of("---\n&a b: *a\n---\n") == {}
