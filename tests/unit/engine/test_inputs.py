"""Finding row files: names of tasks, folders of ours and of others, and what is refused."""

import hashlib
import os
from pathlib import Path

import pytest

from pairmill import storage
from pairmill.engine import conditions, inputs
from pairmill.engine import manifest as manifests
from pairmill.engine.conditions import Tag
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.rows import EXTENSIONS


def put(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"content of {path}")
    return folder


def discover(*uris: Path | str) -> inputs.Inputs:
    return inputs.discover([str(uri) for uri in uris], EXTENSIONS, "rows")


def tasks(found: inputs.Inputs) -> list[str]:
    return [file.task for file in found.files]


def finished(folder: Path, *data: str, sha256: str = "") -> Manifest:
    """A finished folder of ours; with ``sha256`` its manifest says that of every file, wrongly."""
    put(folder, *data, "rejects/data/a.jsonl.jsonl", manifests.STARTED)
    files = [
        File(
            path,
            (folder / path).stat().st_size,
            sha256 or hashlib.sha256((folder / path).read_bytes()).hexdigest(),
            path.split("/", 1)[1].replace("/", "__"),
        )
        for path in data
    ]
    files.append(File("rejects/data/a.jsonl.jsonl", (folder / "rejects/data/a.jsonl.jsonl").stat().st_size, "0" * 64))
    manifest = Manifest("clean", 1, "f" * 16, {}, [], Ledger(9, 9, 11), files)
    (folder / manifests.MANIFEST).write_bytes(manifest.dump())
    return manifest


def test_tasks_are_named_after_their_path_below_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "b.jsonl", "flan/x y.parquet", "flan/deep/z.jsonl", "A.parquet")
    assert tasks(discover(tmp_path)) == ["A.parquet", "b.jsonl", "flan__deep__z.jsonl", "flan__x y.parquet"]
    assert inputs.task_name("a/b\\c.jsonl") == "a__b__c.jsonl"


def test_a_file_counts_by_its_extension_alone_and_hidden_ones_count(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.jsonl",
        ".b.jsonl",
        ".c/d.parquet",
        "e.JSONL",
        "f.jsonl.gz",
        "jsonl",
        "g.json",
        ".jsonl",
        "h.parquet~",
    )
    assert tasks(discover(tmp_path)) == [".b.jsonl", ".c__d.parquet", "a.jsonl"]


@pytest.mark.parametrize("path", [f"{'x' * 244}.jsonl", f"{'あ' * 81}.jsonl", f"{'d' * 200}/{'x' * 60}.jsonl"])
def test_a_task_whose_files_could_not_be_named_is_refused(path: str, tmp_path: Path) -> None:
    put(tmp_path, path)
    with pytest.raises(InputError, match="is too long for files") as caught:
        discover(tmp_path)
    assert caught.value.exit_code == 3
    assert inputs.task_name(path) in str(caught.value)
    assert f"at most {255 - len('.parquet')}" in str(caught.value)
    (tmp_path / path).unlink()
    put(tmp_path, f"{'x' * 241}.jsonl")
    (task,) = tasks(discover(tmp_path))
    # Such a task's files can be written.
    put(tmp_path, f"{task}.parquet")


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.jsonl")
    put(tmp_path / "out", "b.jsonl")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "c.jsonl").symlink_to(tmp_path / "out" / "b.jsonl")
    assert tasks(discover(tmp_path / "in")) == ["a.jsonl"]


def test_a_link_that_is_named_exactly_is_read(tmp_path: Path) -> None:
    put(tmp_path / "blobs", "b.jsonl")
    (tmp_path / "a.jsonl").symlink_to("blobs/b.jsonl")
    (tmp_path / "to a link.jsonl").symlink_to("a.jsonl")
    (tmp_path / "to a folder").symlink_to("blobs")
    (real,) = discover(tmp_path / "blobs" / "b.jsonl").files
    for name in ("a.jsonl", "to a link.jsonl"):
        (file,) = discover(tmp_path / name).files
        assert (file.task, file.size, file.digest) == (name, real.size, real.digest)
    assert tasks(discover(tmp_path / "to a folder")) == ["b.jsonl"]
    (tmp_path / "blobs" / "b.jsonl").unlink()
    with pytest.raises(InputError, match=r"a\.jsonl"):
        discover(tmp_path / "a.jsonl")


