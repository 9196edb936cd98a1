"""Attention of a packed batch: rows never see each other; the prefix of a row sees all of the prefix.

Slot i of a row sees slot j if j <= i, or if j is in the prefix. Slots after the last row see nothing: they give 0 and
have no gradient. There are three paths to the same numbers:

- ``rows``: rows of about the same length together, padded, by scaled_dot_product_attention. Everywhere, exact; memory
  grows with the sum of the squared lengths.
- ``flex``: FlexAttention, one compiled kernel that skips blocks which nobody sees. A GPU.
- ``varlen``: FlashAttention or cuDNN by torch's varlen_attn, in two passes: queries of prefixes on keys of prefixes,
  and all other queries on all keys of their rows. A GPU, bfloat16 or float16.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from pairmill.errors import UsageError
from pairmill.nets.batch import Packed
from pairmill.nets.net import Sees

Path = Literal["rows", "flex", "varlen"]


def choose(path: str, device: torch.device, dtype: torch.dtype) -> Path:
    """Choose the path that a run takes.

    Args:
        path: rows, flex or varlen; auto = flex on a GPU, else rows.
        device: where the net is.
        dtype: of the activations.

    Raises:
        UsageError: the path that was asked for does not work here.
    """
    gpu = device.type == "cuda"
    if path == "auto":
        return "flex" if gpu else "rows"
    if path not in ("rows", "flex", "varlen"):
        raise UsageError(
            "not a path", where="training.attention_path", got=repr(path), expected="auto, rows, flex or varlen"
        )
    if path != "rows" and not gpu:
        raise UsageError(
            f"{path} needs a GPU", where="training.attention_path", got=device.type, hint="use rows, or auto"
        )
    if path == "varlen" and dtype not in (torch.bfloat16, torch.float16):
        raise UsageError(
            "varlen needs activations of 16 bits",
            where="training.attention_path",
            got=str(dtype),
            hint="use training.precision=bfloat16, or the path flex",
        )
    return path  # type: ignore[return-value]


def sees(batch: Packed, *, causal: bool = False, path: Path = "rows") -> Sees:
    """Make the attention of a batch, for all blocks and calls of a step.

    Args:
        batch: on its device.
        causal: prefixes count as nothing.
        path: of :func:`choose`.
    """
    # A prefix of one slot adds nothing to what is causal.
    prefixes = [0 if causal or prefix == 1 else prefix for prefix in batch.prefixes]
    kind = {"rows": _Rows, "flex": _Flex, "varlen": _Varlen}[path if batch.rows else "rows"]
    made = kind(batch.starts, prefixes, batch.slots, batch.inputs.device)
    return cast("Sees", made)


def _shared(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Key and value with as many heads as the query has."""
    many = query.shape[1] // key.shape[1]
    return (key, value) if many == 1 else (key.repeat_interleave(many, 1), value.repeat_interleave(many, 1))


class _Bucket(NamedTuple):
    """Rows of about the same length.

    Attributes:
        slots: where each of the padded positions is read, int64 [rows · width].
        shape: rows, width.
        mask: 0 or -inf, float32 [rows, 1, width, width]; None = causal.
    """

    slots: Tensor
    shape: tuple[int, int]
    mask: Tensor | None


_GROWS = 1.25
_SHORT = 16


