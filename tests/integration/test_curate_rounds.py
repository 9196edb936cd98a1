"""The rounds of curate: what their keys say, and a kill at any instant of any."""

import dataclasses
import json
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.engine import runner, shards, shuffle
from pairmill.engine.options import WorkerSlice
from pairmill.engine.rounds import rounds_of as shards_by_round
from pairmill.engine.runner import Together
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.curate.core import Curate
from tests.support import tools
from tests.support.helpers import REPOSITORY
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.stages import curating
from tests.support.stages.curating import text

KILLS = 1
NEAR = " and so on, with some more words after the last of these"


def rows(base: Path, copies: int = 18) -> Path:
    """Two files with exact duplicates, near duplicates, a family of many, and documents."""
    family = [("", f"{text(30)} {number} apples", f"{text(31)} {number * 7}") for number in range(copies)]
    one, two = ("", text(1), text(2)), ("", text(3), text(4) * 2)
    document = " ".join(text(at) for at in range(40, 46))
    files = {
        "a.jsonl": [one, one, two, ("", text(3), text(4) * 2 + NEAR), *family],
        "b.parquet": [("", "", document), ("", "", document + NEAR), ("", text(5), text(6)), one, *family[:3]],
    }
    return curating.write(base / "rows", files)


def settings(base: Path, more: str = "") -> str:
    """Settings with a benchmark that has an item among the rows."""
    if not (base / "exam.jsonl").exists():  # a file that is written again has another stamp
        (base / "exam.jsonl").write_text(json.dumps({"q": text(5), "a": text(6)}) + "\n")
    said = f"decontaminate: {{benchmarks: [{{name: exam, uri: {base}/exam.jsonl, question: q, answers: a}}]}}\n"
    return curating.settings(base, said + more)


def config_of(base: Path, root: Path, more: str = "", **options: Any) -> CurateConfig:
    given = {"rows": [str(base / "rows")], "root": str(root), "curate_config": settings(base, more), "workers": 1}
    return CurateConfig(**{**given, **options})


def rounds_of(config: CurateConfig) -> Iterator[Sequence[Shard[Any]]]:
    """The shards of each round, which are run before the next."""
    stage = Curate()
    plan = stage.plan(config)
    rounds = shards_by_round(stage, config, plan)
    cache = storage.join(storage.normalise(config.root, "root"), stage.name, "shards")
    records: list[ShardRecord] | None = None
    while True:
        try:
            some = next(rounds) if records is None else rounds.send(records)
        except StopIteration:
            return
        yield some
        records = [shards.run_shard(stage.name, one, plan.context, cache)() for one in some]


VARIANTS = [
    "",
    "prefer: longest_response\n",
    "same_condition_only: true\n",
    "report_all: true\n",
    "exact: {form: raw}\n",
    "exact: {response: drop}\n",
    "exact: {max_responses_per_instruction: 1}\n",
    "exact: {mode: report}\n",
    "near: {mode: report}\n",
    "near: {bands: 20}\n",
    "near: {refine: false}\n",
    "near: {number_guard: instruction}\n",
    "near: {min_response: 5}\n",
    "heuristics: {mode: drop, profile: none, rules: [{metric: words, min: 3}]}\n",
    "heuristics: {mode: report, profile: seed_web}\n",
    "filter: {mode: drop, rules: [{name: long, attribute: heuristics.r_words, max: 60}]}\n",
    "pii: {mode: report}\n",
    "pii: {mode: redact}\n",
    "source_priority: [b]\n",
    "overrides: [{prefix: b, near: report}]\n",
    "near: off\n",
]


def meaning(one: Shard[Any]) -> str:
    """A shard without what changes no byte: its size, the rank of a slice, which of some shards of equal bytes is
    read, where the rows are that exact deduplication finds (which rows those are is in a key), and of the settings of
    near deduplication what decides later."""
    said = re.sub(r"/shards/[0-9a-f]+(/[0-9a-f]{16})?", "/shards/", repr(dataclasses.replace(one, size=0)))
    said = re.sub(r"(?<=, )number=\d+(?=, fixed=)", "", said)
    said = re.sub(r"(?<=decisions=)Stored\(.*?\)(?=, rules=)", "", said)
    settings = r"(?<=NearSettings\()mode='\w+'"
    said = re.sub(settings, "", said)
    return re.sub(r"refine=\w+", "", said) if type(one).__name__ == "Sign" else said


def test_shards_of_equal_keys_are_equal_whatever_the_settings(tmp_path: Path) -> None:
    """All that a shard works with is in the shard; what of it is not in its key would give other bytes for one key."""
    rows(tmp_path)
    known: dict[str, str] = {}
    equal = 0
    for more in VARIANTS:
        for write_index in (False, True) if not more else (False,):
            for some in rounds_of(config_of(tmp_path, tmp_path / "root", more, write_index=write_index)):
                for one in some:
                    said = meaning(one)
                    equal += one.key in known
                    assert known.setdefault(one.key, said) == said, f"{more}: {one.name}"
    assert len(known) > 100
    assert equal > 100


