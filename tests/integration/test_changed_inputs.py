"""What is read is what was digested: a file that changes in between fails its shard, and never gets into a cache."""

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage, verify
from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.engine.runner import RECORD, Result
from pairmill.errors import InputError, StageFailure
from pairmill.formats import slices
from pairmill.formats.slices import Slicing
from pairmill.stages.clean import core as clean_core
from pairmill.stages.clean.cleaning import CleanPieces
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.bring import FetchFiles
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node import carry_out, digested
from pairmill.stages.tokenize import core as tokenize_core
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.tokenize.encode import EncodeRows
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from pairmill.stages.train_tokenizer.count import CountWords
from tests.support import tools
from tests.support.helpers import contents, writable
from tests.support.tools import World

_ROWS = 60
_YAML = "name: mine\nfiles: {}\ncondition: direct\ninstruction: q\nresponse: a\n"


def _records(word: str) -> list[dict[str, str]]:
    return [{"q": f"question {word} {number:04}", "a": f"answer {word} {number:04}"} for number in range(_ROWS)]


def _lines(word: str) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in _records(word))


def _csv(word: str) -> bytes:
    return b"q,a\n" + b"".join(f"{one['q']},{one['a']}\n".encode() for one in _records(word))


def _parquet(word: str) -> bytes:
    out = io.BytesIO()
    table = pa.Table.from_pylist(_records(word))
    # Of no compression: another word changes bytes, and no size.
    pq.write_table(table, out, row_group_size=20, compression="none", use_dictionary=False)
    return out.getvalue()


def _khan(word: str) -> dict[str, str]:
    one = {"problem": f"problem {word}", "hints": [f"hint {word}", "and one more"]}
    return {"amps/khan/1.json": json.dumps(one)}


def _archive(word: str) -> bytes:
    path = Path(os.environ["PYTEST_SCRATCH"], "archive.tar.gz")
    tools.write_archive(path, _khan(word))
    return path.read_bytes()


KINDS: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "lines": ("mine/x.jsonl", _lines),
    "compressed": ("mine/x.jsonl.gz", lambda word: gzip.compress(_lines(word), mtime=0)),
    "csv": ("mine/x.csv", _csv),
    "array": ("mine/x.json", lambda word: json.dumps(_records(word), indent=1).encode()),
    "lines named json": ("mine/x.json", _lines),
    "object": ("amps_khan/amps/khan/1.json", lambda word: _khan(word)["amps/khan/1.json"].encode()),
    "pairs": (
        "dmmath/train-easy/add.txt",
        lambda word: "".join(f"{one['q']}\n{one['a']}\n" for one in _records(word)).encode(),
    ),
    "archive": ("amps_khan/amps.tar.gz", _archive),
    "parquet": ("mine/x.parquet", _parquet),
}


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_SCRATCH", str(tmp_path))


def clean(raw: str | Path, root: str | Path, source: str, **options: Any) -> Result:
    return runner.run(Clean(), CleanConfig(raw=str(raw), root=str(root), sources=[source], workers=1, **options))


def overwrite(path: Path, data: bytes) -> None:
    """Other bytes in the same file; of the same size they leave its time as it was, where that is not looked at."""
    before = path.stat()
    writable(path).write_bytes(data)
    path.chmod(before.st_mode & 0o7777)
    if len(data) == before.st_size and path.suffix != ".parquet":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(path: Path, data: bytes) -> None:
    """Another file of that name."""
    beside = path.with_name("beside")
    beside.write_bytes(data)
    os.replace(beside, path)


def before_work(monkeypatch: pytest.MonkeyPatch, shard: type[Any], change: Callable[[], object]) -> None:
    """``change`` comes between the plan of a stage and its first shard, once."""
    run, left = shard.run, [change]

    def late(self: Any, *given: Any) -> Any:
        while left:
            left.pop()()
        return run(self, *given)

    monkeypatch.setattr(shard, "run", late)


def rows_of(folder: str) -> dict[str, list[Any]]:
    found = {}
    for path in sorted(Path(folder).glob("data*/**/*")):
        if path.is_file():
            read = pq.read_table(path).to_pylist if path.suffix == ".parquet" else lambda path=path: _json_lines(path)
            found[path.name] = read()
    return found


def _json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def source_of(raw: Path, path: str) -> str:
    """What ``sources=`` says for a file of these tests."""
    name = path.split("/", 1)[0]
    if name != "mine":
        return name
    (raw / "mine.yaml").write_text(_YAML.format(path))
    return str(raw / "mine.yaml")


