"""Finished data of the Hub, with fetch killed at every instant that matters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_entry import kill
from tests.support.servers.downloads import Hub
from tests.support.stages.fetching import ask_here


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub() as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


def test_killed_at_every_instant_a_download_goes_on_to_the_same_bytes(hub: Hub, tmp_path: Path) -> None:
    assert kill(hub, tmp_path, everywhere=True) > 30
