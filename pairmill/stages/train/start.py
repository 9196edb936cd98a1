"""The weights that a run begins with, if they are those of an earlier one (fine-tuning); no tensor is read here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.nets.settings import ModelSettings
from pairmill.nets.trained import EMA, NAME, TOKENIZER, WEIGHTS, Trained, TrainedCheckpoint

OPTION: Final = "weights_from"
_SHAPES: Final = (
    "net",
    "layers",
    "width",
    "heads",
    "key_value_heads",
    "expansion",
    "feed_width",
    "half_layers",
    "H_override",
    "qk_norm",
    "tied",
)
"""Settings of the net that its tensors follow from."""


Take = Literal["ema", "current", "all"]


@dataclass(frozen=True)
class Start:
    """Weights of an earlier run, found and checked; no tensor is read yet.

    Attributes:
        uri: of a finished run, or of a checkpoint.
        take: ema, current or all.
        digest: hexadecimal sha256 of what is read.
        trained: what it says of itself.
        step: of a checkpoint; None = a finished run.
    """

    uri: str
    take: Take
    digest: str
    trained: Trained
    step: int | None = None

    @classmethod
    def find(cls, given: str, take: Take) -> Start:
        """Find a finished run, a checkpoint, or the newest checkpoint of the folder of a run.

        Raises:
            InputError: it is none of these, or unfinished.
            UsageError: it does not have what ``take`` says.
        """
        uri = storage.normalise(given, OPTION)
        if storage.store_for(uri).exists(storage.join(uri, NAME)):
            return _find_finished(uri, take)
        result = TrainedCheckpoint.find(uri)
        if result is None:
            raise InputError(
                "neither a finished run nor a checkpoint",
                where=f"{OPTION}={uri}",
                expected="the folder that train printed, or a folder of checkpoints",
            )
        if take == "ema" and result.trained.ema is None:
            raise _no_average(uri)
        return cls(result.uri, take, result.digest, result.trained, result.step)

    def check(self, mine: ModelSettings, vocab_size: int, tokenizer: bytes | None) -> None:
        """Raise UsageError if a net has other tensors, InputError if its data have other tokens.

        Args:
            mine: settings of the net.
            vocab_size: of its data.
            tokenizer: of its data; None = not known.
        """
        theirs = self.trained.net
        for name in _SHAPES:
            if getattr(theirs, name) != getattr(mine, name):
                raise UsageError(
                    "another net than that of weights_from",
                    where=f"model.{name}",
                    got=str(getattr(mine, name)),
                    expected=str(getattr(theirs, name)),
                )
        uri = storage.join(self.uri, TOKENIZER)
        known = tokenizer is not None and storage.store_for(uri).exists(uri)
        differs = known and storage.store_for(uri).read(uri) != tokenizer
        if differs or self.trained.vocab_size != vocab_size:
            raise InputError(
                "the data have another tokenizer than weights_from",
                where=f"{OPTION}={self.uri}",
                got=f"a vocabulary of {self.trained.vocab_size:,}, and of {vocab_size:,} in the data",
                expected="one tokenizer",
                hint="tokenize the data with the tokenizer.json of that run",
            )


def _find_finished(uri: str, take: Take) -> Start:
    manifests.refuse_unfinished(uri)
    store = storage.store_for(uri)
    if take == "all":
        raise UsageError(
            "a finished run has no optimizer's state",
            where="weights",
            got=take,
            expected="ema or current",
            hint="give weights_from= one of its checkpoints",
        )
    if take == "ema" and not store.exists(storage.join(uri, EMA)):
        raise _no_average(uri)
    trained = Trained.load(store.read(storage.join(uri, NAME)), storage.join(uri, NAME))
    manifest = manifests.read(uri)
    known = {file.path: file.digest for file in manifest.files} if manifest is not None else {}
    names = [WEIGHTS, EMA] if take == "ema" else [WEIGHTS]
    digests = [known.get(name) or store.digest(storage.join(uri, name)) for name in names]
    return Start(uri, take, hashlib.sha256(" ".join(digests).encode()).hexdigest(), trained)


def _no_average(uri: str) -> UsageError:
    return UsageError("the run has no average of weights", where="weights", got=f"ema, of {uri}", expected="current")
