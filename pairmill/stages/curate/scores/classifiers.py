"""Classifiers of texts: fastText, ONNX and our own, each with columns of probabilities and one of the best label."""

import dataclasses
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pairmill import _native
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.extras import require
from pairmill.fields import Checked, setting
from pairmill.formats import rows
from pairmill.formats.settings_file import Part
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import Mode, Reasons, Rule, ScoredOperation
from pairmill.stages.curate.scores import logit
from pairmill.stages.curate.scores.fasttext import EXTRA, KIND, MODULE, load_fasttext, one_line
from pairmill.stages.curate.scores.fields import PREFIX, Field, columns_of, texts_of
from pairmill.stages.curate.scores.models import Model

_VERSION: Final = 1
_USUAL_INPUTS: Final[Mapping[str, str]] = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types"}
_PARTS: Final = tuple(_USUAL_INPUTS.values())
_DTYPES: Final[Mapping[str, type[np.generic]]] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

Kind: TypeAlias = Literal["fasttext", "onnx", "logit"]
Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]


@dataclass(frozen=True, kw_only=True)
class LabelRule(Checked, any_of=("min", "max")):
    """Bounds of a label's probability."""

    label: str = setting(help="one of the classifier's labels")
    min: float | None = setting(None, help="least probability that is kept")
    max: float | None = setting(None, help="greatest probability that is kept")


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings(Checked):
    """A classifier."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "rules")

    name: str = setting(
        help="of its attributes, and in the ledger",
        filled=True,
        form=("[A-Za-z_][A-Za-z0-9_]*", "a name of letters, digits and _"),
    )
    kind: Kind = setting(help="fasttext, onnx, or logit, which train_classifier makes")
    model: str = setting(help="path or URI of the model; of onnx also of a folder with model.onnx and tokenizer.json")
    field: Field = setting("response", help="instruction, response, or both")
    labels: list[str] = setting(
        [],
        help="in the order of the model's output; of logit the positive label, then the other one; of fasttext without "
        "__label__",
        filled=True,
        unique=True,
        form=(".+", "names that differ"),
    )
    lowercase: bool = setting(False, help="lower the case of texts first; fasttext and onnx")
    tokenizer: str = setting("", help="path or URI of a tokenizer.json; onnx")
    inputs: dict[str, str] = setting(
        {},
        help="what each input of the model gets: ids, mask or types; onnx, where its names are not the usual ones",
        choices=_PARTS,
    )
    activation: Activation = setting("softmax", help="what makes probabilities of the model's output; onnx")
    max_tokens: int = setting(512, help="longer texts are cut; onnx", at_least=1)
    mode: Mode = setting("report", help="drop, report or off")
    rules_: list[LabelRule] = setting([], help="items {label, min, max}")

    def __post_init__(self) -> None:
        if not self.labels and self.kind == "logit":
            object.__setattr__(self, "labels", list(logit.LABELS))
        super().__post_init__()
        if self.kind == "logit" and len(self.labels) != 2:
            raise UsageError("not two labels", where="labels", got=str(self.labels), expected="[positive, negative]")
        for number, rule in enumerate(self.rules_, 1):
            if rule.label not in self.labels:
                hint, expected = did_you_mean(rule.label, self.labels), ", ".join(self.labels)
                where = f"rules[{number}].label"
                raise UsageError("unknown label", where=where, got=repr(rule.label), expected=expected, hint=hint)

    @property
    def columns(self) -> list[str]:
        """The columns of probabilities, one for each label."""
        return [self._column(label) for label in self.labels]

    def _column(self, label: str) -> str:
        return f"{PREFIX[self.field]}_{self.name}_{label}"

    def scorers(self, root: str) -> list[Scorer]:
        """Return the scorer, with its model digested, whatever the mode: an override may have another one."""
        option = f"classifiers.{self.name}.model"
        if self.kind == "logit":
            return [LogitScorer(self, Model.from_place(self.model, option))]
        if self.kind == "fasttext":
            require(EXTRA, MODULE, where=f"classifiers.{self.name}")
            return [FastTextScorer(self, Model.from_place(self.model, option))]
        require("onnx", "onnxruntime", where=f"classifiers.{self.name}")
        model = Model.from_place(self.model, option)
        tokenizer = Model.from_place(self.tokenizer, f"classifiers.{self.name}.tokenizer") if self.tokenizer else model
        if not self.tokenizer and model.files[0].path == "":
            expected = "a tokenizer.json, or model: a folder that has it"
            raise UsageError(
                "the tokenizer is not given", where=f"classifiers.{self.name}.tokenizer", expected=expected
            )
        return [OnnxScorer(self, model, tokenizer)]

    def rules(self) -> list[Rule]:
        """Return the bounds as rules of columns."""
        return [Rule(self._column(item.label), self._column(item.label), item.min, item.max) for item in self.rules_]


@dataclass(frozen=True)
class Classifier(Scorer):
    """What all classifiers have: the columns, and the options that change values."""

    operation: ClassVar[str] = "classifiers"
    settings: ClassifierSettings
    model: Model

    @property
    def name(self) -> str:
        return self.settings.name

    def identity(self) -> list[Any]:
        item = self.settings
        return [_VERSION, item.kind, item.field, item.labels, item.lowercase, self.model.identity]

    def types(self) -> dict[str, str]:
        return {**dict.fromkeys(self.settings.columns, "number"), self.name: "text"}

    def scored(self, probabilities: NDArray[np.floating[Any]]) -> Scored:
        """Return the attributes of rows, of probabilities [rows, labels]."""
        # Rounded to float32, which the library of another processor gives too; fastText returns 1.00001.
        result = np.clip(probabilities.astype(np.float32), 0, 1).astype(np.float64)
        best = [self.settings.labels[at] for at in result.argmax(axis=1).tolist()]
        columns = [pa.array(np.ascontiguousarray(result[:, at])) for at in range(result.shape[1])]
        counts = {f"{self.name} {label}": best.count(label) for label in self.settings.labels}
        return Scored([*columns, pa.array(best, pa.string())], counts=counts)

    def texts(self, batch: rows.Batch) -> list[str]:
        """Return the texts of a batch."""
        texts = texts_of(batch, self.settings.field)
        return [text.lower() for text in texts] if self.settings.lowercase else texts


@dataclass(frozen=True)
class LogitScorer(Classifier):
    """Our own classifier."""

    def identity(self) -> list[Any]:
        return [*super().identity(), _native.curate_unicode()]

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with self.model.used() as path:
            weights = self.model.load(logit.load, path, "a logit classifier (.npz)")

            def score(batch: rows.Batch) -> Scored:
                p = weights.probabilities(columns_of(batch, self.settings.field))
                return self.scored(np.stack([p, 1 - p], axis=1))

            yield score


@dataclass(frozen=True)
class FastTextScorer(Classifier):
    """A supervised fastText model."""

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with self.model.used() as path:
            model = self.model.load(load_fasttext, path, KIND)
            labels = self.settings.labels
            unknown = [label for label in labels if label not in model.labels]
            if unknown:
                raise InputError(
                    f"the model has no label {unknown[0]!r}",
                    where=self.model.where,
                    expected=", ".join(model.labels[:40]),
                    hint=did_you_mean(unknown[0], model.labels),
                )

            def score(batch: rows.Batch) -> Scored:
                result = np.zeros((len(batch), len(labels)))
                for row, text in enumerate(self.texts(batch)):
                    given = dict(model.predict(one_line(text), -1))
                    result[row] = [given.get(label, 0.0) for label in labels]
                return self.scored(result)

            yield score


@dataclass(frozen=True)
class OnnxScorer(Classifier):
    """A model in ONNX with a tokenizer.

    Each row runs by itself: in a batch the last bits of a row follow from its neighbours.
    """

    tokenizer: Model

    def identity(self) -> list[Any]:
        item = self.settings
        library = importlib.metadata.version("onnxruntime")
        options = [sorted(item.inputs.items()), item.activation, item.max_tokens, library]
        return [*super().identity(), options, self.tokenizer.identity]

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with self.model.used("model.onnx") as path, self.tokenizer.used("tokenizer.json") as words:
            session = _session(self.model, path)
            tokenizer = _tokenizer(self.tokenizer, words, self.settings.max_tokens)
            inputs = self._inputs(session)

            def score(batch: rows.Batch) -> Scored:
                result = [self._row(session, inputs, tokenizer.encode(text)) for text in self.texts(batch)]
                return self.scored(np.array(result, np.float64).reshape(len(result), len(self.settings.labels)))

            yield score

    def _inputs(self, session: Any) -> list[tuple[str, str, type[np.generic]]]:
        """Return the name of each input of the model, what it gets, and its type."""
        wanted = {**_USUAL_INPUTS, **self.settings.inputs}
        inputs = []
        for item in session.get_inputs():
            if item.name not in wanted or item.type not in _DTYPES:
                raise InputError(
                    "an input of the model is not known",
                    where=self.model.where,
                    got=f"{item.name} of type {item.type}",
                    expected=f"{', '.join(wanted)}, of type int64 or int32",
                    hint=f"set classifiers.{self.name}.inputs",
                )
            inputs.append((item.name, wanted[item.name], _DTYPES[item.type]))
        return inputs

    def _row(self, session: Any, inputs: Sequence[tuple[str, str, type[np.generic]]], encoding: Any) -> Any:
        parts = {"ids": encoding.ids, "mask": encoding.attention_mask, "types": encoding.type_ids}
        given = {name: np.array([parts[part]], kind) for name, part, kind in inputs}
        try:
            output = np.asarray(session.run(None, given)[0], np.float64)
        except Exception as error:  # the library has no class of its own for what it raises
            raise InputError(
                "the model fails on a text of a row",
                where=self.model.where,
                got=" ".join(str(error).split())[:200],
                hint=f"check max_tokens and inputs of classifiers.{self.name}",
            ) from error
        labels = len(self.settings.labels)
        if output.size != labels or output.shape[-1:] != (labels,):
            raise InputError(
                "the model's output does not fit the labels",
                where=self.model.where,
                got=f"shape {list(output.shape)}",
                expected=f"[1, {labels}], for {', '.join(self.settings.labels)}",
            )
        values = output.ravel()
        if self.settings.activation == "none":
            return values
        if self.settings.activation == "sigmoid":
            return 1 / (1 + np.exp(-np.clip(values, -700, 700)))
        powers = np.exp(values - values.max())
        return powers / powers.sum()


def _session(model: Model, path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Workers are processes: threads of each would take the cores of the others.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has no class of its own for what it raises
        raise model.wrong(path, "an ONNX model", str(error)) from error


def _tokenizer(model: Model, path: Path, longest: int) -> Any:

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # as it raises them
        raise model.wrong(path, "a tokenizer.json", str(error)) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer


class _Classifiers(ScoredOperation[ClassifierSettings]):
    """Several of one kind, each with its name and settings."""

    def field_type(self) -> Any:
        return list[ClassifierSettings]

    def default(self) -> list[ClassifierSettings]:
        return []

    def override(self, own: list[ClassifierSettings], part: Part) -> list[ClassifierSettings]:
        return [dataclasses.replace(item, mode=part.as_type(Mode)) for item in own]

    def parts(self, own: list[ClassifierSettings]) -> list[tuple[str, ClassifierSettings]]:
        return [(item.name, item) for item in own]

    def scorers(self, variants: Sequence[list[ClassifierSettings]], root: str) -> list[Scorer]:
        wanted = {item.name for variant in variants for item in variant if item.mode != "off"}
        return [scorer for item in variants[0] if item.name in wanted for scorer in item.scorers(root)]


CLASSIFIERS: Final = _Classifiers(
    name="classifiers",
    settings=ClassifierSettings,
    help="items of docs/curation.md: quality, toxicity, domain",
    reasons=Reasons("attribute:{name}"),
)
