"""The references' configurations as settings of ours."""

from typing import Any

from pairmill.nets.settings import ModelSettings, Override

NETS = {
    "TransformerWrapper": "transformer",
    "HierarchicalReasoningModel": "hrm",
    "TinyRecursiveModel": "trm",
    "RINS": "rins",
    "UniversalTransformer": "ut",
}
NAMES = {
    "n_layers": "layers",
    "hidden_size": "width",
    "num_heads": "heads",
    "norm_type": "norm",
    "rope_theta": "rope_base",
    "pos_emb_type": "pos_emb",
    "init_type": "init",
    "attn_type": "attention",
    "bp_min_steps": "bp_min",
    "bp_max_steps": "bp_max",
}


def of_hrm_text(arch: dict[str, Any]) -> ModelSettings:
    """``arch`` of HRM-Text."""
    values = ours({name: value for name, value in arch.items() if name not in ("name", "head")})
    if "H_override" in values:
        values["H_override"] = Override(**ours(values["H_override"]))
    # The reference begins with two differentiated calls where nothing is said.
    return ModelSettings(net=NETS[arch["name"].rpartition("@")[2]], **{"bp_min": 2} | values)


def ours(arch: dict[str, Any]) -> dict[str, Any]:
    """Values of HRM-Text under our names; one that is null is ours where nothing is said."""
    return {NAMES.get(name, name): value for name, value in arch.items() if value is not None}


OF_KEMPNER = {
    "n_layers": "layers",
    "dim": "width",
    "n_heads": "heads",
    "n_kv_heads": "key_value_heads",
    "ffn_dim_multiplier": "expansion",
    "ffn_hidden_dim": "feed_width",
    "norm_eps": "norm_eps",
    "rope_theta": "rope_base",
    "init_std": "init_std",
    "qk_norm": "qk_norm",
    "tie_embeddings": "tied",
}


def of_kempner(config: dict[str, Any]) -> ModelSettings:
    """``model`` of KempnerForge."""
    given = {name: value for name, value in config.items() if name not in ("vocab_size", "max_seq_len")}
    values = {OF_KEMPNER[name]: value for name, value in given.items() if value is not None}
    if "expansion" in values:
        values["expansion"] *= 4
    return ModelSettings(net="llama", attention="causal", **{"norm_eps": 1e-5} | values)
