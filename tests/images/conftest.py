"""What both test modules start from: the example data, carried through the stages in the pipeline image."""

from pathlib import Path

import pytest

from tests.support.helpers import python
from tests.support.kubernetes.containers import PIPELINE, run, writable

RULES = "- prefix: dmmath__\n  max_per_file: 150\n- prefix: gsm8k_train.jsonl\n  repeat: 2\n"
"""As in tests/golden/record.py, whose digests the line must give."""


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with raw/, rules.yaml, and what six containers made of them: the project root/, and sampled/."""
    folder = writable(tmp_path_factory.mktemp("line"))
    made = python("examples/make_raw.py", str(folder / "raw"))
    assert made.returncode == 0, made.stderr
    (folder / "rules.yaml").write_text(RULES)

    def stage(name: str, *options: str) -> str:
        volume = (f"--volume={folder}:/line",)
        done = run(PIPELINE, name, "root=/line/project", *options, options=volume, check=False)
        assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stderr}"
        return done.stdout.strip()

    raw = stage("fetch", "raw=/line/raw")
    rows = stage("clean", f"raw={raw}")
    rows = stage("curate", f"rows={rows}", f"raw={raw}")
    tokenizer = stage("train_tokenizer", f"rows={rows}", "vocab_size=512")
    tokenized = stage("tokenize", f"rows={rows}", f"tokenizer={tokenizer}")
    rules = "prefix_config_path=/line/rules.yaml"
    stage("sample", f"tokenized_path={tokenized}", rules, "output_path=/line/sampled", "epochs=2")
    return folder
