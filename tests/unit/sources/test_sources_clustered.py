"""The data sets that become Parquet: what each makes of a record in both profiles, and which files it reads."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.options import Profile
from pairmill.formats.rows import Row
from pairmill.formats.slices import FileSlice
from pairmill.sources.datasets import SOURCES
from pairmill.sources.origin import Hub, Web
from pairmill.sources.parsed import Drop, Labelled, Malformed
from pairmill.sources.source import Context, Unit, checked, parse_record

PROFILES: list[Profile] = ["pairmill", "data_io"]
both = pytest.mark.parametrize("profile", PROFILES)
OURS = (
    "SYNTH",
    "acereason",
    "amps_khan",
    "ampsmathematica",
    "flan",
    "openmathinstruct2",
    "openthoughts2",
    "tasksource",
    "textbookreasoning",
)


def parse(source: str, record: Any, profile: Profile, tag: str = "") -> list[Any]:
    parsed = parse_record(SOURCES[source], record, Context(profile, tag))
    return [parsed] if isinstance(parsed, Row | Labelled | Drop) else list(parsed)


def outcome(source: str, record: Any, profile: Profile, tag: str = "") -> list[Any]:
    """Rows, or else drops, after the rules that hold for every source."""
    rows, drops = checked(parse_record(SOURCES[source], record, Context(profile, tag)), profile)
    return [row for _, row in rows] or drops


def units(source: str, *files: str, card: str = "", profile: Profile = "pairmill") -> list[Unit]:
    return SOURCES[source].units(sorted(files), card, profile, None)


# --- what holds for all of them -------------------------------------------------------------------------------------

THINK = "<think>\nHm.\n</think>\n\nIt is 5."
SYNTH: dict[str, Any] = {
    "language": "en",
    "exercise": "mcq",
    "query": "Which?",
    "query_seed_url": "https://en.wikipedia.org/wiki/X",
    "constraints": None,
    "synthetic_answer": "B",
}
ACEREASON: dict[str, Any] = {"category": "math", "input": "What?", "output": THINK}
KHAN: dict[str, Any] = {"problem": "What?", "hints": ["First.", "Then."]}
FLAN: dict[str, Any] = {"inputs": "What?", "targets": "5", "_task_name": "anli/r1:0.1.0"}
OPENMATH: dict[str, Any] = {
    "problem": "What?",
    "generated_solution": "So it is 5.",
    "expected_answer": "5",
    "problem_source": "augmented_math",
}


def messages(question: Any, answer: Any) -> list[dict[str, Any]]:
    return [{"from": "user", "value": question}, {"from": "assistant", "value": answer}]


THOUGHTS: dict[str, Any] = {"source": "numina_math", "conversations": messages("What?", THINK)}
TASK: dict[str, Any] = {"inputs": "Is it?", "targets": "entailment.", "task": "WANLI"}
TEXTBOOK: dict[str, Any] = {"question": "What is it?", "answer": "It is 5, as …", "reference_answer": "5"}
RECORDS: dict[str, Any] = {
    "SYNTH": SYNTH,
    "acereason": ACEREASON,
    "amps_khan": KHAN,
    "ampsmathematica": ("algebra", "area", b"Problem:\nWhat?\nAnswer:\n5"),
    "flan": FLAN,
    "openmathinstruct2": OPENMATH,
    "openthoughts2": THOUGHTS,
    "tasksource": TASK,
    "textbookreasoning": TEXTBOOK,
}
STRANGE: list[Any] = [
    None,
    True,
    5,
    10**40,
    float("nan"),
    "",
    "text",
    "\ud800",
    b"bytes",
    [],
    [None],
    [[]],
    [{}],
    {},
    {"from": None},
    {1: 2},
    (),
    ("a", "b", "c"),
    ("a", "b", None),
    (1, 2, b""),
    {5},
    object(),
    [{"from": "user"}, {"from": "assistant"}],
    [{"from": ["user"], "value": 1}, {"from": "assistant", "value": 2}],
    [{"from": "user", "value": None}, {"from": "assistant", "value": None}],
]


def test_all_of_them_are_known() -> None:
    assert set(OURS) <= set(SOURCES)
    assert set(RECORDS) == set(OURS)


@both
@pytest.mark.parametrize("source", OURS)
def test_a_good_record_gives_rows(profile: Profile, source: str) -> None:
    found = outcome(source, RECORDS[source], profile, "cot_zsopt_data")
    assert found
    assert all(isinstance(row, Row) and row.condition and row.instruction and row.response for row in found)


@both
@pytest.mark.parametrize("source", OURS)
def test_no_shape_of_a_record_raises_and_every_reason_is_a_short_name(profile: Profile, source: str) -> None:
    good = RECORDS[source]
    records = [*STRANGE, {}, dict.fromkeys(SOURCES[source].fields)]
    if isinstance(good, dict):
        for key in good:
            records.append({name: value for name, value in good.items() if name != key})
            records += [{**good, key: value} for value in STRANGE]
            records += [{**dict.fromkeys(good, value), key: good[key]} for value in STRANGE]
    else:
        records += [(*good[:at], value, *good[at + 1 :]) for at in range(3) for value in STRANGE]
    for record in records:
        for part in parse(source, record, profile):
            row = part.row if isinstance(part, Labelled) else part
            if isinstance(row, Row):
                assert isinstance(row.condition, str)
                assert all(text is None or isinstance(text, str) for text in row)
            else:
                assert row.reason.replace("_", "").isalnum(), row
                assert row.reason == row.reason.lower()
        rows, drops = checked(parse_record(SOURCES[source], record, Context(profile)), profile)
        assert rows or drops
        for _, row in rows:
            assert profile == "data_io" or (row.instruction and row.response and row.condition)


@both
@pytest.mark.parametrize("source", [name for name in OURS if name != "ampsmathematica"])
def test_a_record_that_is_no_object_is_put_aside(profile: Profile, source: str) -> None:
    for record in (None, 5, "text", [], ["a"]):
        assert parse(source, record, profile) == [Malformed("not_an_object")]


@both
@pytest.mark.parametrize("source", [name for name in OURS if name != "ampsmathematica"])
def test_a_record_without_a_field_is_put_aside(profile: Profile, source: str) -> None:
    for key in RECORDS[source]:
        record = {name: value for name, value in RECORDS[source].items() if name != key}
        reason = "no_conversation" if key == "conversations" else f"missing_{key}"
        assert parse(source, record, profile) == [Malformed(reason)]


@pytest.mark.parametrize(
    ("source", "record"),
    [
        ("SYNTH", {**SYNTH, "query": None}),
        ("SYNTH", {**SYNTH, "synthetic_answer": None}),
        ("SYNTH", {**SYNTH, "exercise": "rag", "constraints": None}),
        ("acereason", {**ACEREASON, "input": None}),
        ("amps_khan", {**KHAN, "problem": None}),
        ("openmathinstruct2", {**OPENMATH, "problem": None}),
        ("openmathinstruct2", {**OPENMATH, "generated_solution": None}),
        ("openmathinstruct2", {**OPENMATH, "expected_answer": None}),
        ("tasksource", {**TASK, "inputs": None}),
        ("textbookreasoning", {**TEXTBOOK, "answer": None}),
        ("textbookreasoning", {**TEXTBOOK, "reference_answer": None}),
    ],
)
def test_defect_a_null_text_is_written_for_data_io_and_put_aside_here(source: str, record: Any) -> None:
    assert any(None in row for row in outcome(source, record, "data_io"))
    (drop,) = outcome(source, record, "pairmill")
    assert isinstance(drop, Malformed)
    assert drop.reason in {"null_instruction", "null_response"}


@pytest.mark.parametrize(
    ("source", "record"),
    [
        ("SYNTH", {**SYNTH, "synthetic_answer": " "}),
        ("acereason", {**ACEREASON, "output": "<think>x</think>\n"}),
        ("amps_khan", {**KHAN, "hints": []}),
        ("flan", {**FLAN, "targets": ""}),
        ("openthoughts2", {**THOUGHTS, "conversations": messages("x", "<think></think>")}),
        ("tasksource", {**TASK, "inputs": ""}),
        ("textbookreasoning", {**TEXTBOOK, "question": "\n"}),
    ],
)
def test_defect_an_empty_text_is_a_row_for_data_io_and_dropped_here(source: str, record: Any) -> None:
    assert all(isinstance(row, Row) for row in outcome(source, record, "data_io"))
    dropped = outcome(source, record, "pairmill")
    assert {drop.reason for drop in dropped} <= {"empty_instruction", "empty_response"}
    assert not any(isinstance(drop, Malformed) for drop in dropped)


# --- SYNTH ----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("exercise", "condition"),
    [
        ("creative writing", "synth,cot"),
        ("memorization", "synth,cot"),
        ("constrained writing", "synth,cot"),
        ("editing", "synth,cot"),
        ("math mcq", "synth,direct"),
        ("mcq", "synth,direct"),
        ("math exercise", "synth,noisy,cot"),
    ],
)
def test_synth_takes_the_condition_from_the_exercise(profile: Profile, exercise: str, condition: str) -> None:
    record = {**SYNTH, "exercise": exercise, "query": " Which? ", "constraints": "not used"}
    assert parse("SYNTH", record, profile) == [Row(condition, " Which? ", "B")]


@both
def test_synth_puts_the_constraints_of_rag_right_behind_the_query(profile: Profile) -> None:
    record = {**SYNTH, "exercise": "rag", "constraints": "<source>x</source>"}
    assert parse("SYNTH", record, profile) == [Row("synth,cot", "Which?<source>x</source>", "B")]


@both
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"language": "fr"}, "not_english"),
        ({"language": "EN"}, "not_english"),
        ({"language": None}, "not_english"),
        ({"exercise": "cooking"}, "cooking"),
        ({"exercise": None}, "no_exercise"),
        ({"query_seed_url": None}, "no_seed_url"),
        ({"query_seed_url": "the Pleias self-knowledge set"}, "self_knowledge"),
        ({"language": None, "query": None, "constraints": None, "exercise": "rag"}, "not_english"),
    ],
)
def test_synth_leaves_out_what_the_reference_does_not_select(profile: Profile, changed: Any, reason: str) -> None:
    assert parse("SYNTH", {**SYNTH, **changed}, profile) == [Drop(reason)]


def test_synth_defect_an_unknown_exercise_has_an_empty_condition_for_data_io_and_is_dropped_here() -> None:
    for exercise in ("brand new", "MCQ", ""):
        assert parse("SYNTH", {**SYNTH, "exercise": exercise}, "data_io") == [Row("", "Which?", "B")]
        assert parse("SYNTH", {**SYNTH, "exercise": exercise}, "pairmill") == [Drop("unknown_exercise")]


def test_synth_makes_one_output_per_file_of_its_own_layout() -> None:
    found = units("SYNTH", "b.parquet", "a.parquet", "deeper/c.parquet", "README.md", "x.json")
    assert [(unit.output, unit.files) for unit in found] == [
        ("data_clustered/SYNTH/a.parquet", ("a.parquet",)),
        ("data_clustered/SYNTH/b.parquet", ("b.parquet",)),
    ]
    assert SOURCES["SYNTH"].format.fields == ("instruction", "condition", "response")
    assert SOURCES["SYNTH"].format.large


# --- acereason ------------------------------------------------------------------------------------------------------


@both
def test_acereason_takes_what_follows_the_thought(profile: Profile) -> None:
    response = "It is 5." if profile == "pairmill" else "\n\nIt is 5."
    assert parse("acereason", ACEREASON, profile) == [Row("synth,cot", "What?", response)]
    inside = {**ACEREASON, "output": "So: <think>a</think>b</think> c"}
    assert parse("acereason", inside, profile) == [Row("synth,cot", "What?", "So: b</think> c")]


@both
@pytest.mark.parametrize("category", ["code", "Math", None, "", 5, ["math"]])
def test_acereason_never_looks_at_a_record_that_is_not_mathematics(profile: Profile, category: Any) -> None:
    record = {"category": category, "input": None, "output": None}
    assert parse("acereason", record, profile) == [Drop("not_math")]


@both
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"output": "It is 5."}, "no_thought"),
        ({"output": "</think>It is 5."}, "no_thought"),
        ({"output": "<THINK>x</THINK>5"}, "no_thought"),
        ({"output": "<think>a</think><think>b</think>5"}, "several_thoughts"),
        ({"output": None}, "null_output"),
        ({"output": 5}, "output_is_no_text"),
        ({"input": 5}, "input_is_no_text"),
    ],
)
def test_acereason_puts_a_malformed_record_aside(profile: Profile, changed: Any, reason: str) -> None:
    assert parse("acereason", {**ACEREASON, **changed}, profile) == [Malformed(reason)]


@pytest.mark.parametrize("output", ["<think>It goes on", "x</think><think>It goes on"])
def test_acereason_defect_an_unclosed_thought_is_kept_for_data_io_and_dropped_here(output: str) -> None:
    assert parse("acereason", {**ACEREASON, "output": output}, "data_io") == [Row("synth,cot", "What?", output)]
    assert parse("acereason", {**ACEREASON, "output": output}, "pairmill") == [Drop("unclosed_thought")]


def test_acereason_reads_parquet_whatever_its_card_says_of_arrow_files() -> None:
    listed = "---\nconfigs:\n- data_files:\n  - split: train\n    path: sft_data.parquet/*.arrow\n---\n"
    for text in (listed, ""):
        (unit,) = units("acereason", "train-00000.parquet", "train-00001.parquet", "README.md", card=text)
        assert unit == Unit("data_clustered/acereason/all.parquet", ("train-00000.parquet", "train-00001.parquet"))


# --- openthoughts2 --------------------------------------------------------------------------------------------------


def talk(question: Any, answer: Any, source: Any = "numina_math") -> dict[str, Any]:
    return {"source": source, "conversations": messages(question, answer)}


@both
def test_openthoughts2_takes_what_is_left_without_thoughts(profile: Profile) -> None:
    response = "It is 5." if profile == "pairmill" else "\n\nIt is 5."
    assert parse("openthoughts2", THOUGHTS, profile) == [Row("synth,cot", "What?", response)]
    assert parse("openthoughts2", talk("a ```block```", "<think>a</think>b<think>c</think>d"), profile) == [
        Row("synth,cot", "a ```block```", "bd")
    ]
    assert parse("openthoughts2", talk("q", "no thought"), profile) == [Row("synth,cot", "q", "no thought")]
    assert parse("openthoughts2", talk("q", "a", source=None), profile) == [Row("synth,cot", "q", "a")]


@both
@pytest.mark.parametrize(
    "source", ["dolphin", "evolcodegolf", "glaive", "magicoder", "sharegpt", "codefeedback", "nvidia_math"]
)
def test_openthoughts2_leaves_out_some_origins_whatever_their_shape(profile: Profile, source: str) -> None:
    shapes: list[Any] = [THOUGHTS["conversations"], None, [], 5]
    for turns in shapes:
        found = parse("openthoughts2", {"source": source, "conversations": turns}, profile)
        assert found == [Drop("code_or_chat_source")]


@both
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("In PyThOn?", "a"),
        ("q", "<think>python</think>a"),
        ("q", "monty pythons"),
        ("q", "<think>```</think>a"),
        ("q", "```\nx\n```"),
    ],
)
def test_openthoughts2_leaves_out_code(profile: Profile, question: str, answer: str) -> None:
    assert parse("openthoughts2", talk(question, answer), profile) == [Drop("about_code")]


@both
@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (None, "no_conversation"),
        ("text", "no_conversation"),
        ([None, None], "no_conversation"),
        ([], "not_user_then_assistant"),
        ([{"from": "user", "value": "x"}], "not_user_then_assistant"),
        ([{"from": "assistant", "value": "x"}, {"from": "user", "value": "x"}], "not_user_then_assistant"),
        ([{"from": "human", "value": "x"}, {"from": "gpt", "value": "x"}], "not_user_then_assistant"),
        ([*THOUGHTS["conversations"], {"from": "user", "value": "x"}], "not_user_then_assistant"),
        (messages(None, "x"), "null_value"),
        (messages("x", None), "null_value"),
        ([{"from": "user"}, {"from": "assistant", "value": "x"}], "missing_value"),
        (messages("x", 5), "value_is_no_text"),
    ],
)
def test_openthoughts2_puts_another_shape_of_a_conversation_aside(profile: Profile, turns: Any, reason: str) -> None:
    assert parse("openthoughts2", {**THOUGHTS, "conversations": turns}, profile) == [Malformed(reason)]


def test_openthoughts2_defect_an_unclosed_thought_is_kept_for_data_io_and_dropped_here() -> None:
    for answer in ("<think>It goes on", "<think>a</think>b<think>c"):
        left = answer.replace("<think>a</think>", "")
        assert parse("openthoughts2", talk("q", answer), "data_io") == [Row("synth,cot", "q", left)]
        assert parse("openthoughts2", talk("q", answer), "pairmill") == [Drop("unclosed_thought")]


# --- openmathinstruct2 and textbookreasoning ------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("origin", "direct"),
    [("augmented_math", True), ("gsm8k", False), ("math", False), ("Math", True), ("", True), (None, True)],
)
def test_openmathinstruct2_gives_the_answer_alone_for_made_problems(
    profile: Profile, origin: str | None, direct: bool
) -> None:
    expected = [Labelled("cot", Row("synth,cot", "What?", "So it is 5."))]
    expected += [Labelled("direct", Row("synth,direct", "What?", "5"))] if direct else []
    assert parse("openmathinstruct2", {**OPENMATH, "problem_source": origin}, profile) == expected


@both
def test_openmathinstruct2_needs_no_answer_where_it_gives_none(profile: Profile) -> None:
    record = {**OPENMATH, "problem_source": "gsm8k", "expected_answer": None}
    assert outcome("openmathinstruct2", record, profile) == [Row("synth,cot", "What?", "So it is 5.")]


def test_openmathinstruct2_without_a_card_reads_no_part_of_the_split_twice() -> None:
    files = ("data/train-00000-of-00001.parquet", "data/train_1M-00000-of-00001.parquet", "data/train_5M-0.parquet")
    (unit,) = units("openmathinstruct2", *files)
    assert unit == Unit("data_clustered/openmathinstruct2/{}.parquet", files[:1], labels=("cot", "direct"))


@both
def test_textbookreasoning_gives_the_answer_alone_where_no_proof_is_asked_for(profile: Profile) -> None:
    worked = Labelled("cot", Row("synth,cot", "What is it?", "It is 5, as …"))
    bare = Labelled("direct", Row("noisy,direct", "What is it?", "5"))
    assert parse("textbookreasoning", TEXTBOOK, profile) == [worked, bare]
    for question in ("Prove it.", "Now SHOW THAT it is."):
        record = {**TEXTBOOK, "question": question, "reference_answer": None}
        worked = Row("synth,cot", question, "It is 5, as …")
        assert parse("textbookreasoning", record, profile) == [Labelled("cot", worked)]


def test_textbookreasoning_defect_improve_is_taken_for_prove_by_data_io_alone() -> None:
    for question in ("How to improve it?", "Is this approved?", "What show thats are there?"):
        record = {**TEXTBOOK, "question": question}
        assert len(parse("textbookreasoning", record, "data_io")) == 1
        assert len(parse("textbookreasoning", record, "pairmill")) == 2


@both
def test_textbookreasoning_puts_a_null_question_aside(profile: Profile) -> None:
    assert parse("textbookreasoning", {**TEXTBOOK, "question": None}, profile) == [Malformed("null_question")]


def test_textbookreasoning_defect_an_empty_answer_is_left_out_beside_its_worked_one() -> None:
    record = {**TEXTBOOK, "reference_answer": " "}
    assert len(outcome("textbookreasoning", record, "data_io")) == 2
    assert outcome("textbookreasoning", record, "pairmill") == [Row("synth,cot", "What is it?", "It is 5, as …")]


# --- flan -----------------------------------------------------------------------------------------------------------


@both
def test_flan_labels_a_row_with_its_task(profile: Profile) -> None:
    row = Row("direct", "What?", "5")
    assert parse("flan", FLAN, profile, "t0_zsopt_data") == [Labelled("anli/r1:0.1.0", row)]
    worked = row._replace(condition="cot")
    assert parse("flan", FLAN, profile, "cot_fsopt_data") == [Labelled("anli/r1:0.1.0", worked)]
    assert SOURCES["flan"].file_name("anli/r1:0.1.0", profile) == "anli_r1_0.1.0"


def test_flan_defect_a_null_is_the_word_none_for_data_io_and_put_aside_here() -> None:
    nothing = dict.fromkeys(FLAN)
    assert parse("flan", nothing, "data_io", "t0_zsopt_data") == [Labelled("None", Row("direct", "None", "None"))]
    for key in FLAN:
        assert parse("flan", {**FLAN, key: None}, "pairmill", "t0_zsopt_data") == [Malformed(f"null_{key}")]


@both
def test_flan_puts_what_is_no_text_aside(profile: Profile) -> None:
    for key in FLAN:
        assert parse("flan", {**FLAN, key: 5}, profile, "t0_zsopt_data") == [Malformed(f"{key}_is_no_text")]


@both
def test_flan_reads_fourteen_sets_in_path_order(profile: Profile) -> None:
    files = (
        "t0_zsopt_data/part.0.parquet",
        "t0_zsopt_data/part.10.parquet",
        "t0_zsopt_data/part.2.parquet",
        "FLAN/cot_zsopt_data/part.0.parquet",
        "not_used_data/part.0.parquet",
        "t0_zsopt_data/.part.1.parquet",
        "t0_zsopt_data/deeper/part.1.parquet",
        "t0_zsopt_data/part.json",
        "t0_zsopt_submix_data.json",
    )
    assert units("flan", *files, profile=profile) == [
        Unit("data_clustered/flan/t0_zsopt_data__{}.parquet", files[:3], tag="t0_zsopt_data"),
        Unit("data_clustered/flan/cot_zsopt_data__{}.parquet", files[3:4], tag="cot_zsopt_data"),
    ]
    origin = SOURCES["flan"].origin
    assert isinstance(origin, Hub)
    assert len(set(origin.files)) == 14


# --- tasksource -----------------------------------------------------------------------------------------------------


@both
def test_tasksource_takes_listed_tasks(profile: Profile) -> None:
    assert parse("tasksource", TASK, profile) == [Labelled("WANLI", Row("direct", "Is it?", "entailment"))]
    found = parse("tasksource", {**TASK, "task": "recast/recast_ner"}, profile)
    assert found == [Labelled("recast/recast_ner", Row("direct", "Is it?", "entailment"))]
    assert SOURCES["tasksource"].file_name("recast/recast_ner", profile) == "recast_recast_ner"
    for task in ("wanli", "WANLI ", "glue/mnli", "", None):
        assert parse("tasksource", {**TASK, "task": task}, profile) == [Drop("task_not_in_the_list")]


@both
def test_tasksource_puts_a_malformed_record_aside(profile: Profile) -> None:
    assert parse("tasksource", {**TASK, "targets": None}, profile) == [Malformed("null_targets")]
    assert parse("tasksource", {**TASK, "targets": 5}, profile) == [Malformed("targets_is_no_text")]
    assert parse("tasksource", {**TASK, "inputs": 5}, profile) == [Malformed("inputs_is_no_text")]
    assert parse("tasksource", {**TASK, "task": 5}, profile) == [Malformed("task_is_no_text")]
    # A null target of a task that is not in the list does no harm.
    assert parse("tasksource", {**TASK, "task": "x", "targets": None}, profile) == [Drop("task_not_in_the_list")]


@pytest.mark.parametrize(
    ("target", "reference", "here"),
    [
        ("entailment.", "entailment", "entailment"),
        ("entailment", "entailment", "entailment"),
        ("entailment. ", "entailment. ", "entailment. "),
        ("very negative.", "very negative", "very negative"),
        ("one two three four five.", "one two three four five", "one two three four five"),
        ("one two three four five six.", "one two three four five six", "one two three four five six."),
        ("Why not?.", "Why not?", "Why not?"),
        ("Why? No.", "Why? No", "Why? No."),
        ("No!\nYes.", "No!\nYes", "No!\nYes."),
        ("U.S.", "U.S", "U.S."),
        ("3.14.", "3.14", "3.14."),
        ("...", "..", "..."),
        ("wait..", "wait.", "wait.."),
        (".", "", "."),
        (" .", " ", " ."),
        ("", "", ""),
    ],
)
def test_tasksource_defect_only_a_label_loses_its_full_stop(target: str, reference: str, here: str) -> None:
    record = {**TASK, "targets": target}
    assert parse("tasksource", record, "data_io") == [Labelled("WANLI", Row("direct", "Is it?", reference))]
    assert parse("tasksource", record, "pairmill") == [Labelled("WANLI", Row("direct", "Is it?", here))]


def test_tasksource_lists_194_tasks_whose_file_names_differ() -> None:
    from pairmill.sources.datasets.tasksource import _TASKS

    assert len(_TASKS) == 194
    assert len({SOURCES["tasksource"].file_name(task, "pairmill") for task in _TASKS}) == 194


def test_tasksource_stays_with_the_data_of_version_0() -> None:
    origin = SOURCES["tasksource"].origin
    assert isinstance(origin, Hub)
    assert len(origin.revision) == 40


# --- ampsmathematica ------------------------------------------------------------------------------------------------


@both
def test_ampsmathematica_takes_problem_and_answer(profile: Profile) -> None:
    label = "algebra_area" if profile == "data_io" else "algebra/area"
    content = "Problem:\n Größe? \r\nAnswer:\n 5 Answer: or 6\n".encode()
    expected = Labelled(label, Row("noisy,direct", "Größe?", "5 Answer: or 6"))
    assert parse("ampsmathematica", ("algebra", "area", content), profile) == [expected]
    assert parse("ampsmathematica", ("algebra", "area", b"Problem:Problem:xAnswer:y"), profile) == [
        Labelled(label, Row("noisy,direct", "Problem:x", "y"))
    ]


@both
@pytest.mark.parametrize(
    ("task", "condition"),
    [
        ("area_w_steps", "noisy,cot"),
        ("w_steps", "noisy,cot"),
        ("w_steps_", "noisy,direct"),
        ("area_with_steps", "noisy,direct"),
        ("", "noisy,direct"),
    ],
)
def test_ampsmathematica_takes_the_condition_from_the_task(profile: Profile, task: str, condition: str) -> None:
    (found,) = parse("ampsmathematica", ("t", task, b"xAnswer:y"), profile)
    assert found.row == Row(condition, "x", "y")


@pytest.mark.parametrize(
    ("content", "reason", "malformed"),
    [
        (b"Problem:\nx\n\xff Answer:\ny", "invalid_utf8", True),
        (b"Problem:\nx\n", "no_answer", True),
        (b"", "no_answer", True),
        (b"Problem:\nx\nanswer: y", "no_answer", True),
        (b"Problem:\n \nAnswer:\ny", "empty_instruction", False),
        (b"Problem:\nx\nAnswer:\n ", "empty_response", False),
    ],
)
def test_ampsmathematica_passes_over_what_is_no_problem_with_an_answer(
    content: bytes, reason: str, malformed: bool
) -> None:
    # The published archive holds such members, and the reference goes on: put aside, they fail nothing.
    expected = Malformed(reason, weight=0) if malformed else Drop(reason)
    for profile in PROFILES:
        assert parse("ampsmathematica", ("t", "s", content), profile) == [expected]


@pytest.mark.parametrize("head", ["\ufeff", "\n", " \u00a0", "\ufeff\r\n ", "\n\ufeff"])
def test_ampsmathematica_defect_problem_is_not_found_behind_white_space_by_data_io_alone(head: str) -> None:
    content = f"{head}Problem:\nxAnswer:y".encode()
    kept = f"{head}Problem:\nx".strip()
    assert parse("ampsmathematica", ("t", "s", content), "data_io") == [Labelled("t_s", Row("noisy,direct", kept, "y"))]
    assert parse("ampsmathematica", ("t", "s", content), "pairmill") == [Labelled("t/s", Row("noisy,direct", "x", "y"))]


def test_ampsmathematica_defect_two_pairs_of_topic_and_task_share_a_label_for_data_io_alone() -> None:
    source = SOURCES["ampsmathematica"]
    pairs = [("a_b", "c"), ("a", "b_c")]
    found = {}
    for profile in PROFILES:
        (first,), (second,) = (parse("ampsmathematica", (*pair, b"xAnswer:y"), profile) for pair in pairs)
        found[profile] = [first.label, second.label]
    assert found["data_io"] == ["a_b_c", "a_b_c"]
    assert found["pairmill"] == ["a_b/c", "a/b_c"]
    assert {source.file_name(label, "pairmill") for label in found["pairmill"]} == {"a_b_c"}
    assert source.file_name("a:b é_c", "data_io") == "a:b é_c"
    assert source.file_name("a:b é/c", "pairmill") == "a_b __c"


@both
def test_ampsmathematica_puts_a_name_that_is_no_text_aside(profile: Profile) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert parse("ampsmathematica", ("t", name, b"xAnswer:y"), profile) == [Malformed("name_is_not_utf8")]
    assert parse("ampsmathematica", ("t", "s", "xAnswer:y"), profile) == [Malformed("not_a_member")]


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> FileSlice:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return FileSlice(path.name, str(path))


@both
@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_ampsmathematica_reads_members_by_the_last_parts_of_their_names(
    tmp_path: Path, profile: Profile, mode: str
) -> None:
    members = {
        "amps/mathematica/algebra/area/1.txt": b"a",
        "amps/mathematica/algebra/area/": b"",
        "./amps/mathematica/z/s/1.txt": b"b",
        "/abs/mathematica/t/s/1.txt": b"c",
        "../../mathematica/up/s/1.txt": b"d",
        "three/parts/1.txt": b"e",
        "amps/khan/1/2/3.txt": b"-",
        "../../escape/../../etc/evil/x/1.txt": b"-",
        "amps/mathematica/deeper/algebra/area/1.txt": b"-",
        "top.txt": b"-",
        "two/1.txt": b"-",
        "amps/mathematica/algebra/area/readme.md": b"-",
        "amps/mathematica/algebra/area/1.TXT": b"-",
    }
    piece = archive(tmp_path / "amps.tar.gz", members, mode)
    found = list(SOURCES["ampsmathematica"].read(piece, profile))
    assert found == [
        ("amps/mathematica/algebra/area/1.txt", ("algebra", "area", b"a")),
        ("./amps/mathematica/z/s/1.txt", ("z", "s", b"b")),
        ("/abs/mathematica/t/s/1.txt", ("t", "s", b"c")),
        ("../../mathematica/up/s/1.txt", ("up", "s", b"d")),
        ("three/parts/1.txt", ("three", "parts", b"e")),
    ]


def test_ampsmathematica_reads_the_published_archive_or_what_archive_there_is() -> None:
    (unit,) = units("ampsmathematica", "amps.tar.gz", "other.tar.gz", "README.md")
    assert unit == Unit("data_clustered/ampsmathematica/{}.parquet", ("amps.tar.gz",))
    (unit,) = units("ampsmathematica", "b.tar", "a.tar.gz", "x/amps.tar.gz", "c.zip")
    assert unit.files == ("a.tar.gz", "b.tar", "x/amps.tar.gz")
    assert units("ampsmathematica", "readme.txt")[0].files == ()
    for name in ("ampsmathematica", "amps_khan"):
        origin = SOURCES[name].origin
        assert isinstance(origin, Web)
        assert origin.url.endswith("#amps.tar.gz")


# --- amps_khan ------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("hints", "response"),
    [(["a", "b"], "a\nb"), ([" a ", " b "], "a \n b"), (["", "a", "", "b", ""], "a\n\nb"), (["a"], "a")],
)
def test_amps_khan_joins_the_hints(profile: Profile, hints: list[str], response: str) -> None:
    record = {"problem": " What?\n", "hints": hints, "more": 5}
    assert parse("amps_khan", record, profile) == [Row("noisy,cot", " What?\n", response)]


@both
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"hints": None}, "null_hints"),
        ({"hints": ["a", None]}, "null_in_hints"),
        ({"hints": ["a", 5]}, "hints_holds_no_text"),
        ({"hints": 5}, "hints_is_no_list"),
        ({"hints": {"a": 1}}, "hints_is_no_list"),
        ({"problem": 5}, "problem_is_no_text"),
        ({"problem": None, "hints": None}, "null_hints"),
    ],
)
def test_amps_khan_puts_a_malformed_record_aside(profile: Profile, changed: Any, reason: str) -> None:
    assert parse("amps_khan", {**KHAN, **changed}, profile) == [Malformed(reason)]


def test_amps_khan_defect_hints_that_are_one_text_are_joined_by_character_for_data_io_alone() -> None:
    for text, response in (("abc", "a\nb\nc"), ("", "")):
        assert parse("amps_khan", {**KHAN, "hints": text}, "data_io") == [Row("noisy,cot", "What?", response)]
        assert parse("amps_khan", {**KHAN, "hints": text}, "pairmill") == [Malformed("hints_is_no_list")]


TREE = (
    "amps/khan/0/1.json",
    "amps/khan/0/deep/1.json",
    "amps/khan/0/2.json",
    "amps/khan/10/1.json",
    "amps/khan/2/1.json",
    "amps/khan/2.json",
    "amps/khan/a.json",
)
IN_ORDER = (
    "amps/khan/2.json",
    "amps/khan/a.json",
    "amps/khan/0/1.json",
    "amps/khan/0/2.json",
    "amps/khan/0/deep/1.json",
    "amps/khan/10/1.json",
    "amps/khan/2/1.json",
)
PASSED_OVER = ("amps/khan/.a.json", "amps/khan/.b/1.json", "amps/khan/1/x.txt", "amps/khan/1/._1.json")


@both
def test_amps_khan_reads_the_files_of_a_folder_before_its_folders(profile: Profile) -> None:
    (unit,) = units("amps_khan", *TREE, *PASSED_OVER, "amps.tar.gz", "other.json", profile=profile)
    assert unit == Unit("data/amps_khan.jsonl", IN_ORDER)
    below = [path.removeprefix("amps/khan/") for path in TREE]
    (unit,) = units("amps_khan", *below, profile=profile)
    assert unit.files == tuple(path.removeprefix("amps/khan/") for path in IN_ORDER)


@both
@pytest.mark.parametrize("prefix", ["", "./", "/", "../x/"])
def test_amps_khan_reads_the_archive_as_if_it_were_unpacked(tmp_path: Path, profile: Profile, prefix: str) -> None:
    members = {prefix + path: json.dumps(path).encode() for path in (*TREE, *PASSED_OVER)}
    members |= {prefix + "amps/mathematica/a/b/1.json": b"5", prefix + "amps/khan/0/": b"", "khan/1.json": b"6"}
    archive(tmp_path / "amps.tar.gz", members)
    (unit,) = units("amps_khan", "amps.tar.gz", profile=profile)
    assert unit.files == ("amps.tar.gz",)
    found = list(SOURCES["amps_khan"].read(FileSlice("amps.tar.gz", str(tmp_path / "amps.tar.gz")), profile))
    assert found == [(prefix + path, path) for path in IN_ORDER]


@both
def test_amps_khan_takes_strict_json_alone(tmp_path: Path, profile: Profile) -> None:
    cases = {
        b'{"problem": "x", "hints": []}': {"problem": "x", "hints": []},
        b"[1]\n": [1],
        b'{"problem": NaN}': Malformed("invalid_json"),
        b'{"problem": ': Malformed("invalid_json"),
        b"": Malformed("invalid_json"),
        b"[" * 100_000: Malformed("invalid_json"),
        b"9" * 10_000: Malformed("invalid_json"),
        b'{"problem": "\xff"}': Malformed("invalid_utf8"),
        '{"problem": "x"}'.encode("utf-16"): Malformed("invalid_utf8"),
    }
    for data, expected in cases.items():
        (tmp_path / "1.json").write_bytes(data)
        piece = FileSlice("amps/khan/1.json", str(tmp_path / "1.json"))
        assert list(SOURCES["amps_khan"].read(piece, profile)) == [(0, expected)]
    named = {f"amps/khan/{number}.json": data for number, data in enumerate(cases)}
    piece = archive(tmp_path / "amps.tar.gz", named)
    assert list(SOURCES["amps_khan"].read(piece, profile)) == list(zip(named, cases.values(), strict=True))


def test_amps_khan_takes_the_last_of_two_members_of_one_name_as_unpacking_would(tmp_path: Path) -> None:
    def twice() -> Iterator[tuple[tarfile.TarInfo, io.BytesIO]]:
        for data in (b"1", b"[22]", b"[3]"):
            info = tarfile.TarInfo("amps/khan/1.json")
            info.size = len(data)
            yield info, io.BytesIO(data)

    with tarfile.open(tmp_path / "amps.tar", "w") as tar:
        for info, data in twice():
            tar.addfile(info, data)
    piece = FileSlice("amps.tar", str(tmp_path / "amps.tar"))
    assert list(SOURCES["amps_khan"].read(piece, "pairmill")) == [("amps/khan/1.json", [3])]
