"""Policy lists through the stages: what is denied is not read, under any name, and a later clause takes back a task."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pairmill.mixture.reading import load_mixture
from tests.support import tools
from tests.support.tools import Done

LICENCES = {"alpha": "MIT", "beta": "CC-BY-NC-4.0", "gamma": "CC-BY-4.0"}
DENY_BETA = """
- {prefix: beta, decision: deny, reason: robots, why: the host disallows all, date: 2026-08-01, evidence: robots.txt}
"""


class Project:
    """Three sources with licences, and a policy file."""

    def __init__(self, top: Path) -> None:
        self.top, self.raw, self.root = top, top / "raw", top / "root"
        self.sources = [str(self._source(name, licence)) for name, licence in LICENCES.items()]

    def _source(self, name: str, licence: str) -> Path:
        records = [{"q": f"{name} {n} why", "a": f"Because {name} of {n}."} for n in range(40)]
        tools.write_lines(self.raw / name / "x.jsonl", records)
        text = f"name: {name}\nfiles: x.jsonl\ncondition: direct\ninstruction: q\nresponse: a\nlicence: {licence}\n"
        return tools.write_text(self.raw / name / f"{name}.yaml", text)

    def policy(self, clauses: str = "", top: str = "", name: str = "policy") -> Path:
        body = f"{top}\nclauses:{clauses.rstrip() or ' []'}\n"
        return tools.write_text(self.top / f"{name}.yaml", body)

    def stage(self, name: str, **options: object) -> Done:
        return tools.stage(name, root=self.root, workers=1, **options)

    def clean(self, **options: object) -> Done:
        return self.stage("clean", **{"raw": self.raw, "sources": ",".join(self.sources), **options})

    def tokenizer(self, rows: Path) -> Path:
        return tools.folder(self.stage("train_tokenizer", rows=rows, vocab_size=400))

    def tokenize(self, rows: Path, **options: object) -> Done:
        return self.stage("tokenize", rows=rows, tokenizer=self.tokenizer(rows), **options)

    def sample(self, tokenized: Path, **options: object) -> Done:
        rules = tools.write_text(self.top / "rules.yaml", "- prefix: alpha\n- prefix: beta\n- prefix: gamma\n")
        given = {"tokenized_path": tokenized, "prefix_config_path": rules, "epochs": 2, "output_path": ""}
        return self.stage("sample", **{**given, **options})

    def plan(self, tokenized: Path, **options: object) -> Path:
        """Sample, and return the new folder of the plan."""
        before = set(self.root.glob("sample/*/_MANIFEST.json"))
        done = self.sample(tokenized, **options)
        assert done.code == 0, done.err
        (made,) = set(self.root.glob("sample/*/_MANIFEST.json")) - before
        return made.parent


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def manifest(folder: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((folder / "_MANIFEST.json").read_text())
    return raw


def test_a_denied_source_is_refused_with_clause_reason_and_date(project: Project) -> None:
    done = project.clean(policy=project.policy(DENY_BETA))
    assert done.code == 3
    for text in ("denies beta", "policy.yaml clause 1", "robots", "2026-08-01", "the host disallows all", "leave_out"):
        assert text in done.message


def test_left_out_at_clean_and_named_in_the_manifest(project: Project) -> None:
    policy = project.policy(DENY_BETA)
    cleaned = tools.folder(project.clean(policy=policy, policy_on="leave_out"))
    recorded = manifest(cleaned)["data"]
    assert sorted(recorded["sources"]) == ["alpha", "gamma"]
    assert recorded["policy"]["left_out"] == ["beta"]
    assert recorded["policy"]["decisions"]["beta"][0]["reason"] == "robots"
    assert tools.folder(project.tokenize(cleaned, policy=policy)).is_dir()


def test_a_later_clause_takes_a_task_out_of_the_plan_of_a_tokenized_folder(project: Project) -> None:
    tokenized = tools.folder(project.tokenize(tools.folder(project.clean())))
    before = project.plan(tokenized, policy=project.policy("", "default: allow"))
    policy = project.policy(DENY_BETA)
    refused = project.sample(tokenized, policy=policy)
    assert (refused.code, "denies beta" in refused.message) == (3, True)
    after = project.plan(tokenized, policy=policy, policy_on="leave_out")
    assert after != before
    stats = {folder: manifest(folder)["data"]["stats"] for folder in (before, after)}
    (beta,) = (name for name in stats[before] if name.startswith("beta"))
    assert stats[before][beta]["cov_rows"] == 80
    assert stats[after][beta]["cov_rows"] == 0
    for name in stats[before]:
        assert name == beta or stats[before][name] == stats[after][name]
    recorded = manifest(after)
    assert recorded["shards"][beta]["dropped"] == {"policy": 40}
    assert recorded["vanished"] == []
    assert recorded["data"]["policy"]["left_out"] == [beta]


def mixture_of(folder: Path) -> dict[str, int]:
    """Rows that a mixture draws of each task, over all epochs."""
    return {key[0]: sum(rows) for key, rows in load_mixture(str(folder)).wants().items()}


def test_what_is_denied_is_counted_and_none_of_it_is_in_a_mixture(project: Project) -> None:
    tokenized = tools.folder(project.tokenize(tools.folder(project.clean())))
    settings = tools.write_text(
        project.top / "mix.yaml",
        "method: weights\nweights: {alpha: 1, beta: 1, gamma: 3}\nothers: error\n"
        "sources: [{name: alpha, prefixes: [alpha]}, {name: beta, match: beta*}, {name: gamma, prefixes: [gamma]}]\n",
    )
    given = {"tokenized_path": tokenized, "mix_config": settings, "epochs": 2}
    whole = tools.folder(project.stage("mix", **given))
    evaluated = "\n- {match: beta*, decision: eval_only, reason: eval, why: a benchmark, date: 2026-08-01}"
    for clauses in (DENY_BETA, evaluated):
        policy = project.policy(clauses)
        assert project.stage("mix", **given, policy=policy).code == 3
        mixed = tools.folder(project.stage("mix", **given, policy=policy, policy_on="leave_out"))
        rows = mixture_of(mixed)
        (beta,) = (name for name in rows if name.startswith("beta"))
        assert mixture_of(whole)[beta] > 0
        assert rows[beta] == 0
        assert all(count for name, count in rows.items() if name != beta)
        recorded = manifest(mixed)
        assert recorded["shards"][beta]["dropped"] == {"policy": 40}
        assert recorded["ledger"]["dropped"] == {"policy": 40}
        assert recorded["data"]["policy"]["left_out"] == [beta]
        sample = {"policy": policy, "policy_on": "leave_out", "epochs": 2}
        refused = project.sample(tokenized, mixture=whole, **sample)
        assert refused.code == 3
        assert "the mixture draws" in refused.message
        assert "run mix with this policy" in refused.message
        plan = project.plan(tokenized, mixture=mixed, **sample)
        assert manifest(plan)["data"]["stats"][beta]["cov_rows"] == 0
        assert manifest(plan)["shards"][beta]["dropped"] == {"policy": 40}
    assert "Rows left out by the policy" in (mixed / "report.md").read_text()
    command = tools.command("policy", policy=policy, plan=whole)
    checked = tools.run([*command[:4], "check", *command[4:]])
    assert checked.code == 0, checked.err
    denied = next(line.split() for line in checked.out.splitlines() if line.split()[:2] == ["mix", "eval_only"])
    assert (denied[2], denied[3]) == ("eval", "1")
    assert int(denied[4]) == round(mixture_of(whole)[beta] / 2)


def test_a_search_and_a_preview_have_no_share_of_what_is_denied(project: Project) -> None:
    tokenized = tools.folder(project.tokenize(tools.folder(project.clean())))
    given = {"tokenized_path": tokenized, "policy": project.policy(DENY_BETA), "policy_on": "leave_out"}
    shown = tools.run([*tools.command("mix", **given)[:4], "preview", *tools.command("mix", **given)[4:]])
    assert shown.code == 0, shown.err
    shares = {line.split()[0]: line.split()[1] for line in shown.out.splitlines()[2:] if line.strip()}
    assert (shares["(left"], {*shares} >= {"alpha", "gamma"}) == ("out)", True)
    command = tools.command("sample", **given, format="csv")
    taken = tools.run([*command[:4], "preview", *command[4:]])
    assert taken.code == 0, taken.err
    assert {line.partition("__")[0].partition(".")[0] for line in taken.out.splitlines()[1:]} == {"alpha", "gamma"}
    stage = tools.command("stage", root=project.root, workers=1, **given, runs=6, set="proxy_budget=100")
    found = tools.folder(tools.run([*stage[:4], "search", *stage[4:]]))
    assert [axis["name"] for axis in manifest(found)["data"]["axes"]] == ["alpha", "gamma"]
    for path in found.glob("run-*.json"):
        assert not any(count for name, count in mixture_of(path).items() if name.startswith("beta"))
    assert manifest(found)["ledger"]["dropped"] == {"policy": 40}


def test_a_stale_converted_file_is_known_by_its_bytes(project: Project) -> None:
    cleaned = tools.folder(project.clean())
    (stale,) = (cleaned / file["path"] for file in manifest(cleaned)["files"] if file["task"].startswith("beta"))
    other = project.top / "other"
    other.mkdir()
    shutil.copy(stale, other / f"harmless{stale.suffix}")
    policy = project.policy(DENY_BETA)
    done = project.tokenize(other, policy=policy)
    assert done.code == 3
    assert "harmless" in done.message
    assert "its bytes are those of beta" in done.message
    # So is what was made of it while there was no such clause.
    tokenized = tools.folder(project.tokenize(other))
    done = project.sample(tokenized, policy=policy)
    assert (done.code, "its bytes are those of beta" in done.message) == (3, True)


def test_licences_decide_with_nc_and_nd(project: Project) -> None:
    top = "licences: {allow: [MIT, 'CC-BY-*'], deny: ['*-NC*', '*-ND*']}"
    done = project.clean(policy=project.policy(top=top))
    assert done.code == 3
    assert "denies beta" in done.message
    assert "CC-BY-NC-4.0" in done.message
    cleaned = tools.folder(project.clean())
    # The licence is that of the manifest of clean, which the folder was made by.
    done = project.tokenize(cleaned, policy=project.policy(top=top))
    assert (done.code, "denies beta" in done.message) == (3, True)
    settled = "\n- {prefix: beta, decision: allow, reason: licence, why: asked the authors, date: 2026-08-02}"
    assert project.tokenize(cleaned, policy=project.policy(settled, top)).code == 0


def test_what_is_for_evaluation_may_be_held_out_only(project: Project) -> None:
    policy = project.policy("\n- {match: beta*, decision: eval_only, reason: eval, why: a benchmark, date: 2026-08-01}")
    done = project.clean(policy=policy)
    assert done.code == 3
    assert "keeps for evaluation beta" in done.message
    cleaned = tools.folder(project.clean(policy=policy, holdout=20))
    tokenized = tools.folder(project.tokenize(cleaned, policy=policy, policy_on="leave_out"))
    tasks = {
        file["task"] for file in manifest(tokenized)["files"] if file["task"].rpartition("/")[2].startswith("beta")
    }
    assert {name.partition(".")[0] for name in tasks} == {"holdout/beta"}


def test_a_policy_that_allows_all_changes_no_row_and_makes_nothing_again(project: Project) -> None:
    cleaned = tools.folder(project.clean())
    again = project.clean(policy=project.policy("", "default: allow"))
    assert again.code == 0
    assert again.said("3 of 3 shards reused")
    files = [
        [sorted(file.items()) for file in manifest(folder)["files"] if file["task"]]
        for folder in (cleaned, tools.folder(again))
    ]
    assert files[0] == files[1]


def test_fetch_does_not_bring_what_is_denied(project: Project) -> None:
    given = {"raw": project.raw, "sources": ",".join(project.sources), "policy": project.policy(DENY_BETA)}
    refused = project.stage("fetch", **given)
    assert (refused.code, "denies beta" in refused.message) == (3, True)
    fetched = tools.folder(project.stage("fetch", **given, policy_on="leave_out"))
    assert sorted(manifest(fetched)["data"]["sources"]) == ["alpha", "gamma"]
    assert manifest(fetched)["data"]["policy"]["left_out"] == ["beta"]


def test_a_check_says_what_decisions_are_on_and_what_a_change_would_do(project: Project) -> None:
    tokenized = tools.folder(project.tokenize(tools.folder(project.clean())))
    project.plan(tokenized)
    idle = "\n- {prefix: nobody, decision: hold, reason: gdpr, why: x, date: 2026-08-01}"
    given = {"policy": project.policy(DENY_BETA + idle), "compare": project.policy("", "default: hold", "other")}
    command = tools.command("policy", root=project.root, **given)
    done = tools.run([*command[:4], "check", *command[4:]])
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["sample", "deny", "robots", "1", "40", "–", "620", "33.3%"] in lines
    assert ["2", "nobody", "hold"] in lines
    changed = [line for line in lines if line[:2] == ["sample", "alpha"]]
    assert changed == [["sample", "alpha", "allow", "hold", "(default)", "1", "40", "–", "620"]]
