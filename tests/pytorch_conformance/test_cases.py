"""What is recorded is there: a folder that is empty would let every test of it pass."""

from pathlib import Path

import pytest

FOLDERS = {"": 11, "models": 18, "run": 5, "generate": 6, "llama": 9, "evaluate": 8}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_recorded_cases_has_its_files(train: Path, folder: str) -> None:
    assert len([path for path in (train / folder).iterdir() if path.is_file()]) >= FOLDERS[folder]
