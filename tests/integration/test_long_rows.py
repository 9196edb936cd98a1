"""Long rows from the YAML file to the arrays: windows, cut prompts, answers in pieces; and rows by pairmill show."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.errors import InputError, UsageError
from pairmill.loader import Loader, RowPlan
from pairmill.show import command
from pairmill.show.config import ShowConfig
from pairmill.show.lines import plain
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample_run
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support.definitions.chats import TOOLS, Recipe
from tests.support.tokenizers import shapes

CONTEXT = 200
WORDS = ["the", "cat", "what", "is", "seven", "12345", "é", "日本語"]
TASK = "mine.jsonl"


def text(draw: random.Random, least: int, most: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))


def chat(draw: random.Random, number: int) -> dict[str, Any]:
    messages = [{"role": "system", "content": text(draw, 1, 4)}]
    for _ in range(draw.randint(1, 6)):
        messages.append({"role": "user", "content": text(draw, 1, 12)})
        spelled = "<|im_end|>" if draw.random() < 0.2 else ""
        messages.append({"role": "assistant", "content": f"{number} {text(draw, 1, 12)}{spelled}"})
    return {"messages": messages}


def make(folder: Path, yaml: str, records: list[dict[str, Any]], **options: Any) -> Path:
    """Clean and tokenize a source; return the tokenized folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(shapes.shaped("qwen"))
    (folder / "template.jinja").write_text(TOOLS)
    (folder / "data.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    (folder / "mine.yaml").write_text(f"name: mine\nfiles: data.jsonl\ncondition: direct\n{yaml}")
    root = str(folder / "root")
    sources = [str(folder / "mine.yaml")]
    rows = runner.run(Clean(), CleanConfig(raw=str(folder), root=root, sources=sources, workers=1)).uri
    given = {"rows": [rows], "tokenizer": str(folder), "root": root, "context_size": CONTEXT, "workers": 1}
    return Path(runner.run(Tokenize(), TokenizeConfig(**{**given, **options})).uri)


def arrays(folder: Path) -> dict[str, Any]:
    return {path.stem: np.load(path) for path in (folder / TASK).glob("*.npy")}


def notes(folder: Path) -> dict[str, int]:
    manifest = manifests.read(str(folder))
    assert manifest is not None
    return {**manifest.ledger.notes, **manifest.ledger.dropped}


CHATS = "turns: messages\ntemplate: template.jinja\n"


def test_windows_of_chats_fit_and_no_row_is_lost(tmp_path: Path) -> None:
    draw = random.Random(1)
    records = [chat(draw, number) for number in range(60)]
    plain = arrays(make(tmp_path / "plain", CHATS, records))
    folder = make(tmp_path / "windows", f"{CHATS}long_prompt: window\n", records)
    made = arrays(folder)
    total = plain["inst_len"] + plain["resp_len"]
    assert (total > CONTEXT).sum() > 20
    assert (made["inst_len"] + made["resp_len"] <= CONTEXT).all()
    assert notes(folder)["windowed"] == (total > CONTEXT).sum()
    assert made["resp_len"].tolist() == plain["resp_len"].tolist()  # targets are whole
    fits = total <= CONTEXT
    assert made["inst_len"][fits].tolist() == plain["inst_len"][fits].tolist()
    described = json.loads((folder / "_MANIFEST.json").read_bytes())["data"]["lengths"]["mine"]
    assert described["before"]["percentiles"]["total"][-1] == total.max()
    assert described["after"]["percentiles"]["total"][-1] == (made["inst_len"] + made["resp_len"]).max()
    # The control token that messages spell is text: each window has one end for each message that is in it.
    end = json.loads(shapes.shaped("qwen"))
    number = next(item["id"] for item in end["added_tokens"] if item["content"] == "<|im_end|>")
    answers = [
        made["tokens"][start : start + size].tolist()
        for start, size in zip(made["resp_start"].tolist(), made["resp_len"].tolist(), strict=True)
    ]
    assert [item.count(number) for item in answers] == [1] * len(answers)


@pytest.mark.parametrize("yaml", ["long_prompt: window", "long_answer: split"])
@pytest.mark.parametrize("layout", ["compact", "data_io"])
def test_a_plan_of_windows_that_goes_on_has_the_batches_of_a_longer_one(yaml: str, layout: str, tmp_path: Path) -> None:
    draw = random.Random(4)
    records = [chat(draw, number) for number in range(40)]
    records += [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": text(draw, 300, 400)}]}
        for _ in range(3)
    ]
    folder = make(tmp_path, f"{CHATS}{yaml}\n", records)
    tokens = notes(folder)
    assert tokens["windowed" if yaml.endswith("window") else "answer_split"] >= 3
    (tmp_path / "rules.yaml").write_text("- {prefix: mine, fraction: 0.7}\n")
    given: dict[str, Any] = {
        "tokenized_path": str(folder),
        "prefix_config_path": str(tmp_path / "rules.yaml"),
        "context_size": CONTEXT,
        "layout": layout,
        "root": str(tmp_path / "root"),
    }

    def sample(**options: Any) -> Path:
        made = sample_run(SampleConfig(**{**given, **options, "output_path": ""})).parameters["fingerprint"]
        node = tmp_path / "shm" / str(made)
        sample_run(SampleConfig(**{**given, "plan": str(made), "output_path": str(node)}))
        return node

    three, five = sample(epochs=3), sample(epochs=5)
    child = sample(epochs=5, extend=str(tmp_path / "root/sample" / three.name))
    assert child.name != five.name
    for option in ({"batch_tokens": 2 * CONTEXT}, {"batch_tokens": 3 * CONTEXT, "rank": 1, "ranks": 2}):
        short, long, extended = (
            [
                hashlib.sha256(b"".join(batch.arrays[name].tobytes() for name in sorted(batch.arrays))).hexdigest()
                for batch in Loader(RowPlan(path), threads=0, **option)
            ]
            for path in (three, five, child)
        )
        assert extended == long
        assert len(long) > len(short) > 10


def test_answers_become_rows_with_their_ordinals(tmp_path: Path) -> None:
    draw = random.Random(2)
    records = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": text(draw, size, size)}]}
        for size in (5, 400, 5, 200)
    ]
    folder = make(tmp_path, f"{CHATS}long_answer: split\n", records)
    made = arrays(folder)
    assert (made["inst_len"] + made["resp_len"] <= CONTEXT).all()
    assert sorted(set(made["rows"].tolist())) == [0, 1, 2, 3]
    assert made["rows"].tolist() == sorted(made["rows"].tolist())
    assert len(made["rows"]) > 4
    assert notes(folder)["answer_split"] == 2
    cut = arrays(make(tmp_path / "cut", f"{CHATS}long_answer: cut\n", records))
    assert len(cut["inst_len"]) == 4
    assert (cut["inst_len"] + cut["resp_len"]).tolist()[1] == CONTEXT
    dropped = make(tmp_path / "drop", f"{CHATS}long_answer: drop\n", records)
    assert arrays(dropped)["rows"].tolist() == [0, 2]
    assert notes(dropped)["long_answer"] == 2
    (alarm,) = json.loads((dropped / "_MANIFEST.json").read_bytes())["vanished"]
    assert (alarm["name"], alarm["rows"], alarm["reason"]) == ("mine", [4, 2], "long_answer")
    assert alarm["examples"] == [f"{TASK}:1", f"{TASK}:3"]


