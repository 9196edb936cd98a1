"""A cluster with the project folder on its node, before the tests and gone after them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
if str(_HERE) not in sys.path:
    sys.path.insert(0, str(_HERE))

from rig import Cluster, settings  # noqa: E402


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(settings(), tmp_path_factory.mktemp("cluster"))
    found.refuse_used()
    try:
        found.set_up()
        yield found
    finally:
        found.tear_down()
