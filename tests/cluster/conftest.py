"""A cluster with the project folder on its node, and an object store with the same, before the tests and gone after."""

import json
from collections.abc import Iterator

import pytest

from pairmill import storage
from tests.support.data.results import upload
from tests.support.helpers import python
from tests.support.kubernetes.cluster.rig import OUR_PROJECT, ReachableS3, Rig, settings


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    found = Rig(settings(), tmp_path_factory.mktemp("cluster"))
    found.refuse_unfit()
    try:
        found.set_up()
        yield found
    finally:
        found.tear_down()


@pytest.fixture(scope="session")
def store(cluster: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReachableS3, str]]:
    """An S3 server that the cluster reaches, and the URI of the node's project folder on it."""
    folder = tmp_path_factory.mktemp("store")
    places = [folder / "project", folder / "node"]
    for place in places:
        place.mkdir()
    made = python(str(OUR_PROJECT), "make", *map(str, places))
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == cluster.plans, "plans do not depend on where they are made"
    with ReachableS3(folder / "s3") as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        storage.forget()
        project = upload(folder / "project", f"{server.bucket()}/project")
        yield server, project
    storage.forget()
