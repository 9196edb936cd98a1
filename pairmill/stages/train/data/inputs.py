"""What the options name, opened and checked: a plan of the loader, what is held out, the tokenizer. Without torch."""

import dataclasses
import glob
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from pairmill import storage
from pairmill.encoder import Encoder
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import content_key
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError, UsageError
from pairmill.formats import drawn_rows, sample_folder, tokenizer_file, window_files
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.loader import (
    MixturePlan,
    Phase,
    RowPlan,
    StreamPlan,
    TextStream,
    TrainingPlan,
    Windows,
    eager,
    plan_arrays,
)
from pairmill.loader.folder import SampledFolder
from pairmill.loader.held_out import HeldOut, HeldOutRows, HeldOutWindows, choose_rows
from pairmill.loader.sources import RowSources, merged
from pairmill.loader.text import open_dataset
from pairmill.loader.tokenizer import METADATA, Tokenizer, check_same_tokenizer
from pairmill.training.data_settings import DataSettings
from pairmill.training.settings import TrainSettings

Kind = Literal["rows", "windows", "stream"]

_OF_WINDOWS: Final = ("weights", "temperature", "pattern", "dtype", "eos_id", "documents", "held_out_share")
_OF_ROWS: Final = ("balance", "one_token_rows")
_MULTIPLE = 256
"""Models round the vocabulary up to a multiple of it, as the loader does."""


class DataOptions(Protocol):
    """The options of the command that are read here (pairmill/stages/train/config.py)."""

    root: str
    sampled: list[str]
    samples_path: str
    windows: list[str]
    hub: str
    tokenizer: str
    held_out: str


@dataclass(frozen=True)
class Inputs:
    """The data of a run, opened and checked; no token is read yet, but of a data set of the Hub that is not streamed.

    Attributes:
        kind: of the plan: rows of sampled folders, windows, or a stream of texts.
        plan: what to train on.
        held_out: what to evaluate on; None = nothing.
        digest: hexadecimal sha256 of both and of the tokenizer: another one is another run.
        vocab_size: token ids, rounded up to a multiple of 256.
        positions: of the longest row or window.
        longest: inputs of the longest row to train on; of windows their length.
        tokenizer: bytes of tokenizer.json; None if the data do not bring it and no option names it.
        tokenizer_digest: first 16 digits of the sha256 of the data's tokenizer.json; empty = nothing says it.
        sources: names of what loss is said of, in the order of the numbers in ``Microbatch.sources``.
        rows: of a plan of rows: where the source of a row is found.
    """

    kind: Kind
    plan: TrainingPlan = field(repr=False)
    held_out: HeldOut | None = field(repr=False)
    digest: str
    vocab_size: int
    positions: int
    longest: int
    tokenizer: bytes | None = field(repr=False)
    sources: tuple[str, ...]
    rows: RowSources | None = field(default=None, repr=False)
    tokenizer_digest: str = ""


def open_inputs(options: DataOptions, settings: TrainSettings) -> Inputs:
    """Open what the options name.

    Raises:
        UsageError: not exactly one kind of data is named, or a setting does not suit it.
        InputError: something is absent, unfinished or damaged, or tokenizers differ.
        StorageError: something cannot be read.
    """
    kinds = {"sampled": options.sampled, "windows": options.windows, "hub": options.hub}
    given = [name for name, value in kinds.items() if value]
    if len(given) != 1:
        raise UsageError(
            "not exactly one kind of data",
            where="sampled, windows, hub",
            got=" and ".join(f"{name}=" for name in given) or "none",
            expected="one of sampled=, windows= and hub=",
            hint="the loader does not mix rows and windows in one plan" if given else "sampled=<a sampled folder>",
        )
    _refuse_unread(settings.data, given[0])
    if given[0] == "sampled":
        return _rows(plan_arrays.on_this_machine(options), settings)
    return _windows(options, settings) if given[0] == "windows" else _hub(options, settings)


def _refuse_unread(data: DataSettings, kind: str) -> None:
    """Refuse a setting that nothing reads: it would be found after the training."""
    default = DataSettings()
    unread = _OF_WINDOWS if kind == "sampled" else _OF_ROWS
    for name in (*unread, *(() if kind == "hub" else ("hub",))):
        if getattr(data, name) != getattr(default, name):
            expected = f"nothing: {kind}= does not read it"
            raise UsageError("does not belong to these data", where=f"data.{name}", got=f"{kind}=", expected=expected)


