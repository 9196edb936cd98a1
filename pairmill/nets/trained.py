"""``config.json`` of a finished run: all that is needed to build its net, to write prompts for it, and to describe it.

The stage writes the file beside ``weights.safetensors`` and ``ema.safetensors``; ``generate`` and ``export`` read it. A
checkpoint has the same in its record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Self

from pairmill import storage
from pairmill.engine.manifest import File, canonical
from pairmill.errors import InputError
from pairmill.nets.settings import ModelSettings, Override

NAME = "config.json"
WEIGHTS = "weights.safetensors"
EMA = "ema.safetensors"
TOKENIZER = "tokenizer.json"
CHECKPOINTS: Final = "checkpoints"
RECORD: Final = "_RECORD.json"
"""Of a checkpoint: the file that is written last."""
STEP: Final = re.compile("[0-9]{8}")
"""The name of a checkpoint's folder."""


@dataclass(frozen=True)
class DataDigests:
    """What the data of a run is: the digests of its plan and of its tokenizer; empty = not known."""

    plan: str = ""
    tokenizer: str = ""


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
        data: what it was trained on.
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
    data: DataDigests = DataDigests()
    results: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def net(self) -> ModelSettings:
        """The settings of the net."""
        override = Override(**self.model.get("H_override", {}))
        return ModelSettings(**{**self.model, "H_override": override})

    @property
    def initial_share(self) -> float:
        """Share of the initial weights in the average: ``ema ** steps``; 1 without an average."""
        return 1.0 if self.ema is None else self.ema**self.steps

    def to_json(self) -> dict[str, Any]:
        """Return it JSON-like; :meth:`from_json` reads it."""
        return {**asdict(self), "data": {name: digest for name, digest in vars(self.data).items() if digest}}

    def dump(self) -> bytes:
        """Return the bytes of ``config.json``."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_json(cls, raw: object, where: str) -> Self:
        """Read what :meth:`to_json` gave. Raises InputError, which names ``where``, if it is anything else."""
        try:
            if not isinstance(raw, Mapping):
                raise TypeError(f"a {type(raw).__name__}")
            data = raw.get("data", {})
            known = {item.name: data[item.name] for item in fields(DataDigests) if item.name in data}
            return cls(**{**raw, "data": DataDigests(**known)})
        except TypeError as error:
            hint = "give a finished run of this version of pairmill, or one of its checkpoints"
            raise InputError("not the configuration of a trained net", where=where, got=str(error), hint=hint) from None

    @classmethod
    def load(cls, data: bytes, where: str) -> Self:
        """Read ``config.json``. Raises InputError, which names ``where``, if it is not one of ours."""
        try:
            raw = json.loads(data)
        except ValueError as error:
            raise InputError("not valid JSON", where=where, got=str(error)) from error
        return cls.from_json(raw, where)


@dataclass(frozen=True)
class TrainedCheckpoint:
    """The folder of a checkpoint; no tensor is read yet.

    Attributes:
        step: that it was saved after.
        digest: hexadecimal sha256 of its record.
        trained: what it says of its net.
        files: all but the record.
        says: what the run recorded of itself (JSON-like).
    """

    uri: str
    step: int
    digest: str
    trained: Trained
    files: tuple[File, ...]
    says: Mapping[str, Any]

    @property
    def content(self) -> str:
        """Hexadecimal sha256 of its files and its net: that of a run which saved the step again, with other clocks."""
        named = [[file.path, file.digest] for file in self.files]
        return hashlib.sha256(canonical([named, self.trained.to_json()])).hexdigest()

    @classmethod
    def find(cls, uri: str) -> TrainedCheckpoint | None:
        """Find a checkpoint, or the newest one of the folder of a run or of its checkpoints.

        Raises:
            InputError: its record is not that of a checkpoint.
        """
        store = storage.store_for(uri)
        below = [
            storage.join(top, name) for top in (storage.join(uri, CHECKPOINTS), uri) for name in _newest_first(top)
        ]
        for folder in (uri, *below):
            record = storage.join(folder, RECORD)
            if STEP.fullmatch(storage.name_of(folder)) and store.exists(record):
                data = store.read(record)
                files, says = _read_record(data, record)
                trained = Trained.from_json(says.get("trained"), record)
                step = int(storage.name_of(folder))
                return cls(folder, step, hashlib.sha256(data).hexdigest(), trained, files, says)
        return None


def _newest_first(uri: str) -> list[str]:
    """Name the folders below one."""
    return sorted(storage.store_for(uri).folders(uri), reverse=True)


def _read_record(data: bytes, where: str) -> tuple[tuple[File, ...], Mapping[str, Any]]:
    try:
        raw = json.loads(data)
        return tuple(File.from_json(file) for file in raw["files"]), dict(raw["says"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("not the record of a checkpoint", where=where, got=str(error)) from error
