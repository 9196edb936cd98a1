"""The stage with a model that a server runs: cached by step, resumed, each question counted, bad input refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.runner import Result
from pairmill.errors import InputError, PairmillError, StageFailure, UsageError
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from tests.support.servers.completions import Completions, Reply

QUESTIONS = 150


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "60")  # a busy machine may cut a connection
    monkeypatch.setattr(server, "_given_up", set())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two plus each number; three of four are answered rightly."""
    rows = [{"question": f"What is {one} plus 2?", "answer": f"So.\n#### {one + 2}"} for one in range(QUESTIONS)]
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answer(body: dict[str, Any]) -> str:
    number = int(body["prompt"].split()[-3])
    if number % 4 == 3:
        return "I do not know." if number % 8 == 3 else r"\boxed{0}"
    return rf"It is \boxed{{{number + 2}}}"


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Run:
    def made(url: str, *settings: str, **options: Any) -> Result:
        given = {"benchmarks": ["gsm8k"], "data": [f"gsm8k={data}"], "root": str(tmp_path / "root"), **options}
        return runner.run(Evaluate(), EvaluateConfig(model=url, set=list(settings), **given))

    return made


def rows_of(result: Result) -> list[dict[str, Any]]:
    text = (Path(result.uri.removeprefix("file://")) / "questions/gsm8k.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_each_question_has_a_row_and_figures_follow_from_the_rows(run: Run) -> None:
    with Completions(answer) as completions:
        result = run(completions.url)
        assert len(completions.asked) == QUESTIONS
    rows = rows_of(result)
    assert len({row["prompt_digest"] for row in rows}) == len(rows) == QUESTIONS
    assert rows[1]["output"] == r"It is \boxed{3}"
    assert (rows[1]["extracted"], rows[1]["correct"], rows[1]["invalid"]) == ("3", 1.0, False)
    assert rows[3]["invalid"]
    figures = result.manifest.data["benchmarks"]["gsm8k"]["all"]
    right = sum(row["correct"] for row in rows)
    assert right == sum(one % 4 != 3 for one in range(QUESTIONS))
    assert figures["n"] == QUESTIONS
    assert figures["figure"] == right / QUESTIONS
    assert figures["low"] < figures["figure"] < figures["high"]
    assert figures["invalid"] == sum(row["invalid"] for row in rows) / QUESTIONS
    ledger = result.manifest.ledger
    assert (ledger.rows_in, ledger.rows_out) == (QUESTIONS, QUESTIONS)
    assert ledger.notes["invalid"] == sum(row["invalid"] for row in rows)
    folder = Path(result.uri.removeprefix("file://"))
    assert json.loads((folder / "results.json").read_text())["benchmarks"]["gsm8k"]["all"] == figures
    assert "gsm8k" in (folder / "report.md").read_text()
    assert Evaluate().metrics(result.manifest)["gsm8k"] == round(figures["figure"], 6)


def test_a_server_that_dies_half_way_loses_one_piece(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "0.3")
    with Completions(answer, dies_after=70) as completions:
        with pytest.raises(StageFailure) as failure:
            run(completions.url, "server.model=tiny", "server.at_once=4")
        assert "run the same command" in str(failure.value)
        assert failure.value.exit_code == 4
        port = completions.port
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "60")
    with Completions(answer, port=port) as completions:
        again = run(completions.url, "server.model=tiny", "server.at_once=4")
        assert len(completions.asked) == QUESTIONS - 64
    # Nothing is asked any more, so no server is needed.
    assert run(completions.url, "server.model=tiny").reused
    with Completions(answer) as completions:
        whole = run(completions.url, "server.model=tiny", root=f"{again.uri}/elsewhere")
    assert rows_of(whole) == rows_of(again)
    assert [file.digest for file in whole.manifest.files] == [file.digest for file in again.manifest.files]


def test_answers_that_fail_for_a_moment_are_asked_for_again(run: Run) -> None:
    with Completions(answer, failing=(503, 429, 500)) as completions:
        assert run(completions.url).manifest.ledger.rows_out == QUESTIONS
        assert len(completions.asked) == QUESTIONS


