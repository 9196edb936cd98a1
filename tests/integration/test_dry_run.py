"""``dry_run=true`` says what the run then takes, and leaves nothing."""

import json
import subprocess
from pathlib import Path

import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.formats.results.sample import SampleResult
from pairmill.line.measured import disk_bytes
from tests.support import tools
from tests.support.helpers import environment
from tests.support.processes import nursery
from tests.support.servers.downloads import Hub

CLOSE = 1.5
RECORDS = 2_000


def run(temporary: Path, *arguments: str, program: str = "pairmill") -> "subprocess.CompletedProcess[str]":
    variables = {**environment(), "TMPDIR": str(temporary)}
    return nursery.shared(nursery.PIPELINES).run(program, ["run", *arguments], variables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw files of sources whose tasks have their own names, and rules with a cap."""
    top = tmp_path_factory.mktemp("dry")
    tools.write_gsm8k(top / "raw" / "gsm8k_train" / "main" / "train-00000-of-00001.parquet", tools.gsm8k(RECORDS))
    for number in range(3):
        text = tools.dmmath(RECORDS, seed=number)
        tools.write_text(top / "raw" / "dmmath" / "train-easy" / f"algebra_{number}.txt", text)
    (top / "rules.yaml").write_text("- prefix: dmmath__\n  max_per_file: 700\n- prefix: gsm8k\n  repeat: 2\n")
    (top / "tmp").mkdir()
    return top


def options(folder: Path) -> list[str]:
    return [
        f"raw={folder / 'raw'}",
        f"root={folder / 'root'}",
        f"prefix_config_path={folder / 'rules.yaml'}",
        f"output_path={folder / 'out'}",
        "vocab_size=400",
        "epochs=2",
    ]


def finished(folder: Path) -> Manifest:
    """The manifest of the only result of a stage."""
    (made,) = filter(None, (manifests.read(str(path)) for path in folder.glob("[0-9a-f]*")))
    return made


def test_an_estimate_is_what_the_run_then_takes(folder: Path) -> None:
    # Of two thousand records the second sample would be the whole.
    done = run(folder / "tmp", *options(folder), "dry_run=json", program="tests.support.processes.small_samples")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert 256 < made["measured"]["records_of_each_source"] < RECORDS
    assert list((folder / "tmp").iterdir()) == []
    assert not (folder / "root").exists()
    assert not (folder / "out").exists()
    done = run(folder / "tmp", *options(folder))
    assert done.returncode == 0, done.stderr
    by_stage = {item["stage"]: item for item in made["tasks"]}
    for stage in ("clean", "curate", "tokenize"):
        manifest = finished(folder / "root" / stage)
        assert by_stage[stage]["rows"] == pytest.approx(manifest.ledger.rows_out, rel=0.1)
    tokens = sum(item.measures["tokens"] for item in manifest.shards.values())
    assert 1 / CLOSE < by_stage["tokenize"]["tokens"] / tokens < CLOSE
    stats = SampleResult.from_manifest(finished(folder / "root" / "sample")).stats.values()
    assert by_stage["sample"]["rows"] == pytest.approx(sum(item["cov_rows"] for item in stats), rel=0.1)
    size = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
    assert 1 / CLOSE < made["arrays_bytes"] / size < CLOSE
    disk = sum(disk_bytes(folder / "root" / name) for name in ("clean", "curate", "tokenizer", "tokenize", "sample"))
    assert 1 / CLOSE < made["total"]["disk_bytes"] / disk < CLOSE


def test_of_little_data_the_table_is_that_of_the_run(folder: Path) -> None:
    done = run(folder / "tmp", *options(folder), "limit=50", "dry_run=true")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["stage", "minutes", "rows", "tokens", "disk", "memory"]
    (clean,) = [line.split() for line in lines if line.split()[:1] == ["clean"]]
    assert clean[2] == "100"
    assert "nothing was left behind" in lines[-1]
    assert list((folder / "tmp").iterdir()) == []


def test_a_stage_that_fails_on_the_sample_says_why(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "raw" / "gsm8k_train").mkdir(parents=True)
    (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").write_text("{\n" * 30)
    done = run(folder / "tmp", f"raw={tmp_path / 'raw'}", f"root={tmp_path / 'root'}", "dry_run=true")
    assert (done.returncode, done.stdout) == (3, "")
    assert "30 of 30 records of gsm8k_train are malformed" in done.stderr
    assert list((folder / "tmp").iterdir()) == []
    assert not (tmp_path / "root").exists()


def test_what_has_to_be_fetched_is_counted_and_not_kept(folder: Path, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"q": f"What is {n}?", "a": f"It is {n}."}) + "\n" for n in range(4 * RECORDS)).encode()
    (tmp_path / "mine.yaml").write_text("name: mine\nhub: org/mine\ncondition: direct\ninstruction: q\nresponse: a\n")
    given = [f"sources={tmp_path / 'mine.yaml'}", f"root={tmp_path / 'root'}", "vocab_size=400", "dry_run=json"]
    with Hub() as hub:
        hub.add("org/mine", {"data/train.jsonl": lines, "README.md": b"---\nlicense: mit\n---\n"})
        variables = {**environment(), **hub.environment(tmp_path / "home"), "TMPDIR": str(folder / "tmp")}
        done = nursery.shared(nursery.PIPELINES).run("pairmill", ["run", *given], variables)
        assert done.returncode == 0, done.stderr
        made, asked = json.loads(done.stdout), len(hub.requests)
        fetch = ["fetch", given[0], f"root={tmp_path / 'fetched'}"]
        done = nursery.shared(nursery.PIPELINES).run("pairmill", fetch, variables)
        assert done.returncode == 0, done.stderr
        asked = len(hub.requests) - asked
    assert made["total"]["fetched_bytes"] == pytest.approx(len(lines), rel=0.01)
    assert 1 / CLOSE < made["total"]["requests"] / asked < CLOSE
    assert made["records"]["mine"] == pytest.approx(4 * RECORDS, rel=0.1)
    assert list((folder / "tmp").iterdir()) == []
    assert not (tmp_path / "root").exists()


def test_finished_rows_are_not_sampled(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"condition": "direct", "instruction": "a", "response": "b"}\n')
    done = run(folder / "tmp", f"rows={tmp_path / 'rows.jsonl'}", f"root={tmp_path / 'root'}", "dry_run=true")
    assert done.returncode == 2
    assert "leave dry_run= out" in done.stderr


@pytest.mark.parametrize("text", ["perhaps", "1"])
def test_only_true_and_json_ask_for_an_estimate(text: str, folder: Path) -> None:
    done = run(folder / "tmp", *options(folder), f"dry_run={text}")
    assert done.returncode == 2
    assert "dry_run: not a valid value" in done.stderr
