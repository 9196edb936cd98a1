"""Models by URI: found, fetched once, compared, and named in every error."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.errors import Changed, InputError, UsageError
from pairmill.extras import require
from pairmill.stages.curate.scores.classifiers import ClassifierSettings
from pairmill.stages.curate.scores.language import LanguageSettings
from pairmill.stages.curate.scores.models import Model, describe
from pairmill.stages.curate.scores.perplexity import PerplexitySettings
from tests.support.nets.models import batch_of, use_kenlm, write_fasttext, write_onnx, write_tokenizer


def test_a_model_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"language\.model=.*absent\.bin: the model is missing") as caught:
        Model.from_place(str(tmp_path / "absent.bin"), "language.model")
    assert caught.value.exit_code == 3


def test_the_identity_follows_from_the_bytes_and_not_from_the_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"weights")
    first, second = (Model.from_place(str(tmp_path / name), "model") for name in ("a", "b"))
    assert first.identity == second.identity
    (tmp_path / "b").write_bytes(b"others.")
    assert Model.from_place(str(tmp_path / "b"), "model").identity != first.identity


def test_a_local_model_is_used_in_place_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights")
    model = Model.from_place(path.as_uri(), "model")
    assert model.file() == path
    path.write_bytes(b"another")
    with pytest.raises(Changed, match=r"model\.bin: changed"):
        model.local()


def test_a_model_that_changes_while_it_is_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights")
    model = Model.from_place(str(path), "model")
    with pytest.raises(Changed), model.used():
        path.write_bytes(b"another")


def test_a_folder_without_the_file_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"got weights\.bin; expected model\.onnx"):
        Model.from_place(str(tmp_path), "model").file("model.onnx")


def test_a_model_in_a_bucket_is_fetched_once(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    uri = storage.join(s3, "models", "quality", "model.bin")
    store = storage.store_for(uri)
    store.write(uri, b"weights")
    model = Model.from_place(uri, "model")
    path = model.local()
    assert path.read_bytes() == b"weights"
    inode = path.stat().st_ino
    assert model.local().stat().st_ino == inode
    folder = Model.from_place(storage.join(s3, "models"), "model")
    assert (folder.local() / "quality" / "model.bin").read_bytes() == b"weights"

    store.write(uri, b"others.")
    path.unlink()
    with pytest.raises(Changed, match="blake3"):
        model.local()
    assert [one.name for one in path.parent.iterdir() if one.is_file()] == []


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "an empty file"),
        (gzip.compress(b"model", mtime=0), "gzip"),
        (b"<!DOCTYPE html><html>sign in</html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\\data\\\nngram 1=1\n", "ARPA"),
        (b"who knows", "begin with b'who knows'"),
    ],
)
@pytest.mark.parametrize("kind", ["fasttext", "logit", "onnx", "kenlm", "sentencepiece", "language"])
def test_a_file_that_is_not_a_model_of_the_kind_is_described(
    kind: Any, data: bytes, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    path.write_bytes(data)
    assert found in describe(path)
    if kind in ("kenlm", "sentencepiece"):
        use_kenlm()
        good = tmp_path / "good.arpa"
        good.write_text(ARPA)
        model, pieces = (str(path), "none") if kind == "kenlm" else (str(good), f"sentencepiece:{path}")
        (scorer,) = PerplexitySettings(mode="report", model=model, tokenizer=pieces).scorers("")
    elif kind == "language":
        (scorer,) = LanguageSettings(mode="report", model=str(path)).scorers("")
    else:
        tokenizer = tmp_path / "tokenizer.json"
        write_tokenizer(tokenizer, ["a"])
        settings = ClassifierSettings(
            name="toxic", kind=kind, model=str(path), labels=["yes", "no"], tokenizer=str(tokenizer)
        )
        (scorer,) = settings.scorers("")
    with pytest.raises(InputError, match="not a") as caught, scorer.opened():
        pass
    assert found in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 3


ARPA = """\\data\\
ngram 1=3
ngram 2=1

\\1-grams:
-1\t<unk>
0\t<s>\t0
-1\t</s>

\\2-grams:
-1\t<s> </s>

\\end\\
"""


def test_a_fasttext_model_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """The library itself ends the process, or makes a model that knows nothing."""
    path = tmp_path / "model.bin"
    write_fasttext(path, ["en", "de"], ["the", "der"], [[9, 0], [0, 9]])
    data = path.read_bytes()
    settings = ClassifierSettings(name="lid", kind="fasttext", model=str(path), labels=["en", "de"])
    with settings.scorers("")[0].opened() as score:
        assert score(batch_of(["the the", "der"])).columns[-1].to_pylist() == ["en", "de"]
    cut = 0
    for length in [*range(0, len(data), 3), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(InputError, match="not a supervised fastText model"), settings.scorers("")[0].opened():
            pass
        cut += 1
    assert cut > 50


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    path = tmp_path / "model"
    path.write_bytes(b"x")
    cases = {
        "classifiers": ClassifierSettings(name="a", kind="fasttext", model=str(path), labels=["b"]),
        "onnx": ClassifierSettings(name="a", kind="onnx", model=str(path), labels=["b"]),
        "perplexity": PerplexitySettings(mode="report", model=str(path)),
    }
    for extra, settings in [*cases.items(), ("classifiers", LanguageSettings(mode="report", model=str(path)))]:
        with pytest.raises(UsageError, match=rf"pip install '\.\[{extra}\]'") as caught:
            settings.scorers("")
        assert caught.value.exit_code == 2
    assert ClassifierSettings(name="a", kind="logit", model=str(path)).scorers("")
    with pytest.raises(UsageError, match="needs kenlm, not installed here"):
        require("perplexity", "kenlm", where="perplexity")


def test_a_damaged_onnx_output_or_input_is_refused(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", ["good", "bad"])
    write_onnx(tmp_path / "model.onnx", [[0, 0], [4, 0], [0, 4]])
    one = ClassifierSettings(name="q", kind="onnx", model=str(tmp_path), labels=["a", "b", "c"])
    with (
        pytest.raises(InputError, match=r"got shape \[1, 2\]; expected \[1, 3\], for a, b, c"),
        one.scorers("")[0].opened() as score,
    ):
        score(batch_of(["good"]))
    write_onnx(tmp_path / "model.onnx", [[0, 0], [4, 0], [0, 4]], ["tokens"])
    two = ClassifierSettings(name="q", kind="onnx", model=str(tmp_path), labels=["a", "b"])
    with pytest.raises(InputError, match=r"got tokens of type .*classifiers\.q\.inputs"), two.scorers("")[0].opened():
        pass
