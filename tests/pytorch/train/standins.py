"""What stands in for torch's GPU kernels here, written from their documentation."""

from itertools import pairwise

import torch
from torch import Tensor


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Tensor,
    key_ends: Tensor,
    most_queries: int,
    most_keys: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """torch.nn.attention.varlen.varlen_attn, row by row; causal is aligned at the end, as FlashAttention does."""
    assert query_ends.dtype == key_ends.dtype == torch.int32
    assert (most_queries, most_keys) == (int(query_ends.diff().max()), int(key_ends.diff().max()))
    assert enable_gqa == (query.shape[1] != key.shape[1])
    many = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(many, 1), value.repeat_interleave(many, 1)
    out = []
    for (q, q_end), (k, k_end) in zip(pairwise(query_ends.tolist()), pairwise(key_ends.tolist()), strict=True):
        scores = torch.einsum("ihd,jhd->hij", query[q:q_end], key[k:k_end]) / query.shape[2] ** 0.5
        if window_size == (-1, 0):
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(k_end - k - (q_end - q) + 1)
            scores = scores.masked_fill(hidden, -torch.inf)
        out.append(torch.einsum("hij,jhd->ihd", scores.softmax(2), value[k:k_end]))
    return torch.cat(out)
