"""A sequence of steps on one root, and what must hold after each run.

A kept root gives what a fresh one gives, to the byte, or pairmill refuses. A key has one content, whichever root it is
in. No run ends with a code of its own defects, and none hangs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pairmill.engine.manifest import MANIFEST, STARTED
from pairmill.engine.shards import RECORD
from pairmill.sources.files.raw import PLACES
from tests.fuzz.child import Ended
from tests.fuzz.process import REFUSED, Process, Wrong
from tests.fuzz.scene import Scene
from tests.support.tools import read_json


class Step(Protocol):
    """One step of a sequence; its text is what a person reads."""

    def apply(self, play: Play) -> Step:
        """Take the step, or raise Wrong; returns the same step, with all that it chose."""


@dataclass(frozen=True)
class Made:
    """What a line made of its inputs: how each stage ended, and its files by their path below the root."""

    ended: list[Ended]
    files: dict[str, str]


class Play:
    """Args: base: an empty folder for all that the sequence needs."""

    def __init__(self, base: Path, rows: int = 7) -> None:
        self.base, self.root = base, base / "root0"
        self.scene = Scene(base / "given")
        self.scene.begin(rows)
        self.damaged: dict[int, bytes] = {}
        """Of damaged files that no run has made again, by inode: the bytes of before."""
        self.gone: set[str] = set()
        """The paths below the root of files that went away, and that no run has made again."""
        self._instants = self._moved = 0
        self._fresh: dict[str, Made] = {}
        self._contents: dict[str, str] = {}
        self._jobs = 0
        self.root.mkdir()

    def start(
        self,
        options: Mapping[str, str],
        *,
        root: Path | None = None,
        scene: Scene | None = None,
        shared: str = "",
        die_at: int = 0,
        die_before: int = 0,
    ) -> Process:
        """Start the line in a process.

        Args:
            options: those that all stages get.
            root: a fresh one; None: the kept one.
            scene: what it is given, where that is not the scene of this play.
            shared: the stage whose shards are worked on in two shares, before the stage itself.
            die_at: as of Job.
            die_before: the change of a name before which it is killed.
        """
        self._jobs += 1
        stages: list[tuple[str, Mapping[str, str]]] = []
        for name, given in (scene or self.scene).stages(root or self.root):
            shares = ("1/2", "2/2") if name == shared else ()
            stages += [(name, {**given, **options, "share": share}) for share in shares] + [
                (name, {**given, **options})
            ]
        files = self.base / str(self._jobs)
        # Each share is alone: none of the others comes.
        alone = {"PAIRMILL_SHARE_PATIENCE": "0"}
        return Process.start(
            files, stages, die_at=die_at, die_before=die_before, fresh=root is not None, environment=alone
        )

    def instant(self, share: float) -> int:
        """The instant at which to kill a line: this share of those of a whole line."""
        return max(1, round(share * (self._instants or 600)))

    def move(self, what: str) -> None:
        """Give the root, or all that is given, another place."""
        self._moved += 1
        target = self.base / f"{what}{self._moved}"
        if what == "root":
            self.root = self.root.rename(target)
        else:
            self.scene.move(target)

    def fresh(self) -> Made:
        """What the line makes of these inputs in a new root."""
        name = self.scene.digest()
        if name not in self._fresh:
            root = self.base / "fresh"
            process = self.start({"workers": "1"}, root=root)
            code = process.wait()
            process.require_code(code, may_refuse=True)
            self._fresh[name] = made = Made(process.ended(), files_of(root, process.ended()))
            self.require_one_content(root)
            self._instants = max(self._instants, made.ended[-1].instants)
            shutil.rmtree(root, ignore_errors=True)  # nothing is there if the first stage refused
        return self._fresh[name]

    def require_equal(self, process: Process, *, exempt: bool) -> None:
        """Raise Wrong unless a run that ended gave what a fresh root gives.

        Args:
            exempt: files that were damaged may still be: nobody was told to read them.
        """
        wanted, ended = self.fresh(), process.ended()
        for mine, other in zip(ended, wanted.ended, strict=False):
            if mine.code != other.code:
                if exempt and mine.code in REFUSED:
                    return
                seen = f"{mine.stage} ends with {mine.code}, in a fresh root with {other.code}\n{process.tail()}"
                raise Wrong("a kept root ends as a fresh one", seen)
            if relative(mine.output, self.root) != relative(other.output, self.base / "fresh"):
                raise Wrong("a kept root gives the folders of a fresh one", f"{mine.output}, {other.output}")
        files = files_of(self.root, ended)
        for path in sorted(files.keys() | wanted.files.keys()):
            if files.get(path) != wanted.files.get(path) and not (exempt and self.is_damaged(path)):
                how = "is missing" if path not in files else "is new" if path not in wanted.files else "differs"
                raise Wrong("a kept root has the bytes of a fresh one", f"{path} {how} after exit code 0")

    def is_any_damaged(self) -> bool:
        """Whether any file of the root is."""
        return bool(self.damaged or self.gone)

    def is_damaged(self, path: str) -> bool:
        """Whether a file of the root was damaged and not made again since."""
        file = self.root / path
        return file.stat().st_ino in self.damaged if file.exists() else path in self.gone

    def require_one_content(self, root: Path) -> None:
        """Raise Wrong if a key of a shard or a fingerprint has another content than it had before."""
        for place, digest in self._contents_of(root):
            before = self._contents.setdefault(place, digest)
            if before != digest:
                raise Wrong("one key has one content", f"{place} has another content than before")

    def _contents_of(self, root: Path) -> Iterator[tuple[str, str]]:
        """The finished folders and shards below a root that are not damaged, each with a digest of its content."""
        gone = [self.root / path for path in self.gone]
        for last in (MANIFEST, RECORD):
            for path in root.rglob(last):
                folder = path.parent
                files = [one for one in folder.rglob("*") if one.is_file()]
                if any(one.stat().st_ino in self.damaged for one in files) or any(
                    one.is_relative_to(folder) for one in gone
                ):
                    continue
                top = folder.relative_to(root).parts[0]
                content = _shard(path) if last == RECORD else visible(folder)
                # The time at which raw data was fetched.
                timed = {"fetch": RECORD, "raw": MANIFEST}.get(top, "")
                found = sorted(one for one in content if one[0] != timed)
                # Arrays of any plan have the same place.
                arrays = last == MANIFEST and folder.parent == root
                name = f"arrays of {read_json(path)['fingerprint']}" if arrays else str(folder.relative_to(root))
                yield name, hashlib.sha256(repr(found).encode()).hexdigest()

    def remove(self, path: str) -> None:
        """Remove a folder of the root, as a message says."""
        shutil.rmtree(self.root / path, ignore_errors=True)
        self.gone = {one for one in self.gone if not one.startswith(f"{path}/")}

    def forget_repaired(self) -> None:
        """Forget damage of files that were made again."""
        here = {path.stat().st_ino: path for path in self.root.rglob("*") if path.is_file()}
        kept = {one: data for one, data in self.damaged.items() if one in here and here[one].read_bytes() != data}
        self.damaged = kept
        self.gone = {path for path in self.gone if not (self.root / path).exists()}


def relative(output: str, root: Path) -> str:
    """An output as it is in any root."""
    return output.replace(str(root), "<root>")


def files_of(root: Path, ended: Sequence[Ended]) -> dict[str, str]:
    """The digests of what stages made, by path below the root."""
    tops = [Path(one.output) for one in ended if one.output and one.code == 0]
    if any(one.stage == "sample" and one.code == 0 for one in ended):
        tops.append(root / "arrays")
    return {str((top / path).relative_to(root)): digest for top in tops for path, digest in visible(top)}


def visible(top: Path) -> Iterator[tuple[str, str]]:
    """Path and digest of each file below a folder that is content: no leftover of a writer, no mark, no place."""
    for folder, _, names in os.walk(top):
        for name in names:
            if name not in (STARTED, PLACES) and not name.endswith(".partial"):
                path = Path(folder, name)
                yield str(path.relative_to(top)), hashlib.sha256(path.read_bytes()).hexdigest()


def _shard(record: Path) -> list[tuple[str, str]]:
    """What a record says, and its files; not in which folder of its own their writer has put them."""
    said = read_json(record)
    folder = record.parent / said.pop("folder")
    del said["sha256"]
    return [(RECORD, json.dumps(said)), *visible(folder)]
