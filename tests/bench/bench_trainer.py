"""Tokens a CPU second of training, against a plain loop in PyTorch; and the memory of attention.

The plain loop is what one writes first: one mask of slots × slots for scaled_dot_product_attention, and the head on all
positions. Both sides have the same weights, batches and optimizer, and take turns on one core. Their losses agree.

``only=hrm``: rates of this net alone, and no table of memory.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from itertools import pairwise

os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler says on stderr that there is no GPU

import measure
import torch
from measure import ratio, spread
from torch import Tensor
from torch.nn import functional

from pairmill.nets import cost
from pairmill.nets.attention import sees
from pairmill.nets.batch import Packed
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.net import Net
from pairmill.nets.settings import ModelSettings

VOCABULARY = 4096
TURNS = 7
SLOTS = (1024, 4096)


def made(slots: int, seed: int) -> Packed:
    """Rows of 16 to 512 tokens, half of them shorter than 90; three fifths of a row is its prefix."""
    rng = random.Random(seed)
    starts, prefixes, labels, positions = [0], [], [], []
    while True:
        length = min(512, max(16, round(rng.lognormvariate(4.5, 0.8))))
        if starts[-1] + length > slots:
            break
        prefixes.append(round(0.6 * length))
        starts.append(starts[-1] + length)
        positions += range(length)
        labels += [-100] * (prefixes[-1] - 1) + [rng.randrange(VOCABULARY) for _ in range(length - prefixes[-1] + 1)]
    padding = slots - starts[-1]
    inputs = [rng.randrange(VOCABULARY) for _ in range(starts[-1])] + [0] * padding
    tensors = (torch.tensor(inputs), torch.tensor(positions + [0] * padding), torch.tensor(labels + [-100] * padding))
    return Packed(*tensors, tuple(starts), tuple(prefixes))


def plain(batch: Packed) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention with one mask for all slots."""
    lengths = torch.tensor(batch.starts).diff()
    row = torch.full((batch.slots,), -1)
    row[: batch.tokens] = torch.arange(batch.rows).repeat_interleave(lengths)
    prefix = torch.tensor([*batch.prefixes, 0])[row]
    place = torch.arange(batch.slots) - torch.tensor([*batch.starts])[row]
    # Slots after the last row see each other, and nobody reads them.
    seen = (row[:, None] == row) & ((place <= place[:, None]) | (place < prefix))

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)[0].transpose(0, 1)

    return attend


def ours(net: Net, batch: Packed, steps: int | None) -> Tensor:
    """The mean loss, by way of the trainer's nets."""
    at = batch.labelled()
    logits = net.logits(net(batch, sees(batch), steps).index_select(0, at))
    return functional.cross_entropy(logits, batch.labels[at])


def theirs(net: Net, batch: Packed, steps: int | None) -> Tensor:
    """The mean loss, as the plain loop has it."""
    return functional.cross_entropy(net.logits(net(batch, plain(batch), steps)), batch.labels)


def side(model: ModelSettings, loss_of: Callable[[Net, Packed, int | None], Tensor]) -> Callable[[Packed], float]:
    """A net and its optimizer; the result trains one step, and returns the loss."""
    net = build(model, VOCABULARY, 512)
    initialise(net, seed=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
    steps = model.bp_max if model.net == "hrm" else None

    def step(batch: Packed) -> float:
        loss = loss_of(net, batch, steps)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def rates(model: ModelSettings, slots: int) -> tuple[list[float], list[float], float]:
    """Tokens a CPU second of both sides, turn by turn; the largest difference of their losses."""
    mine, peer = side(model, ours), side(model, theirs)
    rate: tuple[list[float], list[float]] = ([], [])
    apart = 0.0
    for turn in range(TURNS + 1):
        batch, losses = made(slots, turn), []
        for which, step in enumerate((mine, peer)):
            start = time.process_time()
            losses.append(step(batch))
            if turn:  # the first one warms up
                rate[which].append(batch.tokens / (time.process_time() - start))
        apart = max(apart, abs(losses[0] - losses[1]))
    return *rate, apart


def largest(
    model: ModelSettings, slots: int, attend: Callable[[Packed], Callable[[Tensor, Tensor, Tensor], Tensor]]
) -> int:
    """Bytes that are allocated for one call of attention, forward and backward, its mask included."""
    batch = made(slots, 1)
    query, key, value = (torch.zeros(slots, model.heads, model.width // model.heads, requires_grad=True) for _ in "qkv")
    with torch.profiler.profile(profile_memory=True) as profile:
        attend(batch)(query, key, value).sum().backward()
    held, most = 0, 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def main(only: str) -> None:
    """Print both tables, or what is asked for."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    lines = []
    with measure.one_core():
        for net in [only] if only else ["transformer", "hrm"]:
            model = ModelSettings.for_net(net)
            for slots in SLOTS:
                mine, peer, apart = rates(model, slots)
                millions = cost.parameters(model, VOCABULARY) / 1e6
                lines.append(
                    (
                        f"{net}, {millions:.1f} M",
                        f"{slots:,}",
                        spread(mine, ",.0f"),
                        spread(peer, ",.0f"),
                        ratio(mine, peer),
                        f"{apart:.0e}",
                    )
                )
    measure.table(
        f"training, one thread, V {VOCABULARY:,}, median of {TURNS} turns (from to)",
        "net|slots|pairmill, tokens/CPU s|plain loop|ratio|losses apart",
        lines,
    )
    if only:
        return
    model = ModelSettings()
    memory = []
    for slots in (1024, 2048, 4096, 8192):
        batch = made(slots, 1)
        squares = sum((end - start) ** 2 for start, end in pairwise(batch.starts))
        mine, peer = (largest(model, slots, attend) / 2**20 for attend in (sees, plain))
        memory.append((f"{slots:,}", f"{squares / slots**2:.3f}", f"{mine:.1f}", f"{peer:.1f}"))
    measure.table(
        "memory of one attention, forward and backward, MiB", "slots|Σ len² / slots²|pairmill|plain loop", memory
    )


if __name__ == "__main__":
    main(next((argument.removeprefix("only=") for argument in sys.argv[1:]), ""))
