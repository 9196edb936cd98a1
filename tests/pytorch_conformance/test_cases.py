"""What is recorded is there: a folder that is empty would let every test of it pass."""

from pathlib import Path

import pytest

FOLDERS = ("", "models", "run", "run/data", "run/data/epoch_0", "generate", "llama", "evaluate")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_recorded_cases_has_its_files(train: Path, folder: str) -> None:
    assert any(path.is_file() for path in (train / folder).iterdir())
