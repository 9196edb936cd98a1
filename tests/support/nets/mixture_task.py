"""A generated task whose best mixture is known, and a search over it with nets that learn it in a second.

An answer says the symbols of its question in another alphabet. Source ``left`` asks about one half of the symbols,
``right`` about the other half, and both are equally hard; in ``noise`` an answer has nothing to do with its question.
Half of the held-out rows are of left and half of right: half of each, and nothing of noise, is best.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pairmill.engine.manifest import File, InputRef, Ledger, Manifest, content_key
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import INDEX, INFO
from pairmill.interface import cli, stagecli
from pairmill.line.runs import Ended, Here, StageRun
from pairmill.line.search import LocalConfig
from pairmill.line.stages import EVERY
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample
from pairmill.stages.search.core import Search
from pairmill.stages.train.core import Train

T, R = TypeVar("T"), TypeVar("R")

SYMBOLS = 64
BOQ, EOQ, EOA = 1, 2, 3
FIRST = 4
IDS = FIRST + 2 * SYMBOLS
ROWS = {"left__a": 1200, "right__b": 600, "noise__c": 1800}
HELD_OUT = 200
BEST = {"left": 0.5, "right": 0.5, "noise": 0.0}
PROXY = """\
model: {layers: 1, width: 32, heads: 2, feed_width: 64}
batch: {tokens: 384, tail: carry}
optimizer: {lr: 0.004, weight_decay: 0.0}
schedule: {shape: linear, warmup_steps: 3}
training: {threads: 1}
evaluation: {every_steps: 0, rows: 8}
checkpoints: {every_minutes: 0}
watch: {every_steps: 100, tensorboard: false}
"""
MIX = "budget: 7_200\nmax_epochs: 4\n"


def rows(source: str, count: int, seed: int) -> tuple[Any, Any]:
    """Questions of a symbol and answers of two, int64 [rows, 1] and [rows, 2]."""
    random = np.random.default_rng([seed, *source.encode()])
    half = SYMBOLS // 2
    questions = random.integers(0, half, (count, 1)) + half * source.startswith("right")
    if source.startswith("noise"):
        return random.integers(0, SYMBOLS, (count, 1)), random.integers(0, SYMBOLS, (count, 2))
    return questions, np.hstack([questions * 5 + 1, questions * 7 + 2]) % SYMBOLS


def tokenized(folder: Path, more: str = "") -> Path:
    """A finished tokenized folder with a task of each source, and held-out rows of left and right."""
    text = tokenizer() + more
    tasks = {path: name for name in ROWS for path in (name, f"holdout/{name}")}
    info = {"boq": "<b>", "eoq": "<q>", "eoa": "<a>", "condition_mapping": {}, "vocab_size": IDS}
    for top, counts, seed in (
        (folder, ROWS, 0),
        (folder / "holdout", dict.fromkeys(("left__a", "right__b"), HELD_OUT), 1),
    ):
        for name, count in counts.items():
            _put(top / name, *rows(name, count, seed))
        (top / INFO).write_text(json.dumps(info))
    (folder / "tokenizer.json").write_text(text)
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, data = str(path.relative_to(folder)), path.read_bytes()
        task = name.rpartition("/")[0]
        files.append(File(name, len(data), hashlib.sha256(data).hexdigest(), task if task in tasks else ""))
    count = sum(ROWS.values())
    made = Manifest(
        "tokenize",
        1,
        content_key([one.digest for one in files])[:16],
        {},
        [InputRef("tokenizer", hashlib.sha256(text.encode()).hexdigest()[:16])],
        Ledger(count, count, count),
        files,
        data={"held_out": {f"holdout/{name}": HELD_OUT for name in ("left__a", "right__b")}},
    )
    (folder / "_MANIFEST.json").write_bytes(made.dump())
    return folder


def _put(folder: Path, questions: Any, answers: Any) -> None:
    count, inst, resp = len(questions), 3, 3
    ids = np.empty((count, inst + resp), np.uint16)
    ids[:, 0], ids[:, 1 : inst - 1], ids[:, inst - 1] = BOQ, FIRST + questions, EOQ
    ids[:, inst:-1], ids[:, -1] = FIRST + SYMBOLS + answers, EOA
    folder.mkdir(parents=True)
    np.save(folder / "tokens.npy", ids.ravel())
    first = np.arange(count, dtype=np.int64) * (inst + resp)
    for part, values in zip(INDEX, (first, np.full(count, inst), first + inst, np.full(count, resp)), strict=True):
        np.save(folder / f"{part}.npy", values.astype(np.uint32))


def tokenizer() -> str:
    """A tokenizer.json whose every token is a letter, or a special one."""
    names = ["<pad>", "<b>", "<q>", "<a>", *(chr(0x100 + number) for number in range(2 * SYMBOLS))]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": number, "content": name, "special": True, **flags} for number, name in enumerate(names[:FIRST])]
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    vocab = {name: number for number, name in enumerate(names)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    return json.dumps({"version": "1.0", **parts, "added_tokens": added, "model": model})


def held_out(folder: Path, root: Path, tokens: Path) -> Path:
    """The held-out rows, sampled."""
    config = SampleConfig(
        root=str(root), tokenized_path=str(tokens), output_path=str(folder / "rows"), held_out=True, context_size=64
    )
    sample(config)
    return folder / "rows-holdout"


def in_project(tokens: Path, root: Path) -> Path:
    """The same tokenized folder where tokenize would have written it."""
    found = open_tokenized(str(tokens), "tokenized_path", tolerate_strays=True)
    return Path(shutil.copytree(tokens, root / "tokenize" / found.fingerprint))


def held_out_plan(root: Path, tokens: Path) -> str:
    """The plan of the held-out rows."""
    config = SampleConfig(root=str(root), tokenized_path=str(tokens), held_out=True, context_size=64)
    return str(sample(config).metadata["data"])


def options(folder: Path, root: Path, more: str = "", **values: Any) -> LocalConfig:
    """A search below ``root`` of the task in ``folder``, which is made first if it is not there.

    ``more`` is white space at the end of tokenizer.json: that of another tokenizer has another digest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokenized"
    if not tokens.exists():
        tokenized(tokens, more)
        held_out(folder, folder / "made", tokens)
        (folder / "proxy.yaml").write_text(PROXY)
        (folder / "mix.yaml").write_text(MIX)
    given: dict[str, Any] = {
        "tokenized": str(tokens),
        "held_out": str(folder / "rows-holdout"),
        "train_config": str(folder / "proxy.yaml"),
        "mix_config": str(folder / "mix.yaml"),
        "set": "objective.weights={left: 1, right: 1}",
        "epochs": 1,
        "context_size": 64,
        "samples_path": str(root / "arrays"),
    }
    return LocalConfig(root=str(root), **{**given, **values})


@dataclass
class Inside(Here):
    """Tasks in this process, one after another: to import torch once is most of a small net's time.

    Args:
        dies: told before each task; it may raise.
    """

    dies: Callable[[str], None] = lambda _: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def each(self, body: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return [body(item) for item in items]

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        self.dies(stage)
        config = cli.build(EVERY[stage].config, options)
        programs: dict[str, Any] = {"search": Search, "train": Train, "evaluate": Evaluate}
        outcome = sample(config) if stage == "sample" else stagecli.run(programs[stage](), config)
        self.ended.append(Ended(stage, 0, outcome.seconds, outcome.reused, str(outcome.metadata["data"])))
        return StageRun(dict(outcome.parameters))
