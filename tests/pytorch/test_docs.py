"""The code of docs/loader.md runs as it is written there."""

import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.distributed.checkpoint as dcp

from pairmill.loader import Loader, Phase, RowPlan
from tests.support.peers.hrm import HrmDataset

TEXT = (Path(__file__).resolve().parents[2] / "docs/loader.md").read_text()


def block(heading: str, number: int = 0) -> str:
    """A block of code below a heading."""
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)[number]


def indented(after: str) -> str:
    """The indented block that begins with these words."""
    lines = TEXT[TEXT.index(after) :].splitlines()
    end = next(number for number, line in enumerate(lines) if line and not line.startswith("    ") and number)
    return inspect.cleandoc("\n".join(["    " + lines[0].strip(), *lines[1:end]]))


def test_the_first_lines(sampled: Path) -> None:
    steps: list[tuple[Any, ...]] = []
    code = indented("from pairmill.loader import Loader, RowPlan\n").replace("/dev/shm/pairmill-demo", str(sampled))
    exec(code, {"step": lambda *arrays: steps.append(arrays)})
    assert len(steps) == 3 * 58
    assert len(steps[0]) == 4


def test_the_lines_for_torch(sampled: Path) -> None:
    steps: list[Any] = []
    code = block("torch").replace("/dev/shm/sampled", str(sampled)).replace(", allocate=pinned", "")
    exec(code, {"train": lambda tensors, scalars: steps.append(scalars["numseqs"])})
    assert len(steps) == 3 * 58


def test_the_lines_for_phases(sampled: Path) -> None:
    code = indented("plan = RowPlan(\n")
    for name in ("broad", "math"):
        code = code.replace(f"/dev/shm/{name}", str(sampled))
    found: dict[str, Any] = {"RowPlan": RowPlan, "Phase": Phase}
    exec(code, found)
    assert [phase.source for phase in found["plan"].phases] == ["broad", "math", "broad"]


@pytest.mark.filterwarnings("ignore:allocate=pinned", "ignore:torch.distributed is disabled")
def test_in_hrm_texts_trainer(sampled: Path, tmp_path: Path) -> None:
    """Its own loop, with the lines of the document: the same batches, and resumed in mid-epoch."""
    found: dict[str, Any] = {"V1DatasetMeta": lambda **values: SimpleNamespace(**values)}
    exec(block("In HRM-Text's trainer"), found)
    config = SimpleNamespace(data=SimpleNamespace(path=str(sampled), target_only=True), epochs=2)
    arguments: dict[str, Any] = {"local_batch_size": 8192, "drop_last_batch": True, "rank": 1, "world_size": 3}
    train_loader, meta = found["create_dataloader"](config, **arguments)
    reference = HrmDataset(sampled, batch_max_length=8192, rank=1, num_replicas=3)
    assert (meta.vocab_size, meta.max_seq_len) == (512, reference.metadata.max_seq_len)
    assert meta.total_length == reference.metadata.total_length
    assert "vocab_size" not in meta.tokenizer_info

    state = SimpleNamespace(step=0)
    expected = [pair for _ in range(2) for pair in reference]
    for _ in range(1, config.epochs + 1):
        for batch, batch_info in train_loader:
            arrays, scalars = expected[state.step]
            assert batch_info == scalars
            assert all(np.array_equal(value.numpy(), arrays[name]) for name, value in batch.items())
            state.step += 1
            if state.step == 70:
                save = block("In HRM-Text's trainer", 1).replace('"model": …, "optim": …, ', "")
                exec(save, {"dcp": dcp, "train_loader": train_loader, "train_state": state, "folder": tmp_path})
    assert state.step == len(expected) > 110

    again, resumed = SimpleNamespace(step=0), []
    train_loader, _ = found["create_dataloader"](config, **arguments)
    load = block("In HRM-Text's trainer", 2).replace("    ...", "    resumed += [info for _, info in train_loader]")
    names = {"config": config, "train_loader": train_loader, "train_state": again, "resumed": resumed}
    exec(load, {"dcp": dcp, "folder": tmp_path, "saved": {"data": train_loader, "step": 0}} | names)
    assert again.step == 70
    assert resumed == [scalars for _, scalars in expected[70:]]


@pytest.mark.parametrize("what", [RowPlan, Loader])
def test_every_option_is_in_its_table(what: Any) -> None:
    table = TEXT.split(f"| `{what.__name__}` |")[1].split("\n\n")[0]
    first = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(first))
    assert [name for name in inspect.signature(what).parameters if name != "plan"] == named
