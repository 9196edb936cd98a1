"""How likely a net finds an answer."""

from collections.abc import Sequence
from typing import Any

import torch

from pairmill.nets import attention
from pairmill.nets.batch import Packed


def measure(net: Any, ids: Sequence[int], rest: Sequence[int], *, causal: bool) -> tuple[float, bool]:
    """Return the log-likelihood in nats of the tokens ``rest`` after the prompt ``ids``, and whether greedy decoding
    writes them."""
    if not rest:
        return 0.0, True
    given = torch.tensor([*ids, *rest[:-1]])
    none = torch.full_like(given, -100)
    device, dtype = next(net.parameters()).device, next(net.parameters()).dtype
    batch = Packed(given, torch.arange(len(given)), none, (0, len(given)), (len(ids),)).to(device)
    with torch.inference_mode():
        sees = attention.sees(batch, causal=causal, path=attention.choose("auto", device, dtype))
        logits = net.logits(net(batch, sees)[len(ids) - 1 :]).float().cpu()
    wanted = torch.tensor(rest)
    log = logits.double().log_softmax(-1).gather(1, wanted[:, None]).sum()
    return float(log), bool((logits.argmax(-1) == wanted).all())
