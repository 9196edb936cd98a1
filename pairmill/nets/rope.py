"""RoPE: queries and keys are rotated by their position (arXiv 2104.09864), in half rotation.

Channel i of a head is turned with channel i + d/2, by position · base^(-2i/d). Angles are float32 in every precision of
the net: bfloat16 has 8 bits of a position.
"""

import torch
from torch import Tensor


def angles(positions: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Compute cosine and sine, float32 [c, width / 2], for heads of this width at positions int64 [c]."""
    rates = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width)
    turned = positions.float()[:, None] * rates
    return turned.cos(), turned.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn heads [c, H, d]; the products are float32, the result has the type of x."""
    cos, sin = cos[:, None], sin[:, None]
    left, right = x.float().chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)
