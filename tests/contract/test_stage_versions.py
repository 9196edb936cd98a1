"""A stage whose program changed has another version, or somebody said why its bytes did not change."""

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pairmill.line.stages import EVERY
from pairmill.sources.datasets import SOURCES
from pairmill.stages.clean.core import Clean
from pairmill.stages.compare.core import Compare
from pairmill.stages.curate.core import Curate
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.mix.core import Mix
from pairmill.stages.sample.core import Sample
from pairmill.stages.sample.node.plan import VERSION
from pairmill.stages.search.core import Search
from pairmill.stages.select.core import Select
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train.core import Train
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.contract import stage_versions
from tests.contract.stage_versions import RECORD, TOP, Tree

COMMAND = "python tests/contract/stage_versions.py"


STAGE_CLASSES = (Fetch, Clean, Curate, Select, TrainTokenizer, Tokenize, Mix, Sample, Train, Evaluate, Compare, Search)


def test_no_stage_changed_without_another_version() -> None:
    wrong = Tree().wrong()
    assert not wrong, (
        "\n"
        + "\n".join(wrong)
        + "\nDoes the same input give other bytes than before? Then raise `version` of the stage (with its line in "
        f"`history`) or of the source, and record it: {COMMAND} raised\n"
        f'If it does not: {COMMAND} neutral <name, or all> "why no byte changes"'
    )


def test_the_record_knows_every_stage_and_source_with_its_version() -> None:
    known = Tree().known()
    assert len(known) == len(EVERY) + len(SOURCES)
    versions = {stage.name: str(stage.version) for stage in STAGE_CLASSES}
    assert {name: known[name].version for name in EVERY} == versions
    assert Sample.version == VERSION, "nodes carry out the plans of this version"
    sources = {type(source).__module__.rsplit(".", 1)[1]: source for source in SOURCES.values()}
    assert {name: known[f"source {name}"].version for name in sources} == {
        name: f"{Clean.version}.{source.version}" for name, source in sources.items()
    }


def test_what_is_left_out_is_there_and_has_a_reason() -> None:
    left_out = Tree().recorded["apart"]
    for pattern, reason in left_out.items():
        path = pattern if pattern.endswith(".rs") else pattern.replace(".", "/")
        assert [*TOP.glob(path), *TOP.glob(f"{path}.py")], pattern
        assert len(reason.split()) > 2


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("repository")
    for name in ("pairmill", "rust/core", "rust/python"):
        shutil.copytree(TOP / name, top / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "target"))
    (top / RECORD).parent.mkdir(parents=True)
    shutil.copy(TOP / RECORD, top / RECORD)
    Tree(top).record("all", "the test begins with nothing wrong")
    return top


Edit = Callable[[str, str, str], Tree]


@pytest.fixture
def edit(original: Path) -> Edit:
    """Changes a text of a file in place of another, for one test."""
    before: dict[Path, bytes] = {}

    def change(path: str, old: str, new: str) -> Tree:
        file = original / path
        before.setdefault(file, file.read_bytes())
        before.setdefault(original / RECORD, (original / RECORD).read_bytes())
        text = file.read_text()
        assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
        file.write_text(text.replace(old, new))
        return Tree(original)

    yield change
    for file, data in before.items():
        file.write_bytes(data)


def names(tree: Tree) -> set[str]:
    return {line.split(":")[0] for line in tree.wrong()}


