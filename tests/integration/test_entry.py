"""Entry points: a run that is given rows, a tokenizer or token folders ends as the run that made them."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pairmill.engine.manifest import MANIFEST
from pairmill.errors import PairmillError
from pairmill.interface import stagecli
from pairmill.interface.cli import Outcome
from pairmill.kubeflow.compile import MAX_WORKERS, CompileConfig
from pairmill.kubeflow.compile import run as compile_one
from pairmill.line.parameters import Parameters, idle
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.integration.test_fetch import Forge
from tests.support import tools
from tests.support.data.results import upload
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes.emulator import Backend, Folder, Forked, load
from tests.support.processes.crash_points import crashes
from tests.support.servers.downloads import Files, Hub
from tests.support.stages.fetching import ask_here
from tests.support.tools import STAGES

CARD = b"---\nlicense: mit\n---\nRows.\n"
VOCAB = 500


@dataclass
class Whole:
    """A run of every stage: its folders and its arrays."""

    raw: Path
    rules: Path
    clean: Path
    tokenizer: Path
    tokenized: Path
    arrays: dict[str, str]

    def options(self, **given: object) -> dict[str, object]:
        """Of a pipeline that has to end with the same arrays."""
        return {"prefix_config_path": self.rules, "epochs": 2, **given}


def arrays(folder: Path) -> dict[str, str]:
    """Digests of a sampled folder; its manifest apart."""
    found = tools.digests(folder)
    assert found.pop(MANIFEST)
    assert len(found) > 8
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    base = tmp_path_factory.mktemp("whole")
    raw, root = base / "raw", str(base / "root")
    tools.raw_data(raw, size=60)
    rules = tools.rules(base / "rules.yaml", "- prefix: dmmath__\n  max_per_file: 40\n")
    fetched = made(Fetch(), FetchConfig(root=root, raw=str(raw), workers=1))
    clean = made(Clean(), CleanConfig(root=root, raw=fetched, workers=1))
    tokenizer = made(
        TrainTokenizer(),
        TrainTokenizerConfig(
            root=root, rows=[clean], vocab_size=VOCAB, workers=1, prefix_config_path=str(rules), evaluate=False
        ),
    )
    tokenized = made(Tokenize(), TokenizeConfig(root=root, rows=[clean], tokenizer=tokenizer, workers=1))
    out = base / "arrays"
    sample.run(
        SampleConfig(root=root, tokenized_path=tokenized, output_path=str(out), epochs=2, prefix_config_path=str(rules))
    )
    return Whole(raw, rules, Path(clean), Path(tokenizer), Path(tokenized), arrays(out))


def run(stage: object, config: object) -> Outcome:
    return stagecli.run(stage, config)  # type: ignore[arg-type]


def made(stage: object, config: object) -> str:
    """The folder that a stage made."""
    return run(stage, config).stdout.strip()


def tree(folder: Path, *, data: bool = False) -> dict[str, bytes]:
    """The files below a folder by path; of a cleaned one, with ``data``, only its rows."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: content for path, content in found.items() if path.startswith("data") or not data}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub that this process talks to."""
    with Hub() as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


def fetched(root: Path, **options: object) -> Outcome:
    return run(Fetch(), FetchConfig(root=str(root), workers=1, **options))  # type: ignore[arg-type]