def test_a_copy_of_a_link_that_is_named_exactly_holds_what_it_leads_to(tmp_path: Path) -> None:
    put(tmp_path / "blobs", "b.jsonl")
    (tmp_path / "a.jsonl").symlink_to("blobs/b.jsonl")
    storage.store_for(str(tmp_path)).copy(str(tmp_path / "a.jsonl"), str(tmp_path / "deep" / "copy"))
    (tmp_path / "a.jsonl").unlink()
    assert not (tmp_path / "deep" / "copy").is_symlink()
    assert (tmp_path / "deep" / "copy").read_bytes() == (tmp_path / "blobs" / "b.jsonl").read_bytes()


def test_a_link_that_leads_nowhere_is_not_there(tmp_path: Path) -> None:
    store = storage.store_for(str(tmp_path))
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop"):
        assert not store.exists(str(tmp_path / name))
        with pytest.raises(InputError, match=name):
            store.copy(str(tmp_path / name), str(tmp_path / "copy"))
    assert sorted(os.listdir(tmp_path)) == ["loop", "nowhere"]


def test_files_come_with_size_and_digest(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    (file,) = discover(tmp_path).files
    store = storage.store_for(file.uri)
    assert (file.size, file.digest) == (store.size(file.uri), store.digest(file.uri))


def test_what_a_folder_is_follows_from_names_and_content_and_not_from_where_it_is(tmp_path: Path) -> None:
    one = discover(put(tmp_path / "one", "a.jsonl", "b/c.jsonl")).refs
    assert discover(put(tmp_path / "other place", "a.jsonl", "b/c.jsonl")).refs == one
    assert discover((tmp_path / "one").as_uri()).refs == one
    (tmp_path / "one" / "a.jsonl").write_text("changed")
    changed = discover(tmp_path / "one").refs
    os.rename(tmp_path / "one" / "b", tmp_path / "one" / "d")
    renamed = discover(tmp_path / "one").refs
    assert len({str(refs) for refs in (one, changed, renamed)}) == 3
    os.utime(tmp_path / "one" / "a.jsonl", (0, 0))
    put(tmp_path / "one", "notes.txt")
    assert discover(tmp_path / "one").refs == renamed


def test_a_finished_folder_gives_the_files_of_its_manifest(tmp_path: Path) -> None:
    manifest = finished(tmp_path, "data/a.jsonl", "data_clustered/b/c.parquet", sha256="0" * 64)
    put(tmp_path, "data/stranger.jsonl")
    found = discover(tmp_path)
    assert tasks(found) == ["a.jsonl", "b__c.parquet"]
    assert found.refs == [InputRef("rows", manifest.fingerprint)]
    assert found.rows == 11
    assert [file.digest for file in found.files] == ["0" * 64] * 2  # by the manifest: bulk data is not read for this


def test_a_folder_of_a_finished_folder_can_be_given(tmp_path: Path) -> None:
    finished(tmp_path, "data/a.jsonl", "data_clustered/b/c.parquet")
    found = discover(tmp_path / "data")
    assert (tasks(found), found.rows) == (["a.jsonl"], None)


def test_one_file_can_be_given(tmp_path: Path) -> None:
    put(tmp_path, "deep/a.jsonl")
    assert tasks(discover(tmp_path / "deep" / "a.jsonl")) == ["a.jsonl"]


def test_several_folders_are_taken_together(tmp_path: Path) -> None:
    put(tmp_path / "one", "b.jsonl")
    put(tmp_path / "two", "a.jsonl")
    found = discover(tmp_path / "one", tmp_path / "two")
    assert tasks(found) == ["b.jsonl", "a.jsonl"]
    assert len(found.refs) == 2


def test_rows_are_known_only_where_every_folder_says_them(tmp_path: Path) -> None:
    finished(tmp_path / "one", "data/a.jsonl")
    finished(tmp_path / "two", "data/b.jsonl")
    put(tmp_path / "three", "c.jsonl")
    assert discover(tmp_path / "one", tmp_path / "two").rows == 22
    assert discover(tmp_path / "one", tmp_path / "three").rows is None


def test_two_files_with_one_task_name_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "one", "a/b.jsonl", "a__b.jsonl")
    with pytest.raises(InputError, match=r"two files give the task name 'a__b.jsonl'"):
        discover(tmp_path / "one")
    put(tmp_path / "two", "x.jsonl")
    put(tmp_path / "three", "x.jsonl")
    with pytest.raises(InputError, match=r"two/x.jsonl and .*three/x.jsonl; rename one"):
        discover(tmp_path / "two", tmp_path / "three")


