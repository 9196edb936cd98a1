"""The prompts of ``train_config.yaml``, answered at the end of a run. Torch is imported late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pairmill.errors import UsageError
from pairmill.stages.train.generate.prompts import Prompts
from pairmill.stages.train.watch.records import Sample

if TYPE_CHECKING:
    from pairmill.stages.train.nets import Net
    from pairmill.stages.train.settings import EvaluationSettings


def refuse(asked: EvaluationSettings, tokenizer: bytes | None, info: Mapping[str, Any]) -> None:
    """Raise UsageError if the prompts cannot be answered, InputError if the tokenizer is not that of the data.

    Args:
        asked: the prompts.
        tokenizer: tokenizer.json; None = not known.
        info: which tokens begin and end texts.
    """
    if not asked.prompts:
        return
    if tokenizer is None:
        raise UsageError(
            "prompts need a tokenizer",
            where="evaluation.prompts",
            got="data that bring none",
            expected="tokenizer=",
            hint="it is beside the tokens: <project>/tokenize/<fingerprint>/tokenizer.json",
        )
    _ids(asked, Prompts(tokenizer.decode(), info))


def answers(
    net: Net, asked: EvaluationSettings, tokenizer: bytes, info: Mapping[str, Any], causal: bool
) -> list[Sample]:
    """The likeliest answers of a whole net."""
    from pairmill.stages.train.generate import engine

    prompts = Prompts(tokenizer.decode(), info)
    ids = _ids(asked, prompts)
    found = engine.generate(net, ids, engine.Limits(prompts.stop, asked.new_tokens, net.positions), causal=causal)
    texts = {one.index: prompts.text(one.ids) for one in found}
    return [Sample(prompt, texts[at], asked.condition) for at, prompt in enumerate(asked.prompts)]


def _ids(asked: EvaluationSettings, prompts: Prompts) -> list[list[int]]:
    tags = [tag.strip() for tag in asked.condition.split(",") if tag.strip()]
    return [prompts.ids(prompt, tags) for prompt in asked.prompts]
