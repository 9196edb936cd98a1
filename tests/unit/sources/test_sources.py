"""The data sets: what each makes of a record in both profiles, which files it reads, and the clean stage on them."""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.options import Profile
from pairmill.engine.vanished import sentences
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.formats.rows import Row
from pairmill.sources.datasets import SOURCES
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Git, Hub, HubRows, Manual, Web
from pairmill.sources.parsed import Drop, Malformed
from pairmill.sources.source import Context, Unit, checked, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of

PROFILES: list[Profile] = ["pairmill", "data_io"]
both = pytest.mark.parametrize("profile", PROFILES)


def made(source: str, record: Any, profile: Profile, tag: str = "") -> list[Row | Drop]:
    """What the stage makes of a record: its rows, then its drops."""
    rows, drops = checked(parse_record(SOURCES[source], record, Context(profile, tag)), profile)
    return [*(row for _, row in rows), *drops]


def units(source: str, *files: str, profile: Profile = "pairmill", card: str = "", **options: Any) -> list[Unit]:
    kind = SOURCES[source]
    return kind.units(sorted(files), card, profile, kind.options(**options))


def without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}


NOT_OBJECTS = (None, "text", ["x"], 5, 1.5, True, b"x")
NOT_TEXTS = (5, ["x"], {"a": 1}, True, math.nan, b"x")


def assert_malformed(
    source: str, good: dict[str, Any], keys: Sequence[str], tag: str = "", nullable: Sequence[str] = ()
) -> None:
    """In both profiles a record is put aside where it is no object, or lacks a key, or has no text under one."""
    for profile in PROFILES:
        for record in NOT_OBJECTS:
            assert made(source, record, profile, tag) == [Malformed("not_an_object")]
        for key in keys:
            assert made(source, without(good, key), profile, tag) == [Malformed(f"missing_{key}")]
            for value in NOT_TEXTS:
                assert made(source, {**good, key: value}, profile, tag) == [Malformed(f"{key}_is_no_text")]
            if key not in nullable:
                assert made(source, {**good, key: None}, profile, tag) == [Malformed(f"null_{key}")]


# --- all of them ----------------------------------------------------------------------------------------------------


def test_every_source_is_known_by_its_own_name_and_says_where_it_is_from() -> None:
    assert len(SOURCES) >= 16
    assert list(SOURCES) == sorted(SOURCES)
    for name, source in SOURCES.items():
        assert name == source.name
        assert isinstance(source.origin, Hub | HubRows | Git | Web | Manual)
        assert source.licence
        assert source.citation


@both
def test_what_every_source_has_in_common_is_checked_in_one_place(profile: Profile) -> None:
    row = Row("direct", "q", "a")
    assert checked(row, profile) == ([("", row)], [])
    assert checked([row, Drop("x"), row], profile) == ([("", row), ("", row)], [Drop("x")])
    assert checked(Malformed("x"), profile) == checked([Malformed("x")], profile) == ([], [Malformed("x")])
    assert checked([], profile) == ([], [])
    assert checked([row, row._replace(response="\ud800")], profile) == ([], [Malformed("unpaired_surrogate")])
    assert checked(row._replace(instruction="é\udfff"), profile) == ([], [Malformed("unpaired_surrogate")])
    for name in ("instruction", "response"):
        for text, drop in ((" \u3000\x1f", Drop(f"empty_{name}")), ("", Drop(f"empty_{name}"))):
            empty = row._replace(**{name: text})
            kept: Any = ([("", row), ("", empty)], []) if profile == "data_io" else ([("", row)], [drop])
            assert checked([row, empty], profile) == kept
        null = Row(**{**row._asdict(), name: None})
        put_aside: Any = ([], [Malformed(f"null_{name}")])
        assert checked([row, null], profile) == (([("", row), ("", null)], []) if profile == "data_io" else put_aside)


# --- gsm8k_train ----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("Work.\n#### 72", "72"),
        ("#### 1,000 ", "1,000"),
        ("a\n#### \n 5\x1c\u00a0\u3000", "5"),
        ("#####  5", "5"),
        ("x ####y #### 5", "5"),
    ],
)
def test_gsm8k_train_takes_the_text_behind_the_mark(profile: Profile, answer: str, response: str) -> None:
    record = {"question": " \u2003How many? \n", "answer": answer, "extra": 1}
    assert made("gsm8k_train", record, profile) == [Row("direct", "How many?", response)]


@both
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"question": "q", "answer": "no mark"}, "no_final_answer"),
        ({"question": "q", "answer": "####5"}, "no_final_answer"),
        ({"question": "q", "answer": ""}, "no_final_answer"),
        ({"question": "q", "answer": "#### 1 #### 2"}, "several_final_answers"),
        ({"question": "q", "answer": None}, "null_answer"),
        ({"question": None, "answer": "#### 1"}, "null_question"),
        ({"answer": "#### 1"}, "missing_question"),
        ({"question": "q"}, "missing_answer"),
        ({"question": 5, "answer": "#### 1"}, "question_is_no_text"),
        ({"question": "q", "answer": ["#### 1"]}, "answer_is_no_text"),
        (["q", "#### 1"], "not_an_object"),
        ("q", "not_an_object"),
        (None, "not_an_object"),
    ],
)
def test_gsm8k_train_puts_a_malformed_record_aside(profile: Profile, record: Any, reason: str) -> None:
    assert made("gsm8k_train", record, profile) == [Malformed(reason)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"question": " ", "answer": "#### 5"}, "empty_instruction"),
        ({"question": "q", "answer": "x #### \n"}, "empty_response"),
    ],
)
def test_gsm8k_train_drops_an_empty_text_but_for_data_io(record: Any, reason: str) -> None:
    assert made("gsm8k_train", record, "pairmill") == [Drop(reason)]
    (row,) = made("gsm8k_train", record, "data_io")
    assert isinstance(row, Row)


@pytest.mark.parametrize(
    "character", "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
)
def test_strip_removes_white_space_of_the_reference(character: str) -> None:
    record = {"question": f"{character}q{character}", "answer": f"#### {character}a{character}"}
    assert made("gsm8k_train", record, "data_io") == [Row("direct", "q", "a")]


@pytest.mark.parametrize("character", "\u200b\ufeff\u180e\x00\x1b")
def test_strip_leaves_what_is_no_white_space(character: str) -> None:
    record = {"question": f"{character}q", "answer": f"#### a{character}"}
    assert made("gsm8k_train", record, "data_io") == [Row("direct", f"{character}q", f"a{character}")]


# --- scibench -------------------------------------------------------------------------------------------------------


def problem(**changed: Any) -> dict[str, Any]:
    return {
        "problem_text": " What? ",
        "solution": " So. ",
        "answer_latex": " $5$ ",
        "answer_number": " 5 ",
        "unit": " $\\mathrm{J}$ ",
        "source": "x",
        **changed,
    }


def test_scibench_gives_a_worked_answer_and_a_bare_one() -> None:
    worked = Row("cot", "What?", "So.")
    assert made("scibench", problem(), "data_io") == [worked, Row("direct", "What?", "5")]
    assert made("scibench", problem(), "pairmill") == [worked, Row("direct", "What?", "5 $\\mathrm{J}$")]


@both
def test_scibench_without_a_solution_gives_the_bare_answer_alone(profile: Profile) -> None:
    for solution in ("", "  \n"):
        assert made("scibench", problem(solution=solution, unit=""), profile) == [Row("direct", "What?", "5")]
    record = problem(unit="")
    del record["solution"]
    assert made("scibench", record, profile) == [Row("direct", "What?", "5")]


