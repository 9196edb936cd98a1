"""``pairmill remove``: what would change is shown, the policy gets an entry, no later batch has the rows, and a signed
statement says so."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

from pairmill.engine import manifest as manifests
from pairmill.engine.policing import enforced
from pairmill.engine.stage import Stage
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats.drawn_rows import refuse_removed_rows
from pairmill.formats.opened import open_result
from pairmill.formats.records import RecordId
from pairmill.interface import stagecli
from pairmill.loader import Loader, RowPlan
from pairmill.policy import removals
from pairmill.policy.enforce import Enforcer
from pairmill.policy.policy import Policy
from pairmill.publish.command import PublishConfig
from pairmill.publish.command import run as run_publish
from pairmill.publish.refuse import REASONS, refusals
from pairmill.publish.tree import gather
from pairmill.removal import command, statement
from pairmill.removal.command import RemoveConfig
from pairmill.removal.places import search
from pairmill.stages.clean.core import Clean
from pairmill.stages.curate.core import Curate
from pairmill.stages.mix.core import Mix
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.support import tools
from tests.support.processes.crash_points import crashes
from tests.support.servers.hub_writes import WritableHub
from tests.support.stages import fetching

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = 60
GONE = {"beta/x.jsonl": [1, 18, 60], "beta/y.jsonl": [7]}
"""Line 60 repeats line 59, so curate dropped it, and line 59 stays."""
LISTED = [f"{file}:{line}" for file, lines in GONE.items() for line in lines]
BATCH = 300


class Project:
    """A line of two sources, one of which has duplicates that curate drops; and a list of records."""

    def __init__(self, top: Path) -> None:
        self.top, self.raw, self.root = top, top / "raw", top / "root"
        self.sources = []
        for name in ("alpha", "beta"):
            for file in ("x", "y"):
                tools.write_lines(
                    self.raw / name / f"{file}.jsonl",
                    [self.record(name, file, line) for line in range(1, RECORDS + 1)],
                )
            text = f"name: {name}\nfiles: '*.jsonl'\ncondition: direct\ninstruction: q\nresponse: a\nlicence: MIT\n"
            self.sources.append(str(tools.write_text(self.raw / name / f"{name}.yaml", text)))
        self.rules = tools.write_text(top / "rules.yaml", "- {prefix: beta, max_per_file: 30}\n")
        self.list = tools.write_text(top / "gone.txt", "".join(f"{item}  # asked\n" for item in LISTED) + "\n# all\n")
        self.policy = self.root / "policy.yaml"

    @staticmethod
    def record(name: str, file: str, line: int) -> dict[str, str]:
        """A record; every fifth line repeats the one before it, which curate drops."""
        line -= line % 5 == 0
        return {"q": f"{name} {file} {line} why", "a": f"Because {name} of {line}." + " And so on." * (line % 4)}

    def stage(self, stage: Stage[Any, Any], policy: str = "", **options: object) -> str:
        outcome = stagecli.run(stage, stage.config(root=str(self.root), workers=1, policy=policy, **options))
        return str(outcome.parameters["output"])

    def line(self, policy: str = "") -> str:
        """Clean, curate and tokenize; the tokenizer is that of the first line."""
        cleaned = self.stage(Clean(), policy, raw=str(self.raw), sources=self.sources)
        curated = self.stage(Curate(), policy, rows=[cleaned])
        tokenizers = sorted((self.root / "tokenizer").glob("[0-9a-f]*"))
        tokenizer = str(tokenizers[0]) if tokenizers else ""
        tokenizer = tokenizer or self.stage(TrainTokenizer(), policy, rows=[curated], vocab_size=400)
        return self.stage(Tokenize(), policy, rows=[curated], tokenizer=tokenizer)

    def plan(self, tokenized: str, policy: str = "", arrays: str = "", extend: str = "", **more: Any) -> Path:
        config = SampleConfig(
            tokenized_path=tokenized,
            root=str(self.root),
            prefix_config_path=str(self.rules),
            epochs=5 if extend else 3,
            extend=extend,
            output_path=str(self.top / arrays) if arrays else "",
            policy=policy,
            **more,
        )
        return self.root / "sample" / str(sample.run(config).parameters["fingerprint"])

    def remove(self, **options: Any) -> str:
        return command.run(RemoveConfig(**{"records": str(self.list), "root": str(self.root), **options}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The line once, a plan with its arrays, and an entry."""
    project = Project(tmp_path_factory.mktemp("remove"))
    project.plan(project.line(), arrays="before")
    return project


