"""Rows of benchmarks and what is made of them: files, columns, labels, shots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.evaluation import benchmarks
from pairmill.evaluation.benchmarks import REGISTRY, data
from pairmill.evaluation.benchmarks.aime import Aime
from pairmill.evaluation.benchmarks.arc import Arc
from pairmill.evaluation.benchmarks.drop import Drop
from pairmill.evaluation.benchmarks.mmlu import Mmlu

ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "One and one?", "answer": "so\n#### 2"},
    "math": {"problem": "1+1", "solution": "\\boxed{2}", "type": "Algebra"},
    "drop": {
        "passage": "P.",
        "question": "Who?",
        "answer": {"number": "", "date": {"day": ""}, "spans": ["Ada", "Bob"]},
    },
    "mmlu": {"subject": "law", "question": "q", "choices": ["a", "b"], "answer": 1},
    "mmlu_pro": {"question": "q", "options": ["a", "b"], "answer": "B", "category": "law"},
    "arc": {"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
    "hellaswag": {"ctx_a": "A man.", "ctx_b": "he", "endings": ["a", "b"], "label": "1"},
    "winogrande": {"sentence": "_ ran", "option1": "a", "option2": "b", "answer": "2"},
    "boolq": {"passage": "P.", "question": "is it", "answer": False},
    "aime": {"problem": "p", "answer": "042"},
    "ifeval": {
        "prompt": "No comma.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 2, "relation": "at least"}],
    },
    "bfcl": {
        "id": "irrelevance_0",
        "question": [[{"role": "user", "content": "Add 1 and 2."}]],
        "function": [{"name": "math.add", "parameters": {"type": "dict", "properties": {"a": {"type": "float"}}}}],
    },
}
ROWS["ifeval_punkt"] = ROWS["ifeval"]
GOLDS: dict[str, Any] = {
    "gsm8k": 2,
    "math": "2",
    "drop": [["Ada", "Bob"]],
    "aime": 42,
    "ifeval": [
        ["punctuation:no_comma", {}],
        ["length_constraints:number_words", {"num_words": 2, "relation": "at least"}],
    ],
    "bfcl": {"category": "irrelevance", "functions": ROWS["bfcl"]["function"], "answers": []},
}
GOLDS["ifeval_punkt"] = GOLDS["ifeval"]


def write(folder: Path, splits: Mapping[str, list[dict[str, Any]]]) -> str:
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


TEXTS = (
    "",
    "  ",
    "B",
    "(B)",
    "The answer is (B).",
    "42",
    "4 2",
    r"so \boxed{42}",
    r"so \boxed{B}",
    r"\boxed{",
    "1,000",
    "prose",
)


@pytest.mark.parametrize("name", [name for name, benchmark in REGISTRY.items() if benchmark.family])
def test_what_a_benchmark_accepts_is_what_its_scorer_reads(name: str, tmp_path: Path) -> None:
    benchmark = REGISTRY[name]
    if isinstance(benchmark, Aime):
        benchmark = replace(benchmark, samples=1, ks=(1,))
    needs = [need for need in benchmark.needs if not need.optional]
    rows = benchmarks.load(name, write(tmp_path, {need.split: [ROWS[name]] * 2 for need in needs}))
    question = next(iter(benchmark.questions(rows)))
    for text in TEXTS:
        assert benchmark.accepts(text) == (not benchmark.score(question, [text]).invalid), text


def test_every_benchmark_has_a_row_here() -> None:
    assert ROWS.keys() == REGISTRY.keys()


@pytest.mark.parametrize("name", REGISTRY)
def test_files_make_questions(name: str, tmp_path: Path) -> None:
    needs = [need for need in REGISTRY[name].needs if not need.optional]
    for kind in ("jsonl", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "jsonl":
            write(folder, {need.split: [ROWS[name]] * 2 for need in needs})
        else:
            for need in needs:
                pq.write_table(pa.Table.from_pylist([ROWS[name]] * 2), folder / f"{need.split}-00000-of-00001.parquet")
        found = list(REGISTRY[name].questions(benchmarks.load(name, str(folder))))
        assert [one.gold for one in found] == [GOLDS.get(name, "B")] * 2
        assert [one.id for one in found] == [f"{needs[0].split} 0", f"{needs[0].split} 1"]
        assert found[0].digest == found[1].digest
        assert {one.benchmark for one in found} == {name}
        assert found[0].text
        if found[0].choices:
            assert found[0].prompt.count("Answer:") == 1 + 2 * (len(needs) > 1) or name == "mmlu_pro"


@pytest.mark.parametrize("name", REGISTRY)
def test_a_missing_column_is_named(name: str, tmp_path: Path) -> None:
    needs = [need for need in REGISTRY[name].needs if not need.optional]
    for column in needs[0].columns:
        row = {key: value for key, value in ROWS[name].items() if key != column}
        place = write(tmp_path, {need.split: [row] for need in needs})
        with pytest.raises(InputError) as raised:
            benchmarks.load(name, place)
        said = str(raised.value)
        assert f"benchmark {name}" in said
        assert repr(column) in said
        assert raised.value.got == ", ".join(row)


def test_an_unknown_benchmark() -> None:
    with pytest.raises(UsageError, match="did you mean 'hellaswag'"):
        benchmarks.load("helaswag")


def test_a_single_file_is_the_questions(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(ROWS["gsm8k"]) + "\n\n")
    assert len(benchmarks.load("gsm8k", str(file))["test"]) == 1
    file.write_text(json.dumps(ROWS["arc"]) + "\n")
    with pytest.raises(InputError, match="split 'validation'"):
        benchmarks.load("arc", str(file))
    rows = data.load(Arc(num_shots=0), str(file))
    assert [one.gold for one in Arc(num_shots=0).questions(rows)] == ["B"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("", "no rows"), ("{", "line 1"), ("[]\n", "not an object"), ("\n\n", "no rows")],
)
def test_files_that_cannot_be_read(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        benchmarks.load("gsm8k", str(tmp_path))


def test_places_without_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="check the path"):
        benchmarks.load("gsm8k", str(tmp_path / "absent"))
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a valid Parquet"):
        benchmarks.load("gsm8k", str(tmp_path))


def test_configurations_in_folders(tmp_path: Path) -> None:
    """All subsets of MATH are read, in their order; of a data set with others, the benchmark's own."""
    for at, config in enumerate(("precalculus", "algebra")):
        (tmp_path / config).mkdir()
        write(tmp_path / config, {"test": [{"problem": config, "solution": f"\\boxed{{{at}}}"}]})
    assert [row["problem"] for row in benchmarks.load("math", str(tmp_path))["test"]] == ["algebra", "precalculus"]
    other = tmp_path / "arc"
    for config in ("ARC-Easy", "ARC-Challenge"):
        (other / config).mkdir(parents=True)
        write(other / config, {split: [{**ROWS["arc"], "question": config}] for split in ("test", "validation")})
    assert [row["question"] for row in benchmarks.load("arc", str(other))["test"]] == ["ARC-Challenge"]