@both
@pytest.mark.parametrize(
    ("latex", "number", "response"),
    [
        ("$5$", "5", "5"),
        ("$ 5 $", "5", "$ 5 $"),
        ("5", "5", "5"),
        ("$5$", "6", "$5$"),
        ("$$", "", ""),
        ("$\\pi$", "3.14", "$\\pi$"),
    ],
)
def test_scibench_takes_the_number_only_where_the_formula_is_that_number(
    profile: Profile, latex: str, number: str, response: str
) -> None:
    found = made("scibench", problem(answer_latex=latex, answer_number=number, unit="", solution=""), profile)
    expected = [Row("direct", "What?", response)] if response or profile == "data_io" else [Drop("empty_answer")]
    assert found == expected


def test_scibench_defect_an_empty_answer_or_problem_is_a_row_for_data_io_alone() -> None:
    empty = problem(answer_latex=" ", answer_number="")
    assert made("scibench", empty, "data_io") == [Row("cot", "What?", "So."), Row("direct", "What?", "")]
    assert made("scibench", empty, "pairmill") == [Row("cot", "What?", "So."), Drop("empty_answer")]
    nothing = problem(problem_text="")
    assert made("scibench", nothing, "data_io") == [Row("cot", "", "So."), Row("direct", "", "5")]
    assert made("scibench", nothing, "pairmill") == [Drop("empty_instruction"), Drop("empty_instruction")]


@pytest.mark.parametrize(
    ("unit", "response"), [("m", "5 m"), ("", "5"), ("  ", "5"), (None, "5"), (7, "5"), ("5", "5")]
)
def test_scibench_defect_the_unit_is_put_behind_the_answer_where_it_is_a_text(unit: Any, response: str) -> None:
    (row,) = made("scibench", problem(unit=unit, solution=""), "pairmill")
    assert row == Row("direct", "What?", response)
    assert made("scibench", problem(unit=unit, solution=""), "data_io") == [Row("direct", "What?", "5")]


@both
@pytest.mark.parametrize("key", ["problem_text", "solution", "answer_latex", "answer_number"])
def test_scibench_puts_a_malformed_record_aside(profile: Profile, key: str) -> None:
    assert made("scibench", problem(**{key: None}), profile) == [Malformed(f"null_{key}")]
    for value in (5, ["x"], {"a": 1}, True, float("nan")):
        assert made("scibench", problem(**{key: value}), profile) == [Malformed(f"{key}_is_no_text")]
    for record in (None, "text", ["x"], 5):
        assert made("scibench", record, profile) == [Malformed("not_an_object")]


# --- dmmath and sudoku ----------------------------------------------------------------------------------------------


@both
def test_dmmath_takes_a_pair_as_it_is(profile: Profile) -> None:
    assert made("dmmath", ("What is 1+1?", "2"), profile) == [Row("direct", "What is 1+1?", "2")]


PUZZLE = "." * 40 + "123456789" + "." * 32
SOLVED = "123456789" * 9


@both
def test_sudoku_writes_blanks_as_zeros_below_its_line(profile: Profile) -> None:
    expected = Row("direct", "Solve the Sudoku\n\n" + PUZZLE.replace(".", "0"), SOLVED)
    assert made("sudoku", ["puzzles0", PUZZLE, SOLVED, "12"], profile) == [expected]


@both
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([], "not_four_fields"),
        (["s", PUZZLE, SOLVED], "not_four_fields"),
        (["s", PUZZLE, SOLVED, "1", "2"], "not_four_fields"),
        (["s", PUZZLE[:-1], SOLVED, "1"], "not_81_cells"),
        (["s", PUZZLE, SOLVED + "1", "1"], "not_81_cells"),
        (["s", "", "", "1"], "not_81_cells"),
    ],
)
def test_sudoku_puts_a_malformed_record_aside(profile: Profile, record: Any, reason: str) -> None:
    assert made("sudoku", record, profile) == [Malformed(reason)]


@pytest.mark.parametrize(
    ("name", "safe"), [("a/b\\c:d", "a_b_c_d"), ("A-z_0. 9", "A-z_0. 9"), ("é日😀", "___"), ("a\nb", "a_b"), ("", "")]
)
def test_a_safe_name_keeps_letters_digits_and_four_signs(name: str, safe: str) -> None:
    assert safe_name(name) == safe


# --- math_train -----------------------------------------------------------------------------------------------------

MATH = {"problem": " What? ", "solution": "\n It is $\\boxed{ 5 }$. ", "level": "Level 5", "type": "Algebra"}


@both
def test_math_train_gives_the_solution_and_the_boxed_answer(profile: Profile) -> None:
    worked = Row("cot", " What? ", "It is $\\boxed{ 5 }$.")
    assert made("math_train", MATH, profile) == [worked, Row("direct", " What? ", "5")]
    for solution in ("Clear.", "It is $\\boxed{}$.", "It is $\\boxed{5$."):
        found = made("math_train", {**MATH, "solution": solution}, profile)
        assert found == [Row("cot", " What? ", solution), Drop("no_boxed_answer")]


def test_math_train_defect_an_answer_without_braces_is_not_the_next_group_of_them() -> None:
    record = {**MATH, "solution": "It is $\\boxed 5$ of \\text{them}."}
    assert made("math_train", record, "data_io")[1] == Row("direct", " What? ", "them")
    assert made("math_train", record, "pairmill")[1] == Row("direct", " What? ", "5")


def test_math_train_defect_an_empty_solution_is_a_row_for_data_io_alone() -> None:
    record = {**MATH, "solution": " \n"}
    assert made("math_train", record, "data_io") == [Row("cot", " What? ", ""), Drop("no_boxed_answer")]
    assert made("math_train", record, "pairmill")[0] == Drop("empty_response")


def test_math_train_puts_a_malformed_record_aside() -> None:
    assert_malformed("math_train", MATH, ("problem", "solution"), nullable=("problem",))
    record = {**MATH, "problem": None}
    assert made("math_train", record, "data_io")[1] == Row("direct", None, "5")
    assert made("math_train", record, "pairmill") == [Malformed("null_instruction")]


MATH_CONFIGS = (
    *("algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra"),
    "precalculus",
)


def test_math_train_reads_the_training_split_of_every_config_in_order() -> None:
    train = tuple(f"{config}/train-00000-of-00001.parquet" for config in MATH_CONFIGS)
    files = [*train, *(path.replace("train", "test") for path in train), "README.md"]
    assert units("math_train", *files) == [Unit("data/math_train.jsonl", train)]
    listed = [
        f"- config_name: {config}\n  data_files:\n  - split: train\n    path: {config}/train-*"
        for config in reversed(MATH_CONFIGS)
    ]
    card = "\n".join(["---", "configs:", *listed, "---"])
    assert units("math_train", *files, card=card) == [Unit("data/math_train.jsonl", train)]


def test_math_train_is_not_cleaned_without_one_of_its_configs() -> None:
    files = [f"{config}/train-0.parquet" for config in MATH_CONFIGS if config != "geometry"]
    with pytest.raises(InputError, match="configs are missing; got no training split of geometry"):
        units("math_train", *files)
    assert units("math_train", "README.md") == [Unit("data/math_train.jsonl", ())]


# --- natural_reasoning ----------------------------------------------------------------------------------------------

REASONING = {"question": " Why? ", "reference_answer": " So.\n", "responses": [{"response": "x"}]}


@both
def test_natural_reasoning_gives_the_reference_answer(profile: Profile) -> None:
    assert made("natural_reasoning", REASONING, profile) == [Row("noisy,direct", " Why? ", "So.")]
    for answer in ("", " \n"):
        for question in ("Why?", None, 5):
            record = {"question": question, "reference_answer": answer}
            assert made("natural_reasoning", record, profile) == [Drop("empty_response")]


