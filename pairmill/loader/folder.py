"""A sampled folder as a trainer reads it: ``tokens.npy``, four index arrays an epoch, ``metadata.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pairmill._native import RowIndex
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError, from_os_error
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.tokens import INDEX
from pairmill.loader import arguments
from pairmill.loader.arguments import reading, shown
from pairmill.loader.arrays import Mapped, digests, mapped, numbers, recorded
from pairmill.loader.tokenizer import Tokenizer

METADATA = "metadata.json"
TOKENS = "tokens.npy"
_MULTIPLE = 256
"""Models round the vocabulary up to a multiple of it."""


@dataclass(frozen=True)
class Metadata:
    """What a model must know of the data (shared by all epochs).

    Attributes:
        max_seq_len: inputs of the longest row that sampling let pass: the context less the last response token.
        vocab_size: token ids, rounded up to a multiple of 256.
        total_length: tokens of an epoch on average, the last response tokens included.
        tokenizer_info: what else the folder says of the tokenizer.
        epochs: how many there are; None where the folder does not say, as data_io's.
    """

    max_seq_len: int
    vocab_size: int
    total_length: int
    tokenizer_info: dict[str, Any]
    epochs: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """From ``metadata.json``.

        Raises:
            InputError: it is absent or unfinished, or a value is not what the format says.
        """
        path = folder / METADATA
        try:
            raw = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise InputError(
                "holds no sample", where=str(folder), hint="see whether the sampler has ended, and check the path"
            ) from None
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        except (ValueError, RecursionError) as error:
            raise InputError("cannot be read", where=str(path), got=str(error), hint="sample again") from error

        def whole(values: object, name: str) -> int:
            value = values.get(name) if isinstance(values, dict) else None
            # A number in quotes and an integral float pass with the reference too.
            try:
                number = float(value) if isinstance(value, int | float | str) else math.nan
            except (ValueError, OverflowError):
                number = math.nan
            if isinstance(value, bool) or not number.is_integer() or abs(number) >= 2**63:
                raise InputError("has a wrong value", where=f"{path}: {name}", got=shown(value), expected="an integer")
            if isinstance(value, str) and value.strip().isdecimal():
                return int(value)
            return value if isinstance(value, int) else int(number)

        info = raw.get("tokenizer_info", {}) if isinstance(raw, dict) else {}
        lengths = whole(raw, "max_seq_len"), whole(raw, "total_length")
        if raw.get("vocab_size") is not None:
            raise InputError(
                "has a wrong value",
                where=f"{path}: vocab_size",
                got=repr(raw["vocab_size"]),
                expected="null: HRM-Text takes the size from tokenizer_info",
            )
        size = whole(info, "vocab_size")
        return cls(
            max_seq_len=lengths[0] - 1,
            vocab_size=-(-size // _MULTIPLE) * _MULTIPLE,
            total_length=lengths[1],
            tokenizer_info={name: value for name, value in info.items() if name != "vocab_size"},
            epochs=whole(raw, "epochs") if "epochs" in raw else None,
        )

    def total_steps(self, epochs: int, batch_tokens: int) -> int:
        """HRM-Text's estimate of an optimizer's steps; padding and rows that are dropped are not in it."""
        return epochs * self.total_length // batch_tokens


class Epoch:
    """The index of an epoch, mapped.

    Args:
        folder: ``epoch_<k>``.

    Raises:
        InputError: an array is absent or no array of integers, or they have not the same length.
    """

    def __init__(self, folder: Path) -> None:
        arrays = {name: mapped(folder / f"{name}.npy") for name in INDEX}
        lengths = {name: len(array) for name, array in arrays.items()}
        kinds = {name: array.dtype for name, array in arrays.items() if array.dtype.kind == "f"}
        if len(set(lengths.values())) > 1 or kinds:
            raise InputError(
                "holds index arrays that do not belong together",
                where=str(folder),
                got=", ".join(f"{name} {array.dtype} [{len(array)}]" for name, array in arrays.items()),
                expected="integers, the same number in each",
                hint="sample again",
            )
        self.folder = folder
        self.rows = lengths["inst_len"]
        self.index = RowIndex(*(numbers(arrays[name]) for name in INDEX))


@dataclass(frozen=True)
class Survey:
    """What was found in an epoch's rows. Lengths are inputs: tokens of both texts, less one.

    Attributes:
        rows: all of them.
        long: rows longer than was asked for; the first of them.
        one_token: rows whose response is one token; the first.
        skipped: rows that options leave out.
        inputs: of all rows.
        targets: supervised tokens of all rows.
        longest: of the longest row; which one it is.
    """

    rows: int
    long: tuple[int, int]
    one_token: tuple[int, int]
    skipped: int
    inputs: int
    targets: int
    longest: tuple[int, int]


class SampledFolder:
    """A sampled folder, all of its epochs mapped and looked at, on this machine.

    What pairmill's sampler recorded of its files stands for their content; the files of another sampler are read once.

    Args:
        path: the folder, or a node's folder that holds samples and says which is current.
        name: for phases and messages; by default the path.

    Raises:
        UsageError: the path is not one.
        InputError: the folder is absent, unfinished or damaged; an epoch is missing; a row has an empty text or does
            not lie in the tokens.
        StorageError: the folder cannot be read.
    """

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        given = arguments.path(path, "path")
        self.name = given if name is None else name
        with reading(given):
            self._open(given)

    def _open(self, given: str) -> None:
        self.path = folder_of(given, "path")
        self.metadata = Metadata.read(self.path)
        epochs = self._epoch_folders()
        names = [f"{folder.name}/{name}.npy" for folder in epochs for name in INDEX]
        self.mapped = Mapped(self.path / name for name in (TOKENS, *names))
        self.tokens = mapped(self.path / TOKENS)
        if self.tokens.dtype.kind == "f":
            raise InputError(
                "holds no token ids", where=str(self.path / TOKENS), got=str(self.tokens.dtype), expected="integers"
            )
        self.epochs = [Epoch(folder) for folder in epochs]
        self.surveys = self.survey()
        self.numbers = numbers(self.tokens)
        self._files = [TOKENS, METADATA, *names]
        self._recorded = recorded(self.path, self._files)
        self.tokenizer = Tokenizer.of(self.path, manifests.read(str(self.path)))

    @cached_property
    def digest(self) -> str:
        """Hexadecimal sha256 over the names and digests of all files, whatever the folder's name and age.

        The first time, files are read that no manifest lists.
        """
        with reading(self.path):
            found = digests(self.path, self._files, self._recorded)
        return content_key("sampled", sorted(zip(self._files, found, strict=True)))

    def _epoch_folders(self) -> list[Path]:
        """All epochs: one that is missing must not be found after hours of training."""
        found = {path.name for path in self.path.glob("epoch_*") if path.name.removeprefix("epoch_").isdecimal()}
        count = self.metadata.epochs if self.metadata.epochs is not None else len(found)
        # Of more than there are the first one that is missing is among so many.
        missing = [
            name for number in range(min(max(count, 1), len(found) + 1)) if (name := f"epoch_{number}") not in found
        ]
        if missing or len(found) > count:
            raise InputError(
                "has not the epochs that it should have",
                where=str(self.path),
                got=", ".join(sorted(found)[:10]) or "none",
                expected=f"epoch_0 to epoch_{max(count, 1) - 1}",
                hint="copy the whole folder, or sample again",
            )
        return [self.path / f"epoch_{number}" for number in range(count)]

    def survey(
        self, longer_than: int | None = None, *, skip_long: bool = False, skip_one_token: bool = False
    ) -> list[Survey]:
        """Look at every row of every epoch.

        Args:
            longer_than: inputs; rows with more are long.
            skip_long: long rows are left out.
            skip_one_token: rows whose response is one token are.

        Raises:
            InputError: a row has an empty text, or does not lie in the tokens.
        """
        most = np.iinfo(np.int64).max if longer_than is None else longer_than

        def look(epoch: Epoch) -> Survey:
            found = epoch.index.survey(
                len(self.tokens), longer_than=most, skip_long=skip_long, skip_one_token=skip_one_token
            )
            for (count, first), what in (
                (found["empty"], "have an empty instruction or response"),
                (found["outside"], f"do not lie in the {len(self.tokens):,} tokens"),
            ):
                if count:
                    raise InputError(
                        f"{count:,} of {found['rows']:,} rows {what}",
                        where=str(epoch.folder),
                        got=f"row {first} first",
                        hint="the folder is damaged: sample again",
                    )
            return Survey(
                rows=found["rows"],
                long=found["long"],
                one_token=found["one_token"],
                skipped=found["skipped"],
                inputs=found["inputs"],
                targets=found["targets"],
                longest=found["longest"],
            )

        return _each(look, self.epochs)


def _each(work: Callable[[Epoch], Survey], epochs: Sequence[Epoch]) -> list[Survey]:
    with ThreadPoolExecutor(min(len(epochs), available_cores())) as pool:
        return list(pool.map(work, epochs))
