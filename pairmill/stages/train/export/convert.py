"""Names, shapes and configuration of a net in transformers.

HRM-Text's class there (``hrm_text``, since 5.9) has an L and an H stack of equally many blocks, called as hrm's are.
Three nets fit it exactly: hrm; trm, whose one stack is written under both names; and transformer, which is an H stack
that is called once after no call of L. The Llama-style net is ``llama``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from pairmill.errors import UsageError
from pairmill.nets.settings import NETS, ModelSettings
from pairmill.nets.shape import StackShape, outer_stack, stacks

if TYPE_CHECKING:
    from torch import Tensor

_NEITHER: Final = "neither HRM-Text's class in transformers nor any other computes it"

_LLAMA: Final = {
    r"^token_embedding\.embedding\.weight$": "model.embed_tokens.weight",
    r"^output_head\.proj\.weight$": "lm_head.weight",
    r"^norm\.weight$": "model.norm.weight",
    r"^layers\.(\d+)\.attention_norm\.": r"model.layers.\1.input_layernorm.",
    r"^layers\.(\d+)\.mlp_norm\.": r"model.layers.\1.post_attention_layernorm.",
    r"^layers\.(\d+)\.attention\.": r"model.layers.\1.self_attn.",
    r"^layers\.(\d+)\.mlp\.": r"model.layers.\1.mlp.",
}


def refuse(model: ModelSettings) -> None:
    """Raise UsageError if transformers has no class that computes the net."""
    for what, why in _reasons(model).items():
        raise UsageError(
            "cannot be exported for transformers",
            where=f"model.{what}",
            got=str(getattr(model, what)),
            expected=why,
            hint="the run's own weights.safetensors and config.json have the whole net",
        )


def _reasons(model: ModelSettings) -> dict[str, str]:
    """Name the settings that rule out an export, and what would be right."""
    reasons: dict[str, str] = {}
    if model.kind.transformers == "llama":
        if model.qk_norm:
            reasons["qk_norm"] = "false: Llama does not normalise queries and keys"
        if not model.causal:
            reasons["attention"] = "causal: Llama has no other"
        return reasons
    if not model.kind.transformers:
        return {"net": f"one of {', '.join(net for net, kind in NETS.items() if kind.transformers)}: {_NEITHER}"}
    if any(stack.norm != "pre" for stack in stacks(model).values()):
        reasons["norm"] = "pre: the class in transformers has no other"
    if differ := _differences(model):
        reasons["H_override"] = f"equal stacks, as in the class in transformers; they differ in {', '.join(differ)}"
    return reasons


def _differences(model: ModelSettings) -> list[str]:
    """In what the stacks differ that the class in transformers has once for both."""
    first, *others = stacks(model).values()
    names = [item.name for item in fields(StackShape) if item.name not in {"init", "init_std"}]
    return [name for name in names if any(getattr(first, name) != getattr(each, name) for each in others)]


def config_of(model: ModelSettings, vocab_size: int, positions: int, ids: Mapping[str, int | None]) -> dict[str, Any]:
    """``config.json``.

    ``num_hidden_layers`` is that of one stack: transformers multiplies it by the calls when it reads the file.

    Args:
        model: of the run; not one that :func:`refuse` refuses.
        vocab_size: rows of the embedding.
        positions: of the RoPE table.
        ids: of the special tokens, by the names of config.json (``eos_token_id`` ...).
    """
    stack = outer_stack(model)
    llama = model.kind.transformers == "llama"
    common = {
        "vocab_size": vocab_size,
        "hidden_size": stack.width,
        "intermediate_size": stack.feed,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": stack.heads,
        "num_key_value_heads": stack.key_value_heads,
        "head_dim": stack.head_width,
        "max_position_embeddings": positions,
        "rms_norm_eps": stack.norm_eps,
        "rope_theta": stack.rope_base,
        "initializer_range": (model.init_std or 0.02) if llama else stack.std,
        **ids,
    }
    if llama:
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            **common,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": model.tied,
        }
    cycles = {"H_cycles": model.H_cycles, "L_cycles": model.L_cycles}
    return {
        "model_type": "hrm_text",
        "architectures": ["HrmTextForCausalLM"],
        **common,
        **(cycles if "L_module" in model.kind.exported else {"H_cycles": 1, "L_cycles": 0}),
        "tie_word_embeddings": False,
        "embedding_scale": 1 / stack.std,
        "prefix_lm": not model.causal,
    }


def tensors_of(model: ModelSettings, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by their names in transformers, no two of which share memory.

    Args:
        model: of the run; not one that :func:`refuse` refuses.
        tensors: of the run, by our names.
    """
    if model.kind.transformers == "llama":
        return {_llama_name(name): tensor for name, tensor in tensors.items()}
    embedding = tensors["embed_tokens.embedding_weight"]
    # The class adds it to the input, before a net without an L has its one call of H.
    start = tensors.get("model.zL_init", embedding.new_zeros(embedding.shape[1]))
    made = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": tensors["lm_head.weight"],
        "model.z_L_init": start,
    }
    for module, prefix in model.kind.exported.items():
        of_stack = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        made |= {f"model.{module}.layers.{name.removeprefix(prefix)}": item.clone() for name, item in of_stack.items()}
    if "L_module" not in model.kind.exported:  # nothing calls it, but its weights are expected
        unused = {name: tensor for name, tensor in made.items() if ".H_module." in name}
        made |= {name.replace(".H_module.", ".L_module."): item.new_zeros(item.shape) for name, item in unused.items()}
    return made


def _llama_name(name: str) -> str:
    for pattern, other in _LLAMA.items():
        made, count = re.subn(pattern, other, name)
        if count:
            return made
    raise KeyError(name)