@pytest.mark.parametrize(
    ("question", "reference", "here"),
    [
        ("PROVE it.", True, True),
        ("Please show that 1 = 1.", True, True),
        ("How can we improve?", True, False),
        ("Is it proven and approved?", True, False),
        ("Show thatched roofs.", True, False),
        ("What does it show?", False, False),
    ],
)
def test_natural_reasoning_defect_only_words_ask_for_a_proof(question: str, reference: bool, here: bool) -> None:
    record = {**REASONING, "question": question}
    row, drop = Row("noisy,direct", question, "So."), Drop("asks_for_proof")
    assert made("natural_reasoning", record, "data_io") == [drop if reference else row]
    assert made("natural_reasoning", record, "pairmill") == [drop if here else row]


def test_natural_reasoning_puts_a_malformed_record_aside() -> None:
    assert_malformed("natural_reasoning", REASONING, ("question", "reference_answer"))


def test_natural_reasoning_reads_the_one_file_that_the_hub_has_or_what_is_named_train() -> None:
    output = "data/natural_reasoning.jsonl"
    assert units("natural_reasoning", "README.md", "full.jsonl") == [Unit(output, ("full.jsonl",))]
    card = "---\nconfigs:\n- data_files:\n  - split: train\n    path: full.jsonl\n---\n"
    assert units("natural_reasoning", "full.jsonl", card=card) == [Unit(output, ("full.jsonl",))]
    converted = ("default/train/0000.parquet", "default/train/0001.parquet")
    assert units("natural_reasoning", *converted) == [Unit(output, converted)]
    assert units("natural_reasoning", "other.jsonl") == [Unit(output, ())]


# --- no_robots ------------------------------------------------------------------------------------------------------


def talk(*turns: tuple[Any, Any]) -> dict[str, Any]:
    return {"messages": [{"content": content, "role": role} for role, content in turns], "prompt": "x"}


USER, ASSISTANT, SYSTEM = ("user", " Hi? "), ("assistant", " Yes.\n"), ("system", "Be kind. ")


@both
@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ([USER, ASSISTANT], Row("cot", " Hi? ", " Yes.\n")),
        ([USER, ASSISTANT, ("user", None), ("x", None)], Row("cot", " Hi? ", " Yes.\n")),
        ([SYSTEM, USER, ASSISTANT], Row("cot", "Be kind. \n\n Hi? ", " Yes.\n")),
        ([("system", ""), USER, ASSISTANT, USER], Row("cot", "\n\n Hi? ", " Yes.\n")),
        ([], Drop("fewer_than_two_messages")),
        ([USER], Drop("fewer_than_two_messages")),
        ([("system", None)], Drop("fewer_than_two_messages")),
        ([SYSTEM, USER], Drop("not_user_then_assistant")),
        ([USER, USER], Drop("not_user_then_assistant")),
        ([ASSISTANT, USER], Drop("not_user_then_assistant")),
        ([SYSTEM, SYSTEM, USER, ASSISTANT], Drop("not_user_then_assistant")),
        ([SYSTEM, ASSISTANT, USER], Drop("not_user_then_assistant")),
        ([("user", None), ("tool", None)], Drop("not_user_then_assistant")),
        ([(None, "x"), ASSISTANT], Drop("not_user_then_assistant")),
        ([("User", "x"), ASSISTANT], Drop("not_user_then_assistant")),
        ([SYSTEM, ("system", None), ASSISTANT], Drop("not_user_then_assistant")),
        ([("system", None), USER, ASSISTANT], Malformed("null_content")),
        ([("system", None), USER, USER], Malformed("null_content")),
        ([("user", None), ASSISTANT], Malformed("null_content")),
        ([SYSTEM, ("user", None), ASSISTANT], Malformed("null_content")),
        ([("user", ["x"]), ASSISTANT], Malformed("content_is_no_text")),
        ([USER, ("assistant", 5)], Malformed("content_is_no_text")),
        ([(5, "x"), ASSISTANT], Malformed("role_is_no_text")),
    ],
)
def test_no_robots_takes_the_first_turn(profile: Profile, turns: list[tuple[Any, Any]], found: Row | Drop) -> None:
    assert made("no_robots", talk(*turns), profile) == [found]


def test_no_robots_puts_a_malformed_record_aside() -> None:
    for profile in PROFILES:
        for record in NOT_OBJECTS:
            assert made("no_robots", record, profile) == [Malformed("not_an_object")]
        assert made("no_robots", {"messages": None}, profile) == [Malformed("null_messages")]
        assert made("no_robots", {}, profile) == [Malformed("missing_messages")]
        assert made("no_robots", {"messages": {"role": "user"}}, profile) == [Malformed("messages_is_no_list")]
        assert made("no_robots", {"messages": [None, None]}, profile) == [Malformed("not_an_object")]
        assert made("no_robots", {"messages": [{"content": "x"}] * 2}, profile) == [Malformed("missing_role")]
        assert made("no_robots", {"messages": [{"role": "system"}] * 2}, profile) == [Malformed("missing_content")]
        half = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]}
        assert made("no_robots", half, profile) == [Malformed("missing_content")]
    unanswered = talk(USER, ("assistant", None))
    assert made("no_robots", unanswered, "data_io") == [Row("cot", " Hi? ", None)]
    assert made("no_robots", unanswered, "pairmill") == [Malformed("null_response")]


SPLITS = (
    "data/train-00000-of-00001.parquet",
    "data/validation-00000-of-00001.parquet",
    "data/test-00000-of-00001.parquet",
)
TRAIN, VALIDATION, TEST = SPLITS


def test_no_robots_defect_the_test_split_is_withheld_unless_asked_for() -> None:
    output = "data/no_robots.jsonl"
    assert units("no_robots", TRAIN, TEST) == [Unit(output, (TRAIN,), (TEST,))]
    assert units("no_robots", TRAIN, TEST, splits="train+test") == [Unit(output, (TRAIN, TEST))]
    assert units("no_robots", TRAIN, TEST, profile="data_io") == [Unit(output, (TRAIN, TEST))]


# --- numinamath -----------------------------------------------------------------------------------------------------

NUMINA = {
    "problem": " What? ",
    "solution": " So.\n",
    "answer": " 5 ",
    "question_type": "math-word-problem",
    "problem_is_valid": "Yes",
    "solution_is_valid": "Yes",
    "synthetic": False,
}
NUMINA_COT, NUMINA_DIRECT = Row("noisy,cot", "What?", "So."), Row("noisy,direct", "What?", "5")


