"""The emulator of Kubeflow's driver and launcher against what a real 2.17.0 backend did with probe pipelines.

Each recorded run is either repeated and compared (states of run and nodes, what the program got, output parameters,
what was uploaded, what came from the cache), or named in ``OUT_OF_SCOPE``.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pairmill.kubeflow import lint
from tests.support.helpers import until
from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Process, Run, load

_ENGINE = "the container engine decides it"
_KUBERNETES = "Kubernetes decides it, before or beside the launcher"
_RIG = "of the recording's own database"

OUT_OF_SCOPE: Mapping[str, str] = {
    "accelerator": f"no node fits: {_KUBERNETES}",
    "empty-dir-over-limit": f"eviction: {_KUBERNETES}",
    "no-image": f"image missing: {_KUBERNETES}",
    "oom": f"memory limit: {_KUBERNETES}",
    "oom-child": f"memory limit: {_KUBERNETES}",
    "pod-deleted-force": f"a vanished pod made anew: {_KUBERNETES}",
    "pod-deleted-force-running": f"a vanished pod made anew: {_KUBERNETES}",
    "pod-deleted-traced": "the program writes to the recording's cluster; pod-deleted is the same without",
    "retry-max-duration": "depends on how slowly the pods started",
    "security-context": f"user of the container: {_ENGINE}",
    "security-context-root": f"user of the container: {_ENGINE}",
    "shm-default": f"size of /dev/shm: {_ENGINE}",
    "shm-memory-limit": f"memory limit: {_KUBERNETES}",
    "string-cjk": f"character set: {_RIG}",
    "string-emoji": f"character set: {_RIG}",
    "terminate-traced": "the program writes to the recording's cluster; terminate is the same without",
    "timeout-traced": "the program writes to the recording's cluster; timeout is the same without",
    "tmp-memory": "a volume over /tmp would cover this test's own folder",
}

# Rules whose recorded runs show what it costs, or where a limit lies, in a pipeline that keeps the rule.
TRAPS = {
    "command-argument": (
        "defaulted",
        "optional-absent",
        "unknown-placeholder",
        "own-placeholders",
        "concat",
        "if-present",
    ),
    "value": ("special-placeholders", "list-into-text", "outputs-into-text", "string-braces-constant", "types"),
    "artifact": ("artifact-in-two-inputs", "artifact-50mb", "artifact-2000-files", "importer", "importer-https"),
    "loop": (),  # loop-static measured what an iteration costs, and breaks no rule
    "runs-after-failure": ("exit-handler-failure", "ignore-upstream-failure"),
    "placement": ("killed-9", "no-image", "accelerator", "oom", "places", "cache-3-other-tag", "retry-max-duration"),
    "cached": ("cache-5-other-resources-and-environment", "cache-6-data-deleted", "cache-key-2"),
}
"""Recorded runs that show why the lint has a rule."""

# One after another on one backend: what is in its cache, and which data was deleted.
SCENARIOS = ("cache-1", "cache-2", "cache-3", "cache-4", "cache-5", "cache-6", "cache-7", "cache-8", "cache-9")
TOGETHER = ("cache-default", "cache-key", "loop-cached")

# A second of the programs and of the back-off takes this long here.
SECOND = 0.1
PROBE = """
import sys, time
sleep = time.sleep
time.sleep = lambda seconds: sleep(seconds * {second})
exec(compile(open({probe!r}).read(), {probe!r}, "exec"))
"""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONG = re.compile(r"<(\d+) characters>")
_KEPT = ("filled_mib", "slept", "tree", "trees", "again", "read", "before", "attempt", "ready", "left", "done")


@dataclass
class Repeated:
    """A recorded run and its repetition."""

    record: dict[str, Any]
    run: Run
    objects: list[str]


def group(name: str) -> str:
    """Runs of one group share a backend and go one after another."""
    if name.startswith(SCENARIOS):
        return "cache"
    return next((one for one in TOGETHER if name.startswith(one)), name)


@pytest.fixture(scope="module")
def repeated(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Repeated]:
    """Every recorded run within scope, repeated."""
    cases = shared / "conformance/kubeflow"
    folder = tmp_path_factory.mktemp("kubeflow")
    probe = folder / "probe.py"
    probe.write_text(PROBE.format(second=SECOND, probe=str(cases / "probe/probe.py")))
    records = {path.stem: json.loads(path.read_text()) for path in sorted((cases / "recorded").glob("*.json"))}
    groups: dict[str, list[str]] = {}
    for name in sorted(set(records) - set(OUT_OF_SCOPE)):
        groups.setdefault(group(name), []).append(name)

    def repeat(names: list[str]) -> dict[str, Repeated]:
        objects = Folder(folder / names[0] / "bucket")
        engine = Process({"/probe.py": str(probe)}, env={"LC_CTYPE": "C.UTF-8"})
        pods = folder / names[0] / "pods"
        backend = Backend(objects, engine, pods, {"probe-secret": {"key": "secret"}}, second=SECOND)
        found = {}
        for name in names:
            record = records[name]
            documents = load(cases / f"pipelines/{name}.yaml")
            if name == "leaves-child":
                documents = json.loads(json.dumps(documents).replace("'20'", "'1'"))
            root = "minio://mlpipeline/other/root" if name == "pipeline-root" else "minio://mlpipeline/v2/artifacts"
            run = backend.prepare(documents[0], root=root)
            if name == "cache-6-data-deleted":
                for path in objects.path("minio://mlpipeline").rglob("data"):
                    path.unlink()
            backend.started = interrupt(name, run)
            caching = None if name.startswith("cache-") else False
            backend.run(documents, arguments(name, record), enable_caching=caching, run=run)
            found[name] = Repeated(record, run, [f"{path}  {size}" for path, size in uploaded(objects, run)])
        return found

    with ThreadPoolExecutor(4) as pool:
        return {name: one for found in pool.map(repeat, groups.values()) for name, one in found.items()}


def arguments(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Run arguments; long texts are recorded by their length."""
    letter = '"' if "quotes" in name else "y"
    found = record.get("arguments", {})
    lengths = {key: _LONG.fullmatch(value) for key, value in found.items() if isinstance(value, str)}
    return {**found, **{key: letter * int(length[1]) for key, length in lengths.items() if length}}