def buckets(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield rows in groups whose longest is at most a quarter longer than the shortest, or at most 16 long.

    A group is one call. So thousands of short rows are a few calls, and padding adds about a half to the sum of their
    squares at most.
    """
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if group and lengths[group[0]] > max(_SHORT, _GROWS * lengths[row]):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


class _Rows:
    """Rows in buckets, each padded to its longest."""

    def __init__(self, starts: Sequence[int], prefixes: Sequence[int], slots: int, device: torch.device) -> None:
        self._buckets: list[_Bucket] = []
        lengths = [end - start for start, end in pairwise(starts)]
        places = torch.empty(starts[-1], dtype=torch.int64)
        first = 0
        for rows in buckets(lengths):
            start, length, prefix = (
                torch.tensor([values[row] for row in rows]) for values in (starts, lengths, prefixes)
            )
            width = lengths[rows[0]]
            index = torch.arange(width)
            real = index < length[:, None]
            # Positions after a row's end read its last slot again. Nobody reads what they give.
            taken = start[:, None] + torch.minimum(index, length[:, None] - 1)
            places[taken[real]] = first + real.flatten().nonzero().flatten()
            first += len(rows) * width
            mask = None
            if any(prefixes[row] for row in rows):
                seen = (index <= index[:, None]) | (index < prefix[:, None, None])
                # A padded key is seen by padded queries alone, as it comes after all others.
                mask = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)[:, None].to(device)
            self._buckets.append(_Bucket(taken.flatten().to(device), (len(rows), width), mask))
        self._places, self._padding = places.to(device), slots - starts[-1]

    # Every batch has other buckets: torch.compile would compile the net again for each.
    @torch.compiler.disable
    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = _shared(query, key, value)
        # A rank without a row still has gradients, of 0: FSDP waits for those that the other ranks have.
        out = [] if self._buckets else [query[:0] + key[:0] + value[:0]]
        for slots, shape, mask in self._buckets:
            q, k, v = (x.index_select(0, slots).unflatten(0, shape).transpose(1, 2) for x in (query, key, value))
            seen = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=None if mask is None else mask.to(q.dtype), is_causal=mask is None
            )
            out.append(seen.transpose(1, 2).flatten(0, 1))
        return functional.pad(torch.cat(out).index_select(0, self._places), (0, 0, 0, 0, 0, self._padding))


def seen(row: Tensor, place: Tensor, prefix: Tensor) -> Any:
    """FlexAttention's mask of a batch.

    Args:
        row: number of each slot's row, -1 after the last one; int [c].
        place: of each slot in its row; int [c].
        prefix: length of the prefix of each slot's row; int [c].
    """

    def mask(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (row[i] == row[j]) & (row[i] >= 0) & ((j <= i) | (place[j] < prefix[j]))

    return mask


@cache
def _compiled() -> tuple[Any, Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    return torch.compile(create_block_mask), torch.compile(flex_attention)


class _Flex:
    """FlexAttention with the mask of a batch."""

    def __init__(self, starts: Sequence[int], prefixes: Sequence[int], slots: int, device: torch.device) -> None:
        make, self._attend = _compiled()
        lengths = torch.tensor([*(end - start for start, end in pairwise(starts)), slots - starts[-1]])
        row = torch.tensor([*range(len(prefixes)), -1]).repeat_interleave(lengths).to(device)
        place = (torch.arange(slots) - torch.tensor(starts).repeat_interleave(lengths)).to(device)
        prefix = torch.tensor([*prefixes, 0]).repeat_interleave(lengths).to(device)
        self._mask = make(seen(row, place, prefix), None, None, slots, slots, device=device)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
        out = self._attend(q, k, v, block_mask=self._mask, enable_gqa=query.shape[1] != key.shape[1])
        return out[0].transpose(0, 1)


class _Pass(NamedTuple):
    """Queries that see keys in the same way, row by row.

    Attributes:
        queries: their slots, int64.
        keys: the slots of what they see, int64.
        query_ends: where the queries of each row begin, and where the last ones end; int32.
        key_ends: the same of the keys.
        most: the longest row's queries and keys.
        causal: the last query sees all keys, each one before it one fewer.
    """

    queries: Tensor
    keys: Tensor
    query_ends: Tensor
    key_ends: Tensor
    most: tuple[int, int]
    causal: bool


class _Varlen:
    """Two passes of torch's varlen_attn. Each query is in one of them, so the outputs are put together."""

    def __init__(self, starts: Sequence[int], prefixes: Sequence[int], slots: int, device: torch.device) -> None:
        rows = [(start, start + prefix, end) for (start, end), prefix in zip(pairwise(starts), prefixes, strict=True)]
        self._slots = slots
        self._passes = [
            _one_pass([(start, middle, start, middle) for start, middle, _ in rows if middle > start], False, device),
            _one_pass([(middle, end, start, end) for start, middle, end in rows if end > middle], True, device),
        ]

    @torch.compiler.disable
    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from torch.nn.attention import varlen

        out = torch.zeros_like(query)
        for item in self._passes:
            if len(item.queries):
                seen = varlen.varlen_attn(
                    query.index_select(0, item.queries),
                    key.index_select(0, item.keys),
                    value.index_select(0, item.keys),
                    item.query_ends,
                    item.key_ends,
                    *item.most,
                    window_size=(-1, 0) if item.causal else (-1, -1),
                    enable_gqa=query.shape[1] != key.shape[1],
                )
                out = out.index_copy(0, item.queries, seen)
        return out


def _one_pass(rows: list[tuple[int, int, int, int]], causal: bool, device: torch.device) -> _Pass:
    """Make a pass over rows (first query, end of queries, first key, end of keys)."""

    def slots(spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor, int]:
        lengths = [end - start for start, end in spans]
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        every = torch.cat([torch.arange(*span) for span in spans]) if spans else torch.empty(0, dtype=torch.int64)
        return every.to(device), ends.to(device), max(lengths, default=0)

    queries, query_ends, most_queries = slots([row[:2] for row in rows])
    keys, key_ends, most_keys = slots([row[2:] for row in rows])
    same = query_ends.tolist() == key_ends.tolist()
    # cuDNN takes a causal pass only if it is told by the very same tensor that queries and keys have equal lengths.
    return _Pass(queries, keys, query_ends, query_ends if same else key_ends, (most_queries, most_keys), causal)
