"""``generate``: what a trained net answers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from pairmill import nets, storage
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.extras import require
from pairmill.fields import Checked
from pairmill.log import event, progress
from pairmill.nets import generate as generation
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.run import Run, Weights
from pairmill.stages.train.config import Device


@dataclass(kw_only=True)
class GenerateConfig(Checked, one_of=("prompt", "prompts")):
    """Print what a trained net answers."""

    run: str = option(help="the folder that train printed, or a root with one finished run, or a checkpoint")
    prompt: str = option("", help="a prompt; its answer is printed as it is")
    condition: str = option("", help="tags of the prompts, joined by commas, in the order of their tokens: cot")
    prompts: str = option(
        "",
        help="a file or URI of prompts, each a JSON line {prompt, condition?}; printed is the line with answer, tokens "
        "and stopped",
    )
    tokenizer: str = option("", help="tokenizer.json of the data, for a run that was trained without")
    weights: Weights = option(
        "auto", help="ema, current, or auto: those with the lower held-out loss, where both are known, else ema"
    )
    temperature: float = option(0.0, help="0 = always the likeliest token", at_least=0)
    seed: int = option(0, help="of the draws, if the temperature is above 0", at_least=0)
    max_tokens: int = option(256, help="most tokens of an answer", at_least=1)
    max_context: int = option(
        0, help="most tokens of prompt and answer; 0 = as many as the net has positions", at_least=0
    )
    batch_size: int = option(
        8, help="prompts that are continued together; the answers do not follow from it", at_least=1
    )
    special_tokens: Literal["text", "tokens"] = option(
        "text", help="what a special token is that a prompt spells out: text, as in training, or the token"
    )
    device: Device = option("auto", help="auto = a GPU if there is one")
    precision: Literal["float32", "bfloat16"] = option("float32", help="of weights and activations")


@dataclass(frozen=True)
class _Prompt:
    """A prompt: its line of the file, its ids."""

    line: dict[str, Any]
    ids: list[int]


def generate(config: GenerateConfig) -> str:
    """Return the text of the answer, or a JSON line for each prompt of the file, in the file's order.

    Raises:
        UsageError: an unknown tag; a prompt that is as long as the context; more context than the net has positions.
        InputError: not a finished run, or not a file of prompts.
    """
    require("train", "torch", "safetensors", where="generate")
    run = Run.open(config.run, tokenizer=config.tokenizer)
    prompts = _prompts(run, config)
    read = list(_read_prompts(config, prompts))
    positions = run.trained.positions
    context = config.max_context or positions
    if context > positions:
        got, expected = f"{context:,}", f"at most {positions:,}, the positions of the net"
        raise UsageError("out of range", where="max_context", got=got, expected=expected)
    for number, prompt in enumerate(read, 1):
        if len(prompt.ids) >= context:
            where = f"{config.prompts} line {number}" if config.prompts else "prompt"
            expected = f"fewer than {context:,}, the context"
            raise UsageError("too long", where=where, got=f"{len(prompt.ids):,} tokens", expected=expected)
    answers = _answers(run, config, prompts, [prompt.ids for prompt in read], context)
    if config.prompt:
        return f"{answers[0]['answer']}\n"
    lines = [{**prompt.line, **answer} for prompt, answer in zip(read, answers, strict=True)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _prompts(run: Run, config: GenerateConfig) -> Prompts:
    find = config.special_tokens == "tokens"
    return Prompts(run.tokenizer, run.trained.tokenizer_info, find_specials=find, where=run.uri)


def _read_prompts(config: GenerateConfig, prompts: Prompts) -> Iterator[_Prompt]:
    if config.prompt:
        yield _Prompt({}, prompts.ids(config.prompt, _tags(config.condition)))
        return
    uri = storage.normalise(config.prompts, "prompts")
    # Not splitlines(), which also cuts where a text has a line separator of Unicode.
    for number, data in enumerate(storage.store_for(uri).read(uri).removesuffix(b"\n").split(b"\n"), 1):
        where = f"{uri} line {number}"
        try:
            line = json.loads(data)
        except ValueError as error:
            raise InputError("not valid JSON", where=where, got=str(error)) from error
        expected = '{"prompt": text, "condition": "cot"}'
        if not isinstance(line, dict) or not isinstance(line.get("prompt"), str):
            raise InputError("not a prompt", where=where, got=data.decode()[:80], expected=expected)
        condition = line.get("condition", config.condition)
        if not isinstance(condition, str):
            raise InputError("not tags joined by commas", where=where, got=repr(condition)[:80], expected=expected)
        try:
            yield _Prompt(line, prompts.ids(line["prompt"], _tags(condition)))
        except UsageError as error:
            raise InputError(
                error.what, where=f"{where}: {error.where}", got=error.got, expected=error.expected, hint=error.hint
            ) from error


def _tags(condition: str) -> Sequence[str]:
    return [tag.strip() for tag in condition.split(",") if tag.strip()]


def _answers(
    run: Run, config: GenerateConfig, prompts: Prompts, ids: list[list[int]], context: int
) -> list[dict[str, Any]]:
    """``answer``, ``tokens`` and ``stopped`` of each prompt."""
    weights, reason = run.choose_weights(config.weights)
    event(f"generate: {weights} weights ({reason})", weights=weights)
    result = generation.engine.generate(
        nets.device.place(run.net(weights), config.device, config.precision),
        ids,
        generation.engine.Limits(prompts.stop, config.max_tokens, context),
        causal=run.trained.net.causal,
        batch_size=config.batch_size,
        temperature=config.temperature,
        seed=config.seed,
    )
    made = {}
    with progress("generate", len(ids), "answers") if config.prompts else nullcontext() as bar:
        for answer in result:
            made[answer.index] = answer
            if bar is not None:
                bar.advance(1, 0, 0)
    return [
        {"answer": prompts.text(answer.ids), "tokens": len(answer.ids), "stopped": answer.stopped}
        for answer in (made[index] for index in range(len(ids)))
    ]
