"""Who may import whom, and that the picture of it in docs/architecture.md is what the code says."""

import ast
import json
import re
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from docs import imports
from pairmill.line.stages import EVERY, LAST
from pairmill.stages.train.command import COMMANDS
from tests.support.data.tokenized import put_folder
from tests.support.helpers import REPOSITORY, python


def top(name: str) -> str:
    return name.split(".", 1)[0]


def test_imports_point_one_way() -> None:
    found = imports.modules()
    assert len(found) >= 45
    assert sum(name.startswith("pairmill.stages.") for name in found) >= 20
    allowed = {name: set(imports.PACKAGES[: floor + 1]) for floor, name in enumerate(imports.PACKAGES)}
    inspected = 0
    for name, path in found.items():
        for other in imports.imported(path):
            if top(other) == imports.BASE:
                assert imports.package_of(other) in allowed[imports.package_of(name)], f"{name} imports {other}"
                inspected += 1
    assert inspected >= 100


def test_rooms_have_no_cycle() -> None:
    graph = imports.edges()
    TopologicalSorter(graph).prepare()
    assert len(graph) >= 15
    assert {"pairmill.engine", "pairmill.loader", "pairmill.stages.sample", "pairmill.sources"} <= graph.keys()
    assert "pairmill.storage" in graph["pairmill.engine"]


def test_what_a_node_runs_and_the_preview_import_nothing_else_of_their_stage() -> None:
    graph = imports.edges()
    for room in ("pairmill.stages.sample.node", "pairmill.stages.sample.inspect"):
        assert graph[room]
        assert not [other for other in graph[room] if other.startswith("pairmill.stages")]


def test_the_reduced_graph_reaches_what_the_whole_one_reaches() -> None:
    def reached(graph: imports.Edges, name: str) -> set[str]:
        return set(graph[name]).union(*(reached(graph, target) for target in graph[name]))

    graph = imports.edges()
    reduced = imports.reduced(graph)
    assert sum(map(len, reduced.values())) < sum(map(len, graph.values()))
    for name in graph:
        assert reduced[name] <= graph[name]
        assert reached(reduced, name) == reached(graph, name)


def test_the_picture_is_what_the_code_says() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    for made in (imports.picture(), imports.table()):
        assert made in page, "run: make generate"
    assert "pairmill_loader --> pairmill_formats" in page


