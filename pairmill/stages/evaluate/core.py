"""The evaluate stage: prompts → texts → scores.

Each step has shards of its own, keyed by what it reads: prompts by the data, texts by prompts, model and generation
settings, scores by texts. So a run that is killed goes on where it was, other data ask their own questions only, and
another way to score asks no model.
"""

import json
import logging
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from pairmill import storage
from pairmill.engine.inputs import Inputs
from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.evaluation import benchmark_data, benchmarks, harness_tasks
from pairmill.evaluation.benchmark_data import BenchmarkData
from pairmill.evaluation.benchmarks import REGISTRY
from pairmill.evaluation.settings import LENIENT, STRICT, EvaluateSettings, Generation
from pairmill.formats.training_results import EvaluateResult
from pairmill.loader import plan_arrays
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.stages.evaluate.asking import QUESTIONS, TEXTS, MakePrompts, ask_all
from pairmill.stages.evaluate.cautions import cautions
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.harness import ScoreAnswers, WriteRequests
from pairmill.stages.evaluate.held_out import HeldOutLoss
from pairmill.stages.evaluate.models.model import Model
from pairmill.stages.evaluate.models.opened import open_model
from pairmill.stages.evaluate.models.server import ServedModel
from pairmill.stages.evaluate.models.trained import TrainedModel
from pairmill.stages.evaluate.overlap import BuildIndex, Overlap, scoring, training_rows
from pairmill.stages.evaluate.report.page import report_of
from pairmill.stages.evaluate.scored import Score, ScoredBenchmark

RESULTS: Final = "results.json"
STOP: Final = "stop"
"""Of a benchmark's settings: what a served model goes on with after its answer."""


@dataclass(frozen=True, kw_only=True)
class EvaluatePlan(StagePlan[object]):
    """Args: model: that is asked; asked: the data of each benchmark and how texts are generated; held_out: its shard;
    training: the rows that questions are looked for in."""

    model: Model
    asked: list[tuple[BenchmarkData, Generation]]
    held_out: HeldOutLoss | None
    training: Inputs | None


