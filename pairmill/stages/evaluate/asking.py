"""The first two rounds: the prompts of each benchmark, and texts for pieces of them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from typing import Any, Final

from pairmill import storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.evaluation import benchmarks
from pairmill.evaluation.benchmark_data import BenchmarkData
from pairmill.evaluation.benchmarks.drop import Drop
from pairmill.evaluation.benchmarks.question import Question, digest_of
from pairmill.evaluation.settings import EvaluateSettings, Generation
from pairmill.stages.evaluate.cautions import TOO_LONG
from pairmill.stages.evaluate.models.model import Model, Prompt, Text

PIECE: Final = 64
"""Questions whose texts are stored together: what a killed run, or a server that dies, loses at most."""
QUESTIONS, TEXTS = "questions.jsonl", "texts.jsonl"
_TUPLES: Final = ("choices", "until", "messages", "tools")
_PLACE: Final = "where the questions are that the digest of prompts names"


@dataclass
class Prompted:
    """The data of a shard of prompts: of each piece a digest over its prompts, and how many questions it has."""

    pieces: list[tuple[str, int]]
    groups: int


@dataclass(frozen=True)
class MakePrompts(Shard[object], reads=()):
    """Makes the prompts of a benchmark."""

    given: BenchmarkData
    template: str
    limit: int
    condition: str

    def run(self, context: object, out: Writer) -> ShardResult:
        benchmark = benchmarks.REGISTRY[self.given.name]
        if isinstance(benchmark, Drop):
            benchmark = replace(benchmark, shots_file=self.given.shots)
        rows = benchmarks.load(self.given.name, self.given.place, self.given.revision)
        settings = EvaluateSettings(prompt_template=self.template)

        def made() -> Iterator[Question]:
            for question in benchmark.questions(rows):
                prompt = settings.prompt(question.prompt)
                chat = (question.messages, question.tools) if question.messages else ()
                digest = digest_of(prompt, self.condition, *chat)
                yield replace(question, prompt=prompt, condition=self.condition, digest=digest)

        return write_prompts(f"{self.given.name}: {self.given.place}", made(), self.limit, out)


def write_prompts(where: str, made: Iterable[Question], limit: int, out: Writer) -> ShardResult:
    """Write questions, the first ``limit`` of them if it is not 0.

    Raises:
        InputError: there are none, or one is not text.
    """
    ledger = Ledger()
    digests: list[str] = []
    groups: set[str] = set()
    try:
        with out.create(QUESTIONS, scratch=True) as local, local.open("w", encoding="utf-8") as file:
            for question in made:
                ledger.rows_in += 1
                if limit and len(digests) == limit:
                    ledger.drop("beyond_limit")
                    continue
                file.write(json.dumps(asdict(question), ensure_ascii=False) + "\n")
                digests.append(question.digest)
                groups.add(question.group)
    except UnicodeEncodeError as error:
        got = f"question {len(digests) + 1}"
        raise InputError("an unpaired surrogate is not text", where=where, got=got, hint="correct the file") from error
    if not digests:
        raise InputError("the benchmark has no question", where=where)
    ledger.rows_kept = ledger.rows_out = len(digests)
    pieces = [digests[at : at + PIECE] for at in range(0, len(digests), PIECE)]
    data = Prompted([(content_key(piece), len(piece)) for piece in pieces], len(groups))
    return ShardResult(ledger, asdict(data))


def questions(uri: str, start: int = 0, stop: int | None = None) -> Iterator[Question]:
    """Yield the questions of a file, or some of them."""
    with storage.store_for(uri).open(uri) as file:
        for line in islice(file, start, stop):
            values = json.loads(line)
            yield Question(**values | {name: tuple(values[name]) for name in _TUPLES})


def read_texts(files: Iterable[ShardFile]) -> Iterator[dict[str, Any]]:
    """Read what was written for the questions of each piece."""
    for file in files:
        for line in storage.store_for(file.uri).read(file.uri).splitlines():
            yield json.loads(line)


@dataclass(frozen=True)
class Ask(Shard[object], reads=()):
    """Asks a model the questions of a piece."""

    model: Model
    generation: Generation
    prompts: str
    """Digest over those of the questions."""
    uri: str = field(metadata=unkeyed(_PLACE))
    start: int = field(metadata=unkeyed(_PLACE))
    stop: int = field(metadata=unkeyed(_PLACE))

    def run(self, context: object, out: Writer) -> ShardResult:
        every = list(questions(self.uri, self.start, self.stop))
        ledger = Ledger(len(every), len(every), len(every))
        lines: list[dict[str, Any]] = []
        # What a task of the harness asks is all of one kind, and of one length.
        for (likely, most), some in groupby(every, key=lambda prompt: (prompt.ending is not None, prompt.max_tokens)):
            result = list(some)
            lines += self._likelihoods(result, ledger) if likely else self._texts(result, most, ledger)
        out.write(TEXTS, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        return ShardResult(ledger)

    def _texts(self, some: Sequence[Question], most: int, ledger: Ledger) -> Iterator[dict[str, Any]]:
        most = min(most or self.generation.max_tokens, self.generation.max_tokens)
        made = self.model.answers([_prompt(item) for item in some], replace(self.generation, max_tokens=most))
        for item, texts in zip(some, made, strict=True):
            if any(text.too_long for text in texts):
                ledger.note(TOO_LONG)
            known = [text.tokens for text in texts if text.tokens >= 0]
            ledger.measures["generated_tokens"] = ledger.measures.get("generated_tokens", 0) + sum(known)
            until = (*item.until, *self.generation.stop)
            yield {"digest": item.digest, "texts": [asdict(_cut(text, until)) for text in texts]}

    def _likelihoods(self, some: Sequence[Question], ledger: Ledger) -> Iterator[dict[str, Any]]:
        made = self.model.likelihoods([_prompt(item) for item in some], [item.ending or "" for item in some])
        for item, result in zip(some, made, strict=True):
            if result.log is None:
                ledger.note(TOO_LONG)
            yield {"digest": item.digest, "likelihood": asdict(result)}


def _prompt(question: Question) -> Prompt:
    tags = tuple(question.condition.split(",")) if question.condition else ()
    return Prompt(question.digest, question.prompt, tags, question.until, question.messages, question.tools)


def _cut(text: Text, until: Sequence[str]) -> Text:
    """Return the text before the first of these."""
    places = [place for mark in until if mark and (place := text.text.find(mark)) >= 0]
    return replace(text, text=text.text[: min(places)], stopped=True) if places else text


def ask_all(model: Model, generation: Generation, prompts: ShardRecord) -> Iterator[Ask]:
    """Make the shards that ask the questions of a benchmark, a piece each, in order."""
    start = 0
    for number, (digest, count) in enumerate(prompts.read(Prompted).pieces):
        stop = start + count
        name = f"{prompts.name} {number:05}"
        yield Ask(model, generation, digest, prompts.uri(QUESTIONS), start, stop, name=name, size=count)
        start = stop
