"""Manifests: bytes, what is refused, ledgers."""

import json
from pathlib import Path

import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InputError, InternalError


def example() -> Manifest:
    ledger = Ledger(
        rows_in=5, rows_kept=4, rows_out=6, dropped={"empty": 1}, notes={"truncated": 2}, measures={"tokens": 9}
    )
    files = [
        File("b/é.jsonl", 3, "ab" * 32, "b"),
        File("a.jsonl", 1, "cd" * 32, "a"),
        File("a2.jsonl", 1, "ef" * 32, "a"),
    ]
    files.append(File("rejects/a.jsonl", 7, "01" * 32))
    inputs = [InputRef("raw", "0123456789abcdef")]
    return Manifest(
        "toy", 3, "f" * 16, {"profile": "pairmill", "x": [1, 2]}, inputs, ledger, files, {"a": ledger}, {"k": None}
    )


def test_a_manifest_comes_back_as_it_was_written() -> None:
    data = example().dump()
    assert Manifest.load(data, "x") == example()
    assert Manifest.load(data, "x").dump() == data


def test_the_bytes_do_not_depend_on_the_order_in_which_it_was_put_together() -> None:
    one, other = example(), example()
    other.options = {"x": [1, 2], "profile": "pairmill"}
    other.ledger = Ledger(6 - 1, 4, 6, {}, {}, {"tokens": 9})
    other.ledger.drop("empty")
    other.ledger.note("truncated", 2)
    assert one.dump() == other.dump()


def test_it_is_readable_text_that_ends_in_a_line_feed() -> None:
    text = example().dump().decode()
    assert text.endswith("}\n")
    assert "é" in text
    assert json.loads(text)["format"] == manifests.FORMAT


def test_tasks_are_the_data_files_by_name() -> None:
    tasks = example().tasks()
    assert {name: [file.path for file in files] for name, files in tasks.items()} == {
        "b": ["b/é.jsonl"],
        "a": ["a.jsonl", "a2.jsonl"],
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"5",
        b"{}",
        b'{"format": 1}',
        b"\xff",
        example().dump()[:-20],
        example().dump().replace(b'"format": 2', b'"format": 1'),
        example().dump().replace(b'"rows_in"', b'"rows_inn"'),
        example().dump().replace(b'"sha256"', b'"sha"'),
    ],
)
def test_what_is_no_manifest_is_an_input_error_that_names_the_file(data: bytes) -> None:
    with pytest.raises(InputError, match=r"folder/_MANIFEST\.json") as caught:
        Manifest.load(data, "folder/_MANIFEST.json")
    assert caught.value.exit_code == 3


def test_a_manifest_with_one_changed_byte_is_refused() -> None:
    data = example().dump()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(InputError, match="folder"):
            Manifest.load(bytes(changed), "folder")


def test_a_manifest_of_an_older_pairmill_is_read_and_says_that_it_is_one() -> None:
    raw = json.loads(example().dump())
    del raw["sha256"]
    old = Manifest.load(json.dumps({**raw, "format": 1}).encode(), "x")
    assert (old.format, old.files) == (1, example().files)
    # Written again, it has a digest.
    assert Manifest.load(old.dump(), "x") == example()


def test_a_folder_that_others_made_has_no_manifest(tmp_path: Path) -> None:
    assert manifests.read(str(tmp_path)) is None
    assert manifests.read(str(tmp_path / "nothing")) is None


def test_a_folder_that_was_begun_and_not_finished_is_refused(tmp_path: Path) -> None:
    (tmp_path / manifests.STARTED).write_bytes(b"{}")
    with pytest.raises(InputError, match=r"not finished.*it resumes"):
        manifests.read(str(tmp_path))
    (tmp_path / manifests.MANIFEST).write_bytes(example().dump())
    assert manifests.read(str(tmp_path)) == example()


def test_damage_names_files_that_are_gone_or_of_another_size(tmp_path: Path) -> None:
    manifest = example()
    for file in manifest.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * file.size)
    (tmp_path / "a stranger").write_bytes(b"")
    assert manifests.find_damage(str(tmp_path), manifest.files) == []
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "b" / "é.jsonl").write_bytes(b"xx")
    assert manifests.find_damage(str(tmp_path), manifest.files) == [
        "b/é.jsonl: 2 bytes, expected 3",
        "a.jsonl: missing",
    ]


def test_a_content_key_depends_on_values_and_not_on_their_order_in_a_map() -> None:
    assert manifests.content_key({"a": 1, "b": "é"}) == manifests.content_key({"b": "é", "a": 1})
    different = [("a", "b"), ("ab",), (["a", "b"],), ("a", ["b"]), (1,), ("1",), (1.0,), (True,), (None,), ()]
    assert len({manifests.content_key(*parts) for parts in different}) == len(different)
    # Frozen: a changed key would silently make every shard of every project again.
    assert manifests.content_key("clean", 1, {"b": [1, None], "a": "é"}) == (
        "6c2bdf7cbe665fb72225af8636ede0953a93ea7992f412f41521a48deb60f5bf"
    )


def test_ledgers_add_up() -> None:
    one = Ledger(3, 2, 4, {"empty": 1}, {"cut": 1}, {"tokens": 5})
    other = Ledger(2, 1, 1, {"empty": 0, "bad": 1}, {}, {"bytes": 7})
    assert Ledger.sum([one, other]) == Ledger(5, 3, 5, {"empty": 1, "bad": 1}, {"cut": 1}, {"tokens": 5, "bytes": 7})
    assert one == Ledger(3, 2, 4, {"empty": 1}, {"cut": 1}, {"tokens": 5})
    assert Ledger.sum([]) == Ledger()


def test_a_ledger_that_does_not_reconcile_is_a_defect() -> None:
    ledger = Ledger(rows_in=3, rows_kept=2)
    with pytest.raises(InternalError, match=r"toy: .*3 in, 2 kept, 0 dropped") as caught:
        ledger.reconcile("toy")
    assert caught.value.exit_code == 5
    ledger.drop("empty")
    ledger.reconcile("toy")


def test_a_result_that_was_deleted_is_told_from_a_folder_of_others(tmp_path: Path) -> None:
    gone = tmp_path / "clean" / "0123456789abcdef"
    with pytest.raises(InputError, match=r"the result of the stage is missing.*cache off") as caught:
        manifests.read_intact(str(gone))
    assert caught.value.exit_code == 3
    assert manifests.read_intact(str(tmp_path / "others")) is None
    gone.mkdir(parents=True)
    (gone / "rows.jsonl").write_text("")
    assert manifests.read_intact(str(gone)) is None
