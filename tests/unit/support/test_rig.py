"""What the tests of a cluster expect programs to say, without a cluster."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.helpers import REPOSITORY, environment
from tests.support.kubernetes.cluster.rig import last_line, waited_in_vain


def test_a_trainer_that_waits_in_vain_says_what_the_cluster_test_looks_for(tmp_path: Path) -> None:
    plan = "f" * 16
    done = subprocess.run(
        [sys.executable, "-m", "pairmill", "sample", "wait", f"path={tmp_path}", f"plan={plan}", "timeout=0"],
        cwd=REPOSITORY,
        env={**environment(), "PAIRMILL_LOG": "json"},
        capture_output=True,
        text=True,
        check=False,
    )
    line = last_line(f"an earlier line{os.linesep}{done.stderr}")
    assert (done.returncode, line["exit_code"]) == (3, 3)
    said = waited_in_vain(str(tmp_path), plan, 0)
    assert said in line["message"]
    # Of a whole message it is there twice, so that a test which expects it once has to take the line apart.
    assert done.stderr.count(said) == 2
