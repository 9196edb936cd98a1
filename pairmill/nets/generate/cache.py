"""Keys and values of what was read before: one pair for each block and recurrent call."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pairmill.nets.net import Sees

_ROOM = 256
"""Tokens for which memory is taken at a time."""


class Cache:
    """What each slot has read, as seen by every call of attention in one forward pass of a net.

    A recurrent net calls a block several times in one pass, each time with other keys. So the calls are numbered: call
    i of a pass has pair i (HRM: H_cycles * H blocks + H_cycles * L_cycles * L blocks pairs). A net sees nothing of
    this: it is given another `Sees`.

    Args:
        slots: sequences that are kept at the same time.

    Attributes:
        keys, values: for each call float [slots, key-value heads, room, d]; made by the first pass.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def prefill(self, slot: int, sees: Sees) -> Sees:
        """Return one pass over a prompt, whose attention is `sees`; its keys and values are kept in the slot."""
        call = 0

        def seen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal call
            if call == len(self.keys):
                for pairs in (self.keys, self.values):
                    pairs.append(k.new_zeros(self._slots, k.shape[1], 0, k.shape[2]))
            self._make_room(call, len(k))
            self.keys[call][slot, :, : len(k)] = k.transpose(0, 1)
            self.values[call][slot, :, : len(v)] = v.transpose(0, 1)
            call += 1
            return sees(q, k, v)

        return seen

    def decode(self, lengths: Tensor) -> Sees:
        """Return one pass over one new token of each of the first slots, which sees all that its slot has, and itself.

        Args:
            lengths: int64 [n], the tokens that each of the first n slots has: the new one's position.
        """
        longest = int(lengths.max()) + 1
        rows = torch.arange(len(lengths), device=lengths.device)
        mask = torch.arange(longest, device=lengths.device) <= lengths[:, None]
        call = 0

        def seen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal call
            self._make_room(call, longest)
            keys, values = self.keys[call], self.values[call]
            keys[rows, :, lengths] = k
            values[rows, :, lengths] = v
            call += 1
            some = slice(len(rows)), slice(None), slice(longest)
            return scaled_dot_product_attention(
                q[:, :, None],
                keys[some],
                values[some],
                attn_mask=mask[:, None, None],
                enable_gqa=q.shape[1] != k.shape[1],
            )[:, :, 0]

        return seen

    def move(self, source: int, target: int) -> None:
        """Put what is in one slot into another."""
        for pair in (*self.keys, *self.values):
            pair[target] = pair[source]

    def _make_room(self, call: int, tokens: int) -> None:
        for pairs in (self.keys, self.values):
            have = pairs[call]
            if have.shape[2] < tokens:
                slots, heads, _, d = have.shape
                more = -(-tokens // _ROOM) * _ROOM - have.shape[2]
                pairs[call] = torch.cat([have, have.new_zeros(slots, heads, more, d)], dim=2)
