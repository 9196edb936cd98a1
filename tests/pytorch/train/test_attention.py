"""Attention: each path against the definition; what it costs; the path that is chosen."""

import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pairmill.errors import UsageError
from pairmill.nets import attention
from pairmill.nets.batch import Packed
from tests.pytorch.train import standins


def packed(lengths: list[int], prefixes: list[int], padding: int = 0) -> Packed:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    nothing = torch.zeros(starts[-1] + padding, dtype=torch.int64)
    return Packed(nothing, nothing, nothing, tuple(starts), tuple(prefixes))


def by_definition(batch: Packed, causal: bool, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A loop over rows, queries and heads."""
    out = torch.zeros_like(query)
    share = query.shape[1] // key.shape[1]
    for (start, end), prefix in zip(pairwise(batch.starts), batch.prefixes, strict=True):
        for i in range(end - start):
            last = i + 1 if causal else max(i + 1, prefix)
            for head in range(query.shape[1]):
                k, v = (x[start : start + last, head // share] for x in (key, value))
                weights = (k @ query[start + i, head] / query.shape[2] ** 0.5).softmax(0)
                out[start + i, head] = weights @ v
    return out


ROWS = {
    "mixed": ([5, 1, 9, 2, 17, 40], [3, 1, 9, 1, 0, 22], 3),
    "one row": ([7], [4], 0),
    "no prefix": ([6, 8, 30], [0, 0, 0], 1),
    "prefixes of one": ([1, 1, 5], [1, 1, 1], 0),
    "only prefixes": ([4, 33], [4, 33], 2),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)], ids=["each its own", "shared"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("path", ["rows", "varlen"])
def test_outputs_and_gradients_follow_the_definition(
    path: attention.Path, rows: str, heads: tuple[int, int], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", standins.varlen_attn)
    batch, generator = packed(*ROWS[rows]), torch.Generator().manual_seed(1)
    q, k, v, wanted = (torch.randn(batch.slots, many, 8, generator=generator) for many in (*heads, heads[1], heads[0]))
    found, right = [], []
    for into in (found, right):
        tensors = [x.clone().requires_grad_() for x in (q, k, v)]
        if into is found:
            out = attention.sees(batch, causal=causal, path=path)(*tensors)
        else:
            out = by_definition(batch, causal, *tensors)
        out.backward(wanted)
        into += [out, *(x.grad for x in tensors)]
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
        assert not one[batch.tokens :].any()


@pytest.mark.parametrize("rows", ROWS)
def test_the_mask_of_flexattention_follows_the_definition(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.attention.flex_attention import create_mask

    made: list[Any] = []

    def make(mask: Any, *_: Any, **__: Any) -> None:
        made.append(mask)

    monkeypatch.setattr(attention, "_compiled", lambda: (make, None))
    batch = packed(*ROWS[rows])
    attention.sees(batch, path="flex")
    seen = create_mask(made[0], 1, 1, batch.slots, batch.slots, device="cpu")[0, 0]
    right = torch.zeros(batch.slots, batch.slots, dtype=torch.bool)
    for (start, end), prefix in zip(pairwise(batch.starts), batch.prefixes, strict=True):
        for i in range(end - start):
            right[start + i, start : start + max(i + 1, prefix)] = True
    assert torch.equal(seen, right)


class Counted(TorchDispatchMode):
    """What is allocated, and how often attention is called."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.largest, self.calls = 0, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls += "scaled_dot_product" in str(func) and "backward" not in str(func)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and not tensor._is_view():
                self.numbers += tensor.numel()
                self.largest = max(self.largest, tensor.numel())
        return out


def cost(batch: Packed) -> Counted:
    tensors = [torch.zeros(batch.slots, 2, 4, requires_grad=True) for _ in "qkv"]
    with Counted() as counted:
        attention.sees(batch)(*tensors).sum().backward()
    return counted


def test_memory_grows_with_the_squares_of_lengths_and_not_of_slots() -> None:
    few, many = cost(packed([64] * 4, [20] * 4)), cost(packed([64] * 32, [20] * 32))
    assert many.numbers < 9 * few.numbers
    one = cost(packed([2048], [640]))
    assert one.largest == 2048**2
    assert many.largest <= 32 * 64**2


def test_thousands_of_short_rows_are_one_call() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(1, 16) for _ in range(3000)]
    counted = cost(packed(lengths, [min(length, 4) for length in lengths]))
    assert counted.calls == 1


def test_every_row_is_in_one_bucket_and_padding_is_bounded() -> None:
    rng = random.Random(2)
    for _ in range(20):
        lengths = [min(4096, int(rng.lognormvariate(5, 1.2)) + 1) for _ in range(rng.randint(1, 400))]
        groups = list(attention.buckets(lengths))
        assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
        assert len(groups) <= 26
        padded = sum(len(group) * max(lengths[row] for row in group) ** 2 for group in groups)
        assert padded <= 1.5625 * sum(max(length, 16) ** 2 for length in lengths)
    assert list(attention.buckets([])) == []


@pytest.mark.parametrize("path", ["rows", "flex", "varlen"])
def test_no_row_at_all_gives_zeros_and_gradients_of_zero(path: attention.Path) -> None:
    tensors = [torch.ones(3, many, 2, requires_grad=True) for many in (2, 1, 1)]
    out = attention.sees(packed([], [], padding=3), path=path)(*tensors)
    assert torch.equal(out, torch.zeros(3, 2, 2))
    out.sum().backward()
    assert all(not x.grad.any() for x in tensors)


def test_the_path_is_chosen_by_the_device_and_refused_where_it_cannot_work() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert attention.choose("auto", cpu, torch.float32) == "rows"
    assert attention.choose("auto", gpu, torch.bfloat16) == "flex"
    assert attention.choose("rows", gpu, torch.bfloat16) == "rows"
    assert attention.choose("varlen", gpu, torch.bfloat16) == "varlen"
    for path, device, dtype, said in (
        ("flex", cpu, torch.float32, "flex needs a GPU"),
        ("varlen", cpu, torch.bfloat16, "varlen needs a GPU"),
        ("varlen", gpu, torch.float32, "16 bits"),
        ("flash", gpu, torch.bfloat16, "not a path"),
    ):
        with pytest.raises(UsageError, match=said):
            attention.choose(path, device, dtype)
