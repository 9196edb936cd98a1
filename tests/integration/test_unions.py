"""Samples of several tokenized folders: against a tree of links, which is how it was done by hand."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.formats.tokens import INDEX
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run
from tests.support import tools
from tests.support.data.tokenized import put_folder
from tests.support.helpers import REPOSITORY

BASE = {"flan__trivia_x": 1, "flan__squad": 2, "opus__1": 3, "dolma__a": 4}
NEW = {"export-upload__wiki": 5, "news": 6}
TASKS = """
exclude: [{match: "opus__*", why: "licence"}]
rename: {"export-upload__*": "*", "flan__{triv,sq}*": "flan_factual__*"}
"""


class World:
    """Two tokenized folders, and rules that cap a task by its new name."""

    def __init__(self, top: Path) -> None:
        self.top = top
        put_folder(top / "base", BASE, rows=40)
        put_folder(top / "new", NEW, rows=30, tokenizer="1" * 16)
        (top / "tasks.yaml").write_text(TASKS)
        (top / "rules.yaml").write_text("- prefix: flan_factual__\n  max_per_file: 7\n")
        self.both = f"base={top}/base,new={top}/new"

    def sample(self, out: str, **options: Any) -> Path:
        given = {
            "tokenized_path": self.both,
            "tasks": str(self.top / "tasks.yaml"),
            "prefix_config_path": str(self.top / "rules.yaml"),
            "output_path": str(self.top / out) if out else "",
            "epochs": 3,
        }
        run(SampleConfig(**{**given, **options}))
        return self.top / out

    def linked(self) -> Path:
        """Make the tree of links that a script of theirs makes."""
        tree = self.top / "tree"
        tree.mkdir()
        shutil.copy(self.top / "base" / "tokenizer_info.json", tree)
        for name in (*BASE, *NEW):
            called = name.replace("flan__", "flan_factual__").removeprefix("export-upload__")
            if name != "opus__1":
                (tree / called).symlink_to(self.top / ("base" if name in BASE else "new") / name)
        return tree


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def of_tokenize(command: str, **options: object) -> tools.Done:
    words = tools.command("tokenize", **options)
    return tools.run([*words[:4], command, *words[4:]])


def arrays(folder: Path) -> dict[str, str]:
    return {path: digest for path, digest in tools.digests(folder).items() if path.endswith(".npy")}


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_a_union_gives_what_a_tree_of_links_gives(world: World, profile: str) -> None:
    union = arrays(world.sample("union", profile=profile))
    tree = str(world.linked())
    assert arrays(world.sample("links", profile=profile, tokenized_path=tree, tasks="", links="follow")) == union
    assert len(union) == 1 + 3 * len(INDEX)


def drawn(folder: Path, epoch: int) -> list[bytes]:
    """Return the tokens of each row of an epoch, in order."""
    tokens = np.load(folder / "tokens.npy").astype(np.uint32)
    starts, insts, firsts, lasts = (np.load(folder / f"epoch_{epoch}" / f"{name}.npy").astype(int) for name in INDEX)
    lasts += firsts
    return [
        np.concatenate([tokens[at : at + size], tokens[first:last]]).tobytes()
        for at, size, first, last in zip(starts, insts, firsts, lasts, strict=True)
    ]


def test_a_rename_changes_no_row(world: World) -> None:
    (world.top / "rules.yaml").write_text("- prefix: flan_\n  max_per_file: 7\n- prefix: z_flan_\n  max_per_file: 7\n")
    before = world.sample("before")
    (world.top / "renamed.yaml").write_text(TASKS.replace("flan_factual__", "z_flan__"))
    after = world.sample("after", tasks=str(world.top / "renamed.yaml"))
    for epoch in range(3):
        assert drawn(after, epoch) == drawn(before, epoch)
    assert arrays(after) == arrays(before)


def test_an_added_task_changes_no_row_of_another(world: World) -> None:
    before = world.sample("before")
    put_folder(world.top / "third", {"a_further": 30}, rows=25)
    after = world.sample("after", tokenized_path=f"{world.both},{world.top}/third")
    for epoch in range(3):
        rows, more = Counter(drawn(before, epoch)), Counter(drawn(after, epoch))
        assert rows <= more
        assert more.total() == rows.total() + 25


def test_a_node_makes_the_same_arrays_from_the_plan(world: World) -> None:
    wanted = arrays(world.sample("wanted"))
    root = world.top / "root"
    world.sample("", root=str(root))
    (plan,) = (root / "sample").glob("[0-9a-f]*")
    assert arrays(world.sample("node", plan=str(plan), tokenized_path="", tasks="", epochs=10)) == wanted
    shutil.move(world.top / "base", world.top / "moved")
    given = {"plan": str(plan), "tasks": "", "epochs": 10}
    done = tools.stage("sample", plan=plan, output_path=world.top / "fails")
    assert done.code == 3
    assert arrays(world.sample("replaced", tokenized_path=f"base={world.top}/moved", **given)) == wanted
    shutil.move(world.top / "moved", world.top / "base")
    # Another seed of the plan finds the union too; and the plan stands for its folders.
    world.sample("again", again=f"{plan}@5", tokenized_path="", tasks="", root=str(root))
    assert arrays(world.sample("of plan", tokenized_path=str(plan), tasks="")) == wanted


def test_a_name_alone_changes_the_plan_and_a_touch_changes_nothing(world: World) -> None:
    printed = tools.ended(of_tokenize("union", tokenized_path=world.both, tasks=world.top / "tasks.yaml"))
    assert "| union | 5 | 180 |" in printed.out
    assert "| removed | 1 | 40 |" in printed.out
    assert "| renamed | 3 | 110 |" in printed.out
    to = world.top / "kept"
    done = tools.ended(of_tokenize("union", tokenized_path=world.both, tasks=world.top / "tasks.yaml", to=to))
    assert done.out == printed.out + f"{to}\n"
    assert {path.name for path in to.iterdir()} == {tools.MANIFEST, "tokenizer_info.json"}
    assert arrays(world.sample("of kept", tokenized_path=str(to), tasks="")) == arrays(world.sample("of both"))


def test_what_differs_is_said_by_source_and_by_task(world: World) -> None:
    to = world.top / "kept"
    tools.ended(of_tokenize("union", tokenized_path=world.both, tasks=world.top / "tasks.yaml", to=to))
    given = {"old": world.top / "base", "new": to}
    printed = json.loads(tools.ended(of_tokenize("diff", **given, format="json")).out)
    assert printed["tasks"] == {"same": 1, "renamed": 2, "changed": 0, "added": 2, "removed": 1}
    lines = {line["Source"]: line for line in printed["lines"]}
    assert (lines["opus"]["Rows before"], lines["opus"]["Rows"]) == (40, 0)
    tokens = sum(np.load(world.top / "new" / name / "tokens.npy").size for name in NEW)
    tokens -= np.load(world.top / "base" / "opus__1" / "tokens.npy").size
    assert lines["all"]["Difference"] == lines["all"]["Tokens"] - lines["all"]["Tokens before"] == tokens
    assert f"{tokens:+,} |" in tools.ended(of_tokenize("diff", **given)).out
    by_task = tools.ended(of_tokenize("diff", **given, by="task", format="csv")).out.splitlines()
    assert len(by_task) == 1 + 5
    assert by_task[0].startswith("Task,Change,")


@pytest.mark.parametrize(
    ("name", "options", "code", "printed"),
    [
        ("sample", {"tasks": "none.yaml"}, 2, "the file does not exist"),
        ("sample", {"tokenized_path": "{top}/base,{top}/nowhere"}, 3, "not a tokenized folder"),
        ("sample", {"tokenized_path": "{top}/empty"}, 3, "no data set in the tokenized folder"),
        ("sample", {"tokenized_path": "{top}/base,{top}/empty"}, 3, "no data set in the tokenized folder"),
        (
            "mix",
            {"tokenized_path": "{top}/empty"},
            3,
            "no data set in the tokenized folder",
        ),
        ("sample", {"tokenized_path": "{top}/rowless"}, 3, "has no rows"),
        ("mix", {"tokenized_path": "{top}/rowless"}, 3, "no row"),
        ("sample", {"tokenized_path": "{top}/base,{top}/other"}, 3, "two tokenizers"),
        ("sample", {"tokenized_path": "{top}/base,{top}/base"}, 3, "duplicates: first"),
    ],
)
def test_what_cannot_be_joined(world: World, name: str, options: dict[str, str], code: int, printed: str) -> None:
    put_folder(world.top / "empty", {})
    put_folder(world.top / "rowless", {"a": 1}, rows=0)
    put_folder(world.top / "other", {"b": 9}, {"vocab_size": 5})
    (world.top / "mix.yaml").write_text("method: exponent\nexponent: 1\n")
    options = {key: value.format(top=world.top) for key, value in options.items()}
    given = {"tokenized_path": f"{world.top}/base", "prefix_config_path": world.top / "rules.yaml"}
    mixing = {"root": world.top / "root", "mix_config": world.top / "mix.yaml"}
    given |= {"output_path": world.top / "out"} if name == "sample" else mixing
    done = tools.stage(name, **{**given, **options})
    assert (done.code, printed in done.err) == (code, True), done.err


def test_the_page_says_what_is_printed(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "unions.md").read_text()
    (tmp_path / "tasks.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    base = ("flan__triviaqa", "flan__squad", "flan__wiki_dialog_x", "opus__da", "opus__en", "math__a")
    put_folder(tmp_path / "dfm11", {name: seed for seed, name in enumerate(base)}, rows=20)
    new = ("export-upload__news", "wiki__2026_11", "wiki__2025")
    put_folder(tmp_path / "dfm12_new", {name: seed + 10 for seed, name in enumerate(new)}, rows=20)
    given = f"base={tmp_path}/dfm11,new={tmp_path}/dfm12_new"
    printed = tools.ended(of_tokenize("union", tokenized_path=given, tasks=tmp_path / "tasks.yaml")).out

    def columns(text: str) -> list[list[str]]:
        """Name, tasks and rows of each line of the table, and reasons."""
        lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
        found = [[cell.strip() for cell in (*line[:3], line[4])] for line in lines[1:]]
        return [line[:3] + ([line[3]] if line[0] == "removed" else []) for line in found]

    assert columns(printed) == columns(page.split("What it prints")[1].split("Each part")[0])
