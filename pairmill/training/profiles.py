"""The registry of profiles: the defaults of the reference trainers, and which of their defects are reproduced.

hrm_text: HRM-Text's numbers (its public configuration files cfg_pretrain and cfg_sft). Not reproduced: initial weights
that differ with the number of processes, and gradients that are as many times too large as there are processes, which
AdamATan2 does not see.

kempner: KempnerForge's numbers. Not reproduced: weights in bfloat16 (ours are float32), and chunked loss, which is the
same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

QuirkName = Literal[
    "cosine_rises",
    "steps_by_floor",
    "packed_by_process",
    "targets_in_prefix",
    "rate_from_zero",
    "z_loss_everywhere",
    "mean_of_means",
    "evaluation_across_documents",
]
"""A defect by name; each is in a line of docs/differences.md."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Whose numbers a training has.

    Attributes:
        defaults: values of settings, as train_config.yaml has them.
        nets: values of ``model`` that the profile has for a net.
        quirks: the defects that are reproduced.
        sizes: for a size, how the reference's instructions differ from its own configuration, as overrides.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    nets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quirks: frozenset[QuirkName] = frozenset()
    sizes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_HRM_TEXT: Final = Profile(
    defaults={
        "model": {"net": "hrm", "size": "XL"},
        "batch": {"tokens": 196_608},
        "optimizer": {"name": "adam_atan2", "lr": 2.2e-4, "betas": [0.9, 0.95], "weight_decay": 0.1, "decay": "all"},
        "schedule": {"shape": "cosine", "warmup_steps": 2000, "min_ratio": 1.0},
        "training": {"epochs": 4, "ema": 0.9999, "precision": "bfloat16"},
        "evaluation": {"every_steps": 0},
        "watch": {"every_steps": 5},
    },
    # With these the embedding learns nothing at the beginning (hrm), or ever (trm).
    nets={"hrm": {"bp_min": 2}, "trm": {"H_bp_steps": 1}},
    quirks=frozenset({"cosine_rises", "steps_by_floor", "packed_by_process", "targets_in_prefix"}),
    # Its configuration, and so the profile, has the same numbers for all sizes.
    sizes={"L": ("optimizer.lr=0.00025", "batch.tokens=172032")},
)

PROFILES: Final[dict[str, Profile]] = {
    "pairmill": Profile(),
    "hrm_text": _HRM_TEXT,
    "hrm_text_finetuning": replace(
        _HRM_TEXT,
        defaults={
            **_HRM_TEXT.defaults,
            "model": {"net": "hrm", "size": "XL", "bp_warmup_ratio": 0.0},
            "batch": {"tokens": 32_768},
            "optimizer": {**_HRM_TEXT.defaults["optimizer"], "lr": 3e-5},
            "schedule": {"shape": "cosine", "warmup_steps": 0, "min_ratio": 0.1},
            "training": {"epochs": 5, "ema": 0.999, "precision": "bfloat16"},
        },
        sizes={},
    ),
    "kempner": Profile(
        defaults={
            "model": {"net": "llama"},
            "optimizer": {
                "name": "adamw",
                "lr": 3e-4,
                "betas": [0.9, 0.95],
                "eps": 1e-8,
                "weight_decay": 0.1,
                "decay": "matrices",
                "clip": 1.0,
            },
            "schedule": {"shape": "cosine", "warmup_steps": 2000, "min_ratio": 0.1, "wsd_decay": "cosine"},
            "training": {"ema": "off"},
            "checkpoints": {"every_steps": 1000, "every_minutes": 0.0, "keep": 3},
            "watch": {"every_steps": 10},
        },
        quirks=frozenset({"rate_from_zero", "z_loss_everywhere", "mean_of_means", "evaluation_across_documents"}),
    ),
}
"""The registry."""

if TYPE_CHECKING:
    ProfileName = str
else:
    ProfileName = Literal[tuple(PROFILES)]