def test_labels_that_are_numbers() -> None:
    """22 rows of the test split have them; taken as letters they are always wrong."""
    row = {"question": "q", "choices": {"text": list("wxyz"), "label": ["1", "2", "3", "4"]}, "answerKey": "3"}
    (found,) = Arc(num_shots=0).questions({"test": [row]})
    assert (found.gold, found.choices) == ("C", ("A", "B", "C", "D"))
    with pytest.raises(InputError, match="row 0"):
        list(Arc(num_shots=0).questions({"test": [{**row, "answerKey": "A"}]}))


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("gsm8k", "answer", "#### 3.5"),
        ("math", "solution", "no box"),
        ("mmlu", "answer", 2),
        ("mmlu", "answer", -1),
        ("mmlu", "answer", True),
        ("mmlu", "choices", ["a"]),
        ("mmlu_pro", "answer", "C"),
        ("arc", "choices", {"text": ["a", "b"], "label": ["A"]}),
        ("hellaswag", "label", ""),
        ("winogrande", "answer", ""),
        ("boolq", "answer", "yes"),
        ("aime", "answer", "x"),
        ("aime", "answer", "1000"),
        ("drop", "answer", {"number": "", "spans": [], "date": {"day": ""}}),
        ("gsm8k", "question", None),
    ],
)
def test_a_wrong_value_is_named_with_its_row(name: str, column: str, value: object) -> None:
    rows = {need.split: [ROWS[name], ROWS[name]] for need in REGISTRY[name].needs if not need.optional}
    split = REGISTRY[name].needs[0].split
    rows[split] = [ROWS[name], {**ROWS[name], column: value}]
    with pytest.raises(InputError, match=rf"benchmark {name}, {split}, row 1"):
        list(REGISTRY[name].questions(rows))