@pytest.fixture
def project(made: Project, tmp_path: Path) -> Project:
    """The same for a test of its own."""
    project = Project(tmp_path)
    shutil.copytree(made.root, project.root)
    shutil.copytree(made.top / "before", tmp_path / "before")
    return project


def batches(folder: Path) -> Iterator[tuple[int, bytes]]:
    """The step and the tokens of each batch."""
    with Loader(RowPlan(folder), batch_tokens=BATCH) as loader:
        for step, batch in enumerate(loader, 1):
            yield step, np.ascontiguousarray(batch.arrays["inputs"], "<u4").tobytes()


def rows_of(project: Project, tokenized: str) -> list[bytes]:
    """The tokens of the rows of the records in a tokenized folder, found by their texts."""
    tasks = [path.parent for path in Path(tokenized).rglob("tokens.npy")]
    (beta,) = (task for task in tasks if task.name.startswith("beta"))
    curated = next(Path(project.root).glob("curate/[0-9a-f]*/**/beta.jsonl"))
    texts = [json.loads(line)["instruction"] for line in curated.read_text().splitlines()]
    wanted = {f"{file[:4]} {file[5]} {line} why" for file, lines in GONE.items() for line in lines}
    tokens, starts, lengths = (np.load(beta / f"{name}.npy") for name in ("tokens", "inst_start", "inst_len"))
    result = []
    for row, text in enumerate(texts):
        if text in wanted:
            part = tokens[int(starts[row]) : int(starts[row]) + int(lengths[row])]
            result.append(np.ascontiguousarray(part, "<u4").tobytes())
    return result


def test_what_would_change_is_shown_and_nothing_is_written(project: Project) -> None:
    before = tools.digests(project.root)
    text = project.remove(batch_tokens=BATCH)
    assert tools.digests(project.root) == before
    assert "nothing is written; apply=true" in text
    stages = {
        line.split()[0]: line.split()[3]
        for line in text.splitlines()
        if line[:5] in ("clean", "curat", "token", "sampl")
    }
    assert (stages["clean"], stages["curate"], stages["tokenize"]) == ("4", "3", "3")
    steps = {int(number) for number in re.findall(r"step (\d+) rank 0", text)}
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    wanted = rows_of(project, str(tokenized))
    assert len(wanted) == 3
    assert steps == {step for step, data in batches(project.top / "before") if any(row in data for row in wanted)}


