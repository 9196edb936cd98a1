"""Tokenized folders as one: which tasks, by what names, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import InputRef, Ledger, Manifest, fingerprint_from
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats.chat_digests import KEY
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import find_planned, keep_union, open_tokenized, places, write_union
from pairmill.formats.tokens import ARRAYS
from tests.support.data.tokenized import INFO_OF_ALL, put_folder, put_task


def names(folder: Folder) -> list[str]:
    return [task.name for task in folder.tasks]


def opened(tmp_path: Path, given: str, tasks: str = "", **options: bool) -> Folder:
    file = ""
    if tasks:
        (tmp_path / "tasks.yaml").write_text(tasks)
        file = str(tmp_path / "tasks.yaml")
    return open_tokenized(given, "tokenized_path", tasks=file, **options)


def refused(tmp_path: Path, given: str, tasks: str, kind: type[PairmillError], said: str) -> None:
    with pytest.raises(kind, match=said):
        opened(tmp_path, given, tasks)


BASE = {"flan__trivia_x": 1, "flan__squad": 2, "opus__1": 3, "dolma__a": 4}


def test_several_folders_are_one(tmp_path: Path) -> None:
    one, two = put_folder(tmp_path / "one", BASE), put_folder(tmp_path / "two", {"new": 9}, tokenizer="0" * 16)
    result = opened(tmp_path, f"{one},{two}")
    assert names(result) == sorted([*BASE, "new"])
    assert {Path(task.uri).parent.name for task in result.tasks if task.name == "new"} == {"two"}
    assert result.fingerprint == opened(tmp_path, f"{two},other={one}").fingerprint


def test_base_plus_additions_without_wrappers_minus_what_is_excluded(tmp_path: Path) -> None:
    base = put_folder(tmp_path / "base", BASE)
    new = put_folder(tmp_path / "new", {"export-upload__wiki__1": 5, "dfm12_sources__news": 6})
    result = opened(
        tmp_path,
        f"base={base},new={new}",
        """
        exclude: [{match: ["opus__*", "dolma__?"], why: "licence"}]
        rename: {"{export-upload,dfm12_sources}__*": "*", "flan__{trivia,squad}*": "flan_factual__*"}
        expect: {tasks: 4, rows: 20, tokens: ">100"}
        """,
    )
    assert names(result) == ["flan_factual__squad", "flan_factual__trivia_x", "news", "wiki__1"]
    assert result.union is not None
    assert {(item["task"], item["why"]) for item in result.union.excluded} == {
        ("opus__1", "licence"),
        ("dolma__a", "licence"),
    }


def test_include_of_one_folder_leaves_the_others_whole(tmp_path: Path) -> None:
    base, new = put_folder(tmp_path / "base", BASE), put_folder(tmp_path / "new", {"a": 5, "b": 6, "c": 7})
    said = "include: [{match: [a, c, gone], from: new}, {match: lost, from: new}]\nmissing: report"
    result = opened(tmp_path, f"base={base},new={new}", said)
    assert names(result) == ["a", "c", *sorted(BASE)]
    assert result.union is not None
    assert [*result.union.missing] == ["lost"]
    refused(tmp_path, f"base={base},new={new}", said.split("\n")[0], UsageError, r"yaml line 1.*got 'lost'")


@pytest.mark.parametrize(("stays", "seed"), [("first", 2), ("last", 8)])
def test_of_two_tasks_of_one_name_one_stays(tmp_path: Path, stays: str, seed: int) -> None:
    base, new = put_folder(tmp_path / "base", BASE), put_folder(tmp_path / "new", {"flan__squad": 8})
    put_task(tmp_path / "expected", seed)
    result = opened(tmp_path, f"{base},{new}", f"duplicates: {stays}")
    (task,) = [task for task in result.tasks if task.name == "flan__squad"]
    assert np.array_equal(np.load(Path(task.uri) / "tokens.npy"), np.load(tmp_path / "expected" / "tokens.npy"))
    refused(tmp_path, f"{base},{new}", "", InputError, "two tasks have the same name.*duplicates: first")


def test_the_same_content_under_two_names_is_refused_across_folders_alone(tmp_path: Path) -> None:
    base = put_folder(tmp_path / "base", {"a": 1, "again": 1})
    assert names(opened(tmp_path, base)) == ["a", "again"]
    new = put_folder(tmp_path / "new", {"b": 1})
    refused(tmp_path, f"{base},{new}", "", InputError, "two tasks have the same content; got a of base and b of new")
    assert names(opened(tmp_path, f"{base},{new}", "duplicates: last")) == ["b"]
    refused(tmp_path, base, "duplicates: refuse", InputError, "same content; got a of base and again of base")


def test_a_task_that_is_gone_takes_no_name(tmp_path: Path) -> None:
    # b of two repeats a, so its name is free: b of three is content that nothing else has.
    folders = [put_folder(tmp_path / name, tasks) for name, tasks in (("one", {"a": 1}), ("two", {"b": 1}))]
    given = ",".join([*folders, put_folder(tmp_path / "three", {"b": 2})])
    result = opened(tmp_path, given, "duplicates: first")
    assert [Path(task.uri).relative_to(tmp_path).as_posix() for task in result.tasks] == ["one/a", "three/b"]
    assert result.union is not None
    assert [(item["folder"], item["task"], item["stays"]) for item in result.union.duplicates] == [("two", "b", "a")]


def test_tasks_without_a_row_are_no_duplicates(tmp_path: Path) -> None:
    one, two = (put_folder(tmp_path / name, {name: 1}, rows=0) for name in ("one", "two"))
    assert names(opened(tmp_path, f"{one},{two}")) == ["one", "two"]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ('exclude: [{match: "none__*", why: x}]', "yaml line 1.*'none__.*which no task matches"),
        ('exclude: [{match: "a"}]', "required key missing.*expected why"),
        ('exclude: [{match: "a", why: ""}]', "why"),
        ('rename: {"none*": "x*"}', "rename 'none.*no task"),
        ('rename: {"{a,b}": "c"}', "a new name is that of another task; got a of base and b of base, both 'c'"),
        ('rename: {"a*": "b*"}', "a new name is that of another task"),
        ('rename: {"a*": "x"}', "has not a . for each part"),
        ('rename: {"[a]*": "x/*"}', "not a name for a task"),
        ('rename: {"{a*": "x*"}', "a { without its }"),
        ("duplicates: some", "unknown value; got 'some'; expected refuse, first or last"),
        ("includes: [a]", "unknown key 'includes'"),
        ("include: [{match: a, from: gone}]", "no folder is called 'gone'; expected base"),
        ("expect: {tasks: 7}", "the union does not give what it is expected to; got 2 tasks; expected tasks: 7"),
        ("expect: {tokns: 7}", "unknown measure"),
        ('exclude: [{match: "*", why: x}]', "no task is left"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, said: str, wrong: str) -> None:
    base = put_folder(tmp_path / "base", {"a": 1, "b": 2})
    with pytest.raises(PairmillError, match=wrong) as caught:
        opened(tmp_path, f"base={base}", said)
    assert caught.value.exit_code in {2, 3}


def test_what_a_star_stands_for_is_kept(tmp_path: Path) -> None:
    base = put_folder(tmp_path / "base", {"up__a__b__c.jsonl": 1, "x1y2": 2})
    result = opened(tmp_path, base, 'rename: {"up__*__b__*": "*-*", "x[0-9]*y?": "*!"}')
    assert names(result) == ["1!", "a-c.jsonl"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"vocab_size": 100}, "two tokenizers.*vocab_size 99 of one, vocab_size 100 of two"),
        ({"eoq": "<x>"}, "two tokenizers"),
        ({"condition_mapping": {"cot": "<other>"}}, "two tokenizers.*cot '<cot>'"),
    ],
)
def test_two_tokenizers_are_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    one, two = (
        put_folder(tmp_path / "one", {"a": 1}),
        put_folder(tmp_path / "two", {"b": 2}, {**INFO_OF_ALL, **changed}),
    )
    refused(tmp_path, f"{one},{two}", "", InputError, said)


def test_other_condition_tags_are_joined(tmp_path: Path) -> None:
    further = {**INFO_OF_ALL, "condition_mapping": {"new": "<new>"}, "tokenizer_path": "/elsewhere"}
    one, two = put_folder(tmp_path / "one", {"a": 1}), put_folder(tmp_path / "two", {"b": 2}, further)
    assert opened(tmp_path, f"{one},{two}").info["condition_mapping"] == {"cot": "<cot>", "new": "<new>"}


def test_two_tokenizers_of_one_size_and_two_templates_are_refused(tmp_path: Path) -> None:
    one = put_folder(tmp_path / "one", {"a": 1}, tokenizer="1" * 16)
    two = put_folder(tmp_path / "two", {"b": 2}, tokenizer="2" * 16)
    refused(tmp_path, f"{one},{two}", "", InputError, "two tokenizers; got 1111111111111111 of one, 2222222222222222")
    chat = {"text": "x", "tokens": {}, "variables": {}}
    three, four = (
        put_folder(tmp_path / name, {name: seed}, {**INFO_OF_ALL, KEY: {**chat, "digest": name}})
        for seed, name in enumerate(("three", "four"))
    )
    refused(tmp_path, f"{three},{four}", "", InputError, "rows of two chat templates are not mixed")


def test_a_rename_and_a_place_change_no_key(tmp_path: Path) -> None:
    base = put_folder(tmp_path / "base", BASE)
    before = {task.name: task.key for task in opened(tmp_path, base).tasks}
    renamed = opened(tmp_path, base, 'rename: {"flan__*": "z__*"}')
    assert {task.key for task in renamed.tasks} == {*before.values()}
    assert {task.key for task in renamed.tasks if task.name == "z__squad"} == {before["flan__squad"]}
    shutil.copytree(base, tmp_path / "moved")
    assert opened(tmp_path, str(tmp_path / "moved"), 'rename: {"flan__*": "z__*"}').fingerprint == renamed.fingerprint
    assert renamed.fingerprint != opened(tmp_path, base).fingerprint


def test_a_stored_union_is_a_tokenized_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base = put_folder(root / "tokenize" / ("a" * 16), BASE, tokenizer="1" * 16)
    new = put_folder(tmp_path / "new", {"n__1": 7})
    union = opened(tmp_path, f"base={base},{new}", 'rename: {"n__*": "*"}\nexclude: [{match: "opus*", why: size}]')
    kept = keep_union(union, str(root))
    assert sum(path.stat().st_size for path in Path(kept).iterdir()) < 10_000
    again = opened(tmp_path, kept)
    assert (again.tasks, again.fingerprint) == (union.tasks, union.fingerprint)
    more = put_folder(tmp_path / "more", {"m": 8})
    both = opened(tmp_path, f"{kept},{more}")
    assert names(both) == sorted([*names(union), "m"])
    # What is below the project moves with it; what is not stays where it was.
    shutil.move(root, tmp_path / "elsewhere")
    moved = opened(tmp_path, str(tmp_path / "elsewhere" / "union" / union.fingerprint))
    assert {Path(task.uri).parents[2].name for task in moved.tasks if task.name != "1"} == {"elsewhere"}
    put_task(tmp_path / "new" / "further", 11)
    refused(tmp_path, str(tmp_path / "elsewhere" / "union" / union.fingerprint), "", InputError, "not what it was")


def test_a_node_finds_the_tasks_of_a_union_where_they_are(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base = put_folder(tmp_path / "base", BASE, tokenizer="1" * 16)
    new = put_folder(tmp_path / "new", {"n__1": 7})
    union = opened(tmp_path, f"base={base},new={new}", 'rename: {"n__*": "*"}')
    keep_union(union, str(root))
    wanted = ["1", "opus__1"]

    def where(given: str = "", *, digested: bool = False) -> list[str]:
        found = find_planned(given, str(root), union.fingerprint, wanted, digested=digested)
        assert [task.name for task in found] == wanted
        return [task.uri for task in found]

    for digested in (False, True):
        assert where(digested=digested) == [f"{new}/n__1", f"{base}/opus__1"]
    for name in ("base", "new"):
        shutil.copytree(tmp_path / name, tmp_path / "node" / name)
    there = tmp_path / "node"
    assert where(f"{there}/base") == [f"{new}/n__1", f"{there}/base/opus__1"]  # told by its manifest
    assert where(f"new={there}/new,{there}/base") == [f"{there}/new/n__1", f"{there}/base/opus__1"]
    assert where(str(write_union(union, str(tmp_path / "u")))) == [f"{new}/n__1", f"{base}/opus__1"]
    with pytest.raises(InputError, match="not a folder of the plan's union; expected base=…, new=…"):
        where(f"gone={there}/base")
    with pytest.raises(InputError, match="the plan was made from another folder"):
        where(f"base={put_folder(tmp_path / 'else', {'x': 1}, tokenizer='1' * 16)}")


def test_a_plan_stands_for_the_folder_that_it_was_drawn_from(tmp_path: Path) -> None:
    folder = put_folder(tmp_path / "made", BASE, tokenizer="1" * 16)
    manifest = manifests.read(folder)
    assert manifest is not None
    shutil.move(folder, tmp_path / "tokenize" / manifest.fingerprint)
    plan = tmp_path / "sample" / ("b" * 16)
    refs = [InputRef("tokenized", manifest.fingerprint)]
    plan.mkdir(parents=True)
    Manifest("sample", 1, "b" * 16, {}, refs, Ledger(), []).finish(str(plan))
    assert names(opened(tmp_path, str(plan))) == sorted(BASE)
    shutil.rmtree(tmp_path / "tokenize")
    refused(tmp_path, str(plan), "", InputError, "the tokenized folder of the plan is missing")


def test_held_out_rows_are_joined_and_renamed_too(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        put_folder(tmp_path / name, {f"w__{name}": seed})
        put_folder(tmp_path / name / "holdout", {f"w__{name}": seed + 10})
    given = f"{tmp_path}/one,{tmp_path}/two"
    assert names(opened(tmp_path, given, 'rename: {"w__*": "*"}', held_out=True)) == ["holdout/one", "holdout/two"]
    train = opened(tmp_path, given, 'rename: {"w__*": "*"}')
    assert names(train) == ["one", "two"]
    assert train.fingerprint == opened(tmp_path, given, 'rename: {"w__*": "*"}', held_out=True).fingerprint


def test_places_and_names(tmp_path: Path) -> None:
    comma = tmp_path / "a,b"
    comma.mkdir()
    assert [(place.name, place.uri) for place in places(str(comma), "p")] == [("a,b", str(comma))]
    found = places(rf"new=gs://b/x=1,{tmp_path}/a\,b,/d/tok,/e/tok", "p")
    assert [(place.name, place.uri) for place in found] == [
        ("new", "gs://b/x=1"),
        ("a,b", str(comma)),
        ("tok-1", "/d/tok"),
        ("tok-2", "/e/tok"),
    ]
    with pytest.raises(UsageError, match="two folders have one name"):
        places("a=/x,a=/y", "p")
    with pytest.raises(UsageError, match="only fetch reads the Hub"):
        places("/x,hf://datasets/a/b", "p")
    with pytest.raises(UsageError, match="p: is empty"):
        places("/x,,/y", "p")


def test_a_large_file_of_others_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    folder = put_folder(tmp_path / "one", {"a": 1}, rows=20_000)
    before = opened(tmp_path, folder)
    assert before.sampled
    assert not before.tasks[0].contents["tokens"].digest
    path = Path(folder, "a", "tokens.npy")
    values = np.load(path)
    values[len(values) // 5] ^= 1  # between the blocks that are read
    np.save(path, values)
    after = opened(tmp_path, folder)
    assert (after.fingerprint != before.fingerprint, after.tasks[0].key) == (True, before.tasks[0].key)
    values[-1] ^= 1
    np.save(path, values)
    assert opened(tmp_path, folder).tasks[0].key != before.tasks[0].key
    whole = opened(tmp_path, folder, verify=True)
    assert not whole.sampled
    assert len(whole.tasks[0].contents["tokens"].digest) >= 64
    assert whole.tasks[0].key == opened(tmp_path, folder).tasks[0].key
    assert json.loads(Path(folder, "tokenizer_info.json").read_text()) == INFO_OF_ALL


def test_a_node_without_the_union_is_told_which_it_needs(tmp_path: Path) -> None:
    one, two = put_folder(tmp_path / "one", {"a": 1}), put_folder(tmp_path / "two", {"b": 2})
    plain = opened(tmp_path, f"{one},{two}")
    found = find_planned(f"{one},{two}", str(tmp_path / "root"), plain.fingerprint, ["b"], digested=False)
    assert [task.uri for task in found] == [f"{two}/b"]
    union = re.escape(str(tmp_path / "root" / "union" / ("0" * 16)))
    with pytest.raises(InputError, match=f"another folder.*the node needs the union too: .*{union}"):
        find_planned(f"{one},{two}", str(tmp_path / "root"), "0" * 16, ["b"], digested=False)
    with pytest.raises(InputError, match=r"the tokenized folder of the plan is missing"):
        find_planned("", str(tmp_path / "root"), "0" * 16, ["b"], digested=False)


def test_a_project_with_a_name_that_uris_escape(tmp_path: Path) -> None:
    root = f"file://{tmp_path}/a%20project"
    put_folder(tmp_path / "a project" / "tokenize" / "x y", {"a": 1})
    put_folder(tmp_path / "a project" / "tokenize" / "z", {"b": 2})
    union = opened(tmp_path, f"{root}/tokenize/x%20y,{root}/tokenize/z")
    kept = opened(tmp_path, keep_union(union, root))
    assert [task.counts for task in kept.tasks] == [task.counts for task in union.tasks]


def built_by_hand(
    base: set[str], new: set[str], excluded: list[str], wrappers: list[str], allowed: set[str]
) -> set[str]:
    """What a script of links makes: base without some prefixes, and allowed additions without their wrappers."""
    tree = {name for name in base if not any(name.startswith(prefix) for prefix in excluded)}
    for name in sorted(new & allowed):
        prefix = next((wrapper for wrapper in wrappers if name.startswith(wrapper)), "")
        if name[len(prefix) :] not in tree:  # a duplicate is skipped
            tree.add(name[len(prefix) :])
    return tree


@pytest.mark.parametrize("seed", range(6))
def test_unions_are_those_of_scripts_that_link(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sources = ["flan__", "opus__", "dbc__", "flan__wiki__", "math__"]
    wrappers = ["export-upload__", "dfm9_special_sources__"]
    pool = [f"{source}{number}.parquet" for source in sources for number in range(4)]
    base = {*draw.choice(pool, 12, replace=False).tolist()}
    new = {str(draw.choice([*wrappers, ""])) + name for name in draw.choice(pool, 9, replace=False).tolist()}
    excluded = [
        prefix for prefix in draw.choice(sources, 2, replace=False).tolist() if any(n.startswith(prefix) for n in base)
    ]
    allowed = {*draw.choice(sorted(new), 6, replace=False).tolist(), "never__there"}
    put_folder(tmp_path / "base", {name: seed for seed, name in enumerate(sorted(base))}, rows=1)
    put_folder(tmp_path / "new", {name: seed + 100 for seed, name in enumerate(sorted(new))}, rows=1)
    said = {
        "include": [{"match": name, "from": "new"} for name in sorted(allowed)],
        "exclude": [{"match": f"{prefix}*", "why": "test", "from": "base"} for prefix in excluded],
        "rename": {f"{wrapper}*": "*" for wrapper in wrappers if any(n.startswith(wrapper) for n in new & allowed)},
        "duplicates": "first",
        "missing": "report",
    }
    result = opened(tmp_path, f"base={tmp_path}/base,new={tmp_path}/new", json.dumps(said))
    assert {*names(result)} == built_by_hand(base, new, excluded, wrappers, allowed)
    assert result.union is not None
    assert [*result.union.missing] == ["never__there"]


def test_a_key_is_a_fingerprint_of_names_and_digests(tmp_path: Path) -> None:
    (task,) = opened(tmp_path, put_folder(tmp_path / "one", {"a": 1}, tokenizer="1" * 16)).tasks
    assert task.key == fingerprint_from([[name, task.contents[name].digest] for name in ARRAYS])
