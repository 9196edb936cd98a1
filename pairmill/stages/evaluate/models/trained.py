"""A finished run of train, or a checkpoint of one, by its own generation engine."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from pairmill import nets, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Generation, Net
from pairmill.extras import require
from pairmill.formats import drawn_rows
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.log import event
from pairmill.nets import generate
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.run import Run
from pairmill.nets.trained import EMA, WEIGHTS
from pairmill.stages.evaluate.models.model import Likelihood, Model, Prompt, Text


@dataclass(frozen=True)
class TrainedModel(Model):
    """Args: run: URI of the run's folder; net: how it runs here; weights: those that are taken; tokenizer: what the
    option of that name says."""

    kind: ClassVar[str] = "run of train"

    run: str = ""
    net: Net = field(default_factory=Net)
    weights: Literal["ema", "current"] = "ema"
    positions: int = 0
    steps: int = 0
    tokenizer: str = ""

    @classmethod
    def from_run(cls, run: Run, given: str, net: Net) -> Self:
        """Make the model of an opened run.

        Raises:
            InputError: the run has no tokenizer, and no option names its own.
            UsageError: the run has not the weights that are asked for.
        """
        weights, reason = run.choose_weights(net.weights)
        event(f"evaluate: {weights} weights ({reason})", weights=weights)
        digest = cls.digest_of(
            content_key(*_content_of(run, weights)), net.precision, net.special_tokens, net.unknown_tags
        )
        trained = run.trained
        return cls(
            digest,
            given,
            run=run.uri,
            net=net,
            weights=weights,
            positions=trained.positions,
            steps=trained.steps,
            tokenizer=run.tokenizer_option,
        )

    def opened(self) -> Run:
        """Return the run, opened."""
        return Run.open(self.run, "model", self.tokenizer)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "weights": self.weights, "steps": self.steps, "precision": self.net.precision}

    def refuse_training_rows(self, held_out: str, root: str) -> None:
        """Raise InputError if the run was trained on rows of a held-out folder or plan, as far as plans are at hand.

        Args:
            held_out: path or URI.
            root: of the project; plans are looked for there, and in the projects of the run and of the rows.
        """
        run = Run.open(self.run, "model")
        roots = [storage.normalise(root, "root"), storage.parent_of(storage.parent_of(self.run))]
        held = DrawnRows.of_sample(held_out, "held_out", roots)
        uri = storage.normalise(held_out, "held_out")
        roots.append(storage.parent_of(storage.parent_of(uri)))
        where = f"model={self.where}"
        training = [DrawnRows.recorded(item, where, roots) for item in run.samples]
        manifest = manifests.read(uri)
        if held is not None and manifest is not None and manifest.fingerprint in run.samples:
            training.append(replace(held, where=where))
        drawn_rows.refuse_training_rows(held, training, f"held_out={held_out}")

    def answers(self, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
        require("train", "torch", "safetensors", where="evaluate")
        run, prompts, net = loaded(self)
        ids = [_ids(prompts, item, self.net) for item in asked for _ in range(generation.samples)]
        limits = generate.engine.Limits(
            prompts.stop, generation.max_tokens, min(generation.max_context, self.positions)
        )
        made: dict[int, Text] = {}
        for item in generate.engine.generate(
            net,
            ids,
            limits,
            causal=run.trained.net.causal,
            batch_size=self.net.batch,
            temperature=generation.temperature,
            seed=generation.seed,
        ):
            made[item.index] = Text(prompts.text(item.ids), len(item.ids), item.stopped, too_long=not item.ids)
        many = generation.samples
        return [[made[index * many + sample] for sample in range(many)] for index in range(len(asked))]

    def likelihoods(self, asked: Sequence[Prompt], endings: Sequence[str]) -> list[Likelihood]:
        require("train", "torch", "safetensors", where="evaluate")
        run, prompts, net = loaded(self)
        causal = run.trained.net.causal
        result = []
        for item, ending in zip(asked, endings, strict=True):
            ids, rest = _ids(prompts, item, self.net), prompts.answer_ids(ending)
            if len(ids) + len(rest) - 1 > self.positions:
                result.append(Likelihood(None, greedy=False))
            else:
                result.append(Likelihood(*generate.likelihood.measure(net, ids, rest, causal=causal)))
        return result


@lru_cache(maxsize=1)
def loaded(model: TrainedModel) -> tuple[Run, Prompts, Any]:
    """Return the run, what makes its prompts, and its net on the device, ready to be called."""
    run = model.opened()
    find = model.net.special_tokens == "tokens"
    prompts = Prompts(run.tokenizer, run.trained.tokenizer_info, find_specials=find, where=run.uri)
    net = nets.device.place(run.net(model.weights), model.net.device, model.net.precision)
    return run, prompts, net


def _ids(prompts: Prompts, asked: Prompt, net: Net) -> list[int]:
    tags = [tag for tag in asked.tags if net.unknown_tags == "refuse" or tag in prompts.conditions]
    try:
        return prompts.ids(asked.prompt, tags)
    except UsageError as error:
        if error.where != "condition":
            raise
        hint = "set=benchmarks.<name>.condition='' names others, set=net.unknown_tags=leave_out leaves them out"
        raise UsageError(error.what, where="condition", got=error.got, expected=error.expected, hint=hint) from error


def _content_of(run: Run, weights: Literal["ema", "current"]) -> Sequence[object]:
    """Return what the weights are and what is needed to use them, not how long their training took."""
    if run.checkpoint is not None:
        named = [hashlib.sha256(run.tokenizer.encode()).hexdigest()] if run.tokenizer_option else []
        return [run.checkpoint.content, weights, *named]
    trained = run.trained
    # An average has parameters only: buffers are those of the net.
    names = [WEIGHTS, *([EMA] if weights == "ema" else [])]
    if run.manifest is not None:
        known = {file.path: file.digest for file in run.manifest.files}
        files = [known.get(name, "") for name in names]
    else:
        uris = [storage.join(run.uri, name) for name in names]
        files = [item.digest for item in storage.store_for(run.uri).digested(uris)]
    # That of the run may have been put there later, or be named by an option.
    files.append(hashlib.sha256(run.tokenizer.encode()).hexdigest())
    return [trained.model, trained.vocab_size, trained.positions, trained.tokenizer_info, files]