def _named(items: Sequence[str], option: str) -> dict[str, str]:
    """Return paths by name; a path without a name has the name "" if it is the only one, else that of the folder."""
    result: dict[str, str] = {}
    for item in items:
        match = re.fullmatch(r"([\w. -]+)=(.+)", item)
        name, path = (match[1], match[2]) if match else ("" if len(items) == 1 else _title(item), item)
        if name in result:
            raise UsageError("names must be distinct", where=option, got=name, hint=f"write {option}=name=path,…")
        result[name] = path
    return result


def _title(path: str) -> str:
    return Path(path).expanduser().resolve().name or path


def _phases(data: DataSettings) -> list[Phase]:
    """Return the phases as the loader takes them."""
    return [Phase(**item.arguments()) for item in data.phases]


# Rows


def _rows(options: DataOptions, settings: TrainSettings) -> Inputs:
    data, batch = settings.data, settings.batch
    given = _named(options.sampled, "sampled")
    # The name is part of the plan's digest; of a single folder it is what the loader calls it.
    folders = {name or "data": path for name, path in given.items()}
    only = next(iter(folders)) if len(folders) == 1 else ""
    phases = [dataclasses.replace(phase, source=phase.source or only) for phase in _phases(data)]
    plan = RowPlan(
        folders,
        phases=phases or None,
        packing="ranks" if settings.quirk("packed_by_process") else "whole",
        balance=data.balance,
        tail=batch.tail,
        long_rows=batch.long_rows,
        one_token_rows=data.one_token_rows,
        target_only=batch.target_only,
    )
    rows = RowSources(plan.folders, [name or _title(path) for name, path in given.items()])
    held = None
    if options.held_out:
        if not _is_sampled(options.held_out):
            raise _other_kind(options.held_out, "a held-out sampled folder, as sampled= is one")
        folder = SampledFolder(options.held_out, name="held_out")
        check_same_tokenizer(
            [(f"sampled={plan.folders[0].path}", plan.folders[0].tokenizer), _place("held_out", folder)], "held_out"
        )
        _refuse_same_arrays(plan, folder)
        held = HeldOutRows(folder, RowSources([folder], [_title(options.held_out)]), target_only=batch.target_only)
    vocab_size = max(folder.metadata.vocab_size for folder in plan.folders)
    tokenizer = _tokenizer(
        options, plan.folders[0].tokenizer, _of_project(options.root, plan.folders[0].path), vocab_size
    )
    longest = [max(survey.longest[0] for survey in folder.surveys) for folder in plan.folders]
    lengths = [folder.metadata.max_seq_len for folder in plan.folders]
    return Inputs(
        kind="rows",
        plan=plan,
        held_out=held,
        digest=_digest(plan, held, tokenizer),
        vocab_size=vocab_size,
        positions=max(*longest, *lengths, held.longest if held else 0),
        longest=max(longest),
        tokenizer=tokenizer,
        sources=rows.names,
        rows=rows,
        tokenizer_digest=_known(plan.folders[0].tokenizer, tokenizer),
    )


def _is_sampled(path: str) -> bool:
    return (sample_folder.folder_of(path, "held_out") / METADATA).exists()


def _place(option: str, folder: SampledFolder) -> tuple[str, Tokenizer | None]:
    return f"{option}={folder.path}", folder.tokenizer


def refuse_removed_rows(options: DataOptions) -> None:
    """Raise InputError if a plan was drawn before the policy in force took records of its sources out."""
    for place in _named(options.sampled, "sampled").values():
        drawn_rows.refuse_removed_rows(place, "sampled")


def refuse_training_rows(options: DataOptions) -> None:
    """Raise InputError if rows to evaluate on are rows to train on, before arrays are made of either."""
    if options.sampled and options.held_out:
        places = _named(options.sampled, "sampled").values()
        training = [DrawnRows.of_sample(place, "sampled", [options.root]) for place in places]
        held_out = DrawnRows.of_sample(options.held_out, "held_out", [options.root])
        drawn_rows.refuse_training_rows(held_out, training, f"held_out={options.held_out}")


def _refuse_same_arrays(plan: RowPlan, held: SampledFolder) -> None:
    for folder in plan.folders:
        if folder.digest == held.digest:
            raise InputError(
                "the rows to evaluate on are those to train on",
                where="held_out",
                got=str(held.path),
                expected="rows that clean holdout= set apart, sampled with held_out=true",
            )


def _other_kind(given: str, expected: str) -> UsageError:
    return UsageError("another kind of data than that to train on", where="held_out", got=given, expected=expected)


# Windows


