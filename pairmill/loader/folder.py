"""A sampled folder as a trainer reads it: ``tokens.npy``, four index arrays an epoch, ``metadata.json``."""

import json
import math
import operator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmill._native import Numbers, RowIndex, RowRun, TokenFiles, fill_prefixlm
from pairmill.cpu import available_cores
from pairmill.digest import SHA256
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, from_os_error
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.sample_plan import ancestors
from pairmill.formats.token_listing import NAME, TokensInPlace, folder_digest, read_listing
from pairmill.formats.tokens import INDEX
from pairmill.loader import arguments
from pairmill.loader.arguments import MAX, os_errors, shown
from pairmill.loader.arrays import MappedFiles, map_array, numbers
from pairmill.loader.tokenizer import METADATA, Tokenizer

TOKENS = "tokens.npy"
_MULTIPLE = 256
"""Models round the vocabulary up to a multiple of it."""


@dataclass(frozen=True)
class Metadata:
    """What a model must know about the data (all epochs share it).

    Attributes:
        max_seq_len: inputs of the longest row that sampling let pass: the context less the last response token.
        vocab_size: token ids, rounded up to a multiple of 256.
        total_length: tokens of an epoch on average, the last response tokens included.
        tokenizer_info: what else the folder says about the tokenizer.
        epochs: how many there are; None if the folder does not say, as data_io's.
        phases: of the mixture that the folder was sampled with: name and first epoch of each; empty without one.
    """

    max_seq_len: int
    vocab_size: int
    total_length: int
    tokenizer_info: dict[str, Any]
    epochs: int | None = None
    phases: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read ``metadata.json``.

        Raises:
            InputError: it is absent or incomplete, or a value is not what the format says.
        """
        path = folder / METADATA
        try:
            raw = json.loads(path.read_bytes())
        except FileNotFoundError:
            hint = "check that the sampler has finished, and the path"
            raise InputError("not a sampled folder", where=str(folder), got=f"no {METADATA}", hint=hint) from None
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        except (ValueError, RecursionError) as error:
            raise InputError("not valid JSON", where=str(path), got=str(error), hint="sample again") from error

        def integer(values: object, name: str) -> int:
            value = values.get(name) if isinstance(values, dict) else None
            # The reference also takes a number in quotes and an integral float.
            try:
                number = float(value) if isinstance(value, int | float | str) else math.nan
            except (ValueError, OverflowError):
                number = math.nan
            if isinstance(value, bool) or not number.is_integer() or abs(number) >= 2**63:
                raise InputError("wrong value", where=f"{path}: {name}", got=shown(value), expected="an integer")
            # Integers not by way of a float, which is exact to 2**53 only.
            exact = isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())
            return int(value if exact else number)  # type: ignore[arg-type]

        info = raw.get("tokenizer_info", {}) if isinstance(raw, dict) else {}
        lengths = integer(raw, "max_seq_len"), integer(raw, "total_length")
        if raw.get("vocab_size") is not None:
            expected = "null: HRM-Text takes the size from tokenizer_info"
            raise InputError("wrong value", where=f"{path}: vocab_size", got=repr(raw["vocab_size"]), expected=expected)
        epochs = integer(raw, "epochs") if "epochs" in raw else None
        return cls(
            max_seq_len=lengths[0] - 1,
            vocab_size=-(-integer(info, "vocab_size") // _MULTIPLE) * _MULTIPLE,
            total_length=lengths[1],
            tokenizer_info={name: value for name, value in info.items() if name != "vocab_size"},
            epochs=epochs,
            # Only a folder that says its epochs is pairmill's.
            phases=_phases(raw["phases"], epochs, path) if epochs is not None and "phases" in raw else (),
        )

    def total_steps(self, epochs: int, batch_tokens: int) -> int:
        """HRM-Text's estimate of an optimizer's steps; it counts neither padding nor dropped rows."""
        return epochs * self.total_length // batch_tokens


def _phases(raw: Any, epochs: int, path: Path) -> tuple[tuple[str, int], ...]:
    try:
        result = [(phase["name"], *phase["epochs"]) for phase in raw]
        names, firsts, ends = (list(column) for column in zip(*result, strict=True))
        right = firsts == [0, *ends[:-1]] and ends[-1] == epochs and all(map(operator.lt, firsts, ends))
        right = right and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        right = right and all(type(end) is int for end in ends)
    except (TypeError, KeyError, ValueError, AttributeError):
        right = False
    if not right:
        raise InputError(
            "wrong value",
            where=f"{path}: phases",
            got=shown(raw),
            expected=f'[{{"name": …, "epochs": [first, end]}}, …] from 0 to {epochs}, each beginning where one ends',
            hint="sample again",
        )
    return tuple(zip(names, firsts, strict=True))


class Epoch:
    """The index of an epoch, mapped.

    Args:
        folder: ``epoch_<k>``.

    Raises:
        InputError: an array is absent or not of integers, or the arrays differ in length.
    """

    def __init__(self, folder: Path) -> None:
        arrays = {name: map_array(folder / f"{name}.npy") for name in INDEX}
        if len({len(array) for array in arrays.values()}) > 1 or "f" in {array.dtype.kind for array in arrays.values()}:
            raise InputError(
                "index arrays do not belong together",
                where=str(folder),
                got=", ".join(f"{name} {array.dtype} [{len(array)}]" for name, array in arrays.items()),
                expected="integers, all of one length",
                hint="sample again",
            )
        self.folder = folder
        self.rows = len(arrays["inst_len"])
        self.index = RowIndex(*(numbers(arrays[name]) for name in INDEX))


@dataclass(frozen=True)
class Survey:
    """What was found in an epoch's rows. Lengths are inputs: tokens of both texts, less one.

    Attributes:
        rows: all of them.
        long: rows that need more slots than were asked for; the first of them.
        one_token: rows with a response of one token; the first.
        skipped: rows that options leave out.
        inputs: of all rows.
        targets: supervised tokens of all rows.
        longest: of the longest row; its number.
    """

    rows: int
    long: tuple[int, int]
    one_token: tuple[int, int]
    skipped: int
    inputs: int
    targets: int
    longest: tuple[int, int]


def _stored(files: Sequence[TokensInPlace]) -> TokenFiles:
    """Return tokens that are read where they lie."""
    given = []
    for file in files:
        dtype = np.dtype(file.dtype)
        if dtype.newbyteorder("<") != dtype or dtype.kind not in "ui":
            hint = "sample with layout=compact"
            raise InputError("tokens of this type are not read in place", where=file.path, got=file.dtype, hint=hint)
        given.append((file.path, file.offset, f"{dtype.kind}{dtype.itemsize}", file.tokens))
    return TokenFiles(given)


class SampledFolder:
    """A sampled folder on this machine, all of its epochs mapped and checked.

    Files that pairmill's sampler recorded in a manifest are not read to digest them; those of another sampler are read
    once.

    Args:
        path: the folder, or a node's folder that holds samples and says which is current.
        name: for phases and messages; by default the path.

    Attributes:
        sample: fingerprint of what pairmill sampled; empty for a folder of another sampler.
        ancestors: the plans that it goes on with, the oldest first.
        after: what was read of the plan that it is read after (:class:`pairmill.formats.results.sample.SampleResult`).

    Raises:
        UsageError: not a path.
        InputError: the folder is absent, unfinished or damaged; an epoch is missing; a row has an empty text or points
            outside the tokens.
        StorageError: the folder cannot be read.
    """

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        given = arguments.path(path, "path")
        self.name = given if name is None else name
        with os_errors(given):
            self._open(given)

    def _open(self, given: str) -> None:
        self.path = folder_of(given, "path")
        self.metadata = Metadata.read(self.path)
        epochs = self._epoch_folders()
        manifest = manifests.read(str(self.path))
        self.sample = manifest.fingerprint if manifest else ""
        self.ancestors = ancestors(manifest) if manifest else []
        result = SampleResult.find(manifest) if manifest else None
        self.after = result.after if result is not None else {}
        in_place = read_listing(self.path) if (self.path / NAME).exists() else None
        names = [f"{folder.name}/{name}.npy" for folder in epochs for name in INDEX]
        names = [TOKENS, *names] if in_place is None else names
        others = [METADATA] if in_place is None else [METADATA, NAME]
        self.files = MappedFiles(self.path, names, manifest.files if manifest else (), others=others)
        self._in_place = in_place
        self._tokens: Numbers | TokenFiles
        if in_place is None:
            self.tokens = map_array(self.path / TOKENS)
            if self.tokens.dtype.kind == "f":
                got = f"dtype {self.tokens.dtype}"
                raise InputError("not token ids", where=str(self.path / TOKENS), got=got, expected="integers")
            self._tokens, self.token_count = numbers(self.tokens), len(self.tokens)
        else:
            self._tokens, self.token_count = _stored(in_place), sum(file.tokens for file in in_place)
        self.epochs = [Epoch(folder) for folder in epochs]
        self.surveys = self.survey()
        self.tokenizer = Tokenizer.from_folder(self.path, manifest)

    def fill(
        self, window: NDArray[np.int64], places: NDArray[np.uint32], target_only: bool, out: NDArray[np.int32]
    ) -> tuple[int, int, int, int, int]:
        """Write rows of a window into slots (:func:`pairmill._native.fill_prefixlm`).

        Raises:
            PairmillError: tokens that are read where they lie cannot be read any more.
        """
        with os_errors(self.path):
            return fill_prefixlm(self._tokens, window, places, target_only, out)

    def fill_run(
        self, run: RowRun, first: int, source: tuple[int, int], target_only: bool, outs: Sequence[NDArray[np.int32]]
    ) -> list[tuple[tuple[int, int, int, int, int], NDArray[np.int64]]]:
        """Write batches of a run into slots (:meth:`pairmill._native.RowRun.fill`). Raises as above."""
        with os_errors(self.path):
            return run.fill(self._tokens, first, source, target_only, outs)

    @cached_property
    def digest(self) -> str:
        """Hexadecimal sha256 over the names and digests of all files, not over the folder's own name and age."""
        with os_errors(self.path):
            # Of files that no manifest lists, as the runs have it that are resumed.
            return folder_digest(self.files.digests(SHA256), self._in_place)

    def _epoch_folders(self) -> list[Path]:
        """Return all epochs: a missing one must be found now, not after hours of training."""
        result = {path.name for path in self.path.glob("epoch_*") if path.name.removeprefix("epoch_").isdecimal()}
        count = len(result) if self.metadata.epochs is None else self.metadata.epochs
        # metadata.json may claim any number; if too many, one of the first len(found) + 1 is missing.
        expected = {f"epoch_{number}" for number in range(min(max(count, 1), len(result) + 1))}
        if expected - result or len(result) > count:
            raise InputError(
                "wrong set of epochs",
                where=str(self.path),
                got=", ".join(sorted(result)[:10]) or "none",
                expected=f"epoch_0 to epoch_{max(count, 1) - 1}",
                hint="copy the whole folder, or sample again",
            )
        return [self.path / f"epoch_{number}" for number in range(count)]

    def survey(self, longer_than: int = MAX, *, skip_long: bool = False, skip_one_token: bool = False) -> list[Survey]:
        """Look at every row of every epoch (:meth:`pairmill._native.RowIndex.survey`).

        Raises:
            InputError: a row has an empty text, or points outside the tokens.
        """

        def look(epoch: Epoch) -> Survey:
            result: dict[str, Any] = {
                **epoch.index.survey(
                    self.token_count, longer_than=longer_than, skip_long=skip_long, skip_one_token=skip_one_token
                )
            }
            for (count, first), what in (
                (result.pop("empty"), "have an empty instruction or response"),
                (result.pop("outside"), f"point outside the {self.token_count:,} tokens"),
            ):
                if count:
                    raise InputError(
                        f"{count:,} of {result['rows']:,} rows {what}",
                        where=str(epoch.folder),
                        got=f"row {first} first",
                        hint="the folder is damaged: sample again",
                    )
            return Survey(**result)

        with ThreadPoolExecutor(min(len(self.epochs), available_cores())) as pool:
            return list(pool.map(look, self.epochs))
