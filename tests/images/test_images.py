"""What every image promises: its user, that nothing is written, its size, what is in it, and what it computes."""

import ast
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.golden.record import LEFT_OUT, RECORD
from tests.support.helpers import REPOSITORY, contents
from tests.support.kubernetes.containers import PIPELINE, SAMPLER, USER, inspect, podman, run, writable
from tests.support.tools import STAGES

IMAGES = (SAMPLER, PIPELINE)
SBOM = "/opt/pairmill/sbom.cdx.json"


def ask(image: str, program: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    """What a Python program prints in a confined container."""
    return run(image, "-c", program, *arguments, options=("--entrypoint=python", *options)).stdout


@pytest.mark.parametrize("image", IMAGES)
def test_runs_as_a_numeric_user_on_a_root_that_nobody_may_write(image: str) -> None:
    """Also as the image is started by itself: Kubernetes checks runAsNonRoot by the number that stands in the image."""
    assert inspect(image)["User"] == f"{USER}:{USER}"
    program = "import os, sys; print(os.getuid(), os.getgid()); open(sys.argv[1], 'w')"
    done = run(image, "-c", program, "/app/written", options=("--entrypoint=python",), check=False)
    assert (done.stdout.split(), done.returncode) == ([str(USER)] * 2, 1)
    assert "Read-only file system" in done.stderr
    owned = "import os; print([p for p in ('/app', '/opt/pairmill', os.__file__) if os.access(p, os.W_OK)])"
    assert podman("run", "--rm", "--network=none", "--entrypoint=python", image, "-c", owned).stdout.strip() == "[]"


@pytest.mark.parametrize("image", IMAGES)
def test_the_wheel_has_one_package_and_one_command(image: str) -> None:
    program = (
        "from importlib.metadata import distribution\n"
        "pairmill = distribution('pairmill')\n"
        "tops = {str(file).split('/')[0] for file in pairmill.files if not str(file).startswith('..')}\n"
        "print(sorted(top for top in tops if not top.endswith('.dist-info')), [p.name for p in pairmill.entry_points])"
    )
    assert ask(image, program).strip() == "['pairmill'] ['pairmill']"
    listed = run(image, "--help", options=("--entrypoint=pairmill",)).stdout
    assert listed.startswith("usage: pairmill <command> key=value")


@pytest.mark.parametrize("image", IMAGES)
def test_labels(image: str) -> None:
    """Every label of the specification that applies has a value."""
    prefix = "org.opencontainers.image."
    labels = {
        key.removeprefix(prefix): value for key, value in inspect(image)["Labels"].items() if key.startswith(prefix)
    }
    expected = "base.digest base.name description licenses revision source title version"
    assert sorted(key for key, value in labels.items() if value) == expected.split()
    assert labels["licenses"] == "Apache-2.0"
    assert image.endswith(f"{labels['title']}:{labels['version']}")
    assert labels["base.digest"].startswith("sha256:")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert labels["revision"].removesuffix("-dirty") == head.stdout.strip()


@pytest.mark.parametrize("image", IMAGES)
def test_sbom_names_all_that_is_installed(image: str) -> None:
    """Every distribution, as Python itself lists them, and nothing else; the crates stand in the wheel's own list."""
    listed = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    # Debian's Python has packages of its own; the path of the virtual environment does not see them.
    installed = json.loads(ask(image, listed))
    sbom = json.loads(ask(image, "import sys; print(open(sys.argv[1]).read())", SBOM))
    assert sbom["bomFormat"] == "CycloneDX"
    assert {item["name"]: item["version"] for item in sbom["components"]} == installed
    assert {"pairmill", "numpy", "omegaconf"} <= set(installed)
    exported = REPOSITORY / "dist" / f"{image.rsplit('-', 1)[1].split(':')[0]}.cdx.json"
    assert json.loads(exported.read_text()) == sbom
    crates = (
        "import importlib.metadata as m; print(*(p.read_text() for p in m.files('pairmill') if 'sboms' in p.parts))"
    )
    names = {item["name"] for item in json.loads(ask(image, crates))["components"]}
    assert {"aho-corasick", "arrow-array", "pyo3"} <= names


@pytest.mark.parametrize("image", IMAGES)
def test_no_image_of_the_line_has_torch(image: str) -> None:
    """Gigabytes that only a training needs."""
    listed = "import importlib.util as u; print([n for n in ('torch', 'triton', 'nvidia', 'numpy') if u.find_spec(n)])"
    assert ask(image, listed).strip() == "['numpy']"


def test_sampler_is_at_most_250_mb_over_its_base() -> None:
    """Every GPU node pulls it."""
    base = int(inspect(os.environ.get("BASE_IMAGE") or _pinned_base())["Size"])
    assert 0 < int(inspect(SAMPLER)["Size"]) - base <= 250e6


def _pinned_base() -> str:
    (found,) = [
        line.split("=", 1)[1]
        for line in (REPOSITORY / "images/Dockerfile").read_text().splitlines()
        if line.startswith("ARG BASE_IMAGE=")
    ]
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_says_what_it_takes(stage: str) -> None:
    """With the command that a Kubeflow task gives the container, from a folder that is not the image's own."""
    options = ("--entrypoint=python", "--workdir=/")
    done = run(PIPELINE, "-m", "pairmill", "stage", stage, "--help", options=options)
    assert done.stdout.startswith(f"usage: pairmill {'stage ' * (stage in {'compare', 'search'})}{stage} ")


def test_line_of_stages_gives_the_recorded_bytes(line: Path) -> None:
    """All six in the pipeline image, on a read-only root: the digests that the same data gives on the host."""
    whole = json.loads(RECORD.read_text())["pairmill"]
    expected = {key: digest for key, digest in whole.items() if not key.startswith("every/")}
    places = {"raw": line / "raw", "sampled": line / "sampled"}
    for stage in ("clean", "tokenizer", "tokenize"):
        (places[stage],) = (path for path in (line / "project" / stage).iterdir() if path.name != "shards")
    found = {
        f"{name}/{path}": data
        for name, place in places.items()
        for path, data in contents(place).items()
        if Path(path).name not in LEFT_OUT
    }
    assert {key: hashlib.sha256(data).hexdigest() for key, data in found.items()} == expected


def test_sampler_makes_the_same_and_imports_nothing_heavy(line: Path) -> None:
    """What the process has loaded when it ends, not what the source names."""
    (tokenized,) = (path for path in (line / "project" / "tokenize").iterdir() if path.name != "shards")
    program = (
        "import runpy, sys\n"
        "sys.argv.insert(1, 'sample')\n"
        "try: runpy.run_module('pairmill', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: print([end.code, *{name.split('.')[0] for name in sys.modules}])"
    )
    folder = writable(line / "again")
    options = (f"--volume={line}:/line:ro", f"--volume={folder}:/again")
    arguments = (
        f"tokenized_path=/line/project/tokenize/{tokenized.name}",
        "prefix_config_path=/line/rules.yaml",
        "output_path=/again/sampled",
        "epochs=2",
    )
    code, *modules = ast.literal_eval(ask(SAMPLER, program, *arguments, options=options).splitlines()[-1])
    assert code == 0
    assert {"numpy", "pairmill"} <= set(modules)
    heavy = {"datasets", "httpx", "huggingface_hub", "kfp", "pandas", "pyarrow", "tokenizers"}
    assert not heavy & set(modules)
    data = {path: bytes_ for path, bytes_ in contents(folder / "sampled").items() if path.endswith(".npy")}
    assert data
    assert data == {path: b for path, b in contents(line / "sampled").items() if path.endswith(".npy")}


@pytest.mark.parametrize("name", ["pipeline", "sampler"])
def test_locked_versions_are_those_that_the_tests_run_with(name: str) -> None:
    """And each has a hash."""

    def pins(file: str) -> set[str]:
        text = (REPOSITORY / "requirements" / file).read_text()
        return set(re.findall(r"^[\w.-]+==[\w.]+(?=.* \\\n    --hash=sha256:)", text, re.MULTILINE))

    locked = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    assert len(pins(f"{name}.txt")) == len(re.findall("^[a-z]", locked, re.MULTILINE)) >= 7
    assert pins(f"{name}.txt") <= pins("dev.txt")
