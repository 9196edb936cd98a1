"""llama: a conventional transformer (arXiv 2302.13971), with the names and the numbers of KempnerForge.

Pre-norm with learned weights, grouped-query attention without a gate, SwiGLU, RoPE in half rotation; norms of queries
and keys and a tied head are optional.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairmill.nets.batch import Packed
from pairmill.nets.block import Matrix, View
from pairmill.nets.net import Net, Sees
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import StackShape, stacks


class RMSNorm(nn.Module):
    """Unit scale times a learned weight, which begins at one; computed in float32."""

    std = None

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention: several query heads share a key and value head."""

    def __init__(self, shape: StackShape, std: float, qk_norm: bool) -> None:
        super().__init__()
        few, self.base = shape.key_value_heads * shape.head_width, shape.rope_base
        self.width = shape.head_width
        self.q_proj = Matrix(shape.width, shape.width, std)
        self.k_proj = Matrix(shape.width, few, std)
        self.v_proj = Matrix(shape.width, few, std)
        self.o_proj = Matrix(shape.width, shape.width, std / math.sqrt(2 * shape.layers))
        self.q_norm = RMSNorm(self.width, shape.norm_eps) if qk_norm else nn.Identity()
        self.k_norm = RMSNorm(self.width, shape.norm_eps) if qk_norm else nn.Identity()

    def forward(self, x: Tensor, view: View) -> Tensor:
        query, key, value = (
            made.view(len(x), -1, self.width) for made in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        )
        query = view.rotate(self.q_norm(query), self.base)
        key = view.rotate(self.k_norm(key), self.base)
        return self.o_proj(view.sees(query, key, value).flatten(1))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: StackShape, std: float) -> None:
        super().__init__()
        self.gate_proj = Matrix(shape.width, shape.feed, std)
        self.up_proj = Matrix(shape.width, shape.feed, std)
        self.down_proj = Matrix(shape.feed, shape.width, std / math.sqrt(2 * shape.layers))

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    """Attention and MLP, each on the norm of its input and added to it."""

    def __init__(self, shape: StackShape, std: float, qk_norm: bool) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.width, shape.norm_eps)
        self.attention = Attention(shape, std, qk_norm)
        self.mlp_norm = RMSNorm(shape.width, shape.norm_eps)
        self.mlp = MLP(shape, std)

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_norm(x), view)
        return x + self.mlp(self.mlp_norm(x))


class TokenEmbedding(nn.Module):
    """Rows of a table, as they are."""

    def __init__(self, vocab_size: int, width: int, std: float) -> None:
        super().__init__()
        self.embedding = Matrix(width, vocab_size, std)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.embedding.weight)


class Llama(Net):
    """Embedding, blocks, norm, head. Initial weights are N(0, init_std or 0.02); ``model.init`` is not read."""

    wrapped = False

    def __init__(self, model: ModelSettings, vocab_size: int) -> None:
        super().__init__()
        shape, std = stacks(model)["H"], model.init_std or 0.02
        self.token_embedding = TokenEmbedding(vocab_size, shape.width, std)
        self.layers = nn.ModuleList(LlamaBlock(shape, std, model.qk_norm) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.norm_eps)
        self.output_head = None if model.tied else nn.ModuleDict({"proj": Matrix(shape.width, vocab_size, std)})

    def forward(self, batch: Packed, sees: Sees, steps: int | None = None) -> Tensor:
        x, view = self.token_embedding(batch.inputs), View(batch, sees)
        for block in self.layers:
            x = block(x, view)
        return self.norm(x)

    def logits(self, y: Tensor) -> Tensor:
        head = self.token_embedding.embedding if self.output_head is None else self.output_head.proj
        return head(y).float()

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
