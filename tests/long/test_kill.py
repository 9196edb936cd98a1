"""kill -9 at any instant: nothing unfinished is taken for a result, and the same command ends with the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import tools

KILLS, MOST_KILLS = 20, 60
NEEDED_IN_WINDOW = 5
"""Kills that must find something unfinished: after ``KILLS`` it is gone on until there are so many."""
SIZE = 4000
WORKERS = (1, 2)

# How far a run has got, by what it has left behind.
NOTHING, FILES, RECORDS, STARTED, FINISHED = range(5)
PHASES = ("nothing", "a file", "a record", "finishing", "finished")


@dataclass(frozen=True)
class Case:
    """A stage with its input, and who reads its result."""

    name: str
    options: dict[str, object]
    readers: tuple[Callable[[Path, Path], tools.Done], ...]
    shards: int = 6

    def command(self, root: Path, workers: int) -> list[str]:
        return tools.command(self.name, **self.options, root=root, workers=workers)

    def results(self, root: Path) -> dict[str, str]:
        """Digests of the files of the one finished folder below the root."""
        home = root / tools.HOMES[self.name]
        found = [path for path in home.iterdir() if (path / tools.MANIFEST).exists()]
        assert len(found) == 1
        return tools.digests(found[0])

    def phase(self, root: Path, before: int) -> int:
        """How far the run has got; ``before`` shard records stood there when it began."""
        home = root / tools.HOMES[self.name]
        if not home.is_dir():
            return NOTHING
        folders = [path for path in home.iterdir() if path.name != "shards"]
        if any((path / tools.MANIFEST).exists() for path in folders):
            return FINISHED
        if any((path / tools.STARTED).exists() for path in folders):
            return STARTED
        if len(tools.records(root, self.name)) > before:
            return RECORDS
        return FILES if any(path.is_file() for path in home.rglob("*")) else NOTHING


@dataclass(frozen=True)
class Timeline:
    """Seconds from the start of an undisturbed run until each phase was seen to begin, and to its end."""

    times: dict[int, float]
    end: float

    def left(self, phase: int) -> float:
        """Seconds from the beginning of a phase until the manifest is there."""
        last = self.times.get(FINISHED, self.end)
        return last - self.times.get(phase, last)

    def __str__(self) -> str:
        phases = (f"{PHASES[phase]} {self.times[phase]:.3f}" for phase in sorted(self.times))
        return ", ".join([*phases, f"end {self.end:.3f}"])


@dataclass
class Pace:
    """How long runs take now, in terms of their usual time: the machine may have been slow when that was measured."""

    factor: float = 1.0

    def note(self, got: int) -> None:
        """Learn from what a kill found: who comes too late comes earlier the next time."""
        self.factor = self.factor * 0.75 if got == FINISHED else min(self.factor * 1.15, 1.0)


def goes_on(hits: Counter[int], landed: int) -> bool:
    return hits.total() < KILLS or (landed < NEEDED_IN_WINDOW and hits.total() < MOST_KILLS)


def start(arguments: list[str], mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        cwd=tools.REPOSITORY,
        env=tools.environment(mark),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def watch(look: Callable[[], int], process: subprocess.Popen[bytes], target: int) -> bool:
    """Wait until the run has got as far as ``target``, looking often; False if it ended before."""
    while process.poll() is None:
        if look() >= target:
            return True
        time.sleep(0.001)
    return False


def timeline(arguments: list[str], look: Callable[[], int]) -> Timeline:
    began = time.monotonic()
    process = start(arguments, "")
    times: dict[int, float] = {}
    while process.poll() is None:
        phase = look()
        for reached in range(FILES, phase + 1):
            times.setdefault(reached, time.monotonic() - began)
        time.sleep(0.001)
    assert process.returncode == 0
    return Timeline(times, time.monotonic() - began)


def kill_somewhere(
    process: subprocess.Popen[bytes],
    look: Callable[[], int],
    usual: Timeline,
    pace: "Pace",
    aim: int,
    rng: random.Random,
    group: bool,
    at_once: bool = False,
) -> None:
    """Kill the run at a random instant between the beginning of the phase ``aim`` and its usual end, or ``at_once``."""
    if aim != NOTHING:
        watch(look, process, aim)
        time.sleep(0 if at_once else rng.uniform(0, usual.left(aim) * pace.factor))
    else:
        time.sleep(rng.uniform(0, usual.end * pace.factor))
    # A killed group, Python's tracker with it, would leave them in /dev/shm for ever.
    assert not tools.semaphores(process.pid)
    # Not reaped yet, so the number cannot belong to anybody else.
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def report(name: str, hits: Counter[int], landed: int, completions: int) -> None:
    spread = ", ".join(f"{PHASES[phase]} {hits[phase]}" for phase in range(5))
    print(
        f"\n{name}: {hits.total()} kills, by what was there: {spread}; {landed} in the window; {completions} completed"
    )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Several shards for every stage, large enough that a run takes a while."""
    base = tmp_path_factory.mktemp("kill")
    tools.raw_data(base / "raw", SIZE)
    rules = tools.rules(base / "rules.yaml")
    root = base / "root"
    cleaned = tools.folder(tools.stage("clean", raw=base / "raw", root=root))
    tokenizer = tools.folder(
        tools.stage("train_tokenizer", rows=cleaned, root=root, vocab_size=1500, prefix_config_path=rules)
    )
    tokenized = tools.folder(tools.stage("tokenize", rows=cleaned, tokenizer=tokenizer, root=root))
    # Hundreds of outputs, which a second round of shards puts together.
    many = base / "many"
    arguments = [str(many), "sources=SYNTH,ampsmathematica,flan,openmathinstruct2,tasksource", "scale=8"]
    subprocess.run([sys.executable, tools.REPOSITORY / "examples/make_raw.py", *arguments], check=True)
    (base / "curate.yaml").write_text(
        "filter: {mode: drop, rules: [{name: long, attribute: heuristics.r_words, max: 40}]}\n"
    )
    (base / "select.yaml").write_text(
        f"method: dsir\nshare: 0.5\ndsir: {{targets: [{{name: all, rows: {cleaned}}}], buckets: 1000}}\n"
    )
    (base / "mix.yaml").write_text("method: unimax\nmax_epochs: 2\nallow_unfilled: true\nbudget: 900_000\n")
    found = {"raw": base / "raw", "rules": rules, "clean": cleaned, "tokenizer": tokenizer, "tokenized": tokenized}
    settings = {name: base / f"{name}.yaml" for name in ("curate", "select", "mix")}
    return {**found, "many": many, **settings}


