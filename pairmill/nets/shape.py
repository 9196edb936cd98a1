"""What a net is made of, in numbers: its stacks, and the calls of a forward pass. Nets and costs are made from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.nets.settings import ModelSettings, Recorded


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
        """Return the standard deviation of a matrix that writes to the residual stream, from this many channels."""
        if self.init == "lecun_normal":
            return 1 / math.sqrt(inputs)
        return self.std / math.sqrt(2 * self.layers) if self.init == "megatron" else self.std


def _stack(model: ModelSettings, layers: int, override: Mapping[str, Any]) -> StackShape:
    """Make a stack of the settings, and of the override where it names them."""
    values: dict[str, Any] = {**vars(model), "layers": layers, **override}
    wide = values["expansion"] * values["width"] * 2 / 3
    feed = 0 if "expansion" in override else values["feed_width"]
    return StackShape(
        layers=values["layers"],
        width=values["width"],
        heads=values["heads"],
        key_value_heads=values["key_value_heads"] or values["heads"],
        feed=feed or 256 * math.ceil(model.kind.round_feed(wide) / 256),
        norm=values["norm"],
        norm_eps=values["norm_eps"],
        rope_base=values["rope_base"],
        init=values["init"],
        init_std=values["init_std"],
        gated=model.kind.gated,
    )


def stacks(model: ModelSettings) -> dict[str, StackShape]:
    """Return the stacks of a net by letter."""
    layers = model.layers // 2 if model.half_layers else model.layers
    overrides = {"H": model.H_override.differing(), "L": {}}
    return {letter: _stack(model, layers, overrides[letter]) for letter in model.kind.stacks}


def outer_stack(model: ModelSettings) -> StackShape:
    """Return the stack that the head reads, whose width and initial weights embedding and head have."""
    shapes = stacks(model)
    return shapes.get("H") or shapes["L"]


def calls(model: ModelSettings) -> dict[str, int]:
    """Count the calls of each stack in a forward pass, by letter."""
    return model.kind.calls(model)


def recorded(model: ModelSettings, steps: int | None = None) -> Recorded:
    """Count the differentiated calls of a recurrent net. The results of all others are constants.

    Args:
        steps: of hrm: b, how many calls; None = 2.
    """
    return model.kind.recorded(model, 2 if steps is None else steps)


def recorded_calls(model: ModelSettings, steps: int | None = None) -> dict[str, int]:
    """Count the differentiated calls of each stack, by letter."""
    high, low = recorded(model, steps)
    return {"L": low, "H": high} if model.kind.stacks == "LH" else dict.fromkeys(calls(model), high + low)


def reaches_embedding(model: ModelSettings, steps: int | None = None) -> bool:
    """Tell whether the embedding has a gradient: as published, that of hrm from b = 3 on, and that of trm never."""
    return model.kind.reaches_embedding(model, recorded(model, steps))