def test_shots_of_a_subject() -> None:
    one = Mmlu(num_shots=2, special_shots={"art": 0})
    dev = [
        {**ROWS["mmlu"], "subject": subject, "question": f"{subject} {at}"}
        for at in range(3)
        for subject in ("law", "art")
    ]
    law, art = one.questions({"dev": dev, "test": [ROWS["mmlu"], {**ROWS["mmlu"], "subject": "art"}]})
    assert [f"law {at}" in law.prompt for at in range(3)] == [True, True, False]
    assert "art" not in law.prompt
    assert art.prompt == "q\nA. a\nB. b\nAnswer:"


def test_drop_reads_numbers_dates_spans_and_validators() -> None:
    row = {
        **ROWS["drop"],
        "answer": {"number": "3", "date": {"day": "", "month": "", "year": ""}, "spans": []},
        "validated_answers": {
            "number": ["", "3", ""],
            "date": [{"day": "12", "month": "May", "year": "1990"}, {}, {}],
            "spans": [[], [], ["three"]],
        },
    }
    (found,) = Drop().questions({"validation": [row]})
    assert found.gold == [["3"], ["12 May 1990"], ["three"]]
    assert found.prompt == "P.\nQ: Who?\nA:"


def test_shots_of_drop_are_the_users(tmp_path: Path) -> None:
    place = write(tmp_path, {"validation": [ROWS["drop"]], "shots": [{"text": "S0 "}, {"text": "S1"}]})
    (found,) = REGISTRY["drop"].questions(benchmarks.load("drop", place))
    assert found.prompt == "S0\n\nS1\n\nP.\nQ: Who?\nA:"
    (tmp_path / "mine.txt").write_text("X\n")
    (found,) = Drop(shots_file=str(tmp_path / "mine.txt")).questions(benchmarks.load("drop", place))
    assert found.prompt == "X\n\nP.\nQ: Who?\nA:"


def test_a_condition_is_in_the_digest() -> None:
    (cot,) = REGISTRY["gsm8k"].questions({"test": [ROWS["gsm8k"]]})
    (direct,) = REGISTRY["aime"].questions({"test": [{"problem": cot.prompt, "answer": 1}]})
    assert cot.condition == direct.condition == "synth,cot"
    assert cot.digest == direct.digest
    (other,) = REGISTRY["mmlu_pro"].questions({"test": [ROWS["mmlu_pro"]]})
    assert other.condition == "direct"
    assert replace(other, prompt=cot.prompt).digest != cot.digest


def test_a_data_set_of_the_hub_is_read_at_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load(repository: str, /, **said: Any) -> list[dict[str, Any]]:
        asked.append((repository, said["name"], said["split"], said["revision"]))
        return [ROWS["winogrande"]] * 9

    monkeypatch.setattr(datasets, "load_dataset", load)
    rows = benchmarks.load("winogrande", "", "c" * 40)
    assert {split: len(found) for split, found in rows.items()} == {"validation": 9, "train": 5}
    config = "winogrande_debiased"
    assert asked == [("allenai/winogrande", config, split, "c" * 40) for split in ("validation", "train")]
    asked.clear()
    benchmarks.load("winogrande", "me/mine", "d" * 40)
    assert asked[0] == ("me/mine", None, "validation", "d" * 40)
