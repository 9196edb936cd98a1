"""A stage that somebody adds as pairmill/stages/README.md says it: its folder and a task of the table are enough."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pairmill.kubeflow.compile import documents
from tests.support import tools
from tests.support.helpers import PATIENCE, REPOSITORY

PAGE = REPOSITORY / "pairmill" / "stages" / "README.md"


def program(top: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=top,
        env={**os.environ, "PYTHONPATH": str(top), "PAIRMILL_LOG": "json"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def insert(path: Path, line: str, before: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, f"{line}\n{before}"))


def test_a_stage_is_a_folder_and_a_task(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    config, core, main = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    task, options_class = re.findall(r"^```\n( .*?)\n```", page, re.MULTILINE)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "pairmill", tmp_path / "pairmill", ignore=ignored)
    (tmp_path / "prefix_config.yaml").symlink_to(REPOSITORY / "prefix_config.yaml")
    folder = tmp_path / "pairmill" / "stages" / "longer"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""longer: rows whose response is long."""\n')
    for name, text in (("config", config), ("core", core), ("command", main)):
        (folder / f"{name}.py").write_text(text)
    line = tmp_path / "pairmill" / "line"
    insert(
        line / "stages.py", "from pairmill.stages.longer.config import LongerConfig", "from pairmill.stages.mix.config"
    )
    insert(line / "stages.py", options_class, '    "clean": CleanConfig')
    insert(line / "table.py", task, '    Task("train_tokenizer"')

    tools.write_rows(tmp_path / "rows" / "a.jsonl", [("direct", "q", "long enough"), ("direct", "q", "no")] * 20)
    options = ["rows=rows", "root=root", "least=3"]
    result = Path(program(tmp_path, "-m", "pairmill", "longer", *options).strip())
    assert (result / "a.jsonl").read_text().count("long enough") == 20
    manifest = tools.read_manifest(result)
    assert manifest["ledger"]["dropped"] == {"short_response": 20}
    record = next((tmp_path / "root" / "longer" / "shards").glob("*/_RECORD.json"))
    before = record.stat()
    assert program(tmp_path, "-m", "pairmill", "longer", *options, "workers=1").strip() == str(result)
    assert record.stat() == before

    for asked in ("workers=1", "workers=2", "component=longer"):
        target = tmp_path / "made.yaml"
        program(tmp_path, "-m", "pairmill", "compile", f"output={target}", asked)
        compiled = documents(target.read_bytes())[0]
        given = compiled["components"]["comp-longer"]["inputDefinitions"]["parameters"]
        if asked.startswith("workers"):
            program(tmp_path, "-m", "pairmill", "lint", f"file={target}")
            assert set(given) == {"options", "rows"}
    assert (given["least"]["defaultValue"], given["least"]["description"]) == (
        1,
        "characters that a response must have",
    )
