"""Perplexity by a KenLM model, line by line."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from pairmill.extras import require
from pairmill.fields import Checked, setting
from pairmill.formats import rows
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import Mode, Reasons, Rule, ScoredOperation
from pairmill.stages.curate.scores.fields import PREFIX, Field, texts_of
from pairmill.stages.curate.scores.models import Model

_EXTRA: Final = "perplexity"
_PIECES: Final = "sentencepiece:"
_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class PerplexitySettings(Checked):
    """Perplexity by a KenLM model. A bound means nothing without the model."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "max")

    mode: Mode = setting(
        "off", help="drop, report or off", needs="model", hint="model: has the path or URI of a KenLM model"
    )
    model: str = setting("", help="path or URI of a KenLM model, binary or ARPA")
    tokenizer: str = setting(
        "none",
        help="none (words between blanks), or sentencepiece:<path or URI of its model>",
        form=(rf"none|{_PIECES}.*\S.*", f"none, or {_PIECES}<path or URI>"),
    )
    normalise: Literal["none", "ccnet"] = setting(
        "none", help="none, or ccnet (lower case, digits as 0, punctuation as ASCII), which the usual web models need"
    )
    max: float = setting(5000, help="greatest perplexity that is kept", above=0)
    fields: list[Field] = setting(
        ["instruction", "response"],
        help="instruction, response or both, each with a perplexity of its own",
        filled=True,
        unique=True,
    )

    def scorers(self, root: str) -> list[Scorer]:
        """Return the scorer, with its models digested, whatever the mode: an override may have another one."""
        require(_EXTRA, "kenlm", where="perplexity")
        pieces = None
        if self.tokenizer != "none":
            require(_EXTRA, "sentencepiece", where="perplexity.tokenizer")
            pieces = Model.from_place(self.tokenizer.removeprefix(_PIECES).strip(), "perplexity.tokenizer")
        model = Model.from_place(self.model, "perplexity.model")
        return [PerplexityScorer(model, pieces, self.normalise == "ccnet", tuple(self.fields))]

    def rules(self) -> list[Rule]:
        """Return one for each field; a null (a text without words) breaks none."""
        names = [_column(name) for name in self.fields]
        return [Rule(name, name, max=self.max) for name in names]


@dataclass(frozen=True)
class PerplexityScorer(Scorer):
    """The perplexity of each field; null where it has no word."""

    operation: ClassVar[str] = "perplexity"
    model: Model
    pieces: Model | None
    ccnet: bool
    fields: tuple[Field, ...]

    def identity(self) -> list[Any]:
        pieces = None if self.pieces is None else self.pieces.identity
        parts = [_VERSION, self.model.identity, pieces, self.ccnet, list(self.fields)]
        # Lower case and categories are Python's.
        return [*parts, unicodedata.unidata_version] if self.ccnet else parts

    def types(self) -> dict[str, str]:
        return {_column(name): "number" for name in self.fields}

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with ExitStack() as stack:
            model = _load(self.model, stack.enter_context(self.model.used()))
            cut: Callable[[str], list[str]] = str.split
            if self.pieces is not None:
                cut = _load_pieces(self.pieces, stack.enter_context(self.pieces.used()))

            def perplexity_of(text: str) -> float | None:
                total, words = log10(model, text, cut, normalise_ccnet if self.ccnet else None)
                return perplexity(total, words)

            def score(batch: rows.Batch) -> Scored:
                return Scored(
                    [
                        pa.array([perplexity_of(text) for text in texts_of(batch, item)], pa.float64())
                        for item in self.fields
                    ]
                )

            yield score


def _column(name: Field) -> str:
    return f"{PREFIX[name]}_perplexity"


def log10(
    model: Any, text: str, cut: Callable[[str], list[str]], normalise: Callable[[str], str] | None = None
) -> tuple[float, int]:
    """Add up log10 P over the lines of a text that have words; return also how many words and ends there are.

    Args:
        model: of KenLM.
        text: of a field.
        cut: a line into words.
        normalise: a line, before.
    """
    total, count = 0.0, 0
    for line in text.split("\n"):
        words = cut(normalise(line) if normalise is not None else line)
        if words:
            total += model.score(" ".join(words), bos=True, eos=True)
            count += len(words) + 1
    return total, count


def perplexity(total: float, count: int) -> float | None:
    """Return the perplexity of a sum of log10 P, bounded so that no line makes it infinite; None without a word."""
    return 10.0 ** min(-total / count, 300.0) if count else None


def _load(model: Model, path: Path) -> Any:
    import kenlm

    options = kenlm.Config()
    options.show_progress = False
    options.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        # A binary model is mapped: the processes of a machine share it.
        return kenlm.Model(str(path), options)
    except (OSError, RuntimeError, ValueError) as error:
        # After the place in its source.
        why = str(error).partition(" threw ")[2] or str(error).partition(" (")[2]
        raise model.wrong(path, "a KenLM model (ARPA or binary)", why.removesuffix(")") or str(error)) from error


def _load_pieces(model: Model, path: Path) -> Callable[[str], list[str]]:
    from sentencepiece import SentencePieceProcessor

    try:
        processor = SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise model.wrong(path, "a SentencePiece model", str(error)) from error

    def cut(line: str) -> list[str]:
        # A blank within a piece would be another word to KenLM.
        return [piece for piece in processor.encode(line.strip(), out_type=str) if piece.strip()]

    return cut


_ASCII: Final = str.maketrans(
    {
        **dict.fromkeys("，、", ","),
        "。": ".",
        "．": ". ",
        **dict.fromkeys("„”“«»」「《》", '"'),
        **dict.fromkeys("´’‘", "'"),
        **dict.fromkeys("∶：", ":"),
        "？": "?",
        "！": "!",
        "（": "(",
        "）": ")",
        "；": ";",
        **dict.fromkeys("–━►", "-"),
        "—": " - ",
        "～": "~",
        "…": "...",
        "〈": "<",
        "〉": ">",
        "【": "[",
        "】": "]",
        "％": "%",
        # Control characters.
        **dict.fromkeys(map(chr, [*range(0x20), *range(0x7F, 0xA0)])),
    }
)


def normalise_ccnet(line: str) -> str:
    """Return a line as the usual web models were trained on it: lower case, digits as 0, punctuation as ASCII."""
    return re.sub(r"\d", "0", line.strip().lower()).translate(_ASCII)


PERPLEXITY: Final = ScoredOperation(
    name="perplexity", settings=PerplexitySettings, help="perplexity by a KenLM model", reasons=Reasons("perplexity")
)
