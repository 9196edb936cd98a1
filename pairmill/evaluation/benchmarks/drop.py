"""DROP (Dua et al. 2019, arXiv:1903.00161): spans, numbers and dates of a passage."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill import storage
from pairmill.evaluation.benchmarks.base import PASSAGES, Base, make_question
from pairmill.evaluation.benchmarks.question import Need, Question, Row, Rows, Verdict
from pairmill.evaluation.prompts import passage_prompt, with_shots
from pairmill.evaluation.scoring import drop as scoring


@dataclass(frozen=True)
class Drop(Base):
    """Correct is exact match; F1 is beside it. Without shots the questions are asked alone.

    The reference's three shots are passages of the training split, which are not ours to give. Yours are the rows of a
    split ``shots`` (``shots.jsonl`` beside the others), with a column ``text``, or one file of text. They are put
    before every question.

    Args:
        shots_file: path or URI of that text; it goes before a split ``shots``.
    """

    shots_file: str = ""

    name = "drop"
    family = PASSAGES
    source = "EleutherAI/drop"

    @property
    def needs(self) -> tuple[Need, ...]:
        columns = ("passage", "question", "answer")
        return (Need("validation", columns), Need("shots", ("text",), optional=True))

    def questions(self, rows: Rows) -> Iterator[Question]:
        result = enumerate(rows.get("shots", ()))
        shots = [self.row_text(number, row, "text", "shots").strip() for number, row in result]
        if self.shots_file:
            uri = storage.normalise(self.shots_file, "shots_file")
            shots = [storage.store_for(uri).read(uri).decode("utf-8", "replace").strip()]
        for number, row in enumerate(rows["validation"]):
            text = self.row_text(number, row, "question")
            prompt = with_shots(shots, passage_prompt(self.row_text(number, row, "passage"), text))
            gold = self._answers(number, row)
            yield make_question(self, number, prompt, gold, text=text)

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        match, f1 = scoring.score(texts[0], question.gold)
        answer = texts[0].strip()
        return Verdict(answer[:1000] or None, match, not answer, {"em": match, "f1": f1})

    def total(self, scored: Iterable[tuple[Question, Verdict]], profile: str = "pairmill") -> dict[str, Any]:
        if profile != "hrm_text":
            return super().total(scored)
        extra = [verdict.extra for _, verdict in scored]
        means = {name: sum(item[name] for item in extra) / max(1, len(extra)) for name in ("em", "f1")}
        return {"n": len(extra), **means}

    def _answers(self, number: int, row: Row) -> list[list[str]]:
        """Return the answer and those of the validators, each a list of spans, without those that are equal."""
        given = [row["answer"], *_rows_of(row.get("validated_answers"))]
        result: list[list[str]] = []
        for item in given:
            if not isinstance(item, dict):
                raise self.wrong(number, "answer", item, "number, spans and date")
            spans = _spans(item)
            if any(spans) and spans not in result:
                result.append(spans)
        if not result:
            raise self.wrong(number, "answer", row["answer"], "a number, spans or a date")
        return result


def _spans(answer: dict[str, Any]) -> list[str]:
    if str(answer.get("number") or "").strip():
        return [str(answer["number"])]
    spans = answer.get("spans")
    if spans is not None and len(spans):
        return [str(item) for item in spans]
    date = answer.get("date") or {}
    return [" ".join(str(date.get(part) or "") for part in ("day", "month", "year")).strip()]


def _rows_of(columns: Any) -> list[dict[str, Any]]:
    """Yield records that are written as columns."""
    if isinstance(columns, list):
        return columns
    if not isinstance(columns, dict) or not columns:
        return []
    count = min(len(values) for values in columns.values())
    return [{name: values[at] for name, values in columns.items()} for at in range(count)]
