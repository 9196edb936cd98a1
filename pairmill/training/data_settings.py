"""``data:`` of ``train_config.yaml``: how the data that the options name are read."""

from dataclasses import dataclass
from typing import Any, Literal

from pairmill.fields import Checked, setting


@dataclass(frozen=True, kw_only=True)
class DataPhase(Checked):
    """A part of the training, until the next one begins (docs/loader.md)."""

    source: str = setting("", help="of sampled folders the one to read; empty for windows")
    step: int = setting(0, help="it begins after this many steps,")
    tokens: int = setting(0, help="or after this many tokens,")
    epoch: int = setting(0, help="or with this epoch of the folder that is read before it")
    lr_scale: float = setting(1.0, help="factor of the learning rate")
    weights: dict[str, float] = setting({}, help="of windows, by source; a source that is not named keeps its weight")
    temperature: float | None = setting(None, help="of windows; null = the one above")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the loader's ``Phase``, by name."""
        return {**vars(self), "weights": self.weights or None}


@dataclass(frozen=True, kw_only=True)
class HubSettings(Checked):
    """A data set of the Hugging Face Hub, or a folder that the library ``datasets`` reads."""

    revision: str = setting(
        "", help="commit, branch or tag; empty = main, which may change. A stream is told from another by it alone"
    )
    config: str = setting("", help="configuration of the data set; empty = its only one")
    split: str = setting("train", help="of the rows to train on")
    held_out_split: str = setting("", help="of rows to evaluate on; empty = none")
    text_field: str = setting("text", help="the column of texts")
    eos: str = setting("", help="the token that ends a document; required")
    streaming: bool = setting(False, help="read and tokenize while training, in place of all of it before")
    buffer: int = setting(10_000, help="with streaming, documents among which the stream is shuffled; 0 = not shuffled")


@dataclass(frozen=True, kw_only=True)
class DataSettings(Checked):
    """How data are read."""

    phases: list[DataPhase] = setting(
        [],
        help="items {source, step, tokens, epoch, lr_scale, weights, temperature}; empty = as the folder says, or one",
    )
    weights: dict[str, float] = setting({}, help="of windows, by source; empty = by size. Weight 0 is never drawn")
    temperature: float = setting(1.0, help="weights are raised to 1 / temperature")
    balance: Literal["lpt", "quadratic", "quadratic_work"] = setting(
        "lpt",
        help="which rank gets which rows; lpt balances tokens, quadratic and quadratic_work the work of attention",
    )
    one_token_rows: Literal["keep", "skip"] = setting(
        "keep", help="rows with a response of one token are a keep or a skip"
    )
    seq_len: int = setting(1024, help="slots of a window", at_least=1)
    pattern: str = setting(
        "", help="the files of a folder of windows; empty = all .npy, and the tasks of a set are a source"
    )
    dtype: str = setting("", help="of the ids in .bin files, as uint16")
    eos_id: int = setting(
        -1,
        help="the id that ends a document; -1 = as the folder says, and documents are not told apart if it does not",
        at_least=-1,
    )
    documents: bool = setting(True, help="windows are told where documents end; false = a window is one text")
    vocab_size: int = setting(0, help="ids of the tokenizer; 0 = as the data say", at_least=0)
    held_out_share: float = setting(
        0.0,
        help="part of the windows that is set apart to evaluate on, where held_out= names no folder",
        at_least=0,
        below=1,
    )
    hub: HubSettings = setting(HubSettings, help="a data set of the Hub")
    prefetch: int = setting(8, help="batches made ahead", at_least=1)
