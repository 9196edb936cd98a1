"""The first two rounds: the prompts of each benchmark, and texts for pieces of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from components.evaluate import benchmarks
from components.evaluate.benchmarks.question import Question, digest_of
from components.evaluate.given import Given
from components.evaluate.models.model import Asked, Model
from components.evaluate.settings import EvaluateSettings, Generation
from pairmill import storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError

PROMPTS_VERSION: Final = 1
TEXTS_VERSION: Final = 1
PIECE: Final = 64
"""Questions whose texts are stored together: what a killed run, or a server that dies, loses at most."""
QUESTIONS, TEXTS = "questions.jsonl", "texts.jsonl"


@dataclass
class Prompted:
    """The data of a shard of prompts: of each piece a digest over its prompts, and how many questions it has."""

    pieces: list[tuple[str, int]]
    groups: int


@dataclass(frozen=True)
class MakePrompts(Shard[object]):
    """Makes the prompts of a benchmark."""

    given: Given
    template: str
    limit: int
    condition: str

    @classmethod
    def of(cls, given: Given, settings: EvaluateSettings, generation: Generation) -> MakePrompts:
        """The shard of a benchmark."""
        condition = ",".join(generation.tags)
        version = benchmarks.VERSION
        parts = (given.name, version, given.digest, settings.prompt_template, settings.limit, condition)
        key = content_key("evaluate prompts", PROMPTS_VERSION, *parts)
        return cls(given.name, key, given.size, given, settings.prompt_template, settings.limit, condition)

    def run(self, context: object, out: Writer) -> ShardResult:
        benchmark = benchmarks.REGISTRY[self.given.name]
        rows = benchmarks.load(self.given.name, self.given.place, self.given.revision)
        settings = EvaluateSettings(prompt_template=self.template)
        ledger = Ledger()
        digests: list[str] = []
        groups: set[str] = set()
        with out.create(QUESTIONS) as local, local.open("w", encoding="utf-8") as file:
            for question in benchmark.questions(rows):
                ledger.rows_in += 1
                if self.limit and len(digests) == self.limit:
                    ledger.drop("beyond_limit")
                    continue
                prompt = settings.prompt(question.prompt)
                made = replace(
                    question, prompt=prompt, condition=self.condition, digest=digest_of(prompt, self.condition)
                )
                file.write(json.dumps(asdict(made), ensure_ascii=False) + "\n")
                digests.append(made.digest)
                groups.add(made.group)
        if not digests:
            raise InputError("the benchmark has no question", where=f"{self.given.name}: {self.given.place}")
        ledger.rows_kept = ledger.rows_out = len(digests)
        pieces = [digests[at : at + PIECE] for at in range(0, len(digests), PIECE)]
        data = Prompted([(content_key(piece), len(piece)) for piece in pieces], len(groups))
        return ShardResult(ledger, asdict(data))


def questions(uri: str, start: int = 0, stop: int | None = None) -> Iterator[Question]:
    """The questions of a file, or some of them."""
    with storage.store_for(uri).open(uri) as file:
        for line in islice(file, start, stop):
            said = json.loads(line)
            yield Question(**{**said, "choices": tuple(said["choices"])})


@dataclass(frozen=True)
class Ask(Shard[object]):
    """Asks a model the questions of a piece."""

    model: Model
    generation: Generation
    uri: str
    start: int
    stop: int

    @classmethod
    def all_of(cls, model: Model, generation: Generation, prompts: ShardRecord) -> list[Ask]:
        """The shards of a benchmark's pieces, in order."""
        made: list[Ask] = []
        start = 0
        for number, (digest, count) in enumerate(prompts.read(Prompted).pieces):
            key = content_key("evaluate texts", TEXTS_VERSION, model.digest, generation.said(), digest)
            name, uri = f"{prompts.name} {number:05}", prompts.uri(QUESTIONS)
            made.append(cls(name, key, count, model, generation, uri, start, start + count))
            start += count
        return made

    def run(self, context: object, out: Writer) -> ShardResult:
        asked = [
            Asked(one.digest, one.prompt, tuple(one.condition.split(",")) if one.condition else ())
            for one in questions(self.uri, self.start, self.stop)
        ]
        ledger = Ledger(len(asked), len(asked), len(asked))
        found = self.model.answers(asked, self.generation)
        lines = []
        for one, texts in zip(asked, found, strict=True):
            if any(text.too_long for text in texts):
                ledger.note("prompt_too_long")
            known = [text.tokens for text in texts if text.tokens >= 0]
            ledger.measures["generated_tokens"] = ledger.measures.get("generated_tokens", 0) + sum(known)
            said: dict[str, Any] = {"digest": one.digest, "texts": [asdict(text) for text in texts]}
            lines.append(json.dumps(said, ensure_ascii=False) + "\n")
        out.write(TEXTS, "".join(lines).encode())
        return ShardResult(ledger)
