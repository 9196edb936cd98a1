"""Data as people have it, each kind described by the lines of docs/sources.md, from raw files to a loader's batch."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pairmill.loader import Loader, RowPlan
from tests.support import tools
from tests.support.helpers import REPOSITORY

KINDS: dict[str, tuple[str, list[dict[str, Any]] | str, list[str]]] = {
    "pairs": (
        "files: pairs.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n",
        [{"question": f"What is {n}?", "answer": f"It is {n}."} for n in range(30)],
        ["What is 3?|It is 3."],
    ),
    "alpaca": (
        'files: alpaca.jsonl\ncondition: synth\ninstruction: "{instruction}[[\\n\\n{input}]]"\nresponse: output\n',
        [{"instruction": f"Do {n}", "input": "with care" if n % 2 else None, "output": "done"} for n in range(30)],
        ["Do 2|done", "Do 3\n\nwith care|done"],
    ),
    "choices": (
        "files: choices.jsonl\ncondition: direct\n"
        'instruction: "{question}\\n{choices|letters}"\nresponse: "{answer|letter}"\n',
        [{"question": f"Which, {n}?", "choices": ["x", "y"], "answer": n % 2} for n in range(30)],
        ["Which, 5?\nA: x\nB: y|B"],
    ),
    "openai": (
        "files: openai.jsonl\ncondition: direct\nturns: messages\n",
        [
            {"messages": [{"role": role, "content": f"{role} {n}"} for role in ("user", "assistant") * 2]}
            for n in range(30)
        ],
        ["user 4|assistant 4", "User:\nuser 4\n\nAssistant:\nassistant 4\n\nUser:\nuser 4|assistant 4"],
    ),
    "sharegpt": (
        "files: sharegpt.jsonl\ncondition: noisy\nturns: conversations\n",
        [{"conversations": [{"from": "human", "value": f"q{n}"}, {"from": "gpt", "value": "a"}]} for n in range(30)],
        ["q7|a"],
    ),
    "corpus": (
        "files: corpus.jsonl\ntext: text\n",
        [{"text": f"A page {n}. " * 40} for n in range(9)],
        ["|A page 2. "],
    ),
    "files": ("files: files/*.txt\neach: file\ntext: text\n", "files", ["|The file 6"]),
    "table": (
        "files: table.csv\ndelimiter: ;\nencoding: cp1252\ncondition: cot\ninstruction: q\nresponse: a\n",
        "table",
        ["Où est 9?|Ici 9"],
    ),
}


def rows(root: Path, name: str) -> list[str]:
    found = [path for path in root.glob(f"clean/*/**/{name}.jsonl") if "shards" not in path.parts]
    read = [json.loads(line) for path in sorted(found) for line in path.read_text().splitlines()]
    return [f"{row['instruction']}|{row['response']}" for row in read]


def test_one_run_takes_every_kind_to_a_batch(tmp_path: Path, shm: Path) -> None:
    for name, (description, records, _) in KINDS.items():
        tools.write_text(tmp_path / f"{name}.yaml", f"name: {name}\n{description}")
        if isinstance(records, list):
            tools.write_lines(tmp_path / f"{name}.jsonl", records)
    for number in range(30):
        tools.write_text(tmp_path / "files" / f"{number}.txt", f"The file {number}\n")
    table = "q;a\n" + "".join(f"Où est {n}?;Ici {n}\n" for n in range(30))
    (tmp_path / "table.csv").write_bytes(table.encode("cp1252"))
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: corpus\n  long_context: split\n")
    root, out = tmp_path / "root", shm / "kinds"
    options = {"root": root, "output_path": out, "prefix_config_path": rules, "context_size": 97}
    sources = ",".join(str(tmp_path / f"{name}.yaml") for name in KINDS)
    options |= {"vocab_size": 512, "epochs": 1, "holdout": "0.2"}
    tools.ended(tools.run(tools.command("run", sources=sources, **options)))

    found = {name: rows(root, name) for name in KINDS}
    for name, (_, _, expected) in KINDS.items():
        for text in expected:
            assert any(row == text or (name == "corpus" and row.startswith(text)) for row in found[name]), found[name]

    (trained,) = (path.parent for path in root.glob("tokenizer/*/_MANIFEST.json"))
    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    begins = [f"<|im_start|><|im_end|>{text} " for text in ("A page", "The file")]
    counts = []
    for folder in (out, shm / "kinds-holdout"):
        plan = RowPlan(str(folder), tail="keep")
        batches = [batch.arrays["inputs"].tolist() for batch in Loader(plan, batch_tokens=1024, rank=0, ranks=1)]
        seen = "".join(tokenizer.decode(ids, skip_special_tokens=False) for ids in batches)
        for text in ("What is ", "User:\nuser ", "Où est", *begins):
            assert text in seen, (folder.name, text)
        counts.append(len(np.load(folder / "epoch_0" / "inst_len.npy")))
    # A page is longer than the context: its pieces are rows, and no text is lost.
    assert counts[0] > counts[1]
    assert sum(counts) > sum(map(len, found.values()))


def test_the_page_begins_with_what_data_looks_like() -> None:
    """The lines that the table says are those that are tried here, or keys that other tests try."""
    page = (REPOSITORY / "docs" / "sources.md").read_text()
    table = page[: page.index("## A YAML file")]
    tried = "".join(description for description, _, _ in KINDS.values())
    for line in re.findall(r"`((?:instruction|response|turns|text|each): [^`]*)`", table.replace("\\|", "|")):
        assert line in tried, line
