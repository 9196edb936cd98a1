"""The wheel alone: numpy, and nothing else."""

import json

from tests.support.kubernetes.containers import VERSION
from tests.wheel.conftest import Machine


def test_it_brings_numpy_and_nothing_else(bare: Machine) -> None:
    assert {item["name"] for item in json.loads(bare.type("pip list --format=json"))} == {"numpy", "pairmill", "pip"}
    sboms = bare.type("ls /bare/lib/python3*/site-packages/pairmill-*.dist-info/sboms")
    assert sboms == "pairmill-python.cyclonedx.json\n"


def test_it_says_what_it_is(bare: Machine) -> None:
    assert bare.type("pairmill --version") == f"pairmill {VERSION}\n"
    assert bare.type("python -c 'import pairmill; print(pairmill.__version__)'") == f"{VERSION}\n"
    assert bare.type("pairmill --help").startswith("usage: pairmill <command>")
    assert bare.type("bash -c 'eval \"$(pairmill completion bash)\"; complete -p pairmill'").endswith(" pairmill\n")


def test_a_command_that_needs_more_says_what_to_install(bare: Machine) -> None:
    for command, extra in {"clean raw=x root=y": "stages", "train root=x": "train", "compile": "pipelines"}.items():
        said = json.loads(bare.type(f"pairmill {command}", fails=True).splitlines()[-1])["message"]
        assert said.endswith(f"; pip install 'pairmill[{extra}]'")


def test_the_compiled_module_and_the_loader_work(bare: Machine) -> None:
    program = "import pairmill._native; from pairmill import Loader, RowPlan; print(Loader.__name__)"
    assert bare.type(f"python -c '{program}'") == "Loader\n"