def test_no_later_batch_has_a_row_and_the_statement_holds(project: Project) -> None:
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    wanted = rows_of(project, str(tokenized))
    key = project.top / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    signed = {"statement": str(project.top / "gone.json"), "key": str(key)}
    with pytest.raises(UsageError, match=r"the file does not exist|does not take these records out"):
        project.remove(**signed)
    assert "takes out 4 records" in project.remove(apply=True, why="the author asked")
    with pytest.raises(InputError, match="no plan was drawn since"):
        project.remove(**signed)
    policy = str(project.policy)
    # The quick way: the plan of what is tokenized already.
    old, new = (Path(item) for item in (project.plan(str(tokenized)), project.plan(str(tokenized), policy, "after")))
    assert old != new
    assert any(row in data for _, data in batches(project.top / "before") for row in wanted)
    assert not any(row in data for _, data in batches(project.top / "after") for row in wanted)
    # The whole way.
    cleaned = str(next((project.root / "clean").glob("[0-9a-f]*")))
    project.plan(project.line(policy), policy, "again")
    assert not any(row in data for _, data in batches(project.top / "again") for row in wanted)
    # Between both: the rows of before, without those.
    curated = project.stage(Curate(), policy, rows=[cleaned])
    (tokenizer,) = (project.root / "tokenizer").glob("[0-9a-f]*")
    project.plan(project.stage(Tokenize(), policy, rows=[curated], tokenizer=str(tokenizer)), policy, "between")
    assert not any(row in data for _, data in batches(project.top / "between") for row in wanted)
    # A mixture of the old tokens.
    mix = {"epochs": 3, "prefix_config_path": str(project.rules), "context_size": 4097}
    settings = tools.write_text(project.top / "mix.yaml", "method: exponent\nexponent: 1\nbudget: 3000\n")
    mixed = project.stage(Mix(), policy, tokenized_path=str(tokenized), mix_config=str(settings), **mix)
    assert tools.read_manifest(Path(mixed))["ledger"]["dropped"] == {"removed": 3}
    project.plan(str(tokenized), policy, "mixed", mixture=mixed)
    assert not any(row in data for _, data in batches(project.top / "mixed") for row in wanted)
    # Looked for again, it is the same entry, and only old results have the rows.
    project.remove(apply=True, why="the author asked")
    assert len(Policy.load(policy).removals) == 1
    assert "3 results" not in project.remove(**signed)
    gone = tools.read_json(project.top / "gone.json")
    assert gone["records"] == sorted(LISTED, key=lambda item: (item.split(":")[0], int(item.split(":")[1])))
    assert [item["result"].partition("/")[0] for item in gone["before"]] == ["clean", "curate", "tokenize", "sample"]
    after = {item["result"].partition("/")[0] for item in gone["after"]}
    assert after == {"clean", "take_out", "curate", "tokenize", "sample"}
    assert not {item["result"] for item in gone["before"]} & {item["result"] for item in gone["after"]}
    assert check(project, key).stdout.endswith("the statement holds\n")
    changed = project.root / gone["after"][0]["result"] / "_MANIFEST.json"
    changed.write_bytes(changed.read_bytes() + b" ")
    assert "is not what was signed" in check(project, key).stderr
    (project.top / "gone.json").write_text((project.top / "gone.json").read_text().replace("gdpr", "quality"))
    assert check(project, key).returncode


def test_a_plan_that_grows_has_the_rows_in_the_epochs_that_were_read_alone(project: Project) -> None:
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    wanted = rows_of(project, str(tokenized))
    project.remove(apply=True, why="the author asked")
    project.plan(str(tokenized), str(project.policy), "grown", str(project.plan(str(tokenized))))
    with Loader(RowPlan(project.top / "grown"), batch_tokens=BATCH) as loader:
        epochs = [
            (set(batch.rows[:, 1].tolist()), np.ascontiguousarray(batch.arrays["inputs"], "<u4").tobytes())
            for batch in loader
        ]
    assert {number for numbers, _ in epochs for number in numbers} == set(range(5))
    held = [max(numbers) for numbers, data in epochs if any(row in data for row in wanted)]
    assert held
    assert max(held) < 3
    key = project.top / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    project.remove(statement=str(project.top / "gone.json"), key=str(key))
    (after,) = tools.read_json(project.top / "gone.json")["after"]
    assert after["from_epoch"] == 3


def check(project: Project, key: Path) -> subprocess.CompletedProcess[str]:
    """Run the script of the page."""
    (script,) = re.findall(r"```python\n(.*?)```", (DOCS / "removing.md").read_text(), re.DOTALL)
    assert len(script.splitlines()) <= 12
    signers = tools.write_text(project.top / "signers", f"me@x.org {key.with_suffix('.pub').read_text()}")
    given = [str(project.top / "gone.json"), str(project.root), str(signers), "me@x.org"]
    return subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True, check=False)


