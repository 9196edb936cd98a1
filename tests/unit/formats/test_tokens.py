"""Token-array folders: .npy bytes as numpy writes them, what is refused, and reading spans."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.errors import InputError
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import ARRAYS, INFO, Array, Dataset, NpyWriter, write_npy


def load(uri: str) -> np.ndarray[Any, Any]:
    """A whole array, read in pieces of three values."""
    pieces = list(Array.open(uri).pieces(3))
    assert all(len(piece) == 3 for piece in pieces[:-1])
    return np.concatenate(pieces) if pieces else np.empty(0)


def index_of(task: Dataset, size: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    pieces = list(task.index(size))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]} if pieces else {}


def saved(values: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.mark.parametrize("length", [0, 1, 9, 10, 99, 100, 12_345, 1_000_000])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64])
def test_an_array_that_is_appended_to_equals_one_that_is_saved(tmp_path: Path, length: int, dtype: type) -> None:
    values = np.arange(length).astype(dtype)
    with NpyWriter(tmp_path / "x.npy", dtype) as out:
        for piece in np.array_split(values, 7):
            out.append(piece)
    assert (tmp_path / "x.npy").read_bytes() == saved(values)
    assert np.array_equal(load(str(tmp_path / "x.npy")), values)


def test_values_are_cast_and_made_contiguous(tmp_path: Path) -> None:
    with NpyWriter(tmp_path / "x.npy", np.uint16) as out:
        out.append(np.arange(20, dtype=np.int64)[::2])
        out.append(np.array([5], ">u4"))
    assert (tmp_path / "x.npy").read_bytes() == saved(np.array([*range(0, 20, 2), 5], np.uint16))


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_an_array_of_known_length_equals_one_that_is_saved_and_its_digest_is_that_of_the_file(
    tmp_path: Path, pieces: int
) -> None:
    values = np.arange(100_000 if pieces else 0, dtype=np.int64)
    digest = write_npy(tmp_path / "x.npy", np.uint32, len(values), np.array_split(values, pieces) if pieces else [])
    assert (tmp_path / "x.npy").read_bytes() == saved(values.astype(np.uint32))
    assert digest == digest_bytes((tmp_path / "x.npy").read_bytes())


def test_an_error_in_the_midst_of_an_array_is_raised(tmp_path: Path) -> None:
    def chunks() -> Iterator[Any]:
        yield np.arange(5)
        raise InputError("is gone", where="the third chunk")

    with pytest.raises(InputError, match="is gone"):
        write_npy(tmp_path / "x.npy", np.uint32, 10, chunks())


def write(path: Path, values: Any) -> str:
    np.save(path, values)
    return str(path)


def test_either_npy_version_is_read(tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(5, dtype=np.uint32), version=(2, 0))
    assert load(str(tmp_path / "x.npy")).tolist() == [0, 1, 2, 3, 4]
    # data_io's programs leave out the comma behind the shape.
    raw = saved(np.arange(5, dtype=np.uint32)).replace(b"(5,), }", b"(5,)}  ")
    (tmp_path / "y.npy").write_bytes(raw)
    assert load(str(tmp_path / "y.npy")).tolist() == [0, 1, 2, 3, 4]


def test_a_big_endian_array_is_read_right(tmp_path: Path) -> None:
    assert load(write(tmp_path / "x.npy", np.arange(5, dtype=">u4"))).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((2, 3), np.int64),
        np.zeros((1, 5), np.uint32),
        np.zeros((), np.int64),
        np.zeros(3, np.float64),
        np.zeros(3, np.bool_),
        np.array(["a"]),
        np.zeros(3, np.complex64),
        np.zeros(3, "datetime64[s]"),
    ],
)
def test_an_array_of_another_shape_or_kind_is_refused(tmp_path: Path, values: Any) -> None:
    with pytest.raises(InputError, match=r"x.npy: not a one-dimensional array of integers.*tokenize again"):
        load(write(tmp_path / "x.npy", values))


def test_an_array_of_objects_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError):
        load(str(tmp_path / "x.npy"))


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _longer(data: bytes) -> bytes:
    return data + b"\0"


def _header_alone(data: bytes) -> bytes:
    return data[:128]


def _half_a_header(data: bytes) -> bytes:
    return data[:40]


def _nothing(data: bytes) -> bytes:
    return b""


def _text(data: bytes) -> bytes:
    return b"tokens\n" * 50


def _wild_header(data: bytes) -> bytes:
    return data.replace(b"'shape': (5,)", b"'shape': (5,}")


@pytest.mark.parametrize("harm", [_cut, _longer, _header_alone, _half_a_header, _nothing, _text, _wild_header])
def test_a_file_that_is_no_whole_array_is_refused(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    (tmp_path / "x.npy").write_bytes(harm(saved(np.arange(5, dtype=np.uint32))))
    with pytest.raises(InputError, match=r"x\.npy"):
        load(str(tmp_path / "x.npy"))


def test_an_absent_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.npy: does not exist"):
        load(str(tmp_path / "nothing.npy"))


# --- folders --------------------------------------------------------------------------------------------------------


def put_task(folder: Path, rows: list[tuple[int, int]], **changed: Any) -> Path:
    """A task whose rows have these (instruction, response) lengths."""
    folder.mkdir(parents=True)
    inst = np.array([row[0] for row in rows], np.uint64)
    resp = np.array([row[1] for row in rows], np.uint64)
    ends = np.cumsum(inst + resp, dtype=np.uint64)
    arrays = {
        "tokens": np.arange(int((inst + resp).sum()), dtype=np.uint32),
        "inst_start": ends - resp - inst,
        "inst_len": inst,
        "resp_start": ends - resp,
        "resp_len": resp,
        **changed,
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def test_the_index_of_a_task_comes_as_signed_integers(tmp_path: Path) -> None:
    put_task(tmp_path / "a.jsonl", [(3, 2), (1, 1), (4, 4)])
    index = index_of(Dataset("a.jsonl", str(tmp_path / "a.jsonl")))
    assert {name: values.tolist() for name, values in index.items()} == {
        "inst_start": [0, 5, 7],
        "inst_len": [3, 1, 4],
        "resp_start": [3, 6, 11],
        "resp_len": [2, 1, 4],
    }
    assert {values.dtype for values in index.values()} == {np.dtype(np.int64)}


def test_a_task_without_rows_has_an_empty_index(tmp_path: Path) -> None:
    put_task(tmp_path / "a", [])
    assert index_of(Dataset("a", str(tmp_path / "a"))) == {}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"resp_len": np.array([2, 1], np.uint64)}, "differ in length"),
        ({"tokens": np.arange(16, dtype=np.uint32)}, "has another length than all spans together"),
        ({"tokens": np.arange(14, dtype=np.uint32)}, "points outside|ends after|another length"),
        ({"tokens": np.zeros(1, np.uint32)}, "points outside the tokens"),
        ({"inst_start": np.array([0, 5, 1 << 63], np.uint64)}, "inst_start points outside the tokens"),
        ({"inst_start": np.array([0, 5, (1 << 64) - 1], np.uint64)}, "inst_start points outside the tokens"),
        ({"inst_start": np.array([0, -5, 7], np.int64)}, "inst_start points outside the tokens"),
        ({"resp_len": np.array([2, 1, 1 << 62], np.uint64)}, "resp_len points outside the tokens"),
        (
            {"resp_start": np.array([3, 6, 12], np.uint64)},
            "row 3: a span ends after the last token; got 16; expected <= 15",
        ),
    ],
)
def test_spans_that_do_not_fit_their_tokens_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    put_task(tmp_path / "a", [(3, 2), (1, 1), (4, 4)], **changed)
    with pytest.raises(InputError, match=said):
        index_of(Dataset("a", str(tmp_path / "a")))


def foreign(folder: Path, *names: str) -> Path:
    for name in names:
        put_task(folder / name, [(2, 2), (1, 3)])
    (folder / INFO).write_text(json.dumps({"vocab_size": 99}))
    return folder


def test_a_folder_that_others_made_is_read_sorted_by_code_point(tmp_path: Path) -> None:
    foreign(tmp_path, "b", "B", "a b.jsonl", "é")
    found = open_tokenized(str(tmp_path), "tokenized_path", tolerate_strays=False)
    assert [task.name for task in found.tasks] == ["B", "a b.jsonl", "b", "é"]
    assert (found.info, found.rows) == ({"vocab_size": 99}, None)


def test_the_identity_of_a_foreign_folder_is_its_content(tmp_path: Path) -> None:
    one = open_tokenized(str(foreign(tmp_path / "one", "a", "b")), "p", tolerate_strays=True).fingerprint
    other = foreign(tmp_path / "other", "a", "b")
    (other / "a" / "metadata.json").write_text("{}")  # data_io's cache key: a time, and not read
    assert open_tokenized(str(other), "p", tolerate_strays=True).fingerprint == one
    np.save(other / "a" / "tokens.npy", np.ones(8, np.uint32))
    assert open_tokenized(str(other), "p", tolerate_strays=True).fingerprint != one


def test_a_stray_folder_is_passed_over_where_asked(tmp_path: Path) -> None:
    foreign(tmp_path, "a")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("x")
    assert [task.name for task in open_tokenized(str(tmp_path), "p", tolerate_strays=True).tasks] == ["a"]
    with pytest.raises(InputError, match=r"notes: arrays of this data set are missing"):
        open_tokenized(str(tmp_path), "p", tolerate_strays=False)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_task_that_lacks_an_array_is_refused(tmp_path: Path, name: str) -> None:
    foreign(tmp_path, "a")
    (tmp_path / "a" / f"{name}.npy").unlink()
    with pytest.raises(InputError, match=f"arrays of this data set are missing; got a/{name}.npy"):
        open_tokenized(str(tmp_path), "p", tolerate_strays=True)


@pytest.mark.parametrize("text", ["", "[]", "{", "5", "null"])
def test_information_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    foreign(tmp_path, "a")
    (tmp_path / INFO).write_text(text)
    with pytest.raises(InputError, match="not a JSON object"):
        open_tokenized(str(tmp_path), "p", tolerate_strays=True)


def test_what_is_no_tokenized_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tokenized_path=.*tokenizer_info.json does not exist"):
        open_tokenized(str(tmp_path), "tokenized_path", tolerate_strays=True)
    (tmp_path / manifests.STARTED).write_text("{}")
    with pytest.raises(InputError, match="has not finished it"):
        open_tokenized(str(tmp_path), "tokenized_path", tolerate_strays=True)


def test_a_folder_of_ours_is_read_by_its_manifest(tmp_path: Path) -> None:
    foreign(tmp_path, "a", "stranger")
    files = [File(f"a/{name}.npy", (tmp_path / "a" / f"{name}.npy").stat().st_size, "0" * 64, "a") for name in ARRAYS]
    manifest = Manifest("tokenize", 1, "f" * 16, {}, [], Ledger(2, 2, 2), files)
    (tmp_path / manifests.MANIFEST).write_bytes(manifest.dump())
    found = open_tokenized(str(tmp_path), "p", tolerate_strays=True)
    assert ([task.name for task in found.tasks], found.fingerprint, found.rows) == (["a"], "f" * 16, 2)
    (tmp_path / "a" / "resp_len.npy").unlink()
    found = open_tokenized(str(tmp_path), "p", tolerate_strays=True)  # from the manifest, nothing is looked at
    with pytest.raises(InputError, match=r"a/resp_len.npy: is missing, or not what its manifest says; got nothing"):
        found.tasks[0].array("resp_len")
    (tmp_path / "a" / "resp_len.npy").write_bytes(b"short")
    with pytest.raises(InputError, match="got 5 bytes; expected 1"):
        found.tasks[0].array("resp_len")


@pytest.mark.parametrize("how", ["empty", "links", "finished"])
def test_a_folder_without_a_data_set_is_refused(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "tokenized"
    folder.mkdir()
    (folder / INFO).write_text("{}")
    if how == "links":
        (tmp_path / "elsewhere").mkdir()
        (folder / "a").symlink_to(tmp_path / "elsewhere")
    if how == "finished":
        digest = hashlib.sha256(b"{}").hexdigest()
        files = [File(INFO, 2, digest)]
        made = Manifest("tokenize", 1, "f" * 16, {}, [], Ledger(), files)
        (folder / manifests.MANIFEST).write_bytes(made.dump())
    with pytest.raises(InputError, match="no data set in the tokenized folder") as caught:
        open_tokenized(str(folder), "tokenized_path", tolerate_strays=True)
    assert caught.value.exit_code == 3
    assert str(folder) in str(caught.value)
