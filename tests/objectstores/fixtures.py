"""Fixtures for every test: object stores that run for the session, and a fresh bucket of one."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from objectstores.servers import GcsServer, S3Server
from pairmill import storage

Use = Callable[[Mapping[str, str]], None]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """A server that speaks Google Cloud Storage's API."""
    with GcsServer(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Sets these environment variables, for this process (whose clients are made anew) and its children."""

    def use(environment: Mapping[str, str]) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        storage.forget()

    yield use
    storage.forget()


@pytest.fixture
def s3(s3_server: S3Server, use: Use) -> str:
    """URI of an empty ``s3://`` bucket that this process and its children reach."""
    use(s3_server.environment())
    return s3_server.bucket()


@pytest.fixture
def gs(gcs_server: GcsServer, use: Use) -> str:
    """URI of an empty ``gs://`` bucket that this process and its children reach."""
    use(gcs_server.environment())
    return gcs_server.bucket()