def pins(root: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load((root / "sources.lock.yaml").read_text())["sources"]
    return found


# --- the same arrays ------------------------------------------------------------------------------------------------

ENTRIES = {
    "rows": ["fetch", "curate", "train_tokenizer", "tokenize", "sample"],
    "rows and tokenizer": ["fetch", "curate", "tokenize", "sample"],
    "tokenized": ["fetch", "sample"],
}
"""By what is given, the stages that are left."""


def given(whole: Whole, entry: str) -> dict[str, object]:
    rows, tokenizer = {"rows": whole.clean}, {"tokenizer": whole.tokenizer}
    vocabulary = {"vocab_size": VOCAB}
    return {
        "rows": {**rows, **vocabulary},
        "rows and tokenizer": {**rows, **tokenizer},
        "tokenized": {"tokenized": whole.tokenized},
    }[entry]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_pipeline_on_this_machine_ends_with_the_arrays_of_the_whole_line(
    whole: Whole, entry: str, tmp_path: Path
) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    options = whole.options(root=root, output_path=out, **given(whole, entry))
    done = tools.ended(tools.run(tools.command("run", **options)))
    assert arrays(out) == whole.arrays
    stages = [line.split()[0] for line in done.out.splitlines() if line.split()[1:2] == ["made"]]
    assert stages == ENTRIES[entry]
    # Nothing was copied: the root has less than what was given.
    size = sum(path.stat().st_size for path in (root / "fetch").rglob("*") if path.is_file())
    assert size < 20_000
    assert not (root / "clean").exists()


@pytest.mark.parametrize(
    ("name", "entry"),
    [("pretraining", "rows and tokenizer"), ("pretraining-parallel", "rows"), ("pretraining-parallel", "tokenized")],
)
def test_a_compiled_pipeline_passes_on_what_is_given(whole: Whole, name: str, entry: str, tmp_path: Path) -> None:
    backend = Backend(Folder(tmp_path / "objects"), Forked(), tmp_path / "pods", second=0.01)
    options = whole.options(root=tmp_path / "root", output_path=tmp_path / "out", **given(whole, entry))
    arguments = {key: value if isinstance(value, int) else str(value) for key, value in options.items()}
    run = backend.run(load(REPOSITORY / f"pipelines/compiled/{name}.yaml"), arguments)
    assert run.state == "SUCCEEDED", run.failures()
    assert arrays(tmp_path / "out") == whole.arrays
    # In a pipeline for any run a stage that has nothing to do has its pods too.
    shares = [attempt for attempt in run.attempts if "-share" in attempt.task]
    assert len(shares) == (5 * (MAX_WORKERS - 1) if name.endswith("parallel") else 0)
    assert len(run.attempts) == len(STAGES) + len(shares)
    left = set(ENTRIES[entry])
    for attempt in run.attempts:
        stage = attempt.task.replace("-", "_")
        if stage in {"clean", "train_tokenizer", "tokenize"} - left:
            output = run.outputs[attempt.task].parameters["output"]
            passed = {"clean": whole.clean, "train_tokenizer": whole.tokenizer, "tokenize": whole.tokenized}[stage]
            assert output == str(passed) or entry == "tokenized"
    # Beside the finished folders are those of their writers.
    made = [path.parent for path in (tmp_path / "root").glob(f"*/given/*/{MANIFEST}")]
    assert made
    for path in made:
        assert {file.name for file in path.iterdir()} == {MANIFEST, "_STARTED.json", "report.html", "report.md"}


def test_a_pipeline_compiled_for_one_run_has_no_pod_for_what_is_given(whole: Whole, tmp_path: Path) -> None:
    # As pairmill.kubeflow.submit compiles it.
    options = whole.options(root=tmp_path / "root", output_path=tmp_path / "out", **given(whole, "tokenized"))
    arguments = {key: value if isinstance(value, int) else str(value) for key, value in options.items()}
    parameters = vars(Parameters(**{**arguments, "root": str(tmp_path / "root")}))  # type: ignore[arg-type]
    target = tmp_path / "pipeline.yaml"
    compile_one(CompileConfig(output=str(target), workers=2), idle(parameters, here=True))
    backend = Backend(Folder(tmp_path / "objects"), Forked(), tmp_path / "pods", second=0.01)
    run = backend.run(load(target), arguments)
    assert run.state == "SUCCEEDED", run.failures()
    assert [attempt.task for attempt in run.attempts] == ["fetch", "sample"]
    assert arrays(tmp_path / "out") == whole.arrays


def test_rows_are_joined_to_sources_that_are_named(whole: Whole, tmp_path: Path) -> None:
    tools.raw_data(tmp_path / "raw", size=10, seed=1)
    shutil.rmtree(tmp_path / "raw" / "gsm8k_train")
    rows = tmp_path / "rows"
    (rows / "data").mkdir(parents=True)
    shutil.copy(next(whole.clean.rglob("gsm8k_train.jsonl")), rows / "data" / "gsm8k_train.jsonl")
    root = str(tmp_path / "root")
    raw = {"raw": str(tmp_path / "raw"), "sources": ["scibench"]}
    found = fetched(tmp_path / "root", rows=[str(rows)], **raw)
    folder, passed = found.stdout.splitlines()
    assert passed == str(rows / "data")
    assert found.parameters["given_rows"] == passed
    cleaned = run(Clean(), CleanConfig(root=root, raw=folder, sources=["scibench"], rows=[passed], workers=1))
    both = str(cleaned.parameters["output"]).split(",")
    assert both[0] == passed
    tokenized = run(
        Tokenize(), TokenizeConfig(root=root, rows=both, tokenizer=str(whole.tokenizer), workers=1)
    ).stdout.strip()
    names = {path.name for path in Path(tokenized).iterdir() if path.is_dir()}
    assert names == {"gsm8k_train.jsonl", "Platypus__scibench.jsonl"}


def test_a_comma_in_the_place_of_rows_stays_one_place(whole: Whole, tmp_path: Path) -> None:
    rows = tmp_path / "a,b" / "data"
    rows.mkdir(parents=True)
    shutil.copy(next(whole.clean.rglob("gsm8k_train.jsonl")), rows)
    found = fetched(tmp_path / "root", rows=[str(rows.parent)])
    escaped = str(rows).replace(",", "\\,")
    assert found.parameters["given_rows"] == escaped
    cleaned = run(Clean(), CleanConfig(root=str(tmp_path / "root"), rows=[str(rows)]))
    assert cleaned.parameters["output"] == escaped


def test_a_stage_that_passes_on_says_so_once_and_reuses_it(whole: Whole, tmp_path: Path) -> None:
    config = CleanConfig(root=str(tmp_path), rows=[str(whole.clean)])
    first, again = run(Clean(), config), run(Clean(), config)
    assert first.stdout == again.stdout == f"{whole.clean}\n"
    assert (first.reused, again.reused) == (False, True)
    rows = tools.read_manifest(whole.clean)["ledger"]["rows_out"]
    assert first.parameters["rows_out"] == first.metrics["rows_out"] == rows > 0
    report = first.report()
    assert report.verdict == "rows= is given: it was checked and is passed on; nothing was read or copied."
    assert str(whole.clean) in report.markdown()
    (manifest,) = tmp_path.rglob(MANIFEST)
    assert manifest.read_bytes() == again.manifest()


def test_a_tokenizer_without_the_tokens_of_the_template_is_refused_before_anything_is_fetched(
    whole: Whole, hub: Hub, tmp_path: Path
) -> None:
    given = {"raw": str(whole.raw), "sources": ["gsm8k_train"]}
    lacking = r"no <\|begin_of_text\|>, .*; it has the tokens of template=hrm"
    with pytest.raises(PairmillError, match=lacking) as refused:
        fetched(tmp_path / "folder", tokenizer=str(whole.tokenizer), template="llama3", **given)
    assert refused.value.exit_code == 3
    assert not (tmp_path / "folder").exists()
    hub.add("o/tok", {"tokenizer.json": (whole.tokenizer / "tokenizer.json").read_bytes()}, kind="model")
    distant = {"tokenizer": "hf://o/tok", **given}
    with pytest.raises(PairmillError, match=lacking):
        fetched(tmp_path / "hub", template="llama3", **distant)
    # For its own template it is fetched; what is there already is not taken for another one.
    for template in ("hrm", "qwen", ""):
        assert fetched(tmp_path / "hub", template=template, **distant).parameters["given_tokenizer"]
    with pytest.raises(PairmillError, match=lacking):
        fetched(tmp_path / "hub", template="llama3", **distant)
    with pytest.raises(PairmillError, match=r"not a known template.*did you mean 'llama3'"):
        fetched(tmp_path / "hub", template="lama3", **distant)


# --- the Hub --------------------------------------------------------------------------------------------------------


def identities(whole: Whole, root: Path, rows: str, tokenizer: str) -> list[str]:
    """Fingerprints of what is made of rows, from train_tokenizer on."""
    trained = run(
        TrainTokenizer(),
        TrainTokenizerConfig(
            root=str(root), rows=rows.split(","), vocab_size=VOCAB, workers=1, prefix_config_path=str(whole.rules)
        ),
    )
    options = {"rows": rows.split(","), "tokenizer": tokenizer, "workers": 1}
    tokenized = run(Tokenize(), TokenizeConfig(root=str(root), **options))  # type: ignore[arg-type]
    sampled = sample.run(
        SampleConfig(root=str(root), tokenized_path=tokenized.stdout.strip(), prefix_config_path=str(whole.rules))
    )
    return [str(one.parameters["fingerprint"]) for one in (trained, tokenized, sampled)]


def test_the_same_rows_have_one_identity_on_the_hub_in_a_bucket_and_in_a_folder(
    whole: Whole, hub: Hub, s3: str, tmp_path: Path
) -> None:
    published = {"README.md": CARD, **tree(whole.clean, data=True)}
    commit = hub.add("o/rows", published)
    token = hub.add("o/tok", {"tokenizer.json": (whole.tokenizer / "tokenizer.json").read_bytes()}, kind="model")
    folder = tmp_path / "folder"
    for path, content in published.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    bucket = upload(folder, f"{s3}/rows")
    found = {}
    for name, place in {"hf": "hf://datasets/o/rows", "s3": bucket, "folder": str(folder)}.items():
        root = tmp_path / name
        parameters = fetched(root, rows=[place], tokenizer="hf://o/tok@main").parameters
        found[name] = identities(whole, root, str(parameters["given_rows"]), str(parameters["given_tokenizer"]))
        tasks = {path.parent.name for path in (root / "tokenize" / found[name][1]).glob("*/tokens.npy")}
        assert tasks == {path.parent.name for path in whole.tokenized.glob("*/tokens.npy")}
    assert found["hf"] == found["s3"] == found["folder"]
    locked = pins(tmp_path / "hf")
    assert locked["hf://datasets/o/rows@main"] == {
        "origin": "hf://datasets/o/rows@main",
        "revision": commit,
        "licence": "mit",
    }
    assert locked["hf://o/tok@main"]["revision"] == token
    manifest = tools.read_manifest(next((tmp_path / "hf" / "fetch").glob(f"*/{MANIFEST}")).parent)
    about = manifest["data"]["given"]["rows=hf://datasets/o/rows@main"]
    assert (about["licence"], about["revision"]) == ("mit", commit)


def test_what_is_on_the_hub_comes_into_a_project_in_a_bucket(whole: Whole, hub: Hub, s3: str, tmp_path: Path) -> None:
    hub.add("o/rows", {"data/a.jsonl": row() * 3})
    hub.add("o/tok", {"tokenizer.json": (whole.tokenizer / "tokenizer.json").read_bytes()}, kind="model")
    given = {"rows": ["hf://datasets/o/rows"], "tokenizer": "hf://o/tok"}
    found = {}
    for root in (f"{s3}/project", str(tmp_path)):
        parameters = run(Fetch(), FetchConfig(root=root, workers=1, **given)).parameters  # type: ignore[arg-type]
        rows, tokenizer = str(parameters["given_rows"]), str(parameters["given_tokenizer"])
        assert rows.startswith(f"{root}/given/rows/o--rows/")
        options = {"rows": [rows], "tokenizer": tokenizer, "workers": 1}
        encoded = run(Tokenize(), TokenizeConfig(root=root, **options))  # type: ignore[arg-type]
        found[root] = encoded.parameters["fingerprint"], encoded.parameters["rows_out"]
    assert len(set(found.values())) == 1
    assert run(Fetch(), FetchConfig(root=f"{s3}/project", workers=1, **given)).reused  # type: ignore[arg-type]


def test_a_result_that_was_published_whole_is_that_result(whole: Whole, hub: Hub, tmp_path: Path) -> None:
    hub.add("o/full", tree(whole.clean))
    hub.add("o/arrays", {f"v1/{path}": content for path, content in tree(whole.tokenized).items()})
    rows = fetched(tmp_path, rows=["hf://datasets/o/full"]).parameters["given_rows"]
    options = {"rows": [rows], "tokenizer": str(whole.tokenizer), "workers": 1}
    again = run(Tokenize(), TokenizeConfig(root=str(tmp_path), **options))  # type: ignore[arg-type]
    assert again.parameters["fingerprint"] == whole.tokenized.name
    place = fetched(tmp_path, tokenized="hf://datasets/o/arrays/v1").parameters["given_tokenized"]
    passed = run(Tokenize(), TokenizeConfig(root=str(tmp_path), rows=[], tokenizer="-", tokenized=str(place)))
    assert passed.stdout == f"{place}\n"
    assert {path: one for path, one in tree(Path(str(place))).items() if path.endswith(".npy")} == {
        path: one for path, one in tree(whole.tokenized).items() if path.endswith(".npy")
    }


def test_a_lock_holds_until_it_is_moved(whole: Whole, hub: Hub, tmp_path: Path) -> None:
    first = hub.add("o/rows", {"a.jsonl": row()})
    place = fetched(tmp_path, rows=["hf://datasets/o/rows"]).parameters["given_rows"]
    second = hub.add("o/rows", {"a.jsonl": row() + row()})
    hub.requests.clear()
    again = fetched(tmp_path, rows=["hf://datasets/o/rows"])
    assert again.reused
    assert not hub.requests
    assert again.parameters["given_rows"] == place
    assert first in str(place)
    moved = fetched(tmp_path, rows=["hf://datasets/o/rows"], update=["rows"])
    assert second in str(moved.parameters["given_rows"])
    assert Path(str(moved.parameters["given_rows"]), "a.jsonl").read_bytes() == row() + row()
    # Another path of the same repository is of the same commit.
    hub.add("o/rows", {"a.jsonl": row(), "b/c.jsonl": row()})
    hub.tag("o/rows", "v1", hub.add("o/rows", {"b/c.jsonl": row()}))
    with pytest.raises(PairmillError, match="no such file at this revision"):
        fetched(tmp_path, rows=["hf://datasets/o/rows/b"])
    tagged = fetched(tmp_path, rows=["hf://datasets/o/rows@v1/b/c.jsonl"]).parameters["given_rows"]
    assert Path(str(tagged)).read_bytes() == row()


def row(**more: str) -> bytes:
    return json.dumps({"condition": "direct", "instruction": "What?", "response": "That.", **more}).encode() + b"\n"


def kill(hub: Hub, base: Path, *, everywhere: bool) -> int:
    """Kill fetch at an instant after the other, and look at what the next run makes of what is left; how often.

    With ``everywhere`` every run begins anew. Otherwise it goes on where the one before was killed.
    """
    hub.add("o/rows", {"data/a.jsonl": row() * 20, "data/b.jsonl": row() * 10})
    rows, root = ["hf://datasets/o/rows"], base / "root"
    wanted = tree(Path(str(fetched(base / "undisturbed", rows=rows).parameters["given_rows"])))

    def records() -> int:
        return len(list((root / "fetch" / "shards").glob(f"*/{tools.RECORD}")))

    kills = 0
    for _ in crashes(lambda: fetched(root, rows=rows), root):
        kills += 1
        for manifest in (root / "given").rglob(MANIFEST):
            assert tree(manifest.parent / "files" / "data") == wanted
        if everywhere:
            came = records()
            hub.requests.clear()
            assert tree(Path(str(fetched(root, rows=rows).parameters["given_rows"]))) == wanted
            assert not tools.partials(root)
            # What had come is not fetched again.
            assert len([one for one in hub.seen("*/resolve/*", "GET") if one.sent]) <= 2 - came
            shutil.rmtree(root)
    if not everywhere:
        assert tree(Path(str(fetched(root, rows=rows).parameters["given_rows"]))) == wanted
        assert not tools.partials(root)
    return kills


def test_killed_again_and_again_a_download_goes_on_to_the_same_bytes(hub: Hub, tmp_path: Path) -> None:
    # tests/long kills it at every instant.
    assert kill(hub, tmp_path, everywhere=False) > 8


def test_a_tokenizer_of_a_git_repository_is_locked_with_its_digest(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (whole.tokenizer / "tokenizer.json").read_bytes()
    with Files() as files:
        forge = Forge(files)
        commit = forge.push({"tools/tokenizer.json": text}, "HEAD", "refs/heads/main")
        address = f"git+{forge.repository}@main#tools/tokenizer.json"
        place = fetched(tmp_path, tokenizer=address, rows=[str(whole.clean)]).parameters["given_tokenizer"]
        assert Path(str(place)).read_bytes() == text
        digest = hashlib.sha256(text).hexdigest()
        assert pins(tmp_path)[address] == {"origin": address, "revision": commit, "sha256": digest}
        passed = run(TrainTokenizer(), TrainTokenizerConfig(root=str(tmp_path), rows=["-"], tokenizer=str(place)))
        assert passed.stdout == f"{place}\n"
        files.requests.clear()
        assert fetched(tmp_path, tokenizer=address, rows=[str(whole.clean)]).reused
        assert not files.requests
        # A forge that gives another file for the commit is not believed.
        shutil.rmtree(tmp_path / "given")
        shutil.rmtree(tmp_path / "fetch")
        forge.push({"tools/tokenizer.json": text}, "HEAD")
        lock = tmp_path / "sources.lock.yaml"
        lock.write_text(lock.read_text().replace(digest, "e" * 64))
        with pytest.raises(PairmillError, match="the file is not the one that the lock names"):
            fetched(tmp_path, tokenizer=address, rows=[str(whole.clean)])


# --- bad input ------------------------------------------------------------------------------------------------------


def refusal(work: Callable[[], object], code: int) -> str:
    with pytest.raises(PairmillError) as caught:
        work()
    assert caught.value.exit_code == code
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": ["hf://datasets/o"]}, "expected rows=hf://datasets/<owner>/<name>[@<revision>][/<path>]; the owner"),
        ({"rows": ["hf://o/rows"]}, "this names a model; write rows=hf://datasets/o/rows"),
        ({"rows": ["hf://datasets/o/n/../x"]}, "rows: not a valid address"),
        ({"rows": ["ftp://h/rows"]}, "rows: unknown scheme; got ftp://h/rows; expected a folder or gs://… or s3://"),
        ({"rows": ["hf://datasets/o/n", "hf://datasets/o/n"]}, "rows: given twice"),
        ({"tokenizer": "hf://datasets/o/n"}, "this names a data set; a tokenizer is in a model"),
        ({"tokenizer": "git+https://h/o/n"}, "git+https://<host>/<owner>/<name>[@<revision>]#<path of tokenizer.json>"),
        ({"tokenizer": "git+https://u:secret@h/o/n#t"}, "no user and no password"),
        (
            {"tokenized": "/t", "tokenizer": "/k"},
            "tokenized= is what would be made of it: write it alone, or leave it out",
        ),
        ({"tokenized": "/t", "rows": ["/r"]}, "rows: cannot be given with tokenized"),
        ({"tokenized": "/t", "sources": ["all"]}, "sources: cannot be given with tokenized"),
        ({"rows": ["/r"], "limit": 10}, "limit: is of no use"),
        ({"rows": ["/r"], "raw": "/raw"}, "write sources=all (or names) to join them to the rows, or leave raw= out"),
    ],
)
def test_what_no_run_can_be_given_is_refused_before_anything_is_asked(
    options: dict[str, object], said: str, tmp_path: Path
) -> None:
    found = refusal(lambda: fetched(tmp_path, **options), 2)
    assert said in found
    assert "secret" not in found.replace("u:secret@", "") or "u:" in found
    assert not list(tmp_path.iterdir())


