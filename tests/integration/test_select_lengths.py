"""The table of specification curation 9, on generated rows: which settings of DSIR find the rows on theme.

A bucket that the target lacks costs some nine nats if nothing is added to its counts, so that every further word hurts
and the shortest rows win. Of log weights divided by length little is left, so that noise decides.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pairmill.engine import manifest
from pairmill.formats.rows import Row, writer_for
from tests.support.stages.selecting import column, select

SETTINGS = {
    "upstream": {"hash": "sha256", "laplace": 0.0, "length": "none"},
    "whole": {"laplace": 1.0, "length": "none"},
    "default": {},
    "mean": {"laplace": 1.0, "length": "mean"},
}
ROWS, CHOSEN, TARGET = 600, 100, 40
SYLLABLES = "ba de fi go lu ma ne pi ro su ta ve wi xo zu kra ple tri sno glu"


def words(rng: random.Random, number: int) -> list[str]:
    """Invented words."""
    return ["".join(rng.choices(SYLLABLES.split(), k=rng.randint(2, 4))) for _ in range(number)]


class Texts:
    """Rows of common words, with more or fewer of a theme; a row's length says nothing of its theme."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.common, self.themes = words(self.rng, 220), [words(self.rng, 60) for _ in range(2)]

    def text(self, length: int, own: list[str], rate: float) -> str:
        """So many words, a part of them of a theme, and some of any theme."""

        def word() -> str:
            if self.rng.random() < 0.1:
                return self.rng.choice(self.rng.choice(self.themes))
            return self.rng.choice(own) if own and self.rng.random() < rate else self.rng.choice(self.common)

        return " ".join(word() for _ in range(length))

    def row(self, number: int) -> Row:
        """Make a raw row: of three one is about the first theme, one about the second, one about none."""
        own, rate = [*self.themes, []][number % 3], self.rng.random()
        instruction = self.text(self.rng.randint(0, 60), own, rate)
        return Row("direct", instruction, self.text(self.rng.randint(0, 150), own, rate))

    def target(self) -> Row:
        """Make a row of the target: much of the first theme."""
        return Row("direct", *(self.text(length, self.themes[0], 0.6) for length in (20, 60)))


def write(path: Path, rows: list[Row]) -> Path:
    with path.open("wb") as file, writer_for(path.name, file) as writer:
        writer.write(rows)
    return path


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_default_finds_most_rows_on_theme(seed: int, tmp_path: Path) -> None:
    texts = Texts(seed)
    rows = write(tmp_path / "rows.jsonl", [texts.row(number) for number in range(ROWS)])
    target = write(tmp_path / "target.jsonl", [texts.target() for _ in range(TARGET)])
    on_theme, reduction, length = {}, {}, {}
    for name, more in SETTINGS.items():
        dsir = {"targets": [{"name": "theme", "rows": str(target)}], **more}
        made = select(tmp_path / name, rows, {"method": "dsir", "rows": CHOSEN, "dsir": dsir}, seed=seed)
        ordinals = column(made, "rows.jsonl", "ordinal", "origin")
        assert len(ordinals) == CHOSEN
        on_theme[name] = sum(item % 3 == 0 for item in ordinals) / CHOSEN
        result = manifest.read(str(made))
        assert result is not None
        compared = result.data["divergences"]["theme"]
        reduction[name] = compared["reduction"]
        length[name] = compared["mean_features_selected"] / compared["mean_features_raw"]
    assert sorted(on_theme, key=on_theme.__getitem__, reverse=True) == ["default", "whole", "upstream", "mean"]
    assert sorted(reduction, key=reduction.__getitem__, reverse=True) == ["default", "whole", "mean", "upstream"]
    # What the settings do to lengths: the shortest rows win without anything added, and the default keeps them.
    assert sorted(length, key=length.__getitem__) == ["upstream", "whole", "default", "mean"]
