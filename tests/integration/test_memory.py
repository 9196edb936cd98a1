"""Peak memory follows neither the file nor its row groups: ten times the input, the same memory.

``make test-long`` compares files of 1 and 10 parts. ``make test`` compares files of 1 and 5 parts, with every constant
of ours that is a number of bytes (slices, batches, what is held) divided by five, of clean by ten. Its small files have
about 3 MB or more: below that a stage's memory still grows with the file, because no buffer is full.
"""

import io
import itertools
import json
import os
import random
import string
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.formats import tokens
from pairmill.sources.datasets import tasksource
from tests.support import tools
from tests.support.cases import cases
from tests.support.data import split_characters
from tests.support.helpers import PATIENCE
from tests.support.processes import nursery
from tests.support.tools import World

FULL = "PAIRMILL_MEMORY_FULL" in os.environ
SCALE = 5
SCALE_CLEAN = 10
"""By which numbers of bytes are divided; clean has buffers that are full of smaller files."""
TIMES = 10 if FULL else 5
MOST = 1.3
MOST_TOKENIZE = 1.2
MOST_OF_FILE = 0.6
"""Memory may grow by this part of what the file grows by. A stage that holds its file grows by more than all of it."""
MB = 1 << 20
LIMIT = 1024 * MB
"""Of any process, whatever it reads."""

MEASURED = "tests.support.processes.measured"

# A process of its own starts the stage: maxrss of a child begins with what its parent had, and pytest has much.
_WRAPPER = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def command(stage: str, workers: int = 1, slices: int = SCALE, scale: int = SCALE, **options: object) -> list[str]:
    """A stage, in this test's scale and with smaller slices. Worker processes would be of the usual scale."""
    if FULL:
        return tools.command(stage, **options, workers=workers)
    given = tools.command(stage, **options, workers=1)[3:]
    return [sys.executable, "-m", MEASURED, str(scale), str(slices), *given]


