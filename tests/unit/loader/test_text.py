"""Texts of the datasets library: windows of a whole split, and a stream that every mark resumes exactly."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pairmill.encoder import Encoder
from pairmill.errors import InputError, UsageError
from pairmill.loader.text import Mark, TextStream, eager
from tests.support import lazy
from tests.support.helpers import REPOSITORY

datasets = lazy.Module("datasets")

EOS = 99
WORDS = [f"w{number}" for number in range(40)]


def encode(text: str) -> list[int]:
    return [int(word[1:]) for word in text.split()]


def texts(count: int, seed: int) -> list[str]:
    """Some of them empty, one long."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, count)
    lengths[count // 2] = 70
    return [" ".join(random.choice(WORDS, length)) for length in lengths]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would report each load to its makers, and keep what it loaded at home."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three shards of 25 documents each."""
    folder = tmp_path / "texts"
    folder.mkdir()
    paths = []
    for shard in range(3):
        path = folder / f"{shard}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(25, shard)))
        paths.append(str(path))
    return paths


def streamed(files: list[str]) -> Any:
    return datasets.load_dataset("json", data_files=files, split="train", streaming=True)


def loaded(files: list[str]) -> Any:
    return datasets.load_dataset("json", data_files=files, split="train")


def tokens_of(rows: Any) -> list[int]:
    return [token for row in rows if row["text"] for token in [*encode(row["text"]), EOS]]


Kind = Callable[[list[str]], Any]


@pytest.mark.parametrize("kind", [streamed, loaded])
@pytest.mark.parametrize("buffer", [0, 1, 7, 1000])
class TestStream:
    def stream(self, kind: Kind, files: list[str], buffer: int, **options: Any) -> TextStream:
        given = {"eos_id": EOS, "seq_len": 16, "seed": 5, "buffer": buffer, **options}
        return TextStream(kind(files), encode, **given)

    def epochs(self, kind: Kind, files: list[str], buffer: int) -> Iterator[list[int]]:
        data = kind(files)
        for epoch in range(3):
            if not buffer:
                yield tokens_of(data)
            elif kind is streamed:
                yield tokens_of(data.shuffle(seed=5 + epoch, buffer_size=buffer))
            else:
                yield tokens_of(data.shuffle(seed=5 + epoch))

    def test_chunks_are_the_librarys_documents_one_after_another(
        self, kind: Kind, buffer: int, files: list[str]
    ) -> None:
        orders = list(self.epochs(kind, files, buffer))
        everything = [token for order in orders for token in order]
        count = (len(everything) - 1) // 16
        chunks = list(islice(self.stream(kind, files, buffer).chunks(), count))
        assert chunks[-1][1].epoch == 2
        assert all(chunk.dtype == np.dtype(np.int32) and chunk.shape == (17,) for chunk, _ in chunks)
        # As inputs: each token once, in whichever epoch it ends.
        assert [int(token) for chunk, _ in chunks for token in chunk[:-1]] == everything[: count * 16]
        assert [int(chunk[-1]) for chunk, _ in chunks] == everything[16 : count * 16 + 1 : 16]
        if buffer:
            assert orders[0] != orders[1]
            assert sorted(orders[0]) == sorted(orders[1])

    def test_every_mark_resumes_exactly(self, kind: Kind, buffer: int, files: list[str]) -> None:
        chunks = list(islice(self.stream(kind, files, buffer).chunks(), 45))
        marks = [Mark(), *(mark for _, mark in chunks)]
        assert len(set(marks)) == 46
        assert marks == sorted(marks)
        resumed = self.stream(kind, files, buffer)
        for done, mark in enumerate(marks[:-1]):
            again = resumed.chunks(mark)
            for (tokens, after), (expected, expected_after) in zip(islice(again, 3), chunks[done:], strict=False):
                assert tokens.tolist() == expected.tolist()
                assert after == expected_after
        long = self.stream(kind, files, buffer).chunks(marks[20])
        assert [after for _, after in islice(long, 25)] == marks[21:]

    def test_a_resume_tokenizes_nothing_that_lies_before(self, kind: Kind, buffer: int, files: list[str]) -> None:
        seen: list[str] = []

        def counted(text: str) -> list[int]:
            seen.append(text)
            return encode(text)

        stream = TextStream(kind(files), counted, eos_id=EOS, seq_len=16, seed=5, buffer=buffer)
        marks = [mark for _, mark in islice(stream.chunks(), 60) if mark.epoch == 0]
        assert marks[-1].document > 60
        seen.clear()
        next(stream.chunks(marks[-1]))
        # The rest of its epoch, and the group of the next that was needed at most.
        assert len(seen) <= 75 - marks[-1].document + 64

    def test_a_mark_of_other_data_is_refused(self, kind: Kind, buffer: int, files: list[str]) -> None:
        stream = self.stream(kind, files, buffer)
        for mark in (Mark(0, 75, 0), Mark(3, 1000, 2), Mark(0, 0, 71)):
            with pytest.raises(InputError, match="past the end of its epoch or document"):
                next(stream.chunks(mark))
        with pytest.raises(UsageError, match="mark: out of range"):
            next(stream.chunks(Mark(0, -1, 0)))


def test_texts_without_tokens_are_an_error() -> None:
    data = datasets.Dataset.from_dict({"text": ["", ""]})
    with pytest.raises(InputError, match="epoch 1 of the texts: no tokens"):
        next(TextStream(data, encode, eos_id=EOS, seq_len=4, seed=0).chunks())
    with pytest.raises(InputError, match="no tokens"):
        eager(data, encode, eos_id=EOS, seq_len=4)


class TestEager:
    def test_windows_of_a_split(self, files: list[str]) -> None:
        data = loaded(files)
        tokens = np.array(tokens_of(data))
        windows = eager(data, encode, eos_id=EOS, seq_len=16, packed=True, name="toy")
        assert (windows.name, windows.tokens, windows.windows) == ("toy", len(tokens), -(-(len(tokens) - 1) // 16))
        out = windows.empty(len(windows))
        windows.fill(np.arange(len(windows)), out)
        inputs = out["input_ids"].ravel()[: len(tokens) - 1]
        labels = out["labels"].ravel()[: len(tokens) - 1]
        assert np.array_equal(inputs, tokens[:-1])
        assert np.array_equal(labels, np.where(inputs == EOS, -100, tokens[1:]))
        assert eager(data, encode, eos_id=EOS, seq_len=16, packed=True).digest == windows.digest
        assert eager(data, encode, eos_id=EOS, seq_len=16).fields == ("input_ids", "labels")

    def test_by_name(self, files: list[str]) -> None:
        by_name = eager(str(Path(files[0]).parent), encode, eos_id=EOS, seq_len=16)
        assert by_name.digest == eager(loaded(files), encode, eos_id=EOS, seq_len=16).digest
        stream = TextStream(str(Path(files[0]).parent), encode, eos_id=EOS, seq_len=16, seed=1, buffer=9)
        expected = TextStream(streamed(files), encode, eos_id=EOS, seq_len=16, seed=1, buffer=9)
        for (one, mark), (two, other) in islice(zip(stream.chunks(), expected.chunks(), strict=False), 20):
            assert mark == other
            assert np.array_equal(one, two)

    def test_every_kind_of_tokenizer_gives_the_same(self, files: list[str]) -> None:
        data = loaded(files)
        library = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, WORDS[0]))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

        class OfTransformers:
            """transformers is not among what is installed here; this is its interface as far as it is used."""

            def convert_tokens_to_ids(self, token: str) -> int:
                raise AssertionError(token)

            def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
                assert not add_special_tokens
                return {"input_ids": [encode(text) for text in texts]}

        expected = eager(data, encode, eos_id=EOS, seq_len=16).digest
        assert eager(data, library, eos_id=EOS, seq_len=16).digest == expected
        assert eager(data, OfTransformers(), eos_id=EOS, seq_len=16).digest == expected
        ours = Encoder.from_json(library.to_str(), library=True)
        assert ours.encode(pa.array(["w3 w1"])).ids.tolist() == [3, 1]
        assert eager(data, ours, eos_id=EOS, seq_len=16).digest == expected


class TestRefusals:
    @cached_property
    def data(self) -> Any:
        return datasets.Dataset.from_dict({"text": ["w1 w2", "w3"], "number": [1, 2], "null": [None, "w1"]})

    @pytest.mark.parametrize("eos_id", [None, -1, 2**31])
    def test_no_end_of_text(self, eos_id: int | None) -> None:
        for made in (eager, lambda *given, **options: TextStream(*given, seed=0, **options)):
            with pytest.raises(
                UsageError, match=r"eos_id: (missing|out of range); got .*; a tokenizer without an end-of-text"
            ):
                made(self.data, encode, eos_id=eos_id, seq_len=4)

    def test_rows_that_are_no_texts(self) -> None:
        with pytest.raises(InputError, match=r"document 0 of the texts: no such column; got null, number, text"):
            eager(self.data, encode, eos_id=EOS, seq_len=4, text_field="txt")
        with pytest.raises(InputError, match=r"document 0 of the texts, number: not text; got int"):
            eager(self.data, encode, eos_id=EOS, seq_len=4, text_field="number")
        with pytest.raises(InputError, match=r"document 0 of the texts, null: not text; got NoneType"):
            eager(self.data, encode, eos_id=EOS, seq_len=4, text_field="null")

    @pytest.mark.parametrize("ids", [[-1], [2**31], [1.5], [[1]], [2**70]])
    def test_ids_that_are_none(self, ids: list[Any]) -> None:
        with pytest.raises(InputError, match="document 0 of the texts: the tokenizer did not return token ids"):
            eager(self.data, lambda _: ids, eos_id=EOS, seq_len=4)

    def test_arguments_that_are_none(self) -> None:
        with pytest.raises(UsageError, match="not a tokenizer; got int"):
            eager(self.data, 5, eos_id=EOS, seq_len=4)
        with pytest.raises(UsageError, match="seq_len: out of range; got 0; expected at least 1"):
            TextStream(self.data, encode, eos_id=EOS, seq_len=0, seed=0)
        with pytest.raises(UsageError, match="buffer: out of range; got -1; expected at least 0"):
            TextStream(self.data, encode, eos_id=EOS, seq_len=1, seed=0, buffer=-1)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"seq_len": "4"}, "seq_len: not an integer; got '4'"),
            ({"eos_id": "1"}, "eos_id: not an integer"),
            ({"text_field": 5}, "text_field: wrong type"),
            ({"split": None}, "split: wrong type"),
            ({"dataset": 5}, "dataset: wrong type; got 5"),
            ({"dataset": None}, "dataset: wrong type"),
        ],
    )
    def test_arguments_of_another_type(self, given: dict[str, Any], said: str) -> None:
        values = {"dataset": self.data, "tokenizer": encode, "eos_id": EOS, "seq_len": 4, **given}
        with pytest.raises(UsageError, match=said):
            eager(**values)
        with pytest.raises(UsageError, match=said):
            TextStream(**values, seed=0)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"seed": "1"}, "seed: not an integer"),
            ({"seed": -1}, "seed: out of range"),
            ({"buffer": 0.5}, "buffer: not an integer"),
        ],
    )
    def test_arguments_of_a_stream_of_another_type(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(UsageError, match=said):
            TextStream(self.data, encode, **{"eos_id": EOS, "seq_len": 4, "seed": 0, **given})

    @pytest.mark.parametrize(
        "tokenizer",
        [lambda _: 1 / 0, lambda _: None, lambda _: 5, lambda _: {}["x"], lambda _: [[1], [2, 3]], lambda: [1]],
    )
    def test_what_a_tokenizer_raises_says_of_which_document(self, tokenizer: Any) -> None:
        for run in (
            lambda: eager(self.data, tokenizer, eos_id=EOS, seq_len=4),
            lambda: next(TextStream(self.data, tokenizer, eos_id=EOS, seq_len=4, seed=0).chunks()),
        ):
            with pytest.raises(InputError, match=r"documents? 0 .*of the texts"):
                run()

    def test_what_a_data_set_raises_says_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken() -> Iterator[dict[str, Any]]:
            yield {"text": "w1"}
            raise OverflowError("too much")

        data = datasets.IterableDataset.from_generator(broken)
        with pytest.raises(InputError, match="documents from 0 on: cannot be read; got OverflowError") as caught:
            eager(data, encode, eos_id=EOS, seq_len=4)
        assert isinstance(caught.value.__cause__, OverflowError)
        with pytest.raises(InputError, match="not a row; got 'x'; expected a mapping with text"):
            eager(["x"], encode, eos_id=EOS, seq_len=4)

        def absent(*_: Any, **__: Any) -> None:
            raise FileNotFoundError("no such data set")

        monkeypatch.setattr("datasets.load_dataset", absent)
        with pytest.raises(InputError, match="dataset=some/name: cannot be loaded; got FileNotFoundError"):
            eager("some/name", encode, eos_id=EOS, seq_len=4)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(UsageError, match="dataset=some/name: needs the datasets library"):
            eager("some/name", encode, eos_id=EOS, seq_len=4)


def test_nothing_but_numpy_is_imported() -> None:
    code = (
        "import sys, pairmill.loader.text, pairmill.loader.windows, tests.support.peers.kempner\n"
        "print(sorted({'datasets', 'tokenizers', 'transformers', 'pyarrow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