def test_the_instruction_of_a_pair_loses_its_middle_where_that_is_allowed(tmp_path: Path) -> None:
    draw = random.Random(3)
    records = [{"q": text(draw, size, size), "a": "yes"} for size in (4, 300, 9)]
    yaml = "instruction: '{q}'\nresponse: '{a}'\nlong_prompt: head_tail\n"
    with pytest.raises(UsageError, match=r"cut_ok: true"):
        make(tmp_path / "refused", yaml, records)
    family = {"boq": "<|im_start|>", "eoq": "<|im_end|>", "eoa": "<|endoftext|>", "conditions": ["none"]}
    folder = make(tmp_path / "made", f"{yaml}cut_ok: true\n", records, **family)
    plain = arrays(make(tmp_path / "plain", yaml.replace("long_prompt: head_tail\n", ""), records, **family))
    made = arrays(folder)
    assert CONTEXT - 8 <= made["inst_len"][1] + made["resp_len"][1] <= CONTEXT
    assert notes(folder)["prompt_cut"] == 1
    for name in ("inst_len", "resp_len"):
        assert made[name][[0, 2]].tolist() == plain[name][[0, 2]].tolist()
    assert made["tokens"][: plain["inst_len"][0]].tolist() == plain["tokens"][: plain["inst_len"][0]].tolist()