def interrupt(name: str, run: Run) -> Any:
    """What the recorder did while the program ran."""

    def act(attempt: Attempt) -> None:
        until(lambda: b'"ready": true' in attempt.log, f"{name}: the program to be ready")
        if name == "pod-deleted":
            attempt.delete("deleted")
        else:
            run.terminate()

    def during(attempt: Attempt) -> None:
        if name == "pod-deleted" or name.startswith("terminate"):
            threading.Thread(target=act, args=[attempt]).start()

    return during


def uploaded(objects: Folder, run: Run) -> list[tuple[str, int]]:
    return [(path, len(objects.get(f"{run.job.root}/{path}"))) for path in objects.list(run.job.root)]


def plain(value: Any, pipeline: str) -> Any:
    """A value with what is different in every run replaced: ids, names of workflows and pods, numbers, times."""
    if isinstance(value, dict):
        if set(value) >= {"name", "uri", "metadata"}:
            value = {**value, "name": "<number>"}
        return {
            key: "<session>" if key == "store_session_info" else plain(item, pipeline) for key, item in value.items()
        }
    if isinstance(value, list):
        return [plain(item, pipeline) for item in value]
    if not isinstance(value, str):
        return value
    value = _UUID.sub("<uuid>", value)
    value = re.sub(rf"\b{re.escape(pipeline)}-[a-z0-9]{{5}}\b", "<workflow>", value)
    value = re.sub(r"impl-\d+", "impl-<number>", value)
    value = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", value)
    return "<id>" if pipeline == "special-placeholders" and re.fullmatch(r"\d+", value) else value


