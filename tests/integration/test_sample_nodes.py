"""Samples as processes make them on nodes: the same bytes anywhere, killed at any instant, within a memory limit."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support import tools
from tests.support.helpers import PATIENCE, REPOSITORY, SOON, missing, until
from tests.support.processes import nursery
from tests.support.tools import World

OLDEST = REPOSITORY / "build" / "numpy-oldest"
MIB = 1 << 20


def tokenized(folder: Path, rows: int, tasks: int = 6, mean: int = 200, seed: int = 0) -> Path:
    """A tokenized folder as others make it, of random tokens."""
    draw = np.random.default_rng(seed)
    for number in range(tasks):
        path = folder / f"set{number}__part.parquet"
        path.mkdir(parents=True)
        inst, resp = draw.integers(1, mean, rows // tasks), draw.integers(1, mean, rows // tasks)
        ends = np.cumsum(inst + resp)
        np.save(path / "tokens.npy", draw.integers(0, 65_536, int(ends[-1]), dtype=np.uint32))
        index = {"inst_start": ends - inst - resp, "inst_len": inst, "resp_start": ends - resp, "resp_len": resp}
        for name, values in index.items():
            np.save(path / f"{name}.npy", values.astype(np.uint64))
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 65_536}))
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 million tokens: enough to be killed in the midst of them."""
    return tokenized(tmp_path_factory.mktemp("large") / "tokenized", 60_000)


