"""``data:`` of ``train_config.yaml``: how the data that the options name are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pairmill.errors import UsageError
from pairmill.loader import Phase


@dataclass(frozen=True, kw_only=True)
class DataPhase:
    """A part of the training, until the next one begins (docs/loader.md).

    Args:
        source: of sampled folders the one to read; empty for windows.
        step: it begins after this many steps,
        tokens: or after this many tokens,
        epoch: or with this epoch of the folder that is read before it.
        lr_scale: factor of the learning rate.
        weights: of windows, by source; a source that is not named keeps its weight.
        temperature: of windows; null = the one above.
    """

    source: str = ""
    step: int = 0
    tokens: int = 0
    epoch: int = 0
    lr_scale: float = 1.0
    weights: dict[str, float] = field(default_factory=dict)
    temperature: float | None = None

    def as_phase(self) -> Phase:
        """It as the loader takes it."""
        return Phase(**{**vars(self), "weights": self.weights or None})


@dataclass(frozen=True, kw_only=True)
class HubSettings:
    """A data set of the Hugging Face Hub, or a folder that the library ``datasets`` reads.

    Args:
        revision: commit, branch or tag; empty = main, which may change. A stream is told from another by it alone.
        config: configuration of the data set; empty = its only one.
        split: of the rows to train on.
        held_out_split: of rows to evaluate on; empty = none.
        text_field: the column of texts.
        eos: the token that ends a document; required.
        streaming: read and tokenize while training, in place of all of it before.
        buffer: with streaming, documents among which the stream is shuffled; 0 = not shuffled.
    """

    revision: str = ""
    config: str = ""
    split: str = "train"
    held_out_split: str = ""
    text_field: str = "text"
    eos: str = ""
    streaming: bool = False
    buffer: int = 10_000


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How data are read.

    Args:
        phases: items {source, step, tokens, epoch, lr_scale, weights, temperature}; empty = as the folder says, or one.
        weights: of windows, by source; empty = by size. Weight 0 is never drawn.
        temperature: weights are raised to 1 / temperature.
        balance: which rank gets which rows; lpt balances tokens, quadratic and quadratic_work the work of attention.
        one_token_rows: rows with a response of one token are a keep or a skip.
        seq_len: slots of a window.
        pattern: the files of a folder of windows; empty = all .npy, and the tasks of a set are a source.
        dtype: of the ids in .bin files, as uint16.
        eos_id: the id that ends a document; -1 = as the folder says, and documents are not told apart if it does not.
        documents: windows are told where documents end; false = a window is one text.
        vocab_size: ids of the tokenizer; 0 = as the data say.
        held_out_share: part of the windows that is set apart to evaluate on, where held_out= names no folder.
        hub: a data set of the Hub.
        prefetch: batches made ahead.
    """

    phases: list[DataPhase] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    balance: Literal["lpt", "quadratic", "quadratic_work"] = "lpt"
    one_token_rows: Literal["keep", "skip"] = "keep"  # noqa: S105 (not a password)
    seq_len: int = 1024
    pattern: str = ""
    dtype: str = ""
    eos_id: int = -1
    documents: bool = True
    vocab_size: int = 0
    held_out_share: float = 0.0
    hub: HubSettings = field(default_factory=HubSettings)
    prefetch: int = 8

    def __post_init__(self) -> None:
        for name, least in (("seq_len", 1), ("eos_id", -1), ("vocab_size", 0), ("prefetch", 1)):
            if getattr(self, name) < least:
                raise UsageError("out of range", where=name, got=str(getattr(self, name)), expected=f"{least} or more")
        if not 0 <= self.held_out_share < 1:
            raise UsageError(
                "out of range", where="held_out_share", got=f"{self.held_out_share:g}", expected="0 to below 1"
            )
