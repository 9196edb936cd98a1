"""Single records that a policy takes out, through the stages: none of them is read, and nothing is read unlooked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine.stage import Stage
from pairmill.errors import InputError, UsageError
from pairmill.formats import rows
from pairmill.formats.records import RecordId
from pairmill.interface import stagecli
from pairmill.lineage.records import Origins
from pairmill.policy import removals
from pairmill.policy.policy import Policy
from pairmill.policy.removals import Removal
from pairmill.removal.places import search
from pairmill.stages.clean.core import Clean
from pairmill.stages.curate.core import Curate
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.select.core import Select
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


def take_out_all(project: Project, lines: Iterable[str]) -> Removal:
    """Write an entry on records, which are looked for in all results."""
    records = [RecordId.parse(line) for line in lines]
    places = search(str(project.root), records, None)
    entry = Removal(
        records=tuple((record.file, record.line) for record in records),
        reason="gdpr",
        why="the author asked",
        date="2026-11-28",
        files=places.files,
    )
    (project.top / removals.NAME).write_bytes(removals.dump([entry]))
    return entry


def stripped(folder: str, target: Path, gone: set[str]) -> Path:
    """Copy the rows of a finished folder as plain files, but those with these instructions; a plain loop."""
    for file in (Path(folder) / "data").iterdir():
        kept = [line for line in file.read_text().splitlines(True) if json.loads(line)["instruction"] not in gone]
        tools.write_text(target / file.name, "".join(kept))
    return target


def test_each_stage_leaves_out_rows_that_were_made_before_and_counts_them(tmp_path: Path) -> None:
    project = Project(tmp_path)
    given: dict[str, Any] = {"policy": str(project.policy)}
    before = project.clean(holdout="5")
    (project.top / removals.NAME).write_bytes(b"")
    named = {f"beta x {line - 1} why" for line in (*LINES, *range(20, 31))}
    entry = take_out_all(project, [f"beta/x.jsonl:{int(text.split()[2]) + 1}" for text in sorted(named)])
    held = [json.loads(line)["instruction"] for line in (Path(before) / "holdout/data/beta.jsonl").open()]
    assert named & {*held}
    assert len(named - {*held}) > 5
    plain = stripped(before, tmp_path / "plain", named)
    ours = tools.write_text(tmp_path / "ours.jsonl", (plain / "alpha.jsonl").read_text()[:2000].rpartition("\n")[0])
    target = f"targets: [{{name: a, rows: {ours}, share: 1}}]"
    chosen = f"{{method: dsir, share: 0.5, dsir: {{noise: false, {target}}}}}"
    settings = str(tools.write_text(tmp_path / "select.yaml", chosen))
    counted = {"beta.jsonl": len(named - {*held}), "holdout/beta.jsonl": len(named & {*held})}

    def both(stage: Stage[Any, Any], **options: Any) -> tuple[Path, Path]:
        made = [
            Path(project.stage(stage, rows=[rows], **more, **options))
            for rows, more in ((before, given), (str(plain), {}))
        ]
        taken = tools.read_manifest(made[0])["data"]["policy"]
        assert (taken["removals"], taken["removed"]) == ([entry.name], counted)
        assert f"Removed by the policy**: {len(named)}" in (made[0] / "report.md").read_text()
        return made[0], made[1]

    curated, expected = both(Curate())
    assert not named & {*texts(str(curated))}
    for name in ("alpha.jsonl", "beta.jsonl"):
        assert (curated / "data" / name).read_bytes() == (expected / name).read_bytes()
    selected, expected = both(Select(), select_config=settings)
    for name in ("alpha.jsonl", "beta.jsonl"):
        assert (selected / "data" / name).read_bytes() == (expected / name).read_bytes()
    learned, expected = both(TrainTokenizer(), vocab_size=400)
    assert (learned / "tokenizer.json").read_bytes() == (expected / "tokenizer.json").read_bytes()
    tokenized, expected = both(Tokenize(), tokenizer=str(learned))
    for file in ("tokens", "inst_start", "inst_len", "resp_start", "resp_len"):
        for name in ("alpha.jsonl", "beta.jsonl"):
            assert (tokenized / name / f"{file}.npy").read_bytes() == (expected / name / f"{file}.npy").read_bytes()
    # The rows between are accounted for in a result of their own, which is made once.
    (between,) = (Path(project.root) / "take_out").glob("[0-9a-f]*")
    ledger = tools.read_manifest(between)["ledger"]
    assert ledger["dropped"] == {"removed": len(named)}
    assert (between / "data/alpha.jsonl").samefile(Path(before) / "data/alpha.jsonl")
    # A row still leads to its record, from each stage.
    for folder, rows_of in ((curated, curated / "data"), (selected, selected / "data"), (tokenized, plain)):
        shown = [json.loads(line)["instruction"] for line in (rows_of / "beta.jsonl").open()]
        records = Origins.open(str(folder)).records("beta.jsonl", np.arange(len(shown)))
        assert [f"beta {item.path[0]} {item.line - 1} why" for item in records] == shown
    # So does the next removal: it finds the rows in what was made since.
    take_out_all(project, ["alpha/y.jsonl:2"])
    config = SampleConfig(tokenized_path=str(tokenized), root=str(project.root), epochs=1, output_path="", **given)
    assert sample.run(config).parameters["rows_out"] == ledger["rows_out"] - 1


def test_what_clean_made_under_the_policy_is_read_as_it_is(project: Project) -> None:
    before = project.clean()
    project.take_out(before)
    after = project.clean(policy=str(project.policy))
    given: dict[str, Any] = {"policy": str(project.policy)}
    tokenizer = project.stage(TrainTokenizer(), rows=[after], vocab_size=400, **given)
    tokenized = project.stage(Tokenize(), rows=[after], tokenizer=tokenizer, **given)
    assert not (project.root / "take_out").exists()
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