def test_a_folder_given_twice_is_refused(tmp_path: Path) -> None:
    # Its rows would be read twice, or the plan would name a shard twice: an internal error for a slip of the user.
    put(tmp_path, "a.jsonl")
    with pytest.raises((InputError, UsageError)):
        discover(tmp_path, tmp_path)


def test_a_file_that_holds_no_rows_by_its_extension_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    with pytest.raises(InputError, match=r"a.csv"):
        discover(tmp_path / "a.csv")


def test_nothing_to_read_is_an_input_error(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt")
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"no .jsonl or .parquet file found") as caught:
            discover(place)
        assert str(place) in str(caught.value)
    with pytest.raises(UsageError, match="is empty"):
        discover("")


def test_an_unfinished_folder_is_refused_also_by_its_inner_folders_and_files(tmp_path: Path) -> None:
    put(tmp_path, "data/a.jsonl", "data_clustered/b/c.parquet", manifests.STARTED)
    for place in (tmp_path, tmp_path / "data", tmp_path / "data" / "a.jsonl", tmp_path / "data_clustered" / "b"):
        with pytest.raises(InputError, match="began this folder and has not finished it"):
            discover(place)


def test_a_finished_folder_that_was_damaged_is_refused(tmp_path: Path) -> None:
    finished(tmp_path, "data/a.jsonl", "data/b.jsonl")
    (tmp_path / "data" / "b.jsonl").unlink()
    with pytest.raises(InputError, match=r"data/b.jsonl: missing"):
        discover(tmp_path)


def test_tags_are_those_of_the_manifests(tmp_path: Path) -> None:
    def folder(name: str, **tags: str) -> Path:
        manifest = finished(tmp_path / name, f"data/{name}.jsonl")
        manifest.data = conditions.to_data({tag: Tag(token, (name,)) for tag, token in tags.items()})
        (tmp_path / name / manifests.MANIFEST).write_bytes(manifest.dump())
        return tmp_path / name

    one, two = folder("one", legal="<|legal|>", b="<|b|>"), folder("two", legal="<|legal|>", a="<|a|>")
    found = discover(two, one, put(tmp_path / "others", "x.jsonl")).conditions
    assert list(found.items()) == [
        ("a", Tag("<|a|>", ("two",))),
        ("b", Tag("<|b|>", ("one",))),
        ("legal", Tag("<|legal|>", ("two", "one"))),
    ]
    assert (
        discover(one / "data").conditions == discover(one / "data" / "one.jsonl").conditions == discover(one).conditions
    )
    assert discover(folder("none")).conditions == {}
    with pytest.raises(InputError, match=r"two tokens; got <\|legal\|> in .*one, <\|x\|> in .*three; .*one and three"):
        discover(one, folder("three", legal="<|x|>"))