def test_another_way_to_score_asks_no_model(run: Run) -> None:
    with Completions(answer) as completions:
        first = run(completions.url, "server.model=tiny")
    second = run(completions.url, "server.model=tiny", "profile=hrm_text")
    assert second.uri != first.uri
    assert not second.reused
    assert second.manifest.data["profile"] == "hrm_text"


def test_a_limit_and_a_template_and_generation_settings(run: Run) -> None:
    said = ("limit=70", "prompt_template='Q: {prompt}'", "generation.max_tokens=9", "benchmarks.gsm8k.max_tokens=5")
    with Completions(answer) as completions:
        result = run(completions.url, *said)
        assert {body["max_tokens"] for body in completions.asked} == {5}
        assert all(body["prompt"].startswith("Q: What is ") for body in completions.asked)
        assert len(completions.asked) == 70
        run(completions.url, *said, "limit=80")
        assert len(completions.asked) == 70 + 16  # the first whole piece is used again
    assert result.manifest.ledger.dropped == {"beyond_limit": QUESTIONS - 70}


def test_the_key_is_sent_and_nowhere_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", "a-secret-0815")
    with Completions(answer, key="a-secret-0815") as completions:
        result = run(completions.url, "server.key_variable=MY_KEY")
        with pytest.raises(InputError, match=r"the variable|the environment variable"):
            run(completions.url)
    folder = Path(result.uri.removeprefix("file://")).parent
    assert not [path for path in folder.rglob("*") if path.is_file() and b"a-secret" in path.read_bytes()]
    assert "a-secret" not in "".join(capfd.readouterr())


def test_questions_in_the_training_rows_are_scored_apart(run: Run, tmp_path: Path) -> None:
    question = "What is 5 plus 2?"
    pairs = [(question, "It is 7."), ("Who wrote the first book about pears?", "Nobody knows.")]
    rows = [{"condition": "direct", "instruction": one, "response": other} for one, other in pairs]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Completions(answer) as completions:
        result = run(completions.url, training=[str(tmp_path / "rows.jsonl")])
    seen = [row["id"] for row in rows_of(result) if row["seen"]]
    assert seen == ["test 5"]
    found = result.manifest.data["benchmarks"]["gsm8k"]
    assert (found["seen"], found["all"]["n"], found["unseen"]["n"]) == (1, QUESTIONS, QUESTIONS - 1)
    assert result.manifest.ledger.notes["seen"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"benchmarks": ["gsm9k"], "data": []}, r"unknown benchmark.*did you mean 'gsm8k'"),
        ({"benchmarks": ["gsm8k", "gsm8k"]}, "occurs twice"),
        ({"data": ["gsm8k=/nowhere"]}, r"no data of the benchmark gsm8k"),
        ({"data": ["/nowhere"]}, r"lacks a name"),
        ({"set": ["generation.max_token=3"]}, "unknown key 'max_token'"),
        ({"set": ["prompt_template=x"]}, r"got 'x'; expected a text with {prompt}"),
        ({"set": ["benchmarks.gsm9k.seed=3"]}, r"unknown benchmark.*gsm9k"),
        ({"benchmarks": [], "data": []}, r"benchmarks, held_out is required"),
        ({"run_only": ["math"]}, "run_only.1.: unknown value; got 'math'"),
        ({"model": "/nowhere"}, "not a model"),
        ({"model": "http://user:word@127.0.0.1:1/v1"}, r"a name, a password or a query"),
        ({"held_out": "/nowhere"}, "held-out loss needs a run of train"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, data: Path, options: dict[str, Any], message: str) -> None:
    given = {"model": "http://127.0.0.1:1/v1", "benchmarks": ["gsm8k"], "data": [f"gsm8k={data}"], **options}
    given["set"] = ["server.model=x", *given.get("set", [])] if "http" in given["model"] else given.get("set", [])
    with pytest.raises(PairmillError, match=message):
        runner.run(Evaluate(), EvaluateConfig(root=str(tmp_path), **given))


