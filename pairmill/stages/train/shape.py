"""What a net is made of, in numbers: sizes, stacks, and the calls of a forward pass. Nets and costs are made from it.

Source: HRM-Text (arXiv 2506.21734 and its public configuration files) for the recurrent nets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pairmill.stages.train.settings import ModelSettings


class Size(NamedTuple):
    """A published size: blocks, width, heads. Expansion is 4, head width 128."""

    layers: int
    width: int
    heads: int


SIZES: Final = {
    "B": Size(12, 1024, 8),
    "L": Size(24, 1280, 10),
    "XL": Size(32, 1536, 12),
    "XXL": Size(72, 1792, 14),
    "XXL_wide": Size(32, 2560, 20),
}


@dataclass(frozen=True, kw_only=True)
class StackShape:
    """Blocks that are called together.

    Attributes:
        layers: blocks.
        width: of the residual stream (h).
        heads: query heads.
        key_value_heads: key and value heads.
        feed: width inside the MLP (f).
        norm: pre or post.
        norm_eps: added to the mean square.
        rope_base: of the slowest rotation.
        init: rule of the initial weights.
        init_std: its standard deviation, 0 = the rule's own.
    """

    layers: int
    width: int
    heads: int
    key_value_heads: int
    feed: int
    norm: str
    norm_eps: float
    rope_base: float
    init: str
    init_std: float
    gated: bool = True

    @property
    def head_width(self) -> int:
        """Channels of a head (d)."""
        return self.width // self.heads

    @property
    def block_parameters(self) -> int:
        """Weights of the matrices of one block."""
        kv = self.key_value_heads * self.head_width
        return self.width * ((3 if self.gated else 2) * self.width + 2 * kv + 3 * self.feed)

    @property
    def std(self) -> float:
        """Standard deviation of the initial query, key, value, gate, up, embedding and head."""
        if self.init == "lecun_normal" or (self.init == "megatron" and not self.init_std):
            return 1 / math.sqrt(self.width)
        return self.init_std or 0.02

    def std_out(self, inputs: int) -> float:
        """Standard deviation of a matrix that writes to the residual stream, from this many channels."""
        if self.init == "lecun_normal":
            return 1 / math.sqrt(inputs)
        return self.std / math.sqrt(2 * self.layers) if self.init == "megatron" else self.std


def _stack(model: ModelSettings, layers: int, override: Mapping[str, Any]) -> StackShape:
    """A stack by the settings, and by the override where it names them."""
    of: dict[str, Any] = {**vars(model), "layers": layers, **override}
    llama = model.net == "llama"
    wide = of["expansion"] * of["width"] * 2 / 3
    feed = 0 if "expansion" in override else of["feed_width"]
    return StackShape(
        layers=of["layers"],
        width=of["width"],
        heads=of["heads"],
        key_value_heads=(llama and of["key_value_heads"]) or of["heads"],
        feed=feed or 256 * math.ceil((int(wide) if llama else round(wide)) / 256),
        norm=of["norm"],
        norm_eps=of["norm_eps"],
        rope_base=of["rope_base"],
        init=of["init"],
        init_std=of["init_std"],
        gated=not llama,
    )


class Recorded(NamedTuple):
    """How many calls, the last ones, are differentiated: in the place of H, and in the place of L."""

    high: int
    low: int


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A net, in numbers.

    Attributes:
        stacks: letters of its stacks: L, H or both; a net without recurrence has an H alone.
        calls: how often a forward pass calls each stack, by letter.
        recorded: how many of these calls are differentiated, by the settings and hrm's b.
        embeds: whether the embedding has a gradient then.
        halves: whether ``half_layers`` may give each stack half of the layers: of two stacks, or of one in both places.
        shipped: settings that it was published with, where ours are different by default.
    """

    stacks: str
    calls: Callable[[ModelSettings], dict[str, int]]
    recorded: Callable[[ModelSettings, int], Recorded]
    embeds: Callable[[ModelSettings, Recorded], bool]
    halves: bool = False
    shipped: Mapping[str, Any] = field(default_factory=dict)


