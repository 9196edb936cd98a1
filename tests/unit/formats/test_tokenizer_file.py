"""Finding a tokenizer: what stands at a path comes first, then the Hub, whose file comes once and whole."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.formats.tokenizer_file import locate
from pairmill.net import http
from tests.support.servers.downloads import Hub
from tests.support.stages.fetching import ask_here

FILE = os.urandom(50_000)
COMMIT = "a1" * 20


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub that this process asks, from an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Hub() as made:
        ask_here(monkeypatch, made, tmp_path)
        yield made


# --- paths ----------------------------------------------------------------------------------------------------------


def test_a_file_and_a_folder_that_holds_one(tmp_path: Path, root: str) -> None:
    (tmp_path / "folder with %").mkdir()
    for name in ("tokenizer.json", "other.json"):
        (tmp_path / "folder with %" / name).write_bytes(b"{}")
        given = str(tmp_path / "folder with %" / name)
        assert locate(given, root) == given
    folder = tmp_path / "folder with %"
    assert locate(f"{folder}/", root) == str(folder / "tokenizer.json")
    assert locate(folder.as_uri(), root) == f"{folder.as_uri()}/tokenizer.json"


def finished(folder: Path, size: int) -> None:
    """A finished folder that says that its tokenizer.json has this size."""
    entry = File("tokenizer.json", size, "0" * 64)
    (folder / "_MANIFEST.json").unlink(missing_ok=True)
    manifests.begin(str(folder), "train_tokenizer", "f" * 16)
    Manifest("train_tokenizer", 1, "f" * 16, {}, [], Ledger(), [entry]).finish(str(folder))


def test_a_link_that_is_named_exactly_is_a_file(tmp_path: Path, root: str) -> None:
    (tmp_path / "blob").write_text("{}")
    (tmp_path / "t.json").symlink_to("blob")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tokenizer.json").symlink_to("../blob")
    assert locate(str(tmp_path / "t.json"), root) == str(tmp_path / "t.json")
    assert locate(str(tmp_path / "folder"), root) == str(tmp_path / "folder" / "tokenizer.json")


def test_a_pairmill_folder_has_to_be_finished_and_whole(tmp_path: Path, root: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    manifests.begin(str(tmp_path), "train_tokenizer", "f" * 16)
    for given in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(InputError, match="pairmill began this folder and has not finished it"):
            locate(str(given), root)
    finished(tmp_path, 2)
    assert locate(str(tmp_path), root) == str(tmp_path / "tokenizer.json")
    finished(tmp_path, 3)
    with pytest.raises(InputError, match=r"tokenizer\.json: 2 bytes, expected 3"):
        locate(str(tmp_path), root)


def test_where_nothing_is_is_said(tmp_path: Path, root: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"")
    for given in (tmp_path / "absent", tmp_path / "a"):
        with pytest.raises(InputError, match=r"tokenizer=/.*: no tokenizer: neither a file nor a folder"):
            locate(str(given), root)
    for given in ("", "nfs://server/tokenizer.json"):
        with pytest.raises(UsageError):
            locate(given, root)


@pytest.mark.parametrize(
    "given", ["a/b/c", "a", "../b", "a/..", "./b", "a/b@", "a/b@../c", "a/b@x y", "-a/b", "a\\b/c"]
)
def test_what_is_no_id_is_a_path(server: Hub, root: str, given: str) -> None:
    with pytest.raises(InputError, match="no tokenizer"):
        locate(given, root)
    assert not server.requests


def test_what_stands_there_comes_before_the_hub(server: Hub, root: str) -> None:
    server.add("o/n", {"tokenizer.json": FILE}, kind="model")
    Path("o/n").mkdir(parents=True)
    Path("o/n/tokenizer.json").write_bytes(b"{}")
    assert locate("o/n", root) == str(Path("o/n/tokenizer.json").absolute())
    Path("o/n/tokenizer.json").rename("o/n/tokenizer.model")
    with pytest.raises(InputError, match="no tokenizer"):
        locate("o/n", root)
    assert not server.requests


# --- the Hub --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lfs", [[], ["tokenizer.json"]])
def test_a_commit_of_the_hub_comes_once(server: Hub, root: str, lfs: list[str]) -> None:
    commit = server.add("o.w/n-a_m", {"tokenizer.json": FILE, "model.bin": b"w"}, kind="model", lfs=lfs)
    found = locate(f"o.w/n-a_m@{commit}", root)
    assert found == f"{root}/tokenizer/hub/o.w--n-a_m/{commit}/tokenizer.json"
    assert Path(found).read_bytes() == FILE
    assert os.listdir(Path(found).parent) == ["tokenizer.json"]
    assert not server.seen("*model.bin*")
    server.requests.clear()
    assert locate(f"o.w/n-a_m@{commit}", root) == found
    assert not server.requests


def test_a_branch_is_a_commit_and_the_log_says_which(server: Hub, root: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pairmill")
    old = server.add("o/n", {"tokenizer.json": FILE}, kind="model")
    server.tag("o/n", "v1", old)
    assert Path(locate("o/n", root)).parent.name == old
    new = server.add("o/n", {"tokenizer.json": b"{}"}, kind="model")
    assert Path(locate("o/n", root)).read_bytes() == b"{}"
    assert Path(locate("o/n@v1", root)).read_bytes() == FILE
    assert caplog.messages == [
        f"tokenizer: main of o/n is commit {old}; to keep it, set tokenizer=o/n@{old}",
        f"tokenizer: main of o/n is commit {new}; to keep it, set tokenizer=o/n@{new}",
        f"tokenizer: v1 of o/n is commit {old}; to keep it, set tokenizer=o/n@{old}",
    ]
    assert len(server.seen("*/resolve/*")) == 2


def test_damaged_bytes_are_fetched_once_more_and_never_kept(
    server: Hub, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    commit = server.add("o/n", {"tokenizer.json": FILE}, kind="model")
    server.corrupt("*/resolve/*")
    with pytest.raises(InputError, match="the downloaded bytes are not those that the Hub lists"):
        locate("o/n", root)
    assert not Path(root).exists()
    server.heal()
    server.corrupt("*/resolve/*", times=1)
    server.cut("*/resolve/*", after=1000, times=1, skip=1)
    server.fail("/api/*", 503, times=1)
    assert Path(locate(f"o/n@{commit}", root)).read_bytes() == FILE


Refused = Callable[[Hub], str]
REFUSALS: dict[str, tuple[str, Refused]] = {
    "a private model, or none": (
        r"the model does not exist, or is private; got HF_TOKEN is not set",
        lambda hub: "o/none",
    ),
    "a data set": ("the model does not exist", lambda hub: hub.add("o/n", {"tokenizer.json": FILE}) and "o/n"),
    "gated": (
        r"is gated; got HF_TOKEN is not set.*; accept its terms on the Hub's page of o/n, and set HF_TOKEN",
        lambda hub: hub.add("o/n", {"tokenizer.json": FILE}, kind="model", gated=True) and "o/n",
    ),
    "another revision": (
        r"the revision does not exist; give an existing commit, branch or tag after @",
        lambda hub: hub.add("o/n", {"tokenizer.json": FILE}, kind="model") and "o/n@v2",
    ),
    "another commit": (
        "the revision does not exist",
        lambda hub: hub.add("o/n", {"tokenizer.json": FILE}, kind="model") and f"o/n@{COMMIT}",
    ),
    "no tokenizer": (
        r"the model has no file tokenizer\.json; got config.json, tokenizer.model; create it with",
        lambda hub: hub.add("o/n", {"config.json": b"{}", "tokenizer.model": b"x"}, kind="model") and "o/n",
    ),
    "no name": ("not a valid name of a model", lambda hub: "o/a--b"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_the_hub_does_not_give_is_said(server: Hub, root: str, case: str) -> None:
    said, given = REFUSALS[case]
    name = given(server)
    with pytest.raises(InputError, match=said) as caught:
        locate(name, root)
    path = os.path.abspath(name)
    assert str(caught.value).startswith(f"tokenizer={name}: {path} does not exist, and as a model of the Hub: ")
    assert not Path(root).exists()


def test_a_token_opens_what_is_gated_and_is_in_no_message(
    server: Hub, root: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pairmill")
    server.add("o/n", {"tokenizer.json": FILE}, kind="model", gated=True, private=True)
    monkeypatch.setenv("HF_TOKEN", server.token("hf_other"))
    with pytest.raises(PairmillError, match="the account of HF_TOKEN has no access") as caught:
        locate("o/n", root)
    monkeypatch.setenv("HF_TOKEN", server.token("hf_approved", "o/n"))
    assert Path(locate("o/n", root)).read_bytes() == FILE
    assert "hf_" not in str(caught.value) + caplog.text


def test_offline_only_what_is_there_is_found(server: Hub, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.add("o/n", {"tokenizer.json": FILE}, kind="model")
    found = locate("o/n", root)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate(f"o/n@{commit}", root) == found
    for given in ("o/n", f"o/n@{COMMIT}"):
        with pytest.raises(StorageError, match="HF_HUB_OFFLINE; unset it"):
            locate(given, root)
