"""``pairmill audit`` of a plan: what is planted is found, rows are judged once, and verdicts drop rows in curate."""

import json
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.audit.config import AuditConfig
from pairmill.audit.core import Audit
from pairmill.audit.draw import keys_of
from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import open_result
from pairmill.interface import cli
from pairmill.policy import in_force
from pairmill.removal.command import RemoveConfig
from pairmill.removal.command import run as remove
from pairmill.stages.evaluate.models import server
from tests.support import tools
from tests.support.definitions.chats import CHATML
from tests.support.helpers import PATIENCE, REPOSITORY, environment
from tests.support.servers.completions import Completions, Reply
from tests.support.tokenizers import shapes

GOOD, BAD = 12, 3
DANISH = (
    "Floden er lang, og den løber fra bakkerne til havet. Mange mennesker har boet ved den i årevis, for vandet er "
    "rent, og der er fisk i det. De siger, at det ikke altid var sådan, men at der har været år med is."
)
FAULTS = {
    "refusal": "As an AI language model number {n}, I would not say.",
    "html_left": "<p>An answer of number {n}</p>",
    "damaged_text": "An answer \ufffd of number {n}.",
    "unclosed": "```\nprint({n})",
    "language_of_answer": DANISH + " Nummer {n}.",
    "foreign_marks": "[/INST] an answer of number {n}.",
    "placeholder_left": "Dear [INSERT NAME] of number {n},",
}
FORMS = {
    "boxed at the end": r"So it is \boxed{{{n}}}.",
    "bare number": "{n}",
    "prose": "It is as large as number {n} is.",
}


