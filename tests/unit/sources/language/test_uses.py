"""Prompts with a ground truth, and better and worse answers: what clean makes of them, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import inputs, runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats.slices import Slicing
from pairmill.formats.uses import COLUMNS
from pairmill.stages.clean import core
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean

TRUTH = "answer: {path: ground_truth, template: '\\boxed{{answer}}'}"
QUESTION = [{"role": "user", "content": "What is 6 * 7?"}]


def chat(*texts: str) -> list[dict[str, str]]:
    """Messages of a user and an assistant in turn."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def clean(folder: Path, records: list[Any], *lines: str, name: str = "a.jsonl", **options: Any) -> Manifest:
    """The stage over a file of records with these lines in its description."""
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(records), folder / name)
    else:
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "mine.yaml").write_text("\n".join(["name: mine", f"files: {name}", *lines]) + "\n")
    given = {"workers": 1, "max_reject_fraction": 1.0} | options
    config = CleanConfig(sources=[str(folder / "mine.yaml")], root=str(folder / "root"), **given)
    return runner.run(Clean(), config).manifest


def result(folder: Path, path: str) -> list[dict[str, Any]]:
    """The rows of a file of the only run."""
    (file,) = (folder / "root" / "clean").glob(f"*/{path}")
    if path.endswith(".parquet"):
        return pq.read_table(file).to_pylist()
    return [json.loads(line) for line in file.read_text().splitlines()]


