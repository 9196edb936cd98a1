"""Token by token, several prompts at a time (HRM-Text's engine, with draws that depend on a prompt and a seed)."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Generator, Tensor

from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.generate.cache import Cache
from pairmill.nets.net import Net

GREEDY = 1e-5
"""Temperatures below it take the best token."""


@dataclass(frozen=True)
class Answer:
    """What a net wrote: the prompt's index; the ids, a stop token included; whether a stop token ended it."""

    index: int
    ids: list[int]
    stopped: bool


@dataclass(frozen=True)
class Limits:
    """Where an answer ends.

    Attributes:
        stop: the id that ends it, which counts as a token.
        max_tokens: most new tokens.
        max_context: most tokens of prompt and answer together; no more than the net has positions. A prompt that is
            as long gives an empty answer.
    """

    stop: int
    max_tokens: int
    max_context: int


@dataclass(eq=False)
class _Text:
    """A text that is being written, and its slot's number at the start."""

    index: int
    lane: int
    prompt: int
    most: int
    draws: Generator
    ids: list[int] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Of the last token."""
        return self.prompt + len(self.ids) - 1


@torch.inference_mode()
def generate(
    net: Net,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    *,
    causal: bool,
    batch_size: int = 8,
    temperature: float = 0.0,
    seed: int = 0,
) -> Iterator[Answer]:
    """Yield the answers in the order in which they end.

    An answer follows from its prompt, the limits, the temperature and the seed. The other prompts and `batch_size`
    change the rounding of sums at most. A prompt that is given several times has draws of its own each time.

    Args:
        net: in the precision in which it is to run, on its device.
        prompts: token ids; none is empty.
        limits: where an answer ends.
        causal: whether prompt tokens see only those before them; as the net was trained.
        batch_size: prompts that are continued together. One that ends is replaced at once.
        temperature: 0 = always the best token.
        seed: of the draws.
    """
    seeds = _seeds(prompts, seed)
    waiting = deque(range(len(prompts)))
    device = next(net.parameters()).device
    cache = Cache(batch_size)
    texts: list[_Text] = []  # slot i of the cache has texts[i]

    def too_long() -> Iterator[Answer]:
        while waiting and (len(prompts[waiting[0]]) >= limits.max_context or limits.max_tokens < 1):
            yield Answer(waiting.popleft(), [], False)

    def start(slot: int, lane: int) -> Iterator[Answer]:
        index = waiting.popleft()
        ids = torch.tensor(prompts[index], device=device)
        draws = Generator().manual_seed(seeds[index])
        text = _Text(index, lane, len(ids), min(limits.max_tokens, limits.max_context - len(ids)), draws)
        texts[slot : slot + 1] = [text]
        batch = _packed(ids, torch.arange(len(ids), device=device), [0, len(ids)])
        y = net(batch, cache.prefill(slot, attention.sees(batch, causal=causal, path="rows")))
        text.ids.append(sample(net.logits(y[-1:]), temperature, [draws])[0])
        yield from too_long()

    yield from too_long()
    while waiting and len(texts) < batch_size:
        yield from start(len(texts), len(texts))
    while texts:
        over = [text for text in texts if text.ids[-1] == limits.stop or len(text.ids) >= text.most]
        for text in sorted(over, key=lambda item: item.lane):
            yield Answer(text.index, text.ids, text.ids[-1] == limits.stop)
            slot = texts.index(text)
            if waiting:
                yield from start(slot, text.lane)
            else:  # the last slot takes its place, so that the first ones are in use
                last = texts.pop()
                if last is not text:
                    texts[slot] = last
                    cache.move(len(texts), slot)
        if not over:
            batch = _packed(
                torch.tensor([text.ids[-1] for text in texts], device=device),
                torch.tensor([text.position for text in texts], device=device),
                range(len(texts) + 1),
            )
            logits = net.logits(net(batch, cache.decode(batch.positions)))
            for text, token in zip(texts, sample(logits, temperature, [item.draws for item in texts]), strict=True):
                text.ids.append(token)


def sample(logits: Tensor, temperature: float, draws: Sequence[Generator]) -> list[int]:
    """Draw a token for each row of logits, float32 [n, V].

    The largest of logits / T - ln(-ln u), u uniform, has the probabilities of softmax(logits / T).

    Args:
        logits: float32 [n, V].
        temperature: T; the largest logit is taken below 1e-5.
        draws: a generator on the CPU for each row.
    """
    if temperature >= GREEDY:
        uniform = torch.stack([torch.rand(logits.shape[1], generator=item) for item in draws])
        logits = with_noise(logits, temperature, uniform.to(logits.device))
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    return tokens


def with_noise(logits: Tensor, temperature: float, uniform: Tensor) -> Tensor:
    """Return logits / T - ln(-ln u), float32 [n, V]; an u of 0 is taken as the smallest normal float32."""
    u = uniform.clamp_min(torch.finfo(torch.float32).tiny)
    return logits / temperature - (-u.log()).log()


def _packed(inputs: Tensor, positions: Tensor, starts: Sequence[int]) -> Packed:
    """Make a batch of rows that are prefix throughout."""
    lengths = tuple(end - start for start, end in pairwise(starts))
    return Packed(inputs, positions, torch.full_like(inputs, -100), tuple(starts), lengths)


def _seeds(prompts: Sequence[Sequence[int]], seed: int) -> list[int]:
    """Derive the seed of each prompt's draws from the seed, the prompt, and how often the prompt came before."""
    seen: Counter[tuple[int, ...]] = Counter()
    made = []
    for prompt in map(tuple, prompts):
        digest = hashlib.sha256(repr((seed, seen[prompt], prompt)).encode()).digest()
        made.append(int.from_bytes(digest[:8], "little") >> 1)
        seen[prompt] += 1
    return made
