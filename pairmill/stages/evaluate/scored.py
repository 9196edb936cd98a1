"""The last round: verdicts on texts, a row a question, and the figures of a benchmark."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from pairmill.evaluation import benchmarks
from pairmill.evaluation.benchmarks.question import REFERENCE, Verdict
from pairmill.evaluation.settings import ProfileName
from pairmill.stages.evaluate.asking import questions, read_texts
from pairmill.stages.evaluate.overlap import Overlap

FOLDER: Final = "questions"
_SHOWN, _END = 3, 200
"""Examples of each cause, and the last characters of their answers."""


@dataclass
class ScoredBenchmark:
    """The data of the shard.

    Attributes:
        all: figures over all questions (``pairmill.evaluation.scoring.totals``).
        unseen: over those that no training row has, if rows were given.
        seen: how many questions training rows have.
        reference: with profile=hrm_text the figures as the reference names and computes them.
        causes: why answers could not be read → how many.
        examples: of each cause some questions, and the ends of their answers.
    """

    all: dict[str, Any]
    unseen: dict[str, Any] | None
    seen: int
    reference: dict[str, Any] | None
    causes: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Score(Shard[object], reads=()):
    """Scores the texts of a benchmark.

    Args:
        profile: whose figures count.
        scorings: readings of an answer that count, the first that the benchmark has before the others.
        prompts: the questions.
        texts: of its pieces, in order.
        overlap: which questions are in the training rows; None = not known.
    """

    benchmark: str
    profile: ProfileName
    scorings: tuple[str, ...]
    prompts: ShardFile
    texts: tuple[ShardFile, ...]
    overlap: Overlap | None

    def run(self, context: object, out: Writer) -> ShardResult:
        benchmark = benchmarks.REGISTRY[self.benchmark]
        seen = self.overlap.seen(self.benchmark) if self.overlap is not None else frozenset()
        written = read_texts(self.texts)
        verdicts, asked = [], []
        ledger = Ledger()
        causes: Counter[str] = Counter()
        examples: dict[str, list[tuple[str, str]]] = {}
        with out.create(f"{FOLDER}/{self.benchmark}.jsonl") as local, local.open("w", encoding="utf-8") as file:
            for number, (question, text) in enumerate(zip(questions(self.prompts.uri), written, strict=True)):
                if question.digest != text["digest"]:
                    raise InternalError("the texts are of other questions", where=self.benchmark, got=question.id)
                outputs = [item["text"] for item in text["texts"]]
                verdict = _counted(benchmark.score(question, outputs), self.profile, self.scorings)
                row = {
                    "benchmark": question.benchmark,
                    "id": question.id,
                    "group": question.group,
                    "prompt_digest": question.digest,
                    "gold": question.gold,
                    "output": outputs[0] if len(outputs) == 1 else outputs,
                    "tokens": [item["tokens"] for item in text["texts"]],
                    "stopped": all(item["stopped"] for item in text["texts"]),
                    "extracted": verdict.extracted,
                    "correct": verdict.correct,
                    "invalid": verdict.invalid,
                    **({"cause": _cause(text["texts"])} if verdict.invalid else {}),
                    **({"seen": str(number) in seen} if self.overlap is not None else {}),
                    **verdict.extra,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                asked.append(question)
                verdicts.append(verdict)
                if verdict.invalid:
                    ledger.note("invalid")
                    causes[row["cause"]] += 1
                    if causes[row["cause"]] <= _SHOWN:
                        examples.setdefault(row["cause"], []).append((question.id, outputs[0][-_END:]))
                if str(number) in seen:
                    ledger.note("seen")
        ledger.rows_in = ledger.rows_kept = ledger.rows_out = len(verdicts)
        scored = list(zip(asked, verdicts, strict=True))
        apart = None
        if self.overlap is not None:
            apart = benchmark.total([item for at, item in enumerate(scored) if str(at) not in seen])
        reference = (
            benchmark.total(zip(asked, verdicts, strict=True), self.profile) if self.profile != "pairmill" else None
        )
        made = ScoredBenchmark(benchmark.total(scored), apart, len(seen), reference, dict(causes), examples)
        return ShardResult(ledger, asdict(made))


def _cause(texts: Sequence[Mapping[str, Any]]) -> str:
    """Return why nothing could be read in the texts of a question."""
    if any(text["too_long"] for text in texts):
        return "over context"
    if not all(text["stopped"] for text in texts):
        return "cut by limit"
    return "wrong form" if any(text["text"].strip() for text in texts) else "empty"


def _counted(verdict: Verdict, profile: ProfileName, scorings: Sequence[str]) -> Verdict:
    """Return the verdict that the profile, or the first of the scorings that there is, counts."""
    way = next((way for way in scorings if way in verdict.extra), "")
    if way:
        invalid = bool(verdict.extra.get(f"{way}_invalid", verdict.invalid))
        return replace(verdict, correct=verdict.extra[way], invalid=invalid)
    if profile == "pairmill" or REFERENCE not in verdict.extra:
        return verdict
    invalid = bool(verdict.extra.get(f"{REFERENCE}_invalid", verdict.invalid))
    return replace(verdict, correct=verdict.extra[REFERENCE], invalid=invalid)
