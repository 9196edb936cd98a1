"""Answers of a server are not trusted: texts, counts and refusals of any bytes; which prompts are too long."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.runner import Result
from pairmill.errors import PairmillError, StageFailure
from pairmill.evaluation.settings import Generation, Server
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from pairmill.stages.evaluate.models.model import Prompt
from pairmill.stages.evaluate.models.protocol import Refusal
from pairmill.stages.evaluate.models.server import ServedModel
from tests.support.servers.completions import Completions, Reply, hostile_reply

OPENAI = "This model's maximum context length is 4097 tokens, however you requested {} tokens ({} in your prompt; 256 "
OPENAI += "for the completion). Please reduce your prompt; or completion length."
VLLM = "This model's maximum context length is 2048 tokens. However, you requested 1024 output tokens and your prompt "
VLLM += "contains at least {} input tokens, for a total of at least {} tokens. Please reduce the length of the input."
TOO_LARGE = "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 512 "
TOO_LARGE += "tokens and your request has 30 input tokens (1024 > 512 - 30)."
TGI = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: {} `inputs` tokens and 1024 "
TGI += "`max_new_tokens`"
SGLANG = "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of {} "
SGLANG += "tokens: {} tokens from the input messages and 1024 tokens for the completion."
LLAMA: dict[str, Any] = {"code": 400, "type": "exceed_context_size_error"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "60")
    monkeypatch.setattr(server, "_given_up", set())


@pytest.mark.parametrize(
    ("reply", "too_long"),
    [
        (Reply.refusal(OPENAI.format(4300, 4100), code="context_length_exceeded"), True),
        (Reply.refusal(OPENAI.format(4116, 3860), code="context_length_exceeded"), False),
        (Reply.refusal("Your input exceeds the context window of this model", code="context_length_exceeded"), None),
        (Reply({"message": VLLM.format(2100, 3124), "object": "error", "code": 400}), True),
        (Reply({"message": VLLM.format(1025, 2049), "object": "error", "code": 400}), None),
        (Reply.refusal(TOO_LARGE, param="max_tokens", code=400), False),
        (Reply.refusal("The decoder prompt (length 9000) is longer than the maximum model length of 8192."), True),
        (Reply.refusal("You passed 9001 input tokens; the model's context length is only 8192 tokens."), True),
        (
            Reply({"message": "The input (61709 tokens) is longer than the model's context length (40960 tokens)."}),
            True,
        ),
        (Reply.refusal("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)."), True),
        (Reply.refusal(SGLANG.format(5524, 4500)), True),
        (Reply.refusal(SGLANG.format(4524, 3500)), False),
        (Reply.refusal("request (9412 tokens) exceeds the available context size (8192 tokens)", **LLAMA), True),
        (Reply.refusal("the request exceeds the available context size", **LLAMA, n_prompt_tokens=9, n_ctx=8), True),
        (Reply.refusal("the request exceeds the available context size. try increasing it", **LLAMA), None),
        (Reply({"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168"}), True),
        (Reply({"error": TGI.format(1600), "error_type": "validation"}), True),
        (Reply({"error": TGI.format(1000), "error_type": "validation"}), False),
        # None of these says that a prompt is too long.
        (Reply.refusal("Unknown parameter: 'seed'. See the context of your request."), False),
        (Reply({"detail": "seed: extra fields not permitted in this context"}), False),
        (Reply.refusal("max_tokens (1024) is over the context length (512)"), False),
        (Reply.refusal("max_tokens must be below the maximum context length of 512"), False),
        (Reply(b"<html>context</html>"), False),
        (Reply(b"[" * 100_000), False),
        (Reply({"error": {"code": ["context_length_exceeded"], "n_ctx": "8"}}), False),
    ],
)
def test_only_a_prompt_that_fills_the_context_is_too_long(reply: Reply, too_long: bool | None) -> None:
    refusal = Refusal.from_response(400, reply.content)
    assert refusal.leaves_no_room(1024) is too_long
    assert refusal.error("here", 1024).exit_code == 3


QUESTIONS = 70
Answer = Reply | str


def evaluated(root: Path, answers: dict[int, Answer], other: Answer = "1", *settings: str) -> Result:
    """GSM8K on a server that gives these answers to the questions of these numbers."""
    rows = [{"question": f"What is {one} plus 2?", "answer": "So.\n#### 1"} for one in range(QUESTIONS)]
    (root / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Completions(lambda body: answers.get(int(body["prompt"].split()[-3]), other)) as completions:
        config = EvaluateConfig(
            root=str(root / "project"),
            model=completions.url,
            benchmarks=["gsm8k"],
            data=[f"gsm8k={root / 'gsm8k.jsonl'}"],
            set=["server.at_once=4", *settings],
        )
        return runner.run(Evaluate(), config)


def test_odd_answers_are_scored_and_lose_no_other(tmp_path: Path) -> None:
    counted = {"choices": [{"text": "1"}], "usage": {"completion_tokens": 10**400}}
    answers: dict[int, Answer] = {
        3: Reply.text("\ud800 1"),
        5: Reply(counted),
        6: Reply({**counted, "usage": {"completion_tokens": True}}),
        7: Reply({**counted, "usage": ["completion_tokens"]}),
    }
    result = evaluated(tmp_path, answers)
    rows = [json.loads(line) for line in (Path(result.uri) / "questions/gsm8k.jsonl").read_text().splitlines()]
    assert rows[3]["output"] == "\ufffd 1"
    assert [row["correct"] for row in rows[4:8]] == [1.0] * 4
    assert [row["tokens"] for row in rows[4:8]] == [[1], [-1], [-1], [-1]]
    assert result.manifest.ledger.measures["generated_tokens"] == QUESTIONS - 3


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (Reply(b"[" * 100_000), 4, "not JSON"),
        (Reply.text("1" * (17 << 20)), 3, "too large"),
        (Reply(b"{}", headers={"Content-Encoding": "gzip"}), 4, "run the same command"),
        (Reply.refusal("seed is not a parameter in this context"), 3, "seed is not a parameter in this context"),
        (Reply.refusal(TOO_LARGE, code=400), 3, "no room for an answer of 1,024 tokens.*=<482 or fewer>"),
        (Reply.refusal("max_tokens exceeds the model context", 422), 3, "max_tokens exceeds the model context"),
    ],
    ids=["deep", "large", "gzip", "parameter", "max_tokens", "words"],
)
def test_what_a_server_refuses_or_breaks_is_said_and_not_scored(
    tmp_path: Path, reply: Reply, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "2")  # two of them are asked for again
    with pytest.raises(StageFailure, match=said) as failure:
        evaluated(tmp_path, {5: reply})
    assert failure.value.exit_code == code


def test_a_model_list_that_is_refused_is_not_a_defect() -> None:
    models = Reply.refusal("context length is 8", code="context_length_exceeded")
    with (
        Completions(lambda _: "1", models=models) as completions,
        pytest.raises(PairmillError, match="context length is 8") as failure,
    ):
        ServedModel.open(completions.url, Server())
    assert failure.value.exit_code == 3


def test_prompts_that_are_too_long_are_counted_and_a_whole_benchmark_of_them_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # These words tell no length: a request of one token does.
    too_long = Reply.refusal("too long", code="context_length_exceeded")
    result = evaluated(tmp_path, {3: too_long})
    assert result.manifest.ledger.notes["prompt_too_long"] == 1
    (warning,) = [one for one in caplog.records if "prompts left" in one.message]
    assert "gsm8k: 1 of 70 prompts left no room" in warning.message
    caplog.clear()
    result = evaluated(tmp_path, {}, too_long, "server.revision=b")
    assert result.manifest.ledger.notes["prompt_too_long"] == QUESTIONS
    (warning,) = [one for one in caplog.records if "prompts" in one.message]
    assert warning.levelname == "WARNING"
    assert "gsm8k: none of the prompts left room" in warning.message
    assert warning.message in (Path(result.uri) / "report.md").read_text()


def test_a_prompt_with_room_for_some_of_the_answer_is_refused_and_not_too_long() -> None:
    def answer(body: dict[str, int]) -> Answer:
        return "1" if body["max_tokens"] == 1 else Reply({"message": VLLM.format(1025, 2049)}, 400)

    with Completions(answer) as completions, pytest.raises(PairmillError, match="no room for an answer") as failure:
        ServedModel.open(completions.url, Server()).answers([Prompt("a", "b")], Generation(max_tokens=1024))
    assert failure.value.exit_code == 3


@pytest.mark.parametrize("seed", range(4))
def test_no_answer_of_a_server_is_a_defect_of_pairmill(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "0.01")
    draw, codes = random.Random(seed), set()
    with Completions(lambda _: hostile_reply(draw)) as completions:
        for number in range(25):
            model = ServedModel(f"{number}", completions.url, completions.url, Server(model="tiny", seconds=1))
            try:
                ((text,),) = model.answers([Prompt("a", "b")], Generation(max_tokens=9))
                text.text.encode()
                assert -1 <= text.tokens <= 10**9
            except PairmillError as error:
                codes.add(error.exit_code)
    assert codes <= {3, 4}
