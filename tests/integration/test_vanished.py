"""The alarm, planted: each thing that vanished from somebody's corpus gives one warning with its name and count."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools
from tests.support.tools import Done

ROWS = 60
LONG, SHORT = 200, 3


def pairs(count: int = ROWS, words: int = SHORT, *, salt: str = "") -> list[dict[str, Any]]:
    return [{"question": f"{salt} {n} " + "why " * words, "answer": f"Because {salt} of {n}."} for n in range(count)]


class Project:
    """Raw files of three sources that lose nothing, and rules that match each of them."""

    def __init__(self, top: Path) -> None:
        self.top, self.raw, self.root = top, top / "raw", top / "root"
        self.sources: dict[str, str] = {}
        for name in ("alpha", "beta", "gamma"):
            self.put(name, pairs(salt=name))
        self.rules = "- prefix: alpha\n- prefix: beta\n- prefix: gamma\n"

    def put(self, name: str, records: list[dict[str, Any]], more: str = "") -> None:
        tools.write_lines(self.raw / name / "x.jsonl", records)
        text = f"name: {name}\nfiles: x.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n{more}"
        if "turns:" in more:
            text = f"name: {name}\nfiles: x.jsonl\ncondition: direct\n{more}"
        self.sources[name] = str(tools.write_text(self.raw / name / f"{name}.yaml", text))

    def stage(self, name: str, **options: object) -> Done:
        return tools.stage(name, root=self.root, workers=1, **options)

    def clean(self, **options: object) -> Done:
        given = {"raw": self.raw, "sources": ",".join(self.sources.values()), **options}
        return self.stage("clean", **given)

    def tokenized(self) -> Path:
        cleaned = tools.folder(self.clean())
        tokenizer = tools.folder(self.stage("train_tokenizer", rows=cleaned, vocab_size=400))
        return tools.folder(self.stage("tokenize", rows=cleaned, tokenizer=tokenizer))

    def sample(self, tokenized: Path, **options: object) -> Done:
        rules = tools.write_text(self.top / "rules.yaml", self.rules)
        given = {"tokenized_path": tokenized, "prefix_config_path": rules, "epochs": 2, "output_path": "", **options}
        return self.stage("sample", **given)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def warnings(done: Done) -> list[str]:
    return [line["message"].split(": ", 1)[1] for line in done.lines if line["severity"] == "WARNING"]


def table(done: Done) -> list[dict[str, Any]]:
    """Return the table of the manifest, which the report and its text show too."""
    folder = Path(done.out.split()[-1]) if done.out.startswith("/") else None
    if folder is None:
        (folder,) = {Path(line["outputs"]["output"]) for line in done.lines if "outputs" in line}
    manifest = json.loads((folder / "_MANIFEST.json").read_text())
    for page in ("report.html", "report.md"):
        text = (folder / page).read_text()
        assert ("Vanished" in text) == bool(manifest["vanished"]), page
    found: list[dict[str, Any]] = manifest["vanished"]
    return found


def test_a_project_that_loses_nothing_has_no_alarm(project: Project) -> None:
    every = ",".join(("vanished", "unmatched_task", "unmatched_rule", "two_rules", "unmatched_source", "links"))
    assert warnings(tools.ended(project.clean(fail_on=every))) == []
    tokenized = project.tokenized()
    done = tools.ended(project.sample(tokenized, fail_on=every))
    assert (warnings(done), table(done)) == ([], [])
    # What was asked for is not lost: no row of a task, some rows of one, all rows of none.
    project.rules = "- prefix: alpha\n  max_per_file: 0\n- prefix: beta\n  max_per_file: 2\n- prefix: gamma\n"
    done = tools.ended(project.sample(tokenized, fail_on=every))
    assert (warnings(done), table(done)) == ([], [])


def chat(number: int, *, answer: bool) -> dict[str, Any]:
    turns = [{"role": "user", "content": f"How many, {number}?"}]
    turns += [{"role": "assistant", "content": f"It is {number}."}] if answer else []
    return {"messages": turns, "marks": number}


CLEANED: dict[str, tuple[list[dict[str, Any]], str, list[int], str]] = {
    # Other columns: the texts that are read are empty.
    "empty texts": ([{"question": f"q {n}", "answer": ""} for n in range(40)], "", [40, 0], "delta/x.jsonl:1"),
    # Prompts without an answer, of which one in four has one.
    "prompts": ([chat(n, answer=n % 4 == 0) for n in range(40)], "turns: messages\n", [40, 10], "delta/x.jsonl:2"),
    # From half of the records on.
    "half": ([{"question": f"q {n}", "answer": "a" * (n % 2)} for n in range(40)], "", [40, 20], "delta/x.jsonl:1"),
}


@pytest.mark.parametrize("what", CLEANED)
def test_a_source_that_loses_half_of_its_records_is_one_warning(project: Project, what: str) -> None:
    records, more, rows, example = CLEANED[what]
    project.put("delta", records, more)
    done = tools.ended(project.clean(max_reject_fraction=1))
    (line,) = [line for line in warnings(done) if line.startswith("Half or more")]
    assert f"delta ({rows[0]} → {rows[1]} rows;" in line
    (alarm,) = table(done)
    assert (alarm["kind"], alarm["name"], alarm["rows"]) == ("vanished", "delta", rows)
    assert alarm["reason"]
    assert alarm["examples"][0] == example
    assert len(alarm["examples"]) == 2
    # The same again, though nothing is to be done.
    assert line in warnings(tools.ended(project.clean(max_reject_fraction=1)))
    refused = project.clean(max_reject_fraction=1, fail_on="vanished")
    assert refused.code == 3
    assert "refused by fail_on=vanished" in refused.err


def test_fail_on_refuses_before_a_result_is_committed(project: Project) -> None:
    project.put("delta", CLEANED["half"][0])
    refused = project.clean(fail_on="vanished,links", max_reject_fraction=1)
    assert refused.code == 3, refused.err
    assert "delta (40 → 20 rows" in refused.err
    assert not list((project.root / "clean").glob("????????????????/_MANIFEST.json"))
    # The same command without it goes on from there.
    assert len(table(tools.ended(project.clean(max_reject_fraction=1)))) == 1


def test_folders_that_no_source_reads_are_one_warning_with_their_names(project: Project) -> None:
    for name in ("beta", "gamma"):
        del project.sources[name]
    (line,) = warnings(tools.ended(project.clean()))
    assert line == "Folders of raw= that no source reads: beta, gamma."
    assert [item["name"] for item in table(project.clean())] == ["beta", "gamma"]
    assert project.clean(fail_on="unmatched_source").code == 3
    assert [item["name"] for item in table(project.stage("fetch", raw=project.raw, sources=project.sources["alpha"]))]


def test_expect_of_a_source_says_what_it_gives_and_is_no_loss(project: Project) -> None:
    records = [{"question": f"q {n}", "answer": "a", "part": "da" if n < 4 else "en"} for n in range(100)]
    project.put("delta", records, "where: part == 'da'\n")
    (line,) = warnings(tools.ended(project.clean()))
    assert "delta (100 → 4 rows; filtered by where; as delta/x.jsonl:5 and delta/x.jsonl:6)" in line
    project.put("delta", records, "where: part == 'da'\nexpect: {rows: \">0\", share: 3%..5%}\n")
    assert warnings(tools.ended(project.clean())) == []
    project.put("delta", records, "where: part == 'da'\nexpect: {share: 10%..20%}\n")
    # The finished result is looked at as well.
    done = project.clean()
    assert done.code == 3
    for text in (
        "delta.yaml line 7, expect: the source delta does not give",
        "got 4.0000%",
        "expected share: 10%..20%",
    ):
        assert text in done.err, text
    project.put("delta", records, "expect: {tokens: 5}\n")
    done = project.clean()
    assert done.code == 2
    assert "a source has no tokens yet" in done.err


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path]:
    """A tokenized folder with a task that the context leaves nothing of, and one that it leaves a part of."""
    project = Project(tmp_path_factory.mktemp("shared"))
    project.put("swe", pairs(words=LONG, salt="swe"))
    project.put("half", [*pairs(30, salt="half"), *pairs(30, LONG, salt="half")])
    return project, project.tokenized()


RULED: dict[str, tuple[str, dict[str, object], str, str, list[str]]] = {
    # The prefix of an earlier name: its rule applies to nothing, and the task, which is then taken whole, has no rule.
    "renamed": (
        "- prefix: sapient__alpha\n  max_per_file: 5\n- prefix: beta\n- prefix: gamma\n- prefix: swe\n- prefix: half\n",
        {},
        "unmatched_rule",
        "Rules that apply to no task: 'sapient__alpha'.",
        ["'sapient__alpha'"],
    ),
    "a glob of no task": (
        "- match: ['alpah.json*', 'x{1,2}']\n  expect: {rows: '>=0'}\n- match: '*'\n",
        {},
        "unmatched_rule",
        "Rules that apply to no task: 'match alpah.json*, x{1,2}' (did you mean 'alpha",
        ["'match alpah.json*, x{1,2}'"],
    ),
    "a glob whose tasks are taken": (
        "- match: '*.jsonl'\n- match: 'al*'\n",
        {},
        "unmatched_rule",
        "Rules that apply to no task: 'match al*' ('match *.jsonl' before it takes its tasks).",
        ["'match al*'"],
    ),
    "no rule": (
        "- prefix: beta\n- prefix: gamma\n- prefix: swe\n",
        {},
        "unmatched_task",
        "Tasks that no rule matches, so they are taken whole: alpha.jsonl (60 rows;",
        ["alpha.jsonl", "half.jsonl"],
    ),
    "two rules": (
        "- prefix: alpha.\n  max_per_file: 2\n- prefix: ''\n",
        {},
        "two_rules",
        "Rules that match the same tasks, of which the first applies: 'alpha.' and '' (60 → 4 rows;",
        ["'alpha.' and ''"],
    ),
    "the context": (
        "- prefix: ''\n",
        {"context_size": 60},
        "vanished",
        "Half or more of the rows or tokens is gone of half.jsonl (60 → 30 rows;",
        ["half.jsonl", "swe.jsonl"],
    ),
}


@pytest.mark.parametrize("what", RULED)
def test_a_rule_or_task_that_does_not_meet_is_one_warning(
    shared: tuple[Project, Path], tmp_path: Path, what: str
) -> None:
    project, tokenized = shared
    project.rules, options, kind, beginning, names = RULED[what]
    project.rules, project.top = project.rules, tmp_path
    done = tools.ended(project.sample(tokenized, **options))
    (line,) = [line for line in warnings(done) if line.startswith(beginning)]
    mine = [item for item in table(done) if item["kind"] == kind]
    assert [item["name"] for item in mine] == names
    if kind == "vanished":
        assert [item["rows"] for item in mine] == [[60, 30], [60, 0]]
        assert [item["tokens"][0] > 2 * item["tokens"][1] for item in mine] == [True, True]
        assert [item["reason"] for item in mine] == ["over_context", "over_context"]
        assert mine[1]["examples"] == ["swe.jsonl:1", "swe.jsonl:2"]
        assert "swe.jsonl:1 and swe.jsonl:2" in line
    out = tmp_path / "out"
    # Neither a new sample nor one that is there gives arrays.
    for given in ({"output_path": out}, {"output_path": out, "seed": 5}, {"output_path": out, "seed": 6, "root": ""}):
        refused = tools.stage(
            "sample",
            **{
                "root": project.root,
                "tokenized_path": tokenized,
                "epochs": 2,
                "prefix_config_path": tmp_path / "rules.yaml",
                "fail_on": f"links,{kind}",
                **options,
                **given,
            },
        )
        assert refused.code == 3, refused.err
        assert f"refused by fail_on={kind}" in refused.err
        assert not out.exists()


def test_tasks_without_a_rule_are_taken_left_or_refused(shared: tuple[Project, Path], tmp_path: Path) -> None:
    project, tokenized = shared
    project.rules, project.top = "- prefix: alpha\n- prefix: swe\n- prefix: half\n", tmp_path

    def manifest(done: Done) -> dict[str, Any]:
        (folder,) = {Path(line["outputs"]["output"]) for line in done.lines if "outputs" in line}
        found: dict[str, Any] = json.loads((folder / "_MANIFEST.json").read_text())
        return found

    taken = manifest(tools.ended(project.sample(tokenized, seed=7)))
    done = tools.ended(project.sample(tokenized, seed=7, unmatched="leave", fail_on="unmatched_task"))
    left = manifest(done)
    assert warnings(done) == []
    assert left["fingerprint"] != taken["fingerprint"]
    for name in ("beta.jsonl", "gamma.jsonl"):
        assert taken["shards"][name]["rows_kept"] == ROWS
        assert left["shards"][name] == {
            **taken["shards"][name],
            "rows_kept": 0,
            "rows_out": 0,
            "dropped": {"no_rule": ROWS},
        }
    assert left["shards"]["alpha.jsonl"] == taken["shards"]["alpha.jsonl"]
    refused = project.sample(tokenized, unmatched="refuse")
    project.rules = "unmatched: refuse\nrules: [{match: '{alpha,swe,half}*'}]\n"
    for done in (refused, project.sample(tokenized)):
        assert done.code == 3
        assert "no rule matches some tasks; got 2 tasks: beta.jsonl, gamma.jsonl" in done.err
    # The file may say it, and the command line goes before it.
    old = "rules: [{prefix: alpha}, {prefix: swe}, {prefix: half}]"
    for choice, given, expected in (("leave", {}, left), ("refuse", {"unmatched": "leave"}, left), ("take", {}, taken)):
        project.rules = f"unmatched: {choice}\n{old}\n"
        done = tools.ended(project.sample(tokenized, seed=7, fail_on="unmatched_task", **given))
        assert manifest(done)["shards"] == expected["shards"]
        assert (manifest(done)["fingerprint"] == expected["fingerprint"]) == (choice != "take")  # which has an alarm


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("{tasks: 5, rows: 240..300, tokens: '>0'}", ""),
        ("{tasks: 6}", "an epoch does not give what it is expected to; got 5 tasks; expected tasks: 6"),
        ("{tokens: 1e9}", "expected tokens: 1e9"),
    ],
)
def test_expect_of_an_epoch_is_kept_or_refused(
    shared: tuple[Project, Path], tmp_path: Path, expect: str, message: str
) -> None:
    project, tokenized = shared
    project.top, project.rules = tmp_path, f"expect: {expect}\nrules: [{{match: '*'}}]\n"
    done = project.sample(tokenized, seed=8)
    assert done.code == (3 if message else 0), done.err
    assert message in done.err


EXPECTED: dict[str, tuple[str, int, str]] = {
    "rows": ('{rows: ">0"}', 0, ""),
    "both": ("{rows: 60, share: 0.1%..99%}", 0, ""),
    "tokens": ("{tokens: 1e2..2e9}", 0, ""),
    "too few": ("{tokens: 1.9e9..2.1e9}", 3, "expected tokens: 1.9e9..2.1e9"),
    "share": ("{share: 30%..50%}", 3, "expected share: 30%..50%"),
    "less": (
        '{rows: "<60"}',
        3,
        "the rule for 'alpha' does not give what it is expected to; got 60 rows; expected rows: <60",
    ),
    "not a range": ("{rows: many}", 2, "expect: not a rows; got 'many'"),
    "unknown": ("{row: 3}", 2, "did you mean 'rows'?"),
    "per cent": ("{rows: 3%}", 2, "expect: not a rows"),
}


@pytest.mark.parametrize("what", EXPECTED)
def test_expect_of_a_rule_is_kept_or_refused(shared: tuple[Project, Path], tmp_path: Path, what: str) -> None:
    project, tokenized = shared
    text, code, message = EXPECTED[what]
    project.top = tmp_path
    rest = "".join(f"- prefix: {name}\n" for name in ("beta", "gamma", "swe", "half"))
    project.rules = f"- prefix: alpha\n{rest}"
    plain = tools.ended(project.sample(tokenized))
    project.rules = f"- prefix: alpha\n  expect: {text}\n{rest}"
    done = project.sample(tokenized, output_path=tmp_path / "out")
    assert done.code == code, done.err
    assert message in done.err
    assert (tmp_path / "out").exists() == (code == 0)
    if code == 0:
        assert [line["message"] for line in done.lines if "reused" in line["message"]]  # it decides nothing
    assert plain.code == 0


def test_links_are_skipped_with_a_warning_followed_or_refused(project: Project, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    tools.write_rows(rows / "real.jsonl", tools.rows(20))
    tools.write_rows(tmp_path / "elsewhere" / "more.jsonl", tools.rows(30, seed=1))
    tools.write_text(tmp_path / "elsewhere" / "README.md", "no rows")
    (rows / "linked").symlink_to(tmp_path / "elsewhere")
    (rows / "README.md").symlink_to(tmp_path / "elsewhere" / "README.md")
    (tmp_path / "elsewhere" / "above").symlink_to(rows)
    config = tools.write_text(tmp_path / "curate.yaml", "near: {mode: 'off'}\n")

    def run(**more: object) -> Done:
        return project.stage("curate", rows=rows, curate_config=config, **more)

    skipped = tools.ended(run())
    assert "Links that are left out: linked/." in warnings(skipped)
    assert [item["name"] for item in table(skipped) if item["kind"] == "links"] == ["linked/"]
    assert run(fail_on="links").code == 3
    refused = run(links="refuse")
    assert refused.code == 3
    assert "symbolic links are refused; got 1 links: linked/" in refused.err
    followed = tools.ended(run(links="follow", fail_on="links"))
    manifest = json.loads((tools.folder(followed) / "_MANIFEST.json").read_text())
    assert set(manifest["shards"]) == {"real.jsonl", "linked__more.jsonl"}


def test_line_shows_the_column_where_a_source_drops(project: Project) -> None:
    project.put("swe", pairs(words=LONG, salt="swe"))
    project.put("empty", [{"question": f"q {n}", "answer": ""} for n in range(40)])
    project.rules = "- prefix: ''\n  max_per_file: 40\n"
    cleaned = tools.folder(project.clean(max_reject_fraction=1))
    tokenizer = tools.folder(project.stage("train_tokenizer", rows=cleaned, vocab_size=400))
    tokenized = tools.folder(project.stage("tokenize", rows=cleaned, tokenizer=tokenizer))
    tools.ended(project.sample(tokenized, context_size=60))
    done = tools.ended(tools.run(tools.command("line", root=project.root)))
    header, *lines = (line.split() for line in done.out.partition("\n\n")[0].splitlines())
    columns = " ".join(header)
    assert columns == "Source fetch, rows clean, rows tokenize, rows epoch, rows tokenize, tokens epoch, tokens"
    table = {name: cells for name, *cells in lines}
    assert table["alpha"][:4] == ["60", "60", "60", "40"]
    assert table["empty"][:4] == ["40", "0", "▼", "0"]
    assert table["swe"][:5] == ["60", "60", "60", "0", "▼"]
    assert table["swe"][6:] == ["0", "▼"]
    assert sorted(table) == ["alpha", "beta", "empty", "gamma", "swe"]
    assert Path(done.out.split()[-1]).read_text().count("▼") >= 3
