"""Every kind of data, with every net and schedule: killed and started again, a run has the same weights and lines."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from tests.pytorch.train import tiny
from tests.pytorch.train.test_kill import dying, killed, same
from tests.support.nets.trained_runs import tokenizer


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


EVERY = ("checkpoints.every_steps=2", "checkpoints.keep=2", "evaluation.every_steps=3", "evaluation.rows=9")


@dataclass(frozen=True)
class Kind:
    """Options and settings of a run, and how its sources are named."""

    options: dict[str, Any]
    settings: tuple[str, ...]
    sources: set[str]


def flat(folder: Path, **files: int) -> Path:
    """A folder of flat files of so many tokens."""
    folder.mkdir(parents=True)
    for number, (name, count) in enumerate(files.items()):
        np.save(folder / f"{name}.npy", np.random.default_rng(number).integers(1, 250, count).astype(np.uint32))
    return folder


def windows(tmp_path: Path) -> Kind:
    """Two sources, a part of them held out, documents kept apart; parts of a step."""
    paths = [f"{name}={flat(tmp_path / name, x=size)}" for name, size in (("web", 1600), ("code", 900))]
    settings = (
        *("model.net=llama", "model.heads=4", "model.key_value_heads=2", "model.qk_norm=true", "optimizer.name=adamw"),
        *("data.seq_len=16", "data.weights={web: 1, code: 2}", "data.temperature=2.0", "data.eos_id=3"),
        *("data.held_out_share=0.2", "data.vocab_size=250", "batch.accumulate=2", "optimizer.clip=0.5"),
        *("schedule.shape=linear", "training.steps=9"),
    )
    return Kind({"windows": paths}, settings, {"web", "code"})


def mixture(tmp_path: Path) -> Kind:
    """Two sampled folders, one after another, the second with half of the rate; stacks of three blocks, one head."""
    paths = [f"{name}={tiny.data(tmp_path / name, seed=seed)}" for name, seed in (("one", 3), ("two", 4))]
    settings = (
        *(
            "model.net=hrm",
            "model.layers=6",
            "model.heads=1",
            "model.width=18",
            "model.norm=post",
            "batch.accumulate=2",
        ),
        "data.phases=[{source: one}, {source: two, step: 4, lr_scale: 0.5}]",
        *("schedule.shape=wsd", "training.ema=0.9", "training.steps=8"),
    )
    return Kind({"sampled": paths}, settings, {"one", "two"})


def hub(tmp_path: Path) -> Kind:
    """Texts that are read and tokenized before."""
    draw = np.random.default_rng(1)
    for split, count in (("train", 60), ("test", 9)):
        texts = ["".join(chr(97 + one) for one in draw.integers(0, 26, draw.integers(3, 40))) for _ in range(count)]
        (tmp_path / "texts").mkdir(exist_ok=True)
        # Of Parquet files the library waits for a second at the end of each epoch.
        lines = [json.dumps({"text": text}) for text in texts]
        (tmp_path / "texts" / f"{split}.jsonl").write_text("\n".join(lines))
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    name = str(tmp_path / "texts")
    settings = (
        *("model.net=rins", "model.layers=2", "data.seq_len=16", "data.hub.eos=<|endoftext|>"),
        *("data.hub.held_out_split=test", "schedule.shape=constant"),
    )
    return Kind({"hub": name, "tokenizer": str(tmp_path / "tokenizer.json")}, settings, {name})


def stream(tmp_path: Path) -> Kind:
    """The same, read and tokenized while it trains."""
    found = hub(tmp_path)
    more = ("data.hub.streaming=true", "data.hub.buffer=20", "training.steps=9", "model.net=ut")
    return Kind(found.options, (*found.settings, *more), found.sources)


@pytest.mark.parametrize("kind", [windows, mixture, hub, stream], ids=lambda one: one.__name__)
def test_killed_and_started_again_it_is_the_same_run(tmp_path: Path, kind: Any) -> None:
    data = tmp_path / "data"
    data.mkdir()
    made: Kind = kind(data)

    def config(name: str) -> Any:
        given = {"sampled": [], **made.options}
        folder = given.pop("sampled")
        found = tiny.config(tmp_path / name, Path(os.devnull), *EVERY, *made.settings, **given)
        found.sampled = folder
        return found

    whole = tiny.train(config("whole"))
    lines = tiny.lines(whole)
    steps = [line for line in lines if line["kind"] == "step"]
    held = [line for line in lines if line["kind"] == "heldout"]
    assert len(steps) >= 8
    assert {name.removeprefix("loss/") for line in steps for name in line if name.startswith("loss/")} == made.sources
    assert bool(held) == (kind is not mixture)
    assert steps[-1]["loss"] < steps[0]["loss"] or kind is mixture
    for at in (4, 7):

        def work(at: int = at) -> None:
            dying(at, during=at == 7)
            tiny.train(config("again"))

        killed(work)
    same(tiny.train(config("again")), whole)
