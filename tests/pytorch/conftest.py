"""What needs torch: run by ``make torch-test``, in an environment of its own and without the other tests' fixtures.

The folder is not called torch: other tests import from the one above, and libraries would take it for torch.
"""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sampled() -> Path:
    """The demo's samples: three epochs of rows of at most 169 inputs."""
    folder = ROOT / "build/train/sampled"
    assert (folder / "metadata.json").exists(), f"{folder} is not there: make torch-test"
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """A run in this process sets torch's threads. Two of them make tiny nets 20 times slower, and a fork may hang."""
    torch.set_num_threads(1)