@both
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, [NUMINA_COT, NUMINA_DIRECT]),
        ({"synthetic": None, "question_type": None}, [NUMINA_COT, NUMINA_DIRECT]),
        ({"question_type": "proof"}, [NUMINA_COT, Drop("answer_is_a_proof")]),
        ({"question_type": "Proof"}, [NUMINA_COT, NUMINA_DIRECT]),
        ({"answer": "proof"}, [NUMINA_COT, Drop("answer_is_a_proof")]),
        ({"answer": "proof by hand"}, [NUMINA_COT, Row("noisy,direct", "What?", "proof by hand")]),
        ({"answer": ""}, [NUMINA_COT, Drop("empty_answer")]),
        ({"answer": " \n"}, [NUMINA_COT, Drop("empty_answer")]),
        ({"synthetic": True}, [Drop("synthetic")]),
        ({"synthetic": True, "problem": None, "problem_is_valid": None}, [Drop("synthetic")]),
        ({"problem_is_valid": "yes"}, [Drop("problem_not_valid")]),
        ({"problem_is_valid": None, "problem": None}, [Drop("problem_not_valid")]),
        ({"solution_is_valid": "Incomplete"}, [Drop("solution_not_valid")]),
        ({"solution_is_valid": None}, [Drop("solution_not_valid")]),
        ({"solution": None, "problem": None}, [Drop("no_solution")]),
        ({"answer": None, "problem": None}, [Drop("no_answer")]),
        ({"problem": "see http://x"}, [Drop("holds_a_link")]),
        ({"solution": "xhttpx"}, [Drop("holds_a_link")]),
        ({"solution": "x Translate the text above into English. y"}, [Drop("holds_a_translation_prompt")]),
        ({"solution": "translate the text above into English"}, None),
        ({"problem": "Translate the text above into English"}, None),
        ({"problem": " "}, [Drop("empty_instruction")]),
        ({"solution": "\u3000"}, [Drop("empty_response")]),
        ({"problem": None}, [Malformed("null_problem")]),
    ],
)
def test_numinamath_keeps_valid_problems_and_their_short_answers(
    profile: Profile, changed: dict[str, Any], found: list[Row | Drop] | None
) -> None:
    record = {**NUMINA, **changed}
    if found is None:
        found = [Row("noisy,cot", record["problem"].strip(), record["solution"].strip())]
        found.append(Row("noisy,direct", record["problem"].strip(), "5"))
    assert made("numinamath", record, profile) == found


@pytest.mark.parametrize("answer", [" proof", "Proof", "PROOF\n"])
def test_numinamath_defect_the_word_proof_is_no_answer_however_it_is_written(answer: str) -> None:
    record = {**NUMINA, "answer": answer}
    assert made("numinamath", record, "data_io") == [NUMINA_COT, Row("noisy,direct", "What?", answer.strip())]
    assert made("numinamath", record, "pairmill") == [NUMINA_COT, Drop("answer_is_a_proof")]


def test_numinamath_puts_a_malformed_record_aside() -> None:
    texts = tuple(NUMINA)[:-1]
    assert_malformed("numinamath", NUMINA, texts, nullable=texts)
    for profile in PROFILES:
        assert made("numinamath", without(NUMINA, "synthetic"), profile) == [Malformed("missing_synthetic")]
        for value in ("false", 0, ["x"]):
            assert made("numinamath", {**NUMINA, "synthetic": value}, profile) == [Malformed("synthetic_is_no_boolean")]


# --- omnimath -------------------------------------------------------------------------------------------------------

OMNI = {"problem": " What? ", "solution": " So.\n", "answer": " 5 ", "domain": ["Algebra"]}


def test_omnimath_gives_solution_and_answer() -> None:
    rows = [Row("cot", " What? ", "So."), Row("direct", " What? ", "5")]
    assert made("omnimath", OMNI, "data_io") == made("omnimath", OMNI, "pairmill") == rows


def test_omnimath_defect_an_empty_response_is_a_row_for_data_io_alone() -> None:
    record = {**OMNI, "answer": " "}
    assert made("omnimath", record, "data_io") == [Row("cot", " What? ", "So."), Row("direct", " What? ", "")]
    assert made("omnimath", record, "pairmill") == [Row("cot", " What? ", "So."), Drop("empty_response")]


def test_omnimath_puts_a_malformed_record_aside() -> None:
    assert_malformed("omnimath", OMNI, ("problem", "solution", "answer"), nullable=("problem",))
    record = {**OMNI, "problem": None}
    assert made("omnimath", record, "data_io") == [Row("cot", None, "So."), Row("direct", None, "5")]
    assert made("omnimath", record, "pairmill") == [Malformed("null_instruction")]


@pytest.mark.parametrize(
    ("source", "file", "output"),
    [
        ("omnimath", "test.jsonl", "data/omnimath.jsonl"),
        ("theoremqa", "data/test-00000-of-00001-8b5127f6e41ff06b.parquet", "data/Platypus/theoremqa.jsonl"),
    ],
)
def test_omnimath_and_theoremqa_defect_a_benchmark_is_withheld_unless_asked_for(
    source: str, file: str, output: str
) -> None:
    assert units(source, "README.md", file) == [Unit(output, (), (file,))]
    assert units(source, "README.md", file, splits="test") == [Unit(output, (file,))]
    assert units(source, "README.md", file, profile="data_io") == [Unit(output, (file,))]
    with pytest.raises(UsageError, match="unknown split; got 'train'; expected none, or some of test"):
        units(source, file, splits="train")


# --- arb ------------------------------------------------------------------------------------------------------------

ARB = {"instruction": " What?\n", "response": " So. ", "extra": 1}


@both
@pytest.mark.parametrize(
    ("tag", "condition", "task"),
    [
        ("math", "cot", "Solve the math problem."),
        ("reading", "cot", "Solve the reading comprehension problem."),
        ("law", "direct", "Choose the correct option letter."),
        ("science", "cot", "Solve the science problem."),
        ("physics", "cot", "Solve the physics problem."),
    ],
)
def test_arb_puts_the_files_task_before_the_instruction(profile: Profile, tag: str, condition: str, task: str) -> None:
    assert made("arb", ARB, profile, tag) == [Row(condition, f"{task}\n\n What?\n", " So. ")]


def test_arb_defect_a_null_instruction_is_a_word_for_data_io_alone() -> None:
    record = {**ARB, "instruction": None}
    assert made("arb", record, "data_io", "law") == [
        Row("direct", "Choose the correct option letter.\n\nNone", " So. ")
    ]
    assert made("arb", record, "pairmill", "law") == [Malformed("null_instruction")]


def test_arb_puts_a_malformed_record_aside() -> None:
    assert_malformed("arb", ARB, ("instruction", "response"), "math", nullable=("instruction", "response"))
    record = {**ARB, "response": None}
    assert made("arb", record, "data_io", "math") == [Row("cot", "Solve the math problem.\n\n What?\n", None)]
    assert made("arb", record, "pairmill", "math") == [Malformed("null_response")]


def test_arb_makes_one_output_per_file_in_the_order_of_the_reference() -> None:
    stems = ("math", "reading", "law", "science", "physics")
    found = units("arb", "README.md", *(f"{stem}.json" for stem in stems))
    assert found == [Unit(f"data/Platypus/arb_{stem}.jsonl", (f"{stem}.json",), tag=stem) for stem in stems]
    with pytest.raises(InputError, match=r"arb: files are missing; got no reading.json, physics.json"):
        units("arb", "math.json", "law.json", "science.json")
    assert units("arb", "other.json") == []


# --- openbookqa -----------------------------------------------------------------------------------------------------

BOOK = {
    "question_stem": "Light is",
    "choices": {"text": ["fast", " slow "], "label": ["C", "D"]},
    "answerKey": "B",
    "fact1": "light travels",
}
BOOK_TASK = "Based on the given fact, which of the following option is the correct answer to the question?\n\n"


@both
def test_openbookqa_asks_by_letters_with_the_fact_below(profile: Profile) -> None:
    asked = BOOK_TASK + "Light is \nA: fast\nB:  slow \n\nFact: light travels"
    assert made("openbookqa", BOOK, profile) == [Row("direct", asked, "B")]


def test_openbookqa_defect_nulls_are_words_for_data_io_alone() -> None:
    for key, asked in (
        ("question_stem", "nan \nA: fast\nB:  slow \n\nFact: light travels"),
        ("fact1", "Light is \nA: fast\nB:  slow \n\nFact: nan"),
    ):
        assert made("openbookqa", {**BOOK, key: None}, "data_io") == [Row("direct", BOOK_TASK + asked, "B")]
        assert made("openbookqa", {**BOOK, key: None}, "pairmill") == [Malformed(f"null_{key}")]
    record = {**BOOK, "choices": {"text": [None, "x"], "label": None}}
    asked = "Light is \nA: None\nB: x\n\nFact: light travels"
    assert made("openbookqa", record, "data_io") == [Row("direct", BOOK_TASK + asked, "B")]
    assert made("openbookqa", record, "pairmill") == [Malformed("null_in_choices")]


