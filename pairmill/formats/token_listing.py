"""``token_files.json``: the token files that a sample points into, where ``tokens.npy`` is not all of them.

A sample of ``layout=reference`` has it, whose files are those of the tokenized folder, and one with added tasks, whose
files are its own: the base's, and one for what was added.

One after another they are the sample's array of tokens: ``inst_start`` and ``resp_start`` count through all of them,
and a row lies in one. Each entry has ``path`` (on this machine, or in the sample's folder), ``offset`` (the byte of its
first token), ``dtype`` (as numpy writes it), ``tokens`` (how many), ``size`` (bytes of the file) and ``digest`` (of the
file; empty = unknown).
Since paths differ by machine, no plan knows the digest of this file.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pairmill.digest import digest_file, digest_files, is_blake3
from pairmill.engine.manifest import File, content_key
from pairmill.errors import InputError

NAME = "token_files.json"


class TokensInPlace(NamedTuple):
    """A file of tokens."""

    path: str
    offset: int
    dtype: str
    tokens: int
    size: int
    digest: str


def dump_listing(files: Iterable[TokensInPlace]) -> bytes:
    return json.dumps({"files": [file._asdict() for file in files]}, separators=(",", ":"), ensure_ascii=False).encode()


def read_listing(folder: Path) -> list[TokensInPlace]:
    """Return the files that a sampled folder points into; each is there, and has its size.

    Raises:
        InputError: the list cannot be read, or a file is absent or has another size.
    """
    place = folder / NAME
    try:
        files = [TokensInPlace(**item) for item in json.loads(place.read_bytes())["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("not a list of token files", where=str(place), got=repr(error), hint="sample again") from error
    files = [file._replace(path=os.path.join(folder, file.path)) for file in files]  # the sample's own are relative
    for file in files:
        size = os.stat(file.path).st_size if os.path.isfile(file.path) else -1
        if size != file.size:
            raise InputError(
                "the tokens that this sample points into are not there, or changed",
                where=file.path,
                got="nothing" if size < 0 else f"{size:,} bytes",
                expected=f"{file.size:,} bytes",
                hint="mount the tokenized folder where it was, or sample with layout=compact, which needs it no more",
            )
    return files


def refuse_changed(folder: Path) -> None:
    """Read every token file that a sampled folder points into, if it points into any.

    Raises:
        InputError: one is not what it was.
    """
    if not (folder / NAME).exists():
        return
    own = os.path.join(folder, "")  # its manifest has the digests of those
    known = [file for file in read_listing(folder) if file.digest and not file.path.startswith(own)]
    new = [file for file in known if is_blake3(file.digest)]
    digests = dict(zip([file.path for file in new], digest_files([file.path for file in new]), strict=True))
    for file in known:
        if digests.get(file.path) != file.digest and digest_file(file.path, like=file.digest) != file.digest:
            raise InputError(
                "the tokens that this sample points into changed",
                where=file.path,
                expected=file.digest,
                hint="tokenize again with verify=true, and sample again",
            )


def folder_digest(digests: Mapping[str, str], files: Iterable[TokensInPlace] | None) -> str:
    """Return what identifies the arrays of a sampled folder, whatever its name and age, and wherever ``files`` are.

    Args:
        digests: of its files, by path; of tokens only ``tokens.npy`` where that has them all.
        files: that it points into; None = none.
    """
    named: dict[str, Any] = {**digests}
    if files is not None:
        named[NAME] = [[file.digest, file.tokens, file.dtype] for file in files]
    return content_key("sampled", sorted(named.items()))


def is_epoch(file: File) -> bool:
    """Return whether a file of a sample is an index array of an epoch."""
    return file.path.startswith("epoch_")


def named(files: Iterable[File], planned: Iterable[File]) -> list[File]:
    """Return the files of a sample that its plan may name: one with added tasks does not know those of epochs."""
    epochs = any(map(is_epoch, planned))
    return [file for file in lasting(files) if epochs or not is_epoch(file)]


def lasting(files: Iterable[File]) -> list[File]:
    """Return the files of a sample whose bytes are the same on every machine."""
    return [file for file in files if file.path != NAME]
