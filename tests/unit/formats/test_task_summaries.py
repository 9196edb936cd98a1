"""Summaries are those of the rows, whoever reads the arrays, and are kept by content."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pairmill.errors import InputError
from pairmill.formats import task_summaries
from pairmill.formats.task_summaries import TaskSummaries, summarize
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import INDEX, INFO
from pairmill.mixture.counting import CountOptions

OPTIONS = CountOptions(context_size=100, min_resp_length=2)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where summaries are kept."""
    monkeypatch.setenv("PAIRMILL_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def put(folder: Path, name: str, inst: np.ndarray, resp: np.ndarray, dtype: str = "<u8") -> None:
    ends = np.cumsum(inst + resp)
    (folder / name).mkdir(parents=True)
    (folder / INFO).write_text(json.dumps({"vocab_size": 100}))
    np.save(folder / name / "tokens.npy", np.zeros(int(ends[-1]) if len(ends) else 0, np.uint32))
    for column, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
        np.save(folder / name / f"{column}.npy", values.astype(dtype))


@pytest.fixture
def tokenized(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    folder = tmp_path / "tokenized"
    for number in range(5):
        count = (0, 1, 200, 300, 20_000)[number]
        put(folder, f"task{number}", *draw.integers(1, 130, (2, count)), dtype=("<u8", ">u8")[number == 2])
    return folder


def opened(folder: Path) -> Folder:
    return open_tokenized(str(folder), "tokenized_path", tolerate_strays=True)


def lengths(folder: Path, name: str) -> tuple[list[int], list[int]]:
    return tuple(np.load(folder / name / f"{column}.npy").tolist() for column in ("inst_len", "resp_len"))  # type: ignore[return-value]


def expected(folder: Path, name: str, long: str, profile: str) -> dict[str, int]:
    """Go through the rows one by one, as docs/format.md section 5 has it."""
    sums = dict.fromkeys(("rows", "inst_tokens", "resp_tokens", "squares", "resp_squares", "truncated_tokens"), 0)
    for inst, resp in zip(*lengths(folder, name), strict=True):
        allowed = max(0, OPTIONS.context_size - inst)
        cut = min(resp, allowed) if long == "truncate" else resp
        tested = resp if profile == "data_io" else cut
        if resp < 2 or allowed < 1 or cut > allowed or tested < 2:
            continue
        for key, value in zip(sums, (1, inst, cut, (inst + cut) ** 2, cut**2, resp - cut), strict=True):
            sums[key] += value
    return sums


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
@pytest.mark.parametrize("long", ["truncate", "drop"])
def test_sums_are_those_of_the_rows(tokenized: Path, long: str, profile: str) -> None:
    folder = opened(tokenized)
    options = CountOptions(OPTIONS.context_size, OPTIONS.min_resp_length, profile)  # type: ignore[arg-type]
    made = summarize(folder.tasks, [long] * 5, options)
    for number, task in enumerate(folder.tasks):
        for name, value in expected(tokenized, task.name, long, profile).items():
            assert getattr(made, name)[number] == value, (task.name, name)
    left = made.response_too_short + made.over_context + made.response_too_short_once_cut
    assert (made.rows + left == made.rows_in).all()
    assert [int(sum(map(sum, lengths(tokenized, task.name)))) for task in folder.tasks] == made.length.tolist()


def test_pieces_of_split_rows_hold_all_of_the_response(tokenized: Path) -> None:
    folder = opened(tokenized)
    made = summarize(folder.tasks, ["split"] * 5, OPTIONS)
    pairs = [pair for pair in zip(*lengths(tokenized, "task3"), strict=True) if pair[1] >= 2 and pair[0] < 100]
    pieces = [-(-resp // (100 - inst)) for inst, resp in pairs]
    assert made.rows[3] == sum(pieces) > len(pairs)
    assert made.resp_tokens[3] == sum(resp for _, resp in pairs)
    assert made.inst_tokens[3] == sum(inst * times for (inst, _), times in zip(pairs, pieces, strict=True))


def same(left: TaskSummaries, right: TaskSummaries) -> bool:
    return all(np.array_equal(vars(left)[name], vars(right)[name]) for name in vars(left))


def test_what_is_kept_is_not_read_again(tokenized: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened(tokenized)
    modes = ["truncate", "drop", "truncate", "drop", "truncate"]
    made = summarize(folder.tasks, modes, OPTIONS)
    (file,) = kept.iterdir()
    (tokenized / "task3").rename(tokenized / "renamed")
    put(tokenized, "added", np.array([3, 4]), np.array([5, 6]))
    read: list[str] = []
    slowly = task_summaries._read

    def watched(tasks, *rest):  # type: ignore[no-untyped-def]
        read.extend(task.name for task in tasks)
        return slowly(tasks, *rest)

    monkeypatch.setattr(task_summaries, "_read", watched)
    more = opened(tokenized)
    assert [task.name for task in more.tasks] == ["added", "renamed", "task0", "task1", "task2", "task4"]
    again = summarize(more.tasks, [*modes[:1], modes[3], *modes[:3], modes[4]], OPTIONS)
    assert read == ["added"]
    assert again.rows[[2, 3, 4, 1, 5]].tolist() == made.rows.tolist()
    # Another mode is another summary, and a damaged file is none.
    summarize(folder.tasks[:1], ["drop"], OPTIONS)
    assert read == ["added", "task0"]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert same(
        summarize(more.tasks, ["truncate"] * 6, OPTIONS), summarize(more.tasks, ["truncate"] * 6, OPTIONS, cache=False)
    )
    assert len(read) == 2 + 6 + 6


def test_nothing_is_kept_if_there_is_no_place(
    tokenized: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tokenized)
    made = summarize(folder.tasks, ["drop"] * 5, OPTIONS)
    shutil.rmtree(kept)
    kept.write_text("a file")
    assert same(summarize(folder.tasks, ["drop"] * 5, OPTIONS), made)
    monkeypatch.setenv("PAIRMILL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert same(summarize(folder.tasks, ["drop"] * 5, OPTIONS), made)
    assert not (tmp_path / "xdg").exists()
    monkeypatch.delenv("PAIRMILL_CACHE")
    summarize(folder.tasks, ["drop"] * 5, OPTIONS)
    assert list((tmp_path / "xdg" / "pairmill").iterdir())


def test_a_wrong_array_is_refused(tokenized: Path) -> None:
    wrong = np.load(tokenized / "task4" / "resp_len.npy")
    wrong[7] += 1
    np.save(tokenized / "task4" / "resp_len.npy", wrong)
    with pytest.raises(InputError, match=r"tokens.npy has another length|a span ends after"):
        summarize(opened(tokenized).tasks, ["drop"] * 5, OPTIONS)
