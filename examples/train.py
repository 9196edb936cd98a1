"""Train a small PrefixLM on a sampled folder, on CPUs: ``python examples/train.py <folder> <run> [option=value …]``.

It shows how a trainer uses the loader: batches, the attention that belongs to them, one checkpoint of weights,
optimizer and position. Started again, it continues from its last checkpoint. On as many processes as before, its losses
are the same to the last bit. Under ``torchrun --nproc-per-node=2 examples/train.py …`` it trains on two processes, and
can continue on any number of them.

Options: ``steps=300``, ``batch_tokens=768`` (of all processes), ``checkpoint_every=25`` steps, ``lr=0.003``.
It continues from ``<run>/checkpoint.pt``. ``<run>/log/<first step>-<rank>of<ranks>.jsonl`` has for each step the loss
and the rows (source, epoch, row) that this process took.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from pairmill.loader import Loader, RowPlan
from pairmill.loader.batch import IGNORED
from pairmill.loader.torch import PrefixLMDataset, Tensors

WIDTH, HEADS, LAYERS, SEED = 64, 4, 2, 20261122
OPTIONS = {"steps": 300, "batch_tokens": 768, "checkpoint_every": 25, "lr": 0.003}


def who_sees_whom(batch: Tensors, rows: int) -> Tensor:
    """Return the attention of a batch, bool [slots, slots]: which slot (first) sees which.

    A slot sees its own row only: all of the prefix, and of the response what is not later than itself.
    """
    position = batch["position_ids"]
    # Slots after the last row are a row of their own, without a prefix.
    row = torch.searchsorted(batch["cu_seqlens"][1 : rows + 1], torch.arange(len(position)), right=True)
    prefix = position < batch["prefix_lens"][row]
    return (row[:, None] == row) & (prefix | (position <= position[:, None]))


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, sees: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).view(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)
        seen = functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=sees)[0]
        x = x + self.out(seen.transpose(0, 1).reshape(len(x), WIDTH))
        return x + self.feed(self.norms[1](x))


class PrefixLM(nn.Module):
    """Logits of the next token for every slot of a batch."""

    def __init__(self, vocab_size: int, max_seq_len: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, WIDTH), nn.Embedding(max_seq_len, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocab_size)

    def forward(self, batch: Tensors, rows: int) -> Tensor:
        sees = who_sees_whom(batch, rows)
        x = self.tokens(batch["inputs"]) + self.positions(batch["position_ids"])
        for block in self.blocks:
            x = block(x, sees)
        return self.head(self.norm(x))


def add_up(tensor: Tensor, ranks: int) -> Tensor:
    """Sum over all processes."""
    if ranks > 1:
        dist.all_reduce(tensor)
    return tensor


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensors, rows: int, ranks: int) -> float:
    """Return one step of the optimizer; the mean loss of a supervised token of all processes."""
    labels = batch["labels"].long()
    supervised = add_up((labels != IGNORED).sum(), ranks)
    loss = functional.cross_entropy(model(batch, rows), labels, ignore_index=IGNORED, reduction="sum") / supervised
    optimizer.zero_grad()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if ranks > 1:
        summed = add_up(torch.cat([gradient.flatten() for gradient in gradients]), ranks)
        for gradient, part in zip(gradients, summed.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
    optimizer.step()
    return float(add_up(loss.detach(), ranks))


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint that appears whole, or not at all."""
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def train(folder: str, run: Path, options: dict[str, float], rank: int, ranks: int) -> None:
    """Train up to a number of steps, from the last checkpoint on."""
    loader = Loader(RowPlan(folder), batch_tokens=int(options["batch_tokens"]), rank=rank, ranks=ranks)
    data = PrefixLMDataset(loader)

    torch.manual_seed(SEED)
    model = PrefixLM(data.metadata.vocab_size, data.metadata.max_seq_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"])

    checkpoint = run / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        data.load_state_dict(state["data"])

    done, steps, losses = loader.position.batches, int(options["steps"]), []
    (run / "log").mkdir(parents=True, exist_ok=True)
    with open(run / "log" / f"{done:06}-{rank}of{ranks}.jsonl", "w", buffering=1) as log:
        while done < steps:
            # An iteration is the rest of an epoch.
            for batch, scalars in data:
                assert data.batch is not None
                for group in optimizer.param_groups:
                    group["lr"] = options["lr"] * data.batch.lr_scale
                losses.append(step(model, optimizer, batch, scalars["numseqs"], ranks))
                done += 1
                log.write(json.dumps({"step": done, "loss": losses[-1], "rows": data.batch.rows.tolist()}) + "\n")
                if rank == 0 and done % options["checkpoint_every"] == 0:
                    position = data.state_dict()
                    save(
                        checkpoint, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": position}
                    )
                    mean, place = sum(losses) / len(losses), f"epoch {position['epoch']}, row {position['start_row']:,}"
                    print(f"step {done:5}  loss {mean:.3f}  {place}", flush=True)
                    losses.clear()
                if done == steps:
                    break


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    places = [argument for argument in arguments if "=" not in argument]
    given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    if len(places) != 2 or not set(given) <= set(OPTIONS):
        raise SystemExit(__doc__)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    # The same bits on every machine that adds in the same order: one thread does.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if ranks > 1:
        dist.init_process_group("gloo")
    train(places[0], Path(places[1]), OPTIONS | {name: float(value) for name, value in given.items()}, rank, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
