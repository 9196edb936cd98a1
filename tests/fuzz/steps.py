"""The steps of a sequence, and how they are drawn: each can be taken alone, so that any of them can be left out."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pairmill.engine.manifest import MANIFEST
from pairmill.engine.shards import RECORD
from tests.fuzz.play import Play, Step
from tests.fuzz.process import REFUSED
from tests.fuzz.scene import CARDS, CHOICES, RAW, SETTINGS, SOURCES
from tests.support.helpers import writable


@dataclass(frozen=True)
class Choose:
    """Another value of an option."""

    stages: tuple[str, ...]
    name: str
    value: str

    def apply(self, play: Play) -> Step:
        for stage in self.stages:
            play.scene.options[stage][self.name] = self.value
        return self

    def __str__(self) -> str:
        return f"{', '.join(self.stages)}: {self.name}={self.value}"


@dataclass(frozen=True)
class Say:
    """Another text of a file of settings, or of the description of a source."""

    path: str
    text: str

    def apply(self, play: Play) -> Step:
        play.scene.say(self.path, self.text)
        return self

    def __str__(self) -> str:
        return f"write {self.path}: {self.text!r}"


@dataclass(frozen=True)
class Give:
    """Other rows in a raw file."""

    path: str
    rows: int
    seed: int

    def apply(self, play: Play) -> Step:
        play.scene.make(self.path, self.rows, self.seed)
        return self

    def __str__(self) -> str:
        return f"{self.rows} other rows in {self.path} (seed {self.seed})"


@dataclass(frozen=True)
class Spoil:
    """A line in a raw file that is no record."""

    path: str
    line: str

    def apply(self, play: Play) -> Step:
        path = play.scene.given / self.path
        if path.exists():
            path.write_bytes(path.read_bytes() + self.line.encode(errors="surrogatepass"))
        return self

    def __str__(self) -> str:
        return f"append {self.line!r} to {self.path}"


@dataclass(frozen=True)
class Corrupt:
    """A bit of a raw file is another one."""

    path: str
    place: float

    def apply(self, play: Play) -> Step:
        path = play.scene.given / self.path
        if path.exists() and (data := bytearray(path.read_bytes())):
            data[int(self.place * len(data))] ^= 1 << int(self.place * 8e6) % 8
            path.write_bytes(data)
        return self

    def __str__(self) -> str:
        return f"another bit at {self.place:.2%} of {self.path}"


@dataclass(frozen=True)
class Remove:
    """A raw file goes away."""

    path: str

    def apply(self, play: Play) -> Step:
        (play.scene.given / self.path).unlink(missing_ok=True)
        return self

    def __str__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True)
class Take:
    """Other sources."""

    names: tuple[str, ...]

    def apply(self, play: Play) -> Step:
        play.scene.sources = list(self.names)
        return self

    def __str__(self) -> str:
        return f"sources: {', '.join(self.names)}"


@dataclass(frozen=True)
class Move:
    """The root, or all that is given, has another place."""

    what: str

    def apply(self, play: Play) -> Step:
        play.move(self.what)
        return self

    def __str__(self) -> str:
        return f"move the {self.what} to another folder"


@dataclass(frozen=True)
class Run:
    """The line runs to its end, and must give what a fresh root gives.

    Args:
        workers: how many one stage has.
        shared: the stage whose work is shared out first, as pods do.
        verify: read earlier results in full.
        processes: how many run at once.
        other_work: whether the others train another tokenizer beside the first one.
        killed: the share of its writes at which the last of several processes is killed; 0 = it is not.
    """

    workers: tuple[str, int] = ("", 1)
    shared: str = ""
    verify: bool = False
    processes: int = 1
    other_work: bool = False
    killed: float = 0.0

    def apply(self, play: Play) -> Step:
        options = {"verify": "true"} if self.verify else {}
        started = []
        for number in range(self.processes):
            scene = deepcopy(play.scene)
            for stage in scene.options:
                scene.options[stage]["workers"] = str(self.workers[1] if stage == self.workers[0] else 1)
            if number and self.other_work:
                scene.options["train_tokenizer"]["vocab_size"] = "310"
                scene.options["sample"]["output_path"] = str(play.root / f"arrays{number}")
            last = bool(number) and number == self.processes - 1
            die_at = play.instant(self.killed) if last and self.killed else 0
            started.append(play.start(options, scene=scene, shared=self.shared, die_at=die_at))
        codes = [process.wait() for process in started]
        if self.verify and codes[0] in REFUSED and play.is_damaged(f"arrays/{MANIFEST}"):
            # Nothing says whose folder it is, so it is not replaced. The message says to remove it.
            play.remove("arrays")
            return self.apply(play)
        exempt = play.is_any_damaged() and not self.verify
        may_refuse = exempt or play.fresh().ended[-1].code != 0
        for number, (code, process) in enumerate(zip(codes, started, strict=True)):
            if code == -signal.SIGKILL and self.killed and number:
                continue
            process.require_code(code, may_refuse=may_refuse)
            if not number or not self.other_work:
                play.require_equal(process, exempt=exempt)
        if self.verify and not codes[0]:
            play.forget_repaired()
        play.require_one_content(play.root)
        return self

    def simpler(self) -> Iterator[Step]:
        """Runs that do less."""
        for item in fields(self):
            if getattr(self, item.name) != item.default:
                changed: dict[str, Any] = {item.name: item.default}
                yield replace(self, **changed)

    def __str__(self) -> str:
        said = {
            f"{self.processes} processes at once": self.processes > 1,
            "the others with vocab_size=310": self.other_work and self.processes > 1,
            f"the last one killed at {self.killed:.1%} of its writes": self.killed and self.processes > 1,
            f"{self.workers[0]} with {self.workers[1]} workers": self.workers[0],
            f"{self.shared} in two shares first": self.shared,
            "verify=true": self.verify,
        }
        return ", ".join(["run the line", *(text for text, holds in said.items() if holds)])


@dataclass(frozen=True)
class Kill:
    """The line is killed.

    Args:
        share: of the instants of a whole line, after which it is.
        names: whether changes of names count (kill_points), in place of writes of stores.
        workers: how many one stage has.
    """

    share: float
    names: bool = False
    workers: tuple[str, int] = ("", 1)

    def apply(self, play: Play) -> Step:
        scene = deepcopy(play.scene)
        for stage in scene.options:
            scene.options[stage]["workers"] = str(self.workers[1] if stage == self.workers[0] else 1)
        instant = play.instant(self.share)
        process = play.start(
            {}, scene=scene, die_at=0 if self.names else instant, die_before=instant if self.names else 0
        )
        code = process.wait()
        if code != -signal.SIGKILL:
            process.require_code(code, may_refuse=play.is_any_damaged() or play.fresh().ended[-1].code != 0)
        return self

    def __str__(self) -> str:
        workers = f", {self.workers[0]} with {self.workers[1]} workers" if self.workers[0] else ""
        what = "changes of names" if self.names else "writes"
        return f"kill the line after {self.share:.1%} of its {what}{workers}"


KINDS: dict[str, Callable[[Path], bool]] = {
    "record": lambda path: path.name == RECORD,
    "manifest": lambda path: path.name == MANIFEST and path.parts[0] != "raw",
    "shard file": lambda path: "shards" in path.parts and path.name != RECORD,
    "finished file": lambda path: "shards" not in path.parts and path.name != MANIFEST and path.parts[0] != "raw",
    "raw file": lambda path: path.parts[0] == "raw",
    "leftover": lambda path: path.name.endswith(".partial"),
    "file": lambda path: True,
}
"""Files below a root by what they are."""


@dataclass(frozen=True)
class Damage:
    """A file below the root changes by itself.

    Args:
        kind: of the file, a key of KINDS.
        pick: which of them, a share of the sorted list.
        place: where in the file, a share of its bytes.
        how: flip (a bit), digit (another digit), cut (the end is missing), empty, gone.
        silent: whether its time stays as it was.
        path: of the file below the root, in place of kind and pick: set once the step was taken, so that it takes the
            same file in a shorter sequence.
    """

    kind: str
    pick: float
    place: float
    how: str
    silent: bool
    path: str = ""

    def apply(self, play: Play) -> Step:
        if self.path and not (play.root / self.path).exists():
            return self
        path = self.path or self.chosen(play)
        if not path:
            return self
        file = play.root / path
        before, data = file.stat(), file.read_bytes()
        damaged = self.changed(data)
        if self.how == "gone":
            play.gone.add(path)
            file.unlink()
        elif damaged != data:
            play.damaged.setdefault(before.st_ino, data)
            writable(file).write_bytes(damaged)
            file.chmod(before.st_mode & 0o7777)
            if self.silent:
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return replace(self, path=path)

    def chosen(self, play: Play) -> str:
        """The path of the file that is meant; empty if there is none of the kind."""
        found = (path.relative_to(play.root) for path in play.root.rglob("*") if path.is_file())
        chosen = sorted(path for path in found if KINDS[self.kind](path))
        return str(chosen[int(self.pick * len(chosen))]) if chosen else ""

    def changed(self, data: bytes) -> bytes:
        """The bytes after the damage; those of before where the file has nothing of the kind."""
        place = int(self.place * len(data))
        found = bytearray(data)
        if self.how == "flip" and data:
            found[place] ^= 1 << int(self.place * 8e6) % 8
        elif self.how == "digit" and (digits := [at for at, one in enumerate(data) if one in b"0123456789"]):
            place = digits[int(self.place * len(digits))]
            found[place] = 48 + (data[place] - 47) % 10
        elif self.how == "cut":
            del found[place:]
        elif self.how == "empty":
            found.clear()
        return bytes(found)

    def __str__(self) -> str:
        what = {"flip": "a bit", "digit": "a digit", "cut": "the end", "empty": "all bytes", "gone": "the file"}[
            self.how
        ]
        file = self.path or f"{self.kind} {self.pick:.4f}"
        time = ", and its time does not tell" if self.silent and self.how != "gone" else ""
        return f"damage {file}: {what}{f' at {self.place:.2%}' if self.how != 'gone' else ''}{time}"


NO_RECORDS = ("no record\n", '{"question": 3}\n', "\n", '{"question": "\\ud800", "answer": "x"}\n', "[" * 90000 + "\n")
"""Lines that are put into raw files of JSON lines."""


def draw(rng: random.Random) -> list[Step]:
    """A sequence."""
    steps: list[Step] = [_sources(rng), *(_input(rng) for _ in range(rng.choice((0, 0, 1, 3))))]
    for _ in range(rng.randint(3, 7)):
        steps += [_input(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        steps += [_kill(rng) for _ in range(rng.choice((0, 0, 1, 2)))]
        if rng.random() < 0.5:
            steps += [_damage(rng) for _ in range(rng.choice((1, 1, 3)))]
            steps += [_run(rng)] if rng.random() < 0.5 else []
            steps.append(Run(verify=True))
        else:
            steps.append(_run(rng))
    return steps


def _sources(rng: random.Random) -> Take:
    return Take(tuple(sorted(rng.sample(SOURCES, rng.choice((1, 2, 2, 3))))))


def _input(rng: random.Random) -> Step:
    kind = rng.random()
    if kind < 0.4:
        (stages, name), values = rng.choice(list(CHOICES.items()))
        return Choose(stages, name, rng.choice(values))
    if kind < 0.7:
        path, texts = rng.choice([*SETTINGS.items(), *CARDS.items()])
        return Say(path, rng.choice(texts))
    if kind < 0.75:
        return _sources(rng)
    if kind < 0.8:
        return Move(rng.choice(("root", "given")))
    path = rng.choice(list(RAW))
    if kind < 0.92:
        return Give(path, rng.choice((1, 4, 9)), rng.randint(0, 9))
    if kind < 0.95:
        return Corrupt(path, rng.random())
    if path.startswith("raw/"):  # without it fetch would ask the network for the published one
        return Give(path, 2, rng.randint(0, 9))
    return Spoil(path, rng.choice(NO_RECORDS)) if kind < 0.98 else Remove(path)


STAGES = ("clean", "curate", "train_tokenizer", "tokenize")


def _run(rng: random.Random) -> Run:
    kind = rng.random()
    if kind < 0.1:
        return Run(workers=(rng.choice(STAGES), 2))
    if kind < 0.35:
        killed = rng.choice((0.0, 0.0, rng.random()))
        shared = rng.choice(("", "", rng.choice(STAGES)))
        return Run(processes=rng.choice((2, 3)), other_work=rng.random() < 0.3, killed=killed, shared=shared)
    return Run(shared=rng.choice(STAGES)) if kind < 0.45 else Run(verify=kind < 0.6)


def _kill(rng: random.Random) -> Kill:
    workers = (rng.choice(STAGES), 2) if rng.random() < 0.05 else ("", 1)
    return Kill(rng.random(), rng.random() < 0.3, workers)


def _damage(rng: random.Random) -> Damage:
    kind = rng.choice(
        ("record", "record", "manifest", "shard file", "shard file", "finished file", "raw file", "leftover", "file")
    )
    how = rng.choice(("flip", "flip", "digit", "digit", "cut", "empty", "gone"))
    return Damage(kind, rng.random(), rng.random(), how, rng.random() < 0.5)