def test_copies_on_nodes_and_published_ones_are_looked_into_and_are_in_the_statement(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tokenized,), (cleaned,) = ((project.root / name).glob("[0-9a-f]*") for name in ("tokenize", "clean"))
    wanted, before = set(rows_of(project, str(tokenized))), str(project.top / "before")
    several = project.plan(str(tokenized), arrays="reference/{fingerprint}", layout="data_io").name
    shutil.rmtree(project.root / "sample")  # a node is searched by its own files
    project.remove(apply=True, why="the author asked")
    project.plan(str(tokenized), str(project.policy), "after")
    places = {before: drawn(before, wanted), str(project.top / "after"): 0}
    places[str(project.top / "reference" / several)] = drawn(str(project.top / "reference" / several), wanted)
    assert places[before] >= 3
    for result, name in ((cleaned, "cleaned"), (tokenized, "tokenized")):
        run_publish(PublishConfig(result=str(result), to=str(tmp_path / name), confirm=True, allow=list(REASONS)))
    places |= {str(tmp_path / "cleaned"): 4, str(tmp_path / "tokenized"): 3}
    with WritableHub() as hub:
        fetching.ask_here(monkeypatch, hub, tmp_path)
        monkeypatch.setenv("HF_TOKEN", hub.token("secret"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        to = "hf://me/mine"
        run_publish(PublishConfig(result=str(tokenized), to=to, confirm=True, allow=list(REASONS)))
        places[to] = 3
        given = [place.removesuffix(f"/{several}") for place in places]
        text = project.remove(copies=given)
        for place, count in places.items():
            assert re.search(rf"^{place} \(.*\): {count} of their rows", text, re.MULTILINE), (place, text)
        assert f"pairmill publish <result> to={to} replace=true confirm=true; earlier commits still have" in text
        key = project.top / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
        project.remove(copies=given, statement=str(project.top / "gone.json"), key=str(key))
    told = tools.read_json(project.top / "gone.json")["copies"]
    assert {item["place"]: item["rows"] for item in told} == places
    assert [bool(item["todo"]) for item in told] == [bool(count) for count in places.values()]
    for name in ("cleaned", "tokenized"):
        (item,) = (item for item in told if item["place"] == str(tmp_path / name))
        assert item["manifest"] == hashlib.sha256((tmp_path / name / tools.MANIFEST).read_bytes()).hexdigest()
    assert check(project, key).stdout.endswith("the statement holds\n")
    with pytest.raises(InputError, match="not a finished folder"):
        project.remove(copies=[str(tmp_path / "nothing")])
    with pytest.raises(UsageError, match=r"copies: not a valid address; got hf://datasets/no"):
        project.remove(copies=["hf://no"])
    unknown = project.remove(copies=[str(project.raw)])
    assert f"not looked into: {project.raw}: the result that it is a copy of is not known below root=" in unknown


def drawn(arrays: str, wanted: set[bytes]) -> int:
    """How many rows of the epochs have one of these prompts; a plain loop."""
    opened = open_result(arrays)
    rows = (row for epoch in range(opened.epochs) for row in (opened.tokens(epoch=epoch),))
    return sum(np.ascontiguousarray(some[at][0], "<u4").tobytes() in wanted for some in rows for at in range(len(some)))


def test_a_training_of_an_older_plan_is_refused(project: Project) -> None:
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    project.remove(apply=True, why="the author asked")
    new = project.plan(str(tokenized), str(project.policy), "after")
    old = project.plan(str(tokenized))
    with enforced(Enforcer(Policy.load(str(project.policy)))):
        for place in (new, project.top / "after"):
            refuse_removed_rows(str(place), "sampled")
        for place in (old, project.top / "before"):
            with pytest.raises(InputError, match="drawn before records of its sources were taken out"):
                refuse_removed_rows(str(place), "sampled")
    refuse_removed_rows(str(old), "sampled")
    # Nor is what was made before published.
    enforcer = Enforcer(Policy.load(str(project.policy)))
    for place, names in ((tokenized, ["policy"]), (old, ["policy"]), (new, [])):
        tree = gather(open_result(str(place), "result"), with_held_out=False)
        assert [item.name for item in refusals(tree, enforcer, REASONS)] == names


def test_killed_at_every_instant_nothing_is_half_written(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.write_text(project.policy, "# ours\ndefault: allow\n")
    records = [RecordId.parse(item) for item in LISTED]
    places = search(str(project.root), records, None)
    config = RemoveConfig(records=str(project.list), root=str(project.root), why="x")
    entry = command.make_entry(config, str(project.root), records, places)
    kills = 0
    for kills in crashes(lambda: command.write_entry(str(project.policy), entry), project.root):  # noqa: B007
        policy = Policy.load(str(project.policy))
        assert [item.name for item in policy.removals] in ([], [entry.name])
        assert project.policy.read_text().startswith("# ours\n")
        project.policy.write_text("# ours\ndefault: allow\n")
        (project.root / removals.NAME).unlink(missing_ok=True)
    assert kills >= 6
    policy = Policy.load(str(project.policy))
    assert [item.name for item in policy.removals] == [entry.name]
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    project.plan(str(tokenized), str(project.policy))
    signature = b"a signature"
    monkeypatch.setattr(statement, "_sign", lambda data, key: signature)
    target = project.top / "gone.json"
    write = lambda: statement.write_statement(str(target), "", policy, entry.name, str(project.root), places)  # noqa: E731
    for kills in crashes(write, project.root):  # noqa: B007
        assert not target.exists() or target.with_suffix(".json.sig").read_bytes() == signature
        target.unlink(missing_ok=True)
        tools.write_text(target.with_suffix(".json.sig"), "that of another statement")
    assert json.loads(target.read_text())["entry"] == entry.name


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("beta/x.jsonl:99", "no source has this record"),
        ("beta/z.jsonl:1", "no source has this record"),
        ("gamma/x.jsonl:1", "no source has this record; got gamma/x.jsonl:1, of the source 'gamma'"),
        ("beta/x.jsonl", "gone.txt line 1: not a record"),
        ("# nothing", "the list has no record"),
    ],
)
def test_a_list_that_names_nothing_is_refused(project: Project, lines: str, message: str) -> None:
    tools.write_text(project.list, lines)
    with pytest.raises(PairmillError, match=re.escape(message)):
        project.remove()


def test_results_of_before_records_were_kept_are_named(project: Project) -> None:
    (cleaned,) = (project.root / "clean").glob("[0-9a-f]*")
    manifest = tools.read_manifest(cleaned)
    fields = {key: value for key, value in manifest.items() if key != "sha256"}
    for source in fields["data"]["sources"].values():
        del source["tasks"]
    files = [file for file in fields["files"] if not file["path"].startswith("records/")]
    older = json.dumps({**fields, "version": 7, "files": files}, indent=1, sort_keys=True)
    (cleaned / tools.MANIFEST).write_bytes(manifests.seal(older.encode()))
    shutil.rmtree(cleaned / "records")
    with pytest.raises(InputError, match=r"made before clean kept which record .* make it again from clean on"):
        project.remove()


def test_what_cannot_be_written_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="why: required with apply=true"):
        project.remove(apply=True)
    tools.write_text(project.policy, "{default: allow}\n")
    with pytest.raises(UsageError, match=r"a line cannot be added to the policy; .* add removals: removals.jsonl"):
        project.remove(apply=True, why="x")
    assert not (project.root / removals.NAME).exists()
    tools.write_text(project.policy, "default: allow\nremovals: taken_out.jsonl")
    (project.root / "taken_out.jsonl").write_text("")
    project.remove(apply=True, why="x")
    assert len(Policy.load(str(project.policy)).removals) == 1
    (tokenized,) = (project.root / "tokenize").glob("[0-9a-f]*")
    project.plan(str(tokenized), str(project.policy))
    with pytest.raises(UsageError, match="the key does not exist"):
        project.remove(statement=str(project.top / "s.json"), key=str(project.top / "none"))
    bad = tools.write_text(project.top / "bad", "no key")
    bad.chmod(0o600)
    with pytest.raises(UsageError, match="ssh-keygen did not sign"):
        project.remove(statement=str(project.top / "s.json"), key=str(bad))
    monkeypatch.setenv("PATH", str(project.top))
    with pytest.raises(UsageError, match=r"ssh-keygen is not on this machine.*openssh-client"):
        project.remove(statement=str(project.top / "s.json"), key=str(bad))
    assert not (project.top / "s.json").exists()


def test_a_root_without_results_is_refused(tmp_path: Path) -> None:
    listed = tools.write_text(tmp_path / "gone.txt", "beta/x.jsonl:1")
    with pytest.raises(InputError, match="nothing is cleaned below this root"):
        command.run(RemoveConfig(records=str(listed), root=str(tmp_path)))
