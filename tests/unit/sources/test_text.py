"""What sources share: idioms of texts, which files of a Hub data set make a split, and which splits are taken."""

import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from pairmill.errors import InputError, UsageError
from pairmill.sources import choices, fields
from pairmill.sources.files.card import configs_of, hub_split
from pairmill.sources.files.patterns import matching
from pairmill.sources.files.splits import BenchmarkOnly, SplitOptions, TrainAndValidation, TrainOnly, files_by_split
from pairmill.sources.parsed import Malformed, MalformedRecord


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function returns, or why the record is malformed."""
    try:
        return function(*arguments, **options)
    except MalformedRecord as error:
        return error.why


# --- texts of a record ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"a": ""}, ""),
        ({"a": " x ", "b": 1}, " x "),
        ({"a": None}, Malformed("null_a")),
        ({}, Malformed("missing_a")),
        ({"a": 1}, Malformed("a_is_no_text")),
        ({"a": b"x"}, Malformed("a_is_no_text")),
        ([], Malformed("not_an_object")),
        (None, Malformed("not_an_object")),
    ],
)
def test_a_text_is_found_or_it_is_said_why_there_is_none(record: Any, found: str | Malformed) -> None:
    listed = found if isinstance(found, Malformed) else [found]
    assert outcome(fields.text_of, record, "a") == found
    assert outcome(fields.texts_of, record, "a") == listed
    null = found == Malformed("null_a")
    assert outcome(fields.text_or_null, record, "a") == (None if null else found)
    assert outcome(fields.texts_or_nulls, record, "a") == ([None] if null else listed)


def test_of_several_texts_the_first_that_is_missing_is_named() -> None:
    assert fields.texts_of({"a": "1", "b": "2"}, "b", "a") == ["2", "1"]
    assert outcome(fields.texts_of, {"a": None, "b": 5}, "b", "a") == Malformed("b_is_no_text")
    assert fields.texts_or_nulls({"a": None, "b": "2"}, "a", "b") == [None, "2"]
    assert outcome(fields.texts_or_nulls, {"a": None}, "a", "b") == Malformed("missing_b")


def test_a_null_is_read_as_a_word_if_one_is_given() -> None:
    record = {"a": None, "b": "2", "c": 3}
    assert fields.texts_of(record, "a", "b", null="nan") == ["nan", "2"]
    assert outcome(fields.texts_of, record, "a", "b") == Malformed("null_a")
    assert outcome(fields.texts_of, record, "a", "c", null="nan") == Malformed("c_is_no_text")
    assert outcome(fields.texts_of, record, "d", null="nan") == Malformed("missing_d")
    assert outcome(fields.texts_of, "record", "d", null="nan") == Malformed("not_an_object")


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"a": []}, []),
        ({"a": ["", "x"]}, ["", "x"]),
        ({"a": ["x", None]}, Malformed("null_in_a")),
        ({"a": ["x", 1]}, Malformed("a_holds_no_text")),
        ({"a": "xy"}, Malformed("a_is_no_list")),
        ({"a": {"0": "x"}}, Malformed("a_is_no_list")),
        ({"a": None}, Malformed("null_a")),
        ({}, Malformed("missing_a")),
        (5, Malformed("not_an_object")),
    ],
)
def test_a_list_of_texts_is_found_or_it_is_said_why_there_is_none(record: Any, found: Any) -> None:
    assert outcome(fields.list_of_texts, record, "a") == found


def test_a_list_may_hold_anything() -> None:
    assert fields.list_of({"a": [1, None, {}]}, "a") == [1, None, {}]
    assert outcome(fields.list_of, {"a": (1,)}, "a") == Malformed("a_is_no_list")
    assert outcome(fields.list_of, "a", "a") == Malformed("not_an_object")


# --- choices --------------------------------------------------------------------------------------------------------


def test_choices_have_letters_by_code_point_without_an_end() -> None:
    assert [choices.choice_letter(index) for index in (0, 25, 26)] == ["A", "Z", "["]
    assert choices.choice_lines(["x", " y\n", ""]) == ["A: x", "B:  y\n", "C: "]
    assert choices.choice_lines([]) == []


@pytest.mark.parametrize(
    ("value", "of_three", "of_any"),
    [
        (0, "A", "A"),
        (2, "C", "C"),
        (3, Malformed("a_out_of_range"), "D"),
        (-1, Malformed("a_out_of_range"), "@"),
        (-65, Malformed("a_out_of_range"), "\0"),
        (-66, Malformed("a_out_of_range"), Malformed("a_out_of_range")),
        (0x10FFFF - 65, Malformed("a_out_of_range"), "\U0010ffff"),
        (0x10FFFF - 64, Malformed("a_out_of_range"), Malformed("a_out_of_range")),
        (10**30, Malformed("a_out_of_range"), Malformed("a_out_of_range")),
        (1.0, Malformed("a_is_no_integer"), Malformed("a_is_no_integer")),
        (True, Malformed("a_is_no_integer"), Malformed("a_is_no_integer")),
        ("1", Malformed("a_is_no_integer"), Malformed("a_is_no_integer")),
        (None, Malformed("null_a"), Malformed("null_a")),
    ],
)
def test_a_number_has_a_letter_if_there_is_such_a_choice(value: Any, of_three: Any, of_any: Any) -> None:
    assert outcome(fields.letter_under, {"a": value}, "a", 3) == of_three
    assert outcome(fields.letter_under, {"a": value}, "a", None) == of_any


def test_a_number_that_is_not_there_has_no_letter() -> None:
    assert outcome(fields.letter_under, {}, "a", 3) == Malformed("missing_a")
    assert outcome(fields.letter_under, [1], "a", 3) == Malformed("not_an_object")


# --- answers, thoughts, proofs --------------------------------------------------------------------------------------

NEITHER = "the same either way"


@pytest.mark.parametrize(
    ("solution", "reference", "unbraced"),
    [
        (r"So \boxed{5}.", "5", NEITHER),
        (r"\boxed{1}, then \boxed{ \frac{1}{2} } and {3}", r"\frac{1}{2}", NEITHER),
        (r"\fbox{3}", "3", NEITHER),
        (r"\fbox{3} \fbox{4}", "4", NEITHER),
        (r"\boxed{4} \fbox{5}", "4", NEITHER),
        (r"\boxed {7}", "7", NEITHER),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", NEITHER),
        (r"\boxed{a\}b}", "a\\", NEITHER),
        ("\\boxed{\n\u00a0x\u2003}", "x", NEITHER),
        (r"\boxed{}", "", NEITHER),
        (r"\boxed{ }", "", NEITHER),
        (r"\boxed{1", "", NEITHER),
        (r"\boxed{{1}", "", NEITHER),
        (r"\boxed", "", NEITHER),
        ("boxed{5}", "", NEITHER),
        ("", "", NEITHER),
        (r"$\boxed 5$.", "", "5"),
        (r"$\boxed 5$ of {6}", "6", "5"),
        (r"$\boxed{1}$, no: $\boxed2$ of \text{them}", "them", "2"),
        (r"\boxed -3.", "", "-3"),
        (r"\boxed 1,000, say", "", "1,000"),
        (r"\fbox 5", "", "5"),
        (r"\boxed\frac{1}{2}", "1", ""),
        # Before the first {, a } shifts the balance.
        (r"\boxed}{a}{b}", "", ""),
        (r"\boxed}{{a}", "{a", ""),
    ],
)
def test_the_answer_stands_in_the_last_box(solution: str, reference: str, unbraced: str) -> None:
    assert fields.boxed_answer(solution, unbraced=False) == reference
    assert fields.boxed_answer(solution, unbraced=True) == (reference if unbraced == NEITHER else unbraced)


@pytest.mark.parametrize(
    ("full", "rest"),
    [
        ("<think>a</think>b", "b"),
        ("<think>a\nb</think>\nc", "\nc"),
        ("x<think>a</think>y<think>b</think>z", "xyz"),
        ("<think>a<think>b</think>c</think>d", "c</think>d"),
        ("<think>open", "<think>open"),
        ("none", "none"),
    ],
)
def test_thoughts_go_from_tag_to_nearest_tag(full: str, rest: str) -> None:
    assert fields.without_thoughts(full) == rest


@pytest.mark.parametrize(
    ("question", "anywhere", "words"),
    [
        ("Prove it.", True, True),
        ("Please PROVE: 1 = 1", True, True),
        ("Show that it is", True, True),
        ("Then show  that", False, True),
        ("Improve it.", True, False),
        ("What is proven or approved?", True, False),
        ("Does this show thatched roofs?", True, False),
        ("What does it show?", False, False),
        ("", False, False),
    ],
)
def test_a_question_asks_for_a_proof_by_words_or_anywhere(question: str, anywhere: bool, words: bool) -> None:
    assert fields.asks_for_proof(question, words=False) is anywhere
    assert fields.asks_for_proof(question, words=True) is words


# --- which files ----------------------------------------------------------------------------------------------------


def card(*configs: str) -> str:
    return "\n".join(["---", "license: mit", "configs:", *configs, "---", "# Title", ""])


MAIN = ["- config_name: main", "  data_files:", "  - split: train", "    path: main/train-*"]
SOCRATIC = ["- config_name: socratic", "  data_files:", "  - split: train", "    path: socratic/train-*"]
TREE = ["README.md", "main/test-0.parquet", "main/train-0.parquet", "main/train-1.parquet", "socratic/train-0.parquet"]
TREE_MAIN = ("main/train-0.parquet", "main/train-1.parquet")


def test_hub_split_takes_the_files_that_the_card_names() -> None:
    assert hub_split(TREE, card(*SOCRATIC, *MAIN), "train", "main") == TREE_MAIN
    assert hub_split(TREE, card(*SOCRATIC, *MAIN), "train", "socratic") == ("socratic/train-0.parquet",)
    assert hub_split(TREE, card(*MAIN), "validation", "main") == ()


def test_hub_split_keeps_the_order_of_the_patterns_and_sorts_within_each() -> None:
    listed = ["- config_name: default", "  data_files:", "  - split: train", "    path: [b-*, a.jsonl, b-1.jsonl]"]
    files = ["a.jsonl", "b-2.jsonl", "b-1.jsonl", "c.jsonl"]
    assert hub_split(files, card(*listed), "train") == ("b-1.jsonl", "b-2.jsonl", "a.jsonl")
    assert matching(["b-*", "*.jsonl"], files) == ("b-1.jsonl", "b-2.jsonl", "a.jsonl", "c.jsonl")


def test_hub_split_without_a_config_name_is_the_default_config() -> None:
    listed = ["- data_files:", "  - split: train", "    path: x.jsonl"]
    assert hub_split(["train.jsonl", "x.jsonl"], card(*listed), "train") == ("x.jsonl",)


@pytest.mark.parametrize(
    "listed", [["  data_files: x.jsonl"], ["  data_files:", "  - x.jsonl"], ["  data_files: [x.jsonl]"]]
)
def test_hub_split_reads_files_that_are_named_without_a_split(listed: list[str]) -> None:
    # The Hub's documentation allows it, and takes such files for the training split.
    assert hub_split(["x.jsonl", "y.jsonl"], card("- config_name: default", *listed), "train") == ("x.jsonl",)
    assert hub_split(["x.jsonl", "y.jsonl"], card("- config_name: default", *listed), "test") == ()


def test_hub_split_lets_a_double_star_match_no_folder_too() -> None:
    listed = ["- config_name: default", "  data_files:", "  - split: train", "    path: '**/*.jsonl'"]
    assert hub_split(["a.jsonl", "x/b.jsonl"], card(*listed), "train") == ("a.jsonl", "x/b.jsonl")


NAMES = [
    "README.md",
    "data/test-00000-of-00001.parquet",
    "data/train-00000-of-00002-a31a321e61f8f5b1.parquet",
    "data/train-00001-of-00002-0d4b3eeedc9eb301.parquet",
    "data/validation-00000-of-00001.parquet",
    "train.txt.md",
]


def test_hub_split_without_a_card_goes_by_the_words_that_the_hub_knows() -> None:
    assert hub_split(NAMES, "", "train") == tuple(NAMES[2:4])
    assert hub_split(NAMES, "", "validation") == (NAMES[4],)
    assert hub_split(NAMES, "", "test") == (NAMES[1],)
    assert hub_split(["train.json", "val.json"], "", "validation") == ("val.json",)
    assert hub_split(["dev.csv", "training.csv"], "", "train") == ("training.csv",)
    assert hub_split(["default/train/0000.parquet", "default/test/0000.parquet"], "", "train") == (
        "default/train/0000.parquet",
    )
    assert hub_split(["data/numerical-0.parquet", "numerically.parquet"], "", "numerical") == (
        "data/numerical-0.parquet",
    )
    assert hub_split(["trained.jsonl", "strain.jsonl", "full.jsonl"], "", "train") == ()
    assert hub_split(["train.jsonl.gz"], "", "train") == ("train.jsonl.gz",)


def test_hub_split_without_a_card_does_not_mix_the_files_of_two_configs() -> None:
    # openai/gsm8k has main/ and socratic/, the same questions twice: taking both doubles the data set in silence.
    assert hub_split(TREE, "", "train", "main") == TREE_MAIN


@pytest.mark.parametrize("listed", ["# no front matter", "---\nlicense: mit\n---\n", "---\nconfigs: []\n---\n"])
def test_hub_split_with_a_card_that_names_no_files_goes_by_names(listed: str) -> None:
    assert hub_split(["train.jsonl"], listed, "train") == ("train.jsonl",)


@pytest.mark.parametrize("listed", ["---\n: [\n---\n", "---\n- a\n---\n"])
def test_hub_split_refuses_a_card_that_is_no_yaml(listed: str) -> None:
    with pytest.raises(InputError, match=r"README.md: .*front matter"):
        hub_split(["train.jsonl"], listed, "train")


def test_hub_split_refuses_one_split_in_two_formats() -> None:
    with pytest.raises(InputError, match=r"several formats; got train.jsonl, train.parquet; expected one"):
        hub_split(["train.jsonl", "train.parquet"], "", "train")


def the_old_glob(pattern: str) -> re.Pattern[str]:
    """Patterns as they were matched before: right, but in time that grows exponentially with their stars."""
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(pieces.get(part) or re.escape(part) for part in parts) + r"\Z")


def test_a_pattern_means_what_it_means_on_the_hub() -> None:
    rng = random.Random(7)
    paths = ["".join(rng.choices("ab/.", k=rng.randrange(9))) for _ in range(150)]
    for _ in range(1500):
        pattern = "".join(rng.choices(["a", "b", "/", ".", "*", "**", "**/", "?", "[", "é"], k=rng.randrange(7)))
        old = the_old_glob(pattern)
        assert set(matching([pattern], paths)) == {path for path in paths if old.match(path)}, pattern


@pytest.mark.parametrize("pattern", ["**/*" * 20 + "!", "*a" * 500 + "!", "**a*?" * 300 + "b", "**" * 2000 + "!"])
def test_matching_takes_no_longer_for_a_pattern_of_many_stars(pattern: str) -> None:
    started = time.process_time()
    assert matching([pattern], [f"{'a' * 60}/{'a' * 60}/{number}.jsonl" for number in range(100)]) == ()
    assert time.process_time() - started < 2


def alias_bomb(levels: int = 24) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join([*lines, f"configs: [*a{levels - 1}]"])


def merge_bomb(levels: int = 24) -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, levels)]
    return "\n".join(lines)


LISTED = "configs:\n- config_name: default\n  data_files:\n"


@pytest.mark.parametrize(
    ("front", "said"),
    [
        (alias_bomb(), r"line 1.*anchor or an alias"),
        (merge_bomb(), r"line 1.*anchor or an alias"),
        ("a: {<<: {b: c}}", r"line 1.*merge key"),
        ("a: *nobody", "anchor or an alias"),
        ("[" * 100_000, "more than 32 levels"),
        ("a:\n" + "\n".join("  " * depth + "- b:" for depth in range(1, 200)), "more than 32 levels"),
        ("a: " + "x" * (1 << 20), r"larger than .*1048576"),
        ("a: !!python/object/apply:os.system [ls]", "tag"),
        ("a: !mine b", "tag"),
        ("a: b\n--- \nc: d", "several YAML documents"),
        ("a: \x07", "YAML"),
        ("- a", r"got a list.*expected a mapping"),
        ("text", r"got the text.*expected a mapping"),
        ("? [a, b]\n: c", "key"),
        ("? {a: b}\n: c", "key"),
        ("configs: 5", r"configs.*got the text.*expected a list"),
        ("configs: 2020-13-45", r"configs.*got the text.*expected a list"),
        ("configs: {config_name: default}", r"configs.*got a mapping.*expected a list"),
        ("configs: [default]", r"configs.*got the text.*expected a mapping"),
        ("configs: [null]", r"configs.*got nothing.*expected a mapping"),
        ("configs: [[]]", r"configs.*got a list.*expected a mapping"),
        ("configs: [{config_name: null}]", r"config_name.*got nothing.*expected a text"),
        ("configs: [{config_name: [a]}]", r"config_name.*got a list.*expected a text"),
        ("configs: [{config_name: {a: b}}]", r"config_name.*got a mapping.*expected a text"),
        ("configs: [{default: [true]}]", r"default.*got a list.*expected true or false"),
        ("configs: [{default: 5}]", r"default.*got the text '5'.*expected true or false"),
        ("configs: [{data_files: {train: x}}]", r"data_files.*got a mapping.*expected a text or a list"),
        ("configs: [{data_files: {split: train, path: x}}]", r"data_files.*got a mapping.*expected a text or a list"),
        ("configs: [{data_files: [[x]]}]", r"data_files.*got a list.*expected"),
        ("configs: [{data_files: [null]}]", r"data_files.*got nothing.*expected"),
        (LISTED + "  - {path: x}", r"split.*got nothing.*expected a text"),
        (LISTED + "  - {split: null, path: x}", r"split.*got nothing.*expected a text"),
        (LISTED + "  - {split: [train], path: x}", r"split.*got a list.*expected a text"),
        (LISTED + "  - {split: {a: b}, path: x}", r"split.*got a mapping.*expected a text"),
        (LISTED + "  - {split: train}", r"path.*got nothing.*expected a text or a list"),
        (LISTED + "  - {split: train, path: null}", r"path.*got nothing.*expected a text or a list"),
        (LISTED + "  - {split: train, path: {a: b}}", r"path.*got a mapping.*expected a text or a list"),
        (LISTED + "  - {split: train, path: [null]}", r"path.*got nothing.*expected a text"),
        (LISTED + "  - {split: train, path: [[x]]}", r"path.*got a list.*expected a text"),
        (LISTED + "  - {split: train, path: '" + "*a" * 40_000 + "'}", "pattern"),
    ],
)
def test_a_card_of_any_shape_is_read_or_refused_by_its_name(front: str, said: str) -> None:
    started = time.process_time()
    with pytest.raises(InputError, match=rf"(?s)README\.md.*{said}"):
        hub_split(["train.jsonl"], f"---\n{front}\n---\n", "train")
    configs_of(f"---\n{front}\n---\n")
    assert time.process_time() - started < 2


def test_what_a_card_names_is_text_whatever_it_looks_like() -> None:
    for name in ("2024", "2024-13-45", "no", "1:30", "0x1F", "1e3", "null"):
        quoted = f'"{name}"' if name == "null" else name
        listed = f"---\nconfigs:\n- config_name: {quoted}\n  data_files:\n  - {{split: {quoted}, path: a.csv}}\n---\n"
        assert configs_of(listed) == [(name, False)]
        assert hub_split(["a.csv"], listed, name, name) == ("a.csv",)
    assert configs_of("---\nconfigs: [{config_name: a, default: yes}, {config_name: b, default: false}]\n---\n") == [
        ("a", True),
        ("b", False),
    ]


def test_front_matter_without_an_end_is_none_unless_the_card_was_too_long_to_be_read_whole() -> None:
    assert hub_split(["train.jsonl"], "---\nconfigs: 5\n", "train") == ("train.jsonl",)
    with pytest.raises(InputError, match=r"README\.md.*larger than"):
        hub_split(["train.jsonl"], "---\n" + "# x\n" * 300_000, "train")


# --- which splits ---------------------------------------------------------------------------------------------------

SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = ("data/train-0.parquet", "data/validation-0.parquet", "data/test-0.parquet")
FILES = sorted([TRAIN, VALIDATION, TEST])


@pytest.mark.parametrize(
    ("options", "taken", "withheld"),
    [
        (TrainOnly(), (TRAIN,), (VALIDATION, TEST)),
        (TrainAndValidation(), (TRAIN, VALIDATION), (TEST,)),
        (BenchmarkOnly(), (), (TRAIN, VALIDATION, TEST)),
        (BenchmarkOnly(splits="test"), (TEST,), (TRAIN, VALIDATION)),
        (BenchmarkOnly().when_named(), (TEST,), (TRAIN, VALIDATION)),
        (BenchmarkOnly(splits="none").when_named(), (), (TRAIN, VALIDATION, TEST)),
        (TrainOnly().when_named(), (TRAIN,), (VALIDATION, TEST)),
        (TrainOnly(splits="test+train"), (TRAIN, TEST), (VALIDATION,)),
        (TrainOnly(splits="none"), (), (TRAIN, VALIDATION, TEST)),
    ],
)
def test_splits_are_taken_as_the_options_say_and_by_data_io_all(
    options: SplitOptions, taken: tuple[str, ...], withheld: tuple[str, ...]
) -> None:
    assert files_by_split(FILES, "", SPLITS, options, "pairmill", "default") == (taken, withheld)
    assert files_by_split(FILES, "", SPLITS, options, "data_io", "default") == ((TRAIN, VALIDATION, TEST), ())


def test_the_card_tells_the_files_of_a_config_apart() -> None:
    found = files_by_split(TREE, card(*MAIN, *SOCRATIC), ("train", "test"), TrainOnly(), "pairmill", "socratic")
    assert found == (("socratic/train-0.parquet",), ())


@pytest.mark.parametrize("splits", ["dev", "", "train,test", "train+", "none+train"])
def test_a_split_that_is_not_there_is_refused(splits: str) -> None:
    with pytest.raises(UsageError, match=r"splits: unknown split.*expected none, or some of train\+validation\+test"):
        files_by_split(FILES, "", SPLITS, TrainOnly(splits=splits), "pairmill", "default")
