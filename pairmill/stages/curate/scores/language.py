"""Language identification by a fastText model, and ``und`` where a text says nothing of its language."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from pairmill import _native
from pairmill.extras import require
from pairmill.fields import Checked, setting
from pairmill.formats import rows
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import Mode, Reasons, Rule, ScoredOperation
from pairmill.stages.curate.scores.fasttext import EXTRA, KIND, MODULE, load_fasttext, one_line
from pairmill.stages.curate.scores.models import Model

UNDETERMINED: Final = "und"
_CHARACTERS: Final = 2000
_LETTERS: Final = 20
_SHARE: Final = 0.5
_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(Checked):
    """Language identification."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "keep", "min_p")

    mode: Mode = setting(
        "off", help="drop, report or off", needs="model", hint="model: has the path or URI of a fastText model"
    )
    model: str = setting("", help="path or URI of a fastText model such as lid.176.ftz")
    keep: list[str] = setting(
        ["en"],
        help="languages that are kept, as the model names them; rows of no known language (und) are kept too",
        filled=True,
    )
    min_p: float = setting(0.65, help="least probability of the language", at_least=0, at_most=1)

    def scorers(self, root: str) -> list[Scorer]:
        """Return the scorer, with the model digested, whatever the mode: an override may have another one."""
        require(EXTRA, MODULE, where="language")
        return [LanguageScorer(Model.from_place(self.model, "language.model"))]

    def rules(self) -> list[Rule]:
        """Languages that are kept, and the least probability."""
        kept = dict.fromkeys([*self.keep, UNDETERMINED])
        return [Rule("language", "lang", values=tuple(kept)), Rule("language_min_p", "lang_p", min=self.min_p)]


@dataclass(frozen=True)
class LanguageScorer(Scorer):
    """The most probable language of each row, and its probability; null where it is ``und``."""

    operation: ClassVar[str] = "language"
    model: Model

    def identity(self) -> list[Any]:
        return [_VERSION, _native.curate_unicode(), self.model.identity]

    def types(self) -> dict[str, str]:
        return {"lang": "text", "lang_p": "number"}

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with self.model.used() as path:
            model = self.model.load(load_fasttext, path, KIND)

            def score(batch: rows.Batch) -> Scored:
                names: list[str] = []
                result: list[float | None] = []
                for text in chosen_texts(batch.instruction.to_pylist(), batch.response.to_pylist()):
                    ((label, p),) = model.predict(text, 1) if text is not None else [(UNDETERMINED, None)]
                    names.append(label)
                    result.append(p)
                counts = {f"language {name}": names.count(name) for name in sorted(set(names))}
                return Scored([pa.array(names, pa.string()), pa.array(result, pa.float64())], counts=counts)

            yield score


def chosen_texts(instructions: Sequence[str], responses: Sequence[str]) -> list[str | None]:
    """Return the text of each row by which its language is told: its response, else its instruction, else both.

    A text is taken if its first 2,000 characters have 20 letters at least, and half of those that are not white space
    are letters. Formulas and code are not: models take them for any language. None = no text of the row is.
    """
    chosen: list[str | None] = [one_line(text[:_CHARACTERS]) for text in responses]
    _take_again(chosen, lambda row: instructions[row])
    _take_again(chosen, lambda row: f"{instructions[row]} {responses[row]}")
    _take_again(chosen, None)
    return chosen


def _take_again(chosen: list[str | None], other: Callable[[int], str] | None) -> None:
    """Replace the texts that say nothing."""
    letters, visible = _native.curate_letters(pa.array([text or "" for text in chosen], pa.large_string()))
    silent = (letters < _LETTERS) | (letters < _SHARE * visible)
    for row in np.flatnonzero(silent).tolist():
        chosen[row] = one_line(other(row)[:_CHARACTERS]) if other is not None else None


LANGUAGE: Final = ScoredOperation(
    name="language",
    settings=LanguageSettings,
    help="language identification",
    reasons=Reasons("language"),
    meanings={"language": "another language than those that are kept"},
)
