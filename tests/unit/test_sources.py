"""The data sets: what each makes of a record, in both profiles; their files; and the readers of raw files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.clean.config import CleanConfig
from components.clean.core import Clean
from components.clean.names import safe_name
from components.clean.readers import read
from components.clean.source import Drop, Malformed, Output, hub_split, text_of
from components.clean.sources import SOURCES
from pairmill import runner
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.rows import Row
from pairmill.stage import Profile

PROFILES: list[Profile] = ["pairmill", "data_io"]
both = pytest.mark.parametrize("profile", PROFILES)


def parse(source: str, record: Any, profile: Profile) -> list[Any]:
    parsed = SOURCES[source].parse(record, profile)
    return [parsed] if isinstance(parsed, Row | Drop) else list(parsed)


def test_every_source_is_known_by_its_own_name() -> None:
    assert len(SOURCES) >= 4
    assert all(name == source.name for name, source in SOURCES.items())
    assert list(SOURCES) == sorted(SOURCES)


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
    assert parse("gsm8k_train", record, profile) == [Row("direct", "How many?", response)]


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
    assert parse("gsm8k_train", record, profile) == [Malformed(reason)]


@pytest.mark.parametrize("record", [{"question": " ", "answer": "#### 5"}, {"question": "q", "answer": "x #### \n"}])
def test_gsm8k_train_drops_an_empty_text_but_for_data_io(record: Any) -> None:
    assert parse("gsm8k_train", record, "pairmill") == [Drop("empty_text")]
    (row,) = parse("gsm8k_train", record, "data_io")
    assert isinstance(row, Row)


@pytest.mark.parametrize(
    "character", "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
)
def test_strip_removes_white_space_of_the_reference(character: str) -> None:
    record = {"question": f"{character}q{character}", "answer": f"#### {character}a{character}"}
    assert parse("gsm8k_train", record, "data_io") == [Row("direct", "q", "a")]


@pytest.mark.parametrize("character", "\u200b\ufeff\u180e\x00\x1b")
def test_strip_leaves_what_is_no_white_space(character: str) -> None:
    record = {"question": f"{character}q", "answer": f"#### a{character}"}
    assert parse("gsm8k_train", record, "data_io") == [Row("direct", f"{character}q", f"a{character}")]


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
    assert parse("scibench", problem(), "data_io") == [worked, Row("direct", "What?", "5")]
    assert parse("scibench", problem(), "pairmill") == [worked, Row("direct", "What?", "5 $\\mathrm{J}$")]


@both
def test_scibench_without_a_solution_gives_the_bare_answer_alone(profile: Profile) -> None:
    for solution in ("", "  \n"):
        assert parse("scibench", problem(solution=solution, unit=""), profile) == [Row("direct", "What?", "5")]
    record = problem(unit="")
    del record["solution"]
    assert parse("scibench", record, profile) == [Row("direct", "What?", "5")]


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
    found = parse("scibench", problem(answer_latex=latex, answer_number=number, unit="", solution=""), profile)
    expected = [Row("direct", "What?", response)] if response or profile == "data_io" else [Drop("empty_answer")]
    assert found == expected


def test_scibench_defect_an_empty_answer_or_problem_is_a_row_for_data_io_alone() -> None:
    empty = problem(answer_latex=" ", answer_number="")
    assert parse("scibench", empty, "data_io") == [Row("cot", "What?", "So."), Row("direct", "What?", "")]
    assert parse("scibench", empty, "pairmill") == [Row("cot", "What?", "So."), Drop("empty_answer")]
    nothing = problem(problem_text="")
    assert parse("scibench", nothing, "data_io") == [Row("cot", "", "So."), Row("direct", "", "5")]
    assert parse("scibench", nothing, "pairmill") == [Drop("empty_problem")]


@pytest.mark.parametrize(
    ("unit", "response"), [("m", "5 m"), ("", "5"), ("  ", "5"), (None, "5"), (7, "5"), ("5", "5")]
)
def test_scibench_defect_the_unit_is_put_behind_the_answer_where_it_is_a_text(unit: Any, response: str) -> None:
    (row,) = parse("scibench", problem(unit=unit, solution=""), "pairmill")
    assert row == Row("direct", "What?", response)
    assert parse("scibench", problem(unit=unit, solution=""), "data_io") == [Row("direct", "What?", "5")]


@both
@pytest.mark.parametrize("key", ["problem_text", "solution", "answer_latex", "answer_number"])
def test_scibench_puts_a_malformed_record_aside(profile: Profile, key: str) -> None:
    assert parse("scibench", problem(**{key: None}), profile) == [Malformed(f"null_{key}")]
    for value in (5, ["x"], {"a": 1}, True, float("nan")):
        assert parse("scibench", problem(**{key: value}), profile) == [Malformed(f"{key}_is_no_text")]
    for record in (None, "text", ["x"], 5):
        assert parse("scibench", record, profile) == [Malformed("not_an_object")]


# --- dmmath and sudoku ----------------------------------------------------------------------------------------------


@both
def test_dmmath_takes_a_pair_as_it_is(profile: Profile) -> None:
    assert parse("dmmath", ("What is 1+1?", "2"), profile) == [Row("direct", "What is 1+1?", "2")]


PUZZLE = "." * 40 + "123456789" + "." * 32
SOLVED = "123456789" * 9


@both
def test_sudoku_writes_blanks_as_zeros_below_its_line(profile: Profile) -> None:
    expected = Row("direct", "Solve the Sudoku\n\n" + PUZZLE.replace(".", "0"), SOLVED)
    assert parse("sudoku", ["puzzles0", PUZZLE, SOLVED, "12"], profile) == [expected]


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
    assert parse("sudoku", record, profile) == [Malformed(reason)]


def test_text_of_says_why_there_is_no_text() -> None:
    assert text_of({"a": ""}, "a") == ""
    assert text_of({"a": None}, "a") == Malformed("null_a")
    assert text_of({}, "a") == Malformed("missing_a")
    assert text_of({"a": 1}, "a") == Malformed("a_is_no_text")
    assert text_of([], "a") == Malformed("not_an_object")


@pytest.mark.parametrize(
    ("name", "safe"), [("a/b\\c:d", "a_b_c_d"), ("A-z_0. 9", "A-z_0. 9"), ("é日😀", "___"), ("a\nb", "a_b"), ("", "")]
)
def test_a_safe_name_keeps_letters_digits_and_four_signs(name: str, safe: str) -> None:
    assert safe_name(name) == safe


# --- which files ----------------------------------------------------------------------------------------------------


def outputs(source: str, *files: str, card: str = "") -> list[Output]:
    return SOURCES[source].outputs(sorted(files), card)


def test_dmmath_makes_one_output_per_training_module_by_difficulty() -> None:
    found = outputs(
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
    assert [(output.path, output.files) for output in found] == [
        ("data_clustered/dmmath/train-easy__algebra__x.parquet", ("train-easy/algebra__x.txt",)),
        (
            "data_clustered/dmmath/train-medium__algebra__x.parquet",
            ("mathematics_dataset-v1.0/train-medium/algebra__x.txt",),
        ),
        ("data_clustered/dmmath/train-hard__a b._.parquet", ("train-hard/a b.é.txt",)),
    ]


def test_scibench_and_sudoku_and_gsm8k_make_one_output_each() -> None:
    assert outputs("scibench", "b.json", "a.json", "a.txt") == [
        Output("data/Platypus/scibench.jsonl", ("a.json", "b.json"))
    ]
    assert outputs("sudoku", "test.csv", "train.csv", "deep/train.csv") == [
        Output("data_clustered/sudoku_extreme/all.parquet", ("train.csv",))
    ]
    assert outputs("gsm8k_train", "train.jsonl", "test.jsonl") == [Output("data/gsm8k_train.jsonl", ("train.jsonl",))]


def card(*configs: str, line_end: str = "\n") -> str:
    return line_end.join(["---", "license: mit", "configs:", *configs, "---", "# Title", ""])


MAIN = ["- config_name: main", "  data_files:", "  - split: train", "    path: main/train-*"]
SOCRATIC = ["- config_name: socratic", "  data_files:", "  - split: train", "    path: socratic/train-*"]
TREE = ["main/test-0.parquet", "main/train-0.parquet", "main/train-1.parquet", "socratic/train-0.parquet", "README.md"]


def test_hub_split_takes_the_files_that_the_card_names() -> None:
    assert hub_split(TREE, card(*SOCRATIC, *MAIN), "train", "main") == ("main/train-0.parquet", "main/train-1.parquet")
    assert hub_split(TREE, card(*SOCRATIC, *MAIN), "train", "socratic") == ("socratic/train-0.parquet",)
    assert hub_split(TREE, card(*MAIN), "validation", "main") == ()


def test_hub_split_keeps_the_order_of_the_patterns_and_sorts_within_each() -> None:
    listed = ["- config_name: default", "  data_files:", "  - split: train", "    path: [b-*, a.jsonl, b-1.jsonl]"]
    files = ["a.jsonl", "b-2.jsonl", "b-1.jsonl", "c.jsonl"]
    assert hub_split(files, card(*listed), "train") == ("b-1.jsonl", "b-2.jsonl", "a.jsonl")


def test_hub_split_without_a_config_name_is_the_default_config() -> None:
    assert hub_split(["x.jsonl"], card("- data_files:", "  - split: train", "    path: x.jsonl"), "train") == (
        "x.jsonl",
    )


def test_hub_split_reads_a_card_with_other_line_ends() -> None:
    assert hub_split(TREE, card(*MAIN, *SOCRATIC, line_end="\r\n"), "train", "main") == TREE_MAIN


TREE_MAIN = ("main/train-0.parquet", "main/train-1.parquet")


@pytest.mark.parametrize(
    "listed", [["  data_files: x.jsonl"], ["  data_files:", "  - x.jsonl"], ["  data_files: [x.jsonl]"]]
)
def test_hub_split_reads_files_that_are_named_without_a_split(listed: list[str]) -> None:
    # The Hub's documentation allows it, and takes such files for the training split.
    assert hub_split(["x.jsonl", "y.jsonl"], card("- config_name: default", *listed), "train") == ("x.jsonl",)


def test_hub_split_lets_a_double_star_match_no_folder_too() -> None:
    listed = ["- config_name: default", "  data_files:", "  - split: train", "    path: '**/*.jsonl'"]
    assert hub_split(["a.jsonl", "x/b.jsonl"], card(*listed), "train") == ("a.jsonl", "x/b.jsonl")


def test_hub_split_without_a_card_goes_by_names() -> None:
    files = [
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/test-0.parquet",
        "notes.txt",
    ]
    assert hub_split(files, "", "train") == tuple(files[:2])
    assert hub_split(["train.jsonl", "training.jsonl", "x_train.jsonl", "train_1.jsonl"], "", "train") == (
        "train.jsonl",
        "train_1.jsonl",
    )
    assert hub_split(["train.csv", "train.txt"], "", "train") == ()


def test_hub_split_without_a_card_does_not_mix_the_files_of_two_configs() -> None:
    # openai/gsm8k has main/ and socratic/, the same questions twice: taking both doubles the data set in silence.
    try:
        found = hub_split(TREE, "", "train", "main")
    except InputError:
        return
    assert found == TREE_MAIN


@pytest.mark.parametrize("text", ["# no front matter", "---\nlicense: mit\n---\n", "--- \n", "---\nconfigs: []\n---\n"])
def test_hub_split_with_a_card_that_names_no_files_goes_by_names(text: str) -> None:
    assert hub_split(["train.jsonl"], text, "train") == ("train.jsonl",)


@pytest.mark.parametrize("text", ["---\n: [\n---\n", "---\n- a\n---\n"])
def test_hub_split_refuses_a_card_that_is_no_yaml(text: str) -> None:
    with pytest.raises(InputError, match=r"README.md: .*front matter"):
        hub_split(["train.jsonl"], text, "train")


def test_hub_split_refuses_one_split_in_two_formats() -> None:
    with pytest.raises(InputError, match=r"several formats; got train.jsonl, train.parquet; expected one"):
        hub_split(["train.jsonl", "train.parquet"], "", "train")


# --- readers --------------------------------------------------------------------------------------------------------


def records(tmp_path: Path, name: str, data: bytes | str, profile: Profile = "pairmill") -> list[tuple[str, Any]]:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(read(str(path), profile))


@both
def test_json_lines_are_read_past_a_line_that_is_none(tmp_path: Path, profile: Profile) -> None:
    found = records(tmp_path, "x.jsonl", b'{"a":1}\n\n{"a":\n\xff\n[' + b"[" * 100_000 + b'\n {"a":2} \r\n"x"', profile)
    assert found == [
        ("line 1", {"a": 1}),
        ("line 3", Malformed("invalid_json")),
        ("line 4", Malformed("invalid_utf8")),
        ("line 5", Malformed("invalid_json")),
        ("line 6", {"a": 2}),
        ("line 7", "x"),
    ]


@both
def test_a_json_file_is_one_array_or_lines(tmp_path: Path, profile: Profile) -> None:
    assert records(tmp_path, "x.json", ' [{"a":1},\n{"a":NaN}]', profile)[0] == ("row 0", {"a": 1})
    assert len(records(tmp_path, "x.json", ' [{"a":1},\n{"a":NaN}]', profile)) == 2
    assert records(tmp_path, "y.json", '{"a":1}\n{"a":2}', profile) == [("line 1", {"a": 1}), ("line 2", {"a": 2})]
    with pytest.raises(InputError, match=r"z.json row 1 \(line 2\)"):
        records(tmp_path, "z.json", '[{"a":1},\n{"a":]', profile)


def test_parquet_is_read_in_row_order(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(40_000)), "b": [None, "x"] * 20_000})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1_000)
    found = list(read(str(tmp_path / "x.parquet"), "pairmill"))
    assert [record["a"] for _, record in found] == list(range(40_000))
    assert found[39_999] == ("row 39999", {"a": 39_999, "b": "x"})


@both
def test_csv_has_a_header_and_quotes(tmp_path: Path, profile: Profile) -> None:
    text = 'any,thing\r\na,"b ""c"", d"\r\n\r\n"two\nlines",x\r\n'
    assert [record for _, record in records(tmp_path, "x.csv", text, profile)] == [
        ["a", 'b "c", d'],
        [],
        ["two\nlines", "x"],
    ]
    assert records(tmp_path, "x.csv", "", profile) == records(tmp_path, "x.csv", "header\n", profile) == []


@both
@pytest.mark.parametrize(
    ("data", "said"), [(b"a,b\n1,2\n\xff,3\n", "is not UTF-8"), (b'a\n"' + b"x" * 200_000 + b'"\n', "is not CSV")]
)
def test_csv_that_cannot_be_read_on_is_an_input_error(tmp_path: Path, profile: Profile, data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"x.csv line \\d+: {said}"):
        records(tmp_path, "x.csv", data, profile)


@both
@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        ("", []),
        ("q\na\n", [("q", "a")]),
        ("q\na", [("q", "a")]),
        (" q \r\n\ta\rq2\na2", [("q", "a"), ("q2", "a2")]),
        ("q\x0bx\na\x85b\u2028c\n", [("q\x0bx", "a\x85b\u2028c")]),
    ],
)
def test_pairs_of_lines_are_read_with_universal_line_ends(
    tmp_path: Path, profile: Profile, data: str, pairs: list[tuple[str, str]]
) -> None:
    assert [record for _, record in records(tmp_path, "x.txt", data, profile)] == pairs


@both
@pytest.mark.parametrize("data", ["q\n", "q\na\nq2\n"])
def test_a_question_without_an_answer_fails_the_file(tmp_path: Path, profile: Profile, data: str) -> None:
    with pytest.raises(InputError, match="a question without an answer"):
        records(tmp_path, "x.txt", data, profile)


@both
def test_pairs_that_are_no_utf8_fail_the_file_by_line(tmp_path: Path, profile: Profile) -> None:
    with pytest.raises(InputError, match=r"x.txt line 1: is not UTF-8|x.txt line 3: is not UTF-8"):
        records(tmp_path, "x.txt", b"q\na\n\xff\na\n", profile)


def test_dmmath_defect_an_empty_line_is_refused_but_for_data_io(tmp_path: Path) -> None:
    shifted = "q\na\n\nq2\na2\n\n"
    assert [record for _, record in records(tmp_path, "x.txt", shifted, "data_io")] == [
        ("q", "a"),
        ("", "q2"),
        ("a2", ""),
    ]
    with pytest.raises(InputError, match=r"x.txt line 3: an empty line puts questions and answers out of step"):
        records(tmp_path, "x.txt", shifted, "pairmill")


def test_empty_lines_at_the_end_are_harmless_but_for_data_io(tmp_path: Path) -> None:
    assert [record for _, record in records(tmp_path, "x.txt", "q\na\n\n\n\n", "pairmill")] == [("q", "a")]
    assert [record for _, record in records(tmp_path, "x.txt", "q\na\n\n\n", "data_io")] == [("q", "a"), ("", "")]
    with pytest.raises(InputError, match="a question without an answer"):
        records(tmp_path, "x.txt", "q\na\n\n", "data_io")


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
    assert ledger.dropped == {"no_final_answer": 1, "empty_text": 1, "invalid_json": 1}
    rejects = Path(result.uri, "rejects/data/gsm8k_train.jsonl.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in rejects]
    assert [(item["place"], item["reason"]) for item in found] == [
        ("line 2", "no_final_answer"),
        ("line 5", "invalid_json"),
    ]
    assert all(item["file"] == "gsm8k_train/train.jsonl" for item in found)
    assert [file.path for file in result.manifest.tasks()["gsm8k_train.jsonl"]] == ["data/gsm8k_train.jsonl"]


def test_too_many_malformed_records_fail_the_stage_and_are_shown(
    tmp_path: Path, raw: Callable[[str, str], None]
) -> None:
    raw("gsm8k_train/train.jsonl", gsm8k("#### 1", "nothing", "#### 3"))
    for options in ({}, {"profile": "data_io", "max_reject_fraction": 1.0}):
        with pytest.raises(InputError, match=r"1 of 3 records of gsm8k_train are malformed.*line 2: no_final_answer"):
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
    raw("dmmath/train-easy/odd.txt", "q\n")
    with pytest.raises(StageFailure, match=r"train-easy__odd.parquet: .*a question without an answer") as caught:
        clean(tmp_path)
    assert caught.value.exit_code == 3
    raw("dmmath/train-easy/odd.txt", "q\na\n")
    assert clean(tmp_path).manifest.ledger.rows_out == 2


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
    with pytest.raises(UsageError, match="unknown source; got gsm8k; expected all, or dmmath, gsm8k_train"):
        clean(tmp_path, sources=["gsm8k"])
    raw("sudoku/train.csv", "source,question,answer,rating\n")
    with pytest.raises(InputError, match="the files of sudoku hold no record"):
        clean(tmp_path, sources=["sudoku"])


def test_raw_data_without_any_known_source_is_an_input_error(tmp_path: Path, raw: Callable[[str, str], None]) -> None:
    raw("unknown/x.jsonl", "")
    with pytest.raises(InputError, match="no folder of a known source; expected one or more of dmmath"):
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