def case(name: str, inputs: dict[str, Path]) -> Case:
    rules = {"prefix_config_path": inputs["rules"]}

    def train(folder: Path, root: Path) -> tools.Done:
        return tools.stage("train_tokenizer", rows=folder, root=root, **rules)

    def tokenize(folder: Path, root: Path) -> tools.Done:
        return tools.stage("tokenize", rows=folder, tokenizer=inputs["tokenizer"], root=root)

    def tokenize_with(folder: Path, root: Path) -> tools.Done:
        return tools.stage("tokenize", rows=inputs["clean"], tokenizer=folder, root=root)

    def sample(folder: Path, root: Path) -> tools.Done:
        return tools.stage("sample", tokenized_path=folder, root=root, output_path=root / "arrays", **rules)

    def sample_mixture(folder: Path, root: Path) -> tools.Done:
        given = {"tokenized_path": inputs["tokenized"], "mixture": folder, "output_path": root / "arrays", **rules}
        return tools.stage("sample", **given, root=root)

    rows = {"rows": inputs["clean"]}
    mixed = {"tokenized_path": inputs["tokenized"], "mix_config": inputs["mix"], "epochs": 3, **rules}
    return {
        "curate": Case("curate", {**rows, "curate_config": inputs["curate"]}, (train, tokenize)),
        "select": Case("select", {**rows, "select_config": inputs["select"]}, (train, tokenize)),
        "mix": Case("mix", mixed, (sample_mixture,), 1),
        "clean": Case("clean", {"raw": inputs["raw"]}, (train, tokenize)),
        "clean to many outputs": Case("clean", {"raw": inputs["many"], "max_reject_fraction": 0.5}, (train, tokenize)),
        "train_tokenizer": Case(
            "train_tokenizer", {"rows": inputs["clean"], "vocab_size": 1500, **rules}, (tokenize_with,)
        ),
        "tokenize": Case("tokenize", {"rows": inputs["clean"], "tokenizer": inputs["tokenizer"]}, (sample,)),
    }[name]