def test_a_change_of_a_reader_needs_a_version_or_a_reason(edit: Edit) -> None:
    readers = "pairmill/sources/files/readers.py"
    tree = edit(
        readers,
        "csv.reader(lines, strict=True, delimiter=between, quotechar",
        "csv.reader(lines, delimiter=between, quotechar",
    )
    # Curate reads benchmarks as fetch and clean read sources.
    stages = ("fetch", "clean", "curate", "evaluate")
    assert tree.wrong() == [
        f"{name}: pairmill.sources.files.readers changed, and its version was not" for name in stages
    ]
    assert {line.split(":")[0] for line in tree.record()} == {*stages}  # what was not raised stays wrong
    assert tree.record("curate", "curate reads no table") != []
    assert tree.record("fetch", "fetch never parses a record") != []
    assert tree.record("evaluate", "evaluate reads no table") != []
    core = "pairmill/stages/clean/core.py"
    version = f"version: ClassVar[int] = {Clean.version}\n"
    tree = edit(core, version, version.replace(str(Clean.version), str(Clean.version + 1)))
    assert (
        "clean: pairmill.sources.files.readers, pairmill.stages.clean.core changed, and its version was raised"
        in tree.wrong()
    )
    assert tree.record() == []
    assert tree.known()["clean"].version == str(Clean.version + 1)
    assert tree.known()["fetch"].neutral[-1] == {
        "modules": ["pairmill.sources.files.readers"],
        "reason": "fetch never parses a record",
    }
    # The next change is noticed again.
    assert names(edit(readers, "_BUFFER = 1 << 18", "_BUFFER = 1 << 19")) == {*stages}


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        (
            "pairmill/formats/jsonstream.py",
            "import ",
            "import array\nimport ",
            {*EVERY} - {"train", "compare"},
        ),
        (
            "pairmill/encoder.py",
            r"\p{N}| ?",
            r"\p{N}{1,3}| ?",
            {*EVERY} - {"fetch", "clean", "curate", "select", "mix", "sample"},
        ),
        ("pairmill/sources/datasets/arb.py", "class ", "OTHER = 1\n\n\nclass ", {"source arb"}),
        ("rust/core/src/bpe/merges.rs", "fn ", "fn other() {}\nfn ", {*EVERY}),
        ("pairmill/nets/hrm.py", "import ", "import array\nimport ", {"train", "evaluate", "compare", "search"}),
        ("pairmill/stages/train/report/page.py", "import ", "import array\nimport ", set()),
        ("rust/core/src/loader/pack.rs", "fn ", "fn other() {}\nfn ", set()),
        ("pairmill/stages/curate/near/union.py", "import ", "import array\nimport ", {"curate"}),
        ("pairmill/stages/curate/report/page.py", "import ", "import array\nimport ", set()),
        ("pairmill/stages/curate/show.py", "import ", "import array\nimport ", set()),
        ("pairmill/storage/local.py", "import ", "import array\nimport ", set()),
    ],
)
def test_whose_bytes_a_module_makes_is_known(
    path: str, old: str, new: str, expected: set[str], edit: Edit, original: Path
) -> None:
    text = (original / path).read_text()
    first = text.index(old)
    assert names(edit(path, text[: first + len(old)], text[:first] + new)) == expected


def test_a_module_that_only_sources_share_is_theirs(edit: Edit) -> None:
    found = names(edit("pairmill/sources/fields.py", '"</think>"', '"</thought>"'))
    assert len(found) > 5
    assert all(name.startswith("source ") for name in found)


def test_words_for_people_and_formatting_change_nobody_s_bytes(edit: Edit, original: Path) -> None:
    core = "pairmill/stages/clean/core.py"
    module = ast.parse((original / core).read_text())
    said = [
        word.value
        for node in ast.walk(module)
        if isinstance(node, ast.Raise)
        for word in ast.walk(node)
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and len(word.value.split()) > 3
    ]
    assert said
    for words in set(said):
        tree = edit(core, words, "other words")
    head = ast.get_docstring(module, clean=False)
    tree = edit(core, f'"""{head}"""', '"""Other words.\n\nReally.\n"""  # Indeed.')
    tree = edit(
        "pairmill/formats/rows.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\n# Rows.\n",
    )
    (original / core).write_text(ast.unparse(ast.parse((original / core).read_text())))
    assert Tree(original).wrong() == tree.wrong() == []


@pytest.mark.parametrize(
    "arguments", [["neutral", "clean"], ["neutral", "clean", "no"], ["neutral", "cleen", "a b c d"]]
)
def test_a_neutral_change_has_a_name_and_a_reason(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = (TOP / RECORD).read_bytes()
    assert stage_versions.main(arguments) == 2
    assert COMMAND in capsys.readouterr().out
    assert (TOP / RECORD).read_bytes() == before
    assert json.loads(before)["units"]
