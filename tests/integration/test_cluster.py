"""`make cluster-test KFP=…` on a Kubeflow Pipelines that the emulator stands in for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill import storage
from tests.support.helpers import PATIENCE, REPOSITORY, environment, missing
from tests.support.kubernetes.cluster.freeze import freeze
from tests.support.kubernetes.cluster.standin import StandIn
from tests.support.kubernetes.emulator import Backend, Folder, Forked
from tests.support.objectstores.servers import S3Server
from tests.support.processes.nursery import STORES


@pytest.mark.full
def test_the_cluster_test_on_a_stand_in(s3_server: S3Server, s3: str, tmp_path: Path) -> None:
    if os.geteuid():
        missing("mounts of a process's own")
    secret = {name.removesuffix("_S3"): value for name, value in s3_server.environment().items()}
    backend = Backend(
        Folder(tmp_path / "artifacts"),
        Forked(STORES),
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
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
    assert "2 workers" in done.stdout
    assert "raw files that are not there: exit 6" in done.stdout
    assert storage.store_for(s3).list(s3) == []


def test_a_writer_of_little_is_stopped_in_the_midst_of_it(tmp_path: Path) -> None:
    plan = "0123456789abcdef"
    code = (
        "import os, sys, time\nhidden = os.path.join(sys.argv[1], f'.{sys.argv[4]}.x.partial')\ntime.sleep(0.3)\n"
        "os.mkdir(hidden)\nopen(hidden + '/tokens.npy', 'wb').write(bytes(400_000))\nend = time.monotonic() + 0.3\n"
        "while time.monotonic() < end: pass\n"
        "os.rename(hidden, os.path.join(sys.argv[1], sys.argv[4]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path), "sample", f"plan={plan}", plan]
    process = subprocess.Popen(command)
    try:
        assert freeze(tmp_path, plan, seconds=PATIENCE) > 0
        assert not (tmp_path / plan).exists()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
