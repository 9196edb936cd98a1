"""A trained net as it is read: a finished run of ``train``, or a checkpoint of one. Torch is imported late."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, Self

from pairmill import nets, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats import tokenizer_file
from pairmill.nets.trained import CHECKPOINTS, EMA, NAME, STEP, TOKENIZER, WEIGHTS, Trained, TrainedCheckpoint

if TYPE_CHECKING:
    from torch import Tensor

    from pairmill.nets.net import Net

_STAGE: Final = "train"

Weights = Literal["auto", "ema", "current"]


@dataclass(frozen=True)
class Run:
    """A trained net as ``generate`` and ``export`` are given it: a finished run, or a checkpoint of one.

    Attributes:
        trained: what it says.
        manifest: of a finished run; None for a checkpoint.
        checkpoint: None for a finished run.
        tokenizer_option: the tokenizer.json, or a folder with it, that an option names; empty = that of the run.
    """

    uri: str
    trained: Trained
    manifest: Manifest | None = None
    checkpoint: TrainedCheckpoint | None = None
    tokenizer_option: str = ""

    @classmethod
    def open(cls, given: str, option: str = "run", tokenizer: str = "") -> Self:
        """Open the folder of a finished run, or a root below which there is one finished run, or a checkpoint.

        Of a folder with several checkpoints it takes the newest. ``tokenizer`` names the tokenizer.json of a run that
        was trained without.

        Raises:
            InputError: it is none of these, or files are missing or damaged.
        """
        uri = storage.normalise(given, option)
        if _has_checkpoints(uri):
            result = TrainedCheckpoint.find(uri)
            if result is None:
                raise InputError(
                    "neither a finished run nor a checkpoint",
                    where=f"{option}={uri}",
                    expected="the folder that train printed, or a folder of checkpoints",
                )
            return cls(result.uri, result.trained, checkpoint=result, tokenizer_option=tokenizer)
        uri = _find_finished(uri, option)
        manifest = manifests.read_intact(uri)
        data = manifests.read_file(uri, manifest, NAME)
        return cls(uri, Trained.load(data, storage.join(uri, NAME)), manifest, tokenizer_option=tokenizer)

    @property
    def samples(self) -> list[str]:
        """Fingerprints of the samples that it was trained on; none of other data, and none of a checkpoint."""
        inputs = self.manifest.inputs if self.manifest is not None else []
        return [ref.fingerprint for ref in inputs if ref.role == "sampled"]

    def read(self, name: str) -> bytes:
        """Read a small file of the folder, and compare it with its digest."""
        return manifests.read_file(self.uri, self.manifest, name)

    @cached_property
    def tokenizer(self) -> str:
        """Text of tokenizer.json: that of the run, or that an option names.

        Raises:
            InputError: there is none, or the option names another one than that of the run's data.
        """
        there = storage.store_for(self.uri).exists(storage.join(self.uri, TOKENIZER))
        own = self.read(TOKENIZER) if there else None
        if self.tokenizer_option:
            uri = tokenizer_file.locate(self.tokenizer_option)
            result = tokenizer_file.read(uri)
            digest, count = hashlib.sha256(result).hexdigest(), tokenizer_file.ids(result, uri)
            known = self.trained.data.tokenizer
            if (own is not None and own != result) or not digest.startswith(known):
                raise InputError(
                    "not the tokenizer of the run, so one id means two texts",
                    where=f"tokenizer={uri}",
                    got=f"sha256 {digest[:16]}",
                    expected=f"sha256 {known or hashlib.sha256(own or b'').hexdigest()[:16]}",
                    hint="leave it out" if own is not None else "give the tokenizer.json of the tokenized folder",
                )
            if count > self.trained.vocab_size:
                raise InputError(
                    "has more ids than the net",
                    where=f"tokenizer={uri}",
                    got=f"{count:,} ids",
                    expected=f"at most {self.trained.vocab_size:,}",
                    hint="give the tokenizer.json of the tokenized folder",
                )
            return result.decode()
        if own is None:
            hint = f"give tokenizer=<the tokenizer.json of its data>, or copy that file into this folder as {TOKENIZER}"
            raise InputError("the run has no tokenizer", where=self.uri, expected=TOKENIZER, hint=hint)
        return own.decode()

    @property
    def averages(self) -> bool:
        """Whether there is an average of the weights."""
        if self.checkpoint is not None:
            return self.trained.ema is not None
        return storage.store_for(self.uri).exists(storage.join(self.uri, EMA))

    def choose_weights(self, weights: Weights) -> tuple[Literal["ema", "current"], str]:
        """Choose the weights to take, and say why in words.

        ``auto`` takes those with the lower held-out loss, if the run measured both; else the average, unless more than
        a hundredth of it is the initial weights. The profile ``hrm_text`` always takes the average, as HRM-Text does.

        Raises:
            UsageError: the run has no average, and it is asked for.
        """
        trained = self.trained
        averages = self.averages
        if weights == "ema" and not averages:
            raise UsageError("the run has no average of weights", where="weights", got="ema", expected="current")
        if weights != "auto":
            return weights, "asked for"
        if not averages:
            return "current", "the run has no average"
        share = f"{trained.initial_share:.2g} of the average is the initial weights"
        if trained.profile.startswith("hrm_text"):
            return "ema", f"profile {trained.profile}; {share}"
        ema, current = (trained.results.get(name) for name in ("heldout_ema_loss", "heldout_loss"))
        if ema is not None and current is not None:
            if ema <= current:
                return "ema", f"held-out loss {ema:.4f}, of the last weights {current:.4f}"
            return "current", f"held-out loss {current:.4f}, of the average {ema:.4f}"
        return ("ema" if trained.initial_share <= _INITIAL_SHARE else "current"), share

    def tensors(self, weights: Literal["ema", "current"]) -> dict[str, Tensor]:
        """Read all tensors of the net by name, float32 except where the run says otherwise.

        An average has parameters only; buffers are those of the net.
        """
        if self.checkpoint is not None:
            return dict(self.net(weights).state_dict())
        tensors = self._load(WEIGHTS)
        return tensors | self._load(EMA) if weights == "ema" else tensors

    def net(self, weights: Literal["ema", "current"]) -> Net:
        """Build the net with these weights, on the CPU, ready to be called."""
        net: Net = nets.build(self.trained.net, self.trained.vocab_size, self.trained.positions)
        if self.checkpoint is not None:
            name = "optimizer.{}.param_ema" if weights == "ema" else "model.{}"
            wanted = {name.format(key): tensor for key, tensor in net.named_parameters()}
            wanted |= {f"model.{key}": buffer for key, buffer in net.named_buffers()}
            nets.checkpoint.Checkpoint.open(self.uri, self.uri).load(wanted)
        else:
            net.load_state_dict(self.tensors(weights))
        net.eval().requires_grad_(False)
        return net

    def _load(self, name: str) -> dict[str, Tensor]:
        uri = storage.join(self.uri, name)
        with storage.store_for(uri).open(uri) as file:
            reader = nets.tensor_file.Reader(file, uri)
            return {key: reader.rows(key) for key in reader.kinds}


_INITIAL_SHARE = 0.01


def _has_checkpoints(uri: str) -> bool:
    """Tell whether it is a checkpoint, or a folder of them, or that of a run which is not finished."""
    store = storage.store_for(uri)
    if store.exists(storage.join(uri, NAME)):
        return False
    below = [*store.folders(uri), storage.name_of(uri)]
    return CHECKPOINTS in below or any(STEP.fullmatch(name) for name in below)


def _find_finished(uri: str, option: str) -> str:
    """Find the folder of the finished run that a URI means."""
    store = storage.store_for(uri)
    if store.exists(storage.join(uri, NAME)):
        return uri
    manifests.refuse_unfinished(uri)
    top = uri if storage.name_of(uri) == _STAGE else storage.join(uri, _STAGE)
    names = [name for name in store.folders(top) if manifests.is_fingerprint(name)]
    done = [name for name in names if store.exists(storage.join(top, name, NAME))]
    done = [name for name in done if store.exists(storage.join(top, name, manifests.MANIFEST))]
    if len(done) != 1:
        raise InputError(
            "several finished runs" if done else "no finished run",
            where=f"{option}={uri}",
            got=", ".join(done) or ("an unfinished one: " + ", ".join(names) if names else f"no folder with {NAME}"),
            expected="the folder that train printed",
            hint=f"give {option}={storage.join(top, done[0])}" if done else "train first, or finish the run",
        )
    return storage.join(top, done[0])