def _windows(options: DataOptions, settings: TrainSettings) -> Inputs:
    given = _named(options.windows, "windows")
    sources = [item for name, path in given.items() for item in _sources(name, path, settings.data)]
    names = [item.name for item in sources]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError("two folders have a source of this name", where="windows", got=twice, hint="write name=path")
    apart: list[Windows] = []
    if options.held_out:
        if _is_sampled(options.held_out):
            raise _other_kind(options.held_out, "a folder of flat token files, as windows= is one")
        apart = _sources("", options.held_out, settings.data)
        check_same_tokenizer([(f"{item.name}", item.tokenizer) for item in (sources[0], *apart)], "held_out")
        if {item.digest for item in sources} & {item.digest for item in apart}:
            expected = "other files, such as holdout/windows of the tokenized folder"
            raise UsageError(
                "the windows to evaluate on are those to train on",
                where="held_out",
                got=options.held_out,
                expected=expected,
            )
    digest = sources[0].tokenizer
    place = storage.parent_of(storage.normalise(next(iter(given.values())), "windows"))
    tokenizer = _tokenizer(options, digest, storage.join(place, tokenizer_file.NAME))
    return _of_windows(sources, apart, tokenizer, digest, settings)


def _sources(name: str, path: str, data: DataSettings) -> list[Windows]:
    """Open a folder's windows: one source, or of the tasks of a tokenized folder one for each set of them."""
    folder = Path(path).expanduser()

    def windows(name: str, pattern: str | list[str]) -> Windows:
        eos: Any = "recorded" if data.eos_id < 0 else data.eos_id
        return Windows.of_files(
            folder,
            seq_len=data.seq_len,
            pattern=pattern,
            dtype=data.dtype or None,
            eos_id=eos if data.documents else None,
            name=name,
        )

    if name or data.pattern or not (folder / window_files.INFO).is_file():
        return [windows(name or _title(path), data.pattern or "*.npy")]
    sets: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.npy")):
        sets.setdefault(source_of(file.name.removesuffix(".npy")), []).append(file.name)
    together = merged({name: sum((folder / file).stat().st_size for file in files) for name, files in sets.items()})
    files: dict[str, list[str]] = {}
    for source, members in sets.items():
        files.setdefault(together[source], []).extend(map(glob.escape, members))
    return [windows(source, files[source]) for source in sorted(files)] or [windows(_title(path), "*.npy")]


def _of_windows(
    sources: list[Windows],
    apart: list[Windows],
    tokenizer: bytes | None,
    known: Tokenizer | None,
    settings: TrainSettings,
) -> Inputs:
    data = settings.data
    if data.held_out_share:
        if apart:
            raise UsageError("held out twice", where="data.held_out_share", got="held_out= too", expected="one of them")
        pairs = [_split(item, data.held_out_share) for item in sources]
        sources, apart = [kept for kept, _ in pairs], [held for _, held in pairs]
    plan = MixturePlan(
        sources,
        weights=data.weights or None,
        temperature=data.temperature,
        phases=_phases(data) or None,
        seed=settings.training.seed,
    )
    return _of_plan("windows", plan, apart, tokenizer, known, settings)


def _of_plan(
    kind: Kind,
    plan: MixturePlan | StreamPlan,
    apart: Sequence[Windows],
    tokenizer: bytes | None,
    known: Tokenizer | None,
    settings: TrainSettings,
) -> Inputs:
    """Make the inputs of a plan of windows, of which ``apart`` are evaluated on; ``known`` is the data's tokenizer."""
    length = settings.data.seq_len
    held = HeldOutWindows(apart, across=settings.quirk("evaluation_across_documents")) if apart else None
    return Inputs(
        kind=kind,
        plan=plan,
        held_out=held,
        digest=_digest(plan, held, tokenizer),
        vocab_size=_vocab_size(settings.data, known, tokenizer),
        positions=length,
        longest=length,
        tokenizer=tokenizer,
        sources=plan.names,
        tokenizer_digest=_known(known, tokenizer),
    )


def _split(windows: Windows, share: float) -> tuple[Windows, Windows]:
    """Split windows into those to train on and those set apart: the same ones for any seed of the training."""
    order = choose_rows(len(windows), len(windows))
    count = min(max(1, round(share * len(windows))), len(windows) - 1)
    if not count:
        got = f"{windows.name}: {len(windows)} window"
        raise InputError("no window is left to train on", where="data.held_out_share", got=got, expected="two or more")
    return windows.only(np.sort(order[count:])), windows.only(np.sort(order[:count]))


# A data set of the Hub