def test_a_place_of_the_hub_that_cannot_be_had_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/rows", {"a.jsonl": row()})
    hub.add("o/private", {"a.jsonl": row()}, private=True)
    hub.add("o/gated", {"a.jsonl": row()}, gated=True)
    hub.add("o/csv", {"train.csv": b"a,b\n"})

    def said(place: str) -> str:
        return refusal(lambda: fetched(tmp_path, rows=[place]), 3)

    missing = said("hf://datasets/o/rows@v9")
    assert "the revision does not exist" in missing
    assert "rows=hf://datasets/o/rows[@<revision>][/<path>]" in missing
    private = said("hf://datasets/o/private")
    assert "does not exist, or is private; got HF_TOKEN is not set" in private
    assert "accept its terms on the Hub's page of o/gated, and set HF_TOKEN" in said("hf://datasets/o/gated")
    assert "write sources=my_rows.yaml:\n  name: my_rows\n  hub: o/csv" in said("hf://datasets/o/csv")


def test_rows_without_a_column_get_the_description_to_write(hub: Hub, tmp_path: Path) -> None:
    table = pa.table({"question": ["What?"], "answer": ["That."]})
    (tmp_path / "own").mkdir()
    file = tmp_path / "own" / "train.parquet"
    pq.write_table(table, file)
    said = refusal(lambda: fetched(tmp_path / "root", rows=[str(tmp_path / "own")]), 3)
    assert f"{file}: column 'condition' is missing; got question, answer; expected condition, instruction" in said
    description = said.split("in place of rows=:\n")[1]
    assert yaml.safe_load(description) == {
        "name": "my_rows",
        "files": f"{tmp_path / 'own'}/*.parquet",
        "condition": "direct",
        "instruction": "question",
        "response": "answer",
    }
    (tmp_path / "own" / "my_rows.yaml").write_text(description)
    options = {"root": tmp_path / "root", "sources": tmp_path / "own" / "my_rows.yaml"}
    tools.ended(tools.stage("clean", **options))

    hub.add("o/own", {"train.parquet": file.read_bytes()})
    said = refusal(lambda: fetched(tmp_path / "root", rows=["hf://datasets/o/own"]), 3)
    assert "rows=hf://datasets/o/own@main train.parquet: column 'condition' is missing" in said
    assert "hub: o/own" in said
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a.jsonl").write_bytes(b'{"instruction": "What?", "response": "That."}\n')
    assert "condition: direct" in refusal(lambda: fetched(tmp_path / "root", rows=[str(lines)]), 3)