@pytest.mark.parametrize(
    ("key", "reference", "here"),
    [
        ("A", True, True),
        ("B", True, True),
        ("@", True, False),  # -1
        ("?", True, False),  # -2
        (">", False, False),
        ("C", False, False),
        ("a", False, False),
        ("é", False, False),
    ],
)
def test_openbookqa_defect_the_key_has_to_be_a_letter_of_a_choice(key: str, reference: bool, here: bool) -> None:
    for profile, taken in (("data_io", reference), ("pairmill", here)):
        (found,) = made("openbookqa", {**BOOK, "answerKey": key}, profile)  # type: ignore[arg-type]
        assert found.response == key if isinstance(found, Row) else found == Malformed("answer_key_out_of_range")
        assert isinstance(found, Row) is taken


def test_openbookqa_puts_a_malformed_record_aside() -> None:
    words = ("question_stem", "fact1")
    assert_malformed("openbookqa", BOOK, (*words, "answerKey"), nullable=words)
    for profile in PROFILES:
        for key in ("", "AB"):
            found = made("openbookqa", {**BOOK, "answerKey": key}, profile)
            assert found == [Malformed("answer_key_is_no_letter")]
        for choices, reason in (
            (None, "null_choices"),
            ({}, "null_choices"),
            ({"text": None}, "null_choices"),
            ({"text": "ab"}, "choices_is_no_list"),
            ({"text": ["a", 5]}, "choices_holds_no_text"),
            (["a", "b"], "choices_is_no_object"),
            ({"text": []}, "answer_key_out_of_range"),
        ):
            assert made("openbookqa", {**BOOK, "choices": choices}, profile) == [Malformed(reason)]


def test_openbookqa_defect_the_validation_split_is_withheld_unless_asked_for() -> None:
    output = "data/Platypus/openbookqa.jsonl"
    train, validation, test = (path.replace("data/", "additional/") for path in SPLITS)
    files = (train, validation, test, "main/train-00000-of-00001.parquet")
    assert units("openbookqa", *files) == [Unit(output, (train,), (validation,))]
    assert units("openbookqa", *files, splits="train+validation") == [Unit(output, (train, validation))]
    assert units("openbookqa", *files, profile="data_io") == [Unit(output, (train, validation))]


# --- reclor ---------------------------------------------------------------------------------------------------------

RECLOR = {"context": "All is one. ", "question": "So?", "answers": ["yes", " no "], "label": 1, "id_string": "x"}


@both
def test_reclor_asks_about_the_passage_by_letters(profile: Profile) -> None:
    asked = "So?\n\nAll is one. \n\nOptions:\nA: yes\nB:  no "
    assert made("reclor", RECLOR, profile) == [Row("direct", asked, "B")]
    assert made("reclor", {**RECLOR, "label": 0}, profile) == [Row("direct", asked, "A")]


def test_reclor_defect_nulls_are_words_for_data_io_alone() -> None:
    options = "\n\nOptions:\nA: yes\nB:  no "
    for key, asked in (("context", "So?\n\nnan"), ("question", "nan\n\nAll is one. ")):
        assert made("reclor", {**RECLOR, key: None}, "data_io") == [Row("direct", asked + options, "B")]
        assert made("reclor", {**RECLOR, key: None}, "pairmill") == [Malformed(f"null_{key}")]


@pytest.mark.parametrize(("label", "letter"), [(-1, "@"), (2, "C"), (9, "J"), (26, "[")])
def test_reclor_defect_the_label_has_to_be_that_of_a_choice(label: int, letter: str) -> None:
    (row,) = made("reclor", {**RECLOR, "label": label}, "data_io")
    assert isinstance(row, Row)
    assert row.response == letter
    assert made("reclor", {**RECLOR, "label": label}, "pairmill") == [Malformed("label_out_of_range")]


def test_reclor_puts_a_malformed_record_aside() -> None:
    words = ("question", "context")
    assert_malformed("reclor", RECLOR, words, nullable=words)
    for profile in PROFILES:
        for changed, reason in (
            ({"label": None}, "null_label"),
            ({"label": 1.0}, "label_is_no_integer"),
            ({"label": "1"}, "label_is_no_integer"),
            ({"label": -66}, "label_out_of_range"),
            ({"label": 10**7}, "label_out_of_range"),
            ({"answers": None}, "null_answers"),
            ({"answers": ["yes", None]}, "null_in_answers"),
            ({"answers": "yes"}, "answers_is_no_list"),
        ):
            assert made("reclor", {**RECLOR, **changed}, profile) == [Malformed(reason)]
        for key in ("label", "answers"):
            assert made("reclor", without(RECLOR, key), profile) == [Malformed(f"missing_{key}")]


@pytest.mark.parametrize(("train", "validation"), [("train.json", "val.json"), (TRAIN, VALIDATION)])
def test_reclor_defect_the_validation_split_is_withheld_unless_asked_for(train: str, validation: str) -> None:
    output = "data/Platypus/reclor.jsonl"
    assert units("reclor", "README.md", train, validation) == [Unit(output, (train,), (validation,))]
    assert units("reclor", train, validation, splits="validation") == [Unit(output, (validation,), (train,))]
    assert units("reclor", train, validation, profile="data_io") == [Unit(output, (train, validation))]


# --- scienceqa ------------------------------------------------------------------------------------------------------

SCIENCE = {
    "question": " Which? \n",
    "choices": [" one ", "two"],
    "answer": 1,
    "hint": "",
    "lecture": " Numbers. ",
    "solution": " Two is. ",
    "grade": "grade5",
}
SCIENCE_BASE = "Which?\nOptions:\nA: one\nB: two"
SCIENCE_WORKED = "Solve the following question using the information provided in the lecture.\n\n"
SCIENCE_BARE = (
    "Choose the correct option letter for the following question based on the information from the lecture.\n\n"
)


@both
def test_scienceqa_gives_the_explained_answer_and_the_letter(profile: Profile) -> None:
    lecture = SCIENCE_BASE + "\n\nLecture: Numbers."
    worked = Row("cot", SCIENCE_WORKED + lecture, "Two is.\n\nAnswer: B")
    bare = Row("direct", SCIENCE_BARE + lecture, "B")
    assert made("scienceqa", SCIENCE, profile) == [worked, bare]
    assert made("scienceqa", without(SCIENCE, "hint"), profile) == [worked, bare]
    assert made("scienceqa", {**SCIENCE, "hint": None}, profile) == [worked, bare]
    assert made("scienceqa", {**SCIENCE, "hint": " \n"}, profile) == [worked, bare]
    assert made("scienceqa", {**SCIENCE, "solution": " "}, profile) == [bare]
    assert made("scienceqa", {**SCIENCE, "lecture": "\n"}, profile) == [
        Row("cot", SCIENCE_BASE, "Two is.\n\nAnswer: B"),
        Row("direct", SCIENCE_BASE, "B"),
    ]