def answers(folder: Path) -> list[str]:
    return [row["response"] for row in result(folder, "data/mine.jsonl")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_the_answer_is_a_text_around_the_ground_truth(tmp_path: Path, name: str) -> None:
    records = [{"messages": QUESTION, "ground_truth": str(truth)} for truth in (42, "x{answer}", "{", " ")]
    manifest = clean(tmp_path, records, "condition: direct", "turns: messages", TRUTH, name=name)
    rows = result(tmp_path, "data/mine.jsonl")
    assert [row["response"] for row in rows] == ["\\boxed{42}", "\\boxed{x{answer}}", "\\boxed{{}"]
    assert {row["instruction"] for row in rows} == {"What is 6 * 7?"}
    assert manifest.ledger.dropped == {"empty_answer": 1}
    assert manifest.data["sources"]["mine"]["answers"] == {"found": 4, "rows": 3, "skipped": {"empty_answer": 1}}


def test_the_answer_of_other_shapes(tmp_path: Path) -> None:
    records = [
        {"talk": {"prompt": [{"from": "human", "value": "1 + 1?"}]}, "reward_model": {"ground_truth": 2}},
        {"talk": {"prompt": json.dumps(QUESTION)}, "reward_model": {"ground_truth": 42.5}},
        {"talk": {"prompt": chat("a", "b", "c")}, "reward_model": {"ground_truth": True}},
        {"talk": {"prompt": chat("a", "b")}, "reward_model": {"ground_truth": 1}},
        {"talk": {"prompt": QUESTION}, "reward_model": {"ground_truth": [1]}},
        {"talk": {"prompt": QUESTION}, "reward_model": {}},
        {"talk": {"prompt": QUESTION}, "reward_model": None},
        {"talk": {"prompt": []}, "reward_model": {"ground_truth": 1}},
        {"talk": {"prompt": "text"}, "reward_model": {"ground_truth": 1}},
    ]
    lines = ["condition: direct", "turns: talk.prompt", "answer: {path: reward_model.ground_truth}"]
    ledger = clean(tmp_path, records, *lines).ledger
    assert answers(tmp_path) == ["2", "42.5", "b", "true", "b"]
    assert ledger.notes == {"answer_not_added": 1}
    assert ledger.dropped == {
        "reward_model.ground_truth_is_no_text": 1,
        "missing_reward_model.ground_truth": 1,
        "null_reward_model.ground_truth": 1,
        "no_messages": 1,
        "talk.prompt_is_no_list": 1,
    }


def test_a_template_renders_the_answer_too(tmp_path: Path) -> None:
    template = "template: \"{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}\""
    records = [{"messages": QUESTION, "ground_truth": "42"}]
    clean(tmp_path, records, "condition: direct", "turns: messages", TRUTH, template)
    assert answers(tmp_path) == ["<assistant>\\boxed{42}"]


VERL = {
    "data_source": "gsm8k",
    "prompt": QUESTION,
    "ability": "math",
    "reward_model": {"style": "model", "ground_truth": "42"},
    "extra_info": {"index": 7, "split": "train", "level": 3},
}


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_prompts_have_the_columns_of_verl(tmp_path: Path, name: str) -> None:
    manifest = clean(tmp_path, [VERL], "use: prompts", "turns: prompt", name=name)
    (row,) = result(tmp_path, "prompts/mine.parquet")
    assert list(row) == list(COLUMNS["prompts"])
    more = {"source": "mine", "prompt_characters": 14, "more": '{"level": 3}'}
    wanted = VERL | {"extra_info": {"index": 7, "split": "train"} | more}
    assert {key: row[key] for key in wanted} == wanted
    assert (row["condition"], row["instruction"], row["response"]) == ("", "What is 6 * 7?", "42")
    assert manifest.data["beside"] == {"prompts/mine.parquet": 1}
    assert manifest.data["outputs"] == {}
    assert (manifest.ledger.rows_kept, manifest.ledger.rows_out, manifest.ledger.notes) == (1, 0, {"in_prompts": 1})


def test_prompts_of_rlvr_and_of_questions(tmp_path: Path) -> None:
    records = [
        {"messages": [{"role": "system", "content": "Brief."}, *QUESTION], "ground_truth": "42", "dataset": "gsm"},
        {"messages": QUESTION, "ground_truth": ["a", 1], "constraint": "two words"},
        {"messages": chat("a", "b"), "ground_truth": "1"},
        {"messages": [], "ground_truth": "1"},
        {"messages": QUESTION},
        {
            "messages": [*chat("a"), {"role": "assistant", "tool_calls": [{"name": "f"}]}, *QUESTION],
            "ground_truth": "1",
        },
        {"messages": [{"role": "user", "content": "\ud800"}], "ground_truth": "1"},
        {"messages": [{"role": "narrator", "content": "x"}], "ground_truth": "1"},
    ]
    ledger = clean(tmp_path, records, "use: prompts", "turns: messages").ledger
    first, second = result(tmp_path, "prompts/mine.parquet")
    assert (first["data_source"], second["data_source"]) == ("gsm", "mine")
    assert first["instruction"] == "System:\nBrief.\n\nUser:\nWhat is 6 * 7?"
    assert second["reward_model"] == {"style": "rule", "ground_truth": '["a", 1]'}
    assert json.loads(second["extra_info"]["more"]) == {"constraint": "two words"}
    assert ledger.dropped == {
        "prompt_ends_with_an_answer": 1,
        "no_messages": 1,
        "missing_ground_truth": 1,
        "prompt_with_calls": 1,
        "unpaired_surrogate": 1,
        "unknown_role": 1,
    }
    (tmp_path / "flat").mkdir()
    flat = ["use: prompts", 'instruction: "Solve: {question}"', "answer: {path: answer}", "condition: cot"]
    clean(tmp_path / "flat", [{"question": "1 + 1", "answer": 2}], *flat)
    (row,) = result(tmp_path / "flat", "prompts/mine.parquet")
    assert row["prompt"] == [{"role": "user", "content": "Solve: 1 + 1"}]
    assert (row["condition"], row["response"]) == ("cot", "2")


def only_pair(folder: Path, record: dict[str, Any], *lines: str) -> dict[str, Any]:
    """The only pair of a record."""
    clean(folder, [record], "use: pairs", *lines)
    (row,) = result(folder, "pairs/mine.parquet")
    return row


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


@pytest.mark.parametrize(
    ("record", "prompt", "chosen", "rejected"),
    [
        ({"prompt": "q", "chosen": "good", "rejected": "bad"}, chat("q"), "good", "bad"),
        ({"question": "q", "chosen": "good", "rejected": "bad"}, chat("q"), "good", "bad"),
        ({"instruction": chat("a", "b", "c"), "chosen": "good", "rejected": "bad"}, chat("a", "b", "c"), "good", "bad"),
        ({"prompt": "q", "chosen": chat("q", "good"), "rejected": chat("q", "bad")}, chat("q"), "good", "bad"),
        (
            {"chosen": chat("a", "b", "c", "good"), "rejected": chat("a", "b", "c", "bad")},
            chat("a", "b", "c"),
            "good",
            "bad",
        ),
        ({"chosen": json.dumps(chat("q", "good")), "rejected": json.dumps(chat("q", "bad"))}, chat("q"), "good", "bad"),
        ({"prompt": "q", "chosen": chat("", "good")[1:], "rejected": chat("", "bad")[1:]}, chat("q"), "good", "bad"),
        ({"prompt": "q", "chosen": chat("", "good")[1], "rejected": chat("", "bad")[1]}, chat("q"), "good", "bad"),
        (
            {"conversation_a": chat("q", "good"), "conversation_b": chat("q", "bad"), "vote": "a_better"},
            chat("q"),
            "good",
            "bad",
        ),
        (
            {"conversation_a": chat("q", "bad"), "conversation_b": chat("q", "good"), "winner": "model_b"},
            chat("q"),
            "good",
            "bad",
        ),
    ],
)
def test_pairs_of_each_shape(
    tmp_path: Path, record: dict[str, Any], prompt: list[dict[str, str]], chosen: str, rejected: str
) -> None:
    row = only_pair(tmp_path, record)
    assert list(row) == list(COLUMNS["pairs"])
    assert texts(row["prompt_messages"]) == texts(prompt)
    assert texts(row["chosen_completion_messages"]) == [("assistant", chosen)]
    assert texts(row["rejected_completion_messages"]) == [("assistant", rejected)]
    assert (row["source"], row["response"]) == ("mine", chosen)
    assert row["tools"] is None
    # Its own result is a source again, and says the same.
    (tmp_path / "again").mkdir()
    again = only_pair(tmp_path / "again", row)
    assert {**again, "metadata": row["metadata"]} == row


def test_pairs_have_nine_fields_of_what_there_is(tmp_path: Path) -> None:
    more = {"prompt_id": 12, "category": "math", "language": "da", "system": "Brief.", "score_chosen": 9.5}
    row = only_pair(tmp_path, {"prompt": "q", "chosen": "good", "rejected": "bad", **more})
    assert (row["id"], row["task_family"], row["language"]) == ("12", "math", "da")
    assert json.loads(row["metadata"]) == {"score_chosen": 9.5}
    assert texts(row["prompt_messages"]) == [("system", "Brief."), ("user", "q")]


def test_calls_of_tools_are_answers_too(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]
    record = {
        "prompt": "q",
        "tools": tools,
        "tool_call_accepted": {"name": "f", "arguments": {"x": 1}},
        "tool_call_rejected": '[{"name": "f", "arguments": "{\\"x\\": 2}"}]',
        "tool_result_accepted": {"y": 1},
    }
    row = only_pair(tmp_path, record)
    assert json.loads(row["tools"])[0]["function"]["name"] == "f"
    call, told = row["chosen_completion_messages"]
    assert json.loads(call["tool_calls"])[0]["function"] == {"name": "f", "arguments": {"x": 1}}
    assert (told["role"], told["content"]) == ("tool", '{"y": 1}')
    (other,) = row["rejected_completion_messages"]
    assert json.loads(other["tool_calls"])[0]["function"] == {"name": "f", "arguments": {"x": 2}}


UNFIT = {
    "vote_tie": {"conversation_a": chat("q", "a"), "conversation_b": chat("q", "b"), "vote": "tie"},
    "vote_both_bad": {"conversation_a": chat("q", "a"), "conversation_b": chat("q", "b"), "vote": "tie (bothbad)"},
    "vote_both_good": {"conversation_a": chat("q", "a"), "conversation_b": chat("q", "b"), "vote": "both_good"},
    "vote_unknown": {"conversation_a": chat("q", "a"), "conversation_b": chat("q", "b"), "vote": 3},
    "no_rejected": {"prompt": "q", "chosen": "a"},
    "no_chosen": {"prompt": "q", "rejected": "a"},
    "no_prompt": {"chosen": "a", "rejected": "b"},
    "prompts_differ": {"chosen": chat("q", "a"), "rejected": chat("r", "a")},
    "chosen_is_rejected": {"prompt": "q", "chosen": "a", "rejected": " a"},
    "one_continues_the_other": {"chosen": chat("q", "a", "r", "b"), "rejected": chat("q", "a", "r")},
    "ends_with_a_question": {"chosen": chat("q", "a", "r"), "rejected": chat("q", "b")},
    "empty_answer": {"prompt": "q", "chosen": " ", "rejected": "b"},
    "empty_question": {"chosen": chat(" ", "a"), "rejected": chat(" ", "b")},
    "chosen_is_no_list": {"prompt": "q", "chosen": 4, "rejected": "b"},
    "unpaired_surrogate": {"prompt": "q", "chosen": "a", "rejected": "\ud800"},
    "message_is_no_object": {"prompt": "q", "chosen": [4], "rejected": "b"},
    "call_unparsed": {"prompt": "q", "tool_call_accepted": "((", "tool_call_rejected": "b"},
    "tools_unparsed": {"prompt": "q", "chosen": "a", "rejected": "b", "tools": 4},
    "not_an_object": [1],
}


def test_records_that_are_no_pair_are_dropped_with_their_reason(tmp_path: Path) -> None:
    records = [record for record in UNFIT.values() for _ in range(3)] + [
        {"prompt": "q", "chosen": "a", "rejected": "b"}
    ]
    manifest = clean(tmp_path, records, "use: pairs")
    assert manifest.ledger.dropped == dict.fromkeys(UNFIT, 3)
    assert len(result(tmp_path, "pairs/mine.parquet")) == 1


def hostile(depth: int = 2) -> Iterator[Any]:
    """Values of every kind."""
    flat: list[Any] = [None, True, 0, -1, 1 << 70, 1e400, "", " ", "x", "\ud800", "[{", "[{}]", [], {}, [[]], [None]]
    yield from flat
    if depth:
        for value in [*flat[:6], "�", "x"]:
            yield [{"role": "user", "content": value}, {"role": "assistant", "content": value}]
            yield [{"role": value, "content": value, "tool_calls": value, "name": value}]
            yield {
                "index": value,
                "split": value,
                "style": value,
                "ground_truth": value,
                "role": "user",
                "content": "x",
            }
            yield [{"role": "assistant", "tool_calls": value}]


@pytest.mark.parametrize(
    "lines",
    [
        ("condition: direct", "turns: prompt", TRUTH),
        ("use: prompts", "turns: prompt"),
        ("use: pairs",),
        ("condition: direct", "pairs: chosen_as_answer"),
    ],
)
def test_hostile_values_are_dropped(tmp_path: Path, lines: tuple[str, ...]) -> None:
    good = {"prompt": QUESTION, "ground_truth": "1", "chosen": "a", "rejected": "b"}
    keys = ["prompt", "ground_truth", "chosen", "rejected", "reward_model", "extra_info", "tools", "conversation_a"]
    keys += ["conversation_b", "vote", "id", "metadata", "tool_call_accepted", "tool_result_accepted", "system"]
    records = [good | {key: value} for key in keys for value in hostile()] + [good]
    ledger = clean(tmp_path, records, *lines).ledger
    assert ledger.rows_in == len(records) == ledger.rows_kept + sum(ledger.dropped.values())
    assert ledger.rows_kept > 100


def test_chosen_answers_are_rows(tmp_path: Path) -> None:
    both = {"conversation_a": chat("q", "a", "r", "b"), "conversation_b": chat("q", "c", "r", "d")}
    records = [
        {"prompt": "q", "chosen": "one", "rejected": "x"},
        {"chosen": chat("a", "b", "c", "two"), "rejected": chat("a", "x")},
        {**both, "vote": "a"},
        {**both, "vote": "both_good"},
        {**both, "vote": "both_bad"},
        {"prompt": "q", "chosen": "alone"},
    ]
    manifest = clean(tmp_path, records, "condition: direct", "pairs: chosen_as_answer")
    assert answers(tmp_path) == ["one", "two", "b", "b", "d", "alone"]
    rows = result(tmp_path, "data/mine.jsonl")
    assert rows[1]["instruction"] == "User:\na\n\nAssistant:\nb\n\nUser:\nc"
    assert manifest.ledger.dropped == {"vote_both_bad": 1}
    assert manifest.ledger.rows_out == 6
    assert manifest.data["sources"]["mine"]["answers"]["rows"] == 6


@pytest.mark.parametrize("use", ["prompts", "pairs"])
def test_large_sources_are_cut_and_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    good = {"prompt": QUESTION, "ground_truth": "1", "chosen": "a", "rejected": "b"}
    records = [{**good, "id": str(at), "extra_info": {"index": at}} for at in range(500)]
    lines = [f"use: {use}", *(["turns: prompt"] if use == "prompts" else [])]
    clean(tmp_path, records, *lines)
    whole = result(tmp_path, f"{use}/mine.parquet")
    monkeypatch.setattr(core, "SLICING", Slicing(size=2000, open_from=2000))
    (tmp_path / "cut").mkdir()
    manifest = clean(tmp_path / "cut", records, *lines)
    assert result(tmp_path / "cut", f"{use}/mine.parquet") == whole
    assert len(whole) == 500
    assert manifest.ledger.rows_out == 0


def test_prompts_and_pairs_are_not_rows_but_can_be_read_by_name(tmp_path: Path) -> None:
    clean(tmp_path, [VERL, VERL], "use: prompts", "turns: prompt")
    (folder,) = (path.parent for path in tmp_path.glob("root/clean/*/prompts"))
    with pytest.raises(InputError, match="file found"):
        inputs.discover([str(folder)], ["parquet", "jsonl"], "rows")
    (file,) = inputs.discover([str(folder / "prompts")], ["parquet", "jsonl"], "rows").files
    assert (file.task, file.kind) == ("mine.parquet", "parquet")


def test_the_library_of_the_hub_reads_them(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    clean(tmp_path, [VERL], "use: prompts", "turns: prompt")
    (tmp_path / "two").mkdir()
    clean(tmp_path / "two", [{"prompt": "q", "chosen": "good", "rejected": "bad"}], "use: pairs")
    (prompts,) = tmp_path.glob("root/clean/*/prompts/mine.parquet")
    (pairs,) = tmp_path.glob("two/root/clean/*/pairs/mine.parquet")
    read = datasets.load_dataset("parquet", data_files=str(prompts), cache_dir=str(tmp_path / "cache"))["train"][0]
    assert (read["prompt"], read["reward_model"]["ground_truth"]) == (QUESTION, "42")
    names = {
        "prompt_messages": "prompt",
        "chosen_completion_messages": "chosen",
        "rejected_completion_messages": "rejected",
    }
    data = datasets.load_dataset("parquet", data_files=str(pairs), cache_dir=str(tmp_path / "cache"))["train"]
    row = data.rename_columns(names)[0]
    assert [texts(row[name]) for name in ("prompt", "chosen", "rejected")] == [
        [("user", "q")],
        [("assistant", "good")],
        [("assistant", "bad")],
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize(
    ("record", "lines"),
    [
        ({"messages": QUESTION, "ground_truth": "42"}, ["turns: messages"]),
        ({"prompt": QUESTION, "reward_model": {"ground_truth": "42"}}, ["turns: prompt"]),
        ({"messages": QUESTION, "chosen": "a", "rejected": "b"}, ["turns: messages"]),
        ({"q": "x", "a": "", "conversation_a": QUESTION}, ["instruction: q", "response: a"]),
        ({"prompt": "x", "chosen": "a", "rejected": "b"}, ["instruction: prompt", "response: answer"]),
    ],
)
def test_a_source_that_gives_no_row_says_what_to_write(
    tmp_path: Path, record: dict[str, Any], lines: list[str], name: str
) -> None:
    with pytest.raises(PairmillError) as caught:
        clean(tmp_path, [record] * 3, "condition: direct", *lines, name=name)
    assert caught.value.exit_code == 3
    said = str(caught.value)
    if name == "a.jsonl" or "answer" not in lines[-1]:  # a Parquet file lacks the column, so it is not read at all
        assert f"write in {tmp_path / 'mine.yaml'} one of: {TRUTH}; use: prompts; use: pairs (or " in said


def test_a_source_that_says_it_already_is_not_told_again(tmp_path: Path) -> None:
    manifest = clean(tmp_path, [{"chosen": "a", "rejected": "b"}], "condition: direct", "pairs: chosen_as_answer")
    assert manifest.ledger.dropped == {"no_prompt": 1}


def test_a_source_that_gives_a_row_or_is_filtered_says_nothing(tmp_path: Path) -> None:
    records = [{"messages": QUESTION, "ground_truth": "1"}, {"messages": chat("a", "b"), "ground_truth": "1"}]
    assert clean(tmp_path, records, "condition: direct", "turns: messages").ledger.rows_kept == 1
    (tmp_path / "two").mkdir()
    lines = ["condition: direct", "turns: messages", "where: ground_truth == '2'"]
    assert clean(tmp_path / "two", records, *lines).ledger.dropped == {"filtered_by_where": 2}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["use: rows"], "unknown value"),
        (["use: prompts"], "nothing says what the prompt is"),
        (["use: pairs", "pairs: chosen_as_answer"], "use: is there too"),
        (["use: pairs", "template: '{{ messages }}'"], "use: pairs makes no rows"),
        (["use: prompts", "turns: m", "attributes: {a: b}"], "use: prompts makes no rows"),
        (["use: prompts", "turns: m", TRUTH], "a prompt keeps its ground truth"),
        (
            ["condition: direct", "instruction: q", "response: r", TRUTH],
            "needs turns: and records without an answer.*'{ground_truth}'",
        ),
        (["condition: direct", "turns: m", "answer: ground_truth"], "not a mapping"),
        (
            ["condition: direct", "turns: m", "answer: {path: x, template: 'no place'}"],
            r"the template has no \{answer\}",
        ),
        (["condition: direct", "turns: m", "answer: {template: '{answer}'}"], "not a valid path"),
        (["condition: direct", "turns: m", "answer: {path: [a]}"], "not an answer"),
        (["condition: direct", "turns: m", "answer: {pat: a}"], "not an answer"),
        (["condition: direct", "pairs: rejected"], "unknown value"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        clean(tmp_path, [{}], *lines)
