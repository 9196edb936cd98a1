"""What HRM-Text's own trainer reads of a sampled folder is there, under its names and in types that its loader bears.

docs/training.md sends users there for real scale: ``pretrain.py data.path=/dev/shm/pairmill/<plan>``.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.interface import cli
from pairmill.stages.train.config import TrainConfig
from tests.support import tools
from tests.support.helpers import REPOSITORY
from tests.support.peers.hrm import HrmDataset

EPOCHS = 2
TRAINJOB = REPOSITORY / "manifests/examples/trainjob/trainjob.yaml"
LENGTHS = ("int32", "uint32", "int64", "uint64")
"""Types of lengths for which its packing does not overflow."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node: a plan of generated rows, carried out as the sampler's DaemonSet does."""
    folder = tmp_path_factory.mktemp("node")
    tools.raw_data(folder / "raw", size=40, seed=1)
    options: dict[str, Any] = {"vocab_size": 512, "epochs": EPOCHS, "context_size": 4097}
    places = {"raw": folder / "raw", "root": folder / "root", "output_path": folder / "shm" / "{fingerprint}"}
    tools.ended(tools.run(tools.command("run", **places, **options)))
    return folder / "shm"


@pytest.fixture(scope="module")
def sampled(node: Path) -> Path:
    """The folder of the plan, by the name that the node's file PLAN says."""
    return node / (node / "PLAN").read_text().strip()


def test_its_metadata_are_what_its_loader_asserts(sampled: Path) -> None:
    about = json.loads((sampled / "metadata.json").read_text())
    assert about["vocab_size"] is None
    assert type(about["max_seq_len"]) is type(about["total_length"]) is int
    assert (about["max_seq_len"], about["tokenizer_info"]["vocab_size"]) == (4097, 512)
    # What the model's configuration is handed.
    assert {"boq", "eoq", "eoa", "condition_mapping"} <= about["tokenizer_info"].keys()


def test_its_arrays_are_there_for_every_epoch(sampled: Path) -> None:
    tokens = np.load(sampled / "tokens.npy", mmap_mode="r")
    assert tokens.ndim == 1
    assert np.issubdtype(tokens.dtype, np.integer)
    assert int(tokens.max()) < 512
    lengths = 0
    for epoch in range(EPOCHS):
        names = ("inst_start", "inst_len", "resp_start", "resp_len")
        index = {name: np.load(sampled / f"epoch_{epoch}" / f"{name}.npy", mmap_mode="r") for name in names}
        assert len({len(one) for one in index.values()}) == 1
        assert len(index["inst_len"]) > 100
        for part in ("inst", "resp"):
            start, length = (index[f"{part}_{name}"].astype(np.int64) for name in ("start", "len"))
            assert index[f"{part}_len"].dtype.name in LENGTHS
            assert length.min() >= 1
            assert (start >= 0).all()
            assert (start + length <= len(tokens)).all()
        lengths += int((index["inst_len"].astype(np.int64) + index["resp_len"]).sum())
        assert (index["inst_len"].astype(np.int64) + index["resp_len"]).max() <= 4097
    about = json.loads((sampled / "metadata.json").read_text())
    # An epoch's mean, of which it makes the planned steps.
    assert about["total_length"] == lengths // EPOCHS
    assert not (sampled / f"epoch_{EPOCHS}").exists()


def test_its_loader_reads_it_to_the_end(sampled: Path) -> None:
    dataset = HrmDataset(sampled, batch_max_length=4096)
    batches = [0, 0]
    for epoch in range(EPOCHS):
        for arrays, scalars in dataset:
            assert list(arrays) == ["inputs", "labels", "position_ids", "prefix_lens", "causal_lens", "cu_seqlens"]
            assert scalars["total_seqlen"] <= 4096
            batches[epoch] += 1
    assert min(batches) > 2


def test_the_example_job_offers_both_trainers() -> None:
    text = TRAINJOB.read_text()
    shown = yaml.safe_load(text)["spec"]["trainer"]
    assert shown["command"][:3] == ["torchrun", "pretrain.py", "data.path=/dev/shm/pairmill/$(PLAN)"]
    # The other two lines, in place of these.
    (block,) = re.findall(r"\n((?:    # (?:image|command): .*\n){2})", text)
    ours = yaml.safe_load(block.replace("    # ", ""))
    assert set(ours) == {"image", "command"} <= set(shown)
    assert ours["command"][:4] == ["torchrun", "-m", "pairmill", "train"]
    config = cli.build(TrainConfig, cli.split(ours["command"][4:]))
    assert config.sampled == ["/dev/shm/pairmill/$(PLAN)"]
    said = (REPOSITORY / "docs/training.md").read_text()
    assert f"command: [{', '.join(shown['command'])}]" in said
