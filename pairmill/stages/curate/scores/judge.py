"""Verdicts of ``pairmill audit``: rows that a judge would not keep, known again by their text (docs/audit.md)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from pairmill import storage
from pairmill.errors import InputError
from pairmill.fields import Checked, setting
from pairmill.formats import rows
from pairmill.formats.attributes import schema_of
from pairmill.formats.audited import KEEP, NAME, digest_of_text, read_audited
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate.operation import Mode, Rule, ScoredOperation
from pairmill.stages.curate.scores.models import Model

_VERSION: Final = 1
_FAULTS: Final = "faults"
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "text"}
_KIND: Final = f"the {NAME} of pairmill audit"

Audited = dict[str, dict[str, Any]]
"""Values of the attributes by digest of the text."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(Checked):
    """Verdicts of pairmill audit. A filter may have bounds of their other fields, as judge.coherence."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode",)

    mode: Mode = setting(
        "off", help="drop, report or off", needs="verdicts", hint="verdicts: has the folder that pairmill audit printed"
    )
    verdicts: str = setting("", help="folder of pairmill audit, or its rows.jsonl")

    def scorers(self, root: str) -> list[Scorer]:
        """Return the scorer, with its verdicts digested; ``root`` is unused."""
        uri = storage.normalise(self.verdicts, "judge.verdicts")
        inside = storage.join(uri, NAME)
        model = Model.from_place(inside if storage.store_for(inside).exists(inside) else uri, "judge.verdicts")
        with model.used() as path:
            audited = _load(model, path)
        if not audited:
            raise InputError(
                "no verdict is about the text of a row",
                where=model.where,
                hint="audit again with row_folders=, or where the project has the rows that were tokenized",
            )
        kinds: dict[str, set[type[Any]]] = {KEEP: {bool}}
        for values in audited.values():
            for name, value in values.items():
                kinds.setdefault(name, set()).add(type(value))
        return [JudgeScorer(model, tuple(sorted((name, _type_of(types)) for name, types in kinds.items())))]

    def rules(self) -> list[Rule]:
        """Return the one: a row that the judge would not keep. A row without a verdict stays."""
        return [Rule("unusable", KEEP, min=1)]


@dataclass(frozen=True)
class JudgeScorer(Scorer):
    """What the judge said of each row, and how many checks found a fault; null of rows that were not audited."""

    operation: ClassVar[str] = "judge"
    model: Model
    columns: tuple[tuple[str, str], ...]

    def identity(self) -> list[Any]:
        return [_VERSION, self.model.identity]

    def types(self) -> dict[str, str]:
        return dict(self.columns)

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        with self.model.used() as path:
            audited, schema = _load(self.model, path), schema_of(self.types())

            def score(batch: rows.Batch) -> Scored:
                texts = zip(batch.instruction.to_pylist(), batch.response.to_pylist(), strict=True)
                values = [audited.get(digest_of_text(*pair), {}) for pair in texts]
                columns = [
                    pa.array([_of_kind(item.get(field.name), field.type) for item in values], field.type)
                    for field in schema
                ]
                return Scored(columns, counts={"audited": sum(map(bool, values))})

            yield score


def _load(model: Model, path: Path) -> Audited:
    return model.load(_read, path, _KIND)


def _read(path: Path) -> Audited:
    result: Audited = {}
    for row in read_audited(path):
        if row["text"]:
            verdict = {name: value for name, value in (row.get("verdict") or {}).items() if type(value) in _TYPES}
            before = result.get(row["text"], {})
            if before.get(KEEP) is not False:  # of two verdicts on one text that against it counts
                result[row["text"]] = {**before, **verdict, _FAULTS: len(row["faults"])}
    return result


def _of_kind(value: Any, kind: pa.DataType) -> Any:
    """Return a value as its column has it: a field that is now a number and now a text is text."""
    return str(value) if value is not None and kind == pa.string() else value


def _type_of(types: set[type[Any]]) -> str:
    return _TYPES[next(iter(types))] if len(types) == 1 else "number" if types == {int, float} else "text"


JUDGE: Final = ScoredOperation(
    name="judge",
    settings=JudgeSettings,
    help="verdicts of pairmill audit",
    meanings={"unusable": "the judge would not keep the row"},
)