def _hub(options: DataOptions, settings: TrainSettings) -> Inputs:
    data, hub = settings.data, settings.data.hub
    if options.held_out:
        raise _other_kind(options.held_out, "data.hub.held_out_split, or data.held_out_share")
    if not options.tokenizer:
        raise UsageError("required with hub=", where="tokenizer", got="none", expected="a tokenizer.json")
    tokenizer = _tokenizer(options, None, "")
    assert tokenizer is not None
    encoder = Encoder.from_json(tokenizer.decode())
    eos = encoder.token_to_id(hub.eos) if hub.eos else None
    if eos is None:
        expected = "the token of the tokenizer that ends a document"
        raise UsageError("no such token", where="data.hub.eos", got=repr(hub.eos), expected=expected)
    name = options.hub + (f"@{hub.revision}" if hub.revision else "")

    def rows(split: str, *, streaming: bool = False) -> Any:
        where, revision = hub.config or None, hub.revision or None
        return open_dataset(options.hub, where, split, hub.text_field, streaming=streaming, revision=revision)

    def windows(split: str, name: str) -> Windows:
        shape: dict[str, Any] = {"seq_len": data.seq_len, "packed": data.documents, "text_field": hub.text_field}
        return eager(rows(split), encoder, eos_id=eos, name=name, **shape)

    apart = [windows(hub.held_out_split, f"{name} {hub.held_out_split}")] if hub.held_out_split else []
    if not hub.streaming:
        return _of_windows([windows(hub.split, name)], apart, tokenizer, None, settings)
    if data.held_out_share:
        expected = "data.hub.held_out_split"
        raise UsageError("a stream has no share", where="data.held_out_share", got="streaming", expected=expected)
    stream = TextStream(
        rows(hub.split, streaming=True),
        encoder,
        eos_id=eos,
        seq_len=data.seq_len,
        seed=settings.training.seed,
        buffer=hub.buffer,
        text_field=hub.text_field,
    )
    phases = _phases(data) or None
    plan = StreamPlan(stream, name=name, packed=data.documents, phases=phases)
    return _of_plan("stream", plan, apart, tokenizer, None, settings)


# The tokenizer


def _digest(plan: TrainingPlan, held: HeldOut | None, tokenizer: bytes | None) -> str:
    digest = hashlib.sha256(tokenizer).hexdigest() if tokenizer is not None else ""
    return content_key("train", plan.digest, held.digest if held else "", digest)


def _tokenizer(options: DataOptions, known: Tokenizer | None, place: str, vocab_size: int = 0) -> bytes | None:
    """Read the tokenizer.json that an option names, or that is in this place; compare it with that of the data."""
    if options.tokenizer:
        uri = tokenizer_file.locate(options.tokenizer, storage.normalise(options.root, "root") if options.root else "")
    elif place and storage.store_for(place).exists(place):
        uri = place
    else:
        return None
    result = tokenizer_file.read(uri)
    digest, ids = hashlib.sha256(result).hexdigest()[:16], tokenizer_file.ids(result, uri)
    if known is not None and known.digest and known.digest != digest:
        raise InputError(
            "not the tokenizer of the data, so one id means two texts",
            where=f"tokenizer={uri}",
            got=f"sha256 {digest}",
            expected=f"sha256 {known.digest}",
            hint="give the tokenizer.json of the tokenized folder, or leave the option out",
        )
    if vocab_size and ids > vocab_size:
        raise InputError(
            "has more ids than the data say of their tokenizer",
            where=f"tokenizer={uri}",
            got=f"{ids:,} ids",
            expected=f"at most {vocab_size:,}",
            hint="give the tokenizer.json of the tokenized folder",
        )
    return result


def _of_project(root: str, sampled: Path) -> str:
    """Return where the tokenizer.json of a sample's tokenized folder should be, in this project."""
    manifest = manifests.read(str(sampled)) if root else None
    refs = [ref.fingerprint for ref in manifest.inputs if ref.role == "tokenized"] if manifest else []
    return storage.join(storage.normalise(root, "root"), "tokenize", refs[0], tokenizer_file.NAME) if refs else ""


def _known(known: Tokenizer | None, tokenizer: bytes | None) -> str:
    """Return the digest of the data's tokenizer.json, as the data or the file itself say it."""
    if tokenizer is not None:
        return hashlib.sha256(tokenizer).hexdigest()[:16]
    return known.digest if known is not None else ""


def _vocab_size(data: DataSettings, known: Tokenizer | None, tokenizer: bytes | None) -> int:
    stated = known.info.get("vocab_size") if known is not None else None
    size = data.vocab_size or (stated if isinstance(stated, int) else 0)
    size = size or (tokenizer_file.ids(tokenizer, "tokenizer") if tokenizer is not None else 0)
    if not size:
        raise UsageError(
            "the data do not say how many token ids there are",
            where="data.vocab_size",
            got="0",
            expected="the number of ids, or tokenizer=",
        )
    return -(-size // _MULTIPLE) * _MULTIPLE