def refused(run: Callable[[], object], name: str, text: str = "changed while it was read") -> None:
    with pytest.raises(InputError if "manifest" in text else (InputError, StageFailure)) as caught:
        run()
    assert caught.value.exit_code == 3
    assert text in str(caught.value)
    assert name in str(caught.value)


# --- raw files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "change"), [*((kind, overwrite) for kind in KINDS), ("lines", replace), ("parquet", replace)]
)
def test_a_raw_file_that_changes_after_its_digest_poisons_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: Callable[[Path, bytes], None]
) -> None:
    path, make = KINDS[kind]
    raw, root = tmp_path / "raw", tmp_path / "root"
    file = raw / path
    file.parent.mkdir(parents=True)
    file.write_bytes(make("right"))
    source = source_of(raw, path)
    with monkeypatch.context() as patch:
        before_work(patch, CleanPieces, lambda: change(file, make("wrong")))
        refused(lambda: clean(raw, root, source), file.name)
    assert not list(root.rglob(RECORD))
    change(file, make("right"))
    again = clean(raw, root, source)
    assert "wrong" not in str(rows_of(again.uri))
    assert rows_of(again.uri) == rows_of(clean(raw, tmp_path / "fresh", source).uri) != {}


@pytest.mark.parametrize("kind", ["lines", "csv", "parquet"])
def test_a_raw_file_in_pieces_that_changes_after_its_digest_poisons_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, make = KINDS[kind]
    monkeypatch.setattr(clean_core, "SLICING", Slicing(1000, 2000))
    monkeypatch.setattr(slices, "_BLOCK", 300)
    raw, root = tmp_path / "raw", tmp_path / "root"
    file = raw / path
    file.parent.mkdir(parents=True)
    file.write_bytes(make("right"))
    source = source_of(raw, path)
    with monkeypatch.context() as patch:
        before_work(patch, CleanPieces, lambda: overwrite(file, make("wrong")))
        refused(lambda: clean(raw, root, source), file.name)
    assert not list(root.rglob(RECORD))
    overwrite(file, make("right"))
    again = clean(raw, root, source)
    assert len(again.manifest.shards) > 2
    found = [row["instruction"] for rows in rows_of(again.uri).values() for row in rows]
    assert found == [one["q"] for one in _records("right")]


def test_a_header_that_is_another_than_its_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of a CSV file in pieces every piece reads the first line by itself.
    monkeypatch.setattr(clean_core, "SLICING", Slicing(1000, 2000))
    raw, root = tmp_path / "raw", tmp_path / "root"
    file = raw / "mine/x.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(_csv("right"))
    source = source_of(raw, "mine/x.csv")
    with monkeypatch.context() as patch:
        before_work(patch, CleanPieces, lambda: replace(file, _csv("right").replace(b"q,a", b"a,q", 1)))
        refused(lambda: clean(raw, root, source), file.name)
    assert not list(root.rglob(RECORD))


def test_a_file_that_comes_again_with_the_same_bytes_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "raw"
    file = raw / "mine/x.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(_parquet("right"))
    source = source_of(raw, "mine/x.parquet")
    before_work(monkeypatch, CleanPieces, lambda: replace(file, _parquet("right")))
    assert len(rows_of(clean(raw, tmp_path / "root", source).uri)["mine.jsonl"]) == _ROWS


