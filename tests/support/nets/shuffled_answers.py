"""A small generated task, data of it with some answers shuffled, and a net that learns it in a second."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import runner
from pairmill.formats.tokens import INDEX, INFO
from pairmill.stages.compare.measures import mean_loss
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample
from pairmill.stages.train import launch
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train
from tests.support.nets import trained_runs

SYMBOLS = 16
"""Of questions and of answers. An answer says the one symbol of the question in another alphabet, and a second time."""
BOQ, EOQ, EOA, TAG = 1, 2, 3, 4
FIRST = 6
IDS = FIRST + 2 * SYMBOLS
SOURCES = ("low", "high")
SETTINGS = """\
model: {layers: 1, width: 32, heads: 2, feed_width: 64}
batch: {tokens: 640, tail: carry}
optimizer: {lr: 0.01, weight_decay: 0.0}
schedule: {shape: linear, min_ratio: 0.02, warmup_steps: 5}
training: {threads: 1, ema: 0.95}
evaluation: {every_steps: 0, rows: 64}
checkpoints: {every_minutes: 0}
watch: {every_steps: 20, tensorboard: false}
"""
ROWS, HELD_OUT = 4000, 300
"""Of a source."""
TOKENS = 54_000
"""That a run reads: 85 steps."""
SEEDS = 4


@dataclass(frozen=True)
class Rows:
    """Questions and answers of a source: symbols, int64 [rows, length]."""

    questions: NDArray[np.int64]
    answers: NDArray[np.int64]

    def shuffled(self, share: float, seed: int) -> Rows:
        """The same with this share of the answers dealt out anew among their rows."""
        random = np.random.default_rng(seed)
        chosen = random.permutation(len(self.answers))[: round(share * len(self.answers))]
        answers = self.answers.copy()
        answers[chosen] = answers[np.roll(chosen, 1)]
        return Rows(self.questions, answers)


def rows(source: str, count: int, seed: int) -> Rows:
    """New rows of a source."""
    random = np.random.default_rng([seed, SOURCES.index(source)])
    half = SYMBOLS // len(SOURCES)
    questions = random.integers(0, half, (count, 1)) + half * SOURCES.index(source)
    return Rows(questions, np.hstack([questions * 5 + 1, questions * 7 + 2]) % SYMBOLS)


def tokenized(folder: Path, data: dict[str, Rows]) -> Path:
    """A tokenized folder with a task of each source."""
    for name, one in data.items():
        count, (inst, resp) = len(one.questions), (one.questions.shape[1] + 3, one.answers.shape[1] + 1)
        ids = np.empty((count, inst + resp), np.uint16)
        ids[:, 0], ids[:, 1] = BOQ, TAG + SOURCES.index(name.split("__")[-1])
        # The question ends with its symbol: the answer follows from the token before it, so all runs learn it.
        ids[:, 2], ids[:, 3:inst] = EOQ, FIRST + one.questions
        ids[:, inst:-1], ids[:, -1] = FIRST + SYMBOLS + one.answers, EOA
        (folder / name).mkdir(parents=True)
        np.save(folder / name / "tokens.npy", ids.ravel())
        first = np.arange(count, dtype=np.int64) * (inst + resp)
        columns = (first, np.full(count, inst), first + inst, np.full(count, resp))
        for part, values in zip(INDEX, columns, strict=True):
            np.save(folder / name / f"{part}.npy", values.astype(np.uint32))
    text = tokenizer()
    (folder / "tokenizer.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    info = {"boq": "<b>", "eoq": "<q>", "eoa": "<a>", "condition_mapping": {}, "vocab_size": IDS, "tokenizer": digest}
    (folder / INFO).write_text(json.dumps({name: value for name, value in info.items() if name != "tokenizer"}))
    return folder


def tokenizer() -> str:
    """A tokenizer.json whose every token is one letter."""
    names = ["<pad>", "<b>", "<q>", "<a>", "<t0>", "<t1>", *(chr(0x100 + number) for number in range(SYMBOLS))]
    names += [chr(0x180 + number) for number in range(SYMBOLS)]
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": number,
                    "content": name,
                    "special": True,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                }
                for number, name in enumerate(names[:FIRST])
            ],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "vocab": {name: number for number, name in enumerate(names)}, "merges": []},
        }
    )


class Bench:
    """Runs on the task, by the stages themselves, in this process.

    Args:
        folder: for data and results.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.yaml").write_text("[]")
        (folder / "settings.yaml").write_text(SETTINGS)
        (folder / "tokenizer.json").write_text(tokenizer())
        held_out = {name: rows(name, HELD_OUT, 1_000_003) for name in SOURCES}
        self.held_out = self._sampled(tokenized(folder / "of-held-out", held_out), folder / "held-out", 0, 1)

    def differences(self, number: int, shares: Sequence[float]) -> dict[float, list[float]]:
        """Of a repetition: plans B, with a share of answers shuffled and draws of their own, less plan A, by seed."""
        data = {name: rows(name, ROWS, number) for name in SOURCES}
        found: dict[float, list[float]] = {share: [] for share in shares}
        for seed in range(SEEDS * number, SEEDS * (number + 1)):
            base = self._loss(data, 10 * seed, seed)
            for at, share in enumerate(shares, 1):
                changed = {name: one.shuffled(share, number) for name, one in data.items()}
                found[share].append(self._loss(changed, 10 * seed + at, seed) - base)
        return found

    def _loss(self, data: dict[str, Rows], draw: int, seed: int) -> float:
        with tempfile.TemporaryDirectory(dir=self.root) as name:
            place = Path(name)
            sampled = self._sampled(tokenized(place / "tokenized", data), place / "sampled", draw, 3)
            given = TrainConfig(
                root=name,
                sampled=[str(sampled)],
                tokenizer=str(self.root / "tokenizer.json"),
                train_config=str(self.root / "settings.yaml"),
                set=[f"training.seed={seed}", f"training.tokens={TOKENS}"],
                processes=1,
                device="cpu",
            )
            trained = runner.run(Train(launch.Group(given)), given).uri
            asked = EvaluateConfig(root=name, model=trained, held_out=str(self.held_out), set=["net.weights=ema"])
            return mean_loss(np.load(Path(runner.run(Evaluate(), asked).uri) / "held_out" / "rows.npy"))

    def _sampled(self, folder: Path, target: Path, seed: int, epochs: int) -> Path:
        rules = str(self.root / "rules.yaml")
        options = {"output_path": str(target), "prefix_config_path": rules, "seed": seed, "epochs": epochs}
        sample(SampleConfig(tokenized_path=str(folder), workers=1, **options))  # type: ignore[arg-type]
        return target


