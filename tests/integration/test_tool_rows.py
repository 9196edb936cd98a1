"""Tool chats from the YAML file to the arrays: each answer and each call has the ids of the plain recipe."""

import json
from pathlib import Path

import numpy as np

from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support.definitions.chats import TOOLS, Recipe, chats
from tests.support.tokenizers import shapes


def test_answers_and_calls_have_the_ids_of_the_plain_recipe(tmp_path: Path) -> None:
    drawn = [chat for chat in chats(300, 7) if not any(item["content"].isspace() for item in chat["messages"])]
    tokenizer = shapes.shaped("qwen")
    recipe = Recipe(TOOLS, tokenizer)
    expected: list[list[int]] = []
    lengths, calls = [], 0
    for chat in drawn:
        for place, message in enumerate(chat["messages"]):
            if message["role"] == "assistant":
                made = recipe.encode(*recipe.render({**chat, "messages": chat["messages"][: place + 1]}))
                if made is not None:
                    expected.append([*made[0], *made[1]])
                    lengths.append(len(made[1]))
                    calls += "tool_calls" in message
    records = json.loads(json.dumps(drawn))
    for record in records:  # as files have it: arguments as text, results without an id, tools as text
        record["tools"] = json.dumps(record.get("tools", []))
        for message in record["messages"]:
            message.pop("tool_call_id", None)
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    (tmp_path / "a.jinja").write_text(TOOLS)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))
    keys = "name: mine\nfiles: a.jsonl\ncondition: direct\nturns: messages\ntemplate: a.jinja\nstrip: false\n"
    (tmp_path / "mine.yaml").write_text(keys)
    root = str(tmp_path / "root")
    rows = runner.run(Clean(), CleanConfig(root=root, sources=[str(tmp_path / "mine.yaml")], workers=1))
    done = runner.run(Tokenize(), TokenizeConfig(rows=[rows.uri], tokenizer=str(tmp_path), root=root, workers=1))
    arrays = {path.stem: np.load(path) for path in Path(done.uri, "mine.jsonl").glob("*.npy")}
    assert arrays["tokens"].tolist() == [token for ids in expected for token in ids]
    assert arrays["resp_len"].tolist() == lengths
    assert calls > 50
    sums = manifests.read(rows.uri)
    assert sums is not None
    assert sums.data["sources"]["mine"]["chats"]["call_targets"] == calls
