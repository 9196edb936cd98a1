"""Parameters of tests, of which CI tries some and `make test-long` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def cases(kinds: Iterable[Any], *full: Any) -> list[Any]:
    """Kinds as parameters; some of them for `make test-long` alone, since another is much like each of them."""
    listed = list(kinds)
    assert {*full} < {*listed}, "a case that is not there, or none for CI"
    return [pytest.param(kind, marks=pytest.mark.full) if kind in full else kind for kind in listed]
