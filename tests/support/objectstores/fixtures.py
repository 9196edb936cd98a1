"""Fixtures for every test: object stores that run for the session, and a fresh bucket of one."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from pairmill import storage
from tests.support.objectstores.servers import GcsServer, S3Server, missing

Use = Callable[[Mapping[str, str]], None]


_KEY = "objectstores"
_SAID: dict[str, str] = {}
_NAMES = {"s3", "gs", "s3_server", "gcs_server"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Without the servers nothing is tried: one line in place of an error for each test that talks to them."""
    reason = missing()
    if not reason or not any(_talks(item) for item in session.items):
        return
    told: dict[str, str] | None = getattr(session.config, "workeroutput", None)
    if told is None:
        raise pytest.UsageError(reason)
    # A process of xdist cannot end the session: it has nothing to do, and says why.
    session.items.clear()
    told[_KEY] = reason


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process of xdist said."""
    _SAID.update({key: said for key, said in getattr(node, "workeroutput", {}).items() if key == _KEY})


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End as without xdist."""
    if _SAID:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it once."""
    for reason in _SAID.values():
        terminalreporter.write_line(f"ERROR: {reason}", red=True)


def _talks(item: pytest.Item) -> bool:
    # A test of every backend has the name of its fixture as a parameter.
    of = getattr(item, "callspec", None)
    values = of.params.values() if of else ()
    return bool(_NAMES & {*getattr(item, "fixturenames", ()), *(value for value in values if isinstance(value, str))})


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server."""
    importlib.import_module("tests.support.objectstores.models")  # for tests that talk to S3 alone
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
