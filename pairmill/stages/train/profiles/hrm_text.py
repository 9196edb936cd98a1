"""HRM-Text's numbers (its public configuration files cfg_pretrain and cfg_sft), with its defects.

Not reproduced: initial weights that differ with the number of processes, and gradients that are as many times too large
as there are processes, which AdamATan2 does not see.
"""

from __future__ import annotations

from math import cos, pi
from typing import Any, Final

QUIRKS: Final = frozenset({"cosine_rises", "steps_by_floor", "packed_by_process", "targets_in_prefix"})

OF_L: Final = ("optimizer.lr=0.00025", "batch.tokens=172032")
"""How its instructions train size L. Its configuration, and so the profile, has the same numbers for all sizes."""

PRETRAINING: Final[dict[str, Any]] = {
    "model": {"net": "hrm", "size": "XL"},
    "batch": {"tokens": 196_608},
    "optimizer": {"name": "adam_atan2", "lr": 2.2e-4, "betas": [0.9, 0.95], "weight_decay": 0.1, "decay": "all"},
    "schedule": {"shape": "cosine", "warmup_steps": 2000, "min_ratio": 1.0},
    "training": {"epochs": 4, "ema": 0.9999, "precision": "bfloat16"},
    "evaluation": {"every_steps": 0},
    "watch": {"every_steps": 5},
}

FINETUNING: Final[dict[str, Any]] = {
    **PRETRAINING,
    "model": {"net": "hrm", "size": "XL", "bp_warmup_ratio": 0.0},
    "batch": {"tokens": 32_768},
    "optimizer": {**PRETRAINING["optimizer"], "lr": 3e-5},
    "schedule": {"shape": "cosine", "warmup_steps": 0, "min_ratio": 0.1},
    "training": {"epochs": 5, "ema": 0.999, "precision": "bfloat16"},
}

NETS: Final[dict[str, dict[str, Any]]] = {"hrm": {"bp_min": 2}, "trm": {"H_bp_steps": 1}}
"""With these the embedding learns nothing at the beginning (hrm), or ever (trm)."""


def cosine(step: int, total: int, warmup: int, least: float) -> float:
    """The factor of the learning rate at a step from 1: beyond the total it rises again.

    Raises:
        ZeroDivisionError: the total is the warm-up, and the step has reached it.
    """
    if step < warmup:
        return step / warmup
    return least + max(0.0, (1 - least) * 0.5 * (1 + cos(pi * (step - warmup) / (total - warmup))))
