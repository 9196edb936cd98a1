"""Tasks of lm-evaluation-harness as benchmarks, named ``lm_eval/<task>``: it asks and scores, a model of ours answers.

The harness runs twice, by its public interface alone. First its model writes down what it is asked; those requests are
the prompts, and are answered like any others, in pieces. Then its model gives these answers, and the harness scores
them. So a killed run goes on where it was, and every question has its row.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError, UsageError
from pairmill.evaluation.benchmark_data import BenchmarkData
from pairmill.evaluation.benchmarks.question import Question, Verdict, digest_of
from pairmill.evaluation.harness_tasks import PREFIX
from pairmill.evaluation.scoring import totals
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.stages.evaluate.asking import questions, read_texts, write_prompts
from pairmill.stages.evaluate.scored import FOLDER, ScoredBenchmark

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

_INVALID: Final = "[invalid]"
"""What the harness's filters say where they find no answer."""


@dataclass(frozen=True)
class WriteRequests(Shard[object], reads=()):
    """Writes down what a task asks."""

    given: BenchmarkData
    template: str
    limit: int
    condition: str
    shots: int | None

    def run(self, context: object, out: Writer) -> ShardResult:
        name = self.given.name
        asked: list[Question] = []

        def record(kind: str, requests: Sequence[Instance]) -> list[Any]:
            if kind == "loglikelihood_rolling":
                hint = "measure perplexity on held-out rows: held_out="
                raise UsageError("a task without questions", where=name, got=kind, hint=hint)
            asked.extend(self.question(item) for item in requests)
            return [("" if kind == "generate_until" else (0.0, False)) for _ in requests]

        _evaluate(self, record, predict_only=True)
        return write_prompts(name, asked, len(asked), out)

    def question(self, request: Instance) -> Question:
        """Return what a request asks."""
        return _question(self.given.name, EvaluateSettings(prompt_template=self.template), self.condition, request)


