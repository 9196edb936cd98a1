"""The example that joins our components with a stranger's: compiled by kfp, run under the launcher's contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pairmill import storage
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes.emulator import Backend, Forked, Stores, load
from tests.support.objectstores.fixtures import S3Server, Use

EXAMPLE = "examples/components/joined.py"


def test_ours_and_a_strangers(s3_server: S3Server, use: Use, tmp_path: Path) -> None:
    use(s3_server.environment())
    # It finds components/ beside it, and writes its YAML there: both in a copy.
    for folder in ("curate", "train_tokenizer"):
        (tmp_path / "components" / folder).mkdir(parents=True)
        source = REPOSITORY / "components" / folder / "component.yaml"
        (tmp_path / "components" / folder / "component.yaml").write_bytes(source.read_bytes())
    (tmp_path / "examples" / "components").mkdir(parents=True)
    (tmp_path / EXAMPLE).write_bytes((REPOSITORY / EXAMPLE).read_bytes())
    subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, check=True)

    bucket = s3_server.bucket()
    # The image's own Python stands in: kfp is there, so that pip has nothing to fetch.
    engine = Forked(env={**s3_server.environment(), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"})
    backend = Backend(Stores(), engine, tmp_path / "pods", second=0.01)
    questions = [f"How many legs have {count} spiders?\t{8 * count}" for count in range(2, 60)]
    lines = [*questions, questions[0], "Not a question\t1"]
    arguments = {"lines": lines, "root": f"{bucket}/project", "vocab_size": 300}
    run = backend.run(load(tmp_path / "examples/components/joined.yaml"), arguments, root=f"{bucket}/artifacts")
    assert run.state == "SUCCEEDED", run.failures()

    kept = run.outputs["curate"]
    assert kept.artifacts["metrics"].metadata["rows_in"] == len(questions) + 1
    assert kept.parameters["rows_out"] == len(questions)
    tokenizer = f"{run.outputs['train-tokenizer'].parameters['output']}/tokenizer.json"
    assert len(json.loads(storage.store_for(bucket).read(tokenizer))["model"]["vocab"]) == 300
