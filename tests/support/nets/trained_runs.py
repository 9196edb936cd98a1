"""Folders of finished runs of tiny nets, for tests of what reads them. It needs torch."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import Tensor

from pairmill.digest import digest_file
from pairmill.encoder import PRE_TOKENIZER
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.nets import trained
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.nets.settings import ModelSettings
from pairmill.nets.trained import Trained

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_end|>", "<|object_ref_start|>", "<|object_ref_end|>"]
ROWS_INFO = {
    "boq": SPECIALS[1],
    "eoq": SPECIALS[2],
    "eoa": SPECIALS[3],
    "condition_mapping": {"direct": SPECIALS[4], "cot": SPECIALS[5]},
}
DOCUMENTS_INFO = {"eod": SPECIALS[0]}
VOCAB_SIZE, POSITIONS = 512, 64


def tokenizer() -> str:
    """The text of a tokenizer.json of 256 bytes and the special tokens, as train_tokenizer writes it."""
    symbols = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in symbols]
    letters = sorted([chr(byte) for byte in symbols] + [chr(256 + index) for index in range(len(others))])
    vocab = {token: number for number, token in enumerate([*SPECIALS, *letters])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.normalizer, made.decoder = normalizers.NFC(), decoders.ByteLevel()
    made.add_special_tokens(SPECIALS)
    said = {**json.loads(made.to_str()), "pre_tokenizer": PRE_TOKENIZER}
    return json.dumps(said)


def tiny(net: str, **values: Any) -> ModelSettings:
    """Two blocks, width 32; values that differ."""
    given = {"layers": 4 if net in ("hrm", "rins", "trm_match_recurrence") else 2, "width": 32, "heads": 2, **values}
    return ModelSettings.for_net(net, **given)


def finished(
    folder: Path, model: ModelSettings, *, seed: int = 0, ema: float = 0.5, steps: int = 100, **said: Any
) -> Path:
    """A finished run with initial weights, and an average with others; ``said`` goes into config.json."""
    folder.mkdir(parents=True)
    save_file(weights(model, seed), folder / trained.WEIGHTS)
    if ema:
        buffers = {name for name, _ in build(model, VOCAB_SIZE, POSITIONS).named_buffers()}
        average = {name: one for name, one in weights(model, seed + 1).items() if name not in buffers}
        save_file(average, folder / trained.EMA)
    (folder / trained.TOKENIZER).write_text(tokenizer())
    info = said.pop("tokenizer_info", ROWS_INFO)
    config = Trained(asdict(model), VOCAB_SIZE, POSITIONS, info, ema=ema or None, steps=steps, **said)
    (folder / trained.NAME).write_bytes(config.dump())
    return folder


def weights(model: ModelSettings, seed: int = 0) -> dict[str, Tensor]:
    """Initial weights, those of the head thrice as large, so that answers differ."""
    net = build(model, VOCAB_SIZE, POSITIONS)
    initialise(net, seed)
    return {name: one * 3 if "head" in name else one for name, one in net.state_dict().items()}


def with_manifest(folder: Path, inputs: list[InputRef]) -> Path:
    """The folder with a manifest of the stage train."""
    files = [File(path.name, path.stat().st_size, digest_file(path)) for path in sorted(folder.iterdir())]
    made = Manifest("train", 1, folder.name, {}, inputs, Ledger(), files)
    (folder / "_MANIFEST.json").write_bytes(made.dump())
    return folder


def logits(net: torch.nn.Module, ids: list[int], *, causal: bool) -> Tensor:
    """Logits of a prompt, float32 [tokens, V]."""
    from pairmill.nets import attention
    from pairmill.nets.batch import Packed

    count = len(ids)
    batch = Packed(torch.tensor(ids), torch.arange(count), torch.full((count,), -100), (0, count), (count,))
    with torch.inference_mode():
        made: Tensor = net.logits(net(batch, attention.sees(batch, causal=causal)))
    return made
