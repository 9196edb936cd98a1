"""Chats and tools through a server; servers whose figures would be wrong are named, and have no score."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pairmill.encoder import PRE_TOKENIZER, Encoder
from pairmill.engine import runner
from pairmill.engine.runner import Result
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.net import http
from pairmill.stages.evaluate import served
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from tests.support.servers.completions import Completions, Reply

Run = Callable[..., Result]
FUNCTION = {
    "name": "math.add",
    "description": "Adds.",
    "parameters": {"type": "dict", "properties": {"a": {"type": "float"}, "b": {"type": "integer"}}, "required": ["a"]},
}
CALL = {"math_add": {"a": 1.0, "b": 2}}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "60")
    monkeypatch.setattr(server, "_given_up", set())
    monkeypatch.setattr(server, "_checked", set())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "bfcl"
    folder.mkdir()
    asked = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add 1 and 2."}]]
    rows = [{"id": name, "question": asked, "function": [FUNCTION]} for name in ("simple_python_0", "irrelevance_0")]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    truth = {"id": "simple_python_0", "ground_truth": [{"math.add": {"a": [1.0], "b": [2, ""]}}]}
    (folder / "possible_answer.jsonl").write_text(json.dumps(truth) + "\n")
    questions = [{"question": f"What is {one} plus 2?", "answer": f"#### {one + 2}"} for one in range(3)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    followed = {"prompt": "Answer in quotes.", "instruction_id_list": ["startend:quotation"], "kwargs": [{}]}
    (tmp_path / "ifeval.jsonl").write_text(json.dumps(followed) + "\n")
    places = {"bfcl": folder, "gsm8k": tmp_path / "gsm8k.jsonl", "ifeval": tmp_path / "ifeval.jsonl"}

    def made(url: str, name: str, *settings: str, **options: Any) -> Result:
        given = {"benchmarks": [name], "data": [f"{name}={places[name]}"], "root": str(tmp_path / "root"), **options}
        return runner.run(Evaluate(), EvaluateConfig(model=url, set=["server.model=tiny", *settings], **given))

    return made


def figures(result: Result, name: str) -> dict[str, Any]:
    made: dict[str, Any] = result.manifest.data["benchmarks"][name]
    return made


def test_tools_are_offered_and_calls_are_judged(run: Run) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        assert [one["role"] for one in body["messages"]] == ["system", "user"]
        ((tool),) = body["tools"]
        assert tool["function"]["name"] == "math_add"
        assert tool["function"]["parameters"]["properties"] == {"a": {"type": "number"}, "b": {"type": "integer"}}
        return Reply.chat(None, CALL)

    with Completions(answer) as completions:
        made = figures(run(completions.url, "bfcl", "server.mode=chat"), "bfcl")
    groups = {name: group["figure"] for name, group in made["all"]["groups"].items()}
    assert groups == {"simple_python": 1.0, "irrelevance": 0.0}


def test_a_chat_asks_the_prompt_as_a_message(run: Run) -> None:
    with Completions(lambda body: Reply.chat('"Yes."')) as completions:
        made = figures(run(completions.url, "ifeval", "server.mode=chat"), "ifeval")
        (body,) = completions.asked
    assert body["messages"] == [{"role": "user", "content": "Answer in quotes."}]
    assert "prompt" not in body
    assert (made["all"]["figure"], made["all"]["also"]["instructions"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        Reply.chat('<tool_call>{"name": "math_add", "arguments": {"a": 1}}</tool_call>'),
        Reply.chat("[math_add(a=1.0, b=2)]"),
        Reply.chat("<|tool_call>call:math_add{a:1.0,b:2}<tool_call|>"),
        Reply.refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    ],
    ids=["json", "python", "gemma", "refused"],
)
def test_a_server_without_a_tool_parser_is_named_and_has_no_score(run: Run, answer: Reply) -> None:
    replies = [answer]
    with Completions(lambda body: replies[0]) as completions:
        message = r"no tool parser, so its answers have no score.*--tool-call-parser"
        with pytest.raises(StageFailure, match=message) as got:
            run(completions.url, "bfcl", "server.mode=chat")
        assert got.value.exit_code == 3
        # What it said is not kept: with a parser it is asked again.
        replies[0] = Reply.chat(None, CALL)
        assert figures(run(completions.url, "bfcl", "server.mode=chat"), "bfcl")["all"]["figure"] == 0.5


def test_a_text_that_names_a_tool_in_passing_is_an_answer(run: Run) -> None:
    replies = iter([Reply.chat("I would use math_add, but see math_add (1)"), Reply.chat(None, CALL)] * 3)
    with Completions(lambda body: next(replies)) as completions:
        asked = figures(run(completions.url, "bfcl", "server.mode=chat", "server.at_once=1", "limit=1"), "bfcl")
    assert asked["all"]["figure"] == 0.0
    assert asked["causes"] == {"wrong form": 1}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.decoder = decoders.ByteLevel()
    path.write_text(json.dumps({**json.loads(made.to_str()), "pre_tokenizer": PRE_TOKENIZER}))
    return path


def test_a_server_with_another_tokenizer_is_named_and_has_no_score(
    run: Run, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Encoder.from_json(tokenizer.read_text(), where="")
    with Completions(lambda body: "1", tokenize=lambda text: [*encoder.encode([text]).ids.tolist(), 1]) as completions:
        with pytest.raises(StageFailure, match="another tokenizer, so its answers have no score") as got:
            run(completions.url, "gsm8k", tokenizer=str(tokenizer))
        assert got.value.exit_code == 3
        assert not completions.asked
    with Completions(lambda body: "1", tokenize=lambda text: encoder.encode([text]).ids.tolist()) as completions:
        run(completions.url, "gsm8k", tokenizer=str(tokenizer))
        assert "not compared" not in caplog.text
    with Completions(lambda body: "2") as completions:
        run(completions.url, "gsm8k", "server.revision=r2", tokenizer=str(tokenizer))
        assert "does not show its ids, so its tokenizer is not compared" in caplog.text


def test_a_server_that_cuts_is_named_and_has_no_score(run: Run, tokenizer: Path) -> None:
    def told(reason: str, **usage: int) -> Reply:
        return Reply({"choices": [{"text": "1", "finish_reason": reason}], "usage": usage})

    with Completions(lambda body: told("length", completion_tokens=16)) as completions:
        with pytest.raises(StageFailure, match=r"cuts answers, so they have no score.*16 tokens.*1,024") as got:
            run(completions.url, "gsm8k")
        assert got.value.exit_code == 3
        made = figures(run(completions.url, "gsm8k", "generation.max_tokens=16"), "gsm8k")
        assert made["causes"] == {}  # at the bound that was asked for it is no fault of the server
    with Completions(lambda body: told("stop", completion_tokens=1, prompt_tokens=5)) as completions:
        with pytest.raises(StageFailure, match=r"cuts prompts, so its answers have no score.*5 tokens") as got:
            run(completions.url, "gsm8k", "server.revision=r3", tokenizer=str(tokenizer))
        assert got.value.exit_code == 3


def test_answers_that_cannot_be_read_have_a_cause_and_examples(run: Run) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        number = int(body["prompt"].split()[-3])
        texts = [("", "stop"), ("I do not know.", "stop"), ("It is so that", "length")]
        text, reason = texts[number]
        return Reply({"choices": [{"text": text, "finish_reason": reason}]})

    with Completions(answer) as completions:
        result = run(completions.url, "gsm8k")
    made = figures(result, "gsm8k")
    assert made["causes"] == {"empty": 1, "wrong form": 1, "cut by limit": 1}
    assert made["examples"]["wrong form"] == [["test 1", "I do not know."]]
    rows = (Path(result.uri) / "questions/gsm8k.jsonl").read_text().splitlines()
    assert [json.loads(row)["cause"] for row in rows] == ["empty", "wrong form", "cut by limit"]
    assert "Answers that cannot be read" in (Path(result.uri) / "report.md").read_text()


def test_the_first_scoring_is_the_figure_and_asks_no_model(run: Run) -> None:
    with Completions(lambda body: "The answer is 4.") as completions:
        plain = figures(run(completions.url, "gsm8k"), "gsm8k")["all"]
        assert len(completions.asked) == 3
    for first, figure in (("strict", 0.0), ("lenient", 1 / 3)):
        made = figures(run("http://127.0.0.1:1/v1", "gsm8k", scorings=[first]), "gsm8k")["all"]
        assert made["figure"] == figure
        assert (made["also"]["strict"], made["also"]["lenient"]) == (0.0, 1 / 3)
    assert plain["figure"] == 0.0


@pytest.mark.parametrize(
    ("name", "settings", "options", "message"),
    [
        ("bfcl", (), {}, r"needs chats with tools.*server.mode=chat"),
        ("bfcl", ("server.mode=chat",), {"data": []}, r"no data set on the Hub.*data=bfcl="),
        ("gsm8k", (), {"scorings": ["loose"]}, r"scorings.*'loose'"),
        ("gsm8k", ("server.mode=talk",), {}, r"server.mode.*'talk'"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    run: Run, name: str, settings: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((UsageError, InputError), match=message):
        run("http://127.0.0.1:1/v1", name, *settings, **options)


SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[2].encode())
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_command_serves_and_ends_with_its_use(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(SERVER)
    with served.running(f"{sys.executable} {tmp_path}/serve.py {{port}} {{model}}", "/a/model") as url:
        assert http.client().get(f"{url}/models").text == "/a/model"
    with pytest.raises(httpx.ConnectError):
        http.client().get(f"{url}/models")


@pytest.mark.parametrize("command", ["false {port}", "/nowhere/serve {port}"])
def test_a_command_that_serves_nothing_is_named(command: str) -> None:
    with pytest.raises(InputError, match="the server ended before it answered"), served.running(command, "/a/model"):
        raise AssertionError