@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_an_object_of_a_bucket_that_changes_after_its_digest_poisons_nothing(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, make = KINDS[kind]
    store, raw, root = storage.store_for(s3), f"{s3}/raw", f"{s3}/root"
    uri = storage.join(raw, *path.split("/"))
    store.write(uri, make("right"))
    (tmp_path / "mine.yaml").write_text(_YAML.format(uri))
    source = str(tmp_path / "mine.yaml")
    with monkeypatch.context() as patch:
        before_work(patch, CleanPieces, lambda: store.write(uri, make("wrong")))
        refused(lambda: clean(raw, root, source), path)
    assert not [entry for entry in store.list(root) if entry.path.endswith(RECORD)]
    store.write(uri, make("right"))
    again = clean(raw, root, source)
    rows = store.read(storage.join(again.uri, "data", "mine.jsonl")).decode().splitlines()
    assert [json.loads(row)["instruction"] for row in rows] == [one["q"] for one in _records("right")]


def test_a_given_archive_that_changes_after_its_digest_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, other = (tools.raw_archives(tmp_path / str(seed), size=20, seed=seed) for seed in range(2))
    path = "dmmath/mathematics_dataset-v1.0.tar.gz"
    right, wrong = ((folder / path).read_bytes() for folder in (given, other))
    config = FetchConfig(root=str(tmp_path / "root"), raw=str(given), sources=["dmmath"], workers=1)
    with monkeypatch.context() as patch:
        before_work(patch, FetchFiles, lambda: replace(given / path, wrong))
        refused(lambda: runner.run(Fetch(), config), path)
    assert not list((tmp_path / "root").rglob(RECORD))
    replace(given / path, right)
    assert not runner.run(Fetch(), config).reused


# --- rows of others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("stage", ["tokenize", "train_tokenizer"])
def test_rows_of_others_that_change_after_their_digest_poison_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, kind: str
) -> None:
    file, root = tmp_path / "rows" / f"x.{kind}", tmp_path / "root"
    right, wrong = (
        tools.write_rows(tmp_path / name / file.name, tools.rows(200, seed), row_group_size=50) if kind == "parquet"
        else tools.write_rows(tmp_path / name / file.name, tools.rows(200, seed))
        for seed, name in enumerate(("right", "wrong"))
    )  # fmt: skip
    file.parent.mkdir()
    replace(file, right.read_bytes())

    def run(root: Path) -> Result:
        if stage == "tokenize":
            options: dict[str, Any] = {"tokenizer": str(world.tokenizer)}
            return runner.run(Tokenize(), TokenizeConfig(root=str(root), rows=[str(file)], workers=1, **options))
        config = TrainTokenizerConfig(
            root=str(root), rows=[str(file)], vocab_size=300, prefix_config_path=str(world.rules), workers=1
        )
        return runner.run(TrainTokenizer(), config)

    with monkeypatch.context() as patch:
        kind_of = EncodeRows if stage == "tokenize" else CountWords
        before_work(patch, kind_of, lambda: replace(file, wrong.read_bytes()))
        refused(lambda: run(root), file.name)
    assert not list(root.rglob(RECORD))
    replace(file, right.read_bytes())
    assert contents(Path(run(root).uri)) == contents(Path(run(tmp_path / "fresh").uri))


def test_rows_that_only_pythons_reader_takes_are_compared_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It begins anew where the module in Rust gave up.
    file = tmp_path / "rows" / "x.jsonl"
    rows = [list(row) if index == 30 else dict(zip(tools.FIELDS, row, strict=True))
            for index, row in enumerate(tools.rows(60))]  # fmt: skip
    tools.write_lines(file, rows)
    config = TokenizeConfig(root=str(tmp_path / "root"), rows=[str(file)], tokenizer=str(world.tokenizer), workers=1)
    with monkeypatch.context() as patch:
        before_work(patch, EncodeRows, lambda: overwrite(file, file.read_bytes().replace(b"a", b"o")))
        refused(lambda: runner.run(Tokenize(), config), file.name)


