"""HRM-Text's configurations with overrides, as settings of ours with the profiles hrm_text and hrm_text_finetuning.

What has no equivalent is listed here, with the reason: keys of the result in a table, overrides in a function.
"""

import json
import re
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.training.settings import TrainSettings
from tests.pytorch_conformance.recorded import cases

(PATH,) = cases("", "hrm_config.json")
CASES = json.loads(PATH.read_text())
PROFILES = {"cfg_pretrain": "hrm_text", "cfg_sft": "hrm_text_finetuning"}

KEYS = {
    "arch.half_layers": "model.half_layers",
    "arch.H_cycles": "model.H_cycles",
    "arch.L_cycles": "model.L_cycles",
    "arch.cycles": "model.cycles",
    "arch.H_bp_steps": "model.H_bp_steps",
    "arch.L_bp_steps": "model.L_bp_steps",
    "arch.L_bp_cycles": "model.L_bp_cycles",
    "arch.bp_cycles": "model.bp_cycles",
    "arch.bp_warmup_ratio": "model.bp_warmup_ratio",
    "arch.bp_max_steps": "model.bp_max",
    "arch.n_layers": "model.layers",
    "arch.hidden_size": "model.width",
    "arch.num_heads": "model.heads",
    "arch.expansion": "model.expansion",
    "arch.norm_type": "model.norm",
    "arch.norm_eps": "model.norm_eps",
    "arch.rope_theta": "model.rope_base",
    "arch.pos_emb_type": "model.pos_emb",
    "arch.init_type": "model.init",
    "arch.init_std": "model.init_std",
    "arch.attn_type": "model.attention",
    "arch.bp_min_steps": "model.bp_min",
    "data.target_only": "batch.target_only",
    "global_batch_size": "batch.tokens",
    "epochs": "training.epochs",
    "lr": "optimizer.lr",
    "lr_min_ratio": "schedule.min_ratio",
    "lr_warmup_steps": "schedule.warmup_steps",
    "weight_decay": "optimizer.weight_decay",
    "beta1": "optimizer.betas.0",
    "beta2": "optimizer.betas.1",
    "ema": "training.ema",
    "fwd_bwd_dtype": "training.precision",
    "seed": "training.seed",
    "log_interval": "watch.every_steps",
}
OF_H = {
    "n_layers": "layers",
    "num_heads": "heads",
    "expansion": "expansion",
    "norm_type": "norm",
    "norm_eps": "norm_eps",
    "rope_theta": "rope_base",
    "init_type": "init",
    "init_std": "init_std",
}
KEYS |= {f"arch.H_override.{theirs}": f"model.H_override.{ours}" for theirs, ours in OF_H.items()}
NOT_KEYS = {
    "arch.name": "the class follows from model.net",
    "arch.head": "there is one kind of head",
    "data.path": "an option of the command, sampled=; a missing one is refused, where the reference takes ???",
    "project_name": "made from the folder's name there; here watch.wandb, empty = none",
    "run_name": "the run is a folder here, named by its content",
    "checkpoint_path": "an option of the command, root=",
    "resume_from": "a run goes on by itself; other weights to begin with are an option of the command",
    "resume_epoch": "checkpoints are by steps and minutes here, and the newest complete one is taken",
    "weights_only_resume_from_ema": "an option of the command",
    "checkpoint_interval": "in epochs there; by steps and minutes here",
}

GROUPS = ("arch/net@arch", "arch/size@arch")


def refused_here(text: str) -> str:
    """Why an override that the reference takes is refused here; empty = it is not."""
    key, _, value = text.removeprefix("+").partition("=")
    if key not in {*KEYS, *NOT_KEYS, *GROUPS}:
        return "accepted and ignored there; refused with the names that there are here"
    default = ours(TrainSettings(), KEYS[key]) if key in KEYS else None
    if type(default) is int and not re.fullmatch("[-+]?[0-9]+|null", value):
        return "2.0 and 1e5 become integers there; an integer has to be one here"
    if key == "fwd_bwd_dtype" and value == "float16":
        return "not among ours: it would take a scaled loss"
    # There the optimizer finds it, after the data are read.
    return "out of range" if key == "weight_decay" and float(value) < 0 else ""


def allowed_here(case: dict[str, Any], text: str) -> bool:
    """Whether an override is refused there for want of a +; every setting has a default here."""
    return case.get("error") == "ConfigCompositionException" and text.partition("=")[0] in KEYS


def translated(case: dict[str, Any]) -> list[str]:
    given = [f"profile={PROFILES[case['config']]}"]
    betas = {"beta1": 0.9, "beta2": 0.95}
    for text in case["overrides"]:
        key, _, value = text.removeprefix("+").partition("=")
        if key in NOT_KEYS:
            continue
        if key in GROUPS:
            given.append(f"model.{key.split('/')[1].split('@')[0]}={value}")
        elif key in betas:
            betas[key] = value
            given.append(f"optimizer.betas=[{betas['beta1']}, {betas['beta2']}]")
        else:
            # Of an unknown key there is no translation: it has to be refused as it is.
            given.append(f"{KEYS.get(key, key)}={'off' if (key, value) == ('ema', 'null') else value}")
    return given


def flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


def ours(settings: TrainSettings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda one: " ".join([one["config"], *one["overrides"]]))
def test_values_are_those_recorded(case: dict[str, Any]) -> None:
    refused = any(map(refused_here, case["overrides"]))
    if "result" not in case:
        refused = not any(allowed_here(case, text) for text in case["overrides"])
    if refused:
        with pytest.raises(UsageError):
            TrainSettings.parse("", translated(case))
        return
    settings = TrainSettings.parse("", translated(case))
    compared = 0
    for key, value in flat(case.get("result", {})).items():
        if key in KEYS:
            if value is None and key != "ema":  # nothing is said: ours is what that means
                continue
            wanted = "off" if key == "ema" and value is None else value
            assert ours(settings, KEYS[key]) == wanted, key
            compared += 1
        else:
            assert key in NOT_KEYS, f"{key} is in no table"
    assert compared >= 20 or "result" not in case


def test_every_recorded_key_is_in_a_table() -> None:
    assert any("result" in case for case in CASES)
    taken = [case for case in CASES if not any(map(refused_here, case["overrides"]))]
    keys = {key for case in taken for key in flat(case.get("result", {}))}
    assert keys <= {*KEYS, *NOT_KEYS}
    assert len(keys & {*KEYS}) > 20
