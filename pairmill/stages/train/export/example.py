"""Write an answer with this model: ``python example.py "a prompt" [tag ...]``. It needs torch and transformers.

``encode`` adds what a plain call of the tokenizer leaves out: the tokens around a prompt, and ``token_type_ids``.
Without those the model reads a prompt as it never did in training. If a chat template rendered the rows of training, it
renders the prompt: ``chat_template.jinja``.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FOLDER = Path(__file__).resolve().parent


def encode(tokenizer: Any, prompt: str, tags: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """Encode a prompt, int64 [1, tokens]. Special tokens that are spelled out in the prompt are plain text."""
    layout = json.loads((FOLDER / "prompt.json").read_text())
    if "chat" in layout:
        chat = [{"role": "system", "content": f"Task condition: {','.join(tags)}"}] if tags else []
        chat.append({"role": "user", "content": prompt.strip()})
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **layout["chat"])
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    else:
        begin = layout["begin"] + [layout["tags"][tag] for tag in tags]
        text = tokenizer(prompt.strip(), add_special_tokens=False, split_special_tokens=True)["input_ids"]
        ids = torch.tensor([begin + text + layout["end"]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if layout["token_type_ids"]:  # 1: all of the prompt sees all of the prompt
        inputs["token_type_ids"] = torch.ones_like(ids)
    return inputs


def answer(
    model: Any, tokenizer: Any, prompt: str, tags: Sequence[str] = (), max_new_tokens: int = 256, **options: Any
) -> str:
    """Return the text that the model writes; ``options`` are those of ``generate``."""
    inputs = encode(tokenizer, prompt, tags)
    room = model.config.max_position_embeddings - inputs["input_ids"].shape[1]
    with torch.inference_mode():
        made = model.generate(**inputs, max_new_tokens=min(max_new_tokens, room), **options)
    new = made[0, inputs["input_ids"].shape[1] :].tolist()
    if new and new[-1] == tokenizer.eos_token_id:
        new.pop()
    text: str = tokenizer.decode(new, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"usage: python {sys.argv[0]} PROMPT [TAG ...]")
    tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), AutoModelForCausalLM.from_pretrained(FOLDER)
    print(answer(model, tokenizer, sys.argv[1], sys.argv[2:]))