def test_scienceqa_defect_the_hint_stands_between_options_and_lecture() -> None:
    record = {**SCIENCE, "hint": " Count. "}
    hint = SCIENCE_BASE + "\n\nHint: Count."
    assert made("scienceqa", record, "pairmill") == [
        Row("cot", SCIENCE_WORKED + hint + "\n\nLecture: Numbers.", "Two is.\n\nAnswer: B"),
        Row("direct", SCIENCE_BARE + hint + "\n\nLecture: Numbers.", "B"),
    ]
    record["lecture"] = record["solution"] = ""
    assert made("scienceqa", record, "pairmill") == [Row("direct", hint, "B")]
    assert made("scienceqa", record, "data_io") == [Row("direct", SCIENCE_BASE, "B")]
    assert made("scienceqa", {**record, "hint": 5}, "pairmill") == [Malformed("hint_is_no_text")]
    assert made("scienceqa", {**record, "hint": 5}, "data_io") == [Row("direct", SCIENCE_BASE, "B")]


@pytest.mark.parametrize(("answer", "letter"), [(-1, "@"), (2, "C")])
def test_scienceqa_defect_the_answer_has_to_be_one_of_the_choices(answer: int, letter: str) -> None:
    assert made("scienceqa", {**SCIENCE, "answer": answer}, "pairmill") == [Malformed("answer_out_of_range")]
    _, row = made("scienceqa", {**SCIENCE, "answer": answer}, "data_io")
    assert isinstance(row, Row)
    assert row.response == letter


def test_scienceqa_puts_a_malformed_record_aside() -> None:
    assert_malformed("scienceqa", SCIENCE, ("question", "lecture", "solution"))
    for profile in PROFILES:
        for changed, reason in (
            ({"answer": None}, "null_answer"),
            ({"answer": 1.0}, "answer_is_no_integer"),
            ({"choices": None}, "null_choices"),
            ({"choices": ["one", None]}, "null_in_choices"),
            ({"choices": "one"}, "choices_is_no_list"),
        ):
            assert made("scienceqa", {**SCIENCE, **changed}, profile) == [Malformed(reason)]
        for key in ("answer", "choices"):
            assert made("scienceqa", without(SCIENCE, key), profile) == [Malformed(f"missing_{key}")]


def test_scienceqa_defect_the_test_split_is_withheld_unless_asked_for() -> None:
    output = "data/Platypus/scienceqa.jsonl"
    assert units("scienceqa", *SPLITS) == [Unit(output, (TRAIN, VALIDATION), (TEST,))]
    assert units("scienceqa", *SPLITS, splits="train") == [Unit(output, (TRAIN,), (VALIDATION, TEST))]
    assert units("scienceqa", *SPLITS, profile="data_io") == [Unit(output, SPLITS)]


# --- theoremqa ------------------------------------------------------------------------------------------------------

THEOREM = {"Question": " What? ", "Answer": " 5 ", "Answer_type": "integer", "Picture": None}


@both
def test_theoremqa_leaves_out_questions_about_a_picture(profile: Profile) -> None:
    for picture in ({"bytes": b"x", "path": None}, "x.png"):
        assert made("theoremqa", {**THEOREM, "Picture": picture}, profile) == [Drop("needs_a_picture")]


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("integer", True),
        (None, True),
        (math.nan, True),
        ("", True),
        (1, False),
        (0.5, False),
        (True, False),
        ([], False),
    ],
)
def test_theoremqa_defect_data_io_alone_loses_records_of_texts_to_pandas(kind: Any, lost: bool) -> None:
    record, row = {**THEOREM, "Answer_type": kind}, Row("direct", " What? ", " 5 ")
    assert made("theoremqa", record, "pairmill") == [row]
    assert made("theoremqa", record, "data_io") == [Drop("lost_by_pandas_3") if lost else row]


def test_theoremqa_puts_a_malformed_record_aside() -> None:
    assert_malformed("theoremqa", THEOREM, ("Question", "Answer"), nullable=("Question", "Answer"))
    for profile in PROFILES:
        assert made("theoremqa", without(THEOREM, "Picture"), profile) == [Malformed("missing_Picture")]
    assert made("theoremqa", {**THEOREM, "Answer": None}, "pairmill") == [Malformed("null_response")]
    assert made("theoremqa", {**THEOREM, "Question": None}, "pairmill") == [Malformed("null_instruction")]
    assert made("theoremqa", {**THEOREM, "Answer": None}, "data_io") == [Drop("lost_by_pandas_3")]
    record = {**THEOREM, "Answer": None, "id": 1}
    assert made("theoremqa", record, "data_io") == [Row("direct", " What? ", None)]


def test_theoremqa_reads_all_columns_because_each_decides() -> None:
    assert SOURCES["theoremqa"].fields == ()


# --- principia_collection and webinstruct_verified ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "question", "condition"),
    [("principia_collection", "problem_statement", "synth,direct"), ("webinstruct_verified", "question", "direct")],
)
def test_principia_collection_and_webinstruct_verified_pass_texts_on(
    source: str, question: str, condition: str
) -> None:
    record = {question: " What? ", "answer": " 5 ", "topic": "x"}
    for profile in PROFILES:
        assert made(source, record, profile) == [Row(condition, " What? ", " 5 ")]
    assert_malformed(source, record, (question, "answer"), nullable=(question, "answer"))
    # Defect: nulls and empty texts are rows.
    for key, name in ((question, "instruction"), ("answer", "response")):
        for text, drop in (
            (None, Malformed(f"null_{name}")),
            ("", Drop(f"empty_{name}")),
            (" ", Drop(f"empty_{name}")),
        ):
            kept = Row(**{**Row(condition, " What? ", " 5 ")._asdict(), name: text})
            assert made(source, {**record, key: text}, "data_io") == [kept]
            assert made(source, {**record, key: text}, "pairmill") == [drop]


def test_principia_collection_reads_both_splits_in_order_and_webinstruct_verified_the_training_split() -> None:
    numerical = ("data/numerical-00000-of-00002.parquet", "data/numerical-00001-of-00002.parquet")
    objects = "data/mathematical_object-00000-of-00001.parquet"
    assert units("principia_collection", *numerical, objects) == [
        Unit("data/principia_collection.jsonl", (objects, *numerical))
    ]
    assert units("webinstruct_verified", TRAIN, TEST) == [Unit("data/webinstruct_verified.jsonl", (TRAIN,))]


# --- any record -----------------------------------------------------------------------------------------------------

TAGS = {"arb": ("math", "reading", "law", "science", "physics"), "flan": ("cot_fsopt_data", "t0_zsopt_data")}

# One record of each source that gives a row: what random ones are made of. A new source adds its own.
GOOD: dict[str, Any] = {
    "SYNTH": {
        "language": "en",
        "exercise": "mcq",
        "query": "q",
        "query_seed_url": "u",
        "constraints": "c",
        "synthetic_answer": "a",
    },
    "acereason": {"category": "math", "input": "q", "output": "<think>t</think>\na"},
    "amps_khan": {"problem": "q", "hints": ["a", "b"]},
    "ampsmathematica": ("algebra", "roots_w_steps", b"Problem: q Answer: a"),
    "arb": ARB,
    "dmmath": ("q", "a"),
    "flan": {"inputs": "q", "targets": "a", "_task_name": "t"},
    "gsm8k_train": {"question": "q", "answer": "#### 5"},
    "math_train": MATH,
    "natural_reasoning": REASONING,
    "no_robots": talk(SYSTEM, USER, ASSISTANT),
    "numinamath": NUMINA,
    "omnimath": OMNI,
    "openbookqa": BOOK,
    "openmathinstruct2": {
        "problem": "q",
        "generated_solution": "s",
        "expected_answer": "a",
        "problem_source": "augmented_math",
    },
    "openthoughts2": {
        "source": "x",
        "conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "<think>t</think>a"}],
    },
    "principia_collection": {"problem_statement": "q", "answer": "a"},
    "reclor": RECLOR,
    "scibench": problem(),
    "scienceqa": SCIENCE,
    "sudoku": ["s", PUZZLE, SOLVED, "1"],
    "tasksource": {"inputs": "q", "targets": "a.", "task": "reclor"},
    "textbookreasoning": {"question": "q", "answer": "s", "reference_answer": "a"},
    "theoremqa": {**THEOREM, "id": 1},
    "webinstruct_verified": {"question": "q", "answer": "a"},
    "c4": {"text": "a page", "timestamp": "2019-04-25T12:57:54Z", "url": "https://a.example"},
    "bookcorpus": {"text": "a block", "sentences": 3, "empty": 0},
    "the_stack": {"content": "x = 1", "lang": "Python", "max_stars_repo_licenses": ["MIT"]},
    "cc_news": {"title": "a title", "text": "an article", "date": "2018-01-02 03:04:05", "domain": "a.example"},
    "arxiv": {"id": "0704.0001", "title": "a title", "abstract": "an abstract", "categories": ["math.CO cs.CL"]},
}
# Of these a reader of their own promises texts in a list or pair; the others have to take whatever stands in a file.
TEXTS_ALONE: tuple[str, ...] = ()