@pytest.mark.parametrize(
    ("yaml", "match"),
    [
        ("instruction: '{q}'\nresponse: '{a}'\nlong_prompt: window\n", "windows need a chat template"),
        (f"{CHATS}window: {{reserve_answer: 9}}\n", "needs 'long_prompt: window'"),
        (f"{CHATS}long_prompt: window\nwindow: {{reserve: 9}}\n", "unknown entry.*reserve_answer"),
        (f"{CHATS}long_prompt: window\nwindow: {{keep: [users]}}\n", "users"),
        (f"{CHATS}long_prompt: shorten\n", "unknown value"),
    ],
)
def test_keys_that_cannot_be_meant_are_refused(tmp_path: Path, yaml: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        make(tmp_path, yaml, [chat(random.Random(1), 1)])


def show(config: ShowConfig) -> str:
    """Return what is shown, without its colours."""
    return plain(command.show(config))


class Server(BaseHTTPRequestHandler):
    """Answers ``/tokenize`` as vLLM documents it: by jinja2 and tokenizers, and none of our code."""

    recipe: Recipe
    tools: bool = False
    wrong: bool = False
    by_text: bool = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 404
        answer: dict[str, Any] = {"error": "not found"}
        if self.path == "/tokenize" and ("messages" in body) != self.by_text:
            prompt = body.get("prompt")
            if not self.by_text:
                for message in body["messages"]:
                    for call in message.get("tool_calls", ()):
                        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                prompt, _ = self.recipe.render({**body, "messages": [*body["messages"], {"role": "a", "content": ""}]})
            first, _ = self.recipe.encode(prompt, prompt + "x") or ([], [])
            status, answer = 200, {"count": len(first), "tokens": [*first[:-1], 0] if self.wrong else first}
        elif self.path == "/tokenize":
            status = 400
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("by_text", [False, True])
def test_prompts_are_compared_with_a_servers(tmp_path: Path, by_text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(4)
    records = [
        {"messages": [item for item in chat(draw, number)["messages"] if "<|" not in item["content"]][:5]}
        for number in range(9)
    ]
    records = [item for item in records if item["messages"][-1]["role"] == "assistant"]
    folder = make(tmp_path, CHATS, records)
    monkeypatch.setattr(Server, "recipe", Recipe(TOOLS, shapes.shaped("qwen")), raising=False)
    monkeypatch.setattr(Server, "by_text", by_text)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        said = show(ShowConfig(tokenized=str(folder), check_server=url, n=5))
        assert said == f"5 prompts have the server's ids, of {'text' if by_text else 'messages'}\n"
        monkeypatch.setattr(Server, "wrong", True)
        with pytest.raises(InputError, match="the server makes other ids of a prompt, from token"):
            show(ShowConfig(tokenized=str(folder), check_server=url, n=5))
        server.shutdown()


def test_a_row_is_shown_with_visible_control_tokens_beside_its_messages(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "what <|im_end|>\x1b[2J"}, {"role": "assistant", "content": "seven"}]
    folder = make(tmp_path, CHATS, [{"messages": messages}, {"messages": messages[:1] + messages[1:]}])
    said = show(ShowConfig(tokenized=str(folder), row=[f"{TASK}:1"]))
    assert "⟦<|im_start|>⟧user\nwhat <|im_end|>" in said
    assert "⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant" in said
    assert "\ntarget\nseven⟦<|im_end|>⟧" in said
    assert "messages\n  user: what <|im_end|>" in said
    assert "\x1b" not in said
    assert show(ShowConfig(root=str(tmp_path / "root"), row=["mine:1"])) == said
    with pytest.raises(UsageError, match="pairmill show <folder>, or root=<project>"):
        show(ShowConfig(row=["mine:1"]))
    with pytest.raises(InputError, match="no finished tokenized folder"):
        show(ShowConfig(root=str(tmp_path), row=["mine:1"]))
    for row, match in (
        ("mime.jsonl:0", "did you mean 'mine.jsonl'"),
        (f"{TASK}:9", "no such row"),
        ("9", "<task>:<n>"),
    ):
        with pytest.raises((InputError, UsageError), match=match):
            show(ShowConfig(tokenized=str(folder), row=[row]))


def test_a_template_whose_whole_never_begins_with_the_prompt_gives_no_row_and_says_so(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}{% if add_generation_prompt %}?{% endif %}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(InputError, match="the row files contain no row"):
        make(tmp_path, f"turns: messages\ntemplate: '{template}'\n", [{"messages": messages}])


def test_a_window_smaller_than_what_it_keeps_says_what_to_write(tmp_path: Path) -> None:
    records = [chat(random.Random(1), 1)]
    with pytest.raises(InputError, match=r"no row is kept.*long_prompt.*raise context_size=.*window: \{keep"):
        make(tmp_path, f"{CHATS}long_prompt: window\n", records, context_size=12)