def test_the_other_stages_send_to_fetch_what_only_fetch_can_read(whole: Whole, tmp_path: Path) -> None:
    options: dict[str, object] = {"root": tmp_path, "tokenizer": whole.tokenizer}
    done = tools.ended(tools.stage("tokenize", rows="hf://datasets/o/n", **options), 2)
    assert "write pairmill fetch 'rows=hf://datasets/o/n' root=…, and give rows= what it prints" in done.err
    options = {"root": tmp_path, "rows": whole.clean, "tokenizer": "git+https://h/o/n#t.json"}
    done = tools.ended(tools.stage("tokenize", **options), 2)
    assert "pairmill fetch 'tokenizer=git+https://h/o/n#t.json' root=…" in done.err
    done = tools.ended(tools.stage("clean", root=tmp_path, rows="hf://datasets/o/n"), 2)
    assert "only fetch reads the Hub and git" in done.err
    done = tools.ended(tools.stage("sample", root=tmp_path, tokenized_path="hf://datasets/o/n"), 2)
    assert "pairmill fetch 'tokenized=hf://datasets/o/n' root=…, and give tokenized_path=" in done.err


def test_what_is_given_has_to_be_there_and_of_its_kind(whole: Whole, tmp_path: Path) -> None:
    def said(**options: object) -> str:
        return refusal(lambda: fetched(tmp_path / "root", **options), 3)

    assert "no .jsonl or .parquet file found" in said(rows=[str(tmp_path / "nothing")])
    assert "not a tokenized folder: tokenizer_info.json does not exist" in said(tokenized=str(whole.clean))
    assert "neither a file nor a folder with tokenizer.json" in said(
        tokenizer=str(whole.clean), rows=[str(whole.clean)]
    )
    (tmp_path / "tokenizer.json").write_text("{}")
    assert f"{tmp_path / 'tokenizer.json'}" in said(tokenizer=str(tmp_path / "tokenizer.json"), rows=[str(whole.clean)])
    (tmp_path / "t" / "a").mkdir(parents=True)
    (tmp_path / "t" / "tokenizer_info.json").write_text("{}")
    assert "no data set in it" in said(tokenized=str(tmp_path / "t"))
    (tmp_path / "t" / "a" / "tokens.npy").write_bytes(b"")
    assert "arrays of this data set are missing" in said(tokenized=str(tmp_path / "t"))
