"""Rows and MB a second of CPU of chats rendered by a template, clean and tokenize, against the plain template.

A text is an instruction or response of the row files that a stage writes, so that both sides count what they wrote.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import measure
import pyarrow.parquet as pq
from measure import spread

from pairmill.chats.families import FAMILIES
from pairmill.engine import runner
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize

ROUNDS = 3
MEGABYTES = 4
SIDES = ("plain", "chatml", "llama3")


def chats(rows: Path, folder: Path) -> None:
    """Write chats of one to three turns, of the corpus's questions and answers."""
    draw = random.Random(0)
    written = 0
    with (folder / "chats.jsonl").open("w") as out:
        for file in sorted(rows.glob("*.parquet")):
            table = pq.read_table(file, columns=list(measure.TEXTS)).to_pylist()
            while table and written < MEGABYTES << 20:
                turns = [table.pop() for _ in range(min(draw.randint(1, 3), len(table)))]
                messages = [
                    {"role": role, "content": turn[name]}
                    for turn in turns
                    for role, name in zip(("user", "assistant"), measure.TEXTS, strict=True)
                ]
                written += out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def with_tokens(tokenizer: Path, folder: Path) -> Path:
    """The tokenizer with the control tokens of the templates."""
    settings = json.loads(tokenizer.read_text())
    known = {item["content"] for item in settings["added_tokens"]}
    for item in settings["added_tokens"]:  # as in the published files of Qwen
        item["special"] = item["special"] and item["content"].startswith("<|")
    number = max([*settings["model"]["vocab"].values(), *(item["id"] for item in settings["added_tokens"])])
    names = ("im_start", "im_end", "begin_of_text", "start_header_id", "end_header_id", "eot_id")
    for token in (f"<|{name}|>" for name in names):
        if token not in known:
            number += 1
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            settings["added_tokens"].append({"id": number, "content": token, **flags, "special": True})
    made = folder / "tokenizer.json"
    made.write_text(json.dumps(settings))
    return made


def bench(tokenizer: Path, rows: Path) -> None:
    """Print the table."""
    folder = Path(tempfile.mkdtemp())
    chats(rows, folder)
    file = with_tokens(tokenizer, folder)
    speeds: dict[str, dict[str, list[float]]] = {}
    facts = {}
    with measure.one_core():
        for turn in range(ROUNDS):
            for side in SIDES:
                template = "plain" if side == "plain" else json.dumps(FAMILIES[side].text)
                variables = '{bos_token: "<|begin_of_text|>"}' if side == "llama3" else ""
                yaml = folder / f"{side}.yaml"
                lines = ["name: mine", "files: chats.jsonl", "condition: direct", "turns: messages"]
                lines += [f"template: {template}", *([f"template_variables: {variables}"] if variables else [])]
                yaml.write_text("\n".join(lines))
                root = folder / f"{side}{turn}"
                started = time.process_time()
                clean = runner.run(Clean(), CleanConfig(root=str(root), sources=[str(yaml)], workers=1))
                between = time.process_time()
                config = TokenizeConfig(root=str(root), rows=[clean.uri], tokenizer=str(file), workers=1)
                done = runner.run(Tokenize(), config)
                ended = time.process_time()
                size = done.manifest.ledger.measures["text_bytes"] / 1e6
                rows_out = done.manifest.ledger.rows_out
                facts[side] = f"{rows_out:,} rows, {size:.0f} MB"
                took = {"clean": between - started, "tokenize": ended - between, "both": ended - started}
                for stage, seconds in took.items():
                    known = speeds.setdefault(side, {})
                    known.setdefault(stage, []).append(size / seconds)
                    known.setdefault(f"{stage} rows", []).append(rows_out / seconds)
                shutil.rmtree(root)
    stages = ("clean", "tokenize", "both")
    measure.table(
        f"chats, MB of text that is written, a second of CPU, median of {ROUNDS} (from to)",
        "|rows|clean|tokenize|both|rows/s",
        [(side, facts[side], *(spread(speeds[side][name]) for name in (*stages, "both rows"))) for side in SIDES],
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        corpus = measure.corpus(Path(temporary))
        bench(Path(sys.argv[1]), corpus)
