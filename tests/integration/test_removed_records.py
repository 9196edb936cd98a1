"""Single records that a policy takes out, through the stages: none of them is read, and nothing is read unlooked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.stage import Stage
from pairmill.errors import InputError, UsageError
from pairmill.formats import rows
from pairmill.interface import stagecli
from pairmill.policy import removals
from pairmill.policy.policy import Policy
from pairmill.policy.removals import Removal
from pairmill.stages.clean.core import Clean
from pairmill.stages.curate.core import Curate
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.support import tools

RECORDS, LINES = 40, (1, 17, 40)


class Project:
    """Two sources of two files each, and a policy."""

    def __init__(self, top: Path) -> None:
        self.top, self.raw, self.root = top, top / "raw", top / "root"
        self.sources = []
        for name in ("alpha", "beta"):
            for file in ("x", "y"):
                records = [{"q": f"{name} {file} {n} why", "a": f"Because {name} of {n}."} for n in range(RECORDS)]
                tools.write_lines(self.raw / name / f"{file}.jsonl", records)
            text = f"name: {name}\nfiles: '*.jsonl'\ncondition: direct\ninstruction: q\nresponse: a\nlicence: MIT\n"
            self.sources.append(str(tools.write_text(self.raw / name / f"{name}.yaml", text)))
        self.policy = tools.write_text(top / "policy.yaml", "clauses: []\nremovals: removals.jsonl\n")

    def stage(self, stage: Stage[Any, Any], **options: object) -> str:
        outcome = stagecli.run(stage, stage.config(root=str(self.root), workers=1, **options))
        return str(outcome.parameters["output"])

    def clean(self, **options: object) -> str:
        return self.stage(Clean(), raw=str(self.raw), sources=self.sources, **options)

    def take_out(self, cleaned: str, lines: tuple[int, ...] = LINES, digest: str = "") -> Removal:
        """Write an entry on lines of beta/x.jsonl, as if they were looked for in this result."""
        manifest = tools.read_manifest(Path(cleaned))
        digests = {file["task"]: tools.recorded(manifest)[file["path"]] for file in manifest["files"] if file["task"]}
        entry = Removal(
            records=tuple(("beta/x.jsonl", line) for line in lines),
            reason="gdpr",
            why="the author asked",
            date="2026-11-28",
            raw={"beta/x.jsonl": digest},
            files={item: [line - 1 for line in lines] for task, item in digests.items() if task == "beta.jsonl"},
        )
        (self.top / removals.NAME).write_bytes(removals.dump([entry]))
        return entry


def texts(folder: str) -> list[str]:
    """The instructions of all rows of a finished folder."""
    files = (Path(folder) / file["path"] for file in tools.read_manifest(Path(folder))["files"] if file["task"])
    return [text for path in files for batch in rows.read(str(path)) for text in batch.instruction.to_pylist()]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("removed"))


def test_clean_drops_the_records_and_no_other_and_does_the_other_shards_not_again(project: Project) -> None:
    before = project.clean()
    entry = project.take_out(before)
    after = project.clean(policy=str(project.policy))
    gone = [f"beta x {line - 1} why" for line in LINES]
    assert texts(after) == [text for text in texts(before) if text not in gone]
    manifest = tools.read_manifest(Path(after))
    assert manifest["ledger"]["dropped"] == {"removed": len(LINES)}
    assert manifest["data"]["policy"]["removals"] == [entry.name]
    assert manifest["vanished"] == []
    alpha = [tools.recorded(tools.read_manifest(Path(folder)))["data/alpha.jsonl"] for folder in (before, after)]
    assert alpha[0] == alpha[1]
    assert project.clean(policy=str(project.policy)) == after
    # Without the policy all is as it was.
    assert project.clean() == before


def test_rows_that_were_made_before_are_refused_and_those_of_after_are_read(project: Project) -> None:
    before = project.clean()
    project.take_out(before)
    for stage, options in ((Curate(), {}), (TrainTokenizer(), {"vocab_size": 400})):
        with pytest.raises(InputError, match=r"takes out single rows of this file; got 3 rows, beta.jsonl:0 first"):
            project.stage(stage, rows=[before], policy=str(project.policy), **options)
    after = project.clean(policy=str(project.policy))
    given: dict[str, Any] = {"policy": str(project.policy)}
    tokenizer = project.stage(TrainTokenizer(), rows=[after], vocab_size=400, **given)
    tokenized = project.stage(Tokenize(), rows=[after], tokenizer=tokenizer, **given)
    config = SampleConfig(tokenized_path=tokenized, root=str(project.root), epochs=1, output_path="", **given)
    made = sample.run(config)
    assert made.parameters["rows_out"] == 4 * RECORDS - len(LINES)


def test_a_result_in_which_nobody_looked_is_refused(project: Project) -> None:
    before = project.clean()
    entry = project.take_out(before)
    tokenizer = project.stage(TrainTokenizer(), rows=[before], vocab_size=400)
    tokenized = project.stage(Tokenize(), rows=[before], tokenizer=tokenizer)
    given: dict[str, Any] = {"tokenized_path": tokenized, "root": str(project.root), "epochs": 1, "output_path": ""}
    whole = sample.run(SampleConfig(**given)).parameters["rows_out"]
    made = sample.run(SampleConfig(**given, policy=str(project.policy))).parameters["rows_out"]
    assert (whole, made) == (4 * RECORDS, 4 * RECORDS - len(LINES))
    unseen = removals.Removal(**{**vars(entry), "files": {}})
    (project.top / removals.NAME).write_bytes(removals.dump([unseen]))
    with pytest.raises(InputError, match="nobody looked for them here"):
        sample.run(SampleConfig(**given, policy=str(project.policy)))
    with pytest.raises(InputError, match="nobody looked for them here"):
        project.stage(Tokenize(), rows=[before], tokenizer=tokenizer, policy=str(project.policy))


def test_another_raw_file_of_the_same_name_is_refused(project: Project) -> None:
    project.take_out(project.clean(), digest="blake3:" + "0" * 64)
    with pytest.raises(InputError, match="its bytes are not those in which they were named"):
        project.clean(policy=str(project.policy))


def test_a_policy_whose_entries_are_missing_or_damaged_is_refused(project: Project) -> None:
    project.take_out(project.clean())
    assert len(Policy.load(str(project.policy)).removals) == 1
    file = project.top / removals.NAME
    whole = file.read_text()
    file.write_text(whole.replace("17", "18"))
    with pytest.raises(UsageError, match=r"not an entry of removed records; got its records are those of"):
        Policy.load(str(project.policy))
    file.unlink()
    with pytest.raises(UsageError, match="the file of removed records does not exist"):
        Policy.load(str(project.policy))
