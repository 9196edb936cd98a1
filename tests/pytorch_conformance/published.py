"""The references' configurations as settings of ours."""

from typing import Any

from components.train.settings import ModelSettings, Override

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
    values = {NAMES.get(name, name): value for name, value in arch.items() if name != "name"}
    if "H_override" in values:
        values["H_override"] = Override(
            **{NAMES.get(name, name): value for name, value in values["H_override"].items()}
        )
    # The reference begins with two differentiated calls where nothing is said.
    return ModelSettings(net=NETS[arch["name"].rpartition("@")[2]], **{"bp_min": 2} | values)


def of_kempner(config: dict[str, Any]) -> ModelSettings:
    """``model`` of KempnerForge."""
    return ModelSettings(
        net="llama",
        layers=config["n_layers"],
        width=config["dim"],
        heads=config["n_heads"],
        key_value_heads=config.get("n_kv_heads", 0),
        expansion=4 * config.get("ffn_dim_multiplier", 1.0),
        norm_eps=1e-5,
        attention="causal",
        qk_norm=config.get("qk_norm", False),
        tied=config.get("tie_embeddings", False),
    )
