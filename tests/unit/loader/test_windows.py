"""Windows over flat token files: every token once, padding, packing, digests, and what is refused."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill import _native
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.formats.tokens import INDEX
from pairmill.loader import Loader, MixturePlan
from pairmill.loader.arrays import numbers
from pairmill.loader.windows import Windows
from tests.support.data import samples
from tests.support.helpers import as_somebody

KINDS = [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]
Ints = NDArray[np.int64]
EOS = 2


def expected(arrays: list[NDArray[Any]], seq_len: int, eos: int | None) -> list[dict[str, list[int]]]:
    """The windows, token by token."""
    found = []
    for array in arrays:
        ids = [int(token) for token in array]
        for start in range(0, len(ids) - 1, seq_len):
            window: dict[str, list[int]] = {"input_ids": [], "labels": [], "doc_ids": []}
            document = 0
            for at in range(start, min(start + seq_len, len(ids) - 1)):
                window["input_ids"].append(ids[at])
                window["labels"].append(-100 if ids[at] == eos else ids[at + 1])
                window["doc_ids"].append(document)
                document += ids[at] == eos
            last = window["doc_ids"][-1]
            for name, padding in (("input_ids", 0), ("labels", -100), ("doc_ids", last + 1)):
                window[name] += [padding] * (seq_len - len(window[name]))
            if eos is None:
                del window["doc_ids"]
            found.append(window)
    return found


def filled(windows: Windows, indices: list[int]) -> dict[str, Ints]:
    out = windows.empty(len(indices))
    for array in out.values():
        array.fill(-7)
    windows.fill(np.array(indices, np.int64), out)
    return out


def random_arrays(seed: int) -> list[NDArray[Any]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 9, int(random.integers(1, 60))).astype(kind) for kind in KINDS]


@pytest.mark.parametrize("eos", [None, EOS])
@pytest.mark.parametrize("seed", range(20))
def test_windows_are_those_of_the_definition(seed: int, eos: int | None) -> None:
    arrays = random_arrays(seed)
    seq_len = 1 + seed
    windows = Windows.of_arrays(arrays, seq_len=seq_len, eos_id=eos)
    wanted = expected(arrays, seq_len, eos)
    assert len(windows) == windows.windows == len(wanted) > 0
    order = np.random.default_rng(seed).permutation(len(wanted)).tolist()
    out = filled(windows, order)
    assert sorted(out) == sorted(windows.fields)
    for name, array in out.items():
        assert array.dtype == np.dtype(np.int64)
        assert array.tolist() == [wanted[window][name] for window in order]


@pytest.mark.parametrize("seed", range(10))
def test_each_token_is_an_input_once_and_a_label_once(seed: int) -> None:
    # Ids that differ, from 1 on: 0 is padding.
    lengths = np.random.default_rng(seed).integers(1, 40, 6)
    ends = np.cumsum(lengths)
    arrays = [np.arange(end - length, end, dtype=np.uint16) + 1 for end, length in zip(ends, lengths, strict=True)]
    windows = Windows.of_arrays(arrays, seq_len=7)
    out = filled(windows, list(range(len(windows))))
    assert sorted(out["input_ids"][out["input_ids"] > 0]) == [token for array in arrays for token in array[:-1]]
    assert sorted(out["labels"][out["labels"] >= 0]) == [token for array in arrays for token in array[1:]]
    assert windows.tokens == ends[-1]
    assert windows.padded == int((out["labels"] == -100).sum()) == int((out["input_ids"] == 0).sum())


def test_some_windows_alone() -> None:
    array = np.arange(3, 44, dtype=np.uint16)
    whole = Windows.of_arrays([array], seq_len=4)
    some = whole.only(np.array([7, 2, 5]))
    assert len(some) == 3
    for name, wanted in filled(whole, [5, 7]).items():
        assert np.array_equal(filled(some, [2, 0])[name], wanted)
    assert np.array_equal(filled(some.only(np.array([1])), [0])["input_ids"], filled(whole, [2])["input_ids"])
    assert len({whole.digest, some.digest, whole.only(np.array([2, 5, 7])).digest}) == 3
    assert whole.only(np.array([7, 2, 5])).digest == some.digest
    with pytest.raises(UsageError, match="no such window"):
        some.fill(np.array([3]), some.empty(1))
    for wrong in ([], [10], [-1]):
        with pytest.raises(UsageError, match="no such window"):
            whole.only(np.array(wrong, np.int64))


def test_several_patterns(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", np.arange(9))
    assert len(Windows.of_files(tmp_path, seq_len=8, pattern=["c.npy", "[ac].npy"])) == 2
    with pytest.raises(UsageError, match=r"pattern\[1\]"):
        Windows.of_files(tmp_path, seq_len=8, pattern=["c.npy", 3])  # type: ignore[list-item]


def test_threads_may_share_it() -> None:
    arrays = [np.random.default_rng(1).integers(0, 9, 5000).astype(np.uint16)]
    windows = Windows.of_arrays(arrays, seq_len=16, eos_id=EOS)
    everything = list(range(len(windows)))
    alone = filled(windows, everything)
    with ThreadPoolExecutor(8) as pool:
        for out in pool.map(lambda _: filled(windows, everything), range(32)):
            assert all(np.array_equal(out[name], alone[name]) for name in windows.fields)


def tokenized(folder: Path, tasks: int = 2) -> Path:
    """As tokenize and data_io leave it."""
    for number in range(tasks):
        task = folder / f"task_{number}"
        task.mkdir(parents=True)
        np.save(task / "tokens.npy", np.arange(40, dtype=np.uint32) + 100 * number)
        for name in INDEX:
            np.save(task / f"{name}.npy", np.arange(5, dtype=np.uint64))
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 512}))
    return folder


class TestIndex:
    @pytest.mark.parametrize(
        ("place", "pattern", "files"),
        [
            ("task_0", "*.npy", 1),
            ("task_1", "tokens.npy", 1),
            ("task_1", "*", 1),
            (".", "**/*.npy", 2),
            (".", "*/*.npy", 2),
            (".", "*/tokens.npy", 2),
        ],
    )
    def test_of_a_task_folder_tokens_alone_are_tokens(
        self, tmp_path: Path, place: str, pattern: str, files: int
    ) -> None:
        windows = Windows.of_files(tokenized(tmp_path / "t") / place, seq_len=8, pattern=pattern)
        assert windows.tokens == files * 40
        assert sorted(windows._places) == sorted(map(str, (tmp_path / "t" / place).glob("**/tokens.npy")))

    def test_of_a_sampled_folder_too(self, tmp_path: Path) -> None:
        folder = samples.sampled(tmp_path / "s", [[(3, 4)] * 5] * 2)
        assert Windows.of_files(folder, seq_len=8, pattern="**/*.npy").tokens == 2 * 5 * 7
        np.save(folder / "epoch_0/resp_bytes.npy", np.zeros(5, np.int32))
        with pytest.raises(InputError, match=r"no token files; got only index arrays for '\*.npy'"):
            Windows.of_files(folder / "epoch_0", seq_len=8)

    def test_one_file_of_such_a_name_alone_is_one_of_tokens(self, tmp_path: Path) -> None:
        np.save(tmp_path / "inst_len.npy", np.arange(40, dtype=np.uint16))
        assert Windows.of_files(tmp_path, seq_len=8).tokens == 40


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"folder": 5}, "folder: not a path; got 5"),
            ({"folder": None}, "folder: not a path"),
            ({"folder": ""}, "folder: not a path"),
            ({"seq_len": "8"}, "seq_len: not an integer; got '8'; expected an integer; write seq_len=8"),
            ({"seq_len": 8.0}, "seq_len: not an integer"),
            ({"seq_len": 2**70}, "seq_len: out of range"),
            ({"pattern": 5}, "pattern: not a list; got 5; expected a glob or several"),
            ({"pattern": ""}, "pattern: not a pattern"),
            ({"pattern": "/x/*.npy"}, "pattern: not a pattern; got '/x/"),
            ({"dtype": 5}, "dtype: not a dtype"),
            ({"dtype": "nonsense,"}, "dtype: not a dtype"),
            ({"eos_id": "0"}, "eos_id: not an integer"),
            ({"name": 5}, "name: wrong type"),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path: Path, given: dict[str, Any], said: str) -> None:
        np.save(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
        with pytest.raises(UsageError, match=said):
            Windows.of_files(**{"folder": tmp_path, "seq_len": 8, **given})

    @pytest.mark.parametrize("arrays", [5, "x", [5], [[1, 2]], np.arange(5), None])
    def test_what_are_no_arrays(self, arrays: Any) -> None:
        with pytest.raises(UsageError, match="arrays"):
            Windows.of_arrays(arrays, seq_len=8)

    @pytest.mark.parametrize("indices", ["x", [2**70], [[None]], {}, object()])
    def test_what_are_no_indices(self, indices: Any) -> None:
        windows = Windows.of_arrays([np.arange(40, dtype=np.uint16)], seq_len=8)
        with pytest.raises(UsageError, match="not indices"):
            windows.fill(indices, windows.empty(1))

    @pytest.mark.parametrize("place", ["", "a.npy", "b"])
    def test_what_may_not_be_read(self, tmp_path: Path, place: str) -> None:
        np.save(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
        (tmp_path / "b").mkdir()
        Windows.of_files(tmp_path, seq_len=8)  # what is imported late may not be readable for somebody else either
        (tmp_path / place).chmod(0)
        found = re.escape(str(tmp_path / place)) if place != "b" else "no token files"
        with as_somebody(tmp_path), pytest.raises(PairmillError, match=found) as caught:
            Windows.of_files(tmp_path, seq_len=8, pattern="b/*.npy" if place == "b" else "*.npy")
        assert isinstance(caught.value, StorageError) or place == "b"


class TestTruncated:
    def test_a_file_made_shorter_is_noticed_when_a_pass_begins(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.arange(41, dtype=np.uint16))
        plan = MixturePlan([Windows.of_files(tmp_path, seq_len=8)])
        with Loader(plan, batch_tokens=16, threads=0) as loader:
            next(iter(loader))
            os.truncate(tmp_path / "a.npy", 100)
            next(iter(loader))
            with pytest.raises(InputError, match=r"a.npy: truncated while it was in use"):
                next(iter(loader))
        with pytest.raises(InputError, match=r"a.npy: truncated while"):
            Loader(plan, batch_tokens=16, threads=0)


class TestTokenizer:
    def test_windows_of_two_tokenizers_make_no_mixture(self, tmp_path: Path) -> None:
        one, two = tokenized(tmp_path / "one"), tokenized(tmp_path / "two")
        (two / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 300}))
        sources = [
            Windows.of_files(one / "task_0", seq_len=8, name="a"),
            Windows.of_files(two, seq_len=8, pattern="*/tokens.npy", name="b"),
        ]
        with pytest.raises(
            InputError, match=r"sources: made with different tokenizers.*a: vocab_size 512; b: vocab_size 300"
        ):
            MixturePlan(sources)
        same = [sources[0], Windows.of_files(one / "task_1", seq_len=8, name="b")]
        assert MixturePlan(same).names == ("a", "b")

    def test_the_manifest_of_tokenize_tells_them_apart(self, tmp_path: Path) -> None:
        for name, digest in (("one", "a"), ("two", "b"), ("three", "b")):
            folder = tokenized(tmp_path / name)
            files = [File("tokenizer_info.json", (folder / "tokenizer_info.json").stat().st_size, "0" * 64)]
            refs = [InputRef("rows", "0" * 16), InputRef("tokenizer", digest * 16)]
            Manifest("tokenize", 1, "0" * 16, {}, refs, Ledger(), files).finish(str(folder))
        one, two, three = (
            Windows.of_files(tmp_path / name / "task_0", seq_len=8, name=name) for name in ("one", "two", "three")
        )
        with pytest.raises(InputError, match=f"one: sha256 {'a' * 16}.*two: sha256 {'b' * 16}"):
            MixturePlan([one, two])
        assert MixturePlan([two, three]).names == ("two", "three")

    def test_a_task_of_an_unfinished_folder_is_refused(self, tmp_path: Path) -> None:
        (tokenized(tmp_path / "t") / "tokenizer_info.json").unlink()
        manifests.begin(str(tmp_path / "t"), "tokenize", "0" * 16)
        with pytest.raises(InputError, match="began this folder and has not finished it"):
            Windows.of_files(tmp_path / "t" / "task_0", seq_len=8)


class TestFiles:
    def test_npy_and_raw_give_the_same_windows(self, tmp_path: Path) -> None:
        ids = np.arange(100, dtype=np.uint16)
        (tmp_path / "npy").mkdir()
        (tmp_path / "raw").mkdir()
        for number, part in enumerate(np.split(ids, [30, 31])):
            np.save(tmp_path / f"npy/{number}.npy", part)
            part.tofile(tmp_path / f"raw/{number}.bin")
        npy = Windows.of_files(tmp_path / "npy", seq_len=8)
        raw = Windows.of_files(tmp_path / "raw", seq_len=8, pattern="*.bin", dtype="uint16", name="other")
        assert (npy.name, raw.name) == ("npy", "other")
        assert (npy.tokens, npy.windows, npy.padded) == (raw.tokens, raw.windows, raw.padded) == (100, 4 + 0 + 9, 7)
        everything = list(range(len(npy)))
        one, two = filled(npy, everything), filled(raw, everything)
        assert one["input_ids"][4].tolist() == list(range(31, 39))
        assert all(np.array_equal(one[name], two[name]) for name in npy.fields)

    def test_the_digest_is_of_the_content(self, tmp_path: Path) -> None:
        def digest(folder: str, values: list[int], dtype: str = "uint16", **options: Any) -> str:
            (tmp_path / folder).mkdir(exist_ok=True)
            np.array(values, dtype).tofile(tmp_path / folder / "x.bin")
            given = {"seq_len": 4, "dtype": dtype, **options}
            return Windows.of_files(tmp_path / folder, pattern="*.bin", **given).digest

        first = digest("a", [1, 2, 3, 4])
        assert re.fullmatch("[0-9a-f]{64}", first)
        assert first == digest("b", [1, 2, 3, 4], name="z")
        others = [
            digest("a", [1, 2, 3, 5]),
            digest("a", [1, 2, 3, 4], seq_len=5),
            digest("a", [1, 2, 3, 4], eos_id=2),
            digest("a", [1, 2, 3, 4], dtype="int16"),
        ]
        assert len({first, *others}) == 5

    def test_a_manifest_saves_reading(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.uint16))
        read = Windows.of_files(tmp_path, seq_len=4).digest
        data = (tmp_path / "x.npy").read_bytes()
        self.finish(tmp_path, len(data), digest_bytes(data))
        listed = Windows.of_files(tmp_path, seq_len=4)
        # Another byte, which only somebody who read the file would see.
        (tmp_path / "x.npy").write_bytes(data[:-1] + b"\x01")
        assert listed.digest == read
        (tmp_path / manifests.MANIFEST).unlink()
        assert Windows.of_files(tmp_path, seq_len=4).digest != read

    def test_a_file_that_is_not_the_manifests_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.uint16))
        self.finish(tmp_path, 1, "0" * 64)
        with pytest.raises(InputError, match="was changed after the folder was finished"):
            Windows.of_files(tmp_path, seq_len=4)

    def test_an_unfinished_folder_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.uint16))
        (tmp_path / manifests.STARTED).write_text(json.dumps({}))
        with pytest.raises(InputError, match="began this folder and has not finished it"):
            Windows.of_files(tmp_path, seq_len=4)

    @staticmethod
    def finish(folder: Path, size: int, digest: str) -> None:
        file = manifests.File("x.npy", size, digest)
        made = manifests.Manifest("toy", 1, "0" * 16, {}, [], manifests.Ledger(), [file])
        (folder / manifests.MANIFEST).write_bytes(made.dump())


class TestRefusals:
    @pytest.mark.parametrize(
        ("array", "said"),
        [
            (np.zeros(4, np.float32), "dtype <f4"),
            (np.zeros((2, 2), np.uint16), r"shape \(2, 2\)"),
            (np.zeros(0, np.uint16), "no token"),
            (np.zeros(4, bool), "dtype bool"),
            (np.zeros(4, ">u2"), "dtype >u2"),
            (np.zeros(1, np.uint16), "1 files of 1 tokens"),
        ],
    )
    def test_what_an_npy_file_may_not_be(self, tmp_path: Path, array: NDArray[Any], said: str) -> None:
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(InputError, match=said):
            Windows.of_files(tmp_path, seq_len=4)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no token files; got no match for '\*\.npy'"):
            Windows.of_files(tmp_path, seq_len=4)

    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.npy").touch()
        with pytest.raises(InputError, match=r"x\.npy: empty file"):
            Windows.of_files(tmp_path, seq_len=4)

    def test_a_truncated_npy_file(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.uint16))
        (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
        with pytest.raises(InputError, match=r"x\.npy: not a complete \.npy file"):
            Windows.of_files(tmp_path, seq_len=4)

    def test_a_truncated_raw_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(bytes(10))
        with pytest.raises(InputError, match="got 10 bytes; expected uint32"):
            Windows.of_files(tmp_path, seq_len=4, pattern="*.bin", dtype="uint32")

    def test_a_raw_file_without_a_dtype(self, tmp_path: Path) -> None:
        (tmp_path / "x.bin").write_bytes(bytes(10))
        with pytest.raises(UsageError, match="raw files do not say the dtype of their ids; expected dtype="):
            Windows.of_files(tmp_path, seq_len=4, pattern="*.bin")

    def test_a_file_of_another_name(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text("{}")
        with pytest.raises(InputError, match=r"not a token file; expected \.npy or \.bin"):
            Windows.of_files(tmp_path, seq_len=4, pattern="*", dtype="uint8")

    def test_a_dtype_that_is_not_the_files(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.uint16))
        with pytest.raises(InputError, match="wrong dtype; got uint16; expected uint32"):
            Windows.of_files(tmp_path, seq_len=4, dtype="uint32")

    @pytest.mark.parametrize("dtype", ["float32", "uint1", ">u2", "S2"])
    def test_a_dtype_that_is_none(self, tmp_path: Path, dtype: str) -> None:
        (tmp_path / "x.bin").write_bytes(bytes(10))
        with pytest.raises(UsageError, match="not a dtype"):
            Windows.of_files(tmp_path, seq_len=4, pattern="*.bin", dtype=dtype)

    @pytest.mark.parametrize("array", [np.array([1, 2, -1], np.int32), np.array([1, 2, 2**63], np.uint64)])
    def test_ids_that_are_none_are_named_by_their_place(self, array: NDArray[Any]) -> None:
        windows = Windows.of_arrays([np.arange(3), array], seq_len=1, name="toy")
        assert filled(windows, [0, 1, 2])["labels"].tolist() == [[1], [2], [2]]
        with pytest.raises(InputError, match=r"toy\[1\] from token 1 on: not a token id"):
            filled(windows, [1, 3])

    @pytest.mark.parametrize("index", [-1, 2])
    def test_an_index_without_a_window(self, index: int) -> None:
        windows = Windows.of_arrays([np.arange(3)], seq_len=1)
        with pytest.raises(UsageError, match=f"no such window; got {index}; expected 0 to 1"):
            filled(windows, [0, index])

    @pytest.mark.parametrize("options", [{"seq_len": 0}, {"seq_len": 4, "eos_id": -1}, {"seq_len": 4, "eos_id": 2**63}])
    def test_arguments_that_are_none(self, options: dict[str, int]) -> None:
        with pytest.raises(UsageError, match="out of range"):
            Windows.of_arrays([np.arange(9)], **options)

    @pytest.mark.parametrize(
        "array",
        [
            np.zeros((1, 5), np.int64),
            np.zeros((2, 4), np.int64),
            np.zeros((1, 4), np.int32),
            np.zeros((4, 1), np.int64).T[:, ::1][:, ::-1],
        ],
    )
    def test_arrays_that_cannot_be_filled(self, array: NDArray[Any]) -> None:
        windows = Windows.of_arrays([np.arange(9)], seq_len=4)
        with pytest.raises(UsageError, match="these arrays cannot be filled"):
            windows.fill(np.zeros(1, np.int64), {"input_ids": windows.empty(1)["input_ids"], "labels": array})
        with pytest.raises(UsageError, match="these arrays cannot be filled"):
            windows.fill(np.zeros(1, np.int64), {"labels": array})

    def test_arrays_that_are_none(self) -> None:
        for array in (np.arange(9)[::2], np.arange(9.0), np.zeros((2, 2), int)):
            with pytest.raises(InputError, match="not a token array"):
                Windows.of_arrays([array], seq_len=4)
        with pytest.raises(InputError, match="0 files of 0 tokens"):
            Windows.of_arrays([], seq_len=4)


class TestNative:
    def test_windows_outside_are_refused(self) -> None:
        arrays = _native.TokenArrays([numbers(np.arange(5, dtype=np.uint8))])
        out = np.zeros((1, 3), np.int64)

        def fill(number: int, start: int, length: int) -> None:
            where = (np.array([value]) for value in (number, start, length))
            arrays.fill(*where, out, np.zeros_like(out))

        fill(0, 1, 4)
        assert out.tolist() == [[1, 2, 3]]
        for start, length in ((2, 4), (-1, 2), (0, -1), (0, 5), (2**62, 2)):
            with pytest.raises(ValueError, match=f"window 0 of {length} tokens from {start} on"):
                fill(0, start, length)
        for number in (1, -1):
            with pytest.raises(ValueError, match=f"array {number} of 1"):
                fill(number, 0, 1)

    def test_permutations_go_on_and_have_a_limit(self) -> None:
        # numpy's RandomState begins as torch's generator does; a swap with a word modulo what is left is torch's.
        random, words = _native.Mt19937(5), np.random.RandomState(5)
        for n in (0, 1, 2, 65, 1000):
            values = list(range(n))
            for at in range(n - 1):
                other = at + int(words.randint(0, 2**32, dtype=np.uint64).item()) % (n - at)
                values[at], values[other] = values[other], values[at]
            assert random.randperm(n).tolist() == values
        with pytest.raises(ValueError, match="expected fewer than 214748364"):
            random.randperm(2**32 // 20)
        with pytest.raises(OverflowError):
            _native.Mt19937(2**32)
