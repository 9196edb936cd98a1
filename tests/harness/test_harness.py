"""Tasks of lm-evaluation-harness through evaluate: asked of our models, scored by the harness, a row a question."""

import json
import math
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from pairmill.engine import runner
from pairmill.engine.runner import Result
from pairmill.errors import StageFailure
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from pairmill.stages.evaluate.models.model import Prompt
from pairmill.stages.evaluate.models.opened import open_model
from pairmill.stages.train.export.command import ExportConfig, export
from tests.support.nets.trained_runs import finished, tiny
from tests.support.servers.completions import Completions

SUMS = """
task: sums
output_type: generate_until
doc_to_text: "Q: {{question}}\\nA:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], do_sample: false, max_gen_toks: 7}
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "is (\\\\d+)"}, {function: take_first}]
  - name: lenient
    filter: [{function: regex, regex_pattern: "(\\\\d+)"}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
PICK = """
task: pick
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["{{answer}}", "nobody knows", "x"]
doc_to_target: 0
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"question": f"What is {one} plus 2?", "answer": str(one + 2)} for one in range(70)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder / 'data.jsonl'}}}}}\ntest_split: test\n"
    for name, text in (("sums", SUMS), ("pick", PICK)):
        (folder / f"{name}.yaml").write_text(text + data)
    return folder


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "0.3")
    monkeypatch.setattr(server, "_given_up", set())


def evaluate(model: str, tasks: Path, name: str, *said: str) -> Result:
    given = [f"harness.tasks={tasks}", "server.model=tiny", *said]
    return runner.run(
        Evaluate(),
        EvaluateConfig(model=model, benchmarks=[f"lm_eval/{name}"], set=given, root=str(tasks.parent / "root")),
    )


def rows_of(result: Result, name: str) -> list[dict[str, Any]]:
    text = (Path(result.uri) / f"questions/lm_eval/{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def answer(body: dict[str, Any]) -> str:
    number = int(body["prompt"].split()[-4])
    return f"It is {number + 2}\nQ: more" if number % 4 else f"{number + 2}."


def test_a_server_is_asked_once_and_resumed(tasks: Path) -> None:
    with Completions(answer, dies_after=66) as completions:
        with pytest.raises(StageFailure, match="run the same command"):
            evaluate(completions.url, tasks, "sums", "server.at_once=2")
        port = completions.port
    with Completions(answer, port=port) as completions:
        result = evaluate(completions.url, tasks, "sums", "server.at_once=2")
        assert len(completions.asked) == 70 - 64
        assert {body["max_tokens"] for body in completions.asked} == {7}
        assert evaluate(completions.url, tasks, "sums").reused
        assert len(completions.asked) == 70 - 64
    rows = rows_of(result, "sums")
    assert [row["correct"] for row in rows] == [float(one % 4 != 0) for one in range(70)]
    assert rows[1]["output"] == [["It is 3"]], "cut before the line end"
    assert (rows[0]["invalid"], rows[1]["invalid"]) == (True, False)
    found = result.manifest.data["benchmarks"]["lm_eval/sums"]
    right = sum(row["correct"] for row in rows)
    assert (found["all"]["n"], found["all"]["figure"]) == (70, right / 70)
    assert found["all"]["also"]["exact_match lenient"] == 1
    assert found["all"]["low"] < found["all"]["figure"] < found["all"]["high"]
    assert found["reference"]["sums exact_match,strict"] == pytest.approx(right / 70)
    assert "lm-evaluation-harness" in (Path(result.uri) / "report.md").read_text()


def test_a_server_tells_no_likelihoods(tasks: Path) -> None:
    with Completions(answer) as completions, pytest.raises(StageFailure, match="tells no likelihoods"):
        evaluate(completions.url, tasks, "pick")


def test_choices_are_as_likely_as_the_harness_finds_when_it_asks_the_model_itself(tasks: Path) -> None:
    """Of a run and of its exported folder; the harness's figures are those of a model that computes on its own."""
    run = finished(tasks.parent / "run", tiny("transformer"))
    folder = tasks.parent / "exported"
    export(ExportConfig(run=str(run), output=str(folder)))
    ours, theirs = evaluate(str(run), tasks, "pick", "limit=9"), evaluate(str(folder), tasks, "pick", "limit=9")
    for one, other in zip(rows_of(ours, "pick"), rows_of(theirs, "pick"), strict=True):
        for (mine, greedy), (its, its_greedy) in zip(one["extracted"], other["extracted"], strict=True):
            assert math.isclose(mine, its, rel_tol=1e-4)
            assert greedy == its_greedy

    class Direct(LM):
        def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
            return [alone(*one.args) for one in requests]

        def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: list[Instance]) -> list[str]:
            raise NotImplementedError

    alone = token_by_token(folder)
    said = lm_eval.simple_evaluate(
        Direct(), tasks=["pick"], limit=9, bootstrap_iters=0, task_manager=TaskManager(include_path=str(tasks))
    )
    figures = ours.manifest.data["benchmarks"]["lm_eval/pick"]
    for metric in ("acc", "acc_norm"):
        assert figures["reference"][f"pick {metric},none"] == said["results"]["pick"][f"{metric},none"]
        assert figures["all"]["also"][metric] == said["results"]["pick"][f"{metric},none"]


def token_by_token(folder: Path) -> Any:
    """The likelihood of an ending from the next-token probabilities of transformers, one token after another."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    layout = json.loads((folder / "prompt.json").read_text())

    def likelihood(context: str, ending: str) -> tuple[float, bool]:
        ids = [*layout["begin"], *tokenizer(context, add_special_tokens=False)["input_ids"], *layout["end"]]
        prefix, total, greedy = len(ids), 0.0, True
        for token in tokenizer(ending.strip(), add_special_tokens=False)["input_ids"]:
            given = torch.tensor([ids])
            kinds = (torch.arange(len(ids)) < prefix).long()[None]
            with torch.inference_mode():
                logits = (
                    model(given, attention_mask=torch.ones_like(given), token_type_ids=kinds).logits[0, -1].double()
                )
            total += float(logits.log_softmax(-1)[token])
            greedy = greedy and int(logits.argmax()) == token
            ids.append(token)
        return total, greedy

    return likelihood


def test_an_unknown_task_is_refused(tasks: Path) -> None:
    with Completions(answer) as completions, pytest.raises(StageFailure, match=r"cannot run the task.*nothing"):
        evaluate(completions.url, tasks, "nothing")


def test_no_room_for_an_ending_is_counted(tasks: Path) -> None:
    run = finished(tasks.parent / "run", tiny("transformer"))
    model = open_model(str(run), EvaluateSettings())
    (found,) = model.likelihoods([Prompt("", "why " * 100)], ["x"])
    assert (found.log, found.greedy) == (None, False)
