"""`make cluster-test KFP=…` on a Kubeflow Pipelines that the emulator stands in for."""

import os
import subprocess
import sys
from pathlib import Path

from objectstores.servers import S3Server

from pairmill import storage
from tests.cluster.standin import StandIn
from tests.emulator import Backend, Folder, Process
from tests.helpers import REPOSITORY, environment, missing


def test_the_cluster_test_on_a_stand_in(s3_server: S3Server, s3: str, tmp_path: Path) -> None:
    if os.geteuid():
        missing("mounts of a process's own")
    secret = {name.removesuffix("_S3"): value for name, value in s3_server.environment().items()}
    backend = Backend(
        Folder(tmp_path / "artifacts"),
        Process(folder=REPOSITORY),
        tmp_path / "pods",
        secrets={"pairmill-storage": secret},
        second=0.01,
        pods=4,
        stock=True,
    )
    with StandIn(backend) as server:
        given = {"KFP": server.url, "IMAGE": "localhost/pairmill-pipeline:none", "ROOT": f"{s3}/tests"}
        own = {"OPTIONS": "poll=0.2", "KF_PIPELINES_TOKEN": "unused", "KUBECONFIG": "", "KEEP": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-s", "tests/cluster/test_pipeline.py"],
            cwd=REPOSITORY,
            env={**environment(), **given, **own},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
    assert "2 workers" in done.stdout
    assert "raw files that are not there: exit 6" in done.stdout
    assert storage.store_for(s3).list(s3) == []