def test_the_files_on_a_rows_way_exist() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:pairmill|components|pipelines|tests)/[\w/.]*)`", page))
    assert len(named) >= 20
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_stages_never_import_each_other() -> None:
    inspected = 0
    for name, path in imports.modules().items():
        parts = name.split(".")
        if parts[:2] != ["pairmill", "stages"] or len(parts) < 3:
            continue
        for other in imports.imported(path):
            if other.startswith("pairmill.stages."):
                assert other.split(".")[2] == parts[2], f"{name} imports {other}"
                inspected += 1
    assert inspected >= 20


def test_kfp_is_imported_where_kubeflow_is_meant_and_nowhere_else() -> None:
    users = {
        name for name, path in imports.modules().items() if any(top(other) == "kfp" for other in imports.imported(path))
    }
    assert {imports.package_of(name) for name in users} == {"pairmill.kubeflow"}


def helps(without: set[str], commands: Sequence[Sequence[str]]) -> list[str]:
    """What each command prints, in one interpreter that has none of these packages and modules."""
    code = (
        "import io, json, runpy, sys\n"
        "from contextlib import redirect_stdout\n"
        "without, commands = map(json.loads, sys.argv[1:])\n"
        "without = {*without}\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if {name, name.split('.')[0]} & without:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "printed = []\n"
        "for command in commands:\n"
        "    sys.argv[1:] = command\n"
        "    with redirect_stdout(io.StringIO()) as out:\n"
        "        try:\n"
        "            runpy.run_module('pairmill', run_name='__main__', alter_sys=True)\n"
        "        except SystemExit as end:\n"
        "            assert not end.code, command\n"
        "    printed.append(out.getvalue())\n"
        "print(json.dumps(printed))"
    )
    done = python("-c", code, json.dumps(sorted(without)), json.dumps(commands))
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def test_nothing_that_a_stage_image_runs_needs_kfp() -> None:
    printed = helps({"kfp", "kubernetes", "docstring_parser"}, [("stage", stage, "--help") for stage in EVERY])
    for stage, text in zip(EVERY, printed, strict=True):
        assert f" {stage} key=value" in text.splitlines()[0]


def test_the_help_of_a_stage_imports_its_options_alone() -> None:
    """What a stage does is imported once its options are known to be right: hundreds of processes start in a test run,
    and numpy and Arrow alone take longer than all else that a help needs.
    """
    without = {"numpy", "pyarrow", "yaml", "omegaconf", "jinja2", "rich", "asyncio", "ssl", "multiprocessing"}
    without |= {f"pairmill.stages.{stage}.core" for stage in EVERY}
    without |= {f"pairmill.{name}" for name in ("engine.runner", "engine.stage", "report.model", "policy")}
    printed = helps(without, [("stage", stage, "--help") for stage in EVERY])
    for stage, text in zip(EVERY, printed, strict=True):
        assert f" {stage} key=value" in text.splitlines()[0]
        assert "\n  root  (text; " in text


def test_what_has_no_torch_knows_the_stage_that_trains() -> None:
    """Options, settings, the help, the compiled pipelines: nothing of these imports torch, or anything of its extra."""
    commands = [("train", "--help"), ("train", "settings"), ("compile", "--help")]
    commands += [("train", name, "--help") for name in COMMANDS]
    commands += [("evaluate", "--help"), ("evaluate", "settings")]
    assert all(helps({"torch", "safetensors", "tensorboard", "transformers", "wandb"}, commands))


def test_torch_is_imported_by_what_trains_and_nowhere_else() -> None:
    wanted = {"torch", "safetensors", "tensorboard", "transformers", "wandb"}
    users = {name for name, path in imports.modules().items() if {top(one) for one in imports.imported(path)} & wanted}
    apart = {f"pairmill.stages.evaluate.{name}" for name in ("measure", "models.exported_net")}
    rooms = ("pairmill.stages.train.", "pairmill.nets.", "pairmill.training.optimizers.")
    assert {name for name in users if not name.startswith(rooms)} == {"pairmill.loader.torch", *apart}
    assert len(users) > 10
    assert list(LAST) == ["train", "evaluate"]


def test_only_storage_knows_schemes() -> None:
    # The launcher maps its own mounts, which are Kubeflow's and no storage of ours.
    known = ("pairmill.storage", "pairmill.interface.launcher")
    scheme = re.compile(r"\b(gs|s3|minio|file)://")
    inspected = 0
    for name, path in imports.modules().items():
        if name.startswith(known):
            continue
        inspected += 1
        text = path.read_text()
        if not scheme.search(text):
            continue
        tree = ast.parse(text)
        explained = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in explained:
                assert not scheme.search(node.value), f"{name}: {node.value!r}"
    assert inspected > 500


TOLD_BY_VARIABLES = {
    *(f"pairmill.stages.train.{name}" for name in ("launch", "run.parallel", "watch.trainjob", "watch.wandb")),
    "pairmill.stages.evaluate.models.server",
}
"""torchrun says by variables which process of several this is, and Trainer where the status of its job is; keys of W&B
and of a server are in one, as no option holds a secret."""


def test_no_core_looks_at_the_environment() -> None:
    inspected = 0
    for name, path in imports.modules().items():
        if name.startswith("pairmill.stages.") and not name.endswith(".command") and name not in TOLD_BY_VARIABLES:
            names = imports.imported(path)
            assert not {other for other in names if other in {"os.environ", "os.getenv"}}, name
            assert not re.search(r"os\.(environ|getenv)", path.read_text()), name
            inspected += 1
    assert inspected >= 15


def test_every_stage_has_the_same_files() -> None:
    for folder, names in {
        "pairmill/stages": ("config.py", "core.py", "command.py"),
        "components": ("README.md", "OWNERS", "component.py", "component.yaml", "metadata.yaml"),
    }.items():
        stages = [path.name for path in (REPOSITORY / folder).iterdir() if path.is_dir() and path.name != "__pycache__"]
        assert sorted(stages) == sorted(EVERY)
        for stage in stages:
            for name in names:
                assert (REPOSITORY / folder / stage / name).is_file(), f"{folder}/{stage}/{name}"


_NEEDLESS = (
    *("pandas", "pyarrow.compute", "pyarrow.dataset", "omegaconf", "yaml", "jinja2", "rich", "tokenizers", "datasets"),
    *("multiprocessing", "pairmill.engine.processes"),
    *("pairmill.sources.language.mapped", "pairmill.policy.enforce", "pairmill.policy.take_out"),
)
"""What a run of a named source without a policy has no use for."""


_RUN = (
    "import json, sys\n"
    "from pairmill.interface.command import run\n"
    "assert run(sys.argv[2:]) == 0\n"
    "print(*sorted({*json.loads(sys.argv[1])} & sys.modules.keys()))"
)


def test_a_run_that_makes_or_reuses_rows_imports_nothing_needless(tmp_path: Path) -> None:
    """A call of to_numpy() once made every process of clean import pandas, two fifths of a small run, unnoticed."""
    raw = tmp_path / "raw" / "gsm8k_train"
    raw.mkdir(parents=True)
    lines = (json.dumps({"question": f"What is {n} + 1?", "answer": f"So it is #### {n + 1}"}) for n in range(30))
    (raw / "train.jsonl").write_text("".join(f"{line}\n" for line in lines))
    root, needless = f"root={tmp_path / 'root'}", json.dumps(_NEEDLESS)
    for _ in range(2):
        done = python("-c", _RUN, needless, "clean", f"raw={raw.parent}", root, "workers=1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1] == ""
    assert "reused, nothing to do" in done.stderr
    rows = f"rows={done.stdout.splitlines()[0]}"
    for needless in ("[]", json.dumps(["multiprocessing", "pyarrow.compute"])):
        done = python("-c", _RUN, needless, "curate", rows, root, "workers=1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == ""
    assert "reused, nothing to do" in done.stderr


_OF_FEW_SAMPLES = (
    *("pyarrow", "multiprocessing", "subprocess", "secrets", "html", "pairmill.stages.sample.rare", "pairmill.net.hub"),
    *("pairmill.formats.union", "pairmill.formats.tasks_file", "pairmill.engine.processes"),
)
"""What samples of mixtures, of several folders, after other plans or with a tokenizer of the Hub need."""
_OF_PAGES = (
    *("csv", "pairmill.stages.sample.inventory.lines", "pairmill.lineage.page", "pairmill.report.charts"),
    *("pairmill.mixture.plan", "pairmill.formats.results.rows"),
)
"""What the pages of a new plan need."""


def test_a_sample_imports_neither_what_few_samples_need_nor_once_it_is_made_its_pages(tmp_path: Path) -> None:
    tokens = f"tokenized_path={put_folder(tmp_path / 'tokens', {'a': 1, 'b': 2})}"
    for given in (f"output_path={tmp_path / 'out'}", f"root={tmp_path / 'root'}"):
        for needless in (_OF_FEW_SAMPLES, _OF_FEW_SAMPLES + _OF_PAGES):
            done = python("-c", _RUN, json.dumps(needless), "sample", tokens, given, "workers=1")
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1] == ""
        assert "reused, nothing to do" in done.stderr
