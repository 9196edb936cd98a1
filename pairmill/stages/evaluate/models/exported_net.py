"""What torch and transformers do with a folder that export wrote."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pairmill.engine.manifest import seed_from
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Generation, Net
from pairmill.stages.evaluate.models.model import Likelihood, Prompt, Text


def generate_answers(folder: str, net: Net, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
    """Answer prompts; see :meth:`~pairmill.stages.evaluate.models.model.Model.answers`."""
    model, tokenizer, layout = _loaded(folder, net)
    context = min(generation.max_context, int(model.config.max_position_embeddings))
    result = []
    for item in asked:
        ids = _ids(tokenizer, layout, item, net)
        room = min(generation.max_tokens, context - len(ids))
        texts = []
        for sample in range(generation.samples):
            if room < 1:
                texts.append(Text("", 0, stopped=False, too_long=True))
                continue
            if generation.temperature:
                torch.manual_seed(seed_from(generation.seed, item.digest, sample, digits=15))
            texts.append(_written(model, tokenizer, layout, ids, room, generation))
        result.append(texts)
    return result


def measure_likelihoods(folder: str, net: Net, asked: Sequence[Prompt], endings: Sequence[str]) -> list[Likelihood]:
    """Rate endings; see :meth:`~pairmill.stages.evaluate.models.model.Model.likelihoods`."""
    model, tokenizer, layout = _loaded(folder, net)
    result = []
    for item, ending in zip(asked, endings, strict=True):
        ids = _ids(tokenizer, layout, item, net)
        text = ending.strip() if layout["end"] else ending
        rest = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if len(ids) + len(rest) - 1 > int(model.config.max_position_embeddings):
            result.append(Likelihood(None, greedy=False))
            continue
        if not rest:
            result.append(Likelihood(0.0, greedy=True))
            continue
        given = torch.tensor([[*ids, *rest[:-1]]], device=model.device)
        inputs = {"input_ids": given, "attention_mask": torch.ones_like(given)}
        if layout["token_type_ids"]:
            inputs["token_type_ids"] = (torch.arange(given.shape[1], device=model.device) < len(ids)).long()[None]
        with torch.inference_mode():
            logits = model(**inputs).logits[0, len(ids) - 1 :].float().cpu()
        wanted = torch.tensor(rest)
        log = logits.double().log_softmax(-1).gather(1, wanted[:, None]).sum()
        result.append(Likelihood(float(log), bool((logits.argmax(-1) == wanted).all())))
    return result


def _written(model: Any, tokenizer: Any, layout: Any, ids: list[int], room: int, generation: Generation) -> Text:
    given = torch.tensor([ids], device=model.device)
    inputs = {"input_ids": given, "attention_mask": torch.ones_like(given)}
    if layout["token_type_ids"]:  # without them the prompt is read as it never was in training
        inputs["token_type_ids"] = torch.ones_like(given)
    drawn = generation.temperature > 0
    options = {"temperature": generation.temperature, "top_k": 0, "top_p": 1.0} if drawn else {}
    with torch.inference_mode():
        made = model.generate(**inputs, max_new_tokens=room, do_sample=drawn, **options)
    new = made[0, len(ids) :].tolist()
    stopped = bool(new) and new[-1] == tokenizer.eos_token_id
    kept = new[:-1] if stopped else new
    text = tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return Text(text, len(new), stopped)


def _ids(tokenizer: Any, layout: Any, asked: Prompt, net: Net) -> list[int]:
    begin = list(layout["begin"])
    for tag in asked.tags:
        if tag in layout["tags"]:
            begin.append(layout["tags"][tag])
        elif net.unknown_tags == "refuse":
            hint = "set=benchmarks.<name>.condition='' names others, set=net.unknown_tags=leave_out leaves them out"
            expected = ", ".join(sorted(layout["tags"])) or "none: the net was trained on texts without tags"
            raise UsageError("unknown tag", where="condition", got=repr(tag), expected=expected, hint=hint)
    plain = net.special_tokens == "text"
    text = tokenizer(asked.prompt.strip(), add_special_tokens=False, split_special_tokens=plain)["input_ids"]
    return [*begin, *text, *layout["end"]]


@lru_cache(maxsize=1)
def _loaded(folder: str, net: Net) -> tuple[Any, Any, Any]:
    with open(f"{folder}/prompt.json", encoding="utf-8") as file:
        layout = json.load(file)
    device = net.device if net.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, net.precision)).to(device).eval()
    return model, AutoTokenizer.from_pretrained(folder), layout
