"""A small project with two plans."""

from pathlib import Path

import pytest

from tests.support.nets import shuffled_answers

SETTINGS = (
    shuffled_answers.SETTINGS.replace("every_steps: 0, rows: 64", "every_steps: 2, rows: 20")
    .replace("warmup_steps: 5", "warmup_steps: 1")
    .replace("tokens: 640", "tokens: 256")
)


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, list[Path], Path]:
    """Its root, the plans of 0 and of 50 % of answers shuffled, and the held-out plan."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.yaml").write_text(SETTINGS)
    plans, held_out = shuffled_answers.project(root, (0.0, 0.5))
    return root, plans, held_out