def peak(arguments: list[str]) -> int:
    """Peak resident memory of a program in bytes; what is forked begins with what it was forked from."""
    if arguments[2] == MEASURED:
        with tempfile.NamedTemporaryFile("r") as file:
            done = nursery.shared().run(MEASURED, [file.name, *arguments[3:]], tools.environment())
            assert done.returncode == 0, done.stderr
            return int(file.read()) * 1024
    done = subprocess.run(
        [sys.executable, "-c", _WRAPPER, *arguments],
        cwd=tools.REPOSITORY,
        env=tools.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    code, kilobytes = map(int, done.stdout.split())
    assert code == 0, done.stderr
    return kilobytes * 1024


class Texts:
    """Texts cut at random places out of a stock: quick to make, and no two alike."""

    def __init__(self, seed: int) -> None:
        stock = tools.words(random.Random(seed), 150_000).encode("ascii", "replace").decode()
        self._stock, self._rng = stock, np.random.default_rng(seed)

    def some(self, count: int, length: int) -> list[str]:
        starts = self._rng.integers(0, len(self._stock) - length, count)
        return [self._stock[start : start + length] for start in starts.tolist()]


LENGTH = 900


def pairs(size: int, answer: str = "") -> Iterator[tuple[list[str], list[str]]]:
    """Batches of questions and answers, ``size`` bytes in all."""
    texts = Texts(1)
    left = size // LENGTH
    while left > 0:
        count = min(left, 2000)
        left -= count
        questions = texts.some(count, LENGTH // 3)
        yield questions, [text + answer for text in texts.some(count, LENGTH - LENGTH // 3)]


def gsm8k_parquet(path: Path, size: int, row_group_size: int) -> None:
    path.parent.mkdir(parents=True)
    parts = [pa.table({"question": left, "answer": right}) for left, right in pairs(size, "\n#### 42")]
    pq.write_table(pa.concat_tables(parts), path, row_group_size=row_group_size)


def gsm8k_jsonl(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for left, right in pairs(size, "\n#### 42"):
            file.writelines(json.dumps({"question": q, "answer": a}) + "\n" for q, a in zip(left, right, strict=True))


def dmmath_txt(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for left, right in pairs(size):
            file.writelines(f"{q[:60]}?\n{a[:20]}\n" for q, a in zip(left, right, strict=True))


def sudoku_csv(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        file.write("source,question,answer,rating\n")
        for _ in range(0, size, 2000 * 180):
            digits = rng.integers(ord("1"), ord("9") + 1, (4000, 81), np.uint8)
            grids = [row.tobytes().decode() for row in digits]
            file.writelines(f"made,{q},{a},7\n" for q, a in zip(grids[::2], grids[1::2], strict=True))


def scibench_json(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        file.write("[")
        for number, (left, right) in enumerate(pairs(size)):
            problems = [
                {"problem_text": q, "solution": a, "answer_latex": "42", "answer_number": "42", "unit": ""}
                for q, a in zip(left, right, strict=True)
            ]
            file.write(("," if number else "") + json.dumps(problems, indent=1)[1:-1])
        file.write("]")


def rows_parquet(path: Path, size: int, row_group_size: int = 1 << 20) -> None:
    """By default as pyarrow writes it: one row group of up to 1 Mi rows."""
    path.parent.mkdir(parents=True)
    parts = [
        pa.table({"condition": ["direct"] * len(left), "instruction": left, "response": right})
        for left, right in pairs(size)
    ]
    pq.write_table(pa.concat_tables(parts), path, row_group_size=row_group_size)


def rows_jsonl(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for left, right in pairs(size):
            file.writelines(
                json.dumps({"condition": "direct", "instruction": q, "response": a}) + "\n"
                for q, a in zip(left, right, strict=True)
            )


def labelled_parquet(path: Path, size: int, names: tuple[str, str, str], labels: list[str]) -> None:
    """Rows of many labels by turns, in row groups of 2000."""
    path.parent.mkdir(parents=True)
    turns = itertools.cycle(labels)
    schema = pa.schema([(name, pa.string()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for left, right in pairs(size):
            writer.write_table(pa.table([left, right, list(itertools.islice(turns, len(left)))], schema=schema))


def flan_parquet(path: Path, size: int) -> None:
    names = ("inputs", "targets", "_task_name")
    labelled_parquet(path, size, names, [f"task{number:04}_made" for number in range(700)])


def tasksource_parquet(path: Path, size: int) -> None:
    labelled_parquet(path, size, ("inputs", "targets", "task"), list(tasksource._TASKS))


def amps_tar(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True)
    number = 0
    with tarfile.open(path, "w") as archive:
        for left, right in pairs(size // 10):
            for question, answer in zip(left, right, strict=True):
                content = f"Problem: {question}\nAnswer: {answer * 14}".encode()
                info = tarfile.TarInfo(f"amps/mathematica/topic{number % 9}/task{number % 101}/{number}.txt")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
                number += 1


def family(name: str, files: int) -> Callable[[Path, int], None]:
    """What makes a large source as ``examples/make_raw.py`` does."""

    def make(folder: Path, size: int) -> None:
        program = ["examples/make_raw.py", folder, f"family={name}", f"bytes={size}", f"files={files}"]
        subprocess.run([sys.executable, *map(str, program)], cwd=tools.REPOSITORY, check=True)

    return make


FAMILIES = {
    "openmathinstruct2 parquet, one file": family("parquet", 1),
    "natural_reasoning jsonl": family("jsonl", 1),
    "natural_reasoning jsonl.gz": family("jsonl.gz", 1),
}
CLEAN: dict[str, tuple[str, int, Callable[[Path, int], None]]] = {
    "gsm8k parquet, one row group": (
        "gsm8k_train/train.parquet",
        160 * MB,
        lambda path, size: gsm8k_parquet(path, size, 1 << 30),
    ),
    "gsm8k parquet, row groups of 1000": (
        "gsm8k_train/train.parquet",
        160 * MB if FULL else 60 * MB,
        lambda path, size: gsm8k_parquet(path, size, 1000),
    ),
    "gsm8k jsonl": ("gsm8k_train/train.jsonl", 160 * MB if FULL else 60 * MB, gsm8k_jsonl),
    # Here 1 MB of size makes 84 KB of text, and Python spends 80 MB on 100,000 pairs.
    "dmmath txt": ("dmmath/train-easy/add.txt", 500 * MB, dmmath_txt),
    "sudoku csv": ("sudoku/train.csv", 80 * MB if FULL else 40 * MB, sudoku_csv),
    "scibench json": ("scibench/thermo.json", 100 * MB if FULL else 50 * MB, scibench_json),
    "flan, 700 tasks": ("flan/niv2_zsopt_data/part.0.parquet", 400 * MB if FULL else 50 * MB, flan_parquet),
    "tasksource, 194 tasks": (
        "tasksource/data/train-00000-of-00001.parquet",
        400 * MB if FULL else 30 * MB,
        tasksource_parquet,
    ),
    "ampsmathematica tar, 909 tasks": ("ampsmathematica/amps.tar", 500 * MB if FULL else 50 * MB, amps_tar),
}
TOKENIZE: dict[str, tuple[str, int, Callable[[Path, int], None]]] = {
    "rows parquet, one row group": ("x.parquet", 100 * MB, rows_parquet),
    # The larger one is cut, and put together in a second round.
    "rows parquet, row groups of 2000": (
        "x.parquet",
        160 * MB if FULL else 100 * MB,
        lambda path, size: rows_parquet(path, size, 2000),
    ),
    "rows jsonl": ("x.jsonl", 100 * MB, rows_jsonl),
}


def compare(
    what: str,
    make: Callable[[Path, int], None],
    name: str,
    size: int,
    tmp_path: Path,
    program: Callable[[Path, Path], list[str]],
    most: float = MOST,
    look: Callable[[Path], object] = Path.exists,
) -> None:
    found = []
    sizes = []
    for part in (size // 10, size // 10 * TIMES):
        given, root = tmp_path / f"given{part}", tmp_path / f"root{part}"
        make(given / name, part)
        sizes.append(sum(path.stat().st_size for path in given.rglob("*")))
        found.append(peak(program(given, root)))
        look(root)
        tools.remove(root)
    assert sizes[1] > 0.8 * TIMES * sizes[0]
    small, large = found
    # One and the same run took 142 MB once and 158 otherwise: where the first two differ by too much, growth is counted
    # from the most that the small file takes to the least that the large one takes.
    if large - small > MOST_OF_FILE * (sizes[1] - sizes[0]):
        for turn in range(2):
            small = max(small, peak(program(tmp_path / f"given{size // 10}", tmp_path / f"small again {turn}")))
            large = min(large, peak(program(tmp_path / f"given{size // 10 * TIMES}", tmp_path / f"large again {turn}")))
    ratio = large / small
    print(
        f"\n{what}: {sizes[0] / MB:.0f} -> {sizes[1] / MB:.0f} MB, {small / MB:.0f} -> {large / MB:.0f} MB, {ratio:.2f}"
    )
    if FULL:
        assert ratio <= most
    else:
        assert large - small <= MOST_OF_FILE * (sizes[1] - sizes[0])
    assert large <= LIMIT
    for given in tmp_path.glob("given*"):
        tools.remove(given)


@pytest.mark.parametrize(
    "what",
    cases(
        CLEAN, "gsm8k parquet, row groups of 1000", "gsm8k jsonl", "flan, 700 tasks", "ampsmathematica tar, 909 tasks"
    ),
)
def test_clean(what: str, tmp_path: Path) -> None:
    name, size, make = CLEAN[what]
    compare(
        f"clean {what}",
        make,
        name,
        size,
        tmp_path,
        # Not cut, as in full: the round that puts slices together would take memory for the larger file alone.
        lambda raw, root: command("clean", slices=1, scale=SCALE_CLEAN, raw=raw, root=root),
    )


def trajectories(path: Path, size: int) -> None:
    """Long chats of an agent, and the description of their source beside them."""
    path.parent.mkdir(parents=True)
    texts = Texts(2)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with path.open("w") as file:
        for _ in range(size // (100 * LENGTH)):
            messages = [{"role": "user", "content": "Find it."}]
            for number, text in enumerate(texts.some(98, LENGTH)):
                call = {"id": f"call{number}", "function": {"name": "look", "arguments": json.dumps({"at": text[:30]})}}
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "environment", "content": text, "tool_call_id": f"call{number}"})
            file.write(
                json.dumps({"messages": [*messages, {"role": "assistant", "content": "."}], "tools": [tool]}) + "\n"
            )
    (path.parent / "a.jinja").write_text(
        "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    (path.parent / "mine.yaml").write_text(
        "name: mine\nfiles: x.jsonl\ncondition: direct\nturns: messages\ntemplate: a.jinja\nstride: 10\n"
        "max_targets_per_chat: 3\n"
    )


def test_clean_trajectories(tmp_path: Path) -> None:
    compare(
        "clean trajectories",
        trajectories,
        "x.jsonl",
        (400 if FULL else 30) * MB,
        tmp_path,
        lambda raw, root: command("clean", slices=1, scale=SCALE_CLEAN, sources=raw / "mine.yaml", root=root),
        look=lambda root: assert_rows(root, 2),
    )


def assert_rows(root: Path, least: int) -> None:
    """Rows are of three answers of each chat."""
    (path,) = root.glob("clean/*/_MANIFEST.json")
    manifest = json.loads(path.read_text())
    answers = manifest["data"]["sources"]["mine"]["answers"]
    assert answers["rows"] * 33 == answers["found"] > least


@pytest.mark.parametrize("what", cases(FAMILIES, "openmathinstruct2 parquet, one file", "natural_reasoning jsonl.gz"))
def test_clean_of_hundreds_of_megabytes(what: str, tmp_path: Path) -> None:
    """In full with worker processes, of which the largest counts."""
    compare(
        f"clean {what}",
        FAMILIES[what],
        "",
        400_000_000 if FULL else 100_000_000,
        tmp_path,
        lambda raw, root: command("clean", slices=SCALE_CLEAN, scale=SCALE_CLEAN, raw=raw, root=root, workers=2),
    )


def test_train_tokenizer(tmp_path: Path) -> None:
    compare(
        "train_tokenizer rows parquet, row groups of 2000",
        lambda path, size: rows_parquet(path, size, 2000),
        "x.parquet",
        60 * MB if FULL else 100 * MB,
        tmp_path,
        lambda rows, root: command("train_tokenizer", rows=rows, root=root, vocab_size=2000),
    )


_READ = """
import sys
from collections import deque
from pairmill.formats import rows
deque(rows.read(sys.argv[1]), maxlen=0)
"""


def test_train_tokenizer_of_many_words(tmp_path: Path) -> None:
    """Half a KB for each word that differs, its tokens and all that is written included, above what reading takes."""
    path, root = tmp_path / "given" / "x.parquet", tmp_path / "root"
    rng = random.Random(1)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(5, 12))) for _ in range(150_000)]
    texts = [" ".join(words[start : start + 100]) for start in range(0, len(words), 100)]
    tools.write_rows(path, [("direct", text, "") for text in texts], row_group_size=500)
    before = peak([sys.executable, "-c", _READ, str(path)])
    after = peak(tools.command("train_tokenizer", rows=path.parent, root=root, workers=1))
    (made,) = root.glob(f"tokenizer/*/{tools.MANIFEST}")
    metrics = tools.read_manifest(made.parent)["data"]["metrics"]
    assert metrics["vocab_size"] > 40_000
    assert metrics["distinct_words"] > 149_000
    each = (after - before) / metrics["distinct_words"]
    print(f"\ntrain_tokenizer: {before / MB:.0f} -> {after / MB:.0f} MB, {each:.0f} bytes a word")
    assert each <= 512


@pytest.mark.parametrize("what", cases(TOKENIZE, "rows parquet, one row group"))
def test_tokenize(what: str, world: World, tmp_path: Path) -> None:
    name, size, make = TOKENIZE[what]
    shards = []
    compare(
        f"tokenize {what}",
        make,
        name,
        size,
        tmp_path,
        lambda rows, root: command("tokenize", rows=rows, tokenizer=world.tokenizer, root=root),
        MOST_TOKENIZE,
        lambda root: shards.append(len(tools.records(root, "tokenize"))),
    )
    assert shards == ([1, 6 if FULL else 9] if "2000" in what else [1, 1])


def test_select(tmp_path: Path) -> None:
    """Of lines: a slice of Parquet is cut, and a file of lines is one. tests/long/test_rows.py has ten million."""
    rows_jsonl(tmp_path / "target" / "x.jsonl", 1 * MB)
    said = f"method: dsir\nshare: 0.5\ndsir: {{targets: [{{name: some, rows: {tmp_path / 'target'}}}]}}\n"
    (tmp_path / "select.yaml").write_text(said)
    compare(
        "select rows jsonl",
        rows_jsonl,
        "x.jsonl",
        100 * MB,
        tmp_path,
        lambda rows, root: command("select", rows=rows, root=root, select_config=tmp_path / "select.yaml"),
    )


def documents_jsonl(path: Path, size: int) -> None:
    """A few documents of 2 MB."""
    path.parent.mkdir(parents=True)
    texts = Texts(1)
    with path.open("w") as file:
        for _ in range(size // (2 * MB)):
            text = "日本語 ".join(texts.some(2 * MB // LENGTH, LENGTH))
            file.write(json.dumps({"condition": "", "instruction": "", "response": text}, ensure_ascii=False) + "\n")


def test_tokenize_documents(world: World, tmp_path: Path) -> None:
    compare(
        "tokenize documents with flat files",
        documents_jsonl,
        "x.jsonl",
        160 * MB if FULL else 100 * MB,  # of 50, what the allocator keeps is more than half of the difference
        tmp_path,
        lambda rows, root: command("tokenize", rows=rows, tokenizer=world.tokenizer, root=root, windows=True),
        MOST_TOKENIZE,
    )


def tokenized_documents(folder: Path, size: int) -> None:
    """Documents of 12 MB of tokens, each a byte of one character of three, and two that delimit."""
    (folder / "docs").mkdir(parents=True)
    vocabulary = split_characters.Vocabulary()
    (folder / "tokenizer.json").write_bytes(vocabulary.json())
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": vocabulary.size}))
    length = 3 * MB
    character = list("日".encode())
    document = np.array([256, 257, *character * (length // 3 - 1), 258], "<u4")
    count = max(2, size // document.nbytes)
    with tokens.NpyWriter(folder / "docs" / "tokens.npy", np.uint32) as file:
        for _ in range(count):
            file.append(document)
    starts = np.arange(count, dtype=np.uint64) * len(document)
    columns = (starts, np.full_like(starts, 2), starts + 2, np.full_like(starts, len(document) - 2))
    for name, values in zip(tokens.INDEX, columns, strict=True):
        np.save(folder / "docs" / f"{name}.npy", values.astype(np.uint64))


def test_sample_splits_documents(tmp_path: Path) -> None:
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: docs\n  long_context: split\n")
    seen = []

    def look(root: Path) -> None:
        measures = tools.read_manifest(root / "sampled")["ledger"]["measures"]
        seen.append((measures["split_pieces"], measures["split_tokens"]))

    compare(
        "sample documents in pieces",
        tokenized_documents,
        "",
        (2000 if FULL else 400) * MB,
        tmp_path,
        lambda given, root: command(  # in its usual scale: some of its numbers are flags of files
            "sample",
            scale=1,
            tokenized_path=given,
            output_path=root / "sampled",
            prefix_config_path=rules,
            epochs=1,
        ),
        look=look,
    )
    (few, _), (many, tokens_split) = seen
    assert many > (TIMES - 1) * few > 1000
    assert tokens_split > 100 * MB / 4