class Evaluate(Stage[EvaluateConfig, EvaluatePlan]):
    """Prompts; texts, with the held-out loss and the index of questions; overlap; scores."""

    name: ClassVar[str] = "evaluate"
    watched: ClassVar[bool] = False
    version: ClassVar[int] = 6
    history: ClassVar[dict[int, str]] = {
        2: "AIME and DROP were not as the reference scores them; held-out bytes are those that tokenize kept",
        3: "damage of records and files of shards could go unseen; prompts of a served model counted as too long on "
        "any refusal with the word context, and GSM8K's answers in sentences as wrong without a word",
        4: "the key of a shard follows from all that it reads; a run asks again after a change of the stage",
        5: "digests of data are BLAKE3; a manifest says which digest it has of each file",
        6: "answers that could not be read have a cause; letters have a lenient figure beside the strict one",
    }
    config = EvaluateConfig

    def plan(self, config: EvaluateConfig) -> EvaluatePlan:
        settings = config.settings
        for name in (*settings.benchmarks, *config.places):
            if not harness_tasks.is_task(name):
                benchmarks.named(name)
        chats = config.model.startswith("http") and settings.server.mode == "chat"
        tools = [name for name in config.asked if name in REGISTRY and REGISTRY[name].calls_tools]
        if tools and not chats:
            expected = "model=<URL of a server> set=server.mode=chat"
            raise UsageError("needs chats with tools", where="benchmarks", got=tools[0], expected=expected)
        for name in config.asked:  # before anything is looked for on the Hub
            harness_tasks.check() if harness_tasks.is_task(name) else benchmarks.named(name).check()
        result = benchmark_data.find(config.asked, config.places, config.root, settings)
        model = open_model(config.model, settings, config.tokenizer)
        asked = [(item, _generation(item.name, settings, model)) for item in result]
        held_out = _held_out(config, model) if config.held_out else None
        training = None
        if config.training:
            training = training_rows(config.training, verify=config.verify)
        refs = [InputRef("model", model.digest[:16]), *(item.ref for item, _ in asked)]
        refs += [InputRef("held_out", held_out.content[:16])] if held_out is not None else []
        refs += [InputRef("training", ref.fingerprint) for ref in training.refs] if training is not None else []
        return EvaluatePlan(
            inputs=refs,
            build_context=object,
            says={"settings": settings.to_manifest(), "version": benchmarks.VERSION},
            options={"benchmarks": config.asked, "scorings": config.scorings},
            model=model,
            asked=asked,
            held_out=held_out,
            training=training,
        )

    def rounds(
        self, config: EvaluateConfig, plan: EvaluatePlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        settings = config.settings
        first = [_write_prompts(item, settings, generation) for item, generation in plan.asked]
        prompts = yield first
        pieces = [
            list(ask_all(plan.model, generation, record))
            for (_, generation), record in zip(plan.asked, prompts, strict=True)
        ]
        texts: list[Shard[Any]] = [item for some in pieces for item in some]
        beside: list[Shard[Any]] = [] if plan.held_out is None else [plan.held_out]
        overlap = None
        ours = [record for record in prompts if not harness_tasks.is_task(record.name)]
        if plan.training is not None and ours:
            benchmarks_ = tuple((record.name, record.file(QUESTIONS)) for record in ours)
            made = yield [*texts, *beside, BuildIndex(benchmarks_, name="index of questions")]
            overlap = Overlap.from_records((yield scoring(plan.training, made[-1])))
        else:
            made = yield [*texts, *beside]
        shards: list[Score | ScoreAnswers] = []
        at = 0
        for shard, some, record in zip(first, pieces, prompts, strict=True):
            asked = record.file(QUESTIONS)
            answers = tuple(item.file(TEXTS) for item in made[at : at + len(some)])
            size = sum(item.size for item in some)
            if isinstance(shard, WriteRequests):
                shards.append(ScoreAnswers(shard, asked, answers, name=record.name, size=size))
            else:
                shards.append(
                    Score(
                        record.name,
                        settings.profile,
                        tuple(config.scorings),
                        asked,
                        answers,
                        overlap,
                        name=record.name,
                        size=size,
                    )
                )
            at += len(some)
        yield shards

    def ledger(self, plan: EvaluatePlan, rounds: Rounds) -> Ledger:
        first, *later = (Ledger.sum(record.ledger for record in records) for records in rounds)
        for item in later:
            first = first.then(item)
        return first

    def parts(self, plan: EvaluatePlan, rounds: Rounds) -> dict[str, Ledger]:
        """Return those of benchmarks, with what was noted of their texts and verdicts."""
        result = {}
        for prompts, scores in zip(rounds[0], rounds[-1], strict=True):
            texts = [item.ledger for item in rounds[1] if item.name.rpartition(" ")[0] == prompts.name]
            result[prompts.name] = prompts.ledger.then(Ledger.sum(texts)).then(scores.ledger)
        return result

    def finish(self, config: EvaluateConfig, plan: EvaluatePlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        table = {}
        for (item, generation), record in zip(plan.asked, rounds[-1], strict=True):
            # A path is not content: the same questions give the same result on any machine.
            place = item.place if item.revision else storage.name_of(item.place)
            data = {"place": place, "revision": item.revision, "digest": item.digest[:16]}
            if harness_tasks.is_task(item.name):
                data |= {"place": item.revision, "revision": ""}
            table[item.name] = {**asdict(record.read(ScoredBenchmark)), "data": data, "generation": asdict(generation)}
        held_out = None
        if plan.held_out is not None:
            record = next(record for record in rounds[1] if record.name == plan.held_out.name)
            for file in record.files:
                out.link(record.folder, file)
            held_out = record.data
        results = EvaluateResult(
            model=plan.model.to_json(), profile=config.settings.profile, benchmarks=table, held_out=held_out
        ).to_data()
        for sentence in cautions(table, self.parts(plan, rounds)):
            event(sentence, level=logging.WARNING)
        out.write(RESULTS, json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        return results

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        results: dict[str, float] = {}
        result = EvaluateResult.from_manifest(manifest)
        for name, item in result.benchmarks.items():
            figures = item["all"]
            results[name] = round(figures["figure"], 6)
            if LENIENT in figures["also"]:
                results |= {f"{name}_{way}": round(figures["also"][way], 6) for way in (STRICT, LENIENT)}
            results[f"{name}_invalid"] = round(figures["invalid"], 6)
        if result.held_out is not None:
            whole = result.held_out["table"]["all"]
            for name in ("loss", "bits_per_byte"):
                if whole[name] is not None:
                    results[f"held_out_{name}"] = round(whole[name], 6)
        return results

    def report(self, manifest: Manifest) -> Report:

        return report_of(manifest)


def _write_prompts(
    given: BenchmarkData, settings: EvaluateSettings, generation: Generation
) -> MakePrompts | WriteRequests:
    how = given, settings.prompt_template, settings.limit, ",".join(generation.tags)
    if harness_tasks.is_task(given.name):
        return WriteRequests(*how, settings.harness.shots, name=given.name)
    return MakePrompts(*how, name=given.name, size=given.size)


def _generation(name: str, settings: EvaluateSettings, model: Model) -> Generation:
    """Return how texts of a benchmark are generated."""
    own = {} if harness_tasks.is_task(name) else dict(REGISTRY[name].settings)
    if not isinstance(model, ServedModel) or model.server.mode == "chat":
        own.pop(STOP, None)  # a net that was trained on responses ends them itself, and so do chats
    elif STOP in own and settings.before_prompt.strip() not in ("", *own[STOP]):
        own[STOP] = (*own[STOP], settings.before_prompt)
    return settings.generation_of(name, own)


def _held_out(config: EvaluateConfig, model: Model) -> HeldOutLoss:
    if not isinstance(model, TrainedModel):
        hint = "give the run itself, or leave out held_out="
        raise UsageError("held-out loss needs a run of train", where="held_out", got=f"a {model.kind}", hint=hint)
    model.refuse_training_rows(config.held_out, config.root)
    folder = plan_arrays.held_out_here(config.held_out, config.samples_path)
    return HeldOutLoss.from_folder(model, folder, config.settings.held_out)