TEXTS = (
    *("", " ", "\n\u3000", "a", "é", "\ud800", "\udfffx", "\0", "x" * 500, "@", "A", "B", "Z", "AB", "5", "-1", "."),
    *("\\boxed{1}", "\\boxed 5", "\\boxed}{{", "\\fbox{", "{" * 50, "}", "#### 5", "#### 1 #### 2", "$5$"),
    *("<think>", "<think>a</think>b", "</think>", "prove", "improve", "Show that", "Yes", "proof", " Proof", "http"),
    *("user", "assistant", "system", "math", "gsm8k", "en", "rag", "cooking", "reclor", "dolphin", "python", "```"),
)
OTHERS = (None, 0, 1, 3, -1, -70, 10**30, 1.0, math.nan, math.inf, True, False, b"\xff", b"Problem:Answer:", (), (1, 2))
KEYS = ("role", "content", "from", "value", "text", "label", "bytes", "question", "problem", "answer")


def some_text(rng: random.Random) -> str:
    return "".join(rng.choices(TEXTS, k=rng.choice((1, 1, 1, 1, 2, 3))))


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if kind < 0.4:
        return some_text(rng)
    if kind < 0.7 or depth == 3:
        return rng.choice(OTHERS)
    if kind < 0.85:
        return [some_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {key: some_value(rng, depth + 1) for key in rng.sample(KEYS, rng.randrange(5))}


def changed(rng: random.Random, value: Any, texts_alone: bool) -> Any:
    """``value`` with some of its parts, at any depth, changed, gone or there twice."""
    if rng.random() < 0.1 and not texts_alone:
        return some_value(rng)
    if isinstance(value, dict):
        return {key: changed(rng, item, texts_alone) for key, item in value.items() if rng.random() < 0.97}
    if isinstance(value, list | tuple):
        size = len(value) if rng.random() < 0.9 or isinstance(value, tuple) else rng.randrange(6)
        return type(value)(changed(rng, value[index % len(value)], texts_alone) for index in range(size) if value)
    return some_text(rng) if isinstance(value, str) and rng.random() < 0.2 else value


@both
@pytest.mark.parametrize("name", SOURCES)
def test_no_record_makes_a_source_raise(name: str, profile: Profile) -> None:
    source, rng = SOURCES[name], random.Random(f"{name} {profile}")
    rows_of_all = drops_of_all = 0
    for _ in range(1_000):
        record = changed(rng, GOOD[name], name in TEXTS_ALONE)
        context = Context(profile, rng.choice(TAGS.get(name, ("",))))
        rows, drops = checked(parse_record(source, record, context), profile, documents=source.documents)
        assert rows or drops
        assert all(isinstance(drop, Drop) and drop.reason.replace("_", "a").isalnum() for drop in drops)
        for label, row in rows:
            assert isinstance(label, str)
            assert bool(row.condition) != source.documents or profile == "data_io"
            for text in (row.instruction, row.response)[source.documents :]:
                assert text is None or isinstance(text.encode(), bytes)
                assert profile == "data_io" or (text is not None and text.strip())
        rows_of_all += len(rows)
        drops_of_all += len(drops)
    # Records that are all refused at the door, or all good, would prove nothing.
    assert min(rows_of_all, drops_of_all) > 10


# --- files of the others --------------------------------------------------------------------------------------------


def test_dmmath_makes_one_output_per_training_module_by_difficulty() -> None:
    found = units(
        "dmmath",
        "train-easy/algebra__x.txt",
        "train-hard/a b.é.txt",
        "mathematics_dataset-v1.0/train-medium/algebra__x.txt",
        "interpolate/algebra__x.txt",
        "extrapolate/algebra__x.txt",
        "train-easy/.hidden.txt",
        "train-easy/deeper/x.txt",
        "train-easy/x.md",
        "train-easy-x/y.txt",
    )
    assert found == [
        Unit("data_clustered/dmmath/train-easy__algebra__x.parquet", ("train-easy/algebra__x.txt",)),
        Unit(
            "data_clustered/dmmath/train-medium__algebra__x.parquet",
            ("mathematics_dataset-v1.0/train-medium/algebra__x.txt",),
        ),
        Unit("data_clustered/dmmath/train-hard__a b._.parquet", ("train-hard/a b.é.txt",)),
    ]


def test_scibench_and_sudoku_and_gsm8k_make_one_output_each() -> None:
    scibench = "data/Platypus/scibench.jsonl"
    assert units("scibench", "b.json", "a.json", "a.txt") == [Unit(scibench, ("a.json", "b.json"))]
    clone = ("dataset/original/a.json", "dataset/original/python/b.json", "package.json")
    assert units("scibench", *clone) == [Unit(scibench, clone[:1])]
    assert units("sudoku", "test.csv", "train.csv", "deep/train.csv") == [
        Unit("data_clustered/sudoku_extreme/all.parquet", ("train.csv",))
    ]
    assert units("gsm8k_train", "train.jsonl", "test.jsonl") == [Unit("data/gsm8k_train.jsonl", ("train.jsonl",))]


# --- the stage on them ----------------------------------------------------------------------------------------------


def gsm8k(*answers: str) -> str:
    return "".join(
        json.dumps({"question": f"q{number}", "answer": answer}) + "\n" for number, answer in enumerate(answers)
    )


def clean(tmp_path: Path, **options: Any) -> runner.Result:
    values = {"root": str(tmp_path / "root"), "raw": str(tmp_path / "raw"), "workers": 1}
    return runner.run(Clean(), CleanConfig(**{**values, **options}))


@pytest.fixture
def raw(tmp_path: Path) -> Callable[[str, str], None]:
    def put(path: str, text: str) -> None:
        target = tmp_path / "raw" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    return put


def test_every_record_is_kept_or_dropped_for_a_reason_and_malformed_ones_are_put_aside(
    tmp_path: Path, raw: Callable[[str, str], None]
) -> None:
    raw("gsm8k_train/train.jsonl", gsm8k("#### 1", "nothing", "#### ", "#### 4") + "{\n")
    result = clean(tmp_path, max_reject_fraction=0.5)
    ledger = result.manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.rows_out) == (5, 2, 2)
    assert ledger.dropped == {"no_final_answer": 1, "empty_response": 1, "invalid_json": 1}
    rejects = Path(result.uri, "rejects/data/gsm8k_train.jsonl.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in rejects]
    assert [(item["place"], item["reason"]) for item in found] == [
        ("row 2", "no_final_answer"),
        ("row 5", "invalid_json"),
    ]
    assert all(item["file"] == "gsm8k_train/train.jsonl" for item in found)
    assert [file.path for file in result.manifest.tasks()["gsm8k_train.jsonl"]] == ["data/gsm8k_train.jsonl"]


def test_an_answer_that_is_left_out_beside_a_row_is_noted(tmp_path: Path, raw: Callable[[str, str], None]) -> None:
    raw("omnimath/test.jsonl", "".join(json.dumps({**OMNI, "answer": answer}) + "\n" for answer in ("5", " ")))
    ledger = clean(tmp_path, source_options=["omnimath.splits=test"]).manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.rows_out, ledger.dropped) == (2, 2, 3, {})
    assert ledger.notes == {"empty_response (one answer left out)": 1}


