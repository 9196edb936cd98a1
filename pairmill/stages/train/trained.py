"""``config.json`` of a finished run: all that is needed to build its net, to write prompts for it, and to describe it.

The stage writes the file beside ``weights.safetensors`` and ``ema.safetensors``; ``generate`` and ``export`` read it. A
checkpoint has the same in its record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats import tokenizer_file
from pairmill.stages.train.settings import ModelSettings, Override

if TYPE_CHECKING:
    from torch import Tensor

    from pairmill.stages.train.nets import Net
    from pairmill.stages.train.start import Start

NAME = "config.json"
WEIGHTS = "weights.safetensors"
EMA = "ema.safetensors"
TOKENIZER = "tokenizer.json"
_STAGE = "train"


@dataclass(frozen=True)
class Trained:
    """What ``config.json`` says.

    Attributes:
        model: the fields of ``ModelSettings`` (``dataclasses.asdict``).
        vocab_size: rows of the embedding.
        positions: rows of the RoPE table, which is the longest context.
        tokenizer_info: as ``metadata.json`` of a sampled folder: ``boq``, ``eoq``, ``eoa``, ``condition_mapping``
            (token by tag); or as ``windows.json`` of flat files: ``eod``. All are tokens, not ids.
        profile: of the settings.
        ema: the share that the average keeps at each step; 0 also of an average of other kinds, in which no initial
            weight is left; None = the run has no average.
        steps: optimizer steps.
        settings: all settings of the run, for the card.
        data: where the data is from, for the card: ``plan`` and ``tokenizer`` (digests), ``samples`` (fingerprints of
            the sampled folders, by which the card finds licences and shares), ``sources`` (names); each may be absent.
        results: the last values by the names of metrics.jsonl (``loss``, ``heldout_loss``, ``heldout_ema_loss``,
            ``heldout_loss/<source>``, ...), ``tokens`` and ``labels`` seen; each may be absent.
    """

    model: dict[str, Any]
    vocab_size: int
    positions: int
    tokenizer_info: dict[str, Any]
    profile: str = "pairmill"
    ema: float | None = None
    steps: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def net(self) -> ModelSettings:
        """The settings of the net."""
        override = Override(**self.model.get("H_override", {}))
        return ModelSettings(**{**self.model, "H_override": override})

    @property
    def initial_share(self) -> float:
        """The share of the initial weights in the average: ``ema ** steps``; 1 without an average."""
        return 1.0 if self.ema is None else self.ema**self.steps

    def said(self) -> dict[str, Any]:
        """JSON-like; :meth:`of` reads it."""
        return asdict(self)

    def dump(self) -> bytes:
        """The bytes of ``config.json``."""
        return json.dumps(self.said(), indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def of(cls, said: object, where: str) -> Self:
        """Read what :meth:`said` said. Raises InputError, which names ``where``, if it is anything else."""
        try:
            if not isinstance(said, Mapping):
                raise TypeError(f"a {type(said).__name__}")
            return cls(**said)
        except TypeError as error:
            hint = "give a finished run of this version of pairmill, or one of its checkpoints"
            raise InputError("not the configuration of a trained net", where=where, got=str(error), hint=hint) from None

    @classmethod
    def load(cls, data: bytes, where: str) -> Self:
        """Read ``config.json``. Raises InputError, which names ``where``, if it is not one of ours."""
        try:
            said = json.loads(data)
        except ValueError as error:
            raise InputError("not valid JSON", where=where, got=str(error)) from error
        return cls.of(said, where)


Weights = Literal["auto", "ema", "current"]


@dataclass(frozen=True)
class Run:
    """A trained net as ``generate`` and ``export`` are given it: a finished run, or a checkpoint of one.

    Attributes:
        uri: of the folder.
        trained: what it says.
        manifest: of a finished run; None for a checkpoint.
        checkpoint: None for a finished run.
        tokenizer_option: the tokenizer.json, or a folder with it, that an option names; empty = that of the run.
    """

    uri: str
    trained: Trained
    manifest: Manifest | None = None
    checkpoint: Start | None = None
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
            from pairmill.stages.train.start import Start

            found = Start.find(uri, "current")
            return cls(found.uri, found.trained, checkpoint=found, tokenizer_option=tokenizer)
        uri = _finished(uri, option)
        manifest = manifests.read_intact(uri)
        data = manifests.read_file(uri, manifest, NAME)
        return cls(uri, Trained.load(data, storage.join(uri, NAME)), manifest, tokenizer_option=tokenizer)

    @property
    def samples(self) -> list[str]:
        """Fingerprints of the samples that it was trained on; none of other data."""
        if self.manifest is not None:
            return [ref.fingerprint for ref in self.manifest.inputs if ref.role == "sampled"]
        return [one for one in str(self.trained.data.get("sample", "")).split(", ") if one]

    def read(self, name: str) -> bytes:
        """A small file of the folder, compared with its digest."""
        return manifests.read_file(self.uri, self.manifest, name)

    @cached_property
    def tokenizer(self) -> str:
        """The text of tokenizer.json: that of the run, or that an option names.

        Raises:
            InputError: there is none, or the option names another one than that of the run's data.
        """
        there = storage.store_for(self.uri).exists(storage.join(self.uri, TOKENIZER))
        own = self.read(TOKENIZER) if there else None
        if self.tokenizer_option:
            uri = tokenizer_file.locate(self.tokenizer_option)
            found = tokenizer_file.read(uri)
            digest, count = hashlib.sha256(found).hexdigest(), tokenizer_file.ids(found, uri)
            known = self.trained.data.get("tokenizer", "")
            if (own is not None and own != found) or not digest.startswith(known):
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
            return found.decode()
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

    def which(self, weights: Weights) -> tuple[Literal["ema", "current"], str]:
        """The weights to take, and why in words.

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
        """All tensors of the net by name, float32 except where the run says otherwise.

        An average has parameters only; buffers are those of the net.
        """
        if self.checkpoint is not None:
            return dict(self.net(weights).state_dict())
        found = self._load(WEIGHTS)
        return found | self._load(EMA) if weights == "ema" else found

    def net(self, weights: Literal["ema", "current"]) -> Net:
        """The net with these weights, on the CPU, ready to be called."""
        from pairmill.stages.train.nets import build

        net = build(self.trained.net, self.trained.vocab_size, self.trained.positions)
        if self.checkpoint is not None:
            from pairmill.stages.train import parallel

            chosen = replace(self.checkpoint, take=weights)
            chosen.weights(net, parallel.start("cpu"))
        else:
            net.load_state_dict(self.tensors(weights))
        net.eval().requires_grad_(False)
        return net

    def _load(self, name: str) -> dict[str, Tensor]:
        from pairmill.stages.train.tensor_file import Reader

        uri = storage.join(self.uri, name)
        with storage.store_for(uri).open(uri) as file:
            reader = Reader(file, uri)
            return {one: reader.rows(one) for one in reader.kinds}


_INITIAL_SHARE = 0.01


def _has_checkpoints(uri: str) -> bool:
    """Whether it is a checkpoint, or a folder of them, or that of a run which is not finished."""
    store = storage.store_for(uri)
    if store.exists(storage.join(uri, NAME)):
        return False
    below = [*store.folders(uri), storage.name_of(uri)]
    return "checkpoints" in below or any(re.fullmatch("[0-9]{8}", name) for name in below)


def _finished(uri: str, option: str) -> str:
    """The folder of the finished run that a URI means."""
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