def project(root: Path, shares: Sequence[float], *, rows_of: int = 200) -> tuple[list[Path], Path]:
    """A project with a plan for each share of shuffled answers, and the plan of its held-out rows; by the stages."""
    from pairmill.stages.tokenize.core import Tokenize, TokenizeConfig

    (root / "rules.yaml").write_text("[]")
    (root / "letters.json").write_text(trained_runs.tokenizer())

    def planned(title: str, count: int, seed: int, share: float, epochs: int) -> Path:
        for name in SOURCES:
            _write(root / title / f"{name}.jsonl", rows(name, count, seed).shuffled(share, 1))
        given = {"rows": [str(root / title)], "tokenizer": str(root / "letters.json"), "root": str(root), "workers": 1}
        config = TokenizeConfig(**given, conditions=["direct=<|object_ref_start|>"])  # type: ignore[arg-type]
        folder = runner.run(Tokenize(), config).uri
        options = {"root": str(root), "output_path": "", "prefix_config_path": str(root / "rules.yaml"), "workers": 1}
        made = sample(SampleConfig(tokenized_path=folder, epochs=epochs, **options))  # type: ignore[arg-type]
        return root / "sample" / str(made.parameters["fingerprint"])

    plans = [planned(f"rows-{share}", rows_of, 1, share, 3) for share in shares]
    return plans, planned("rows-apart", 40, 2, 0.0, 1)


def _write(path: Path, data: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = zip(data.questions.tolist(), data.answers.tolist(), strict=True)
    with path.open("w") as file:
        for question, answer in texts:
            row = {"condition": "direct", "instruction": _letters(question), "response": _letters(answer)}
            file.write(json.dumps(row) + "\n")


def _letters(symbols: list[int]) -> str:
    return "".join(chr(ord("A") + one) for one in symbols)
