"""Files that are shared on Google Drive: the page before a large one, its digest in the lock, resumed, and refusals."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml

from pairmill.errors import PairmillError
from pairmill.net import drive as of_drive
from pairmill.sources.datasets import SOURCES
from pairmill.sources.origin import Web
from tests.integration.test_extracts import cleaned
from tests.support import tools
from tests.support.servers.google_drive import Drive, Page
from tests.support.stages.fetching import declare, fetch, fetched, lines

ID = "1AbCdEfGhIjKlMnOp"


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drive]:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "9")
    with Drive() as server:
        monkeypatch.setattr(of_drive, "ENDPOINT", server.url)
        yield server


@pytest.mark.parametrize("page", ["", "form", "cookie"])
def test_a_link_is_followed_beyond_its_pages(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: Page
) -> None:
    content = lines(5000)
    declare(monkeypatch, Web(f"{drive.share(ID, content, page)}#made.jsonl"))
    assert fetched(fetch(tmp_path / "root")) == {"made.jsonl": content}
    (pin,) = yaml.safe_load((tmp_path / "root" / "sources.lock.yaml").read_text())["sources"].values()
    assert pin["sha256"] == hashlib.sha256(content).hexdigest()
    assert fetch(tmp_path / "root").reused
    # Another run takes what is locked, or nothing.
    drive.share(ID, content + b"\n", page)
    with pytest.raises(PairmillError, match="no longer published"):
        fetch(tmp_path / "other", lock=str(tmp_path / "root" / "sources.lock.yaml"))


def test_a_download_goes_on_after_a_cut(drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = lines(50_000)
    declare(monkeypatch, Web(f"{drive.share(ID, content, 'form')}#made.jsonl"))
    # Twice the address is asked for, by the plan and by the shard.
    drive.cut("/download*", after=400_000, times=2, skip=2)
    assert fetched(fetch(tmp_path / "root")) == {"made.jsonl": content}
    parts = [request.range for request in drive.seen("/download?*confirm=t*", "GET") if request.range]
    assert parts == ["bytes=400000-", "bytes=800000-"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("quota", ("too many people have fetched the file today", "Quota exceeded", "24 hours")),
        ("login", ("not shared with everybody", "raw=")),
        ("gone", ("does not exist",)),
    ],
)
def test_what_cannot_be_had_is_said(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: Page, said: tuple[str, ...]
) -> None:
    link = drive.share(ID, lines(5), page)
    if page not in get_args(Page):
        drive.shared.clear()
    declare(monkeypatch, Web(f"{link}#made.jsonl"))
    with pytest.raises(PairmillError) as caught:
        fetch(tmp_path / "root")
    assert all(one in str(caught.value) for one in said), str(caught.value)


def test_a_page_in_the_middle_of_a_download_is_not_taken_for_the_file(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    declare(monkeypatch, Web(f"{drive.share(ID, lines(5000))}#made.jsonl"))
    page = {"Content-Type": "text/html"}
    drive.fail("/download*", 200, headers=page, body=b"<title>Google Drive - Quota exceeded</title>", skip=2)
    with pytest.raises(PairmillError, match="too many people"):
        fetch(tmp_path / "root")
    drive.heal()
    assert fetched(fetch(tmp_path / "root")) == {"made.jsonl": lines(5000)}


@pytest.mark.parametrize(
    "link",
    [
        f"https://drive.google.com/file/d/{ID}/view?usp=sharing#a.jsonl",
        f"https://drive.google.com/open?id={ID}#a.jsonl",
        f"https://drive.google.com/uc?export=download&id={ID}#a.jsonl",
        f"https://docs.google.com/uc?id={ID}#a.jsonl",
    ],
)
def test_every_form_of_a_link_names_its_file(drive: Drive, link: str) -> None:
    drive.share(ID, b"x", "form")
    assert "confirm=t" in of_drive.address_of(link).url


def test_a_link_to_a_folder_is_refused(drive: Drive) -> None:
    with pytest.raises(PairmillError, match="not a link to a file of Google Drive"):
        of_drive.address_of("https://drive.google.com/drive/folders")
    assert not drive.requests


def test_a_page_may_not_lead_elsewhere(drive: Drive) -> None:
    page = b'<form action="https://evil.example/download"><input type="hidden" name="id" value="x"></form>'
    drive.fail("/*", 200, headers={"Content-Type": "text/html"}, body=page)
    with pytest.raises(PairmillError, match="a page came in place of the file"):
        of_drive.address_of(drive.share(ID, b"x"))


def test_amps_comes_from_its_link(drive: Drive, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (
            ("amps/mathematica/algebra/solve/1.txt", b"Problem:\nWhat is 1 + 1?\nAnswer:\n2"),
            ("amps/khan/1/2.json", b'{"problem": "What is 2 + 2?", "hints": ["Count.", "4"]}'),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    origin = SOURCES["amps_khan"].origin
    assert isinstance(origin, Web)
    drive.share(origin.url.split("/d/")[1].split("/")[0], buffer.getvalue(), "form")
    root = tmp_path / "root"
    result = fetch(root, "amps_khan", "ampsmathematica")
    assert list(fetched(result, "amps_khan")) == ["amps.tar.gz"]
    data = cleaned(root, result.uri, "amps_khan", "ampsmathematica")
    assert data["texts"] == {"data/amps_khan.jsonl": ["Count.\n4"]}
    assert data["outputs"] == {"data/amps_khan.jsonl": 1, "data_clustered/ampsmathematica/algebra_solve.parquet": 1}


def test_a_description_names_an_address(drive: Drive, tmp_path: Path) -> None:
    from pairmill.engine import runner
    from pairmill.stages.fetch.config import FetchConfig
    from pairmill.stages.fetch.core import Fetch

    description = tmp_path / "set.yaml"
    rest = "condition: direct\ninstruction: question\nresponse: answer\n"
    link = drive.share(ID, lines(9), "form")
    description.write_text(f"name: set\nurl: {link}#set.jsonl\n{rest}")
    config = FetchConfig(root=str(tmp_path / "root"), sources=[str(description)], workers=1)
    result = runner.run(Fetch(), config)
    assert len(cleaned(tmp_path / "root", result.uri, str(description))["texts"]["data/set.jsonl"]) == 9
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("top/a.jsonl", "top/b.jsonl"):
            info = tarfile.TarInfo(name)
            info.size = len(lines(4))
            archive.addfile(info, io.BytesIO(lines(4)))
    drive.share(ID, buffer.getvalue(), "form")
    description.write_text(f"name: set\nurl: {link}#set.tar.gz\nfiles: top/b*.jsonl\n{rest}")
    config = FetchConfig(root=str(tmp_path / "two"), sources=[str(description)], workers=1)
    assert list(fetched(runner.run(Fetch(), config), "set")) == ["top/b.jsonl"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("url: set.jsonl", "expected https://"),
        ("url: https://host/set.jsonl\nhub: org/set", "url: or hub:, not both"),
        ("url: https://host/set.tar.gz\nfiles: ../*.jsonl", "outside the archive"),
        ("url: https://host/set.jsonl\nsplit: train", "needs hub:"),
    ],
)
def test_a_wrong_address_is_refused(line: str, said: str, tmp_path: Path) -> None:
    description = tmp_path / "set.yaml"
    description.write_text(f"name: set\n{line}\ncondition: direct\ninstruction: a\nresponse: b\n")
    done = tools.ended(tools.stage("fetch", sources=description, root=tmp_path / "root"), 2)
    assert said in done.message
