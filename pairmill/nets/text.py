"""Embedding and head around a model of blocks: the nets of HRM-Text."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pairmill.nets.batch import Packed
from pairmill.nets.block import Block, Matrix, View
from pairmill.nets.net import Net, Sees
from pairmill.nets.settings import ModelSettings
from pairmill.nets.shape import outer_stack


class Embedding(nn.Module):
    """Rows of a table, scaled so that the initial ones have unit scale."""

    def __init__(self, vocab_size: int, width: int, std: float) -> None:
        super().__init__()
        self.embedding_weight, self.std = nn.Parameter(torch.empty(vocab_size, width)), std

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.embedding_weight) * (1 / self.std)


class TextNet(Net):
    """Embedding, model, and a head of its own (untied).

    Args:
        model: called as ``model(x [c, h], view, steps)``; gives y [c, h].
        vocab_size: V.
    """

    def __init__(self, model: nn.Module, settings: ModelSettings, vocab_size: int) -> None:
        super().__init__()
        shape = outer_stack(settings)
        self.model = model
        self.embed_tokens = Embedding(vocab_size, shape.width, shape.std)
        self.lm_head = Matrix(shape.width, vocab_size, shape.std)

    def forward(self, batch: Packed, sees: Sees, steps: int | None = None) -> Tensor:
        return self.model(self.embed_tokens(batch.inputs), View(batch, sees), steps)

    def logits(self, y: Tensor) -> Tensor:
        return self.lm_head(y).float()

    def blocks(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, Block)]
