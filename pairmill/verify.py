"""``pairmill verify <folder> …``: compares finished folders with their manifests, byte by byte."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pairmill import log, storage
from pairmill.digest import is_blake3, shown, split
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, STARTED
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.interface import cli


@dataclass(kw_only=True)
class VerifyConfig:
    """Read every file of finished folders and report those that differ from the manifest."""

    path: str = option(
        help="a finished folder of any stage, or a folder that contains some; several can be given, separated by spaces"
    )
    sums: Literal["", "b3sum"] = option("", help="print the digests, as b3sum --check reads them in that folder")


def verify(path: str) -> str:
    """Read every file of the finished folders at or below ``path``; returns their URIs, one a line.

    Raises:
        InputError: there is no finished folder, or files are missing or differ; the message has all of them.
    """
    uri = storage.normalise(path, "path")
    wrong: list[str] = []
    total = 0
    folders = _finished(uri)
    for folder in folders:
        try:
            manifest = manifests.read(folder)
        except InputError as error:
            wrong.append(str(error))
            total += 1
            continue
        assert manifest is not None
        damaged = manifests.find_damage(folder, manifest.files, verify=True)
        total += len(manifest.files)
        wrong += [f"{folder}/{line}" for line in damaged]
        if not damaged:
            size = sum(file.size for file in manifest.files)
            log.event(
                f"{folder}: {len(manifest.files)} files of {size:,} bytes match the manifest",
                stage=manifest.stage,
                files=len(manifest.files),
                bytes=size,
                fingerprint=manifest.fingerprint,
            )
    if wrong:
        raise InputError(
            f"{len(wrong)} of {total} files are missing or were changed",
            where=uri,
            got="".join(f"\n  {line}" for line in wrong) + "\n",
            hint="run their stage again with verify=true, which redoes what is damaged",
        )
    return "".join(f"{folder}\n" for folder in folders)


def sums_of(path: str) -> str:
    """Return the digests of all files of the finished folders at or below ``path``, for ``b3sum --check`` in it.

    Raises:
        InputError: there is no finished folder, or one has sha256 digests, which an older pairmill wrote.
    """
    uri = storage.normalise(path, "path")
    lines = []
    for folder in _finished(uri):
        manifest = manifests.read(folder)
        assert manifest is not None
        for file in manifest.files:
            if not is_blake3(file.digest):
                raise InputError(
                    "its manifest has other digests than those of b3sum",
                    where=f"{folder}/{file.path}",
                    got=shown(file.digest),
                    hint="without sums=b3sum it is verified all the same",
                )
            name = f"{folder.removeprefix(uri).lstrip('/')}/{file.path}".lstrip("/")
            escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"{'' if escaped == name else chr(92)}{split(file.digest)[1]}  {escaped}\n")
    return "".join(lines)


def _finished(uri: str) -> list[str]:
    if storage.store_for(uri).exists(storage.join(uri, MANIFEST)):
        return [uri]
    manifests.refuse_unfinished(uri)
    entries = storage.store_for(uri).list(uri)
    paths = {entry.path for entry in entries}
    result = sorted(path.removesuffix(f"/{MANIFEST}") for path in paths if path.endswith(f"/{MANIFEST}"))
    begun = (path.removesuffix(f"/{STARTED}") for path in paths if path.endswith(f"/{STARTED}"))
    for path in sorted(set(begun) - set(result)):
        log.event(f"{storage.join(uri, *path.split('/'))} is not finished and was skipped")
    if not result:
        raise InputError("contains no finished folder", where=uri, expected=f"a folder with {MANIFEST}")
    return [storage.join(uri, *path.split("/")) for path in result]


def main(arguments: Sequence[str]) -> int:
    """Verify each folder on the command line, given as such or as ``path=…``; returns the exit code."""

    def work() -> None:
        wanted = [text.removeprefix("sums=") for text in arguments if text.startswith("sums=")]
        folders = [text.removeprefix("path=") for text in arguments if not text.startswith("sums=")]
        if wanted not in ([], [""], ["b3sum"]):
            raise UsageError("not a form of sums", where="sums", got=" ".join(wanted), expected="b3sum")
        if not folders:
            raise UsageError("required option missing", where="path", expected="a folder", hint="see --help")
        failures = []
        for folder in folders:
            try:
                text = verify(folder)
                sys.stdout.write(sums_of(folder) if any(wanted) else text)
                sys.stdout.flush()
            except InputError as error:
                failures.append(str(error))
        if failures:
            raise InputError("\n".join(failures))

    return cli.program("verify", VerifyConfig, arguments, work)
