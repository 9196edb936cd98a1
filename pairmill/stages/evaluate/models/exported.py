"""A folder that ``pairmill.stages.train export`` wrote, loaded by stock transformers as any other program would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Self

from pairmill import storage
from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Generation, Net
from pairmill.stages.evaluate.models.files import digest_of_folder
from pairmill.stages.evaluate.models.model import Likelihood, Model, Prompt, Text


@dataclass(frozen=True)
class ExportedModel(Model):
    """Args: folder: on this machine; net: how it runs here."""

    kind: ClassVar[str] = "exported folder"

    folder: str = ""
    net: Net = field(default_factory=Net)

    @classmethod
    def open(cls, uri: str, net: Net) -> Self:
        """Digest the folder.

        Raises:
            UsageError: it is not on this machine, or a setting does not suit it.
        """
        if storage.scheme(uri) != "file":
            hint = "copy the folder to this machine: transformers reads local files"
            raise UsageError("not a folder of this machine", where="model", got=uri, hint=hint)
        if net.weights != "auto":
            hint = "export wrote one kind of weights: leave out net.weights"
            raise UsageError("does not suit an exported folder", where="net.weights", got=net.weights, hint=hint)
        parts = (digest_of_folder(uri), net.precision, net.special_tokens, net.unknown_tags)
        return cls(content_key("evaluate exported", *parts), uri, str(storage.local_path(uri)), net)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "precision": self.net.precision}

    def answers(self, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
        import torch

        model, tokenizer, layout = _loaded(self.folder, self.net)
        context = min(generation.max_context, int(model.config.max_position_embeddings))
        result = []
        for item in asked:
            ids = _ids(tokenizer, layout, item, self.net)
            room = min(generation.max_tokens, context - len(ids))
            texts = []
            for sample in range(generation.samples):
                if room < 1:
                    texts.append(Text("", 0, stopped=False, too_long=True))
                    continue
                if generation.temperature:
                    digest = content_key(generation.seed, item.digest, sample)
                    torch.manual_seed(int(digest[:15], 16))
                texts.append(_written(model, tokenizer, layout, ids, room, generation))
            result.append(texts)
        return result

    def likelihoods(self, asked: Sequence[Prompt], endings: Sequence[str]) -> list[Likelihood]:
        import torch

        model, tokenizer, layout = _loaded(self.folder, self.net)
        result = []
        for item, ending in zip(asked, endings, strict=True):
            ids = _ids(tokenizer, layout, item, self.net)
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
    import torch

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
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        hint = "pip install transformers torch, or give the run itself: model=<the folder that train printed>"
        raise UsageError("needs transformers, not installed here", where="model", got=folder, hint=hint) from error
    with open(f"{folder}/prompt.json", encoding="utf-8") as file:
        layout = json.load(file)
    device = net.device if net.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, net.precision)).to(device).eval()
    return model, AutoTokenizer.from_pretrained(folder), layout