def said(attempt: Attempt) -> dict[str, Any]:
    """What the program printed of how it was started, in the form of a record."""
    lines = re.findall(r"^(PROBE|NOTE|END) (\{.*\})$", attempt.log.decode(errors="replace"), re.MULTILINE)
    found = [(kind, json.loads(text)) for kind, text in lines]
    (probe,) = [value for kind, value in found if kind == "PROBE"]
    return {
        "argv": probe["argv"],
        "executor_input": probe["executor_input"],
        "output_paths": {
            key: (one["itself"]["exists"], one["parent"]["exists"])
            for key, one in probe["output_paths"].items()
            if not key.startswith("input ")
        },
        "notes": [value for kind, value in found if kind == "NOTE"],
        "env": {name for name in probe["env"] if name.startswith(("KFP_", "PLAIN", "FROM_SECRET"))},
        "cwd": probe["cwd"],
    }


def notes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The notes of a snippet without what the machine decides."""
    kept = [{key: value for key, value in note.items() if key in _KEPT} for note in found]
    return json.loads(re.sub(r'"is_file": \d+', '"is_file": 0', json.dumps([note for note in kept if note])))


def states(record: dict[str, Any], pipeline: str) -> set[tuple[str, str]]:
    """(entry of REST, state it ended in); entries of one name are told apart by their states only."""
    final = {"SUCCEEDED", "FAILED", "SKIPPED"}
    entries = {(name, state) for _, name, state in record["changes"] if state in final and name not in {"run", ""}}
    return {(name, state) for name, state in entries if not re.fullmatch(rf"{pipeline}-[a-z0-9]{{5}}", name)}


def shortened(texts: list[str]) -> list[Any]:
    """Texts as the probe prints them: a long one by its length, digest and beginning."""
    return [
        {"length": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest(), "starts": text[:60]}
        if len(text) > 3000
        else text
        for text in texts
    ]


def ordered(values: dict[str, Any]) -> str:
    """Output parameters as a text to compare; a long one is recorded by its length."""
    short = {key: f"<{len(one)} characters>" if len(str(one)) > 3000 else one for key, one in values.items()}
    return json.dumps({key: float(one) if type(one) is int else one for key, one in short.items()}, sort_keys=True)


def entry(node: str) -> str:
    """What REST calls a node: the last part of its place."""
    parts = node.split(".")
    return ".".join(parts[-2:]) if parts[-1] == "onExit" else parts[-1]


def compare(name: str, one: Repeated) -> None:
    """Assert that a repetition is what was recorded."""
    record, run = one.record, one.run
    pipeline = run.job.pipeline
    assert run.state == record["state"], run.failures()
    ended = {(entry(node), state) for node, state in run.nodes.items()}
    if name == "output-140k":  # the workflow was given up, and its nodes kept the states they had
        ended &= states(record, pipeline)
    assert ended == states(record, pipeline)

    attempts = {attempt.node: attempt for attempt in run.attempts}
    recorded = {found["node"]: found for found in record.get("executors", []) if found["node"] != "root.importer"}
    if name != "pod-deleted":  # the recorder found no pod to ask
        assert {node: "Succeeded" if attempt.succeeded else "Failed" for node, attempt in attempts.items()} == {
            node: found["phase"] for node, found in recorded.items()
        }
    for node, found in recorded.items():
        if found.get("argv") is None:
            assert attempts[node].exit_code, f"{node}: the program was started"
            continue
        mine = said(attempts[node])
        assert mine["argv"] == shortened(attempts[node].command[2:]), node
        argv = [
            "<executor_input>" if known == "<executor_input>" and text == attempts[node].executor_input else text
            for known, text in zip(found["argv"], attempts[node].command[3:], strict=True)
        ]
        assert shortened(plain(argv, pipeline)) == plain(found["argv"], pipeline), node
        assert plain(mine["executor_input"], pipeline) == plain(found.get("executor_input"), pipeline), node
        paths = {key: (path["exists"], path["parent_exists"]) for key, path in found.get("output_paths", {}).items()}
        assert mine["output_paths"] == paths, node
        if name != "places":  # which places of the image can be written
            assert notes(mine["notes"]) == notes(found.get("notes", [])), node
        env = {text for text in found.get("env_names", []) if text.startswith(("KFP_", "PLAIN", "FROM_SECRET"))}
        assert mine["env"] == env or not env, node

    executions = [
        (found["properties"]["task_name"], found)
        for found in (record.get("mlmd") or {}).get("executions", [])
        if found["type"] == "ContainerExecution" and found["state"] in {"COMPLETE", "CACHED"}
    ]
    made = [(execution.task, execution) for execution in run.executions if execution.state in {"COMPLETE", "CACHED"}]
    assert sorted((task, one.state, ordered(one.outputs.parameters)) for task, one in made) == sorted(
        (task, found["state"], ordered(found["properties"].get("outputs", {}))) for task, found in executions
    )

    objects, known = shape(one.objects), shape(record.get("objects") or [])
    if known and known[-1].startswith("…"):  # "… 2002 in all"
        assert len(objects) == int(known[-1].split()[1])
        objects, known = objects[: len(known) - 1], known[:-1]
    if name.startswith("artifact-uri-"):  # of several artifacts the launcher uploads any one first
        known = [path for path in known if "executor-logs" not in path]
    assert objects == known


def shape(objects: list[str]) -> list[str]:
    """Objects as ``<task>/<uuid>/<path>  <size>``; of logs the size differs, the launcher's own lines are in them."""
    return [_UUID.sub("<uuid>", re.sub(r"(executor-logs-\d+)  \d+", r"\1", path)) for path in objects]


