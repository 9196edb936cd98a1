"""Token files of other programs: what is read of them, and each way in which a file can be wrong."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pairmill.errors import InputError
from pairmill.formats import token_files
from pairmill.formats.slices import FileSlice
from pairmill.formats.token_files import Index, Samples
from tests.support import tools
from tests.support.data.megatron import Document, indexed

# --- stretches ------------------------------------------------------------------------------------------------------


def stretches(marks: list[list[bool]]) -> list[tuple[int, int]]:
    """The same, one element after another."""
    found: list[tuple[int, int]] = []
    place = 0
    for sample in marks:
        open_ = False
        for marked in sample:
            if marked and open_:
                found[-1] = (found[-1][0], place + 1)
            elif marked:
                found.append((place, place + 1))
            open_ = marked
            place += 1
    return found


def test_stretches_are_those_that_one_finds_by_hand() -> None:
    draw = random.Random(3)
    found = 0
    for _ in range(300):
        chance = draw.random()
        marks = [
            [draw.random() < chance for _ in range(draw.choice((0, 0, 1, 2, 9)))] for _ in range(draw.randint(0, 6))
        ]
        flat = np.array([one for sample in marks for one in sample], np.bool_)
        offsets = np.cumsum([0, *map(len, marks)], dtype=np.int64)
        begins, ends = token_files.runs(flat, offsets)
        assert list(zip(begins.tolist(), ends.tolist(), strict=True)) == stretches(marks)
        found += len(begins)
    assert found > 500


# --- Parquet --------------------------------------------------------------------------------------------------------

IDS = [[5, 6, 7, 8], [], [9], [10, 11, 12]]
LABELS = [[-100, -100, 7, 8], [], [-100], [10, -100, 12]]


def parquet(tmp_path: Path, columns: dict[str, Any], **options: Any) -> str:
    return f"file://{tools.write_table(tmp_path / 'a.parquet', columns, **options)}"


def read(uri: str, **options: Any) -> list[tuple[list[int], list[bool] | None]]:
    """Ids, and which of them are trained on, of each sample."""
    found, number = [], 0
    for samples in token_files.read_parquet(uri, **options):
        assert samples.start == number
        number += len(samples)
        found += listed(samples)
    return found


def listed(samples: Samples) -> list[tuple[list[int], list[bool] | None]]:
    found = []
    for begin, end in zip(samples.offsets[:-1], samples.offsets[1:], strict=True):
        trained = samples.trained[begin:end].tolist() if samples.trained is not None else None
        found.append((samples.ids[begin:end].tolist(), trained))
    return found


EXPECTED = [
    ([5, 6, 7, 8], [False, False, True, True]),
    ([], []),
    ([9], [False]),
    ([10, 11, 12], [True, False, True]),
]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint16(), pa.int16()])
@pytest.mark.parametrize("lists", [pa.list_, pa.large_list])
def test_lists_of_every_width_are_read(tmp_path: Path, kind: pa.DataType, lists: Any) -> None:
    columns = {"text": ["", "a", "b", "c"], "input_ids": pa.array(IDS, lists(kind)), "labels": LABELS}
    assert read(parquet(tmp_path, columns)) == EXPECTED
    assert read(parquet(tmp_path, columns, row_group_size=1)) == EXPECTED


def test_lists_of_one_length_are_read(tmp_path: Path) -> None:
    two = pa.list_(pa.int32(), 2)
    uri = parquet(tmp_path, {"input_ids": pa.array([[1, 2], [3, 4]], two), "labels": pa.array([[1, -100]] * 2, two)})
    with pytest.raises(InputError, match=r"row 2, token 1: the label is neither -100 nor the id at its place; got 1"):
        read(uri)
    uri = parquet(tmp_path, {"input_ids": pa.array([[1, 2], [3, 4]], two)})
    assert read(uri) == [([1, 2], None), ([3, 4], None)]


@pytest.mark.parametrize("name", ["loss_mask", "completion_mask", "assistant_masks"])
def test_a_mask_says_the_same_as_labels(tmp_path: Path, name: str) -> None:
    mask = [[int(label != -100) for label in labels] for labels in LABELS]
    truths = pa.array([[number == 1 for number in numbers] for numbers in mask])
    for column in (truths, pa.array(mask, pa.list_(pa.int8())), pa.array(mask)):
        assert read(parquet(tmp_path, {"input_ids": IDS, name: column})) == EXPECTED
    uri = parquet(tmp_path, {"input_ids": IDS, name: mask, "labels": LABELS})
    with pytest.raises(InputError, match=f"several columns say which tokens are trained on; got labels, {name}; write"):
        read(uri)
    with pytest.raises(InputError, match=f"row 4, token 2: {name} is neither 0 nor 1; got 2; expected 0 or 1"):
        read(parquet(tmp_path, {"input_ids": IDS, name: [[0, 1, 1, 1], [], [0], [0, 2, 1]]}))


def test_padding_is_left_out_at_both_ends(tmp_path: Path) -> None:
    columns = {
        "input_ids": [[0, 0, 5, 6], [7, 8, 0, 0], [0, 0, 0, 0], [1, 2, 3, 4]],
        "attention_mask": [[0, 0, 1, 1], [1, 1, 0, 0], [0] * 4, [1] * 4],
        "labels": [[-100, -100, -100, 6], [-100, 8, -100, -100], [-100] * 4, [1, 2, 3, 4]],
        "position_ids": [[1, 1, 0, 1], [0, 1, 0, 0], [0] * 4, [0, 1, 2, 3]],
    }
    expected = [([5, 6], [False, True]), ([7, 8], [False, True]), ([], []), ([1, 2, 3, 4], [True] * 4)]
    assert read(parquet(tmp_path, columns)) == expected
    columns["attention_mask"][3] = [1, 0, 1, 1]
    with pytest.raises(InputError, match=r"row 4, token 3: padding between two tokens of a sample"):
        read(parquet(tmp_path, columns))
    columns["attention_mask"][3] = [1, 1, 2, 2]
    with pytest.raises(InputError, match=r"row 4, token 3: attention_mask is neither 0 nor 1; got 2"):
        read(parquet(tmp_path, columns))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"tokens": [[1]]}, r"column 'input_ids' is missing; got tokens; .* under the name input_ids"),
    "rows": (
        {"condition": ["a"], "instruction": ["b"], "response": ["c"]},
        r"column 'input_ids' is missing; got condition, .* these are rows: give them as rows=",
    ),
    "texts": ({"input_ids": ["a"]}, "column 'input_ids' is not a list of integers; got string; expected list<int32>"),
    "numbers": ({"input_ids": [[1.5]]}, "column 'input_ids' is not a list of integers; got list<element: double>"),
    "one number": ({"input_ids": [1]}, "column 'input_ids' is not a list of integers; got int64"),
    "null": ({"input_ids": [[1], None]}, r"a\.parquet row 2: input_ids is null"),
    "null id": ({"input_ids": [[1], [2, None]]}, r"a\.parquet row 2: input_ids has a null"),
    "null labels": ({"input_ids": [[1], [2]], "labels": [[1], None]}, r"row 2: labels is null"),
    "lengths": (
        {"input_ids": [[1], [2, 3]], "labels": [[1], [2]]},
        r"row 2: labels and input_ids differ in length; got 1; expected 2",
    ),
    "shifted": (
        {"input_ids": [[1, 2, 3]], "labels": [[2, 3, -100]]},
        r"row 1, token 1: the label is neither -100 nor the id at its place; got 2; .* labels are not shifted here",
    ),
    "packed": (
        {"input_ids": [[1], [1, 2, 3]], "position_ids": [[0], [0, 1, 0]]},
        r"row 2, token 3: several samples are packed in one record; got 0; .* write one sample a record",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, what: str) -> None:
    columns, said = WRONG[what]
    with pytest.raises(InputError, match=said):
        read(parquet(tmp_path, columns))


def test_a_long_record_is_refused(tmp_path: Path) -> None:
    uri = parquet(tmp_path, {"input_ids": [[1] * 10, list(range(5_000))]})
    assert len(read(uri, longest=80_000)) == 2
    with pytest.raises(InputError, match="longer than max_record_bytes"):
        read(uri, longest=20_000)


def test_memory_follows_the_tokens_not_the_bytes_of_the_file(tmp_path: Path) -> None:
    """-100 throughout takes no bytes, and eight a token when it is decoded."""
    rows, tokens = 400, 8_000
    same = pa.array(np.full(rows * tokens, 7))
    offsets = pa.array(np.arange(0, rows * tokens + 1, tokens, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, same)
    uri = parquet(tmp_path, {"input_ids": lists, "labels": lists})
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    sizes = [len(samples.ids) for samples in token_files.read_parquet(uri)]
    assert sum(sizes) == rows * tokens
    assert max(sizes) <= (4 << 20) // 8


# --- Megatron-LM ----------------------------------------------------------------------------------------------------

DOCUMENTS: list[Document] = [[[1, 2, 3]], [[4], [], [5, 6]], [], [[7]], [[8, 9], [10]]]
JOINED = [[1, 2, 3], [4, 5, 6], [], [7], [8, 9, 10]]


def documents(path: Path, *parts: tuple[int, int], longest: int = 1 << 20) -> list[list[int]]:
    uri = f"file://{path}"
    index = Index.open(uri.removesuffix(".bin") + ".idx")
    found: list[list[int]] = []
    for part in parts or ((0, index.documents),):
        for samples in index.read(uri, FileSlice(path.name, uri, *part), longest=longest):
            assert samples.start == len(found) + (parts[0][0] if parts else 0)
            found += [ids for ids, trained in listed(samples) if trained is None]
    return found


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "uint16"])
def test_documents_of_every_type_are_read(tmp_path: Path, dtype: str) -> None:
    path = indexed(tmp_path / "a_text_document", DOCUMENTS, dtype)
    assert documents(path) == JOINED
    assert documents(path, (0, 2), (2, 5)) == JOINED
    assert documents(path, (1, 4)) == JOINED[1:4]


def test_sequences_may_be_anywhere_in_the_file(tmp_path: Path) -> None:
    path = indexed(tmp_path / "a", [[[1, 2]], [[3]], [[4, 5]]], places=[6, 4, 0])
    assert documents(path) == [[4, 5], [3], [1, 2]]


def test_many_documents_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "_INDEXED", 7)
    monkeypatch.setattr(token_files, "_BATCH_BYTES", 40)
    draw = random.Random(1)
    many = [
        [[draw.randrange(1000) for _ in range(draw.randrange(9))] for _ in range(draw.randrange(3))] for _ in range(99)
    ]
    path = indexed(tmp_path / "a", many)
    assert documents(path) == [[number for sequence in document for number in sequence] for document in many]


def test_no_document_is_no_sample(tmp_path: Path) -> None:
    assert documents(indexed(tmp_path / "a", [])) == []


BOUNDS = "the document index does not divide the sequences"
TYPE = r"the type of the ids is not of integers; got code {}; expected 1 \(uint8\), .*8 \(uint16\)"
SIZE = r"the index has another size than its header says; got \d+ bytes; expected \d+ for {} sequences"
OUTSIDE = (
    r"a\.idx sequence {}: a sequence is outside the \.bin file; got bytes {}; expected 0 to 20, the size of a\.bin"
)
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "magic": ({"magic": b"TNTIDX\x00\x00\x01"}, r"a\.idx: not an index of Megatron-LM; got b'TNTIDX.*preprocess_data"),
    "version": ({"version": 2}, r"a\.idx: an index of another version; got 2; expected 1"),
    "floats": ({"code": 7}, TYPE.format(7)),
    "code": ({"code": 9}, TYPE.format(9)),
    "sequences": ({"sequences": 5}, SIZE.format(5)),
    "modes": ({"bounds": [0, 1, 4, 4, 5, 7, 0]}, f"{SIZE.format(7)}.* several modalities are not read"),
    "no bounds": ({"entries": 0, "bounds": []}, SIZE.format(7)),
    "first": ({"bounds": [1, 1, 4, 4, 5, 7]}, BOUNDS),
    "last": ({"bounds": [0, 1, 4, 4, 5, 6]}, BOUNDS),
    "order": ({"bounds": [0, 4, 1, 4, 5, 7]}, BOUNDS),
    "beyond": ({"bounds": [0, 1, 4, 4, 9, 7]}, BOUNDS),
    "length": ({"lengths": [3, 1, -1, 2, 1, 2, 1]}, OUTSIDE.format(3, "8 to 6")),
    "place": ({"places": [0, 6, 8, 8, 12, 14, 19]}, OUTSIDE.format(7, "19 to 21")),
    "wide type": ({"code": 4}, OUTSIDE.format(6, "14 to 22")),
    "narrow type": (
        {"code": 1, "places": [0, 3, 4, 4, 6, 7, 9]},
        r"a\.bin: the \.bin file goes on after its last sequence; got 20 bytes; expected 10 by its index",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, what: str) -> None:
    changed, said = BROKEN[what]
    path = indexed(tmp_path / "a", DOCUMENTS, **changed)
    with pytest.raises(InputError, match=said):
        documents(path)


@pytest.mark.parametrize("name", ["a.bin", "a.idx"])
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    path = indexed(tmp_path / "a", DOCUMENTS)
    whole = (tmp_path / name).read_bytes()
    for size in (0, 9, len(whole) - 1):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"a\.idx"):
            documents(path)


def test_a_long_document_is_refused(tmp_path: Path) -> None:
    path = indexed(tmp_path / "a", [[[1]], [[2] * 60, [3] * 60]])
    assert len(documents(path, longest=240)) == 2
    with pytest.raises(
        InputError, match=r"a\.bin document 2: a document is longer than max_record_bytes; got 240 bytes"
    ):
        documents(path, longest=239)