def test_a_server_without_the_model_is_refused_by_name(run: Run) -> None:
    with Completions(answer, models=("tiny", "large")) as completions:
        with pytest.raises(InputError, match=r"several models.*tiny, large"):
            run(completions.url)
        with pytest.raises(StageFailure, match=r"no such model.*tinny.*did you mean 'tiny'"):
            run(completions.url, "server.model=tinny")


def test_a_benchmark_without_its_column_is_refused(run: Run, data: Path) -> None:
    data.write_text('{"query": "a", "answer": "b"}\n')
    with Completions(answer) as completions, pytest.raises((StageFailure, UsageError), match=r"gsm8k.*query.*question"):
        run(completions.url)


def test_a_question_that_is_not_text_is_refused(run: Run, data: Path) -> None:
    rows = [{"question": question, "answer": "#### 1"} for question in ("What?", "What \ud800?")]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Completions(answer) as completions, pytest.raises(StageFailure, match=r"surrogate.*got question 2") as failure:
        run(completions.url)
    assert failure.value.exit_code == 3


def test_examples_for_drop_are_the_users_and_count(run: Run, tmp_path: Path) -> None:
    row = {"passage": "P.", "question": "Who?", "answer": {"number": "3", "date": {}, "spans": []}}
    (tmp_path / "drop.jsonl").write_text(json.dumps(row) + "\n")
    given = {"benchmarks": ["drop"], "data": [f"drop={tmp_path / 'drop.jsonl'}"]}
    shots = tmp_path / "shots.txt"
    keys = []
    for text in ("A passage.\nQ: How many?\nA: 2\n", "Another.\n"):
        shots.write_text(text)
        with Completions(lambda body: " 3") as completions:
            result = run(completions.url, "server.model=tiny", f"drop_shots={shots}", **given)
        (asked,) = completions.asked
        assert asked["prompt"] == f"{text}\nP.\nQ: Who?\nA:"
        assert result.manifest.data["benchmarks"]["drop"]["all"]["also"]["f1"] == 1
        assert str(tmp_path) not in json.dumps(result.manifest.data)
        keys.append(result.uri)
    assert keys[0] != keys[1]
    with pytest.raises(UsageError, match=r"drop_shots.*benchmarks=drop"):
        run("http://127.0.0.1:1/v1", "server.model=x", f"drop_shots={shots}")


def test_what_failed_first_is_said(run: Run) -> None:
    def answered(body: dict[str, Any]) -> str | Reply:
        return Reply({"choices": []}) if "What is 9 plus" in body["prompt"] else "1"

    with (
        Completions(answered) as completions,
        pytest.raises(StageFailure, match=r"not an answer of the completions protocol"),
    ):
        run(completions.url, "server.model=tiny", "server.at_once=8", workers=1)


