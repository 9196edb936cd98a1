"""A block: gated attention and a gated MLP, with norms that have no weights."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairmill.nets import rope
from pairmill.nets.batch import Packed
from pairmill.nets.net import Sees
from pairmill.nets.shape import StackShape


class View:
    """What blocks need to know of a batch: who sees whom, and the angles of the positions.

    It is passed as an object: FSDP2 casts tensors among arguments to bfloat16, and angles stay float32.
    """

    def __init__(self, batch: Packed, sees: Sees) -> None:
        self.sees, self._positions = sees, batch.positions
        self._angles: dict[tuple[int, float], tuple[Tensor, Tensor]] = {}

    def rotate(self, x: Tensor, base: float) -> Tensor:
        """Turn heads [c, H, d] to their positions."""
        key = (x.shape[-1], base)
        if key not in self._angles:
            self._angles[key] = rope.angles(self._positions, *key)
        return rope.rotate(x, *self._angles[key])


class Matrix(nn.Module):
    """A linear map without a bias; ``std`` is the standard deviation of its initial weights."""

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        self.weight, self.std = nn.Parameter(torch.empty(outputs, inputs)), std

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


def norm(x: Tensor, eps: float) -> Tensor:
    """Bring rows of x [c, h] to unit scale: divide them by the root of their mean square."""
    return functional.rms_norm(x, x.shape[-1:], eps=eps)


class Attention(nn.Module):
    """Attention whose output is gated channel by channel. One matrix gives gate, query, key and value."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.gqkv_proj = Matrix(shape.width, 4 * shape.width, shape.std)
        self.o_proj = Matrix(shape.width, shape.width, shape.std_out(shape.width))

    def forward(self, x: Tensor, view: View) -> Tensor:
        heads, width = self.shape.heads, self.shape.head_width
        gate, turned, value = self.gqkv_proj(x).view(len(x), 4 * heads, width).split((heads, 2 * heads, heads), dim=1)
        query, key = view.rotate(turned, self.shape.rope_base).chunk(2, dim=1)
        return self.o_proj((gate.sigmoid() * view.sees(query, key, value)).flatten(1))


class MLP(nn.Module):
    """SwiGLU. One matrix gives gate and up."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.gate_up_proj = Matrix(shape.width, 2 * shape.feed, shape.std)
        self.down_proj = Matrix(shape.feed, shape.width, shape.std_out(shape.feed))

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(functional.silu(gate) * up)


class Block(nn.Module):
    """Attention and MLP, each added to its input; the norm before each, or after each addition."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.attn, self.mlp = Attention(shape), MLP(shape)
        self.pre, self.eps = shape.norm == "pre", shape.norm_eps

    def forward(self, x: Tensor, view: View) -> Tensor:
        if self.pre:
            x = x + self.attn(norm(x, self.eps), view)
            return x + self.mlp(norm(x, self.eps))
        x = norm(x + self.attn(x, view), self.eps)
        return norm(x + self.mlp(x), self.eps)


class Stack(nn.Module):
    """Blocks, and a norm at the end: what a recurrent net calls again and again stays at unit scale."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.pre, self.eps = shape.norm == "pre", shape.norm_eps

    def forward(self, x: Tensor, view: View) -> Tensor:
        for block in self.layers:
            x = block(x, view)
        return norm(x, self.eps) if self.pre else x


def level(shape: StackShape) -> nn.ModuleDict:
    """Make a stack under the name that recurrent nets give it: ``core.layers``."""
    return nn.ModuleDict({"core": Stack(shape)})


def first_state(width: int) -> Tensor:
    """Make the state that every position begins with, bfloat16 [width]: drawn once, saved, never trained."""
    return torch.empty(width, dtype=torch.bfloat16)


def differentiated(on: bool) -> AbstractContextManager[None]:
    """Let what is computed inside have a gradient, or be a constant."""
    return nullcontext() if on else torch.no_grad()