# --- finished folders -----------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    """Change one bit of the second half; neither size nor time nor mode show it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    # A text's letter, so that rows are still rows.
    place = max(data.rfind(b"e", 0, len(data) * 3 // 4), data.rfind(b"a", 0, len(data) * 3 // 4))
    data[place] ^= 4
    writable(path).write_bytes(data)
    path.chmod(before.st_mode & 0o7777)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def line(world: World, tmp_path: Path) -> Callable[..., Result]:
    """Runs clean or tokenize over the same raw files, made into JSON Lines and Parquet."""
    raw = tmp_path / "raw"
    tools.raw_data(raw, size=40)
    made: dict[str, str] = {}

    def run(stage: str, **options: Any) -> Result:
        root = str(tmp_path / "root")
        if stage == "clean":
            result = runner.run(Clean(), CleanConfig(raw=str(raw), root=root, workers=1, **options))
        else:
            config = TokenizeConfig(
                root=root, rows=[made["clean"]], tokenizer=str(world.tokenizer), workers=1, **options
            )
            result = runner.run(Tokenize(), config)
        made[stage] = result.uri
        return result

    return run


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_flipped_byte_of_a_finished_folder_is_never_trained_on_and_is_mended(
    line: Callable[..., Result], tmp_path: Path, suffix: str
) -> None:
    first = line("clean")
    before = tools.digests(Path(first.uri))
    victim = next(path for path in sorted(Path(first.uri).glob(f"data*/**/*.{suffix}")))
    flip(victim)
    with pytest.raises(StageFailure) as caught:
        line("tokenize")
    assert caught.value.exit_code == 3
    assert len(caught.value.failures) == 1, "the other files are tokenized"
    assert "is not what its manifest says" in str(caught.value)
    assert victim.name in str(caught.value)
    assert "verify=true" in str(caught.value)
    with pytest.raises(InputError, match="is not what its manifest says"):
        line("tokenize", verify=True)
    # Its name in the shards is another of the same bytes.
    assert line("clean").reused
    mended = line("clean", verify=True)
    assert (mended.reused, mended.uri) == (False, first.uri)
    assert tools.digests(Path(mended.uri)) == before
    assert line("clean", verify=True).reused
    made = line("tokenize")
    assert made.manifest.ledger.rows_in == mended.manifest.ledger.rows_out


def test_a_flipped_byte_is_found_where_a_part_of_a_finished_folder_is_given(
    world: World, line: Callable[..., Result], tmp_path: Path
) -> None:
    cleaned = Path(line("clean").uri)
    victim = next(iter(sorted(cleaned.glob("data_clustered/*/*.parquet"))))
    flip(victim)
    for rows in (victim, victim.parent, cleaned / "data_clustered"):
        config = TokenizeConfig(
            root=str(tmp_path / "root"), rows=[str(rows)], tokenizer=str(world.tokenizer), workers=1
        )
        with pytest.raises(InputError, match="is not what its manifest says") as caught:
            runner.run(Tokenize(), config)
        assert victim.name in str(caught.value)


def test_a_flipped_byte_of_a_large_parquet_file_fails_its_pieces_alone(
    line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = Path(line("clean").uri)
    monkeypatch.setattr(tokenize_core, "SLICING", Slicing(500, 0, 1000))
    victims = sorted(cleaned.glob("data_clustered/**/*.parquet"))
    flip(victims[0])
    with pytest.raises(StageFailure) as caught:
        line("tokenize")
    assert {name.split(" ")[0] for name, _ in caught.value.failures} == {
        str(victims[0].relative_to(cleaned / "data_clustered")).replace("/", "__")
    }


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ["tokens", "resp_len"])
def test_a_flipped_byte_of_tokens_gets_into_no_plan(
    line: Callable[..., Result], tmp_path: Path, name: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line("clean")
    tokenized = Path(line("tokenize").uri)
    options = {"tokenized_path": str(tokenized), "prefix_config_path": str(tools.rules(tmp_path / "rules.yaml"))}
    if again:  # what was digested once is not digested again, while nothing changes it
        monkeypatch.setenv("PAIRMILL_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(digested, "_YOUNG", 0)
        known: list[int] = []
        monkeypatch.setattr(
            carry_out, "unchanged", lambda marks: [made := digested.unchanged(marks), known.append(len(made))][0]
        )
        for seed in (1, 2):
            sample.run(SampleConfig(output_path=str(tmp_path / f"out{seed}"), seed=seed, epochs=1, **options))
        assert known == [0, len(list(tokenized.glob("*/tokens.npy")))]
    victim = next(iter(sorted(tokenized.glob(f"*/{name}.npy"))))
    before = victim.stat()
    data = bytearray(victim.read_bytes())
    if name == "tokens":
        data[130] ^= 1
    else:  # two rows exchange their lengths: what they add up to is right
        values = memoryview(data)[128:].cast("Q")
        other = next(index for index in range(len(values)) if values[index] != values[0])
        values[0], values[other] = values[other], values[0]
        del values
    writable(victim).write_bytes(data)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    config = SampleConfig(root=str(tmp_path / "root"), output_path="", epochs=2, **options)
    with pytest.raises(InputError, match="is not what its manifest says") as caught:
        sample.run(config)
    assert str(victim) in str(caught.value)
    assert line("tokenize", verify=True).reused is False
    assert sample.run(config).reused is False


def test_a_flipped_byte_of_a_finished_tokenizer_is_refused(world: World, tmp_path: Path) -> None:
    rows = tools.write_rows(tmp_path / "rows" / "x.jsonl", tools.rows(200))
    root = str(tmp_path / "root")
    trained = runner.run(
        TrainTokenizer(),
        TrainTokenizerConfig(
            root=root, rows=[str(rows)], vocab_size=400, prefix_config_path=str(world.rules), workers=1
        ),
    )
    flip(Path(trained.uri) / "tokenizer.json")
    for given in (trained.uri, f"{trained.uri}/tokenizer.json"):
        with pytest.raises(InputError, match="is not what its manifest says"):
            runner.run(Tokenize(), TokenizeConfig(root=root, rows=[str(rows)], tokenizer=given, workers=1))


def test_raw_data_that_was_damaged_is_found_and_made_again(tmp_path: Path) -> None:
    given, root = tools.raw_archives(tmp_path / "given", size=20), str(tmp_path / "root")

    def fetch(**options: Any) -> Result:
        config = FetchConfig(root=root, raw=str(given), sources=["dmmath"], workers=1, **options)
        return runner.run(Fetch(), config)

    def texts() -> list[bytes]:
        return [path.read_bytes() for path in sorted((tmp_path / "root" / "raw").rglob("*.txt"))]

    first = fetch()
    before = texts()
    victim = next(iter(sorted((tmp_path / "root" / "raw").rglob("*.txt"))))
    writable(victim).write_text(victim.read_text().replace("What is 1", "What is 2").replace("What is 3", "What is 4"))
    refused(lambda: clean(first.uri, root, "dmmath"), victim.name)
    assert fetch().reused
    mended = fetch(verify=True)
    assert (mended.uri, mended.reused) == (first.uri, False)
    assert texts() == before
    assert clean(first.uri, root, "dmmath").manifest.ledger.rows_kept


# --- finished files -------------------------------------------------------------------------------------------------


def test_finished_files_have_no_write_bit_and_are_replaced_and_removed_like_others(
    world: World, line: Callable[..., Result], tmp_path: Path
) -> None:
    line("clean")
    tokenized = line("tokenize").uri
    arrays = tmp_path / "arrays"
    sample.run(
        SampleConfig(
            tokenized_path=tokenized,
            output_path=str(arrays),
            prefix_config_path=str(tools.rules(tmp_path / "rules.yaml")),
            root=str(tmp_path / "root"),
            epochs=1,
        )
    )
    fetched = runner.run(
        Fetch(),
        FetchConfig(
            root=str(tmp_path / "root"),
            raw=str(tools.raw_archives(tmp_path / "given", size=5)),
            sources=["dmmath"],
            workers=1,
        ),
    )
    folders = [path.parent for path in (tmp_path / "root").rglob(manifests.MANIFEST)] + [arrays]
    assert len(folders) == 6, fetched.uri
    for folder in folders:
        manifest = manifests.read(str(folder))
        assert manifest is not None
        assert manifest.files
        writable = [file.path for file in manifest.files if (folder / file.path).stat().st_mode & 0o222]
        assert writable == [], folder
    assert all(path.stat().st_mode & 0o222 for path in given_files(tmp_path)), "what others gave stays as it was"
    # Made again over what stands there.
    (Path(tokenized) / manifests.MANIFEST).unlink()
    assert not line("tokenize").reused
    tools.remove(tmp_path / "root")


def given_files(folder: Path) -> list[Path]:
    return [path for name in ("raw", "given") for path in (folder / name).rglob("*") if path.is_file()]


# --- the command ----------------------------------------------------------------------------------------------------


def test_one_command_verifies_any_finished_folder(line: Callable[..., Result], tmp_path: Path) -> None:
    cleaned, tokenized = (Path(line(stage).uri) for stage in ("clean", "tokenize"))
    done = tools.run([sys.executable, "-m", "pairmill", "verify", str(cleaned), f"path={tokenized}"])
    assert (done.code, done.out) == (0, f"{cleaned}\n{tokenized}\n")
    assert "files of" in done.err
    names = [next(iter(sorted(cleaned.glob("data/*.jsonl")))), next(iter(sorted(tokenized.glob("*/tokens.npy"))))]
    flip(names[0])
    names[1].unlink()
    done = tools.run([sys.executable, "-m", "pairmill", "verify", str(tmp_path / "root")])
    assert done.code == 3
    assert f"{names[0]}: blake3" in done.err
    assert f"{names[1]}: missing" in done.err
    for given in (tmp_path / "nothing", tmp_path / "raw"):
        with pytest.raises(InputError, match="contains no finished folder"):
            verify.verify(str(given))