# The first kind of shard that a setting redoes. What follows it is redone as far as its results differ.
FIRST = {
    "prefer: longest_response\n": "ReadKeys",
    "same_condition_only: true\n": "ReadKeys",
    "exact: {form: raw}\n": "ReadKeys",
    "source_priority: [b]\n": "FindEqual",
    "near: {bands: 20}\n": "Sign",
    "near: {number_guard: instruction}\n": "Sign",
    "near: {min_response: 5}\n": "Sign",
    "exact: {mode: report}\n": "Sign",  # of which rows are looked at
    "near: {refine: false}\n": "Buckets",
    "near: {mode: report}\n": "Decide",
    "exact: {response: drop}\n": "FindEqual",
    "heuristics: {mode: report, profile: seed_web}\n": "Decide",
    "filter: {mode: drop, rules: [{name: long, attribute: heuristics.r_words, max: 60}]}\n": "Decide",
    "pii: {mode: report}\n": "Score",
    "pii: {mode: redact}\n": "Score",
}
REDONE = {"pii: {mode: report}\n": {"Score", "Summarise"}, "pii: {mode: redact}\n": {"Score", "WriteRows", "Summarise"}}


def test_a_setting_redoes_what_depends_on_it_and_nothing_before(tmp_path: Path) -> None:
    rows(tmp_path)

    def keys(more: str = "", **options: Any) -> dict[str, str]:
        """The kind of each shard by key, in the order of rounds."""
        some = rounds_of(config_of(tmp_path, tmp_path / "root", more, **options))
        return {one.key: type(one).__name__ for round_ in some for one in round_}

    before = keys()
    for more, first in FIRST.items():
        new = [kind for key, kind in keys(more).items() if key not in before]
        assert new[0] == first, f"{more}: {new}"
        assert more not in REDONE or set(new) == REDONE[more]
    for options in ({"workers": 2}, {"verify": True}, {"raw": str(tmp_path)}):
        assert keys(**options) == before, options


def test_a_share_goes_through_every_round(tmp_path: Path) -> None:
    rows(tmp_path)
    whole = runner.run(Curate(), config_of(tmp_path, tmp_path / "whole", write_index=True))
    config = config_of(tmp_path, tmp_path / "root", write_index=True)
    # Alone it does the others' shards too.
    done = runner.run_share(Curate(), config, Together(WorkerSlice(2, 3), patience=0.0, pause=0.05))
    before = curating.shards(tmp_path / "root")
    assert len(done.manifest.shards) == len(before)
    assert tools.digests(Path(runner.run(Curate(), config).uri)) == tools.digests(Path(whole.uri))
    assert curating.shards(tmp_path / "root") == before


def files_of(root: Path, key: str) -> list[str]:
    record = json.loads((root / "curate" / "shards" / key / tools.RECORD).read_text())
    return [file["path"] for file in record["files"]]


def test_a_kill_at_every_call_of_the_store_in_every_round(
    tmp_path: Path, shm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few runs would be read as they are.
    monkeypatch.setattr(shuffle, "fans", lambda runs, *_: [2, 2] if runs else [])
    rows(tmp_path, copies=17)
    # One file: what is enumerated are rounds, and each shard of a round leaves the same.
    table = curating.kept(tmp_path / "rows", "b.parquet")
    (tmp_path / "rows" / "b.parquet").unlink()
    curating.write(tmp_path / "rows", {"a.jsonl": [*curating.kept(tmp_path / "rows", "a.jsonl"), *table]})
    more = "exact: {response: off, instruction: off}\nheuristics: off\n"
    whole = Path(runner.run(Curate(), config_of(tmp_path, shm / "whole", more)).uri)
    dropped = tools.read_manifest(whole)["ledger"]["dropped"]
    assert dropped.keys() == {"dup_exact", "dup_near", "contaminated_question_answer"}
    wanted = tools.digests(whole)
    root = shm / "root"
    root.mkdir()
    config = config_of(tmp_path, root, more)
    instant = 0
    for instant in crashes(lambda: runner.run(Curate(), config), root, stride=STRIDE):
        again = Path(runner.run(Curate(), config).uri)
        assert tools.digests(again) == wanted, f"killed at instant {instant}"
        shutil.rmtree(root / "curate")
    assert instant > 100


def test_a_run_that_is_killed_at_a_random_instant_is_finished_by_the_next(tmp_path: Path) -> None:
    rows(tmp_path, copies=60)
    path = settings(tmp_path)
    given = {"rows": tmp_path / "rows", "curate_config": path, "workers": 2}
    start = time.monotonic()
    wanted = tools.digests(
        tools.folder(tools.run(tools.command("curate", **given, root=tmp_path / "whole"), fresh=True))
    )
    took = time.monotonic() - start
    rng = random.Random(1)
    mark = f"curate-{tmp_path.name}-{time.time_ns()}"
    for _ in range(KILLS):
        child = subprocess.Popen(
            tools.command("curate", **given, root=tmp_path / "root"),
            cwd=REPOSITORY,
            env=tools.environment(mark),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(took * rng.uniform(0.3, 0.95))
        child.send_signal(signal.SIGKILL)
        child.wait()
        tools.wait_until_gone(mark)
        done = tools.run(tools.command("curate", **given, root=tmp_path / "root"), fresh=True)
        assert tools.digests(tools.folder(done)) == wanted
        shutil.rmtree(tmp_path / "root")