class Project:
    """A plan of four sources: answers with faults, answers in three forms, letters, and chats with a call."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "root"
        faulty = [("good", f"A plain answer of number {n}.") for n in range(GOOD)]
        faulty += [(name, text.format(n=n)) for name, text in FAULTS.items() for n in range(BAD)]
        random.Random(1).shuffle(faulty)
        self.planted = [name for name, _ in faulty]
        maths = [(form, text.format(n=n)) for form, text in FORMS.items() for n in range(10)]
        sources = [
            self._pairs("faulty", [text for _, text in faulty]),
            self._pairs("math_words", [text for _, text in maths]),
            self._pairs("quiz_choice", ["B"] * 5 + ["The answer is (B)."] * 15),
            self._chats(),
        ]
        joined = ",".join(map(str, sources))
        self.clean = tools.folder(self.stage("clean", raw=top / "raw", sources=joined))
        tokenizer = tools.write_text(top / "tokenizer" / "tokenizer.json", shapes.shaped("qwen")).parent
        rows = self.clean
        self.tokenized = tools.folder(self.stage("tokenize", rows=rows, tokenizer=tokenizer))
        options = {"tokenized_path": self.tokenized, "epochs": 1, "prefix_config_path": tools.rules(top / "rules.yaml")}
        tools.ended(self.stage("sample", **options, output_path=""))
        (made,) = self.root.glob("sample/*/_MANIFEST.json")
        self.plan = made.parent

    def _pairs(self, name: str, answers: list[str]) -> Path:
        records = [{"q": f"What is number {at} of {name}?", "a": answer} for at, answer in enumerate(answers)]
        tools.write_lines(self.top / "raw" / name / "x.jsonl", records)
        text = f"name: {name}\nfiles: x.jsonl\ncondition: direct\ninstruction: q\nresponse: a\nlanguage: en\n"
        return tools.write_text(self.top / "raw" / name / f"{name}.yaml", text)

    def _chats(self) -> Path:
        folder = self.top / "raw" / "chats"
        call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": {"n": 1}}}
        answers = [{"content": "", "tool_calls": [call]} if n % 2 else {"content": f"at {n}."} for n in range(8)]
        chats = [
            {"messages": [{"role": "user", "content": f"look at {n}"}, {"role": "assistant", **answer}]}
            for n, answer in enumerate(answers)
        ]
        tools.write_lines(folder / "x.jsonl", chats)
        template = CHATML.replace("m.content", "(m.tool_calls | tojson if m.tool_calls else m.content)")
        tools.write_text(folder / "x.jinja", template)
        lines = "name: chats\nfiles: x.jsonl\ncondition: direct\nturns: messages\nstrip: false\ntemplate: x.jinja\n"
        return tools.write_text(folder / "chats.yaml", lines)

    def stage(self, name: str, **options: object) -> tools.Done:
        return tools.stage(name, **{"root": self.root, "workers": 1, **options})

    def audit(self, **options: Any) -> tuple[Path, Manifest]:
        config = AuditConfig(**{"plan": str(self.plan), "root": str(self.root), "workers": 1, **options})
        with in_force(config):
            result = runner.run(Audit(), config)
        return Path(result.uri.removeprefix("file://")), result.manifest


class Plan(Project):
    """A plan of sources of pairs of texts.

    Args:
        top: folder.
        texts: prompts and answers by source.
        rules: of sample, as YAML.
    """

    def __init__(self, top: Path, texts: dict[str, list[tuple[str, str]]], rules: str = "- {prefix: ''}\n") -> None:
        self.top, self.root = top, top / "root"
        for name, pairs in texts.items():
            tools.write_lines(
                top / "rows" / f"{name}.jsonl",
                [{"condition": "direct", "instruction": q, "response": a} for q, a in pairs],
            )
        tokenizer = tools.write_text(top / "tokenizer" / "tokenizer.json", shapes.shaped("qwen")).parent
        self.tokenized = tools.folder(self.stage("tokenize", rows=top / "rows", tokenizer=tokenizer))
        options = {"tokenized_path": self.tokenized, "epochs": 1, "output_path": ""}
        rules_file = tools.write_text(top / "rules.yaml", rules)
        tools.ended(self.stage("sample", prefix_config_path=rules_file, **options))
        (made,) = self.root.glob("sample/*/_MANIFEST.json")
        self.plan = made.parent

    def audit(self, **options: Any) -> Manifest:  # type: ignore[override]
        return super().audit(**options)[1]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("audited"))


def test_all_that_is_planted_is_found_and_nothing_else(project: Project) -> None:
    folder, manifest = project.audit(rows=1000)
    faults_of = {row["row"]: row["faults"] for row in lines(folder) if row["source"] == "faulty"}
    assert faults_of.keys() == set(range(len(project.planted)))
    for number, name in enumerate(project.planted):
        assert [*faults_of[number]] == [name] * (name != "good"), (number, faults_of[number])
    chats = {row["row"]: (row["prompt"], row["faults"]) for row in lines(folder) if row["source"] == "chats"}
    assert {bool("undeclared_tools" in faults) for _, faults in chats.values()} == {True, False}
    assert all("⟦<|im_start|>⟧" in prompt for prompt, _ in chats.values())
    assert manifest.ledger.rows_in == manifest.ledger.rows_kept == len(lines(folder))
    # The texts are what the trainer has, and their digests those of the row file.
    given = tools.read_json(project.tokenized / "tokenizer_info.json")
    row = next(row for row in lines(folder) if row["source"] == "math_words")
    assert row["prompt"].startswith(f"⟦{given['boq']}⟧")
    assert len({row["text"] for row in lines(folder)} - {""}) > 40


def test_prompts_that_sources_share_are_counted(tmp_path: Path) -> None:
    def pairs(source: str, shared: int, answer: str) -> list[tuple[str, str]]:
        own = [(f"What does number {n} of {source} say about rivers in the hills?", "It is long.") for n in range(40)]
        both = [(f"Where does the river of number {n} begin, and who lives there?", answer) for n in range(shared)]
        return own + both * 2

    shared = {"one": pairs("one", 10, "In the hills."), "two": pairs("two", 20, "In the hills.")}
    shared |= {"three": pairs("three", 5, "At sea."), "alone": pairs("alone", 0, "")}
    made = Plan(tmp_path, shared)
    results = [made.audit(workers=workers, root=str(tmp_path / str(workers))) for workers in (1, 3)]
    assert results[0].data == results[1].data
    assert results[0].data["shared"] == {
        "one": {"prompts": 50, "shared": 10, "same": 10, "most": "two"},
        "two": {"prompts": 60, "shared": 10, "same": 10, "most": "one"},
        "three": {"prompts": 45, "shared": 5, "same": 0, "most": "one"},
        "alone": {"prompts": 40, "shared": 0, "same": 0, "most": ""},
    }
    report = Audit().report(results[0])
    assert "other sources have 20.0% of the prompts of one, most of them two" in report.look_at
    assert not any("of the prompts of alone" in line for line in report.look_at)
    assert "Prompts that sources share" in report.html()
    with pytest.raises(InputError, match=r"does not give .*expected shared: <=10%"):
        made.audit(expect=["shared: <=10%"])
    assert made.audit(prompts=0).data["shared"]["one"]["prompts"] == 0
    # Of few rows each the same lengths are compared.
    some = made.audit(prompts=25).data["shared"]
    assert all(0 < item["prompts"] <= 25 for item in some.values())
    assert some["one"]["shared"] <= 10


def test_what_became_of_the_sources_of_the_plan_before_is_listed(tmp_path: Path) -> None:
    texts = {name: [(f"What is {n} of {name}?", f"It is {n}.") for n in range(9)] for name in "abcdef"}
    before = Plan(tmp_path / "before", texts)
    now = {"a": texts["a"], "b": texts["a"][:3], "n": texts["c"], "d": texts["d"], "e": texts["e"]}
    made = Plan(tmp_path / "now", now, rules="- {prefix: d, max_per_file: 0}\n- {prefix: ''}\n")
    given = {"before": str(before.plan)}
    manifest = made.audit(**given)
    became = {name: [dict(item["tasks"]), item["places"]] for name, item in manifest.data["before"].items()}
    assert became == {
        "a": [{"same": 1}, []],
        "b": [{"changed": 1}, []],
        "c": [{"renamed": 1}, ["n"]],
        "d": [{"not_drawn": 1}, []],
        "e": [{"same": 1}, []],
        "f": [{"unresolved": 1}, []],
    }
    assert "sources of the plan before are gone, and nothing says why: f" in Audit().report(manifest).look_at
    with pytest.raises(InputError, match=r"expected unresolved: <=0%"):
        made.audit(expect=["unresolved: <=0%"], **given)
    followed = made.audit(successors=["f=a"], expect=["unresolved: <=0%"], **given)
    assert followed.data["before"]["f"] == {"tasks": {"followed": 1}, "places": ["a"]}
    denied = tools.write_text(
        tmp_path / "policy.yaml",
        "clauses:\n- {match: e, decision: deny, reason: robots, why: asked to, date: 2026-01-01}\n",
    )
    listed = made.audit(policy=str(denied), policy_on="leave_out", **given)
    assert listed.data["before"]["e"]["tasks"] == {"denied": 1}
    with pytest.raises(UsageError, match="not a successor"):
        made.audit(successors=["f"], **given)


def test_the_sample_is_the_same_with_any_number_of_workers_and_grows(project: Project, tmp_path: Path) -> None:
    made = [project.audit(rows=9, root=str(tmp_path / str(workers)), workers=workers)[0] for workers in (1, 2, 3)]
    first, *others = [(folder / "rows.jsonl").read_bytes() for folder in made]
    assert others == [first, first]
    few = [row["key"] for row in lines(made[0]) if row["source"] == "faulty"]
    more = [row["key"] for row in lines(project.audit(rows=15)[0]) if row["source"] == "faulty"]
    assert (len(few), len(more), more[:9]) == (9, 15, few)
    # Brute force: the rows whose keys are least.
    tokenized = open_result(str(project.tokenized))
    task = next(name for name in tokenized.tasks if name.startswith("faulty"))
    keys = keys_of(tokenized.datasets[task].key, np.asarray(tokenized.tokens(task).index["resp_start"]))
    assert [row["row"] for row in lines(made[0]) if row["source"] == "faulty"] == np.argsort(keys)[:9].tolist()


def test_the_census_counts_forms_and_what_scorers_accept(project: Project) -> None:
    folder, manifest = project.audit(rows=1000)
    forms = {form: Counter[str]() for form in FORMS}
    for row in lines(folder):
        if row["source"] == "math_words":
            forms[row["form"]].update(row["read_by"])
    assert {form: counts["gsm8k"] for form, counts in forms.items()} == {
        "boxed at the end": 10,
        "bare number": 10,
        "prose": 0,
    }
    assert [counts["math"] for counts in forms.values()] == [10, 0, 0]
    accepted = {item["benchmark"]: item for item in manifest.data["acceptances"]}
    assert accepted["gsm8k"]["sources"] == accepted["math"]["sources"] == ["math_words"]
    assert accepted["mmlu"]["sources"] == ["quiz_choice"]
    tokens = {
        read: sum(row["tokens"][1] for row in lines(folder) if row["source"] == "math_words" and read in row["read_by"])
        for read in ("gsm8k", "math")
    }
    whole = sum(row["tokens"][1] for row in lines(folder) if row["source"] == "math_words")
    assert [accepted[name]["accepted"] for name in tokens] == pytest.approx([tokens[name] / whole for name in tokens])
    assert accepted["mmlu"]["accepted"] < 0.2 < accepted["mmlu_pro"]["accepted"] == 1
    report = Audit().report(manifest)
    assert any("mmlu reads an answer in" in line for line in report.look_at)
    assert "Forms of answers" in report.html()
    assert "math_words" in report.markdown()


def judged(bad: Callable[[str], bool], rubbish: float = 0.0, seed: int = 3) -> Callable[[dict[str, Any]], str]:
    """A judge that would keep no bad row, and now and then says something else than a verdict."""
    draw, lock = random.Random(seed), threading.Lock()
    nonsense = [
        "I think so.",
        "",
        '{"keep": "yes"}',
        '{"coherence": 5}',
        '{"keep": true',
        "[true]",
        '{"keep": 1}',
        "true",
    ]

    def answer(body: dict[str, Any]) -> str:
        with lock:
            if draw.random() < rubbish:
                return draw.choice(nonsense)
        given = re.search(r"<answer>\n(.*?)\n</answer>", body["prompt"], re.DOTALL)
        assert given is not None
        value = {"keep": not bad(given[1]), "coherence": 4 - 3 * bad(given[1])}
        return f"```json\n{json.dumps(value)}\n```" if draw.random() < 0.3 else json.dumps(value)

    return answer


def is_refusal(text: str) -> bool:
    return "AI language model" in text


@pytest.fixture(autouse=True)
def forget_servers() -> Iterator[None]:
    yield
    server._checked.clear()


def test_rubbish_of_a_judge_is_counted_and_never_a_verdict(project: Project, tmp_path: Path) -> None:
    with Completions(judged(is_refusal, 0.1)) as double:
        folder, manifest = project.audit(rows=1000, judge=double.url, tries=6, root=str(tmp_path))
        asked = len(double.asked)
        rows = lines(folder)
        texts = {row["key"] for row in rows}
        figures = manifest.data["judged"]
        assert (figures["judged"], figures["without"]) == (len(texts), {})
        assert figures["requests"] == asked == len(texts) + figures["rubbish"]
        assert figures["rubbish"] > 2
        assert all(row["verdict"]["keep"] != is_refusal(row["answer"]) for row in rows)
        # Other prompts are asked again; the same is not, by another plan or for more rows.
        project.audit(rows=500, judge=double.url, tries=6, root=str(tmp_path))
        assert len(double.asked) == asked
        prompt = tools.write_text(tmp_path / "prompt.txt", "{prompt}\n<answer>\n{response}\n</answer>")
        project.audit(rows=2, judge=double.url, judge_prompt=str(prompt), root=str(tmp_path))
        assert len(double.asked) > asked
    with Completions(lambda body: "no") as double:
        _, manifest = project.audit(rows=2, judge=double.url, model="tiny", revision="2", root=str(tmp_path))
        assert manifest.data["judged"]["judged"] == 0
        assert (
            manifest.data["judged"]["without"]["rubbish"] * 3 == len(double.asked) == manifest.data["judged"]["rubbish"]
        )
        assert "texts without a verdict" in " ".join(Audit().report(manifest).look_at)


def test_a_judge_may_be_asked_by_messages(project: Project, tmp_path: Path) -> None:
    verdict = judged(is_refusal)

    def answer(body: dict[str, Any]) -> Reply:
        return Reply.chat(verdict({"prompt": body["messages"][-1]["content"]}))

    with Completions(answer) as double:
        folder, _ = project.audit(rows=40, judge=double.url, judge_mode="chat", root=str(tmp_path))
    assert all(row["verdict"]["keep"] != is_refusal(row["answer"]) for row in lines(folder))


def test_a_budget_is_kept_and_shared_by_all_sources(project: Project, tmp_path: Path) -> None:
    options = {"rows": 4, "root": str(tmp_path), "at_once": 3}
    with Completions(judged(is_refusal)) as double:
        folder, manifest = project.audit(judge=double.url, max_requests=4, **options)
        assert len(double.asked) == 4 == manifest.data["judged"]["judged"]
        assert Counter(row["source"] for row in lines(folder) if "verdict" in row).keys() >= {"chats", "faulty"}
        _, manifest = project.audit(judge=double.url, max_requests=6, **options)
        assert len(double.asked) == 6 == manifest.data["judged"]["requests"]
        _, manifest = project.audit(judge=double.url, max_tokens=1, **options)
        assert len(double.asked) == 6
        _, manifest = project.audit(judge=double.url, judge_rows=2, **options)
        assert manifest.data["judged"]["without"] == {}


def test_a_kill_in_the_middle_asks_nothing_twice(project: Project, tmp_path: Path) -> None:
    reached, go = threading.Event(), threading.Event()
    answer = judged(is_refusal)

    def slow(body: dict[str, Any]) -> str | Reply:
        if len(double.asked) == 12:
            reached.set()
            go.wait()
        return answer(body)

    command = [sys.executable, "-m", "pairmill", "audit", f"plan={project.plan}", f"root={tmp_path}", "rows=30"]
    with Completions(slow) as double:
        command += [f"judge={double.url}", "at_once=1", "workers=1"]
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stderr=subprocess.DEVNULL)
        assert reached.wait(PATIENCE)
        process.kill()
        process.wait()
        go.set()
        answered = Counter(body["prompt"] for body in double.asked[:-1])
        done = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        counts = Counter(body["prompt"] for body in double.asked)
        assert len(answered) == 11
        assert all(counts[prompt] == 1 for prompt in answered)
        folder = Path(done.stdout.strip())
        assert len(counts) == len({row["key"] for row in lines(folder)}) > 40
        assert sum(counts.values()) == len(counts) + 1  # the one that was being asked


def test_verdicts_drop_rows_in_curate(project: Project, tmp_path: Path) -> None:
    with Completions(judged(is_refusal)) as double:
        folder, _ = project.audit(rows=1000, judge=double.url, root=str(tmp_path))
    settings = tools.write_text(
        tmp_path / "curate.yaml",
        f"exact: off\nnear: off\nheuristics: off\njudge: {{mode: drop, verdicts: {folder}}}\n"
        "filter: {mode: drop, rules: [{name: faults, attribute: judge.faults, max: 0}]}\n",
    )
    done = project.stage("curate", rows=project.clean, curate_config=settings, root=tmp_path)
    manifest = tools.read_json(tools.folder(done) / "_MANIFEST.json")
    dropped = manifest["ledger"]["dropped"]
    assert dropped["judge:unusable"] == BAD
    expected = sum(bool(row["faults"]) and row["verdict"]["keep"] for row in lines(folder))
    assert dropped["filter:faults"] == expected > BAD
    none = tools.write_text(tmp_path / "none.jsonl", '{"text": "", "faults": {}}\n')
    for verdicts, code, text in (
        (none, 3, "no verdict is about"),
        (project.plan / "report.md", 3, "not the rows.jsonl"),
    ):
        tools.write_text(settings, f"judge: {{mode: drop, verdicts: {verdicts}}}\n")
        done = project.stage("curate", rows=project.clean, curate_config=settings, root=tmp_path)
        assert (done.code, text in done.message) == (code, True), done.err


def test_expectations_of_options_and_of_rules(project: Project, tmp_path: Path) -> None:
    with Completions(judged(is_refusal)) as double:
        options = {"rows": 1000, "judge": double.url, "root": str(tmp_path)}
        project.audit(expect=["usable: >=90%", "faulty: 10%..60%", "judged: 100%"], **options)
        with pytest.raises(InputError, match=r"the sample of all sources does not give .* expected usable: >=99%"):
            project.audit(expect=["usable: >=99%"], **options)
        text = "- {prefix: faulty, expect: {usable: '>=95%'}}\n- {prefix: math, expect: {rows: '>1', usable: 100%}}\n"
        rules = tools.write_text(tmp_path / "rules.yaml", text)
        with pytest.raises(InputError, match=r"the sample of the rule for 'faulty' does not give"):
            project.audit(rules=str(rules), **options)
        tools.write_text(rules, text.replace("95%", "80%"))
        project.audit(rules=str(rules), **options)
    # Without a judge nothing is usable or not, and a sample takes such a rule as it is.
    tools.ended(
        project.stage("sample", tokenized_path=project.tokenized, epochs=1, prefix_config_path=rules, output_path="")
    )
    for wrong in ("usable", "usable: 5 rows", "rows: >1", "usable: lots"):
        with pytest.raises(UsageError, match="expect"):
            AuditConfig(plan=str(project.plan), expect=[wrong])


def test_what_a_policy_denies_is_not_drawn(project: Project, tmp_path: Path) -> None:
    text = "clauses:\n- {prefix: faulty, decision: deny, reason: quality, why: bad, date: 2026-08-01}\n"
    policy = tools.write_text(tmp_path / "policy.yaml", text)
    folder, _ = project.audit(policy=str(policy), policy_on="leave_out")
    assert {row["source"] for row in lines(folder)} == {"math_words", "quiz_choice", "chats"}
    with pytest.raises(InputError, match="the policy denies faulty"):
        project.audit(policy=str(policy))


def test_rows_of_removed_records_are_not_drawn(project: Project, tmp_path: Path) -> None:
    gone = tools.write_text(tmp_path / "gone.txt", "faulty/x.jsonl:3\nfaulty/x.jsonl:1\nquiz_choice/x.jsonl:20\n")
    policy = tmp_path / "policy.yaml"
    remove(RemoveConfig(records=str(gone), root=str(project.root), policy=str(policy), apply=True, why="asked"))
    folder, manifest = project.audit(rows=1000, policy=str(policy))
    drawn = {(row["source"], row["row"]) for row in lines(folder)}
    whole = {(row["source"], row["row"]) for row in lines(project.audit(rows=1000)[0])}
    assert whole - drawn == {("faulty", 2), ("faulty", 0), ("quiz_choice", 19)}
    assert manifest.ledger.dropped == {"removed": 3}


def test_bad_input_is_refused_with_what_to_write(project: Project, tmp_path: Path) -> None:
    schema = tools.write_text(tmp_path / "schema.json", '{"type": "object"}')
    prompt = tools.write_text(tmp_path / "prompt.txt", "no fields")
    for options, text in (
        ({"judge": "ftp://x"}, "not the URL of a server"),
        ({"judge": "http://127.0.0.1:9/v1", "judge_schema": str(schema)}, "does not require a boolean keep"),
        ({"judge": "http://127.0.0.1:9/v1", "judge_prompt": str(prompt)}, "does not show the row"),
        ({"checks": ["refusals"]}, "refusal"),
        ({"judge_prompt": "x"}, "judge"),
    ):
        with pytest.raises(UsageError, match=text):
            project.audit(**options)
    for options in ({"plan": str(project.tokenized)}, {"tokenized_path": str(project.clean)}):
        with pytest.raises(InputError):
            project.audit(**options)
    other = project.stage(
        "tokenize", rows=project.clean / "data" / "faulty__x.jsonl", tokenizer=project.top / "tokenizer"
    )
    with pytest.raises((InputError, UsageError)):
        project.audit(tokenized_path=other.out.strip() or "none")


def test_the_command_takes_the_only_plan_of_a_project(project: Project) -> None:
    done = tools.run([sys.executable, "-m", "pairmill", "audit", str(project.plan), "rows=3", "workers=1"])
    assert done.code == 0, done.err
    folder = Path(done.out.strip())
    assert folder.parent == project.root / "audit"
    assert {path.name for path in folder.iterdir()} >= {"rows.jsonl", "report.html", "report.md"}
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert "src=" not in page
    assert cli.help_text("audit", AuditConfig).count("judge") > 5