@pytest.mark.parametrize(
    "name", ["clean", "clean to many outputs", "curate", "select", "train_tokenizer", "tokenize", "mix"]
)
def test_sharded_stage(name: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    this = case(name, inputs)
    rng = random.Random(name)
    usual: dict[int, Timeline] = {}
    wanted: dict[str, str] = {}
    for workers in WORKERS:
        root = tmp_path / f"reference{workers}"
        usual[workers] = timeline(this.command(root, workers), lambda root=root: this.phase(root, 0))  # type: ignore[misc]
        found = this.results(root)
        assert wanted in ({}, found), "the result depends on the number of workers"
        wanted = found
    assert len(tools.records(tmp_path / "reference1", this.name)) >= this.shards

    hits: Counter[int] = Counter()
    pace = Pace()
    landed = refused = roots = 0
    while goes_on(hits, landed):
        roots += 1
        root = tmp_path / f"killed{roots}"
        marks = []
        waited = True
        for _ in range(rng.randint(1, 3)):
            number = hits.total()
            before = len(tools.records(root, this.name))
            group, workers = number % 2 == 0, WORKERS[number // 2 % 2]
            marks.append(f"{root}-{number}")
            process = start(this.command(root, workers), marks[-1])
            aim = (NOTHING, FILES, RECORDS, STARTED, FILES)[number % 5]
            # Finishing takes so little that a run which is quicker than usual is done before a random instant of it.
            at_once = aim == STARTED and number < KILLS // 2
            kill_somewhere(process, lambda: this.phase(root, before), usual[workers], pace, aim, rng, group, at_once)  # noqa: B023
            # Workers that outlive their parent for a moment may still be at it when the next run begins.
            if group or rng.random() < 0.5:
                tools.wait_until_gone(marks[-1])
            else:
                waited = False
            got = this.phase(root, 0)
            hits[got] += 1
            pace.note(got)
            landed += got in (RECORDS, STARTED)
            refused += refused_by_readers(this, root, rng, tmp_path / f"reader{number}")
            if got == FINISHED:
                assert this.results(root) == wanted

        done = tools.run(this.command(root, rng.choice(WORKERS)))
        assert done.code == 0, done.err
        for mark in marks:
            tools.wait_until_gone(mark)
        assert this.results(root) == wanted
        folder = tools.folder(done)
        assert not tools.partials(folder)
        if waited:
            assert not tools.partials(root)
    report(name, hits, landed, roots)
    print(f"{refused} unfinished folders shown to a reader; usual seconds: {usual[1]}")
    assert landed >= NEEDED_IN_WINDOW
    assert refused >= 1


def refused_by_readers(this: Case, root: Path, rng: random.Random, elsewhere: Path) -> int:
    """Show every unfinished folder to a stage that reads such folders; returns how many."""
    found = tools.unfinished(root, this.name)
    for folder in found:
        begun = (folder / tools.STARTED).exists()
        done = rng.choice(this.readers)(folder, elsewhere)
        assert done.code == 3, done.err
        assert done.out == ""
        assert "Traceback" not in done.err
        if begun:
            assert "has not finished it" in done.message, done.message
        assert str(folder) in done.message
        assert not elsewhere.exists()
    return len(found)


# sample: no shards, and its result stands outside the root


def sample_phase(root: Path, target: Path) -> int:
    """As for sharded stages; a record is an epoch, and finishing begins once the arrays stand in their place."""
    home = root / "sample"
    if home.is_dir() and any((path / tools.MANIFEST).exists() for path in home.iterdir()):
        return FINISHED
    if home.is_dir() and any((path / tools.STARTED).exists() for path in home.iterdir()):
        return STARTED
    hidden = list(target.parent.glob(f".{target.name}.*.partial"))
    if any((path / "epoch_0").exists() for path in hidden):
        return RECORDS
    return FILES if any((path / "tokens.npy").exists() for path in hidden) else NOTHING


def whole(target: Path) -> str:
    """The fingerprint of the folder at the target, whose files are those of its manifest; empty if there is none."""
    if not target.exists():
        return ""
    manifest = tools.read_manifest(target)
    found = tools.digests(target)
    del found[tools.MANIFEST]
    assert found == tools.recorded(manifest)
    return str(manifest["fingerprint"])


@pytest.mark.parametrize("mixed", [False, True])
def test_sample(mixed: bool, inputs: dict[str, Path], tmp_path: Path, shm: Path) -> None:
    rng = random.Random(f"sample {mixed}")
    fixed = {"tokenized_path": inputs["tokenized"], "prefix_config_path": inputs["rules"], "epochs": 40}
    # A mixture has its own seed.
    mixtures = [
        {
            "mixture": tools.folder(
                tools.stage("mix", **fixed, mix_config=inputs["mix"], seed=seed, root=tmp_path / "mixed")
            )
        }
        for seed in ((0, 1) if mixed else ())
    ] or [{}, {}]

    def arguments(root: Path, target: Path, seed: int = 0) -> list[str]:
        return tools.command("sample", **fixed, **mixtures[seed], root=root, output_path=target, seed=seed)

    root, target = tmp_path / "reference", shm / "reference"
    usual = timeline(arguments(root, target), lambda: sample_phase(root, target))
    wanted, wanted_home = tools.digests(target), tools.digests(root)
    fingerprint = whole(target)
    assert len(wanted) == 2 + 1 + 40 * 4
    assert tools.ended(tools.run(arguments(tmp_path / "other", shm / "other", seed=1))).out
    other = whole(shm / "other")

    hits: Counter[int] = Counter()
    pace = Pace()
    landed = roots = replaced = 0
    while goes_on(hits, landed):
        roots += 1
        root, target = tmp_path / f"killed{roots}", shm / f"killed{roots}"
        earlier = roots % 2 == 0
        if earlier:
            # Something to be replaced stands there already.
            tools.ended(tools.run(arguments(tmp_path / "other", target, seed=1)))
        mark = str(root)
        for _ in range(rng.randint(1, 3)):
            number = hits.total()
            process = start(arguments(root, target), mark)
            aim = (NOTHING, FILES, RECORDS, STARTED, FILES)[number % 5]
            kill_somewhere(process, lambda: sample_phase(root, target), usual, pace, aim, rng, number % 2 == 0)  # noqa: B023
            tools.wait_until_gone(mark)
            got = sample_phase(root, target)
            hits[got] += 1
            pace.note(got)
            landed += got in (FILES, RECORDS, STARTED)
            # No reader sees a part: what stands there is whole, and one of the two.
            there = whole(target)
            assert there in ({other, fingerprint, ""} if earlier else {fingerprint, ""})
            replaced += earlier and there == fingerprint

        done = tools.ended(tools.run(arguments(root, target)))
        assert done.out.startswith("\n### Category Coverage Stats\n")
        assert tools.digests(target) == wanted
        assert tools.digests(root) == wanted_home
        assert not tools.partials(root)
        assert not list(shm.glob(".*"))
    report("sample", hits, landed, roots)
    print(f"usual seconds: {usual}; {replaced} kills after an older folder was replaced")
    assert landed >= NEEDED_IN_WINDOW