@both
@pytest.mark.parametrize("system", [False, True])
def test_further_turns_of_a_conversation_are_noted(
    tmp_path: Path, raw: Callable[[str, str], None], profile: Profile, system: bool
) -> None:
    said = [{"role": "system", "content": "s"}] * system
    for number in range(3):
        said += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
    records = [{"messages": said}, {"messages": said[: 2 + system]}, {"messages": said[:-1]}]
    raw("no_robots/train.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    raw("no_robots/test.jsonl", "")
    result = clean(tmp_path, profile=profile)
    assert (result.manifest.ledger.rows_out, result.manifest.ledger.notes) == (3, {"further_turns": 2 + 0 + 1})
    rows = Path(result.uri, "data/no_robots.jsonl").read_text().splitlines()
    assert len(set(rows)) == 1
    assert json.loads(rows[0])["response"] == "a0"


def test_records_of_splits_that_are_not_trained_on_are_counted_and_dropped(
    tmp_path: Path, raw: Callable[[str, str], None]
) -> None:
    raw("omnimath/test.jsonl", (json.dumps(OMNI) + "\n") * 3)
    raw("reclor/train.json", json.dumps([RECLOR] * 2))
    raw("reclor/val.json", json.dumps([RECLOR, {**RECLOR, "label": None}]))
    result = clean(tmp_path)
    ledger = result.manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.dropped) == (7, 2, {"withheld_split": 5})
    assert [file.path for file in result.manifest.files if file.task] == ["data/Platypus/reclor.jsonl"]
    taken = clean(tmp_path, source_options=["omnimath.splits=test"]).manifest.ledger
    assert (taken.rows_out, taken.dropped) == (8, {"withheld_split": 2})


def test_a_benchmark_is_trained_on_where_it_is_named_and_that_is_said(
    tmp_path: Path, raw: Callable[[str, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    raw("omnimath/test.jsonl", (json.dumps(OMNI) + "\n") * 3)
    with caplog.at_level("WARNING", "pairmill"):
        left_out = clean(tmp_path).manifest
        assert left_out.ledger.dropped == {"withheld_split": 3}
        assert report_of(left_out).look_at == []
        (line,) = sentences(left_out)
        assert line.endswith("omnimath (3 → 0 rows; withheld split; named in sources= they are taken).")
        named = clean(tmp_path, sources=["omnimath"]).manifest.ledger
    assert (named.rows_out, named.dropped) == (6, {})
    assert "it was named, so it is trained on" in caplog.text
    refused = clean(tmp_path, sources=["omnimath"], source_options=["omnimath.splits=none"]).manifest.ledger
    assert refused.dropped == {"withheld_split": 3}


def test_arb_is_written_with_its_keys_in_the_order_of_the_reference(
    tmp_path: Path, raw: Callable[[str, str], None]
) -> None:
    for stem in TAGS["arb"]:
        raw(f"arb/{stem}.json", json.dumps([ARB]))
    uri = clean(tmp_path, profile="data_io").uri
    assert Path(uri, "data/Platypus/arb_law.jsonl").read_text() == (
        '{"instruction":"Choose the correct option letter.\\n\\n What?\\n","response":" So. ","condition":"direct"}\n'
    )


def test_too_many_malformed_records_fail_the_stage_and_are_shown(
    tmp_path: Path, raw: Callable[[str, str], None]
) -> None:
    raw("gsm8k_train/train.jsonl", gsm8k("#### 1", "nothing", "#### 3"))
    for options in ({}, {"profile": "data_io", "max_reject_fraction": 1.0}):
        with pytest.raises(
            InputError, match=r"(?s)1 of 3 records of gsm8k_train are malformed.*row 2: no_final_answer"
        ):
            clean(tmp_path, **options)


@both
def test_text_that_cannot_be_written_is_malformed(
    tmp_path: Path, raw: Callable[[str, str], None], profile: Profile
) -> None:
    raw("gsm8k_train/train.jsonl", gsm8k("#### 1", "#### \ud800"))
    with pytest.raises(InputError, match="unpaired_surrogate"):
        clean(tmp_path, profile=profile)


def test_one_bad_file_fails_and_the_others_are_committed(tmp_path: Path, raw: Callable[[str, str], None]) -> None:
    raw("dmmath/train-easy/good.txt", "q\na\n")
    raw("scibench/bad.json", "[{]")
    with pytest.raises(StageFailure, match=r"scibench.jsonl: .*bad.json row 1 \(line 1\): not valid JSON") as caught:
        clean(tmp_path)
    assert caught.value.exit_code == 3
    raw("scibench/bad.json", json.dumps([problem()]))
    assert clean(tmp_path).manifest.ledger.rows_out == 3


@pytest.mark.parametrize(("profile", "kind"), [("pairmill", pa.string()), ("data_io", pa.null())])
def test_an_empty_module_gives_an_empty_file(
    tmp_path: Path, raw: Callable[[str, str], None], profile: Profile, kind: pa.DataType
) -> None:
    raw("dmmath/train-easy/a.txt", "q\na\n")
    raw("dmmath/train-easy/b.txt", "")
    folder = Path(clean(tmp_path, profile=profile).uri, "data_clustered/dmmath")
    table = pq.read_table(folder / "train-easy__b.parquet")
    assert (table.num_rows, table.schema.field("response").type) == (0, kind)


def test_a_source_without_files_or_records_is_an_input_error(tmp_path: Path, raw: Callable[[str, str], None]) -> None:
    raw("sudoku/test.csv", "x")
    with pytest.raises(InputError, match=r"no file of sudoku; got test.csv"):
        clean(tmp_path, sources=["sudoku"])
    with pytest.raises(InputError, match="the raw files of gsm8k_train"):
        clean(tmp_path, sources=["gsm8k_train"])
    with pytest.raises(UsageError, match=r"unknown source; got gsm8k; expected all, .*did you mean 'gsm8k_train'"):
        clean(tmp_path, sources=["gsm8k"])
    raw("sudoku/train.csv", "source,question,answer,rating\n")
    with pytest.raises(InputError, match="the files of sudoku contain no record"):
        clean(tmp_path, sources=["sudoku"])


def test_raw_data_without_any_known_source_is_an_input_error(tmp_path: Path, raw: Callable[[str, str], None]) -> None:
    raw("unknown/x.jsonl", "")
    with pytest.raises(InputError, match=r"no folder of a known source; expected one or more of .*dmmath, "):
        clean(tmp_path)


def test_a_raised_version_of_a_source_makes_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw" / "gsm8k_train").mkdir(parents=True)
    (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n')
    config = CleanConfig(raw=str(tmp_path / "raw"), root=str(tmp_path / "root"), workers=1)
    first = runner.run(Clean(), config)
    assert runner.run(Clean(), config).reused
    monkeypatch.setattr(type(SOURCES["gsm8k_train"]), "version", 2)
    second = runner.run(Clean(), config)
    assert not second.reused
    assert second.uri != first.uri
