"""Held-out loss of a run of train by source, also in bits per byte, so that runs with other tokenizers compare.

Bits per byte is the loss of the response tokens, the one that ends the response included, over the bytes of the
response's text. No text is needed: tokenize keeps how many bytes each response has, and sample hands them on with
held-out rows. Of a response that was cut, and in folders without them, they are counted from tokenizer.json, which says
how many a token writes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import manifest as manifests
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.evaluation.settings import HeldOutSettings
from pairmill.formats import characters
from pairmill.formats.tokens import BYTES, UNKNOWN_BYTES
from pairmill.loader.arrays import MappedFiles, map_array
from pairmill.loader.folder import SampledFolder
from pairmill.loader.held_out import HeldOutRows, choose_rows
from pairmill.loader.sources import RowSources
from pairmill.loader.tokenizer import Tokenizer, check_same_tokenizer
from pairmill.nets.trained import TOKENIZER
from pairmill.stages.evaluate.models.trained import TrainedModel, loaded

ROWS: Final = "held_out/rows.npy"
KIND: Final = np.dtype([("row", "<i8"), ("source", "<i4"), ("tokens", "<i4"), ("bytes", "<i8"), ("loss", "<f8")])
"""Of each row: its number in the folder, that of its source, response tokens, their bytes, and their summed loss."""
_LN2 = math.log(2)


@dataclass
class HeldOutResult:
    """The data of the shard.

    Attributes:
        table: ``all``, and each source by name: ``rows``, ``tokens``, ``bytes``, ``loss`` and ``loss_error`` in nats
            a token, ``bits_per_byte`` and ``bits_per_byte_error``; errors are standard ones over rows, or null.
        sources: names, by number in ``held_out/rows.npy``.
        kept_bytes: rows whose bytes are those that tokenize kept; of the others they are counted from tokenizer.json.
        exact: whether counted bytes are exact: of a byte-level tokenizer they are.
    """

    table: dict[str, dict[str, float | None]]
    sources: list[str]
    kept_bytes: int
    exact: bool


@dataclass(frozen=True)
class HeldOutLoss(Shard[object], reads=()):
    """The loss of each held-out row.

    Args:
        model: a run of train.
        content: digest of the folder's rows, and of their bytes if tokenize kept those.
        rows: how many of its rows; 0 = all.
        slots: tokens of a batch.
    """

    model: TrainedModel
    content: str
    folder: str = field(metadata=unkeyed("a place"))
    rows: int
    slots: int = field(metadata=unkeyed("the loss of a row does not follow from its batch"))

    @classmethod
    def from_folder(cls, model: TrainedModel, given: str, settings: HeldOutSettings) -> HeldOutLoss:
        """Make the shard for a held-out sampled folder on this machine.

        Raises:
            InputError: the folder is damaged, or was made with another tokenizer than the run's.
            UsageError: it is a folder to train on.
        """
        folder = SampledFolder(given, name="held_out")
        opened = _opened(folder)
        run = model.opened()
        digest = hashlib.sha256(run.tokenizer.encode()).hexdigest()[:16]
        says = Tokenizer(digest, _alike(folder, run.trained.tokenizer_info))
        check_same_tokenizer([(f"model={model.where}", says), (f"held_out={given}", folder.tokenizer)], "held_out")
        if opened.longest > model.positions:
            raise InputError(
                "the rows are longer than the net has positions",
                where=f"held_out={given}",
                got=f"a row of {opened.longest:,}",
                expected=f"at most {model.positions:,}",
            )
        content = content_key(folder.digest, _kept_digest(folder))
        place = str(folder.path)
        size = len(folder.tokens)
        return cls(model, content, place, settings.rows, settings.slots, name="held-out rows", size=size)

    def run(self, context: object, out: Writer) -> ShardResult:
        from pairmill.stages.evaluate.measure import measure_rows  # torch, which takes seconds

        run, _, net = loaded(self.model)
        folder = SampledFolder(self.folder, name="held_out")
        held = _opened(folder)
        data = run.tokenizer.encode()
        sizes, exact = characters.lengths(data, f"{run.uri}/{TOKENIZER}")
        sizes += [0] * (run.trained.vocab_size - len(sizes))
        causal = run.trained.net.causal
        rows = measure_rows(net, held, self.rows, self.slots, np.array(sizes, np.int64), KIND, causal=causal)
        rows["row"] = np.sort(choose_rows(len(held), self.rows or len(held)))
        known = _kept(folder)[rows["row"]]
        rows["bytes"] = np.where(known >= 0, known, rows["bytes"])
        with out.create(ROWS) as local, local.open("wb") as file:
            np.save(file, rows)
        table = {"all": summary(rows)}
        table |= {
            name: summary(rows[rows["source"] == number])
            for number, name in enumerate(held.sources)
            if (rows["source"] == number).any()
        }
        measures = {"held_out_rows": len(rows), "held_out_tokens": int(rows["tokens"].sum())}
        result = HeldOutResult(table, list(held.sources), int((known >= 0).sum()), exact)
        return ShardResult(Ledger(measures=measures), asdict(result))


def summary(rows: NDArray[Any]) -> dict[str, float | None]:
    """Mean losses of rows of :data:`KIND`, with standard errors over rows."""
    tokens, size, loss = (rows[name].astype(np.float64) for name in ("tokens", "bytes", "loss"))
    per_token, error = _ratio(loss, tokens)
    bits, bits_error = _ratio(loss / _LN2, size)
    return {
        "rows": len(rows),
        "tokens": int(tokens.sum()),
        "bytes": int(size.sum()),
        "loss": per_token,
        "loss_error": error,
        "bits_per_byte": bits,
        "bits_per_byte_error": bits_error,
    }


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Return the ratio of two sums over rows, and its standard error (Cochran, Sampling Techniques, section 2.11)."""
    total, count = below.sum(), len(below)
    if not total:
        return None, None
    ratio = float(above.sum() / total)
    if count < 2:
        return ratio, None
    spread = np.square(above - ratio * below).sum() * count / (count - 1)
    return ratio, float(np.sqrt(spread) / total)


