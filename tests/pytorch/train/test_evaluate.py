"""Held-out loss: that of every row on its own, by source, whatever the batches and the ranks."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pairmill.errors import InputError
from pairmill.nets import attention
from pairmill.nets.batch import Packed, read_held_out
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.net import Net, Sees
from pairmill.nets.settings import ModelSettings
from pairmill.stages.train.data.inputs import Inputs, open_inputs
from pairmill.stages.train.run.held_out import compute_held_out_loss
from pairmill.stages.train.watch.records import HeldOut as Losses
from pairmill.training.data_settings import DataSettings
from pairmill.training.settings import BatchSettings, EvaluationSettings, TrainSettings
from tests.pytorch.train.test_data import Asked
from tests.support.data import samples
from tests.support.data.tokens_and_mixtures import Bench

MODEL = ModelSettings(layers=1, width=16, heads=2, feed_width=32)


@dataclass
class One:
    """A rank that hears nothing of the others."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def settings(slots: int = 64, rows: int = 0, data: DataSettings | None = None) -> TrainSettings:
    return TrainSettings(
        model=MODEL,
        batch=BatchSettings(tokens=slots),
        evaluation=EvaluationSettings(rows=rows),
        data=data or DataSettings(),
    )


def sees(packed: Packed) -> Sees:
    return attention.sees(packed)


ALONE: Any = One()


def losses(net: Net, inputs: Inputs, wanted: TrainSettings, ranks: Any = ALONE) -> Losses:
    assert inputs.held_out is not None
    return compute_held_out_loss(net, sees, inputs.held_out, wanted, ranks)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Inputs, Net]:
    """Held-out rows of two sources, as the sampler makes them."""
    bench = Bench(tmp_path_factory.mktemp("held"))
    draw = np.random.default_rng(3)
    for name in ("a__1", "b__1", "a__2"):
        bench.put(name, draw.integers(2, 9, 20))
    (bench.tokenized / "tokenizer_info.json").write_text('{"vocab_size": 400}')
    bench.run(mixture="", epochs=1)
    train = samples.sampled(bench.folder / "train", [[(3, 9)] * 9], ids=400, tokenizer_info={"vocab_size": 400})
    inputs = open_inputs(Asked(sampled=[str(train)], held_out=str(bench.target)), settings())
    net = build(MODEL, inputs.vocab_size, inputs.positions)
    initialise(net, 1)
    return bench, inputs, net


def test_it_is_that_of_each_row_alone(made: tuple[Bench, Inputs, Net]) -> None:
    bench, inputs, net = made
    tokens, (starts, inst, _, resp) = samples.arrays(bench.target)
    tasks = bench.epoch(0).task
    by: dict[str, list[float]] = defaultdict(list)
    for start, prefix, response, task in zip(starts, inst, resp, tasks, strict=True):
        ids = torch.from_numpy(tokens[start : start + prefix + response].astype(np.int64))
        count = len(ids) - 1
        labels = ids[1:].clone()
        labels[: prefix - 1] = -100
        packed = Packed(ids[:-1], torch.arange(count), labels, (0, count), (int(prefix),))
        with torch.no_grad():
            logits = net.logits(net(packed, sees(packed)))
        alone = functional.cross_entropy(logits, labels, reduction="none")[labels != -100]
        by["a" if task in (0, 2) else "b"] += alone.tolist()
    found = losses(net, inputs, settings())
    every = by["a"] + by["b"]
    assert found.labels == len(every) == resp.sum()
    assert found.loss == pytest.approx(math.fsum(every) / len(every), rel=1e-6)
    assert found.by_source == {
        name: pytest.approx(math.fsum(by[name]) / len(by[name]), rel=1e-6) for name in ("a", "b")
    }


def test_ranks_and_slots_change_nothing(made: tuple[Bench, Inputs, Net]) -> None:
    _, inputs, net = made
    whole = losses(net, inputs, settings())
    parts = [losses(net, inputs, settings(128), One(rank, 2)) for rank in range(2)]
    assert sum(part.labels for part in parts) == whole.labels
    assert sum(part.loss * part.labels for part in parts) / whole.labels == pytest.approx(whole.loss, rel=1e-6)


def test_a_bound_takes_the_same_rows_each_time(made: tuple[Bench, Inputs, Net]) -> None:
    _, inputs, net = made
    some = losses(net, inputs, settings(rows=10))
    assert some == losses(net, inputs, settings(rows=10))
    assert losses(net, inputs, settings(32, rows=10)).labels == some.labels < losses(net, inputs, settings()).labels
    assert losses(net, inputs, settings(rows=10_000)) == losses(net, inputs, settings())


def test_windows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(2).integers(1, 90, 321))
    wanted = settings(64, data=DataSettings(seq_len=8, vocab_size=90, held_out_share=0.25))
    inputs = open_inputs(Asked(windows=[str(tmp_path)]), wanted)
    net = build(MODEL, inputs.vocab_size, inputs.positions)
    initialise(net, 1)
    found = losses(net, inputs, wanted)
    assert found.labels == 80
    assert found.by_source == {tmp_path.name: found.loss}
    assert 4 < found.loss < 8


def test_documents_of_a_window_see_each_other_with_the_profile_alone(tmp_path: Path) -> None:
    tokens = np.random.default_rng(3).integers(2, 90, 321)
    tokens[::5] = 1
    np.save(tmp_path / "a.npy", tokens)
    data = DataSettings(seq_len=8, vocab_size=90, held_out_share=0.25, eos_id=1)
    rows = {}
    for profile in ("pairmill", "kempner"):
        inputs = open_inputs(Asked(windows=[str(tmp_path)]), replace(settings(64, data=data), profile=profile))
        assert inputs.held_out is not None
        batches = list(read_held_out(inputs.held_out, 0, 64, torch.device("cpu")))
        rows[profile] = sum(batch.packed.rows for batch in batches)
    assert rows["kempner"] == 10
    assert rows["pairmill"] > 20


def test_rows_without_a_label_are_refused(tmp_path: Path) -> None:
    # A window of one token that ends a document predicts nothing.
    for name, ids in (("a", [1, 2, 3, 4]), ("b", [0, 0, 0])):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", np.array(ids, np.uint16))
    wanted = settings(8, data=DataSettings(seq_len=2, vocab_size=9, eos_id=0))
    inputs = open_inputs(Asked(windows=[str(tmp_path / "a")], held_out=str(tmp_path / "b")), wanted)
    net = build(MODEL, inputs.vocab_size, inputs.positions)
    initialise(net, 1)
    with pytest.raises(InputError, match="no held-out row has a label"):
        losses(net, inputs, wanted)
