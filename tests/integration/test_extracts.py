"""Extracts: the first records of a source, from anywhere, with no more read than they take."""

import gzip
import importlib
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import storage
from pairmill.engine import runner
from pairmill.engine.options import Profile
from pairmill.errors import InputError, PairmillError
from pairmill.sources.origin import Hub, Web
from pairmill.sources.source import Unit
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from tests.support import tools
from tests.support.helpers import REPOSITORY
from tests.support.processes.crash_points import crashes
from tests.support.servers.downloads import Files
from tests.support.servers.downloads import Hub as HubServer
from tests.support.stages import fetching
from tests.support.stages.fetching import Made, ask_here, declare, fetch, fetched, index, lines


def table(count: int, seed: int = 0) -> pa.Table:
    numbers = range(seed, seed + count)
    return pa.table(
        {"question": [f"What is {number}?" for number in numbers], "answer": [str(number) for number in numbers]}
    )


def parquet(rows: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    return buffer.getvalue()


def cleaned(root: Path, raw: str | Path, *sources: str, **options: Any) -> dict[str, Any]:
    """Run clean in this process; the data of its manifest, with the rows of each output."""
    config = CleanConfig(root=str(root), raw=str(raw), sources=list(sources) or ["made"], workers=1, **options)
    result = runner.run(Clean(), config)
    texts = {}
    for file in result.manifest.files:
        if file.path.endswith(".jsonl") and file.path.startswith("data"):
            rows = (Path(result.uri) / file.path).read_text().splitlines()
            texts[file.path] = [json.loads(row)["response"] for row in rows]
    return {**result.manifest.data, "texts": texts, "fingerprint": result.manifest.fingerprint, "uri": result.uri}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    with HubServer() as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


def test_ten_rows_of_a_huge_row_group_cost_its_footer_and_a_few_pages(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # One row group of 48 MB. Its pages have 1 MB, as writers make them of short texts.
    text = "".join(chr(33 + (7 * number + number // 90) % 90) for number in range(50_000))
    count = 960
    rows = pa.table({"question": [f"{n} {text[n:]}" for n in range(count)], "answer": [str(n) for n in range(count)]})
    content = parquet(rows, row_group_size=count, compression="none", use_dictionary=False, write_batch_size=16)
    assert pq.ParquetFile(io.BytesIO(content)).metadata.num_row_groups == 1
    assert len(content) > 45e6
    later = parquet(table(5))
    hub.add("org/made", {"data/train-00000.parquet": content, "data/train-00001.parquet": later})
    declare(monkeypatch, Hub("org/made", ("data/*.parquet",)))
    result = fetch(tmp_path / "root", limit=10)
    sent = sum(request.sent for request in hub.seen("/cdn/*", "GET"))
    assert 0 < sent < 3e6, f"{sent} of {len(content)} bytes were sent"
    assert not hub.seen("*train-00001*")
    found = fetched(result)
    assert list(found) == ["data/first-10-of-train-00000.parquet"]
    part = pq.read_table(io.BytesIO(found["data/first-10-of-train-00000.parquet"]))
    assert part.equals(rows.slice(0, 10))
    assert index(result)["about"]["extract"] == "first 10 records"


def test_an_extract_of_lines_stops_in_the_middle_of_a_compressed_file(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = gzip.compress(lines(120_000), 1)
    hub.add("org/made", {"a.jsonl.gz": gzip.compress(lines(5, 100)), "b.jsonl.gz": content})
    declare_gz(monkeypatch, Hub("org/made", ("*.jsonl.gz",)))
    result = fetch(tmp_path / "root", limit=12)
    found = {path: gzip.decompress(data) for path, data in fetched(result).items()}
    assert found == {"first-12-of-a.jsonl.gz": lines(5, 100), "first-12-of-b.jsonl.gz": lines(7)}
    sent = sum(request.sent for request in hub.seen("*b.jsonl.gz", "GET"))
    assert len(content) > 5e5
    assert 0 < sent < 1e5
    assert cleaned(tmp_path / "root", result.uri)["texts"]["data/made.jsonl"] == [
        *map(str, range(100, 105)),
        *map(str, range(7)),
    ]


class Gz(Made):
    """The same, of compressed lines."""

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit("data/made.jsonl", tuple(path for path in files if path.endswith(".gz")))]


def declare_gz(monkeypatch: pytest.MonkeyPatch, origin: Any) -> None:
    monkeypatch.setitem(fetching.SOURCES, "made", Gz("made", origin))


def test_the_published_files_are_fetched_when_the_limit_is_gone(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.add("org/made", {"train.jsonl": lines(50), "README.md": b"# Made\n"}, lfs=["train.jsonl"])
    declare(monkeypatch, Hub("org/made", ("*.jsonl",)))
    root = tmp_path / "root"
    first = fetch(root, limit=10)
    assert fetched(first) == {"README.md": b"# Made\n", "first-10-of-train.jsonl": lines(10)}
    assert fetch(root, limit=10).reused
    commit = index(first)["about"]["revision"]
    assert index(first)["path"] == f"raw/made/{commit}-first-10"
    whole = fetch(root)
    assert not whole.reused
    assert fetched(whole) == {"README.md": b"# Made\n", "train.jsonl": lines(50)}
    assert "extract" not in index(whole)["about"]
    # A folder with both is read as the published files.
    assert len(cleaned(root, root / "raw")["texts"]["data/made.jsonl"]) == 50
    # Fewer records of the extract that is there; more than it has are not pretended.
    assert len(cleaned(root, first.uri, limit=4)["texts"]["data/made.jsonl"]) == 4
    data = cleaned(root, first.uri, limit=40)
    assert len(data["texts"]["data/made.jsonl"]) == 10
    assert data["sources"]["made"]["about"]["extract"] == "first 10 records"


def test_manifests_and_reports_say_that_it_is_an_extract(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.add("org/made", {"train.jsonl": lines(50)})
    declare(monkeypatch, Hub("org/made", ("*.jsonl",)))
    result = fetch(tmp_path / "root", limit=10)
    assert result.manifest.data["sources"]["made"]["records"] == 10
    raw = json.loads((tmp_path / "root" / index(result)["path"] / "_MANIFEST.json").read_bytes())
    assert raw["data"]["extract"] == {"limit": 10, "listed": ["train.jsonl"], "records": 10}
    assert "first 10 records" in (Path(result.uri) / "report.md").read_text()
    data = cleaned(tmp_path / "root", result.uri)
    assert "first 10 records" in (Path(data["uri"]) / "report.md").read_text()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_over_https(ranges: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Files() as server:
        url = server.add("made.jsonl", lines(30_000), ranges=ranges)
        declare(monkeypatch, Web(url))
        result = fetch(tmp_path / "root", limit=3)
        assert fetched(result) == {"first-3-of-made.jsonl": lines(3)}
        sent = sum(request.sent for request in server.seen("*", "GET"))
        assert sent <= 70_000 or not ranges
        assert index(result)["about"]["revision"].startswith('version "')
        # The lock has no digest: not all bytes were seen.
        assert "sha256" not in (tmp_path / "root" / "sources.lock.yaml").read_text()
        server.add("made.jsonl", lines(30_000, 1), ranges=ranges)
        with pytest.raises(PairmillError, match="the published version has changed"):
            fetch(tmp_path / "root", limit=4)
        fetch(tmp_path / "root", limit=4, update=["made"])


def test_an_answer_that_is_cut_or_refused_is_asked_for_again(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "9")
    hub.add("org/made", {"train.parquet": parquet(table(20_000))})
    declare(monkeypatch, Hub("org/made", ("*.parquet",)))
    hub.cut("/cdn/*", after=1000, times=1)
    hub.fail("/cdn/*", 503, times=1, skip=1)
    assert pq.read_table(io.BytesIO(next(iter(fetched(fetch(tmp_path / "root", limit=7)).values())))).equals(
        table(20_000).slice(0, 7)
    )
    assert {request.status for request in hub.seen("/cdn/*")} == {206, 503}


def test_a_gated_set_says_what_to_accept_and_where_the_token_goes(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.add("org/made", {"train.parquet": parquet(table(20))}, gated=True)
    declare(monkeypatch, Hub("org/made", ("*.parquet",)))
    with pytest.raises(PairmillError, match="gated") as caught:
        fetch(tmp_path / "root", limit=7)
    assert "accept its terms on the Hub's page of org/made, and set HF_TOKEN" in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", hub.token("hf_good", "org/made"))
    assert fetch(tmp_path / "root", limit=7).manifest.data["sources"]["made"]["records"] == 7


def test_rows_that_datasets_streams(hub: HubServer, tmp_path: Path) -> None:
    hub.add("org/made", {"data/train.jsonl": lines(3000), "data/test.jsonl": lines(10, 9000)})
    (tmp_path / "made.yaml").write_text(
        "name: chats\nhub: org/made\nvia: datasets\nsplit: [train, test]\n"
        "condition: direct\ninstruction: question\nresponse: answer\nlimit: 5\n"
    )
    root = tmp_path / "root"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hub.environment(tmp_path / "home").items():
            patch.setenv(name, value)
        first = tools.folder(tools.stage("fetch", sources=tmp_path / "made.yaml", root=root))
    data = cleaned(root, first, str(tmp_path / "made.yaml"))
    assert data["texts"] == {"data/chats.jsonl": ["0", "1", "2", "3", "4"]}
    entry = json.loads((first / "sources" / "chats.json").read_bytes())
    assert [file["path"] for file in entry["files"]] == ["first-5-of-train-00000.parquet"]


def test_an_extract_of_an_archive_is_of_its_members(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (("top/b.jsonl", lines(9, 20)), ("top/a.jsonl", lines(5)), ("top/c.txt", b"no")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with Files() as server:
        declare(monkeypatch, Web(server.add("made.tar.gz", buffer.getvalue()), unpack=("**/*.jsonl",)))
        result = fetch(tmp_path / "root", limit=8)
    assert fetched(result) == {"top/first-8-of-a.jsonl": lines(5), "top/first-8-of-b.jsonl": lines(3, 20)}
    assert not list((tmp_path / "root" / "fetch" / "downloads").rglob("members"))


def test_extracts_that_are_cut_otherwise_have_folders_of_their_own(tmp_path: Path) -> None:
    folder, description = tmp_path / "raw", tmp_path / "set.yaml"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines(20))
    text = f"name: set\nfiles: {folder}/*.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n"
    config = FetchConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1, limit=7)
    places = []
    # The second does not cut the file between records.
    for further in ("", "json: lenient\n", ""):
        description.write_text(text + further)
        result = runner.run(Fetch(), config)
        assert fetched(result, "set") == {"first-7-of-a.jsonl": lines(20 if further else 7)}
        places.append(index(result, "set")["path"])
    assert result.reused
    assert places[0] == places[2] != places[1]


def test_given_files_are_not_digested(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "set"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(lines(5))
    (folder / "b.jsonl").write_bytes(lines(20, 100))
    (folder / "c.jsonl").write_bytes(b"not JSON, and never read")
    (tmp_path / "set.yaml").write_text(
        f"name: set\nfiles: {folder}/*.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    config = FetchConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "set.yaml")], workers=1, limit=7)
    result = runner.run(Fetch(), config)
    assert fetched(result, "set") == {"first-7-of-a.jsonl": lines(5), "first-7-of-b.jsonl": lines(2, 100)}
    assert runner.run(Fetch(), config).reused
    data = cleaned(tmp_path / "root", result.uri, str(tmp_path / "set.yaml"))
    assert data["sources"]["set"]["ledger"]["rows_in"] == 7
    # Clean by itself takes the same records of the folder, and makes the same rows.
    alone = cleaned(tmp_path / "root", "", str(tmp_path / "set.yaml"), limit=7)
    assert alone["texts"] == data["texts"]
    assert alone["sources"]["set"]["about"]["extract"] == "first 7 records"
    assert (
        "extract"
        not in cleaned(tmp_path / "two", "", str(tmp_path / "set.yaml"), max_reject_fraction=1.0)["sources"]["set"][
            "about"
        ]
    )


KINDS = {
    "lines.jsonl": lines(9).replace(b"\n", b"\n\n"),
    "packed.jsonl.zst": pa.compress(lines(9), "zstd", asbytes=True),
    "array.json": json.dumps([json.loads(line) for line in lines(9).splitlines()], indent=2).encode(),
    "table.csv": b'question,answer\n"What is\n0?",0\n' + b"".join(b'"a ""b""",%d\n' % n for n in range(1, 9)),
    "table.parquet": parquet(table(9), row_group_size=2),
}


DIALECTS = {
    "table.tsv": (b"a\t0\nb\t1\n'c\n'\t2\n", 'quote: "\'"\nheader: [question, answer]'),
    "wide.csv": (("question;answer\n" + "é;0\né;1\né;2\n").encode("utf-16"), "delimiter: ';'\nencoding: utf-16"),
    "inside.json": (b'{"data": {"items": [' + b",".join(lines(3).splitlines()) + b"]}}", "records: data.items"),
    "array.json.gz": (gzip.compress(b"[" + b",".join(lines(3).splitlines()) + b"]"), ""),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects(name: str, tmp_path: Path) -> None:
    folder, (content, said) = tmp_path / "data", DIALECTS[name]
    folder.mkdir()
    (folder / name).write_bytes(content)
    description = tmp_path / "set.yaml"
    description.write_text(
        f"name: set\nfiles: data/{name}\ncondition: direct\ninstruction: question\nresponse: answer\n{said}\n"
    )
    config = FetchConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1, limit=2)
    result = runner.run(Fetch(), config)
    data = cleaned(tmp_path / "root", result.uri, str(description))
    assert data["texts"] == {"data/set.jsonl": ["0", "1"]}
    assert index(result, "set")["extract"]["records"] == 2
    assert cleaned(tmp_path / "root", "", str(description), limit=2)["texts"] == data["texts"]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_file_is_cut_after_a_record(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_bytes(KINDS[name])
    description = tmp_path / "set.yaml"
    description.write_text(
        f"name: set\nfiles: data/{name}\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    config = FetchConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1, limit=4)
    result = runner.run(Fetch(), config)
    data = cleaned(tmp_path / "root", result.uri, str(description))
    assert data["texts"] == {"data/set.jsonl": ["0", "1", "2", "3"]}
    assert cleaned(tmp_path / "root", "", str(description), limit=4)["texts"] == data["texts"]
    assert len(next(iter(fetched(result, "set").values()))) < len(KINDS[name])


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples"))
    return importlib.import_module("make_raw")


def test_a_file_that_cannot_be_cut_is_whole_and_the_limit_holds_all_the_same(maker: ModuleType, tmp_path: Path) -> None:
    """The archive of AMPS is read as it is."""
    names = ["ampsmathematica", "scienceqa", "dmmath", "arb"]
    maker.make(tmp_path / "raw", names)
    config = FetchConfig(root=str(tmp_path / "root"), raw=str(tmp_path / "raw"), sources=names, workers=1, limit=6)
    result = runner.run(Fetch(), config)
    data = cleaned(tmp_path / "root", result.uri, *names)
    alone = cleaned(tmp_path / "root", tmp_path / "raw", *names, limit=6)
    for name in names:
        ledger = data["sources"][name]["ledger"]
        assert ledger["rows_in"] - ledger["dropped"].get("withheld_split", 0) == 6
        assert ledger == alone["sources"][name]["ledger"]
    assert data["outputs"] == alone["outputs"]
    # A smaller extract of an extract has the first of its records.
    again = FetchConfig(
        root=str(tmp_path / "two"), raw=str(tmp_path / "root" / "raw"), sources=names, workers=1, limit=3
    )
    less = cleaned(tmp_path / "two", runner.run(Fetch(), again).uri, *names)
    assert less["texts"] == cleaned(tmp_path / "root", tmp_path / "raw", *names, limit=3)["texts"]
    assert less["sources"]["scienceqa"]["about"]["extract"] == "first 3 records"
    # Options of the source that fetch did not know may ask for other files.
    with pytest.raises(InputError, match="has not all of the records"):
        cleaned(tmp_path / "root", result.uri, "scienceqa", source_options=["scienceqa.splits=validation"])


DOCUMENTS = {
    "c4": ("allenai/c4", "main"),
    "bookcorpus": ("bookcorpus/bookcorpus", "refs/convert/parquet"),
    "the_stack": ("bigcode/the-stack", "v1.2"),
    "cc_news": ("vblagoje/cc_news", "main"),
    "arxiv": ("gfissore/arxiv-abstracts-2021", "main"),
}


def test_five_sets_of_documents_are_tried_with_one_command(
    hub: HubServer, maker: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maker.make(tmp_path / "published", list(DOCUMENTS))
    for name, (repository, revision) in DOCUMENTS.items():
        top = tmp_path / "published" / name
        files = {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        hub.add(repository, files, revision=revision, gated=name == "the_stack")
    with pytest.raises(PairmillError, match="gated") as caught:
        fetch(tmp_path / "root", *DOCUMENTS, limit=100)
    assert "accept its terms on the Hub's page of bigcode/the-stack, and set HF_TOKEN" in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", hub.token("hf_good", "bigcode/the-stack"))
    result = fetch(tmp_path / "root", *DOCUMENTS, limit=100)
    found = {name: sorted(set(fetched(result, name)) - {"README.md"}) for name in DOCUMENTS}
    assert found == {
        "c4": ["en/first-100-of-c4-train.00000-of-01024.json.gz"],
        "bookcorpus": ["plain_text/train/first-100-of-0000.parquet"],
        "the_stack": [f"data/{one}/first-100-of-train-00000-of-00001.parquet" for one in ("c++", "python")],
        "cc_news": ["plain_text/first-100-of-train-00000-of-00001.parquet"],
        "arxiv": ["first-100-of-arxiv-abstracts.jsonl.gz"],
    }
    assert not hub.seen("*c4-validation*")
    data = cleaned(tmp_path / "root", result.uri, *DOCUMENTS)
    ledgers = {name: one["ledger"] for name, one in data["sources"].items()}
    book = ledgers.pop("bookcorpus")["notes"]
    assert book["sentences_joined"] + book["empty_sentences"] == 100
    assert {one["rows_in"] for one in ledgers.values()} == {100}
    assert {one["about"]["extract"] for one in data["sources"].values()} == {"first 100 records"}
    rows = pq.read_table(Path(data["uri"]) / "data_clustered" / "arxiv" / "all.parquet").to_pylist()
    assert all(row["instruction"] == row["condition"] == "" and row["response"] for row in rows)


def test_killed_at_every_instant_and_run_again_it_is_the_same_extract(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "set"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.jsonl").write_bytes(lines(4, 10 * number))
    description = tmp_path / "set.yaml"
    description.write_text(
        "name: set\nfiles: raw/set/*.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    root = tmp_path / "root"
    config = FetchConfig(root=str(root), sources=[str(description)], workers=1, limit=10)
    wanted = fetched(runner.run(Fetch(), replace(config, root=str(tmp_path / "reference"))), "set")
    assert b"".join(wanted.values()) == lines(4) + lines(4, 10) + lines(2, 20)
    instants = 0
    for number in crashes(lambda: runner.run(Fetch(), config), root, stride=3):
        instants = number
        found = runner.run(Fetch(), config)
        assert fetched(found, "set") == wanted, f"after instant {number}"
        shutil.rmtree(root)
    assert instants > 15


def test_files_of_a_bucket(s3: str, tmp_path: Path) -> None:
    store = storage.store_for(s3)
    content = parquet(table(200_000), row_group_size=50_000, use_dictionary=False, write_batch_size=500)
    store.write(f"{s3}/data/a.parquet", content)
    store.write(f"{s3}/data/b.parquet", b"not read")
    description = tmp_path / "set.yaml"
    description.write_text(
        f"name: set\nfiles: {s3}/data/*.parquet\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    config = FetchConfig(root=f"{s3}/root", sources=[str(description)], workers=1, limit=5)
    result = runner.run(Fetch(), config)
    entry = json.loads(store.read(f"{result.uri}/sources/set.json"))
    (file,) = entry["files"]
    assert file["path"] == "first-5-of-a.parquet"
    assert file["size"] < 5000 < len(content)
    made = runner.run(Clean(), CleanConfig(root=f"{s3}/root", raw=result.uri, sources=[str(description)], workers=1))
    assert made.manifest.ledger.rows_in == 5
    assert runner.run(Fetch(), config).reused


def test_a_run_that_fails_on_the_way_leaves_nothing_that_looks_finished(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.add("org/made", {f"{number}.parquet": parquet(table(10, 10 * number)) for number in range(4)})
    declare(monkeypatch, Hub("org/made", ("*.parquet",)))
    hub.fail("*/3.parquet*", 404)
    with pytest.raises(PairmillError):
        fetch(tmp_path / "root", limit=35)
    assert not list((tmp_path / "root" / "raw").rglob("*.parquet"))
    hub.heal()
    seen = len(hub.seen("*/0.parquet*"))
    found = fetched(fetch(tmp_path / "root", limit=35))
    assert list(found) == [f"first-35-of-{number}.parquet" for number in range(4)]
    assert len(hub.seen("*/0.parquet*")) > seen  # an extract is made anew as a whole
    assert sum(len(pq.read_table(io.BytesIO(data))) for data in found.values()) == 35


@pytest.mark.parametrize(("key", "said"), [("0", "leave out limit:"), ("ten", "limit: 1000"), ("-1", "limit: 1000")])
def test_a_limit_that_is_no_number_is_refused(key: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(
        f"name: set\nfiles: '*.jsonl'\ncondition: direct\ninstruction: a\nresponse: b\nlimit: {key}\n"
    )
    done = tools.ended(tools.stage("clean", sources=tmp_path / "set.yaml", root=tmp_path / "root"), 2)
    assert said in done.message
    assert "line 6" in done.message


def test_the_limit_is_in_the_keys_and_not_in_those_of_a_run_without(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "made"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(lines(5))
    (folder / "b.jsonl").write_bytes(lines(5, 7))
    description = tmp_path / "set.yaml"
    description.write_text(
        "name: set\nfiles: raw/made/*.jsonl\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    found = {}
    for limit in (0, 3, 8):
        config = CleanConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1, limit=limit)
        (shard,) = runner.first_round(Clean(), config)
        found[limit] = shard.key
    assert len(set(found.values())) == 3
    assert (
        "limit"
        not in runner.run(
            Clean(), CleanConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1)
        ).manifest.options
    )
