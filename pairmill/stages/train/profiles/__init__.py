"""Profiles: the defaults of the reference trainers, and which of their defects are reproduced."""

from __future__ import annotations

from typing import Any, Final, Literal

from pairmill.stages.train.profiles import hrm_text, kempner

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

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "pairmill": {},
    "hrm_text": hrm_text.PRETRAINING,
    "hrm_text_finetuning": hrm_text.FINETUNING,
    "kempner": kempner.DEFAULTS,
}
"""Values of settings, as train_config.yaml has them."""

NETS: Final[dict[str, dict[str, dict[str, Any]]]] = {"hrm_text": hrm_text.NETS, "hrm_text_finetuning": hrm_text.NETS}
"""Values of ``model`` that a profile has for a net."""

QUIRKS: Final[dict[str, frozenset[str]]] = {
    "pairmill": frozenset(),
    "hrm_text": hrm_text.QUIRKS,
    "hrm_text_finetuning": hrm_text.QUIRKS,
    "kempner": kempner.QUIRKS,
}
