"""fastText models: language identification and classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pairmill.stages.curate.scores import fasttext_file
from pairmill.stages.curate.scores.models import Model

MODULE: Final = "fasttext"
EXTRA: Final = "classifiers"
_PREFIX: Final = "__label__"


@dataclass(frozen=True)
class FastText:
    """A loaded model, its labels without ``__label__``."""

    labels: list[str]
    _model: Any

    def predict(self, text: str, count: int) -> list[tuple[str, float]]:
        """Return the ``count`` most probable labels of a line of text, all with -1, and probabilities in [0, 1]."""
        labels, result = self._model.predict(text, k=count, threshold=0.0)
        bounded = np.clip(np.array(result, np.float32), 0, 1).tolist()
        return list(zip((label.removeprefix(_PREFIX) for label in labels), bounded, strict=True))


def load_fasttext(model: Model, path: Path) -> FastText:
    """Load a fastText model. Raises InputError if the file is not one."""
    import fasttext

    try:
        labels = fasttext_file.labels_of(path)
        loaded = fasttext.load_model(str(path))
    except ValueError as error:
        raise model.wrong(path, "a supervised fastText model", str(error)) from error
    return FastText([label.removeprefix(_PREFIX) for label in labels], loaded)


def one_line(text: str) -> str:
    """Return a text with blanks in place of line feeds."""
    return text.replace("\n", " ")