def _opened(folder: SampledFolder) -> HeldOutRows:
    return HeldOutRows(folder, RowSources([folder], [folder.path.name]), target_only=True)


def _kept_file(folder: SampledFolder) -> Path:
    return folder.epochs[0].folder / f"{BYTES}.npy"


def _kept_digest(folder: SampledFolder) -> str:
    """Return the digest of the bytes that tokenize kept; empty if the folder has none.

    A run's own digests do not need them.
    """
    path = _kept_file(folder)
    if not path.exists():
        return ""
    name = path.relative_to(folder.path).as_posix()
    made = manifests.read(str(folder.path))
    return MappedFiles(folder.path, [name], made.files if made else ()).digests()[name]


def _kept(folder: SampledFolder) -> NDArray[np.int64]:
    """Return bytes of each row's response, int64 [rows]; UNKNOWN_BYTES where they were not kept.

    Raises:
        InputError: the file is damaged.
    """
    path, count = _kept_file(folder), folder.epochs[0].rows
    if not path.exists():
        return np.full(count, UNKNOWN_BYTES, np.int64)
    result = map_array(path)
    if len(result) != count or result.dtype.kind not in "ui":
        raise InputError(
            "not the bytes of these rows",
            where=str(path),
            got=f"{result.dtype} [{len(result)}]",
            expected=f"integers [{count}]",
            hint="sample again",
        )
    return result.astype(np.int64)


def _alike(folder: SampledFolder, info: dict[str, Any]) -> dict[str, Any]:
    """Return what a run says of its tokenizer; only what a folder says too is compared."""
    known = folder.tokenizer.info if folder.tokenizer is not None else {}
    return {name: value for name, value in info.items() if name in known and name != "vocab_size"}