def test_every_recorded_case(shared: Path, repeated: dict[str, Repeated], subtests: pytest.Subtests) -> None:
    recorded = {path.stem for path in (shared / "conformance/kubeflow/recorded").glob("*.json")}
    assert set(OUT_OF_SCOPE) <= recorded
    pods = sum(len(one.run.attempts) for one in repeated.values())
    print(f"{len(recorded)} recorded runs: {len(repeated)} compared ({pods} pods), {len(OUT_OF_SCOPE)} out of scope")
    assert len(recorded) == len(repeated) + len(OUT_OF_SCOPE) == 141
    for name, one in repeated.items():
        with subtests.test(name):
            compare(name, one)


def test_a_loop_runs_no_more_iterations_at_a_time_than_its_limit(shared: Path, tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def count(step: int) -> Any:
        def during(attempt: Attempt) -> None:
            nonlocal now, most
            with lock:
                now += step
                most = max(most, now)

        return during

    probe = {"/probe.py": str(shared / "conformance/kubeflow/probe/probe.py")}
    backend = Backend(Folder(tmp_path / "bucket"), Process(probe), tmp_path / "pods", before=count(1), after=count(-1))
    pipeline, *_ = load(shared / "conformance/kubeflow/pipelines/loop-static.yaml")
    text = json.dumps(pipeline).replace("time.sleep(3)", "time.sleep(0.3)")
    run = backend.run([json.loads(text)])
    assert run.state == "SUCCEEDED", run.failures()
    assert (most, len(run.attempts)) == (2, 5)


def test_the_lint_finds_the_traps_in_the_pipelines_that_were_recorded(shared: Path) -> None:
    assert set(TRAPS) == set(lint.RULES)
    cases = shared / "conformance/kubeflow"
    for rule, runs in TRAPS.items():
        for run in runs:
            assert (cases / f"recorded/{run}.json").is_file()
            assert rule in {one.rule for one in lint.lint(load(cases / f"pipelines/{run}.yaml"))}, run
