"""What needs torch: run by ``make torch-test``, in an environment of its own and without the other tests' fixtures.

The folder is not called torch: other tests import from the one above, and libraries would take it for torch.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sampled() -> Path:
    """The demo's samples: three epochs of rows of at most 169 inputs."""
    folder = ROOT / "build/train/sampled"
    assert (folder / "metadata.json").exists(), f"{folder} is not there: make torch-test"
    return folder
