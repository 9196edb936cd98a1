"""The last round: verdicts on texts, a row a question, and the figures of a benchmark."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
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


@dataclass
class ScoredBenchmark:
    """The data of the shard.

    Attributes:
        all: figures over all questions (``pairmill.evaluation.scoring.totals``).
        unseen: over those that no training row has, if rows were given.
        seen: how many questions training rows have.
        reference: with profile=hrm_text the figures as the reference names and computes them.
    """

    all: dict[str, Any]
    unseen: dict[str, Any] | None
    seen: int
    reference: dict[str, Any] | None


@dataclass(frozen=True)
class Score(Shard[object], reads=()):
    """Scores the texts of a benchmark.

    Args:
        benchmark: its name.
        profile: whose figures count.
        prompts: the questions.
        texts: of its pieces, in order.
        overlap: which questions are in the training rows; None = not known.
    """

    benchmark: str
    profile: ProfileName
    prompts: ShardFile
    texts: tuple[ShardFile, ...]
    overlap: Overlap | None

    def run(self, context: object, out: Writer) -> ShardResult:
        benchmark = benchmarks.REGISTRY[self.benchmark]
        seen = self.overlap.seen(self.benchmark) if self.overlap is not None else frozenset()
        written = read_texts(self.texts)
        verdicts, asked = [], []
        ledger = Ledger()
        with out.create(f"{FOLDER}/{self.benchmark}.jsonl") as local, local.open("w", encoding="utf-8") as file:
            for number, (question, text) in enumerate(zip(questions(self.prompts.uri), written, strict=True)):
                if question.digest != text["digest"]:
                    raise InternalError("the texts are of other questions", where=self.benchmark, got=question.id)
                outputs = [item["text"] for item in text["texts"]]
                verdict = benchmark.score(question, outputs)
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
                    **({"seen": str(number) in seen} if self.overlap is not None else {}),
                    **verdict.extra,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                asked.append(question)
                verdicts.append(verdict)
                if verdict.invalid:
                    ledger.note("invalid")
                if str(number) in seen:
                    ledger.note("seen")
        ledger.rows_in = ledger.rows_kept = ledger.rows_out = len(verdicts)
        scored = list(zip(asked, [_counted(item, self.profile) for item in verdicts], strict=True))
        apart = None
        if self.overlap is not None:
            apart = benchmark.total([item for at, item in enumerate(scored) if str(at) not in seen])
        reference = (
            benchmark.total(zip(asked, verdicts, strict=True), self.profile) if self.profile != "pairmill" else None
        )
        return ShardResult(ledger, asdict(ScoredBenchmark(benchmark.total(scored), apart, len(seen), reference)))


def _counted(verdict: Verdict, profile: ProfileName) -> Verdict:
    """Return the verdict that the profile counts."""
    if profile == "pairmill" or REFERENCE not in verdict.extra:
        return verdict
    invalid = bool(verdict.extra.get(f"{REFERENCE}_invalid", verdict.invalid))
    return replace(verdict, correct=verdict.extra[REFERENCE], invalid=invalid)