def test_bytes_do_not_depend_on_numpy_or_on_threads(world: World, large: Path, tmp_path: Path) -> None:
    assert (OLDEST / "numpy").is_dir(), "make test installs the oldest numpy into build/numpy-oldest"
    seen: dict[str, list[dict[str, str]]] = {}
    versions = {}
    for places in ([], [OLDEST]):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*places, REPOSITORY]))}
        asked = [tools.command("sample")[0], "-c", "import numpy; print(numpy.__version__)"]
        version = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        versions[version] = environment
    assert len(versions) == 2
    assert min(versions).startswith("2.0.")
    for name, folder in (("small", world.tokenized), ("large", large)):
        for profile in ("pairmill", "data_io"):
            for (version, environment), workers in zip(versions.items(), (1, 3), strict=True):
                out = tmp_path / f"{name}-{profile}-{version}-{workers}"
                arguments = tools.command(
                    "sample", tokenized_path=folder, prefix_config_path=world.rules, output_path=out / "arrays",
                    root=out / "root", epochs=3, profile=profile, workers=workers,
                )  # fmt: skip
                done = subprocess.run(
                    arguments, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr
                seen.setdefault(f"{name} {profile}", []).append(tools.digests(out))
    for case, found in seen.items():
        assert len(found) == 2
        assert all(one == found[0] for one in found), case
        assert len(found[0]) > 20


def test_a_data_set_more_leaves_the_rows_of_all_others(large: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {prefix: set1, max_per_file: 700}\n- {prefix: set2, max_response_tokens_per_file: 30_000}\n")
    more = tmp_path / "more"
    more.mkdir()
    for path in large.iterdir():
        if path.is_dir():
            shutil.copytree(path, more / path.name, copy_function=os.link)
    shutil.copy(large / "tokenizer_info.json", more)
    tokenized(tmp_path / "extra", 3_000, tasks=1, seed=9)
    (tmp_path / "extra" / "set0__part.parquet").rename(more / "set01__new.parquet")

    def rows(folder: Path) -> list[dict[str, list[tuple[int, int, int, int]]]]:
        """Per epoch and task the spans that are taken, from the plan."""
        options = {"tokenized_path": folder, "prefix_config_path": rules, "output_path": "", "epochs": 3}
        tools.ended(tools.stage("sample", root=tmp_path / folder.name / "root", **options))
        (home,) = (tmp_path / folder.name / "root" / "sample").glob("[0-9a-f]*")
        sources = tools.read_manifest(home)["data"]["sources"]
        names = np.repeat([source["name"] for source in sources], [source["rows"] for source in sources])
        columns = [
            np.load(home / "plan" / f"{part}.npy") for part in ("inst_start", "inst_len", "resp_start", "resp_len")
        ]
        found = []
        for number in range(3):
            epoch: dict[str, list[tuple[int, int, int, int]]] = {}
            for place in np.sort(np.load(home / "plan" / f"epoch_{number}.npy")).tolist():
                epoch.setdefault(str(names[place]), []).append(tuple(int(column[place]) for column in columns))
            found.append(epoch)
        return found

    before, after = rows(large), rows(more)
    for one, other in zip(before, after, strict=True):
        assert other.keys() - one.keys() == {"set01__new.parquet"}
        assert len(one) == 6
        for name, taken in one.items():
            assert other[name] == taken, name
    # A wider rule for one task leaves the others too.
    rules.write_text("- {prefix: set1, max_per_file: 900}\n- {prefix: set2, max_response_tokens_per_file: 30_000}\n")
    tools.remove(tmp_path / large.name / "root")
    changed = rows(large)
    assert [name for name in before[0] if changed[0][name] != before[0][name]] == ["set1__part.parquet"]


def test_killed_on_a_node_and_started_again(large: Path, world: World, tmp_path: Path, shm: Path) -> None:
    root, node = tmp_path / "root", shm / "pairmill"
    fixed = {"tokenized_path": large, "prefix_config_path": world.rules, "root": root}
    plan = ""
    for seed in (0, 1):
        tools.ended(tools.stage("sample", **fixed, output_path="", epochs=4, seed=seed))
        plan = next(path.name for path in (root / "sample").glob("[0-9a-f]*") if path.name != plan)
    command = tools.command("sample", **fixed, plan=plan, output_path=f"{node}/{{fingerprint}}", keep=0)
    start = time.monotonic()
    tools.ended(tools.run(command))
    usual = time.monotonic() - start
    wanted = tools.digests(node / plan)
    del wanted["_NODE.json"]
    rng = random.Random("node")
    kills = midst = 0
    while midst < 4 and kills < 60:
        tools.remove(node / plan)
        with open(os.devnull, "wb") as nothing:
            streams = (nothing.fileno(), nothing.fileno())
            process = nursery.shared().start(command[2], command[3:], tools.environment(), streams)
        hidden = f".{plan}.*.partial"
        if kills % 2:
            while process.poll() is None and not any(node.glob(f"{hidden}/tokens.npy")):
                time.sleep(0.001)
            time.sleep(rng.random() * 0.1)
        else:
            time.sleep(rng.random() * usual)
        process.kill()
        process.wait()
        kills += 1
        midst += any(node.glob(hidden))
        # A trainer sees the whole sample or none.
        assert not (node / plan).exists() or (node / plan / "_MANIFEST.json").exists()
        done = tools.ended(tools.run(command))
        assert "Traceback" not in done.err
        found = tools.digests(node / plan)
        del found["_NODE.json"]
        assert found == wanted
        assert {path.name for path in node.iterdir()} == {plan, "PLAN"}
    print(f"\n{kills} kills, {midst} of them while the sample was written")
    assert midst >= 4


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of its own, of either version, and without swap where that can be said."""
    top = (
        Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory/cgroup.procs").exists() else Path("/sys/fs/cgroup")
    )
    path = top / f"pairmill-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        missing(f"making a memory cgroup ({error})")
    if not any((path / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
        path.rmdir()
        missing("a memory controller below /sys/fs/cgroup")
    yield path
    path.rmdir()


def within(group: Path, limit: int, command: list[str]) -> tools.Done:
    """Run a program whose memory, files in memory included, is limited."""
    name = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
    (group / name).write_text(str(limit))

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(
        command, cwd=REPOSITORY, env=tools.environment(), capture_output=True, text=True, check=False, preexec_fn=enter
    )
    return tools.Done(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.parametrize("planned", [True, False])
def test_a_memory_limit_is_refused_with_the_numbers_and_the_number_it_names_is_enough(
    planned: bool, world: World, tmp_path: Path, shm: Path, group: Path
) -> None:
    folder = tokenized(tmp_path / "tokenized", 300_000)
    root, node = tmp_path / "root", shm / "pairmill"
    options = {"tokenized_path": folder, "prefix_config_path": world.rules, "root": root, "epochs": 3}
    if planned:
        tools.ended(tools.stage("sample", **options, output_path=""))
        (home,) = (root / "sample").glob("[0-9a-f]*")
        options |= {"plan": home.name}
    command = tools.command("sample", **options, output_path=f"{node}/{{fingerprint}}", workers=2)
    done = within(group, 128 * MIB, command)
    assert done.code == 4, done.err[-2000:]
    assert "does not fit within the container's memory limit" in done.message
    assert f"a limit of {128 * MIB:,} bytes" in done.message
    assert not node.exists() or list(node.iterdir()) == []
    named = re.search(r"set the limit to (\d+) MiB", done.message)
    assert named is not None
    limit = int(named.group(1)) * MIB
    tools.ended(within(group, limit, command))
    (made,) = (path for path in node.iterdir() if path.is_dir())
    size = sum(file.stat().st_size for file in made.rglob("*"))
    assert size < limit < size + 200 * MIB
    print(f"\nlimit {limit / MIB:.0f} MiB for {size / MIB:.0f} MiB")


def handled(children: Path) -> bool:
    """Whether the first of these processes has a handler for SIGTERM."""
    try:
        status = Path(f"/proc/{children.read_text().split()[0]}/status").read_text()
    except (OSError, IndexError):
        return False
    (caught,) = re.findall(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_the_first_process_of_a_container_ends_when_it_is_told_to(
    large: Path, world: World, tmp_path: Path, shm: Path
) -> None:
    """The kernel keeps signals without a handler from process 1: such a pod is killed after its grace period."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        missing("making a PID namespace")
    node = shm / "pairmill"
    node.mkdir()
    given = {"tokenized_path": large, "prefix_config_path": world.rules, "output_path": f"{node}/{{fingerprint}}"}
    commands = {
        "serve": [*tools.command("sample")[:3], "serve", f"path={node}", "port=0"],
        "wait": [*tools.command("sample")[:3], "wait", f"path={node}"],
        "sample": tools.command("sample", **given, epochs=200),
    }
    for name, command in commands.items():
        process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", *command], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
        )
        inner = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: handled(inner), f"{name} handling SIGTERM")  # noqa: B023
        if name == "sample":
            until(lambda: list(node.glob(".*.partial/tokens.npy")), "a sample being written")
        os.kill(int(inner.read_text().split()[0]), signal.SIGTERM)
        start = time.monotonic()
        assert process.wait(PATIENCE) == 143, name
        assert time.monotonic() - start < SOON, name
        assert list(node.iterdir()) == [], name