def _of_hrm(model: ModelSettings, steps: int) -> Recorded:
    high = min(model.H_cycles, steps - 1)
    return Recorded(high, min(model.H_cycles * model.L_cycles, steps - high))


def _of_trm(model: ModelSettings, _: int) -> Recorded:
    return Recorded(min(model.H_cycles, model.H_bp_steps), min(model.H_cycles * model.L_cycles, model.L_bp_steps))


def _in_first_call_of_h(model: ModelSettings, made: Recorded) -> bool:
    # The input of hrm and trm enters the first call of H, or of what takes its place, and no later one.
    return made.high == model.H_cycles


_ONCE: Final = Kind(stacks="H", calls=lambda _: {"H": 1}, recorded=lambda *_: Recorded(1, 0), embeds=lambda *_: True)
_TRM: Final = Kind(
    stacks="L",
    calls=lambda model: {"L": model.H_cycles * model.L_cycles + model.H_cycles},
    recorded=_of_trm,
    embeds=_in_first_call_of_h,
    halves=True,
    shipped={"H_cycles": 2, "L_cycles": 1, "H_bp_steps": 1, "L_bp_steps": 1},
)

KINDS: Final[dict[str, Kind]] = {
    "transformer": _ONCE,
    "hrm": Kind(
        stacks="LH",
        calls=lambda model: {"L": model.H_cycles * model.L_cycles, "H": model.H_cycles},
        recorded=_of_hrm,
        embeds=_in_first_call_of_h,
        halves=True,
        shipped={
            "half_layers": True,
            "H_cycles": 2,
            "L_cycles": 3,
            "bp_min": 2,
            "bp_max": 5,
            "bp_warmup_ratio": 0.2,
        },
    ),
    "trm": _TRM,
    "trm_match_recurrence": replace(
        _TRM, shipped={"half_layers": True, "H_cycles": 2, "L_cycles": 3, "H_bp_steps": 2, "L_bp_steps": 3}
    ),
    "rins": Kind(
        stacks="LH",
        calls=lambda model: {"L": model.L_cycles, "H": 1},
        recorded=lambda model, _: Recorded(1, min(model.L_cycles, model.L_bp_cycles)),
        embeds=lambda _, made: made.low > 0,
        halves=True,
        shipped={"half_layers": True, "L_cycles": 7, "L_bp_cycles": 4},
    ),
    "ut": Kind(
        stacks="L",
        calls=lambda model: {"L": model.cycles},
        recorded=lambda model, _: Recorded(0, min(model.cycles, model.bp_cycles)),
        embeds=lambda _, made: made.low > 0,
        shipped={"cycles": 4, "bp_cycles": 2},
    ),
    "llama": replace(_ONCE, shipped={"norm_eps": 1e-5}),
}
"""The registry of nets: an entry each. ``pairmill/stages/train/nets`` has the modules."""


def stacks(model: ModelSettings) -> dict[str, StackShape]:
    """The stacks of a net by letter."""
    layers = model.layers // 2 if model.half_layers else model.layers
    overrides = {"H": model.H_override.given(), "L": {}}
    return {letter: _stack(model, layers, overrides[letter]) for letter in KINDS[model.net].stacks}


def calls(model: ModelSettings) -> dict[str, int]:
    """How often a forward pass calls each stack, by letter."""
    return KINDS[model.net].calls(model)


def recorded(model: ModelSettings, steps: int | None = None) -> Recorded:
    """How many calls of a recurrent net are differentiated. The results of all others are constants.

    Args:
        model: the settings.
        steps: of hrm: b, how many calls; None = 2.
    """
    return KINDS[model.net].recorded(model, 2 if steps is None else steps)


def recorded_calls(model: ModelSettings, steps: int | None = None) -> dict[str, int]:
    """How many calls of each stack are differentiated, by letter."""
    high, low = recorded(model, steps)
    return {"L": low, "H": high} if KINDS[model.net].stacks == "LH" else dict.fromkeys(calls(model), high + low)


def reaches_embedding(model: ModelSettings, steps: int | None = None) -> bool:
    """Whether the embedding has a gradient: as published, that of hrm from b = 3 on, and that of trm never."""
    return KINDS[model.net].embeds(model, recorded(model, steps))
