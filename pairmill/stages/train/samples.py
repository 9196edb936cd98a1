"""The prompts of ``train_config.yaml``, answered at the end of a run. Torch is imported late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pairmill.errors import UsageError
from pairmill.nets import generate
from pairmill.nets.generate.prompts import Prompts
from pairmill.stages.train.watch.records import Sample
from pairmill.training.settings import EvaluationSettings

if TYPE_CHECKING:
    from pairmill.nets.net import Net


def check_prompts(settings: EvaluationSettings, tokenizer: bytes | None, info: Mapping[str, Any]) -> None:
    """Raise UsageError if the prompts cannot be answered, InputError if the tokenizer is not that of the data.

    Args:
        settings: the prompts.
        tokenizer: tokenizer.json; None = not known.
        info: which tokens begin and end texts.
    """
    if not settings.prompts:
        return
    if tokenizer is None:
        raise UsageError(
            "prompts need a tokenizer",
            where="evaluation.prompts",
            got="data that bring none",
            expected="tokenizer=",
            hint="it is beside the tokens: <project>/tokenize/<fingerprint>/tokenizer.json",
        )
    _encode(settings, Prompts(tokenizer.decode(), info))


def answer_prompts(
    net: Net, settings: EvaluationSettings, tokenizer: bytes, info: Mapping[str, Any], causal: bool
) -> list[Sample]:
    """Write the likeliest answers of a whole net."""
    prompts = Prompts(tokenizer.decode(), info)
    ids = _encode(settings, prompts)
    limits = generate.engine.Limits(prompts.stop, settings.new_tokens, net.positions)
    result = generate.engine.generate(net, ids, limits, causal=causal)
    texts = {answer.index: prompts.text(answer.ids) for answer in result}
    return [Sample(prompt, texts[at], settings.condition) for at, prompt in enumerate(settings.prompts)]


def _encode(settings: EvaluationSettings, prompts: Prompts) -> list[list[int]]:
    tags = [tag.strip() for tag in settings.condition.split(",") if tag.strip()]
    return [prompts.ids(prompt, tags) for prompt in settings.prompts]
