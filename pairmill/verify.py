"""``python -m pairmill.verify <folder> …``: finished folders of any stage, byte by byte, against their manifests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pairmill import log, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, STARTED
from pairmill.engine.stage import option
from pairmill.errors import InputError, UsageError
from pairmill.interface import cli


@dataclass(kw_only=True)
class VerifyConfig:
    """Read every file of finished folders, and name those that are not what their manifest says."""

    path: str = option(
        help="a finished folder of any stage, or a folder above some; several are written one after another"
    )


def verify(path: str) -> str:
    """Read every file of a finished folder, or of all that are below ``path``; returns their URIs, one a line.

    Raises:
        InputError: there is none, or files are missing or not what the manifest says: all of them are named.
    """
    uri = storage.normalise(path, "path")
    wrong: list[str] = []
    total = 0
    folders = _finished(uri)
    for folder in folders:
        manifest = manifests.read(folder)
        assert manifest is not None
        damaged = manifests.find_damage(folder, manifest.files, verify=True)
        total += len(manifest.files)
        wrong += [f"{folder}/{line}" for line in damaged]
        if not damaged:
            size = sum(file.size for file in manifest.files)
            log.event(
                f"{folder}: {len(manifest.files)} files of {size:,} bytes are what the manifest says",
                stage=manifest.stage,
                files=len(manifest.files),
                bytes=size,
                fingerprint=manifest.fingerprint,
            )
    if wrong:
        raise InputError(
            f"{len(wrong)} of {total} files are not what the manifest says",
            where=uri,
            got="".join(f"\n  {line}" for line in wrong) + "\n",
            hint="run the stage that made them again with verify=true, which makes anew what is damaged",
        )
    return "".join(f"{folder}\n" for folder in folders)


def _finished(uri: str) -> list[str]:
    if manifests.read(uri) is not None:
        return [uri]
    entries = storage.store_for(uri).list(uri)
    paths = {entry.path for entry in entries}
    found = sorted(path.removesuffix(f"/{MANIFEST}") for path in paths if path.endswith(f"/{MANIFEST}"))
    begun = (path.removesuffix(f"/{STARTED}") for path in paths if path.endswith(f"/{STARTED}"))
    for path in sorted(set(begun) - set(found)):
        log.event(f"{storage.join(uri, *path.split('/'))} is not finished, and not looked at")
    if not found:
        raise InputError("no finished folder there", where=uri, expected=f"a folder with {MANIFEST}")
    return [storage.join(uri, *path.split("/")) for path in found]


def main(arguments: Sequence[str]) -> int:
    """Verify each folder of the command line, plain or as ``path=…``; returns the exit code."""

    def work() -> None:
        folders = [text.removeprefix("path=") for text in arguments]
        if not folders:
            raise UsageError("required option missing", where="path", expected="a folder", hint="see --help")
        failures = []
        for folder in folders:
            try:
                sys.stdout.write(verify(folder))
                sys.stdout.flush()
            except InputError as error:
                failures.append(str(error))
        if failures:
            raise InputError("\n".join(failures))

    return cli.program("pairmill.verify", "verify", VerifyConfig, arguments, work)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