def test_inspect_says_what_training_on_a_nodes_sample_is_like(world: World, tmp_path: Path) -> None:
    node, page = tmp_path / "pairmill", tmp_path / "report.html"
    made = tools.stage(
        "sample",
        tokenized_path=world.tokenized,
        prefix_config_path=world.rules,
        output_path=node / "{fingerprint}",
        epochs=2,
    )
    assert made.code == 0, made.err
    command = [*tools.command("sample"), "inspect", "ranks=2", "batch_tokens=4096"]
    done = tools.ended(tools.run([*command, f"path={node}", f"report={page}"]))
    steps = re.match(r"# inspect\n\n([\d,]+) steps: (\d+\.\d)% of their slots are used, ", done.out)
    assert steps, done.out
    assert float(steps[2]) > 80
    assert f"- **Steps**: {steps[1]}\n" in done.out
    sampled = node / (node / "PLAN").read_text().strip()
    rows = sum(len(np.load(sampled / f"epoch_{number}" / "inst_len.npy")) for number in range(2))
    assert f"- **Rows**: {rows:,}\n" in done.out
    messages = [line["message"] for line in done.lines]
    assert re.fullmatch(r"inspect: 2/2 epochs in \d+\.\d s", messages[0])
    assert messages[1:] == [f"report: {page}"]
    assert "<svg" in page.read_text()
    assert tools.ended(tools.run([*command, f"path={sampled}"])).out == done.out
    refused = tools.ended(tools.run([*command, f"path={node}", "batch_tokens=4095"]), 2)
    assert "batch_tokens: given twice" in refused.message
    shutil.rmtree(sampled / "epoch_1")
    assert "wrong set of epochs" in tools.ended(tools.run([*command, f"path={node}"]), 3).message
