"""Recorded cases of training: run by ``make conformance`` where torch is, without the fixtures of other tests."""

from pathlib import Path

import pytest

from tests.pytorch_conformance.recorded import TRAIN


@pytest.fixture(scope="session", autouse=True)
def train() -> Path:
    """The folder of the recorded cases."""
    if not TRAIN.is_dir():
        pytest.fail(f"no recorded cases at {TRAIN}; set PAIRMILL_SHARED")
    return TRAIN