def test_several_benchmarks_have_groups_shots_and_votes(run: Run, tmp_path: Path) -> None:
    subjects = [("physics", 1), ("physics", 2), ("law", 0)]
    for split, count in (("test", 4), ("dev", 6)):
        rows = [
            {"subject": subject, "question": f"{split} {at}?", "choices": ["p", "q", "r", "s"], "answer": right}
            for subject, right in subjects
            for at in range(count)
        ]
        (tmp_path / "mmlu").mkdir(exist_ok=True)
        (tmp_path / f"mmlu/{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "aime.jsonl").write_text('{"problem": "What is 1 plus 2?", "answer": "3"}\n')
    data = [f"mmlu={tmp_path / 'mmlu'}", f"aime={tmp_path / 'aime.jsonl'}"]
    told = ["B", "no"]

    def answered(body: dict[str, Any]) -> str:
        if body["max_tokens"] == 1:
            assert body["prompt"].count("Answer: ") == 5
            return told[body["prompt"].endswith("test 3?\nA. p\nB. q\nC. r\nD. s\nAnswer:")]
        assert body["temperature"] == 0.6
        return answer(body)

    with Completions(answered) as completions:
        result = run(completions.url, "benchmarks.aime.samples=7", benchmarks=["mmlu", "aime"], data=data)
        assert len(completions.asked) == 12 + 7
        assert len({body["seed"] for body in completions.asked if body["max_tokens"] > 1}) == 7
    table = result.manifest.data["benchmarks"]
    mmlu = table["mmlu"]["all"]
    assert mmlu["n"] == 12
    assert mmlu["groups"]["law"]["figure"] == 0
    assert mmlu["groups"]["physics"]["figure"] == 3 / 8
    assert mmlu["macro"] == 3 / 16
    assert mmlu["invalid"] == 1 / 4
    assert mmlu["also"]["strict"] == mmlu["figure"] == 3 / 12
    assert mmlu["also"]["with_credit"] == 3 / 12 + 1 / 4 / 4
    assert table["aime"]["all"]["figure"] == 1
    report = (Path(result.uri.removeprefix("file://")) / "report.md").read_text()
    for said in ("| mmlu | 12 | 25.0% |", "with credit", "Macro", "physics", "maj pass@10"):
        assert said in report
    reference = run(
        completions.url,
        "benchmarks.aime.samples=7",
        "profile=hrm_text",
        "server.model=tiny",
        benchmarks=["mmlu"],
        data=data[:1],
    )
    found = reference.manifest.data["benchmarks"]["mmlu"]
    assert found["all"]["figure"] == mmlu["also"]["with_credit"]
    assert found["reference"]["n"] == 2  # subjects


def test_without_its_judge_mathematics_is_refused_before_anything_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with pytest.raises(UsageError, match=r"needs math_verify, not installed here.*evaluate"):
        run("http://127.0.0.1:1/v1", "server.model=x", benchmarks=["math"], data=[])
    assert not (tmp_path / "root").exists()


SENTENCE = "{} is the answer, so the answer is {}."


@pytest.mark.parametrize(
    ("settings", "prompt", "until"),
    [
        ((), "{}", ["Question:", "</s>", "<|im_end|>"]),
        (
            ("prompt_template='Question: {prompt}\nAnswer:'",),
            "Question: {}\nAnswer:",
            ["Question:", "</s>", "<|im_end|>"],
        ),
        (("prompt_template='Solve.\n\nQ: {prompt}\nA:'",), "Q: {}\nA:", ["Question:", "</s>", "<|im_end|>", "\nQ:"]),
        (("benchmarks.gsm8k.stop=[Stop]",), "{}", ["Stop"]),
    ],
)
def test_answers_in_sentences_are_strict_and_lenient_side_by_side(
    run: Run, settings: tuple[str, ...], prompt: str, until: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def sentence(body: dict[str, Any]) -> str:
        number = int(re.findall(r"is (\d+) plus", body["prompt"])[0])
        said = SENTENCE.format(number, number + 2) if number % 4 else "I do not know."
        return said + f"\n{until[-1]} {prompt.format('What is 1 plus 1?')} 2"  # it goes on with another question

    with Completions(sentence) as completions:
        result = run(completions.url, "limit=12", *settings)
        assert all(body["stop"] == until for body in completions.asked)
    figures = result.manifest.data["benchmarks"]["gsm8k"]["all"]
    assert (figures["figure"], figures["also"]["strict"], figures["also"]["lenient"]) == (0, 0, 0.75)
    metrics = Evaluate().metrics(result.manifest)
    assert (metrics["gsm8k_strict"], metrics["gsm8k_lenient"]) == (0, 0.75)
    folder = Path(result.uri)
    report = (folder / "report.md").read_text()
    assert "gsm8k 0.0% strict, 75.0% lenient, of 12." in report
    assert "| Benchmark | Questions | Figure | Strict | Lenient | 95% interval |" in report
    (warning,) = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert warning == "gsm8k: 100.0% of the answers cannot be read (12 wrong form); read leniently, 75.0% are right."
    assert warning in report
    rows = rows_of(result)
    assert rows[1]["output"].strip() == SENTENCE.format(1, 3)