@dataclass(frozen=True)
class ScoreAnswers(Shard[object], reads=()):
    """Has the harness score the answers of a task."""

    requests: WriteRequests
    prompts: ShardFile
    texts: tuple[ShardFile, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        name = self.requests.given.name
        known: dict[str, dict[str, Any]] = {line["digest"]: line for line in read_texts(self.texts)}
        stored = sum(1 for _ in questions(self.prompts.uri))
        seen = 0

        def replay(kind: str, requests: Sequence[Instance]) -> list[Any]:
            nonlocal seen
            result = []
            for item in requests:
                line = known.get(self.requests.question(item).digest)
                if line is None:
                    hint = "its data changed since they were asked for: give the task a revision, or another root="
                    raise InputError("the harness asks other questions than before", where=name, hint=hint)
                result.append(_answer(line, kind))
            seen += len(result)
            return result

        results = _evaluate(self.requests, replay)
        if seen != stored:
            raise InternalError("the harness asked less than before", where=name, got=f"{seen} of {stored}")
        ledger = Ledger(stored, stored, stored)
        scored: list[tuple[Question, Verdict]] = []
        with out.create(f"{FOLDER}/{name}.jsonl") as local, local.open("w", encoding="utf-8") as file:
            for row, verdict in _rows(name, results["samples"]):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                scored.append((Question(name, row["id"], row["group"], prompt=""), verdict))
                if verdict.invalid:
                    ledger.note("invalid")
        own = {
            f"{task} {metric}": value
            for task, result in sorted(results["results"].items())
            for metric, value in sorted(result.items())
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        return ShardResult(ledger, asdict(ScoredBenchmark(totals.figures(scored), None, 0, own)))


def _question(name: str, settings: EvaluateSettings, condition: str, instance: Instance) -> Question:
    """Return a request as a question, by what the harness gives its model."""
    context, more = instance.args[0], instance.args[1]
    until, ending, most = (), None, 0
    if instance.request_type == "generate_until":
        stops = more.get("until") or []
        until, most = tuple([stops] if isinstance(stops, str) else stops), int(more.get("max_gen_toks") or 0)
    else:
        ending = str(more)
    prompt = settings.prompt(context)
    digest = digest_of(json.dumps([prompt, until, ending, most]), condition)
    return Question(
        name,
        f"{instance.task_name} {instance.doc_id}",
        str(instance.task_name),
        prompt,
        condition,
        digest=digest,
        until=until,
        ending=ending,
        max_tokens=most,
    )


def _answer(line: dict[str, Any], kind: str) -> Any:
    if kind == "generate_until":
        return line["texts"][0]["text"]
    likelihood = line["likelihood"]
    return (-math.inf if likelihood["log"] is None else likelihood["log"], likelihood["greedy"])


def _rows(name: str, samples: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], Verdict]]:
    """Yield a row a question. The first filter's first figure of 0 to 1 is the verdict; the others are beside it."""
    for task, result in sorted(samples.items()):
        by_doc: dict[int, list[dict[str, Any]]] = {}
        for item in result:
            by_doc.setdefault(item["doc_id"], []).append(item)
        for number, ones in sorted(by_doc.items()):
            extra: dict[str, float] = {}
            for item in ones:
                for metric in item["metrics"]:
                    value = item[metric]
                    if isinstance(value, int | float) and 0 <= value <= 1:
                        extra[metric if item["filter"] == "none" else f"{metric} {item['filter']}"] = float(value)
            if not extra:
                expected = "a metric that gives a question 0 to 1, as acc or exact_match"
                got = ", ".join(ones[0]["metrics"])
                raise InputError("the task scores no question alone", where=name, got=got, expected=expected)
            first = ones[0]
            extracted = first["filtered_resps"]
            invalid = any(_INVALID in str(item) for item in extracted)
            verdict = Verdict(str(extracted)[:1000], next(iter(extra.values())), invalid, extra)
            row = {
                "benchmark": name,
                "id": f"{task} {number}",
                "group": task,
                "prompt_digest": first["prompt_hash"],
                "gold": first["target"] if isinstance(first["target"], str | int | float | list) else None,
                "output": first["resps"],
                "extracted": extracted,
                "correct": verdict.correct,
                "invalid": invalid,
                **extra,
            }
            yield _plain(row), verdict


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as JSON, without infinities."""
    text = json.dumps(row, default=str)
    made: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return made


@lru_cache(maxsize=1)
def _manager(folder: str) -> Any:
    """Return the harness's index of tasks, which reads thousands of files."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=folder or None)


def _evaluate(work: WriteRequests, answer: Any, *, predict_only: bool = False) -> dict[str, Any]:
    """Run the harness on a task with a model that answers by ``answer(kind, requests)``."""
    import lm_eval
    from lm_eval.api.model import LM

    class Answers(LM):  # type: ignore[misc]
        """Gives the harness what it asks for."""

        def generate_until(self, requests: list[Instance]) -> list[Any]:
            return list(answer("generate_until", requests))

        def loglikelihood(self, requests: list[Instance]) -> list[Any]:
            return list(answer("loglikelihood", requests))

        def loglikelihood_rolling(self, requests: list[Instance]) -> list[Any]:
            return list(answer("loglikelihood_rolling", requests))

    task = work.given.name.removeprefix(PREFIX)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        # It prints progress; stdout is for results.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            result = lm_eval.simple_evaluate(
                Answers(),
                tasks=[task],
                num_fewshot=work.shots,
                limit=work.limit or None,
                bootstrap_iters=0,
                log_samples=True,
                predict_only=predict_only,
                torch_random_seed=None,
                task_manager=_manager(work.given.place),
            )
    except (InputError, UsageError, InternalError):
        raise
    except Exception as error:
        raise InputError(
            "lm-evaluation-harness cannot run the task",
            where=work.given.name,
            got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            hint="lm-eval ls tasks lists the tasks; those of your own need set=harness.tasks=<folder>",
        ) from error
    made: dict[str, Any] = result
    return made
