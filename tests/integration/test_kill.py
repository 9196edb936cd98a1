"""kill -9 before a change of a name: nothing unfinished is taken for a result, and the same command ends with the same
bytes. ``PAIRMILL_EVERY_KILL=1`` kills before every change, without it before each kind of change (kill_points).
tests/long/test_kill.py kills at random instants, worker processes too.
"""

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pairmill.stages.clean.sink import SEGMENTS
from tests.support import tools
from tests.support.cases import cases
from tests.support.helpers import python
from tests.support.processes import nursery
from tests.support.processes.kill_points import changes_of, instants, kills

SIZE = 40
Reader = Callable[[Path, Path], tuple[str, dict[str, object]]]


@dataclass(frozen=True)
class Case:
    """A stage with its input, who reads its result, and at the least its shards, the names that a run changes and the
    kinds of such changes.
    """

    name: str
    options: dict[str, object]
    readers: tuple[Reader, ...]
    shards: int
    changes: int
    kinds: int


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Several shards for every stage."""
    base = tmp_path_factory.mktemp("kill")
    tools.raw_data(base / "raw", SIZE)
    rules = tools.rules(base / "rules.yaml")
    root = base / "root"
    cleaned = tools.folder(tools.stage("clean", raw=base / "raw", root=root, workers=1))
    trained = tools.stage(
        "train_tokenizer", rows=cleaned, root=root, vocab_size=400, prefix_config_path=rules, workers=1
    )
    tokenizer = tools.folder(trained)
    tokenized = tools.folder(tools.stage("tokenize", rows=cleaned, tokenizer=tokenizer, root=root, workers=1))
    # Outputs by label, which a second round of shards puts together.
    many = [base / "many", "sources=openmathinstruct2,textbookreasoning"]
    assert python("examples/make_raw.py", *map(str, many)).returncode == 0
    (base / "mix.yaml").write_text("method: unimax\nmax_epochs: 2\nallow_unfilled: true\nbudget: 900_000\n")
    found = {
        "raw": base / "raw",
        "mix": base / "mix.yaml",
        "rules": rules,
        "clean": cleaned,
        "tokenizer": tokenizer,
        "tokenized": tokenized,
    }
    return {**found, "many": base / "many"}


def case(name: str, inputs: dict[str, Path]) -> Case:
    rules = {"prefix_config_path": inputs["rules"]}

    def train(folder: Path, root: Path) -> tuple[str, dict[str, object]]:
        return "train_tokenizer", {"rows": folder, "root": root, **rules}

    def tokenize(folder: Path, root: Path) -> tuple[str, dict[str, object]]:
        return "tokenize", {"rows": folder, "tokenizer": inputs["tokenizer"], "root": root}

    def tokenize_with(folder: Path, root: Path) -> tuple[str, dict[str, object]]:
        return "tokenize", {"rows": inputs["clean"], "tokenizer": folder, "root": root}

    def sample(folder: Path, root: Path) -> tuple[str, dict[str, object]]:
        return "sample", {"tokenized_path": folder, "root": root, "output_path": root / "arrays", **rules}

    def sample_mixture(folder: Path, root: Path) -> tuple[str, dict[str, object]]:
        return "sample", {"tokenized_path": inputs["tokenized"], "mixture": folder, "root": root, **rules}

    rows = {"rows": inputs["clean"]}
    return {
        "clean": Case("clean", {"raw": inputs["raw"]}, (train, tokenize), 6, 40, 10),
        "clean to many outputs": Case("clean", {"raw": inputs["many"]}, (train, tokenize), 4, 20, 10),
        "train_tokenizer": Case("train_tokenizer", {**rows, "vocab_size": 400, **rules}, (tokenize_with,), 6, 25, 10),
        "tokenize": Case("tokenize", {**rows, "tokenizer": inputs["tokenizer"]}, (sample,), 6, 90, 10),
        "mix": Case(
            "mix",
            {"tokenized_path": inputs["tokenized"], "mix_config": inputs["mix"], "epochs": 3, **rules},
            (sample_mixture,),
            1,
            6,
            5,
        ),
    }[name]


def run(name: str, die_before: int = 0, changes: str = "", /, **options: object) -> "subprocess.CompletedProcess[str]":
    given = [f"{key}={value}" for key, value in options.items()]
    return nursery.shared().run("pairmill", [name, *given], tools.environment(), die_before, changes)


def fresh(name: str, **options: object) -> tools.Done:
    return tools.run(tools.command(name, **options), fresh=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    cases(["clean", "clean to many outputs", "train_tokenizer", "tokenize", "mix"], "clean", "train_tokenizer"),
)
def test_sharded_stage(name: str, inputs: dict[str, Path], shm: Path) -> None:
    # In memory, where nothing waits for a disk.
    this = case(name, inputs)
    wanted: dict[str, str] = {}
    # Of another nursery than those that are killed, which hashes in another way.
    for workers in (1, 2):
        root = shm / f"reference{workers}"
        found = tools.digests(tools.folder(fresh(this.name, **this.options, root=root, workers=workers)))
        assert wanted in ({}, found), "the result depends on the number of workers"
        wanted = found
    assert len(tools.records(shm / "reference1", this.name)) >= this.shards
    assert name != "clean to many outputs" or len(list((shm / "reference1").rglob(SEGMENTS))) == 2

    def killed(number: int, changes: str) -> "subprocess.CompletedProcess[str]":
        return run(this.name, number, changes, **this.options, root=shm / f"killed{number}", workers=1)

    changes = changes_of(killed, shm / "changes")
    chosen = instants(changes)
    refused = 0
    for number in kills(killed, chosen):
        root = shm / f"killed{number}"
        # Every unfinished folder is shown to a stage that reads such folders.
        for folder in tools.unfinished(root, this.name):
            reader, options = this.readers[refused % len(this.readers)](folder, shm / "reader")
            done = run(reader, **options)
            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            said = tools.Done(done.returncode, done.stdout, done.stderr, 0).message
            assert "Traceback" not in done.stderr
            if (folder / tools.STARTED).exists():
                assert "has not finished it" in said
            assert str(folder) in said
            assert not (shm / "reader").exists()
            refused += 1
        done = run(this.name, **this.options, root=root, workers=1)
        assert done.returncode == 0, done.stderr
        remove_hidden_links(root)
        (finished,) = root.glob(f"{tools.HOMES[this.name]}/*/{tools.MANIFEST}")
        assert tools.digests(finished.parent) == wanted, f"killed before change {number}"
        tools.remove(root)
    print(
        f"\n{name}: killed before {len(chosen)} of {len(changes)} changes; "
        f"{refused} unfinished folders shown to a reader"
    )
    assert len(changes) >= this.changes
    assert len({*changes}) >= this.kinds
    assert refused >= (1 if name == "mix" else 3)


def remove_hidden_links(root: Path) -> int:
    """Remove hidden names of records and manifests, and assert that no other hidden file is left.

    They are what a kill between the link of such a file and the end of its hidden name leaves: what is done is not
    written again, so nobody sweeps it. No reader takes them.
    """
    left = [root / path for path in tools.partials(root)]
    for path in left:
        name = path.name[1:].split(".json.")[0] + ".json"
        assert name in {tools.RECORD, tools.MANIFEST}, left
        assert path.samefile(path.with_name(name))
        path.unlink()
    return len(left)


@pytest.mark.parametrize("kills", cases([4, 40], 40))
def test_random_instants_while_slices_are_joined_ahead(kills: int, inputs: dict[str, Path], shm: Path) -> None:
    tools.write_rows(shm / "rows" / "x.parquet", tools.rows(3000, seed=1), row_group_size=70)
    given = [f"rows={shm / 'rows'}", f"tokenizer={inputs['tokenizer']}"]
    draw = random.Random(kills)

    def start(root: Path, workers: int = 2, number: int = 0) -> nursery.Child:
        arguments = [*given, f"root={root}", f"workers={workers}"]
        module = "tests.support.processes.small_slices"
        return nursery.shared(number=number).start(module, arguments, tools.environment(str(root)))

    def finished(root: Path) -> dict[str, str]:
        (manifest,) = root.glob(f"tokenize/*/{tools.MANIFEST}")
        return tools.digests(manifest.parent)

    def begun(root: Path) -> list[Path]:
        """The files that are joined ahead."""
        return [*root.glob("tokenize/shards/.attempt.*.partial")]

    def wait(root: Path, process: nursery.Child) -> float:
        """Wait until a file is joined ahead; return when."""
        while process.poll() is None and not begun(root):
            time.sleep(0.001)
        return time.monotonic()

    # Of another nursery, which hashes in another way, and with one process, which joins nothing ahead.
    assert start(shm / "alone", workers=1, number=1).wait() == 0
    wanted = finished(shm / "alone")
    assert len(tools.records(shm / "alone", "tokenize")) > 10
    process = start(shm / "whole")
    since = wait(shm / "whole", process)
    assert process.wait() == 0
    usual = time.monotonic() - since
    hits = 0
    for number in range(kills):
        root = shm / str(number)
        process = start(root)
        wait(root, process)
        time.sleep(usual * (number + draw.random()) / kills)
        process.kill()
        process.wait()
        tools.wait_until_gone(str(root))
        hits += bool(begun(root))
        assert start(root).wait() == 0
        assert finished(root) == wanted
        remove_hidden_links(root)
        tools.remove(root)
    print(f"\n{hits} of {kills} kills left a file that was joined ahead")
    assert hits


# sample: one shard, and its arrays are outside the root


def whole(target: Path) -> str:
    """The fingerprint of the folder at the target, whose files are those of its manifest; empty if there is none."""
    if not target.exists():
        return ""
    manifest = tools.read_manifest(target)
    found = tools.digests(target)
    del found[tools.MANIFEST]
    assert found == tools.recorded(manifest)
    return str(manifest["fingerprint"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("earlier", "mixed"), [(False, False), pytest.param(True, False, marks=pytest.mark.full), (True, True)]
)
def test_sample(earlier: bool, mixed: bool, inputs: dict[str, Path], tmp_path: Path, shm: Path) -> None:
    fixed: dict[str, object] = {"tokenized_path": inputs["tokenized"], "prefix_config_path": inputs["rules"]}
    fixed |= {"epochs": 3}
    other = {**fixed, "root": tmp_path / "other", "seed": 1}
    if mixed:
        (tmp_path / "mix.yaml").write_text("method: exponent\nexponent: 0.7\n")
        made = fresh("mix", **fixed, mix_config=tmp_path / "mix.yaml", root=tmp_path / "mixed")
        fixed |= {"mixture": tools.folder(made)}
    reference = {"root": tmp_path / "reference", "output_path": shm / "reference"}
    tools.ended(fresh("sample", **fixed, **reference))
    wanted, wanted_home = tools.digests(shm / "reference"), tools.digests(tmp_path / "reference")
    fingerprint = whole(shm / "reference")
    assert len(wanted) == 2 + 1 + 3 * 4

    def killed(number: int, changes: str) -> "subprocess.CompletedProcess[str]":
        target = shm / f"killed{number}"
        if earlier:
            shutil.copytree(shm / "earlier", target)
        return run("sample", number, changes, **fixed, root=tmp_path / f"killed{number}", output_path=target)

    if earlier:
        # Something to be replaced is there already.
        assert run("sample", **other, output_path=shm / "earlier").returncode == 0
    changes = changes_of(killed, tmp_path / "changes")
    chosen = instants(changes)
    replaced = linked = 0
    for number in kills(killed, chosen):
        root, target = tmp_path / f"killed{number}", shm / f"killed{number}"
        # No reader sees a part: what is there is whole, and one of the two.
        there = whole(target)
        if earlier:
            (before,) = (tmp_path / "other" / "sample").glob("[0-9a-f]*")
            assert there in {before.name, fingerprint}
        else:
            assert there in {fingerprint, ""}
        replaced += there == fingerprint
        done = run("sample", **fixed, root=root, output_path=target)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("\n### Category Coverage Stats\n")
        assert tools.digests(target) == wanted
        linked += remove_hidden_links(root)
        assert tools.digests(root) == wanted_home
        assert not list(shm.glob(".*"))
        tools.remove(root)
        tools.remove(target)
    print(
        f"\nsample: killed before {len(chosen)} of {len(changes)} changes, "
        f"{replaced} times after the arrays had their place"
    )
    assert len(changes) >= 20
    assert len(chosen) >= 7
    assert replaced >= 1
    assert linked <= 2
